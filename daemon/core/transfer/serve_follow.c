/* See serve_record.h. */

#include "core/transfer/handed.h"
#include "core/transfer/serve_record.h"
#include "core/tree/nodes.h"
#include "core/tree/state.h"

void serve_follow_time(const struct core *c, struct serve *s, bool waits)
{
    s->deadline_ns =
        c->now_ns + (waits ? c->limits.ticket_deadline_ns : c->limits.transfer_deadline_ns);
}

/* Returns true if the message's tokens and keys are the session's. Only the last message may end
 * within a chunk. */
static bool tokens_agree(const struct core *c, const struct session *t, const struct peer_msg *m,
                         uint32_t *ret_differs)
{
    const uint32_t align = pool_at(c, t->pool)->align, until = peer_msg_until(m);

    *ret_differs = 0;
    if (m->at % align != 0 || (until < m->to && until % align != 0))
        return false;
    *ret_differs = handed_differs(c, t, m);
    return *ret_differs == 0;
}

/* Returns true if one offer, the last, can name all STATE pages of the transfer. */
static bool state_fits(const struct core *c, const struct session *t, const struct peer_msg *m)
{
    const struct pool *p = pool_at(c, t->pool);
    const struct transfer_span span = {m->from, m->history, m->to};
    uint32_t pages = 0;

    for (uint32_t g = 0; g < p->ngroups; g++)
        if (group_is_state(&p->group[g]))
            pages += transfer_pages(p, &p->group[g], span).n;
    return pages <= OFFER_PAGES_MAX;
}

/* *no: details of a refusal. UNSUPPORTED sets *ret_session if the session's pool has another
 * layout. */
static enum tern_err find_followed(const struct core *c, const struct peer_msg *m,
                                   struct session **ret_session, struct peer_msg *no)
{
    struct session *t;

    TRY(handed_find(c, m->tenant, &m->ticket, &t));
    if (space_at(c, t->space)->reset)
        return TERN_GONE;
    no->busy = TICKET_BUSY_TAKEN;
    if (t->follower != NONE || t->ticket_state == TICKET_SERVED)
        return TERN_BUSY;
    if (!serve_suits(pool_at(c, t->pool), m)) {
        *ret_session = t;
        return TERN_UNSUPPORTED;
    }
    if (!state_fits(c, t, m) || m->to / pool_at(c, t->pool)->align > STEP_TABLE_MAX)
        return TERN_UNSUPPORTED;
    no->handed = t->state == SESSION_HANDED && t->written != m->to ? t->written : 0;
    if (no->handed > 0 || m->to == 0 || t->committed > m->to ||
        m->from % pool_at(c, t->pool)->align != 0 || m->history % pool_at(c, t->pool)->align != 0)
        return TERN_INVALID;
    no->busy = TICKET_BUSY_UNMATCHED;
    if (t->tokens.end < m->to)
        return TERN_BUSY;
    no->busy = TICKET_BUSY_SERVES; /* if no record is free */
    *ret_session = t;
    return tokens_agree(c, t, m, &no->differs) ? TERN_OK : TERN_INVALID;
}

/* All tokens have arrived: the serve now waits for the session. */
static void heard_all(struct core *c, struct serve *s)
{
    serve_state_move(&s->state, SERVE_SEALING);
    serve_follow_time(c, s, true);
    touch(c);
}

void serve_follow_open(struct core *c, struct actions *out, uint32_t link, const struct peer_msg *m)
{
    struct session *t = NULL;
    struct serve *s;
    struct peer_msg why = {.err = TERN_OK};
    enum tern_err err = find_followed(c, m, &t, &why);

    if (err == TERN_OK)
        err = serve_may_begin(c, link, m, t->pool);
    if (err != TERN_OK) {
        struct peer_msg *no = serve_offer_nothing(c, out, link, m, err);

        no->handed = why.handed;
        no->busy = err == TERN_BUSY ? why.busy : TICKET_BUSY_UNSAID;
        no->differs = why.differs;
        if (err == TERN_UNSUPPORTED && t)
            no->layout_hash = pool_at(c, t->pool)->layout_hash;
        return;
    }
    s = serve_create(c, link, m,
                     &(struct found){.pool = t->pool,
                                     .node = space_at(c, t->space)->root,
                                     .handed = m->ticket.id});
    s->follow = 1;
    s->heard = peer_msg_until(m);
    t->tokens.cut = UINT32_MAX;
    handed_follow(c, t, serve_slot(c, s));
    if (s->heard < s->to)
        serve_msg_add(c, out, s, PEER_PULL_MORE)->at = s->heard;
    else
        heard_all(c, s);
}

