/* The operations of a Step on one session (E6): extend, assign, rewind, finish, abort, close;
 * commit is in commits.c. Each is all or nothing. */

#include "core/memory/pages.h"
#include "core/session/commits.h"
#include "core/session/engines.h"
#include "core/session/record.h"
#include "core/session/retires.h"
#include "core/session/room.h"
#include "core/session/sessions.h"
#include "core/session/tickets.h"
#include "core/transfer/handed.h"
#include "core/transfer/pulls.h"
#include "core/tree/nodes.h"
#include "core/tree/state.h"
#include "core/tree/tokens.h"

#define WRONG_RUNS                                                                                 \
    "the assigned pages are not those that the session's table needs for the new length: for "     \
    "each group, give as many as an Extend would allocate, at the places after the session's own " \
    "pages"

#define UNITS_WITH_COMMIT                                                                          \
    "tern_written was retired, because units of pages move with their chunk: leave it out and "    \
    "commit smaller chunks"

/* Checks the list and the table after the extend. Lengths out of order have no text: the client has
 * the numbers. */
static enum tern_err extend_fits(const struct core *c, const struct session *s,
                                 const struct step_op *op, const struct lengths *to,
                                 uint32_t window, struct op_result *ret)
{
    uint32_t end = s->tokens.end + op->tokens.n, refs;
    struct reason why;

    if (op->tokens.n > 0 && op->tokens.base != s->tokens.end)
        return refuse_op_why(
            ret, TERN_CONFLICT,
            &(struct reason){"base is #, and the session has # tokens: base must equal that number",
                             {op->tokens.base, s->tokens.end}});
    if (to->allocated > SESSION_TOKENS_MAX || op->tokens.n > SESSION_TOKENS_MAX - s->tokens.end)
        return refuse_op(ret, TERN_INVALID, TOO_MANY_TOKENS);
    if (to->allocated < s->allocated || to->written < s->written || to->written > to->allocated ||
        to->written > end)
        return TERN_INVALID;
    if (op->tokens.nkeys > EXTRA_KEYS_MAX)
        return refuse_op(ret, TERN_INVALID, TOO_MANY_KEYS);
    TRY(refuse_op_why(ret, keys_in_order(&op->tokens, &why), &why));
    end = to->allocated > end ? to->allocated : end;
    if (session_too_deep(c, s, end))
        return refuse_op(ret, TERN_INVALID, TABLE_TOO_DEEP);
    refs = session_table_refs(c, s, end);
    if (refs + window > c->limits.table_pages)
        return refuse_op_why(
            ret, TERN_INVALID, /* see Match */
            &(struct reason){TABLE_TOO_LONG, {refs + window, c->limits.table_pages}});
    return TERN_OK;
}

/* Checks that the named pages are those that an Extend would add. */
static enum tern_err assign_fits(const struct session *s, const struct pool *p,
                                 const struct step_op *op, const uint32_t *need,
                                 struct op_result *ret)
{
    uint32_t r = 0;

    for (uint32_t g = 0; g < p->ngroups; g++) {
        const struct table_run *run = r < op->nruns ? &op->runs[r] : NULL;

        if (need[g] == 0)
            continue;
        if (p->group[g].layout.family == FAMILY_RECURRENT)
            return refuse_op(ret, TERN_INVALID,
                             "the session has no RECURRENT page yet: Extend it first, which "
                             "returns one and the page to copy into it");
        if (!run || run->group != g || run->first != s->base[g] + s->owned[g].n ||
            run->n != need[g])
            return refuse_op(ret, TERN_INVALID, WRONG_RUNS);
        r++;
    }
    return r == op->nruns ? TERN_OK : refuse_op(ret, TERN_INVALID, WRONG_RUNS);
}

static enum tern_err extend_check(const struct core *c, const struct actions *out,
                                  const struct session *s, const struct step_op *op,
                                  const struct lengths *to, const uint32_t *need,
                                  struct op_result *ret)
{
    const struct pool *p = session_pool(c, s);
    uint32_t pages = 0, window = 0;

