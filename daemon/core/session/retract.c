/* Retract and Recover (T14, S10), and Fetch from the host tier.
 *
 * RETRACTING: the session runs on until the host has everything needed to restore it and its step
 * has passed; the host is pinned from the start, the device to the end. RETRACTED: one ref, HOST
 * (the prefix may leave the device; what was written beyond T stays there) or RETRACTED (the prefix
 * stays; what was beyond T is freed). LOADING: pages are being restored; a TRANSFER ref pins those
 * already on the device, and a fetch pins its pages on the host. tier/loadback.c walks the path;
 * each walk continues in the next step, and so does the end of a load, successful or not: until
 * then a session whose load failed is `releasing`. */
#include "core/session/sessions.h"

#include "core/disk/stores.h"
#include "core/session/record.h"
#include "core/session/retires.h"
#include "core/session/room.h"
#include "core/tier/host.h"
#include "core/tree/nodes.h"
#include "core/tree/state.h"
#include "core/tree/tokens.h"

#include <string.h>

static void away_add(struct core *c, struct session *s)
{
    away_list_push_front(c, &c->away, session_slot(c, s));
    s->copies_lost = c->copies_lost;
    touch(c);
}

static void away_remove(struct core *c, struct session *s)
{
    uint32_t slot = session_slot(c, s);

    if (!away_list_has(c, slot))
        return;
    away_list_remove(c, &c->away, slot);
    touch(c);
}

static void held_by(struct core *c, struct session *s, enum ref_kind kind)
{
    s->held = kind;
    s->ref_since_ns = c->now_ns;
    touch(c);
}

/* --- retract --- */

static void drop(struct core *c, struct engine *e, struct session *s, uint64_t step,
                 uint32_t *ret_freed)
{
    struct list pages;

    session_free_tail(c, s, s->committed, true, &pages);
    *ret_freed = pages.n;
    c->visits += pages.n; /* bounded by retract_check */
    node_pin(c, s->node, REF_RETRACTED);
    /* The pin ends with the step; the borrows of STATE move to the new pin (T17). */
    retire_release(c, e, step, &pages, (struct path){s->node, s->committed});
    held_by(c, s, REF_RETRACTED);
    session_state_move(&s->state, SESSION_RETRACTED);
}

static enum tern_err to_host(struct core *c, struct engine *e, struct session *s, uint64_t step,
                             uint32_t *ret_freed, struct reply *ret)
{
    struct list pages;
    enum tern_err err;

    node_pin(c, s->node, REF_HOST);
    err = host_promise(c, s, &ret->shortage);
    if (err != TERN_OK) {
        node_unpin(c, s->node, REF_HOST);
        ret->shortage.storing =
            err == TERN_POOL_EXHAUSTED &&
            (disk_gives_way(c, session_pool(c, s)) || session_pool(c, s)->stores_due > 0);
        return room_refused(ret, ret->shortage.storing ? TERN_BUSY : err,
                            "the host tier has too little room, and the session keeps its pages: "
                            "wait until other sessions recover or close, or retract with DROP");
    }
    session_free_tail(c, s, s->written, true, &pages);
    *ret_freed = pages.n;
    c->visits += pages.n;
    retire_release(c, e, step, &pages, (struct path){NONE, 0});
    session_state_move(&s->state, SESSION_RETRACTING);
    s->target = s->node; /* away_flush starts the copies */
    away_add(c, s);
    return TERN_OK;
}

/* The copies exist and the step has passed. STATE that is not lent yet stays on the device. */
static void retracted(struct core *c, struct session *s)
{
    away_remove(c, s);
    node_unpin(c, s->node, REF_DEVICE);
    held_by(c, s, REF_HOST);
    session_state_move(&s->state, SESSION_RETRACTED);
}

