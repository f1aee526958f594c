/* Synchronous match, fetch, recover and retract. A request is written directly into the socket's
 * buffer and its answer read directly from it; nothing is allocated.
 */
#include "internal.h"

#include <string.h>

#include "base/err.h"

/* The last 1/BRING_END_PART of a fetch's or a recover's deadline is reserved for the answer to its
 * cancel. */
#define BRING_END_PART 8

/* The answer has one result. */
static enum tern_err take_one(struct tern *t, const struct quick_request *q, const uint8_t *body,
                              uint32_t n, struct tern_result *ret)
{
    if (!quick_get((uint16_t)(q->type + 1), body, n, &t->store, ret))
        return not_an_answer(t, TERN_MALFORMED);
    return said(t, &(struct asked){.kind = asked_of(q->type), .session = q->session}, ret);
}

/* Sends the pieces one request after the other; the answer to the last has the result. The daemon
 * serves others in between. */
static enum tern_err match_pieces(struct tern *t, struct quick_request *q, uint32_t deadline_ms,
                                  struct tern_result *ret)
{
    const struct tern_tokens *all = q->match.tokens;
    uint64_t until = deadline_at(deadline_ms);
    uint32_t most = all->n;

    q->match.pieces = true;
    for (uint32_t at = 0;;) {
        struct tern_tokens piece = piece_of(t, all, at, most);
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
        if (t->store.taken > piece.n)
            return not_an_answer(t, TERN_MALFORMED);
        if (t->store.taken == 0 && !q->match.more)
            return TERN_OK;
        at += piece_taken(&piece, t->store.taken);
        /* Tokens that the daemon does not take are sent again. */
        most = t->store.taken > 0 ? t->store.taken : 2 * piece.n;
    }
}

enum tern_err tern_match(struct tern *t, tern_session s, const struct tern_tokens *tokens,
                         uint64_t step, uint32_t deadline_ms, struct tern_result *ret)
{
    ENTER(t);
    struct quick_request q = {
        .type = FRAME_MATCH, .session = s, .match = {.tokens = tokens, .step = step}};
    const uint8_t *body;
    uint32_t n;

    TRY(check_tokens(t, tokens));
    TRY(check_step(t, step));
    if (tokens->n > TOKENS_ONE_PIECE || quick_size(&q) + TRACE_BYTES > t->socket.body_max)
        return match_pieces(t, &q, deadline_ms, ret);
    TRY(call_quick(t, &q, deadline_ms, &body, &n));
    return take_one(t, &q, body, n, ret);
}

/* Cancels this fetch or recover at the daemon. The answer to the cancel is dropped. */
static void ask_to_end(struct tern *t, tern_session s)
{
    Tern__Wire__FetchCancel m = TERN__WIRE__FETCH_CANCEL__INIT;
    struct call call;

    m.has_reserved_one = 1;
    m.reserved_one = 1;
    if (call_start(t, FRAME_FETCH_CANCEL, 1, &call) == TERN_OK)
        (void)call_put(t, &call, s, &m.base);
}

/* Near the deadline: cancels the request and waits until `until_ns` for its answer, which names the
 * pages that arrived. No later answer would name them. */
static enum tern_err bring_ends(struct tern *t, const struct quick_request *q, struct call *call,
                                uint64_t until_ns, struct tern_result *ret)
{
    const uint8_t *body;
    enum tern_err err;
    uint32_t n;

    ask_to_end(t, q->session);
    call->deadline_ns = until_ns;
    err = call_wait(t, call, &body, &n);
    if (err == TERN_TIMED_OUT)
        return set_error(t, err,
                         "the request timed out, and no answer names the pages that arrived: "
                         "tern_recover returns the lengths and the whole table; then retry");
    TRY(err);
    err = take_one(t, q, body, n, ret);
    if (err != TERN_GONE || ret->tokens == 0)
        return err;
    ret->err = TERN_TIMED_OUT;
    return set_error(
        t, TERN_TIMED_OUT,
        q->type == FRAME_RECOVER
            ? "the request timed out and was cancelled, and the session is still retracted: retry "
              "with a longer deadline"
            : "the request timed out and was cancelled; the pages that arrived stay, and the "
              "result names them: retry with a longer deadline, or compute the rest");
}