    for (uint32_t g = 0; g < p->ngroups; g++) {
        pages += need[g];
        window += p->group[g].layout.family == FAMILY_WINDOW ? need[g] : 0;
    }
    TRY(extend_fits(c, s, op, to, window, ret));
    if (op->kind == STEP_ASSIGN)
        return assign_fits(s, p, op, need, ret);
    return refs_fit(out, (struct runs_wanted){.runs = p->ngroups, .refs = pages})
               ? TERN_OK
               : piece_ended(ret, NULL);
}

static void extend_take(struct core *c, struct actions *out, struct session *s,
                        const uint32_t *need)
{
    struct pool *p = session_pool(c, s);

    for (uint32_t g = 0; g < p->ngroups; g++) {
        bool recurrent = p->group[g].layout.family == FAMILY_RECURRENT;
        uint32_t first = recurrent ? 0 : s->base[g] + s->owned[g].n;
        struct page_ref *refs;

        if (need[g] == 0)
            continue;
        refs = run_add(
            out, (struct table_run){
                     .group = g, .first = first, .n = need[g], .from = recurrent_from(c, s, g)});
        for (uint32_t i = 0; i < need[g]; i++) {
            uint32_t record = page_take(c, p, g, PAGE_OWNED, session_slot(c, s));

            page_list_push(c, &s->owned[g], record);
            refs[i] = page_ref_of(c, record);
        }
    }
}

static void assign_take(struct core *c, struct session *s, struct list of[GROUPS_MAX])
{
    for (uint32_t g = 0; g < session_pool(c, s)->ngroups; g++)
        while (of[g].n > 0) {
            uint32_t record = page_list_pop(c, &of[g]);

            page_move(c, page_at(c, record), PAGE_OWNED, session_slot(c, s));
            page_list_push(c, &s->owned[g], record);
        }
}

/* Allocates or claims the pages for the session. */
static enum tern_err extend_pages(struct core *c, struct actions *out, struct engine *e,
                                  struct session *s, const struct step_op *op, struct page_need n,
                                  struct op_result *ret)
{
    struct pool *p = session_pool(c, s);
    struct list of[GROUPS_MAX];
    uint32_t total = 0;
    enum tern_err err;

    if (op->kind == STEP_ASSIGN) {
        TRY(lease_claim(c, e, p, op, of, ret));
        assign_take(c, s, of);
        return TERN_OK;
    }
    for (uint32_t g = 0; g < p->ngroups; g++)
        total += n.need[g];
    err = total > 0 ? pages_make_room(c, e, p, n, &ret->shortage) : TERN_OK;
    if (err == TERN_QUOTA) {
        const struct reason why = room_never(&ret->shortage);

        return refuse_op_why(ret, err, &why);
    }
    if (err == TERN_BUSY)
        return refuse_op(ret, err, room_busy(&ret->shortage));
    TRY(err);
    extend_take(c, out, s, n.need);
    return TERN_OK;
}

/* STATE pages that stay with the session when all its written whole chunks are committed. A commit
 * that ended early has yet to move the others out of the table. */
static uint32_t owned_for_good(const struct pool *p, const struct session *s, uint32_t g)
{
    uint32_t taken;

    if (p->group[g].layout.family == FAMILY_RECURRENT)
        return s->owned[g].n;
    taken = s->written / p->align * p->align / p->group[g].layout.page_tokens;
    taken = taken > s->base[g] ? taken - s->base[g] : 0;
    return s->owned[g].n > taken ? s->owned[g].n - taken : 0;
}