/* Returns the followed session. NULL: it was closed or aborted, its promise ended, or its namespace
 * was reset. */
static struct session *followed(const struct core *c, const struct serve *s)
{
    struct session *t = session_at(c, s->handed.slot);

    if (t->gen != s->handed.gen || t->follower != serve_slot(c, s) || space_at(c, t->space)->reset)
        return NULL;
    return t;
}

/* Returns true if the session's list still begins with the peer's tokens and the session may still
 * be handed over at their end. */
static bool keeps_promise(const struct session *t, const struct serve *s)
{
    return t->tokens.cut >= s->heard && t->committed <= s->to &&
           (t->state != SESSION_HANDED || t->written == s->to);
}

void serve_follow_tokens(struct core *c, struct actions *out, struct serve *s,
                         const struct peer_msg *m)
{
    const struct session *t = followed(c, s);
    uint32_t unsaid;

    if (!t) {
        serve_set_ending(c, s, TERN_GONE);
        return;
    }
    if (m->to != s->to || m->at != s->heard || !keeps_promise(t, s) ||
        !tokens_agree(c, t, m, &unsaid)) {
        serve_set_ending(c, s, TERN_INVALID);
        return;
    }
    s->heard = peer_msg_until(m);
    if (s->heard < s->to)
        serve_msg_add(c, out, s, PEER_PULL_MORE)->at = s->heard;
    else
        heard_all(c, s);
}

/* Returns true if a peer could read this node, or has its HISTORY already. */
static bool node_ready(const struct serve *s, const struct node *n)
{
    return node_visible(n) && node_on_device(n) &&
           (n->depth <= s->history || n->work.seal == SEAL_DONE);
}

/* Returns true if the node that it waited for still blocks further offers. */
static bool still_waits(const struct core *c, const struct serve *s)
{
    const struct node *n = s->wait_node == NONE ? NULL : node_at(c, s->wait_node);

    return n && n->used && n->gen == s->wait_gen && !node_ready(s, n);
}

/* Returns the start of the last chunk, which is offered together with the tokens behind it and
 * STATE. */
static uint32_t last_chunk(const struct core *c, const struct serve *s)
{
    const uint32_t align = pool_at(c, s->pool)->align;

    return (s->to - 1) / align * align;
}

/* Offers what is committed, less the last chunk, up to the first node that is not ready. */
static void look_running(struct core *c, struct serve *s, const struct session *t)
{
    uint32_t best, at = node_above(c, (struct path){t->node, last_chunk(c, s)});

    if (still_waits(c, s))
        return;
    s->wait_node = NONE;
    best = at;
    for (; node_at(c, at)->depth > node_at(c, s->node)->depth;
         at = node_at(c, at)->parent, c->visits++)
        if (!node_ready(s, node_at(c, at))) {
            s->wait_node = at;
            s->wait_gen = node_at(c, at)->gen;
            best = node_at(c, at)->parent;
        }
    if (node_at(c, best)->depth <= node_at(c, s->node)->depth)
        return;
    serve_move(c, s, best);
    node_use(c, best);
    if (node_at(c, best)->depth > s->history)
        s->avail = node_at(c, best)->depth;
    touch(c);
}

/* The session was handed over, its step has passed, and its own pages and all nodes before the last
 * chunk have checksums: the rest is offered when the last node has its checksum, too. */
static void look_handed(struct core *c, struct serve *s, struct session *t)
{
    serve_move(c, s, t->node);
    node_use(c, s->node);
    s->state_from = t->state_from > s->from ? t->state_from : s->from;
    state_hold(c, (struct path){s->node, s->state_from});
    s->wait_node = s->node;
    s->served = 1;
    handed_follow(c, t, NONE);
    handed_serve(c, t, true);
}

void serve_follow_look(struct core *c, struct serve *s)
{
    struct session *t;

    if (s->state != SERVE_WALKING && s->state != SERVE_SEALING && s->state != SERVE_OPEN)
        return;
    if (!s->served) {
        t = followed(c, s);
        if (t && !keeps_promise(t, s)) {
            s->handed_length = t->state == SESSION_HANDED ? t->written : 0;
            serve_set_ending(c, s, TERN_INVALID);
        } else if (!t) {
            serve_set_ending(c, s, TERN_GONE);
        } else if (s->state != SERVE_WALKING) {
            if (s->avail == s->told)
                look_running(c, s, t);
            if (t->ticket_state == TICKET_OPEN && node_at(c, s->node)->depth >= last_chunk(c, s))
                look_handed(c, s, t);
        }
    }
    if (!s->served || s->avail == s->to)
        return;
    serve_advance(c, s);
    if (s->wait_node == NONE)
        s->avail = s->to;
}
