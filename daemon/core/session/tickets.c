/* See tickets.h. */
#include "core/session/tickets.h"

#include "core/memory/pages.h"
#include "core/memory/record_pages.h"
#include "core/session/commits.h"
#include "core/session/engines.h"
#include "core/session/record.h"
#include "core/session/retires.h"
#include "core/session/sessions.h"
#include "core/transfer/handed.h"
#include "core/transfer/serves.h"
#include "core/tree/nodes.h"
#include "core/tree/state.h"
#include "core/tree/tokens.h"

static bool path_has_recurrent(const struct core *c, const struct session *s, uint32_t group)
{
    const struct node *n = node_at(c, s->node);

    return s->written == s->committed && n->group[group].pages[TIER_DEVICE] != NONE &&
           !(n->state.refilling & 1u << group);
}

/* First page of a WINDOW group that a ticket of that length needs: at a multiple of L the receiver
 * fills nodes' segments, so it needs the first segment whole. */
static uint32_t first_needed(const struct core *c, const struct session *s, const struct group *g)
{
    const struct pool *p = session_pool(c, s);
    const uint32_t first = window_first(g, s->written),
                   chunk = first * g->layout.page_tokens / p->align,
                   whole = segment_first(p, g, (chunk + 1) * p->align);

    return s->written % p->align == 0 && whole < first ? whole : first;
}

/* Returns true if the table has all of the group's STATE at the written length: whole segments of
 * the path, then its own pages. It may own what no node of the path took (T18). */
static bool group_whole(const struct core *c, const struct session *s, const struct group *g)
{
    const uint32_t i = g->index, first = window_first(g, s->written);
    uint32_t at;

    if (g->layout.family == FAMILY_HISTORY)
        return true;
    if (g->layout.family == FAMILY_RECURRENT)
        return s->owned[i].n > 0 || path_has_recurrent(c, s, i);
    if (s->first[i] > first ||
        first_needed(c, s, g) * g->layout.page_tokens + g->layout.window < s->whole_from)
        return false;
    if (s->base[i] <= first)
        return s->base[i] <= first_needed(c, s, g);
    at = session_borrows_to(c, s, i);
    if (segment_end(g, node_at(c, at)->depth) != s->base[i])
        return false;
    for (; segment_end(g, node_at(c, at)->depth) > first; at = node_at(c, at)->parent)
        if (node_at(c, at)->group[i].pages[TIER_DEVICE] == NONE)
            return false;
    return true;
}

/* A group's pages without use for the ticket: before the window, and behind the written length. */
struct spare {
    uint32_t front, back;
};

/* The RECURRENT page of a session that wrote nothing since its commit is a copy of the node's,
 * unless the node has none. */
static struct spare spare_of(const struct core *c, const struct session *s, const struct group *g)
{
    const uint32_t i = g->index, end = div_up(s->written, g->layout.page_tokens),
                   first = first_needed(c, s, g);
    struct spare n = {0, 0};

    if (g->layout.family == FAMILY_RECURRENT) {
        n.back = path_has_recurrent(c, s, i) ? s->owned[i].n : 0;
        return n;
    }
    if (s->base[i] + s->owned[i].n > end)
        n.back = s->base[i] + s->owned[i].n - end;
    if (first > s->base[i])
        n.front = first - s->base[i] < s->owned[i].n - n.back ? first - s->base[i]
                                                              : s->owned[i].n - n.back;
    return n;
}

struct handing {
    uint32_t spares, kept; /* pages that are freed, and that the ticket keeps */
};

static struct handing count_pages(const struct core *c, const struct session *s)
{
    const struct pool *p = session_pool(c, s);
    struct handing n = {0, 0};

    for (uint32_t g = 0; g < p->ngroups; g++) {
        struct spare spare = spare_of(c, s, &p->group[g]);

        n.spares += spare.front + spare.back;
        n.kept += s->owned[g].n - spare.front - spare.back;
    }
    return n;
}