/* Extend, or assign: an extend whose pages the engine has leased. */
static enum tern_err op_extend(struct core *c, struct actions *out, struct engine *e,
                               struct session *s, const struct step_op *op, struct op_result *ret)
{
    struct pool *p = session_pool(c, s);
    const struct lengths to = {.written = op->written ? op->written : s->written,
                               .allocated = op->length ? op->length : s->allocated};
    const struct token_need tokens = {tokens_blocks_needed(&s->tokens, op->tokens.n),
                                      op->tokens.nkeys, &s->tokens, s->tokens.end + op->tokens.n};
    uint32_t need[GROUPS_MAX] = {0}, held[GROUPS_MAX];
    struct reason why;

    for (uint32_t g = 0; g < p->ngroups && to.allocated <= SESSION_TOKENS_MAX; g++) {
        uint32_t pt = p->group[g].layout.page_tokens, have = s->base[g] + s->owned[g].n;

        held[g] = group_is_state(&p->group[g]) ? owned_for_good(p, s, g) : have;
        if (p->group[g].layout.family == FAMILY_RECURRENT)
            need[g] = s->owned[g].n == 0 && to.allocated > 0;
        else
            need[g] = div_up(to.allocated, pt) > have ? div_up(to.allocated, pt) - have : 0;
    }
    TRY(extend_check(c, out, s, op, &to, need, ret));
    TRY(refuse_op_why(ret, tokens_room(c, s->pool, tokens, &why), &why));
    TRY(extend_pages(c, out, e, s, op, (struct page_need){need, held}, ret));
    check(tokens_append(c, &s->tokens, op->tokens.v, op->tokens.n, op->tokens.keys,
                        op->tokens.nkeys) == TERN_OK);
    for (uint32_t g = 0; g < p->ngroups; g++)
        c->visits += need[g] / RECORDS_A_VISIT;
    c->visits += 1 + tokens.blocks / RECORDS_A_VISIT;
    s->allocated = to.allocated;
    s->written = to.written;
    session_state_move(&s->state, SESSION_TURN);
    session_use(c, s);
    return TERN_OK;
}

static enum tern_err op_rewind(struct core *c, struct engine *e, struct session *s,
                               const struct step_op *op, struct op_result *ret)
{
    if (op->length < s->committed || op->length > s->allocated)
        return TERN_INVALID;
    if (!session_can_return(c, s, op->length))
        return refuse_op(ret, TERN_INVALID, NO_STATE_THERE);
    if (!session_tail_ready(c, e, op->step, session_tail_pages(c, s, op->length)))
        return refuse_op(ret, TERN_BUSY, share_refused(SHARE_RETIRES));
    session_give_tail(c, s, op->length, op->step);
    tokens_truncate(c, &s->tokens, op->length);
    if (s->finished > op->length)
        s->finished = op->length;
    session_use(c, s);
    return TERN_OK;
}

/* S6: the length must lie between the committed and the allocated one. With a RECURRENT group a
 * Finish may have moved the session back below the length that it named; a repetition with that
 * length is accepted. */
static bool finish_fits(const struct session *s, uint32_t length)
{
    return length >= s->committed &&
           (length <= s->allocated || (s->state == SESSION_IDLE && length == s->finished));
}

static enum tern_err op_finish(struct core *c, struct engine *e, struct session *s,
                               const struct step_op *op, struct op_result *ret)
{
    uint32_t keep = op->length < s->allocated ? op->length : s->allocated;

    if (s->state == SESSION_OPEN)
        return refuse_op(ret, TERN_INVALID, "no turn has begun: Match first");
    if (!finish_fits(s, op->length))
        return TERN_INVALID;
    if (keep < s->written && has_recurrent(session_pool(c, s)))
        keep = s->committed; /* its only state is that of the written length: return to the resume
                                point, whose state is copied again */
    if (!session_can_return(c, s, keep))
        return refuse_op(ret, TERN_INVALID, NO_STATE_THERE);
    if (!session_tail_ready(c, e, op->step, session_tail_pages(c, s, keep)))
        return refuse_op(ret, TERN_BUSY, share_refused(SHARE_RETIRES));
    session_store_prompt(c, s);
    step_named(c, e, op->step); /* also if nothing is freed: see request_session_end */
    session_give_tail(c, s, keep, op->step);
    tokens_truncate(c, &s->tokens, op->length);
    s->finished = s->tokens.end;
    session_state_move(&s->state, SESSION_IDLE);
    session_use(c, s);
    return TERN_OK;
}

