/* The hot path, synchronous: match, step, fetch, recover; and retract beside its counterpart. A
 * request is written straight into the socket's buffer and its answer read straight out of it;
 * nothing is allocated. */
#include "internal.h"

#include <string.h>

#include "base/err.h"

enum tern_err check_tokens(struct tern *t, const struct tern_tokens *tokens)
{
    if (!tokens || (tokens->n && !tokens->v) || (tokens->nkeys && !tokens->keys))
        return set_error(t, TERN_INVALID, "a token list that points nowhere");
    if (tokens->nkeys > WIRE_KEYS_MAX)
        return set_error(t, TERN_INVALID, "more than TERN_KEYS_MAX extra keys in one request");
    return TERN_OK;
}

enum tern_err check_ops(struct tern *t, const struct tern_op *ops, uint32_t n)
{
    if (n == 0 || n > TERN_STEP_OPS_MAX || !ops)
        return set_error(t, TERN_INVALID, "a step has 1 to TERN_STEP_OPS_MAX operations");
    for (uint32_t i = 0; i < n; i++)
        TRY(check_tokens(t, &ops[i].tokens));
    return TERN_OK;
}

enum tern_err check_peer(struct tern *t, const char *peer)
{
    if (peer && (!peer[0] || strnlen(peer, WIRE_STRING_MAX + 1) > WIRE_STRING_MAX))
        return set_error(t, TERN_INVALID,
                         "a peer's name has 1 to 255 bytes; NULL is the pool's own host tier");
    return TERN_OK;
}

static enum tern_err not_an_answer(struct tern *t)
{
    conn_lose(&t->conn);
    return set_error(t, TERN_MALFORMED,
                     "the daemon sent what is no answer: the connection is closed");
}

/* The daemon's own error, with its text or the table's. */
static enum tern_err answered(struct tern *t, enum tern_err err)
{
    return err == TERN_OK || t->text[0] ? err : set_error(t, err, NULL);
}

enum tern_err tern_match(struct tern *t, tern_session s, const struct tern_tokens *tokens,
                         uint64_t step, uint32_t deadline_ms, struct tern_result *ret)
{
    const uint8_t *body;
    struct call call;
    uint8_t *frame;
    uint64_t size;
    uint32_t n;

    TRY(check_tokens(t, tokens));
    TRY(call_start(t, FRAME_MATCH, deadline_ms, &call));
    size = quick_match_size(tokens, step);
    TRY(call_room(t, &call, size, &frame));
    quick_match_put(frame + FRAME_HEADER_BYTES, tokens, step);
    call_queue(t, frame, FRAME_MATCH, call.id, s, size);
    TRY(call_wait(t, &call, &body, &n));
    if (!quick_match_get(body, n, &t->store, ret))
        return not_an_answer(t);
    return answered(t, ret->err);
}

enum tern_err tern_step(struct tern *t, const struct tern_op *ops, uint32_t n, uint32_t deadline_ms,
                        struct tern_result *results, uint32_t *ret_done)
{
    const uint8_t *body;
    enum tern_err err;
    struct call call;
    uint8_t *frame;
    uint64_t size;
    uint32_t got;

    TRY(check_ops(t, ops, n));
    TRY(call_start(t, FRAME_STEP, deadline_ms, &call));
    size = quick_step_size(ops, n);
    TRY(call_room(t, &call, size, &frame));
    quick_step_put(frame + FRAME_HEADER_BYTES, ops, n);
    call_queue(t, frame, FRAME_STEP, call.id, 0, size);
    TRY(call_wait(t, &call, &body, &got));
    if (!quick_step_get(body, got, &t->store, results, n, ret_done, &err))
        return not_an_answer(t);
    return answered(t, err);
}

enum tern_err tern_do(struct tern *t, const struct tern_op *op, uint32_t deadline_ms,
                      struct tern_result *ret)
{
    struct tern_result result;
    uint32_t done;

    TRY(tern_step(t, op, 1, deadline_ms, &result, &done));
    if (done != 1)
        return not_an_answer(t);
    *ret = result;
    return answered(t, result.err);
}

/* Nobody will take the result of this fetch or recover: the daemon should not go on bringing it.
 * Its answer is dropped. */