static enum tern_err retract_check(const struct core *c, const struct engine *e,
                                   const struct session *s, const struct req_retract *r,
                                   struct reply *ret)
{
    if (r->mode > RETRACT_DROP)
        return refuse(ret, TERN_INVALID, "the mode of a Retract must be HOST or DROP");
    TRY(session_fetches_nothing(s, ret));
    if (session_away(s))
        return TERN_OK; /* a repetition changes nothing (S8) */
    TRY(session_is_matched(s, ret));
    if (r->mode == RETRACT_HOST && session_pool(c, s)->tiers[TIER_HOST] == NONE)
        return refuse(ret, TERN_UNSUPPORTED,
                      "this pool has no host tier: open it with host_bytes, or retract with DROP");
    if (r->mode == RETRACT_DROP && !session_can_return(c, s, s->committed))
        return refuse(ret, TERN_INVALID,
                      "the STATE of the committed length has left the session's table, so a DROP "
                      "could not be resumed: retract to HOST, or Abort");
    if (session_owns(c, s) > TAIL_PAGES_MAX)
        return refuse(ret, TERN_INVALID, TAIL_TOO_LONG);
    if (!retire_ready(c, e, r->step))
        return refuse(ret, TERN_BUSY, share_refused(SHARE_RETIRES));
    return TERN_OK;
}

enum tern_err session_retract(struct core *c, struct call *call, struct reply *ret)
{
    const struct req_retract *r = &call->req->retract;
    struct engine *e = call->engine;
    struct session *s = call->session;
    uint32_t state = s->state, freed = 0;

    reply_lengths(s, ret);
    TRY(retract_check(c, e, s, r, ret));
    if (session_away(s))
        return TERN_OK;
    for (uint32_t g = 0; g < c->limits.groups && r->mode == RETRACT_HOST; g++)
        ret->retract.evictable += s->base[g] - s->first[g];
    if (r->mode == RETRACT_DROP)
        drop(c, e, s, r->step, &freed);
    else
        TRY(to_host(c, e, s, r->step, &freed, ret));
    s->back_to = state;
    s->away_step = session_step(s, r->step);
    c->counts.retracts++;
    if (r->step > e->done_min)
        ret->retract.free_at_step = freed;
    else
        ret->retract.free_now = freed;
    reply_lengths(s, ret);
    return TERN_OK;
}

/* The retract failed: the session runs on. Its engine does not know that yet: the step that it
 * named stays in effect until the session has recovered. */
static void retract_undo(struct core *c, struct session *s)
{
    away_remove(c, s);
    host_promise_end(c, s);
    node_unpin(c, s->node, REF_HOST);
    session_state_move(&s->state, s->back_to);
}

/* Ends a retract early, since no request waits for it. */
static void retract_cut_short(struct core *c, struct session *s)
{
    if (s->lent_from == UINT32_MAX)
        retract_undo(c, s); /* running copies keep both of their ends */
    else
        retracted(c, s);
}

/* --- recover --- */

static void hold_on_device(struct core *c, struct session *s)
{
    node_pin(c, s->node, REF_DEVICE);
    node_unpin(c, s->node, s->held);
    held_by(c, s, REF_DEVICE);
}

/* The session pins its prefix as before. All STATE that was lent is now borrowed on the device: its
 * nodes have the session among their loaders. */
static void back_on_device(struct core *c, struct session *s)
{
    hold_on_device(c, s);
    s->lent_from = UINT32_MAX;
    s->away_step = 0;
    c->counts.recovers++;
    session_use(c, s);
}

static uint32_t load_kib(const struct pool *p, const uint32_t *need)
{
    uint64_t bytes = 0;

    for (uint32_t g = 0; g < p->ngroups; g++)
        bytes += need[g] * p->group[g].layout.page_bytes * p->regions;
    return (uint32_t)((bytes + 1023) / 1024);
}

static void load_to(struct session *s, enum load_state state)
{
    load_state_move(&s->load.state, state);
    s->load.at = s->target;
}