/* S7 keeps the tokens of the last Finish: copies those in the tree before the pin ends. If they are
 * too many chunks, or the token store has no room, the list is dropped, and the answer's `tokens`
 * is 0. */
static void keep_finished_tokens(struct core *c, struct session *s)
{
    const uint32_t align = session_pool(c, s)->align,
                   in_tree = s->finished < s->committed ? s->finished : s->committed;
    struct token_need need;
    struct reason unused;
    uint32_t keys = 0, from = node_above(c, (struct path){s->node, div_up(in_tree, align) * align});

    tokens_truncate(c, &s->tokens, s->finished > s->tokens.first ? s->finished : s->tokens.first);
    for (uint32_t at = from; node_at(c, at)->depth > 0 && in_tree / align <= KEPT_CHUNKS_MAX;
         at = node_at(c, at)->parent)
        keys += tokens_count_keys(c, node_at(c, at)->keys);
    need = (struct token_need){.blocks = div_up(in_tree, align) * tokens_blocks_per_chunk(align),
                               .keys = keys};
    if (in_tree / align > KEPT_CHUNKS_MAX || tokens_room(c, s->pool, need, &unused) != TERN_OK) {
        tokens_truncate(c, &s->tokens, s->tokens.first);
        tokens_init(&s->tokens, 0);
        s->finished = 0;
        return;
    }
    if (in_tree == 0 && s->committed > 0)
        tokens_init(&s->tokens, 0); /* no turn has finished yet; the buffer is empty here */
    for (uint32_t at = from; node_at(c, at)->depth > 0; at = node_at(c, at)->parent, c->visits++) {
        uint32_t left = in_tree - (node_at(c, at)->depth - align);

        tokens_prepend(c, &s->tokens, node_at(c, at), left < align ? left : align);
    }
}

/* Checks for a release record, and room for the answer to a load that ends here. */
static enum tern_err give_back_ready(const struct core *c, const struct actions *out,
                                     const struct session *s, uint64_t step, struct op_result *ret)
{
    if (!retire_ready(c, engine_at(c, s->engine), session_step(s, step)))
        return refuse_op(ret, TERN_BUSY, share_refused(SHARE_RETIRES));
    return s->state != SESSION_LOADING || actions_room(out) > 0 ? TERN_OK : TERN_BUSY;
}

/* S7: frees the table in any state of the session, which keeps the tokens of its last Finish. */
static enum tern_err table_end(struct core *c, struct actions *out, struct session *s,
                               uint64_t at_step, struct op_result *ret)
{
    struct engine *e = engine_at(c, s->engine);
    uint64_t step = session_step(s, at_step);
    struct list pages;
    uint32_t root, n = session_owns(c, s);
    bool at_once;

    if (s->releasing)
        return refuse_op(ret, TERN_BUSY, RELEASING);
    TRY(give_back_ready(c, out, s, at_step, ret));
    if (!session_tail_ready(c, e, step, n))
        return refuse_op(ret, TERN_BUSY, share_refused(SHARE_RETIRES));
    if (s->ticket_state != TICKET_NONE)
        handed_leave(c, s);
    if (s->pull != NONE)
        pull_orphan(c, pull_at(c, s->pull));
    s->pull = NONE;
    load_end(c, out, s, false);
    keep_finished_tokens(c, s);
    pages = LIST_EMPTY;
    at_once = session_may_give(c, n);
    for (uint32_t g = 0; g < c->limits.groups && at_once; g++)
        page_list_append(c, &pages, &s->owned[g]);
    c->visits += pages.n;
    root = space_at(c, s->space)->root;
    node_pin(c, root, REF_DEVICE);
    session_let_go(c, s, step, &pages);
    s->node = root;
    s->committed = s->written = s->allocated = s->state_from = s->whole_from = 0;
    for (uint32_t g = 0; g < c->limits.groups; g++)
        s->base[g] = s->first[g] = 0;
    session_state_move(&s->state, SESSION_OPEN);
    if (!at_once)
        s->record = retire_open(c, e, step, session_slot(c, s));
    session_release(c, s);
    touch(c);
    return TERN_OK;
}

