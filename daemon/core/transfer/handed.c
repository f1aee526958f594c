/* See handed.h. */
#include "core/transfer/handed.h"

#include "core/tree/nodes.h"
#include "core/tree/state.h"
#include "core/tree/tokens.h"

/* The key proves that its bearer was given the ticket; it does not identify the bearer. */
static enum tern_err handed_named(const struct core *c, const struct ticket *t,
                                  struct session **ret)
{
    struct session *s;

    if (t->incarnation != c->incarnation || t->id.slot >= c->limits.sessions)
        return TERN_GONE;
    s = session_at(c, t->id.slot);
    if (s->ticket_state == TICKET_NONE || s->gen != t->id.gen)
        return TERN_GONE;
    if (((s->ticket_key[0] ^ t->key[0]) | (s->ticket_key[1] ^ t->key[1])) != 0 ||
        (t->length != 0 && (t->length != s->written || s->ticket_state == TICKET_PROMISED)))
        return TERN_DENIED;
    *ret = s;
    return TERN_OK;
}

enum tern_err handed_find(const struct core *c, uint32_t tenant, const struct ticket *t,
                          struct session **ret)
{
    struct session *s;

    TRY(handed_named(c, t, &s));
    if (pool_at(c, s->pool)->tenant != tenant)
        return TERN_DENIED;
    if (s->ticket_ends || (s->ticket_state == TICKET_PROMISED && space_at(c, s->space)->reset))
        return TERN_GONE; /* a promise ends with its namespace's reset, a handed-over session when
                             its time is over */
    *ret = s;
    return TERN_OK;
}

const char *ticket_busy_text(uint32_t why)
{
    static const char *const texts[] = {
#define X(name, text) [TICKET_BUSY_##name] = text,
        TICKET_BUSY_TABLE(X)
#undef X
    };

    return texts[why < TICKET_BUSY_COUNT ? why : TICKET_BUSY_UNSAID];
}

enum tern_err handed_ready(const struct core *c, const struct session *s, uint32_t *ret_why)
{
    if (space_at(c, s->space)->reset)
        return TERN_GONE;
    if (s->ticket_state == TICKET_OPEN && s->follower == NONE)
        return TERN_OK;
    *ret_why = s->ticket_state == TICKET_PROMISED  ? TICKET_BUSY_RUNS
               : s->ticket_state == TICKET_WAITING ? TICKET_BUSY_STEP
               : s->ticket_state == TICKET_QUEUED || s->ticket_state == TICKET_SEALING
                   ? TICKET_BUSY_SUMS
                   : TICKET_BUSY_TAKEN;
    return TERN_BUSY;
}

uint64_t handed_until(const struct session *s)
{
    bool put_off = s->ticket_state == TICKET_PROMISED && s->follower != NONE;

    return s->ticket_ends || put_off ? UINT64_MAX : s->ticket_until_ns;
}

static uint64_t until_at(const struct core *c, uint32_t i)
{
    return handed_until(session_at(c, *ticket_heap(c, i)));
}

static void place(const struct core *c, uint32_t i, struct session *s)
{
    *ticket_heap(c, i) = session_slot(c, s);
    s->ticket_at = i;
}

void handed_timed(const struct core *c, struct session *s)
{
    const uint64_t until = handed_until(s);
    uint32_t i = s->ticket_at, next;

    for (; i > 0 && until < until_at(c, (i - 1) / 2); i = (i - 1) / 2)
        place(c, i, session_at(c, *ticket_heap(c, (i - 1) / 2)));
    for (; (next = 2 * i + 1) < c->tickets; i = next) {
        next += next + 1 < c->tickets && until_at(c, next + 1) < until_at(c, next);
        if (until <= until_at(c, next))
            break;
        place(c, i, session_at(c, *ticket_heap(c, next)));
    }
    place(c, i, s);
}

void handed_made(struct core *c, struct session *s)
{
    place(c, c->tickets++, s);
    handed_timed(c, s);
}

static void heap_leave(struct core *c, const struct session *s)
{
    struct session *last = session_at(c, *ticket_heap(c, --c->tickets));

    if (last == s)
        return;
    place(c, s->ticket_at, last);
    handed_timed(c, last);
}