/* Pins what the load needs; away_flush does the rest. */
static enum tern_err load_start(struct core *c, struct call *call, struct path path,
                                struct reply *ret)
{
    const uint32_t device = node_first(c, path.node, node_on_device),
                   depth = node_at(c, path.node)->depth;
    const struct node *n = node_at(c, device);
    struct session *s = call->session;
    struct load *l = &s->load;

    if (!node_visible(n) && (device != path.node || n->pending_engine != s->engine))
        return refuse(ret, TERN_BUSY, LOAD_AWAITS_COMMIT);
    s->target = path.node;
    *l = (struct load){.state_from = path.state_from,
                       .from = s->committed,
                       .pin = device,
                       /* A retracted session has pinned its path on the host. */
                       .host = s->held == REF_HOST ? NONE : host_end(c, path),
                       .hold = {path.node, depth},
                       .begun = LIST_EMPTY};
    l->low = path.state_from < n->depth ? path.state_from : n->depth;
    if (session_pool(c, s)->nstate > 0 && l->low > l->from)
        l->low = l->from; /* loaded pages are borrowed from there on */
    load_to(s, LOAD_COUNTING);
    node_pin(c, device, REF_TRANSFER);
    if (l->host != NONE)
        node_pin(c, l->host, REF_HOST);
    session_pool(c, s)->loads++;
    s->load_op = call->req->op;
    s->load_reply = call_later(call);
    session_state_move(&s->state, SESSION_LOADING);
    away_add(c, s);
    return TERN_OK;
}

/* Returns true if the session pins what was loaded: then only the load's last walk ends it. */
static bool load_has_come(const struct session *s)
{
    return s->load.pin == NONE;
}

/* Releases the load's pins; its loaders, promises and begun copies remain. */
static void load_unpin(struct core *c, struct session *s)
{
    load_queue(c, s);
    node_unpin(c, s->load.pin, REF_TRANSFER);
    if (s->load.host != NONE)
        node_unpin(c, s->load.host, REF_HOST);
    s->load.pin = s->load.host = NONE;
}

/* The load is over; load_let_go does the rest. */
static void load_leave(struct core *c, struct session *s)
{
    away_remove(c, s);
    session_pool(c, s)->loads--;
    if (load_has_come(s))
        return;
    if (s->load.state == LOAD_COUNTING || s->load.state == LOAD_LOOKING)
        memset(s->promised, 0, sizeof s->promised); /* nothing is promised yet */
    load_unpin(c, s);
    load_state_move(&s->load.state, LOAD_LEAVING);
}

enum tern_err session_recover(struct core *c, struct call *call, struct reply *ret)
{
    struct session *s = call->session;

    reply_lengths(s, ret);
    TRY(session_fetches_nothing(s, ret));
    TRY(session_is_matched(s, ret));
    if (s->state == SESSION_RETRACTING)
        retract_cut_short(c, s);
    if (!session_away(s))
        s->away_step = 0;
    if (s->state == SESSION_RETRACTED) {
        if (s->held == REF_HOST)
            return load_start(c, call, (struct path){s->node, s->state_from}, ret);
        back_on_device(c, s);
        session_state_move(&s->state, s->back_to);
    }
    reply_lengths(s, ret);
    session_runs(c, call->out, s, 0);
    return TERN_OK;
}

/* --- fetch from the host tier --- */

enum tern_err fetch_from_host(struct core *c, struct call *call, struct reply *ret)
{
    const struct req_fetch *r = &call->req->fetch;
    struct session *s = call->session;
    struct token_view w;
    uint32_t target, most;

    TRY(session_may_fetch(c, s, ret));
    w = session_rest(c, s);
    if (r->depth && r->depth < w.end)
        w.end = r->depth > s->committed ? r->depth : s->committed;
    TRY(at_least_fits(s, r, w.end, ret));
    target = host_above(c, (struct host_reach){s->node, host_down(c, s->node, &w)});
    most = node_at(c, target)->depth;
    if (r->at_least > most && r->at_least > s->written)
        return refuse_numbers(ret, TERN_INVALID,
                              "at_least is #, and the host tier has fewer tokens: Match returns "
                              "their number in host_depth, which is now #",
                              r->at_least, most);
    if (most <= s->written)
        return TERN_OK; /* the host has no more */
    s->tail_step = r->step;
    TRY(load_start(c, call, (struct path){target, state_low(c, target)}, ret));
    s->back_to = SESSION_TURN;
    return TERN_OK;
}

