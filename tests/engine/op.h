/* An operation of a session as a value: a row of a test's table, or the next choice of a workload.
 * It goes through the call of tern.h of that name, alone or in a batch. */
#ifndef ENGINE_OP_H
#define ENGINE_OP_H

#include <tern.h>

enum engine_op_kind {
    ENGINE_EXTEND = 1,
    ENGINE_REWIND,
    ENGINE_COMMIT,
    ENGINE_FINISH,
    ENGINE_ABORT,
    ENGINE_CLOSE,
    ENGINE_SLIDE,
    ENGINE_SNAPSHOT_RELEASE
};

struct engine_op {
    enum engine_op_kind kind;
    bool barrier; /* in a batch */
    tern_session session;
    uint64_t step;
    uint32_t length;           /* EXTEND: allocated; else the one length that the call takes */
    uint32_t written;          /* EXTEND */
    struct tern_tokens tokens; /* EXTEND; n 0: none */
};

enum tern_err op_do(struct tern *t, const struct engine_op *op, uint32_t deadline_ms,
                    struct tern_result *ret);
enum tern_err op_add(struct tern_batch *b, const struct engine_op *op);
/* Runs all of them as one batch. results: the caller's array of n; their arrays are borrowed until
 * the next call on the connection. */
enum tern_err ops_run(struct tern_batch *b, const struct engine_op *ops, uint32_t n,
                      uint32_t deadline_ms, struct tern_result *results, uint32_t *ret_done);

#endif
