/* Sessions: tokens, lengths and the pages that a session owns (S1-S9, T2-T5). The borrowed part of
 * a session's table is the path to its pinned node and is never stored twice. */
#include "core/session/sessions.h"

#include <string.h>

#include "core/memory/pages.h"
#include "core/memory/record_pages.h"
#include "core/session/record.h"
#include "core/session/retires.h"
#include "core/tier/host.h"
#include "core/transfer/handed.h"
#include "core/transfer/pulls.h"
#include "core/tree/nodes.h"
#include "core/tree/state.h"
#include "core/tree/tokens.h"

static void session_link(struct core *c, struct engine *e, struct session *s)
{
    session_list_push_front(c, &e->sessions, session_slot(c, s));
    tenant_at(c, e->tenant)->sessions++;
    session_pool(c, s)->sessions++;
}

/* M2: dropping blobs is right only where the last turn wins. */
static enum tern_err retention_check(const struct req_session_open *r, struct reply *ret)
{
    if (r->merging && r->blobs_kept > 0)
        return refuse(ret, TERN_INVALID,
                      "blobs_kept drops blobs that a session for merging needs: open the session "
                      "with only one of the two");
    return r->blobs_kept <= BLOBS_KEPT_MAX ? TERN_OK
                                           : refuse(ret, TERN_INVALID, "blobs_kept is at most 16");
}

enum tern_err session_open(struct core *c, struct call *call, struct reply *ret)
{
    const struct req_session_open *r = &call->req->session_open;
    struct engine *e = call->engine;
    const struct tenant *tenant = tenant_at(c, e->tenant);
    struct pool *p;
    struct session *s;
    uint32_t root, slot, gen;

    TRY(session_pool_find(c, e, r->pool, &p, ret));
    TRY(retention_check(r, ret));
    if (c->draining)
        return refuse(ret, TERN_BUSY, "the daemon is draining: open sessions elsewhere");
    if (tenant->sessions >= tenant->config.sessions_max)
        return refuse_numbers(
            ret, TERN_QUOTA,
            "the tenant has # open sessions, # of them handed over (tickets), and may have no "
            "more: close sessions, fetch or drop tickets, or raise sessions_max",
            tenant->sessions, (uint32_t)tenant->tickets.standing);
    if (share_room(c, SHARE_SESSIONS, e->tenant) == 0)
        return refuse(ret, TERN_BUSY, share_refused(SHARE_SESSIONS));
    TRY(space_open(c, pool_slot(c, p), r->ns, &root, ret));
    slot = session_slot_take(c, e->tenant);
    s = session_at(c, slot);
    gen = gen_next(s->gen_last);
    check(s->state == SESSION_EMPTY && s->gate == GATE_FREE);
    memset(s, 0, sizeof(*s)); /* fields that requests keep begin as 0 */
    s->gen = s->gen_last = gen;
    s->in_turns = (struct list_links){.next = NONE, .prev = NONE};
    s->engine = engine_slot(c, e);
    s->pool = pool_slot(c, p);
    s->space = node_at(c, root)->space;
    s->node = root;
    s->pull = s->target = s->record = s->prepared = s->left.node = NONE;
    s->load = (struct load){
        .at = NONE, .pin = NONE, .host = NONE, .hold = {NONE, 0}, .begun = LIST_EMPTY};
    s->records = LIST_EMPTY;
    s->blobs_kept = r->merging ? 0 : r->blobs_kept ? r->blobs_kept : BLOBS_KEPT;
    s->held = REF_DEVICE;
    s->lent_from = UINT32_MAX;
    s->in_away = s->in_tickets = (struct list_links){.next = NONE, .prev = NONE};
    s->follower = NONE;
    s->last_use_ns = s->ref_since_ns = c->now_ns;
    s->tokens.align = p->align;
    s->tokens.owner.tenant = (uint16_t)e->tenant;
    session_state_move(&s->state, SESSION_OPEN);
    tokens_init(&s->tokens, 0);
    for (uint32_t g = 0; g < c->limits.groups; g++)
        s->owned[g] = LIST_EMPTY;
    node_pin(c, root,
             REF_DEVICE); /* an empty table pins its root, which pins nothing but the namespace */
    session_link(c, e, s);
    ret->session_open.session = (struct session_id){.slot = slot, .gen = s->gen};
    return TERN_OK;
}