/* All chunks from the committed length to the target are in the tree: the session borrows them.
 * They replace its own pages (S11). */
static void adopt(struct core *c, struct session *s)
{
    const struct pool *p = session_pool(c, s);
    uint32_t from = s->node, depth = node_at(c, s->target)->depth;

    tail_give_way(c, s, s->tail_step);
    c->visits +=
        (depth - s->committed) / p->align * tokens_blocks_per_chunk(p->align) / NODES_A_VISIT;
    for (; s->committed < depth; s->committed += p->align)
        tokens_drop_chunk(c, &s->tokens);
    s->written = s->allocated = depth;
    if (p->nstate == 0)
        s->state_from = s->committed;
    node_pin(c, s->target, REF_DEVICE);
    s->node = s->target;
    node_unpin(c, from, REF_DEVICE);
    for (uint32_t g = 0; g < p->ngroups; g++)
        s->base[g] = s->committed / p->group[g].layout.page_tokens;
    count_figure(c, s->space, FIGURE_HOST, s->committed - s->load.from);
}

/* --- completion and failure --- */

/* `stays`: the session is unchanged; else it is about to be aborted or closed, and this answer
 * omits its lengths. */
static void load_answer(struct core *c, struct actions *out, struct session *s,
                        const struct reply *why, bool stays)
{
    uint32_t first_run = out->nruns;
    struct reply *r;

    if (!reply_waits(c, &s->load_reply))
        return;
    r = reply_late(out, s->load_reply, (enum op)s->load_op, why->err, why->text);
    memcpy(r->number, why->number, sizeof r->number);
    r->shortage = why->shortage;
    if (why->err == TERN_OK)
        session_runs(c, out, s, s->load_op == OP_RECOVER ? 0 : s->load.from);
    r->runs = out->runs + first_run;
    r->nruns = out->nruns - first_run;
    if (stays)
        reply_lengths(s, r);
    if (why->err == TERN_OK)
        *(s->load_op == OP_RECOVER ? &r->recover.kib : &r->fetch.kib) = s->load.kib;
}

static void load_fail(struct core *c, struct actions *out, struct session *s,
                      const struct reply *why, bool stays)
{
    bool away = s->held == REF_HOST;

    load_leave(c, s);
    session_state_move(&s->state, away ? SESSION_RETRACTED : s->back_to);
    load_answer(c, out, s, why, stays);
    if (stays && !load_let_go(c, s, give_back_end(c)))
        session_begin_release(c, s);
}

void load_end(struct core *c, struct actions *out, struct session *s, bool stays)
{
    const struct reply gone = {
        .err = TERN_GONE,
        .text = "the load from the host tier was cancelled, or the session was aborted or closed"};

    if (s->state == SESSION_LOADING && !(stays && load_has_come(s)))
        load_fail(c, out, s, &gone, stays);
}

void session_come_back(struct core *c, struct session *s)
{
    if (s->state == SESSION_LOADING)
        load_leave(c, s); /* the asker ended with its engine */
    if (s->state == SESSION_RETRACTING)
        retract_cut_short(c, s);
    if (s->held == REF_RETRACTED)
        hold_on_device(c, s); /* a kernel may still read borrowed pages */
}

void session_let_go(struct core *c, struct session *s, uint64_t step, struct list *pages)
{
    struct engine *e = engine_at(c, s->engine);
    struct path path;

    session_come_back(c, s);
    path = (struct path){s->node, s->state_from};
    if (s->held == REF_HOST || step <= e->done_min) {
        s->left = path;
        s->left_kind = s->held;
        path.node = NONE;
    }
    retire_release(c, e, step, pages, path);
    held_by(c, s, REF_DEVICE);
    s->away_step = s->slid_step = 0;
}

