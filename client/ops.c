/* The operations of a session, one a call: each is a Step of one operation. */
#include "internal.h"

#include "base/err.h"

static enum tern_err do_op(struct tern *t, const struct client_op *op, uint32_t deadline_ms,
                           struct tern_result *ret)
{
    struct quick_request q = {.type = FRAME_STEP, .step = {.ops = op, .n = 1}};
    const struct asked asked = asked_op(op);
    const uint8_t *body;
    enum tern_err err;
    uint32_t n, done;

    TRY(check_op(t, op));
    TRY(check_leased(t, op->session));
    TRY(call_quick(t, &q, deadline_ms, &body, &n));
    if (!quick_step_get(body, n, &t->store, t->results, 1, &done, &err))
        return not_an_answer(t, TERN_MALFORMED);
    if (err != TERN_OK)
        return t->text[0] ? err : set_error(t, err, NULL);
    if (done != 1)
        return not_an_answer(t, TERN_MALFORMED);
    *ret = t->results[0];
    if (t->store.text_at[0])
        set_error(t, ret->err, t->store.texts + t->store.text_at[0]);
    quick_numbers(&t->store, 0, t->store.numbers);
    return said(t, &asked, ret);
}

enum tern_err tern_extend(struct tern *t, tern_session s, const struct tern_tokens *append,
                          uint32_t written, uint32_t allocated, uint32_t deadline_ms,
                          struct tern_result *ret)
{
    ENTER(t);
    struct client_op op = {
        .kind = CLIENT_EXTEND, .session = s, .length = allocated, .written = written};

    if (append)
        op.tokens = *append;
    return do_op(t, &op, deadline_ms, ret);
}

/* A long commit is taken in pieces: an answer that is BUSY and got further is repeated, and the
 * runs of all of them are those of the call. */
enum tern_err tern_commit(struct tern *t, tern_session s, uint32_t depth, uint64_t step,
                          uint32_t deadline_ms, struct tern_result *ret)
{
    ENTER(t);
    const struct client_op op = {
        .kind = CLIENT_COMMIT, .session = s, .length = depth, .step = step};
    struct tern_result r = {.err = TERN_OK};
    uint32_t before;
    enum tern_err err;

    do {
        before = r.lengths.committed;
        err = do_op(t, &op, deadline_ms, &r);
        t->store.more = true;
    } while (err == TERN_BUSY && r.lengths.committed > before && t->store.nruns <= QUICK_RUNS_MAX);
    t->store.more = false;
    if (r.err != err)
        return err; /* the last was not answered */
    if (r.nruns < t->store.nruns) {
        r.runs = t->store.runs;
        r.nruns = t->store.nruns;
    }
    *ret = r;
    return err;
}

enum tern_err tern_rewind(struct tern *t, tern_session s, uint32_t length, uint64_t step,
                          uint32_t deadline_ms, struct tern_result *ret)
{
    ENTER(t);
    return do_op(
        t, &(struct client_op){.kind = CLIENT_REWIND, .session = s, .length = length, .step = step},
        deadline_ms, ret);
}

enum tern_err tern_finish(struct tern *t, tern_session s, uint32_t length, uint64_t step,
                          uint32_t deadline_ms, struct tern_result *ret)
{
    ENTER(t);
    return do_op(
        t, &(struct client_op){.kind = CLIENT_FINISH, .session = s, .length = length, .step = step},
        deadline_ms, ret);
}

enum tern_err tern_slide(struct tern *t, tern_session s, uint32_t next_commit, uint64_t step,
                         uint32_t deadline_ms, struct tern_result *ret)
{
    ENTER(t);
    return do_op(t,
                 &(struct client_op){
                     .kind = CLIENT_SLIDE, .session = s, .length = next_commit, .step = step},
                 deadline_ms, ret);
}

enum tern_err tern_snapshot_release(struct tern *t, tern_session s, uint32_t deadline_ms,
                                    struct tern_result *ret)
{
    ENTER(t);
    return do_op(t, &(struct client_op){.kind = CLIENT_SNAPSHOT_RELEASE, .session = s}, deadline_ms,
                 ret);
}

enum tern_err tern_abort(struct tern *t, tern_session s, uint64_t step, uint32_t deadline_ms,
                         struct tern_result *ret)
{
    ENTER(t);
    return do_op(t, &(struct client_op){.kind = CLIENT_ABORT, .session = s, .step = step},
                 deadline_ms, ret);
}