static enum tern_err bring(struct tern *t, const struct quick_request *q, uint32_t deadline_ms,
                           struct tern_result *ret)
{
    const uint32_t whole_ms = deadline_ms ? deadline_ms : TERN_DEADLINE_DEFAULT_MS;
    const uint64_t until_ns = deadline_at(whole_ms);
    const uint8_t *body;
    enum tern_err err;
    struct call call;
    uint32_t n;

    TRY(call_start(t, q->type, whole_ms - whole_ms / BRING_END_PART, &call));
    TRY(call_put_quick(t, &call, q));
    err = call_wait(t, &call, &body, &n);
    if (err == TERN_TIMED_OUT)
        return bring_ends(t, q, &call, until_ns, ret);
    TRY(err);
    return take_one(t, q, body, n, ret);
}

/* For a ticket's pages the two daemons wait until their own deadlines. */
static uint32_t wait_ms(const struct tern_fetch *fetch, uint32_t deadline_ms)
{
    uint32_t patience_ms = deadline_ms ? deadline_ms : TERN_DEADLINE_DEFAULT_MS;

    return fetch->ticket ? 0 : patience_ms - patience_ms / 4;
}

enum tern_err tern_fetch(struct tern *t, tern_session s, const struct tern_fetch *fetch,
                         uint32_t deadline_ms, struct tern_result *ret)
{
    ENTER(t);
    struct quick_request q = {.type = FRAME_FETCH, .session = s, .fetch = {.of = fetch}};

    TRY(check_fetch(t, fetch));
    q.fetch.wait_ms = wait_ms(fetch, deadline_ms);
    return bring(t, &q, deadline_ms, ret);
}

/* A wait that timed out need not be cancelled: the next one replaces it. */
static enum tern_err ask_fetch(struct tern *t, const struct quick_request *q, uint32_t deadline_ms,
                               struct tern_result *ret)
{
    const uint8_t *body;
    uint32_t n;

    TRY(call_quick(t, q, deadline_ms, &body, &n));
    return take_one(t, q, body, n, ret);
}

enum tern_err tern_fetch_wait(struct tern *t, tern_session s, uint32_t above, uint32_t deadline_ms,
                              struct tern_result *ret)
{
    ENTER(t);
    struct quick_request q = {
        .type = FRAME_FETCH_WAIT, .session = s, .fetch_wait = {.above = above}};

    return ask_fetch(t, &q, deadline_ms, ret);
}

enum tern_err tern_fetch_pages(struct tern *t, tern_session s, uint32_t deadline_ms,
                               struct tern_result *ret)
{
    ENTER(t);
    struct quick_request q = {
        .type = FRAME_FETCH_WAIT, .session = s, .fetch_wait = {.pages = true}};

    return ask_fetch(t, &q, deadline_ms, ret);
}

enum tern_err tern_fetch_cancel(struct tern *t, tern_session s, uint32_t deadline_ms)
{
    ENTER(t);
    Tern__Wire__FetchCancel m = TERN__WIRE__FETCH_CANCEL__INIT;
    const ProtobufCMessage *msg;

    m.has_reserved_one = 1;
    m.reserved_one = 1;
    return call_whole(t, FRAME_FETCH_CANCEL, s, &m.base, deadline_ms, &msg);
}

enum tern_err tern_recover(struct tern *t, tern_session s, uint32_t deadline_ms,
                           struct tern_result *ret)
{
    ENTER(t);
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
    ret->shortage.evictable = reply->evictable;
    if (s)
        ret->shortage = (struct tern_shortage){s->group,     s->needed,   s->free,
                                               s->evictable, s->retiring, s->until_step};
}

enum tern_err tern_retract(struct tern *t, tern_session s, enum tern_retract_mode mode,
                           uint64_t step, uint32_t deadline_ms, struct tern_retracted *ret)
{
    ENTER(t);
    Tern__Wire__Retract m = TERN__WIRE__RETRACT__INIT;
    const Tern__Wire__RetractReply *reply;
    const ProtobufCMessage *msg = NULL;
    enum tern_err err;

    TRY(check_step(t, step));
    m.has_mode = m.has_step = 1;
    m.mode = (uint32_t)mode;
    m.step = wire_step(step);
    err = call_whole(t, FRAME_RETRACT, s, &m.base, deadline_ms, &msg);
    if (!msg)
        return err;
    reply = (const Tern__Wire__RetractReply *)msg;
    take_retracted(reply, ret);
    if (reply->status && reply->status->text && reply->status->text[0])
        return err; /* with the daemon's own text */
    return said_retracted(t, err, ret);
}