/* True if the actions have room for its table, which Extend and Match keep within an answer. */
static bool table_fits(const struct core *c, const struct actions *out, const struct session *s)
{
    uint32_t refs = session_table_refs(c, s, s->tokens.end);

    return actions_room(out) > 0 &&
           refs_fit(out, (struct runs_wanted){.runs = 2 * GROUPS_MAX,
                                              .refs = refs < out->refs_max ? refs : out->refs_max});
}

/* Result of a part of a load. MORE: continue in the next step. WAITS: continue when a copy has
 * ended. ON: the next part follows, unless why->err is a failure. */
enum load_next { LOAD_MORE, LOAD_WAITS, LOAD_ON };

static enum load_next load_arrives(struct core *c, struct session *s, struct reply *why)
{
    if (s->load_op == OP_FETCH && share_room(c, SHARE_RETIRES, engine_at(c, s->engine)->tenant) <
                                      tail_records(c, s, s->tail_step)) {
        refuse(why, TERN_BUSY, share_refused(SHARE_RETIRES));
        return LOAD_ON;
    }
    if (s->load_op == OP_RECOVER)
        back_on_device(c, s);
    else
        adopt(c, s);
    load_unpin(c, s);
    load_state_move(&s->load.state, LOAD_ENDING);
    return LOAD_ON;
}

static enum load_next load_room(struct core *c, struct session *s, struct reply *why)
{
    struct pool *p = session_pool(c, s);
    enum tern_err err = pages_make_room(c, engine_at(c, s->engine), p,
                                        (struct page_need){s->promised, NULL}, &why->shortage);

    if (err == TERN_BUSY && why->shortage.goes_on)
        return LOAD_MORE;
    if (err != TERN_OK) {
        room_refused(why, err,
                     "the device has too little room, and the session stays retracted: close or "
                     "retract other sessions, then retry");
        return LOAD_ON;
    }
    pages_promise(p, s->promised);
    s->load.kib += load_kib(p, s->promised);
    load_to(s, LOAD_BEGINNING);
    return LOAD_ON;
}

static enum load_next load_walked(struct core *c, struct session *s, struct reply *why)
{
    if (s->load.state == LOAD_COUNTING)
        return load_room(c, s, why);
    if (s->load.state == LOAD_COMING)
        return load_arrives(c, s, why);
    if (s->load.state == LOAD_BEGINNING)
        load_queue(c, s);
    else if (load_kib(session_pool(c, s), s->promised) > 0) { /* pages of the lost copy */
        refuse(why, TERN_BUSY, LOAD_COPY_FAILED);
        return LOAD_ON;
    }
    load_to(s, LOAD_COMING);
    return LOAD_ON;
}

static enum load_next load_goes_on(struct core *c, struct session *s, uint32_t end,
                                   struct reply *why)
{
    enum tern_err err;

    if (s->load.state == LOAD_COMING && s->copies_lost != c->copies_lost) {
        s->copies_lost = c->copies_lost;
        load_to(s, LOAD_LOOKING);
    }
    err = load_walk(c, s, end, why);
    if (why->err != TERN_OK)
        return LOAD_ON;
    if (err == TERN_OK && load_passed(c, s))
        return load_walked(c, s, why);
    if (err == TERN_OK && c->visits >= end)
        return LOAD_MORE;
    if (err == TERN_OK && copy_goes_to(node_at(c, s->load.at), TIER_DEVICE))
        return LOAD_WAITS;
    /* A page is missing for which no copy has begun. */
    pages_promise_take(session_pool(c, s), s->promised, s->promised);
    load_to(s, LOAD_COUNTING);
    return LOAD_ON;
}

