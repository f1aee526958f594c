/* The requests of an engine about one session, and the model's use of the answers. A refusal
 * changes nothing; see `refusal` for those allowed. */
#include "world.h"

#include "core/arena/arena.h"

#define TRIES 6 /* of a prompt that does not fit, each half as long */

/* A table is full, or something is under way: a possible answer to any request. */
static bool refusal(enum tern_err err)
{
    return err == TERN_POOL_EXHAUSTED || err == TERN_BUSY || err == TERN_QUOTA;
}

static bool ok(const struct reply *r, const char *what)
{
    LEXPECT(r, "no_answer", "%s was not answered at once", what);
    LEXPECT(r->err == TERN_OK || refusal(r->err), "refused", "%s: error %d: %s", what, (int)r->err,
            r->text);
    return r->err == TERN_OK;
}

static uint64_t fence_of(const struct lsession *s)
{
    return s->fence > lw.passed ? s->fence : 0;
}

static struct lsession *slot_free(void)
{
    for (uint32_t i = 0; i < LARGE_TRACKED; i++)
        if (lw.session[i].state == L_IDLE)
            return &lw.session[i];
    return NULL;
}

static bool match(struct lsession *s)
{
    struct request r = {.op = OP_MATCH};
    const struct reply *reply;

    r.match.session = s->id;
    r.match.tokens = (struct req_tokens){.v = lw.tokens[s->prompt], .n = s->tokens};
    reply = lask(&r, s->tokens);
    LEXPECT(reply, "no_answer", "a Match");
    if (reply->err == TERN_INVALID) /* the table of a session has no room for so many pages */
        return false;
    if (!ok(reply, "a Match"))
        return false;
    LEXPECT(reply->match.matched % lw.cfg.align == 0 && reply->match.matched <= s->tokens &&
                reply->match.matched <= lknown(s->prompt),
            "match_too_long", "%u tokens of prompt %u, of which %u were committed",
            reply->match.matched, s->prompt, lknown(s->prompt));
    ltable_told(s, &reply->match.lengths, reply->runs, reply->nruns, false, 0);
    return true;
}

struct lsession *lsession_new(uint32_t prompt, uint32_t tokens)
{
    struct request r = {.op = OP_SESSION_OPEN};
    struct lsession *s = slot_free();
    const struct reply *reply;

    if (!s)
        return NULL;
    r.session_open.pool = lw.pool;
    r.session_open.ns = (struct namespace_id){.hi = 1, .lo = lw.space};
    reply = lask(&r, 1);
    if (!ok(reply, "a SessionOpen"))
        return NULL;
    s->id = reply->session_open.session;
    s->state = L_NEW;
    s->prompt = prompt;
    s->tokens = tokens;
    s->space = lw.space;
    s->fence = s->waits_for = 0;
    s->len = (struct lengths){0, 0, 0};
    memset(s->n, 0, sizeof s->n);
    if (match(s))
        return s;
    lsession_close(s);
    return NULL;
}

static const struct op_result *one_op(struct step_op *op, uint64_t items)
{
    struct request r = {.op = OP_STEP, .step = {.ops = op, .n = 1, .pieces = true}};
    const struct reply *reply = lask(&r, items);

    LEXPECT(reply && reply->err == TERN_OK && reply->step.n == 1, "step_refused", "error %d",
            reply ? (int)reply->err : -1);
    return &reply->step.results[0];
}

static void op_told(struct lsession *s, const struct op_result *r, bool fresh, uint64_t fence)
{
    ltable_told(s, &r->lengths, lw.reply->runs + r->first_run, r->nruns, fresh, fence);
}

static bool op_ok(const struct lsession *s, const struct op_result *r, const char *what)
{
    if (r->err == TERN_OK)
        return true;
    LEXPECT(refusal(r->err) || r->err == TERN_INVALID, "refused", "%s: error %d: %s", what,
            (int)r->err, r->text ? r->text : "");
    LEXPECT(memcmp(&r->lengths, &s->len, sizeof s->len) == 0, "refused_in_part",
            "%s left %u, %u, %u of %u, %u, %u", what, r->lengths.committed, r->lengths.written,
            r->lengths.allocated, s->len.committed, s->len.written, s->len.allocated);
    return false;
}

