/* The hot path, synchronous: match, step, fetch, recover; and retract beside its counterpart. A
 * request is written straight into the socket's buffer and its answer read straight out of it;
 * nothing is allocated. */
#include "internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"

/* The daemon's own error, with its text or the table's. */
static enum tern_err answered(struct tern *t, enum tern_err err)
{
    return err == TERN_OK || t->text[0] ? err : set_error(t, err, NULL);
}

static enum tern_err ask(struct tern *t, const struct quick_request *q, uint32_t deadline_ms,
                         const uint8_t **ret_body, uint32_t *ret_n)
{
    struct call call;

    TRY(call_start(t, q->type, deadline_ms, &call));
    TRY(call_put_quick(t, &call, q));
    return call_wait(t, &call, ret_body, ret_n);
}

/* The answer has one result. */
static enum tern_err take_one(struct tern *t, const struct quick_request *q, const uint8_t *body,
                              uint32_t n, struct tern_result *ret)
{
    if (!quick_get((uint16_t)(q->type + 1), body, n, &t->store, ret))
        return not_an_answer(t, TERN_MALFORMED);
    return answered(t, ret->err);
}

/* One request after the other; the last is answered with what was found. Others are served in
 * between. */
static enum tern_err match_pieces(struct tern *t, struct quick_request *q, uint32_t deadline_ms,
                                  struct tern_result *ret)
{
    const struct tern_tokens *all = q->match.tokens;
    uint64_t until = deadline_at(deadline_ms);

    for (uint32_t at = 0;;) {
        struct tern_tokens piece = piece_of(t, all, at);
        const uint8_t *body;
        struct call call;
        uint32_t n;

        q->match.tokens = &piece;
        q->match.earlier = at;
        q->match.more = piece.n < all->n - at;
        TRY(call_start_by(t, q->type, until, &call));
        TRY(call_put_quick(t, &call, q));
        TRY(call_wait(t, &call, &body, &n));
        TRY(take_one(t, q, body, n, ret));
        if (!q->match.more)
            return TERN_OK;
        at += piece.n;
    }
}

enum tern_err tern_match(struct tern *t, tern_session s, const struct tern_tokens *tokens,
                         uint64_t step, uint32_t deadline_ms, struct tern_result *ret)
{
    struct quick_request q = {
        .type = FRAME_MATCH, .session = s, .match = {.tokens = tokens, .step = step}};
    const uint8_t *body;
    uint32_t n;

    TRY(check_tokens(t, tokens));
    TRY(check_step(t, step));
    if (quick_size(&q) + TRACE_BYTES > t->socket.body_max)
        return match_pieces(t, &q, deadline_ms, ret);
    TRY(ask(t, &q, deadline_ms, &body, &n));
    return take_one(t, &q, body, n, ret);
}

enum tern_err tern_step(struct tern *t, const struct tern_op *ops, uint32_t n, uint32_t deadline_ms,
                        struct tern_result *results, uint32_t *ret_done)
{
    struct quick_request q = {.type = FRAME_STEP, .step = {.ops = ops, .n = n}};
    const uint8_t *body;
    enum tern_err err;
    uint32_t got;

    TRY(check_ops(t, ops, n));
    TRY(ask(t, &q, deadline_ms, &body, &got));
    if (!quick_step_get(body, got, &t->store, results, n, ret_done, &err))
        return not_an_answer(t, TERN_MALFORMED);
    return answered(t, err);
}