/* The ranks of an engine ring for its followed sessions. */
static void follower_set(struct core *c, struct session *s, uint32_t serve)
{
    if (s->engine != NONE) {
        struct engine *e = engine_at(c, s->engine);

        waits_look(c, e); /* while the session is counted */
        e->nfollowed -= s->follower != NONE;
        e->nfollowed += serve != NONE;
        waits_look(c, e);
    }
    s->follower = serve;
    if (s->ticket_state != TICKET_NONE)
        handed_timed(c, s); /* a promise does not expire while a transfer follows it */
}

void handed_left_engine(struct core *c, struct session *s)
{
    struct engine *e = engine_at(c, s->engine);

    waits_look(c, e);
    e->nfollowed -= s->follower != NONE;
    s->engine = NONE;
}

void handed_follow(struct core *c, struct session *s, uint32_t serve)
{
    follower_set(c, s, serve);
    if (serve == NONE && s->ticket_ends)
        handed_look(c, s);
    touch(c);
}

uint32_t handed_differs(const struct core *c, const struct session *s, const struct peer_msg *m)
{
    const uint32_t until = peer_msg_until(m);
    const struct req_tokens t = {
        .base = m->at, .n = until - m->at, .v = m->tokens, .keys = m->keys, .nkeys = m->nkeys};
    uint32_t same = tokens_list_common(c, s, &t);

    return same < until ? same + 1 : 0;
}

void handed_look(struct core *c, struct session *s)
{
    uint32_t slot = session_slot(c, s);

    touch(c);
    handed_timed(c, s); /* ticket_ends may be set */
    if (!ticket_list_has(c, slot))
        ticket_list_push(c, &c->tickets_due, slot);
    ticket_looks(c);
}

void handed_serve(struct core *c, struct session *s, bool serves)
{
    ticket_state_move(&s->ticket_state, serves ? TICKET_SERVED : TICKET_OPEN);
    if (!serves && s->ticket_ends)
        handed_look(c, s);
    touch(c);
}

bool handed_done(struct core *c, const struct ticket *t)
{
    struct session *s;

    /* A promised session cannot have been fetched, whatever the peer sends. */
    if (handed_named(c, t, &s) != TERN_OK || s->state != SESSION_HANDED)
        return false;
    handed_taken(c, s);
    return true;
}

void handed_taken(struct core *c, struct session *s)
{
    if (s->ticket_ends)
        return;
    s->ticket_ends = 1;
    tickets_of(c, s)->taken++;
    handed_look(c, s);
}

void handed_leave(struct core *c, struct session *s)
{
    if (ticket_list_has(c, session_slot(c, s)))
        ticket_list_remove(c, &c->tickets_due, session_slot(c, s));
    heap_leave(c, s);
    ticket_state_move(&s->ticket_state, TICKET_NONE);
    tickets_of(c, s)->standing--;
    s->ticket_ends = 0;
    follower_set(c, s, NONE);
    touch(c);
    if (s->state != SESSION_HANDED)
        return; /* a promise pins nothing */
    tokens_truncate(c, &s->blob, 0);
    node_pin(c, s->node, REF_DEVICE); /* a close releases this pin */
    node_unpin(c, s->node, REF_HANDOFF);
    s->held = REF_DEVICE;
}

/* First own page of the session in the group. */
static uint32_t own_from(const struct session *s, const struct group *g)
{
    if (g->layout.family == FAMILY_RECURRENT)
        return s->owned[g->index].n > 0 ? 0 : 1;
    return s->base[g->index];
}

void handed_refs(const struct core *c, const struct session *s, const struct group *g,
                 struct handed_range of, struct page_ref *refs)
{
    uint32_t own = own_from(s, g), end = of.first + of.n, at = s->owned[g->index].head;

    if (of.n > 0 && of.first < own) {
        while (segment_end(g, node_at(c, of.node)->depth) > own) /* no node took them (T18) */
            of.node = node_at(c, of.node)->parent;
        node_refs(c, of.node, g, of.first, refs);
    }
    for (uint32_t i = own; i < end; i++, at = page_list_next(c, at))
        if (i >= of.first)
            refs[i - of.first] = page_ref_of(c, at);
}