static bool extend(struct lsession *s, uint32_t to)
{
    struct step_op op = {.kind = STEP_EXTEND, .session = s->id, .length = to, .written = to};
    const struct op_result *r;
    uint32_t from = s->len.written;

    op.tokens.base = s->tokens;
    if (to > s->tokens) {
        op.tokens.v = lw.tokens[s->prompt] + s->tokens;
        op.tokens.n = to - s->tokens;
    }
    r = one_op(&op, op.tokens.n);
    if (!op_ok(s, r, "an Extend"))
        return false;
    LEXPECT(r->lengths.written == to && r->lengths.allocated == to, "extend_lengths",
            "written %u, allocated %u, and asked for %u", r->lengths.written, r->lengths.allocated,
            to);
    s->fence = ++lw.step;
    s->tokens = r->tokens;
    op_told(s, r, true, 0);
    ltable_written(s, from, to);
    s->state = L_RUNS;
    return true;
}

bool lsession_commit(struct lsession *s)
{
    struct step_op op = {.kind = STEP_COMMIT, .session = s->id, .step = s->fence};
    const struct op_result *r;
    bool any;

    op.length = s->len.written / lw.cfg.align * lw.cfg.align;
    if (op.length <= s->len.committed)
        return false;
    r = one_op(&op, 1);
    LEXPECT(r->err == TERN_OK || refusal(r->err), "refused", "a Commit: error %d: %s", (int)r->err,
            r->text ? r->text : "");
    /* A commit stops where a record is missing, or before chunks that another engine has not
     * written yet. */
    LEXPECT(r->lengths.committed >= s->len.committed && r->lengths.committed <= op.length &&
                r->lengths.written == s->len.written,
            "commit_lengths", "committed %u, written %u, and asked for %u", r->lengths.committed,
            r->lengths.written, op.length);
    any = r->lengths.committed > s->len.committed;
    op_told(s, r, false, s->fence);
    if (s->space == lw.space)
        lcommitted(s->prompt, s->len.committed);
    return any;
}

bool lsession_compute(struct lsession *s, uint32_t to)
{
    bool any = false;

    for (uint32_t i = 0; i < TRIES && to > s->len.written && !any; i++) {
        any = extend(s, to);
        to = s->len.written + (to - s->len.written) / 2;
    }
    return any && (lpick(4) == 0 || lsession_commit(s));
}

bool lsession_close(struct lsession *s)
{
    struct step_op op = {.kind = STEP_CLOSE, .session = s->id, .step = fence_of(s)};
    const struct op_result *r = one_op(&op, 1);

    if (r->err == TERN_BUSY)
        return false;
    LEXPECT(r->err == TERN_OK, "close_refused", "error %d: %s", (int)r->err,
            r->text ? r->text : "");
    ltable_clear(s, op.step);
    s->state = L_IDLE;
    return true;
}

bool lsession_rewind(struct lsession *s, uint32_t to)
{
    struct step_op op = {.kind = STEP_REWIND, .session = s->id, .step = fence_of(s), .length = to};
    const struct op_result *r = one_op(&op, 1);

    if (!op_ok(s, r, "a Rewind"))
        return false;
    op_told(s, r, false, op.step);
    s->tokens = r->tokens;
    return true;
}

bool lsession_retract(struct lsession *s, bool host)
{
    struct request r = {.op = OP_RETRACT};
    const struct reply *reply;

    r.retract.session = s->id;
    r.retract.mode = host ? RETRACT_HOST : RETRACT_DROP;
    r.retract.step = fence_of(s);
    reply = lask(&r, 1);
    if (!reply || reply->err != TERN_OK) {
        LEXPECT(reply && (refusal(reply->err) || reply->err == TERN_INVALID), "refused",
                "a Retract: error %d: %s", reply ? (int)reply->err : -1, reply ? reply->text : "");
        return false;
    }
    ltable_clear(s, r.retract.step);
    s->len = reply->retract.lengths;
    s->state = L_AWAY;
    return true;
}