static enum tern_err op_abort(struct core *c, struct actions *out, struct session *s,
                              const struct step_op *op, struct op_result *ret)
{
    if (s->state == SESSION_IDLE || s->state == SESSION_OPEN)
        return TERN_OK; /* nothing was admitted: the session is unchanged */
    return table_end(c, out, s, op->step, ret);
}

enum tern_err session_table_end(struct core *c, struct actions *out, struct session *s,
                                uint64_t step, uint32_t keep, struct op_result *ret)
{
    uint32_t finished = s->finished;
    enum tern_err err;

    s->finished = finished < keep ? finished : keep;
    err = table_end(c, out, s, step, ret);
    if (err != TERN_OK)
        s->finished = finished;
    return err;
}

enum tern_err session_end(struct core *c, struct actions *out, struct session *s, uint64_t step,
                          struct op_result *ret)
{
    TRY(give_back_ready(c, out, s, step, ret));
    if (reply_waits(c, &s->close_reply) && actions_room(out) < 2)
        return TERN_BUSY;
    load_end(c, out, s, false);
    session_close_told(c, out, s, TERN_OK);
    session_store_prompt(c, s);
    session_close(c, s, step, false);
    session_give_back(c, s, give_back_end(c));
    return TERN_OK;
}

/* Checks that an operator may close it. Only its engine knows which steps touch a session in use.
 * So no step may touch it except those that the engine named: the release waits for them (E2). */
static enum tern_err end_check(const struct core *c, const struct session *s, struct reply *ret)
{
    const struct engine *e = engine_at(c, s->engine);

    if (e->state != ENGINE_LIVE)
        return refuse(ret, TERN_CONFLICT,
                      "the session's engine is ending: the session is closed when the engine's "
                      "last process has exited");
    if (s->gate != GATE_FREE)
        return refuse(ret, TERN_BUSY,
                      "a turn of the session is in flight: close the session when the turn has "
                      "ended, at the turn's deadline at the latest");
    if (s->state == SESSION_FETCHING || s->state == SESSION_LOADING ||
        s->state == SESSION_RETRACTING)
        return refuse(
            ret, TERN_BUSY,
            "a transfer or a copy for the session is under way: close it when that has ended");
    if (s->state == SESSION_TURN || s->state == SESSION_MATCHING)
        return refuse(
            ret, TERN_CONFLICT,
            "the session's engine still uses it, and steps that the engine has not named yet may "
            "touch its pages: have the engine finish or close the session, or kick the engine");
    if (s->state == SESSION_IDLE && e->leases)
        return refuse(ret, TERN_CONFLICT,
                      "the session's engine leases pages, and may use the session without a "
                      "request: have the engine close the session, or kick the engine");
    return TERN_OK;
}

enum tern_err request_session_end(struct core *c, struct call *call, struct reply *ret)
{
    struct session_id id = call->req->session_end.session;
    struct session *s = id.slot < c->limits.sessions ? session_at(c, id.slot) : NULL;
    struct op_result why = {.text = ""};
    struct engine *e;
    enum tern_err err;

