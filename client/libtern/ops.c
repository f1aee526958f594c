/* The operations of a session, one a call: each is a Step of one operation. Also sends Steps, and
 * continues those that one step of the daemon could not complete: the call repeats the partly done
 * operation and those behind it, and the caller sees one answer. */
#include "internal.h"

#include "base/err.h"

enum tern_err ops_send(struct tern *t, const struct client_op *ops, uint32_t n, struct call *call)
{
    const struct quick_request q = {.type = FRAME_STEP,
                                    .step = {.ops = ops, .n = n, .pieces = call->pieces > 1}};

    return call_put_quick(t, call, &q);
}

/* Takes one answer. Its results are appended to those taken before; the first may complete an
 * operation begun before. */
static enum tern_err take_piece(struct tern *t, uint32_t n, struct call *call, uint32_t *ret_done)
{
    struct quick_store *store = &t->store;
    struct tern_result *rest = &t->results[store->at];
    const struct tern_run *runs = store->more ? rest->runs : NULL;
    const uint32_t nruns = store->more ? rest->nruns : 0;
    const uint8_t *body;
    enum tern_err err;
    uint32_t got, done;

    TRY(call_wait(t, call, &body, &got));
    if (!quick_step_get(body, got, store, t->results, n - store->at, &done, &err))
        return not_an_answer(t, TERN_MALFORMED);
    if (err != TERN_OK)
        return t->text[0] ? err : set_error(t, err, NULL);
    if (done > 0 && nruns > 0) {
        rest->runs = runs;
        rest->nruns += nruns;
    }
    *ret_done = store->at + done;
    return TERN_OK;
}

/* Returns true if the last answered operation continues; then no later one was tried. */
static bool goes_on(struct tern *t, struct call *call, uint32_t done)
{
    struct quick_store *store = &t->store;

    if (done == 0 || !quick_has_room(store) || !call_again(t, t->results[done - 1].err, call))
        return false;
    store->more = true;
    store->at = done - 1;
    if (store->text_at[store->at])
        store->texts_end = store->text_at[store->at];
    return true;
}

enum tern_err ops_take(struct tern *t, const struct client_op *ops, uint32_t n, struct call *call,
                       uint32_t *ret_done)
{
    uint32_t done = 0;
    enum tern_err err = take_piece(t, n, call, &done);

    while (err == TERN_OK && goes_on(t, call, done)) {
        err = ops_send(t, ops + t->store.at, n - t->store.at, call);
        if (err == TERN_OK)
            err = take_piece(t, n, call, &done);
    }
    t->store.more = false;
    t->store.at = 0;
    *ret_done = err == TERN_OK ? done : 0;
    return err;
}

static enum tern_err do_op(struct tern *t, const struct client_op *op, uint32_t deadline_ms,
                           struct tern_result *ret)
{
    const struct asked asked = asked_op(op);
    struct call call;
    uint32_t done;

    TRY(check_op(t, op));
    TRY(check_leased(t, op->session));
    TRY(call_start(t, FRAME_STEP, deadline_ms, &call));
    TRY(ops_send(t, op, 1, &call));
    TRY(ops_take(t, op, 1, &call, &done));
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

enum tern_err tern_commit(struct tern *t, tern_session s, uint32_t depth, uint64_t step,
                          uint32_t deadline_ms, struct tern_result *ret)
{
    ENTER(t);
    return do_op(
        t, &(struct client_op){.kind = CLIENT_COMMIT, .session = s, .length = depth, .step = step},
        deadline_ms, ret);
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