/* The answer that the session waits for, at once or late. */
static void arrived(struct lsession *s, const struct reply *r)
{
    bool recover = r->op == OP_RECOVER;

    s->waits_for = 0;
    s->state = recover && r->err != TERN_OK ? L_AWAY : s->len.written > 0 ? L_RUNS : L_NEW;
    if (r->err != TERN_OK && recover)
        return; /* a failed fetch names what came before */
    s->tokens = recover ? r->recover.tokens : r->fetch.tokens;
    ltable_told(s, recover ? &r->recover.lengths : &r->fetch.lengths, r->runs, r->nruns, false,
                s->fence);
    s->state = s->len.written > 0 ? L_RUNS : L_NEW;
    if (r->err == TERN_OK)
        lw.marks[recover ? LARGE_recover : LARGE_fetch] = true;
}

void llate(const struct reply *r)
{
    for (uint32_t i = 0; i < LARGE_TRACKED; i++)
        if (lw.session[i].state == L_WAITS && lw.session[i].waits_for == r->request_id)
            arrived(&lw.session[i], r);
    if (r->op == OP_STORE && r->err == TERN_OK)
        lw.marks[LARGE_store] = true;
    if (r->op == OP_EVICT && r->err == TERN_OK)
        lw.marks[LARGE_evict] = true;
    if (r->op == OP_NAMESPACE_RESET && r->err == TERN_OK)
        lw.marks[LARGE_reset] = true;
}

static bool wait_for(struct lsession *s, struct request *r)
{
    const struct reply *reply;

    s->state = L_WAITS;
    s->waits_for = lw.request_id + 1;
    reply = lask(r, 1);
    if (reply)
        arrived(s, reply);
    return false; /* the answer sets the mark */
}

bool lsession_recover(struct lsession *s)
{
    struct request r = {.op = OP_RECOVER};

    r.recover.session = s->id;
    return wait_for(s, &r);
}

bool lsession_store(struct lsession *s)
{
    struct request r = {.op = OP_STORE};
    const struct reply *reply;

    r.store.session = s->id;
    reply = lask(&r, 1);
    return reply && reply->err == TERN_OK;
}

bool lsession_fetch(struct lsession *s, uint32_t peer, const struct ticket *ticket)
{
    struct request r = {.op = OP_FETCH};

    if (s->space == lw.space)
        lfetched(s->prompt);
    r.fetch.session = s->id;
    r.fetch.peer = ticket ? NONE : peer;
    r.fetch.step = fence_of(s);
    if (ticket)
        r.fetch.ticket = *ticket;
    return wait_for(s, &r);
}

bool lsession_handoff(struct lsession *s)
{
    struct request r = {.op = OP_HANDOFF};
    const struct reply *reply;

    r.handoff.session = s->id;
    r.handoff.step = fence_of(s);
    r.handoff.key[0] = lw.step + 1;
    reply = lask(&r, 1);
    if (!reply || reply->err != TERN_OK)
        return false;
    lw.ticket = reply->handoff.ticket;
    lw.ticket_prompt = s->prompt;
    lw.ticket_space = s->space;
    ltable_clear(s, r.handoff.step);
    s->state = L_IDLE;
    return true;
}

bool lsession_turn(struct lsession *s)
{
    struct request r = {.op = OP_TURN_BEGIN};
    const struct reply *reply;

    r.turn_begin.session = s->id;
    reply = lask(&r, 1);
    if (!reply || reply->err != TERN_OK)
        return false;
    r = (struct request){.op = OP_TURN_END};
    r.turn_end.session = reply->turn_begin.turn;
    r.turn_end.step = fence_of(s);
    reply = lask(&r, 1);
    LEXPECT(reply && reply->err == TERN_OK, "turn_end", "error %d: %s",
            reply ? (int)reply->err : -1, reply ? reply->text : "");
    return true;
}