/* What was asked, what the session has, and what to do. A CLOSE or an ABORT names no length. */
static enum tern_err refused_lengths(struct tern *t, const struct tern_op *op,
                                     const struct tern_result *r)
{
    static const char *const names[] = {"?",     "EXTEND", "REWIND", "COMMIT",          "FINISH",
                                        "ABORT", "CLOSE",  "SLIDE",  "SNAPSHOT_RELEASE"};
    char asked[64] = "", text[QUICK_TEXT_MAX];

    if (op->kind == TERN_EXTEND)
        snprintf(asked, sizeof(asked), " to allocated %u, written %u", op->length, op->written);
    else if (op->kind != TERN_ABORT && op->kind != TERN_CLOSE && op->kind != TERN_SNAPSHOT_RELEASE)
        snprintf(asked, sizeof(asked), " with length %u", op->length);
    snprintf(text, sizeof(text),
             "%s%s is refused: the session has committed %u, written %u, allocated %u and %u "
             "tokens; correct the lengths, or recover the session if it is retracted",
             names[op->kind < sizeof(names) / sizeof(names[0]) ? op->kind : 0], asked,
             r->lengths.committed, r->lengths.written, r->lengths.allocated, r->tokens);
    return set_error(t, TERN_INVALID, text);
}

/* Which pages are missing, and whether a step is worth waiting for. */
static enum tern_err refused_pages(struct tern *t, const struct tern_shortage *s)
{
    char wait[80] = "no step will bring more: finish, abort or retract a session",
         text[QUICK_TEXT_MAX];

    if (s->until_step)
        snprintf(wait, sizeof(wait), "repeat it when all ranks have passed step %" PRIu64,
                 s->until_step);
    snprintf(text, sizeof(text),
             "group %u needs %u pages, and %u are free, %u reclaimable and %u retiring; %s",
             s->group, s->needed, s->free, s->reclaimable, s->retiring, wait);
    return set_error(t, TERN_POOL_EXHAUSTED, text);
}

/* The daemon's own words come first; else the numbers of the answer make the sentence. */
static enum tern_err answered_op(struct tern *t, const struct tern_op *op,
                                 const struct tern_result *r)
{
    if (r->err == TERN_INVALID && !t->text[0])
        return refused_lengths(t, op, r);
    if (r->err == TERN_POOL_EXHAUSTED && !t->text[0])
        return refused_pages(t, &r->shortage);
    return answered(t, r->err);
}

enum tern_err tern_do(struct tern *t, const struct tern_op *op, uint32_t deadline_ms,
                      struct tern_result *ret)
{
    struct tern_result result;
    uint32_t done;

    TRY(tern_step(t, op, 1, deadline_ms, &result, &done));
    if (done != 1)
        return not_an_answer(t, TERN_MALFORMED);
    *ret = result;
    return answered_op(t, op, &result);
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
        (void)client_socket_send(&t->socket);
    memcpy(t->text, text, sizeof(text));
}

/* A request that is answered later: one whose deadline passes is cancelled. */
static enum tern_err bring(struct tern *t, const struct quick_request *q, uint32_t deadline_ms,
                           struct tern_result *ret)
{
    const uint8_t *body;
    enum tern_err err;
    struct call call;
    uint32_t n;

    TRY(call_start(t, q->type, deadline_ms, &call));
    TRY(call_put_quick(t, &call, q));
    err = call_wait(t, &call, &body, &n);
    if (err == TERN_TIMED_OUT)
        cancel_unheard(t, q->session);
    TRY(err);
    return take_one(t, q, body, n, ret);
}

enum tern_err tern_fetch(struct tern *t, tern_session s, const char *peer, uint32_t depth,
                         uint32_t deadline_ms, struct tern_result *ret)
{
    struct quick_request q = {
        .type = FRAME_FETCH, .session = s, .fetch = {.peer = peer, .depth = depth}};

    TRY(check_peer(t, peer));
    return bring(t, &q, deadline_ms, ret);
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
    struct quick_request q = {.type = FRAME_RECOVER, .session = s};

    return bring(t, &q, deadline_ms, ret);
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

    TRY(check_step(t, step));
    m.has_mode = m.has_step = 1;
    m.mode = (uint32_t)mode;
    m.step = wire_step(step);
    err = call_whole(t, FRAME_RETRACT, s, &m.base, deadline_ms, &msg);
    if (msg)
        take_retracted((const Tern__Wire__RetractReply *)msg, ret);
    return err;
}