/* Checks that the session's state allows a handoff. */
static enum tern_err state_check(struct core *c, const struct session *s, struct reply *ret)
{
    const struct pool *p = session_pool(c, s);
    const uint32_t path = s->committed / p->align;
    uint32_t walk = path;

    TRY(session_is_matched(s, ret));
    TRY(session_fetches_nothing(s, ret));
    if (session_away(s))
        return refuse(ret, TERN_INVALID, "the session is retracted: Recover it first");
    if (space_at(c, s->space)->reset)
        return refuse(ret, TERN_GONE, "the namespace was reset: Match again in a new session");
    if (s->state == SESSION_OPEN || s->written == 0)
        return refuse(ret, TERN_INVALID,
                      "the session has no written tokens, so there is nothing to hand over");
    if (s->written - s->committed >= p->align)
        return refuse_numbers(
            ret, TERN_INVALID,
            "# tokens are written and only # committed: commit all whole chunks, then hand over",
            s->written, s->committed);
    for (uint32_t g = 0; g < p->ngroups; g++)
        walk += p->group[g].reach < path ? p->group[g].reach : path;
    if (walk > STEP_TABLE_MAX)
        return refuse_numbers(
            ret, TERN_UNSUPPORTED,
            "the session is too long to hand over: its path and the windows on it have # chunks, "
            "and at most 131,072 are allowed: open the pool with a larger align_tokens",
            walk, 0);
    c->visits += walk;
    for (uint32_t g = 0; g < p->ngroups; g++)
        if (!group_whole(c, s, &p->group[g]))
            return refuse(ret, TERN_INVALID, NO_STATE_THERE);
    return TERN_OK;
}

static enum tern_err room_check(struct core *c, const struct session *s,
                                const struct req_handoff *r, struct reply *ret)
{
    const struct token_need need = {.blocks = div_up(r->blob_bytes, 4 * TOKEN_BLOCK)};
    struct handing n = count_pages(c, s);
    struct reason why;

    if (r->blob_bytes > TICKET_BLOB_BYTES || r->blob.n != div_up(r->blob_bytes, 4))
        return refuse(ret, TERN_INVALID, "a ticket has a blob of at most 65,536 bytes");
    if (!session_may_give(c, n.spares))
        return refuse(ret, TERN_BUSY, SPARES_TOO_MANY);
    if (n.kept > SEAL_PAGES_MAX)
        return refuse(ret, TERN_UNSUPPORTED,
                      "the session has more than 256 pages of its own behind its committed length, "
                      "and a ticket names at most 256");
    if (!retire_ready(c, engine_at(c, s->engine), session_step(s, r->step)))
        return refuse(ret, TERN_BUSY, share_refused(SHARE_RETIRES));
    return refuse_why(ret, tokens_room(c, s->pool, need, &why), &why);
}

static void keep_blob(struct core *c, struct session *s, const struct req_handoff *r)
{
    s->blob = (struct token_buf){.align = TOKEN_BLOCK,
                                 .owner = {.tenant = (uint16_t)session_pool(c, s)->tenant}};
    tokens_init(&s->blob, 0);
    s->blob_bytes = r->blob_bytes;
    check(tokens_append(c, &s->blob, r->blob.v, r->blob.n, NULL, 0) == TERN_OK);
}

