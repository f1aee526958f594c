/* The operations of a scheduler's iteration, gathered and sent as one Step. A batch keeps copies of
 * the tokens in an arena as large as a request may be, so tokens that fit into the request fit into
 * the arena, and no array of the caller has to live until the batch is sent. */
#include "internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"

#define BARRIER_BYTES 2u /* size of the field that tern_batch_barrier adds */

struct tern_batch {
    struct tern *t; /* borrowed */
    uint32_t n;
    size_t bytes; /* size of the request so far */
    uint8_t *arena;
    size_t used; /* bytes used of the arena, which has body_max bytes */
    struct client_op op[TERN_BATCH_OPS_MAX];
};

enum tern_err tern_batch_create(struct tern *t, struct tern_batch **ret)
{
    ENTER(t);
    struct tern_batch *b = malloc(sizeof *b);
    uint8_t *arena = malloc(t->socket.body_max);

    t->text[0] = '\0';
    if (!b || !arena) {
        free(b);
        free(arena);
        return set_error(t, TERN_INTERNAL, NULL);
    }
    b->t = t;
    b->arena = arena;
    tern_batch_clear(b);
    *ret = b;
    return TERN_OK;
}

void tern_batch_destroy(struct tern_batch *b)
{
    if (b)
        free(b->arena);
    free(b);
}

void tern_batch_clear(struct tern_batch *b)
{
    b->n = 0;
    b->bytes = b->used = 0;
}

uint32_t tern_batch_count(const struct tern_batch *b)
{
    return b->n;
}

/* ---- adding ---- */

static const void *keep(struct tern_batch *b, const void *from, size_t n)
{
    uint8_t *to = b->arena + b->used;

    if (n)
        memcpy(to, from, n);
    b->used += (n + 7) / 8 * 8;
    return to;
}

/* Keys are aligned to 8 bytes, and so are copies in the arena: a list needs a little more room in
 * the arena than in a request. */
static bool fits(const struct tern_batch *b, const struct client_op *op, size_t bytes)
{
    const size_t max = b->t->socket.body_max,
                 tokens = ((size_t)op->tokens.n * sizeof(*op->tokens.v) + 7) / 8 * 8,
                 keys = (size_t)op->tokens.nkeys * sizeof(*op->tokens.keys);

    return tokens <= max && b->used + tokens + keys <= max &&
           b->bytes + bytes + BARRIER_BYTES + TRACE_BYTES <= max;
}

static enum tern_err add(struct tern_batch *b, struct client_op op)
{
    const size_t bytes = quick_op_measure(&op);

    b->t->text[0] = '\0';
    TRY(check_op(b->t, &op));
    TRY(check_leased(b->t, op.session));
    if (b->n == TERN_BATCH_OPS_MAX)
        return set_error(
            b->t, TERN_INVALID,
            "the batch has TERN_BATCH_OPS_MAX operations: run it, then begin the next");
    if (!fits(b, &op, bytes))
        return set_error(b->t, TERN_INVALID,
                         "the batch would be larger than one request may be: run it, then begin "
                         "the next, or match a part and extend by the rest");
    b->bytes += bytes;
    op.tokens.v = keep(b, op.tokens.v, op.tokens.n * sizeof(*op.tokens.v));
    op.tokens.keys = keep(b, op.tokens.keys, op.tokens.nkeys * sizeof(*op.tokens.keys));
    b->op[b->n++] = op;
    return TERN_OK;
}

enum tern_err tern_batch_extend(struct tern_batch *b, tern_session s,
                                const struct tern_tokens *append, uint32_t written,
                                uint32_t allocated)
{
    ENTER(b->t);
    struct client_op op = {
        .kind = CLIENT_EXTEND, .session = s, .length = allocated, .written = written};

    if (append)
        op.tokens = *append;
    return add(b, op);
}

enum tern_err tern_batch_commit(struct tern_batch *b, tern_session s, uint32_t depth, uint64_t step)
{
    ENTER(b->t);
    return add(
        b, (struct client_op){.kind = CLIENT_COMMIT, .session = s, .length = depth, .step = step});
}

enum tern_err tern_batch_rewind(struct tern_batch *b, tern_session s, uint32_t length,
                                uint64_t step)
{
    ENTER(b->t);
    return add(
        b, (struct client_op){.kind = CLIENT_REWIND, .session = s, .length = length, .step = step});
}