    if (!s || s->gen != id.gen || s->state == SESSION_EMPTY || s->state == SESSION_CLOSING ||
        s->ticket_ends)
        return refuse(
            ret, TERN_GONE,
            "no such session: it was closed or ended; `ternctl sessions` lists the others");
    if (s->state == SESSION_HANDED) {
        ret->session_end.until_step = s->engine == NONE ? 0 : s->ticket_step;
        ticket_end(c, s);
        return TERN_OK;
    }
    TRY(end_check(c, s, ret));
    e = engine_at(c, s->engine);
    err = session_end(c, call->out, s, e->named, &why);
    if (err != TERN_OK)
        return refuse(ret, err, why.text);
    ret->session_end.until_step = e->named > e->done_min ? e->named : 0;
    return TERN_OK;
}

static enum tern_err op_slide(struct core *c, struct engine *e, struct session *s,
                              const struct step_op *op, struct op_result *ret)
{
    struct list pages;
    uint32_t state_from = s->state_from, node;

    if (op->length && op->length <= s->committed)
        return TERN_INVALID;
    if (!retire_ready(c, e, op->step))
        return refuse_op(ret, TERN_BUSY, share_refused(SHARE_RETIRES));
    pages = LIST_EMPTY;
    node = session_slide(
        c, s, op->step, op->length ? op->length : s->committed + session_pool(c, s)->align, &pages);
    retire_release(c, e, op->step, &pages, (struct path){node, state_from});
    return TERN_OK;
}

static enum tern_err apply(struct core *c, struct actions *out, struct engine *e, struct session *s,
                           const struct step_op *op, struct op_result *ret)
{
    if (op->kind != STEP_CLOSE && c->visits >= batch_end(c))
        return piece_ended(ret, STEP_TOO_MUCH);
    if (op->kind != STEP_ABORT && op->kind != STEP_CLOSE) {
        if (session_rolls_back(c, s))
            return refuse_op(ret, TERN_BUSY, ROLLING_BACK);
        if (s->releasing)
            return refuse_op(ret, TERN_BUSY, RELEASING);
        if (s->state == SESSION_FETCHING || s->state == SESSION_LOADING)
            return refuse_op(
                ret, TERN_BUSY,
                "a fetch or recovery of this session is under way: wait for its answer");
        if (session_away(s))
            return refuse_op(ret, TERN_INVALID, "the session is retracted: Recover it first");
        if (s->state == SESSION_MATCHING)
            return refuse_op(ret, TERN_INVALID, MATCH_INCOMPLETE);
    }
    switch (op->kind) {
    case STEP_EXTEND:
    case STEP_ASSIGN: return op_extend(c, out, e, s, op, ret);
    case STEP_REWIND: return op_rewind(c, e, s, op, ret);
    case STEP_COMMIT: return session_commit(c, out, e, s, op, ret);
    case STEP_FINISH: return op_finish(c, e, s, op, ret);
    case STEP_ABORT: return op_abort(c, out, s, op, ret);
    case STEP_CLOSE: return session_end(c, out, s, op->step, ret);
    case STEP_SLIDE: return op_slide(c, e, s, op, ret);
    case STEP_RELEASE: state_release(c, s->node); return TERN_OK;
    case STEP_WRITTEN: return refuse_op(ret, TERN_UNSUPPORTED, UNITS_WITH_COMMIT);
    case STEP_UNLEASE: /* it names no session: see lease_return */
    case STEP_KINDS: break;
    }
    return TERN_UNSUPPORTED;
}

void session_op(struct core *c, struct actions *out, struct engine *e, const struct step_op *op,
                struct op_result *ret)
{
    struct session *s = NULL;
    const char *text;

    ret->first_run = out->nruns;
    ret->err = session_of(c, e, op->session, &s, &text);
    if (ret->err != TERN_OK) {
        refuse_op(ret, ret->err, text);
        if (s) { /* another turn is in flight */
            ret->lengths = session_lengths(s);
            ret->tokens = s->tokens.end;
        }
        return;
    }
    ret->err = apply(c, out, e, s, op, ret);
    ret->nruns = out->nruns - ret->first_run;
    if (s->state == SESSION_EMPTY || s->state == SESSION_CLOSING)
        return;
    ret->lengths = session_lengths(s);
    ret->tokens = s->tokens.end;
}