/* Frees by the step what the ticket does not need; the ticket keeps the rest. */
static void hand_pages(struct core *c, struct session *s)
{
    const struct pool *p = session_pool(c, s);
    struct list pages = LIST_EMPTY;

    for (uint32_t g = 0; g < p->ngroups; g++) {
        struct spare spare = spare_of(c, s, &p->group[g]);

        for (uint32_t i = 0; i < spare.front; i++, s->base[g]++)
            page_list_push(c, &pages, page_list_pop(c, &s->owned[g]));
        for (uint32_t i = 0; i < spare.back; i++)
            page_list_push(c, &pages, page_list_pop_last(c, &s->owned[g]));
        for (uint32_t at = s->owned[g].head; at != NONE; at = page_list_next(c, at))
            page_move(c, page_at(c, at), PAGE_HANDED, session_slot(c, s));
        c->visits += s->owned[g].n;
    }
    c->visits += pages.n;
    s->allocated = s->written;
    retire_release(c, engine_at(c, s->engine), s->ticket_step, &pages, (struct path){NONE, 0});
}

/* Returns the ticket's lifetime in ms. */
static uint32_t stand(const struct core *c, struct session *s, uint32_t wanted)
{
    uint64_t most = c->limits.ticket_deadline_ns / NS_PER_MS;
    uint32_t ms = wanted == 0 || wanted > most ? (uint32_t)most : wanted;

    s->ticket_until_ns = c->now_ns + ms * NS_PER_MS;
    handed_timed(c, s);
    return ms;
}

/* A promised ticket keeps its key. */
static void make(struct core *c, struct session *s, const uint64_t key[2])
{
    if (s->ticket_state != TICKET_NONE)
        return;
    s->ticket_key[0] = key[0];
    s->ticket_key[1] = key[1];
    handed_made(c, s);
    tickets_of(c, s)->made++;
    tickets_of(c, s)->standing++;
}

static struct ticket ticket(const struct core *c, const struct session *s, uint32_t length)
{
    return (struct ticket){.id = {session_slot(c, s), s->gen},
                           .key = {s->ticket_key[0], s->ticket_key[1]},
                           .incarnation = c->incarnation,
                           .length = length};
}

enum tern_err request_handoff(struct core *c, struct call *call, struct reply *ret)
{
    const struct req_handoff *r = &call->req->handoff;
    struct session *s = call->session;

    TRY(state_check(c, s, ret));
    TRY(room_check(c, s, r, ret));
    if (!session_close_told(c, call->out, s, TERN_OK))
        return TERN_BUSY;
    session_store_prompt(c, s);
    session_gate_leave(c, s);
    step_named(c, engine_at(c, s->engine), r->step);
    s->ticket_step = session_step(s, r->step);
    hand_pages(c, s);
    tokens_truncate(c, &s->tokens, s->written);
    keep_blob(c, s, r);
    node_pin(c, s->node, REF_HANDOFF);
    node_unpin(c, s->node, REF_DEVICE);
    s->held = REF_HANDOFF;
    s->ref_since_ns = s->last_use_ns = c->now_ns;
    session_state_move(&s->state, SESSION_HANDED);
    make(c, s, r->key);
    ticket_state_move(&s->ticket_state, TICKET_WAITING);
    handed_look(c, s);
    ret->handoff.deadline_ms = stand(c, s, r->deadline_ms);
    ret->handoff.ticket = ticket(c, s, s->written);
    return TERN_OK;
}

enum tern_err ticket_open(struct core *c, struct call *call, struct reply *ret)
{
    const struct req_ticket_open *r = &call->req->ticket_open;
    struct session *s = call->session;

    TRY(session_is_matched(s, ret));
    if (space_at(c, s->space)->reset)
        return refuse(ret, TERN_GONE, "the namespace was reset: Match again in a new session");
    make(c, s, r->key);
    if (s->ticket_state == TICKET_NONE)
        ticket_state_move(&s->ticket_state, TICKET_PROMISED);
    ret->ticket_open.deadline_ms = stand(c, s, r->deadline_ms);
    ret->ticket_open.ticket = ticket(c, s, 0);
    touch(c);
    return TERN_OK;
}

static enum tern_err ticket_of(const struct core *c, const struct call *call,
                               const struct ticket *t, struct session **ret_session,
                               struct reply *ret)
{
    enum tern_err err = handed_find(c, call->engine->tenant, t, ret_session);