/* Returns false if work is left, or the answer has no room. */
static bool load_step(struct core *c, struct actions *out, struct session *s, uint32_t end)
{
    struct reply why = {.err = TERN_OK, .text = ""};
    enum load_next next = LOAD_ON;

    while (next == LOAD_ON && why.err == TERN_OK && !load_has_come(s))
        next = load_goes_on(c, s, end, &why);
    if (next != LOAD_ON)
        return next == LOAD_WAITS;
    if (why.err != TERN_OK && actions_room(out) > 0) {
        load_fail(c, out, s, &why, true);
        return true;
    }
    if (why.err != TERN_OK || !load_let_go(c, s, end) || !table_fits(c, out, s))
        return false;
    load_leave(c, s);
    session_state_move(&s->state, s->back_to);
    session_use(c, s);
    load_answer(c, out, s, &why, true);
    return true;
}

/* All of HISTORY is on the host and the step has passed. Lends its STATE if the host has it, or
 * begins copies of STATE that reached the device later. Returns false if these have no room. */
static bool retract_look(struct core *c, struct session *s)
{
    enum host_path found = host_path(c, s);
    struct shortage unused;

    if (found == HOST_HAS)
        s->lent_from = node_at(c, s->target = s->node)->depth;
    return found != HOST_LACKS || host_promise(c, s, &unused) == TERN_OK;
}

/* Lends STATE to the host's copies, node by node upwards. Returns false if work is left. */
static bool retract_lend(struct core *c, struct session *s, uint32_t end)
{
    s->target = state_lend_host(c, (struct path){s->target, s->state_from}, true, end);
    s->lent_from = node_at(c, s->target)->depth;
    touch(c);
    if (s->lent_from > s->state_from)
        return false;
    retracted(c, s);
    return true;
}

/* Waits for copies and for the session's step. Copies on the host are pinned there, so the path is
 * walked once as they end, and again for missing STATE only when all of HISTORY is there and the
 * step has passed. Returns false if work is left. */
static bool retract_step(struct core *c, struct session *s, uint32_t end)
{
    const bool lost = s->copies_lost != c->copies_lost;
    bool runs_on;

    s->copies_lost = c->copies_lost;
    if (s->lent_from != UINT32_MAX)
        return retract_lend(c, s, end);
    runs_on = !host_back_begin(c, s, end) || (lost && host_path(c, s) >= HOST_LACKS);
    if (!runs_on && s->load.at == NONE) {
        host_reached(c, &s->target, end);
        if (node_at(c, s->target)->depth > 0)
            return !node_on_host(node_at(c, s->target));
        if (engine_at(c, s->engine)->done_min < s->away_step)
            return true;
        runs_on = !retract_look(c, s);
    }
    if (runs_on) {
        retract_undo(c, s);
        tenant_at(c, session_pool(c, s)->tenant)->undone++;
        return true;
    }
    if (s->load.at != NONE)
        return false;
    return s->lent_from == UINT32_MAX || retract_lend(c, s, end);
}

bool away_flush(struct core *c, struct actions *out)
{
    const uint32_t end = give_back_begin(c);
    bool follows = false, all = true;

    if (c->touched || c->away_looks > c->away.n)
        c->away_looks = c->away.n;
    while (c->away_looks > 0 && all && c->visits < end) {
        uint32_t slot = c->away.head;
        struct session *s = session_at(c, slot);
        uint32_t had = s->committed;

        all = s->state == SESSION_RETRACTING ? retract_step(c, s, end) : load_step(c, out, s, end);
        c->visits++;
        c->away_looks = all ? c->away_looks - 1 : c->away.n; /* the session moves to the end */
        if (away_list_has(c, slot) && !s->releasing) {       /* others precede it */
            away_list_remove(c, &c->away, slot);
            away_list_push(c, &c->away, slot);
        }
        follows = follows || (s->follower != NONE && s->committed != had);
    }
    /* Followers may be offered what arrived: serve_flush. */
    return c->away_looks == 0 && c->closing.n == 0 && !follows;
}