enum tern_err tern_batch_finish(struct tern_batch *b, tern_session s, uint32_t length,
                                uint64_t step)
{
    ENTER(b->t);
    return add(
        b, (struct client_op){.kind = CLIENT_FINISH, .session = s, .length = length, .step = step});
}

enum tern_err tern_batch_slide(struct tern_batch *b, tern_session s, uint32_t next_commit,
                               uint64_t step)
{
    ENTER(b->t);
    return add(b, (struct client_op){
                      .kind = CLIENT_SLIDE, .session = s, .length = next_commit, .step = step});
}

enum tern_err tern_batch_snapshot_release(struct tern_batch *b, tern_session s)
{
    ENTER(b->t);
    return add(b, (struct client_op){.kind = CLIENT_SNAPSHOT_RELEASE, .session = s});
}

enum tern_err tern_batch_abort(struct tern_batch *b, tern_session s, uint64_t step)
{
    ENTER(b->t);
    return add(b, (struct client_op){.kind = CLIENT_ABORT, .session = s, .step = step});
}

enum tern_err tern_batch_session_close(struct tern_batch *b, tern_session s, uint64_t step)
{
    ENTER(b->t);
    return add(b, (struct client_op){.kind = CLIENT_CLOSE, .session = s, .step = step});
}

void tern_batch_barrier(struct tern_batch *b)
{
    struct client_op *last = b->n > 0 ? &b->op[b->n - 1] : NULL;

    if (!last)
        return;
    b->bytes -= quick_op_measure(last);
    last->barrier = true;
    b->bytes += quick_op_measure(last);
}

/* ---- sending ---- */

/* A session may have been added to a lease since its operation was added. */
static enum tern_err check_batch(struct tern_batch *b)
{
    if (b->n == 0)
        return set_error(b->t, TERN_INVALID, "the batch has no operation: add one first");
    b->t->text[0] = '\0';
    for (uint32_t i = 0; i < b->n; i++)
        TRY(check_leased(b->t, b->op[i].session));
    return TERN_OK;
}

static enum tern_err send_ops(struct tern_batch *b, uint32_t deadline_ms, uint32_t pieces,
                              struct call *ret)
{
    TRY(check_batch(b));
    TRY(call_start(b->t, FRAME_STEP, deadline_ms, ret));
    ret->pieces = pieces;
    return ops_send(b->t, b->op, b->n, ret);
}

enum tern_err batch_send(struct tern_batch *b, uint32_t deadline_ms, uint32_t pieces,
                         struct call *ret)
{
    TRY(send_ops(b, deadline_ms, pieces, ret));
    (void)client_socket_send(&b->t->socket); /* call_wait reports a failure */
    return TERN_OK;
}

enum tern_err batch_take(struct tern_batch *b, struct call *call,
                         const struct tern_result **ret_results, uint32_t *ret_done)
{
    struct tern *t = b->t;
    enum tern_err err;

    for (uint32_t i = 0; i < b->n; i++)
        t->asked[i] = asked_op(&b->op[i]);
    err = ops_take(t, b->op, b->n, call, ret_done);
    tern_batch_clear(b);
    TRY(err);
    t->nresults = *ret_done;
    *ret_results = t->results;
    return TERN_OK;
}

enum tern_err tern_batch_run(struct tern_batch *b, uint32_t deadline_ms,
                             const struct tern_result **ret_results, uint32_t *ret_done)
{
    ENTER(b->t);
    struct call call;

    *ret_results = NULL;
    *ret_done = 0;
    TRY(send_ops(b, deadline_ms, CALL_PIECES_MAX, &call));
    return batch_take(b, &call, ret_results, ret_done);
}

enum tern_err tern_batch_submit(struct tern_batch *b, uint64_t cookie)
{
    ENTER(b->t);
    struct quick_request q = {.type = FRAME_STEP, .step = {.ops = b->op, .n = b->n}};
    struct asked *asked;
    enum tern_err err;

    TRY(check_batch(b));
    asked = malloc(b->n * sizeof *asked);
    if (!asked)
        return set_error(b->t, TERN_INTERNAL, NULL);
    for (uint32_t i = 0; i < b->n; i++)
        asked[i] = asked_op(&b->op[i]);
    err = async_quick(b->t, &q, asked, b->n, cookie);
    if (err == TERN_OK)
        tern_batch_clear(b);
    else
        free(asked);
    return err;
}