void session_turn_over(struct core *c, struct session *s, bool ended)
{
    struct tenant *t = tenant_at(c, engine_at(c, s->engine)->tenant);

    turn_list_remove(c, &c->turns, session_slot(c, s));
    conn_turn_list_remove(c, &conn_at(c, s->turn_conn)->turns, session_slot(c, s));
    t->turns.in_flight--;
    session_records_turn_over(c, s, ended);
    touch(c);
    if (s->gate == GATE_CLAIMED) {
        gate_state_move(&s->gate, GATE_FREE);
        return;
    }
    gate_state_move(&s->gate, ended ? GATE_CLOSED : GATE_UNCLOSED);
    if (ended)
        closes_list_push(c, &t->closes, session_slot(c, s));
    else
        closes_list_push_front(c, &t->closes, session_slot(c, s)); /* needs no release */
    c->ncloses++;
}

void session_turns_lost(struct core *c, uint32_t conn)
{
    while (conn_at(c, conn)->turns.n > 0) {
        struct session *s = session_at(c, conn_at(c, conn)->turns.head);

        c->visits++;
        tenant_at(c, engine_at(c, s->engine)->tenant)->turns.lost++;
        session_turn_over(c, s, false);
    }
}

void session_gate_leave(struct core *c, struct session *s)
{
    struct tenant *t = tenant_at(c, session_pool(c, s)->tenant);

    if (s->gate == GATE_CLAIMED || s->gate == GATE_CLOSING)
        session_turn_over(c, s, true);
    if (s->gate == GATE_FREE)
        return;
    closes_list_remove(c, &t->closes, session_slot(c, s));
    c->ncloses--;
    gate_state_move(&s->gate, GATE_FREE);
}

bool session_close_told(struct core *c, struct actions *out, struct session *s, enum tern_err err)
{
    if (!reply_waits(c, &s->close_reply))
        return true;
    if (actions_room(out) == 0)
        return false;
    reply_late(out, s->close_reply, OP_SESSION_CLOSE, err,
               err == TERN_OK
                   ? ""
                   : "a turn ended by its deadline or with its connection, and its last step is "
                     "unknown: close the session again, with a step that covers that turn");
    s->close_reply.gen = 0;
    return true;
}

static void released(struct core *c, struct session *s)
{
    if (s->record != NONE)
        retire_close(c, s->record, (struct path){NONE, 0});
    s->record = NONE;
    s->releasing = 0;
    closing_list_remove(c, &c->closing, session_slot(c, s));
}

void session_close(struct core *c, struct session *s, uint64_t step, bool engine_gone)
{
    uint32_t tenant = session_pool(c, s)->tenant;
    bool holds;

    if (s->ticket_state != TICKET_NONE)
        handed_leave(c, s);
    session_gate_leave(c, s);
    if (s->pull != NONE)
        pull_orphan(c, pull_at(c, s->pull));
    s->pull = NONE;
    step = session_step(s, step);
    session_come_back(c, s);
    holds = s->held != REF_HOST || session_owns(c, s) > 0;
    if (s->releasing && s->record != NONE && retire_at(c, s->record)->step > step)
        step = retire_at(c, s->record)->step;
    if (s->releasing) /* the rest waits for this step */
        released(c, s);
    s->record = holds && !engine_gone
                    ? retire_open(c, engine_at(c, s->engine), step, session_slot(c, s))
                    : NONE;
    tenant_at(c, tenant)->sessions--;
    session_pool(c, s)->sessions--;
    session_state_move(&s->state, SESSION_CLOSING);
    closing_list_push(c, &c->closing, session_slot(c, s));
    touch(c);
}

/* Ends the session's pin and borrows, which are all that it still has, up to `end` visits. The
 * session's retire record, if any, takes them over. */
