/* Operations as values: see op.h. */
#include "engine/op.h"

#include <string.h>

#include "base/check.h"

static const struct tern_tokens *appended(const struct engine_op *op)
{
    return op->tokens.n || op->tokens.nkeys || op->tokens.base ? &op->tokens : NULL;
}

enum tern_err op_do(struct tern *t, const struct engine_op *op, uint32_t deadline_ms,
                    struct tern_result *ret)
{
    const tern_session s = op->session;
    const uint32_t length = op->length, ms = deadline_ms;

    switch (op->kind) {
    case ENGINE_EXTEND: return tern_extend(t, s, appended(op), op->written, length, ms, ret);
    case ENGINE_REWIND: return tern_rewind(t, s, length, op->step, ms, ret);
    case ENGINE_COMMIT: return tern_commit(t, s, length, op->step, ms, ret);
    case ENGINE_FINISH: return tern_finish(t, s, length, op->step, ms, ret);
    case ENGINE_ABORT: return tern_abort(t, s, op->step, ms, ret);
    case ENGINE_CLOSE: return tern_session_close(t, s, op->step, ms, ret);
    case ENGINE_SLIDE: return tern_slide(t, s, length, op->step, ms, ret);
    case ENGINE_SNAPSHOT_RELEASE: return tern_snapshot_release(t, s, ms, ret);
    }
    check(false);
}

static enum tern_err add(struct tern_batch *b, const struct engine_op *op)
{
    const tern_session s = op->session;

    switch (op->kind) {
    case ENGINE_EXTEND: return tern_batch_extend(b, s, appended(op), op->written, op->length);
    case ENGINE_REWIND: return tern_batch_rewind(b, s, op->length, op->step);
    case ENGINE_COMMIT: return tern_batch_commit(b, s, op->length, op->step);
    case ENGINE_FINISH: return tern_batch_finish(b, s, op->length, op->step);
    case ENGINE_ABORT: return tern_batch_abort(b, s, op->step);
    case ENGINE_CLOSE: return tern_batch_session_close(b, s, op->step);
    case ENGINE_SLIDE: return tern_batch_slide(b, s, op->length, op->step);
    case ENGINE_SNAPSHOT_RELEASE: return tern_batch_snapshot_release(b, s);
    }
    check(false);
}

enum tern_err op_add(struct tern_batch *b, const struct engine_op *op)
{
    enum tern_err err = add(b, op);

    if (err == TERN_OK && op->barrier)
        tern_batch_barrier(b);
    return err;
}

enum tern_err ops_run(struct tern_batch *b, const struct engine_op *ops, uint32_t n,
                      uint32_t deadline_ms, struct tern_result *results, uint32_t *ret_done)
{
    const struct tern_result *got;
    enum tern_err err = TERN_OK;

    tern_batch_clear(b);
    for (uint32_t i = 0; i < n && err == TERN_OK; i++)
        err = op_add(b, &ops[i]);
    if (err == TERN_OK)
        err = tern_batch_run(b, deadline_ms, &got, ret_done);
    if (err == TERN_OK)
        memcpy(results, got, *ret_done * sizeof *results);
    return err;
}