    return err == TERN_OK ? TERN_OK
                          : refuse(ret, err, err == TERN_DENIED ? TICKET_DENIED : TICKET_GONE);
}

enum tern_err ticket_renew(struct core *c, struct call *call, struct reply *ret)
{
    const struct req_ticket *r = &call->req->ticket_renew;
    struct session *s;

    TRY(ticket_of(c, call, &r->ticket, &s, ret));
    ret->ticket_renew.ticket = r->ticket;
    ret->ticket_renew.deadline_ms = stand(c, s, r->deadline_ms);
    touch(c);
    return TERN_OK;
}

/* A promise ends at once. A handed-over session is freed when nothing reads it. */
static void end(struct core *c, struct session *s)
{
    if (s->ticket_state == TICKET_PROMISED) {
        handed_leave(c, s);
        return;
    }
    s->ticket_ends = 1;
    handed_look(c, s);
}

void ticket_end(struct core *c, struct session *s)
{
    tickets_of(c, s)->dropped++;
    end(c, s);
}

enum tern_err ticket_drop(struct core *c, struct call *call, struct reply *ret)
{
    struct session *s;

    TRY(ticket_of(c, call, &call->req->ticket_drop.ticket, &s, ret));
    ticket_end(c, s);
    return TERN_OK;
}

static void seal(struct core *c, struct actions *out, struct session *s)
{
    struct action *a = action_add(out, ACT_SEAL);
    struct page_at *to = out->pages + out->npages;

    a->seal.job = (struct seal_id){.slot = c->limits.nodes + session_slot(c, s), .gen = s->gen};
    a->seal.pool = s->pool;
    a->seal.pages = to;
    for (uint32_t g = 0; g < session_pool(c, s)->ngroups; g++)
        for (uint32_t at = s->owned[g].head; at != NONE; at = page_list_next(c, at)) {
            page_seal_state_move(&page_at(c, at)->seal, PAGE_SEAL_RUNNING);
            to[a->seal.n++] = page_place(c, at);
        }
    out->npages += a->seal.n;
    c->seals_running++;
}

void ticket_sealed(struct core *c, struct seal_id job)
{
    struct session *s;

    if (job.slot - c->limits.nodes >= c->limits.sessions)
        return;
    s = session_at(c, job.slot - c->limits.nodes);
    if (s->gen != job.gen || s->ticket_state != TICKET_SEALING)
        return;
    for (uint32_t g = 0; g < session_pool(c, s)->ngroups; g++)
        for (uint32_t at = s->owned[g].head; at != NONE; at = page_list_next(c, at))
            page_seal_state_move(&page_at(c, at)->seal, PAGE_SEAL_DONE);
    c->seals_running--;
    ticket_looks(c);
    ticket_state_move(&s->ticket_state, TICKET_OPEN);
    handed_look(c, s);
}

/* Returns true if STATE that the session borrows from its path waits for the step of a refill
 * (T18). Only the session's last commit may have named that step. The session's own STATE waits for
 * no step of another session. */
static bool refill_waits(struct core *c, const struct session *s)
{
    const struct pool *p = session_pool(c, s);
    const uint32_t low = s->written > p->window_max ? s->written - p->window_max : 0;

    for (uint32_t at = s->node; node_at(c, at)->depth > low;
         at = node_at(c, at)->parent, c->visits++)
        for (uint32_t i = 0; i < p->ngroups && node_at(c, at)->state.refilling; i++) {
            const uint32_t end = segment_end(&p->group[i], node_at(c, at)->depth);

            if (node_at(c, at)->state.refilling & 1u << i &&
                p->group[i].layout.family == FAMILY_WINDOW && end <= s->base[i] &&
                end > window_first(&p->group[i], s->written))
                return true;
        }
    return false;
}

/* When its step has passed, the session leaves its engine. Returns false if it has not, or if turn
 * records are left to free. */