static bool closed(struct core *c, struct session *s, uint32_t end)
{
    bool host = s->held == REF_HOST;
    struct path path = {s->node, s->state_from};
    uint32_t tenant = session_pool(c, s)->tenant;

    if (host || s->record == NONE) {
        bool all = state_path_end(c, &path, s->lent_from, host ? REF_HOST : REF_DEVICE, end);

        s->node = path.node;
        s->committed = all ? 0 : node_at(c, s->node)->depth;
        if (!all)
            return false;
    }
    if (s->record != NONE)
        retire_close(c, s->record, path);
    closing_list_remove(c, &c->closing, session_slot(c, s));
    if (s->engine != NONE)
        session_list_remove(c, &engine_at(c, s->engine)->sessions, session_slot(c, s));
    session_state_move(&s->state, SESSION_EMPTY);
    s->node = NONE;
    session_slot_put(c, session_slot(c, s), tenant);
    c->visits++;
    touch(c);
    return true;
}

static bool give_back_pages(struct core *c, struct session *s, uint32_t end)
{
    for (uint32_t g = 0; g < session_pool(c, s)->ngroups; g++)
        for (uint32_t keep = s->releasing ? session_keeps(c, s->allocated, s, g) : 0;
             s->owned[g].n > keep; c->visits++) {
            uint32_t page;

            if (c->visits >= end)
                return false;
            page =
                s->releasing ? page_list_pop_last(c, &s->owned[g]) : page_list_pop(c, &s->owned[g]);
            if (s->record == NONE)
                page_free(c, page);
            else
                retire_add(c, retire_at(c, s->record), page);
        }
    return true;
}

static bool give_back_tokens(struct core *c, struct session *s, uint32_t end)
{
    for (; s->tokens.end - s->tokens.first >= s->tokens.align;
         c->visits += tokens_blocks_per_chunk(s->tokens.align)) {
        if (c->visits >= end)
            return false;
        tokens_drop_chunk(c, &s->tokens);
    }
    tokens_truncate(c, &s->tokens, s->tokens.first);
    return true;
}

static uint32_t given_at_once(const struct core *c)
{
    return c->limits.give_back_visits ? 0 : GIVE_AT_ONCE_PAGES;
}

bool session_may_give(const struct core *c, uint32_t pages)
{
    const uint32_t end = c->limits.give_back_visits ? give_back_end(c) : ROOM_VISITS_MAX;

    return pages <= given_at_once(c) || c->visits + pages <= end;
}

bool session_tail_ready(const struct core *c, const struct engine *e, uint64_t step, uint32_t pages)
{
    uint32_t records = pages <= given_at_once(c) ? 1 : 2;

    return step <= e->done_min || share_room(c, SHARE_RETIRES, e->tenant) >= records;
}

void session_give_tail(struct core *c, struct session *s, uint32_t p, uint64_t step)
{
    bool at_once = session_may_give(c, session_tail_pages(c, s, p));
    struct list pages;

    session_free_tail(c, s, p, at_once, &pages);
    c->visits += pages.n;
    retire_release(c, engine_at(c, s->engine), step, &pages, (struct path){NONE, 0});
    if (at_once)
        return;
    s->record = retire_open(c, engine_at(c, s->engine), step, session_slot(c, s));
    session_release(c, s);
}

void session_release(struct core *c, struct session *s)
{
    session_begin_release(c, s);
    session_give_back(c, s, give_back_end(c));
}

/* Releases the path that an Abort left. */
static bool give_back_path(struct core *c, struct session *s, uint32_t end)
{
    if (s->left.node != NONE &&
        state_path_end(c, &s->left, s->lent_from, (enum ref_kind)s->left_kind, end))
        s->lent_from = UINT32_MAX;
    return s->left.node == NONE;
}

bool session_give_back(struct core *c, struct session *s, uint32_t end)
{
    touch(c);
    if (!load_let_go(c, s, end) || !give_back_path(c, s, end) || !give_back_pages(c, s, end))
        return false;
    if (s->releasing) {
        released(c, s);
        return true;
    }
    if (!give_back_tokens(c, s, end))
        return false;
    while (c->visits < end && session_record_drop(c, s))
        ;
    if (c->visits >= end)
        return false;
    return closed(c, s, end);
}

bool sessions_flush(struct core *c)
{
    uint32_t end = give_back_begin(c);

    while (c->closing.n > 0)
        if (!session_give_back(c, session_at(c, c->closing.head), end))
            return false;
    return true;
}