static void cancel_unheard(struct tern *t, tern_session s)
{
    Tern__Wire__FetchCancel m = TERN__WIRE__FETCH_CANCEL__INIT;
    char text[QUICK_TEXT_MAX];
    struct call call;

    memcpy(text, t->text, sizeof(text));
    m.has_reserved_one = 1;
    m.reserved_one = 1;
    if (call_start(t, FRAME_FETCH_CANCEL, 1, &call) == TERN_OK &&
        call_put(t, &call, s, &m.base) == TERN_OK)
        (void)conn_send(&t->conn);
    memcpy(t->text, text, sizeof(text));
}

enum tern_err tern_fetch(struct tern *t, tern_session s, const char *peer, uint32_t depth,
                         uint32_t deadline_ms, struct tern_result *ret)
{
    const uint8_t *body;
    enum tern_err err;
    struct call call;
    uint8_t *frame;
    uint64_t size;
    uint32_t n;

    TRY(check_peer(t, peer));
    TRY(call_start(t, FRAME_FETCH, deadline_ms, &call));
    size = quick_fetch_size(peer, depth);
    TRY(call_room(t, &call, size, &frame));
    quick_fetch_put(frame + FRAME_HEADER_BYTES, peer, depth);
    call_queue(t, frame, FRAME_FETCH, call.id, s, size);
    err = call_wait(t, &call, &body, &n);
    if (err == TERN_TIMED_OUT)
        cancel_unheard(t, s);
    TRY(err);
    if (!quick_fetch_get(body, n, &t->store, ret))
        return not_an_answer(t);
    return answered(t, ret->err);
}

enum tern_err tern_fetch_cancel(struct tern *t, tern_session s, uint32_t deadline_ms)
{
    Tern__Wire__FetchCancel m = TERN__WIRE__FETCH_CANCEL__INIT;
    const ProtobufCMessage *msg;

    m.has_reserved_one = 1;
    m.reserved_one = 1;
    return call_whole(t, FRAME_FETCH_CANCEL, s, &m.base, deadline_ms, &msg);
}

enum tern_err tern_recover(struct tern *t, tern_session s, uint32_t deadline_ms,
                           struct tern_result *ret)
{
    uint64_t size = quick_recover_size();
    const uint8_t *body;
    enum tern_err err;
    struct call call;
    uint8_t *frame;
    uint32_t n;

    TRY(call_start(t, FRAME_RECOVER, deadline_ms, &call));
    TRY(call_room(t, &call, size, &frame));
    quick_recover_put(frame + FRAME_HEADER_BYTES);
    call_queue(t, frame, FRAME_RECOVER, call.id, s, size);
    err = call_wait(t, &call, &body, &n);
    if (err == TERN_TIMED_OUT)
        cancel_unheard(t, s);
    TRY(err);
    if (!quick_recover_get(body, n, &t->store, ret))
        return not_an_answer(t);
    return answered(t, ret->err);
}

static void take_retracted(const Tern__Wire__RetractReply *reply, struct tern_retracted *ret)
{
    const Tern__Wire__Lengths *l = reply->lengths;
    const Tern__Wire__Shortage *s = reply->status ? reply->status->shortage : NULL;

    *ret =
        (struct tern_retracted){.free_now = reply->free_now, .free_at_step = reply->free_at_step};
    if (l)
        ret->lengths = (struct tern_lengths){l->committed, l->written, l->allocated};
    if (s)
        ret->shortage = (struct tern_shortage){s->group,       s->needed,   s->free,
                                               s->reclaimable, s->retiring, s->until_step};
}

enum tern_err tern_retract(struct tern *t, tern_session s, enum tern_retract_mode mode,
                           uint64_t step, uint32_t deadline_ms, struct tern_retracted *ret)
{
    Tern__Wire__Retract m = TERN__WIRE__RETRACT__INIT;
    const ProtobufCMessage *msg = NULL;
    enum tern_err err;

    m.has_mode = m.has_step = 1;
    m.mode = (uint32_t)mode;
    m.step = step;
    err = call_whole(t, FRAME_RETRACT, s, &m.base, deadline_ms, &msg);
    if (msg)
        take_retracted((const Tern__Wire__RetractReply *)msg, ret);
    return err;
}