static bool leave_engine(struct core *c, struct session *s)
{
    struct engine *e = engine_at(c, s->engine);

    if (s->ticket_step > e->done_min || !node_visible(node_at(c, s->node)) || refill_waits(c, s))
        return false;
    while (session_record_drop(c, s))
        if (visits_left(c) == 0)
            return false;
    session_list_remove(c, &e->sessions, session_slot(c, s));
    handed_left_engine(c, s);
    ticket_state_move(&s->ticket_state, TICKET_QUEUED);
    touch(c);
    return true;
}

/* Starts a job if the ticket has pages of its own. Returns false if no job is free. */
static bool seal_begin(struct core *c, struct actions *out, struct session *s)
{
    if (session_owns(c, s) == 0) {
        ticket_state_move(&s->ticket_state, TICKET_OPEN);
        return true;
    }
    if (c->seals_running >= c->limits.seal_jobs)
        return false;
    seal(c, out, s);
    ticket_state_move(&s->ticket_state, TICKET_SEALING);
    return true;
}

/* Closes the session like any other, since nothing reads it. Returns false if the close waits for a
 * record. */
static bool close(struct core *c, struct session *s)
{
    if (s->engine != NONE && !retire_ready(c, engine_at(c, s->engine), s->ticket_step))
        return false;
    session_close(c, s, s->ticket_step, s->engine == NONE);
    return true;
}

static bool seal_has_room(const struct actions *out)
{
    return actions_room(out) > 0 &&
           out->npages + SEAL_PAGES_MAX <= sizeof out->pages / sizeof out->pages[0];
}

/* Does the ticket's next work. Returns true if the ticket need not be examined again before
 * something changes. */
static bool turn(struct core *c, struct actions *out, struct session *s)
{
    if (s->ticket_ends && s->ticket_state == TICKET_SERVED)
        serve_ticket_ends(c, s);
    if (s->ticket_ends && s->ticket_state != TICKET_SEALING && s->ticket_state != TICKET_SERVED &&
        s->follower == NONE)
        return close(c, s);
    if (s->ticket_state == TICKET_WAITING && !leave_engine(c, s))
        return false;
    return s->ticket_state != TICKET_QUEUED || seal_begin(c, out, s);
}

bool tickets_expire(struct core *c)
{
    for (uint32_t n = 0; ticket_deadline(c) <= c->now_ns; n++, c->visits++) {
        struct session *s = session_at(c, *ticket_heap(c, 0));

        if (n == TICKETS_ENDED_MAX)
            return false;
        tickets_of(c, s)->expired++;
        end(c, s);
    }
    return true;
}

bool tickets_flush(struct core *c, struct actions *out)
{
    bool all = true;

    for (uint32_t n = 0; c->tickets_looks > 0 && c->tickets_due.n > 0; n++) {
        uint32_t i = c->tickets_due.head;
        struct session *s = session_at(c, i);

        if (n == TICKETS_ENDED_MAX || visits_left(c) == 0 || !seal_has_room(out))
            return false;
        c->tickets_looks--;
        c->visits++;
        if (!turn(c, out, s)) { /* it moves behind those not examined yet */
            ticket_list_remove(c, &c->tickets_due, i);
            ticket_list_push(c, &c->tickets_due, i);
            continue;
        }
        if (s->ticket_state == TICKET_NONE) {
            all = false; /* sessions_flush frees its pages in pieces */
            continue;
        }
        ticket_list_remove(c, &c->tickets_due, i);
        all = all && s->follower == NONE; /* serve_flush may offer it what arrived */
    }
    if (visits_left(c) > 0)
        return all;
    ticket_looks(c); /* turn records of a ticket may be left */
    return false;
}

uint64_t ticket_deadline(const struct core *c)
{
    return c->tickets > 0 ? handed_until(session_at(c, *ticket_heap(c, 0))) : UINT64_MAX;
}
