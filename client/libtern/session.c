/* Opens sessions, peeks, stores, waits and resets: calls off an engine's hot path. */
#include "internal.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/err.h"

#define PEEK_TRIES 4 /* times that a peek in pieces restarts after its prefix was evicted */

enum tern_err tern_session_open(struct tern *t, uint64_t pool, const struct tern_namespace *ns,
                                const struct tern_session_options *options, uint32_t deadline_ms,
                                tern_session *ret)
{
    ENTER(t);
    Tern__Wire__SessionOpen m = TERN__WIRE__SESSION_OPEN__INIT;
    Tern__Wire__Namespace wire_ns;
    const ProtobufCMessage *msg;

    TRY(put_namespace(t, ns, &wire_ns));
    m.has_pool = 1;
    m.pool = pool;
    m.ns = &wire_ns;
    m.has_blobs_kept = options && options->blobs_kept;
    m.blobs_kept = options ? options->blobs_kept : 0;
    m.has_merging = options && options->merging;
    m.merging = options && options->merging;
    TRY(call_whole(t, FRAME_SESSION_OPEN, 0, &m.base, deadline_ms, &msg));
    *ret = ((const Tern__Wire__SessionOpenReply *)msg)->session;
    return TERN_OK;
}

/* Makes one request of a Peek, for the tokens behind the prefix that `from` names; 0: for the first
 * tokens. */
static enum tern_err peek_piece(struct tern *t, Tern__Wire__Peek *m,
                                const struct tern_tokens *tokens, uint64_t deadline_ns,
                                const Tern__Wire__PeekReply **ret)
{
    Tern__Wire__Tokens list = TERN__WIRE__TOKENS__INIT;
    const ProtobufCMessage *msg;
    struct call call;

    list.has_kept = 1;
    list.kept = tokens->base;
    list.has_tokens = 1;
    list.tokens = wire_bytes(tokens->v, (size_t)tokens->n * sizeof(*tokens->v));
    list.has_keys = tokens->nkeys > 0;
    list.keys = wire_bytes(tokens->keys, (size_t)tokens->nkeys * sizeof(*tokens->keys));
    m->tokens = &list;
    TRY(call_start_by(t, FRAME_PEEK, deadline_ns, &call));
    TRY(call_put(t, &call, 0, &m->base));
    TRY(call_answer(t, &call, &msg));
    *ret = (const Tern__Wire__PeekReply *)msg;
    return TERN_OK;
}

/* Peeks piece by piece, as long as each piece is found whole. BUSY: the prefix found before was
 * evicted, or the daemon has another reason; *ret_begun: a piece was answered. */
static enum tern_err peek_pieces(struct tern *t, Tern__Wire__Peek *m,
                                 const struct tern_tokens *tokens, uint64_t deadline_ns,
                                 struct tern_depths *ret, bool *ret_begun)
{
    const Tern__Wire__PeekReply *reply;
    uint32_t at = 0, end;

    m->has_from = 0;
    m->has_pieces = m->pieces = tokens->n > TOKENS_ONE_PIECE;
    *ret_begun = false;
    do {
        /* Send all that fits: the daemon searches the disk beyond the tokens that it takes. */
        struct tern_tokens piece = piece_of(t, tokens, at, tokens->n);

        TRY(peek_piece(t, m, &piece, deadline_ns, &reply));
        if (reply->taken > piece.n)
            return not_an_answer(t, TERN_MALFORMED);
        *ret = (struct tern_depths){.resumable = reply->depth,
                                    .history = reply->history_depth,
                                    .host = reply->host_depth,
                                    .disk = reply->disk_depth};
        *ret_begun = true;
        end = at + piece_taken(&piece, reply->taken);
        if (reply->reached && end < tokens->n && (reply->walked <= at || reply->walked > end))
            return set_error(t, TERN_INVALID,
                             "a chunk of the prefix tree is larger than a request: raise the "
                             "daemon's frame_body_max");
        at = reply->walked;
        m->has_from = 1;
        m->from = reply->reached;
    } while (reply->reached && end < tokens->n);
    return TERN_OK;
}

enum tern_err tern_peek(struct tern *t, uint64_t pool, const struct tern_namespace *ns,
                        const struct tern_tokens *tokens, uint32_t deadline_ms,
                        struct tern_depths *ret)
{
    ENTER(t);
    uint64_t deadline_ns = deadline_at(deadline_ms);
    Tern__Wire__Peek m = TERN__WIRE__PEEK__INIT;
    Tern__Wire__Namespace wire_ns;
    struct tern_depths depths;
    bool begun = true;
    enum tern_err err = TERN_BUSY;

    TRY(check_tokens(t, tokens));
    TRY(put_namespace(t, ns, &wire_ns));
    if (tokens->base != 0)
        return set_error(t, TERN_INVALID, "a peek needs the whole token list, with base 0");
    m.has_pool = 1;
    m.pool = pool;
    m.ns = &wire_ns;
    for (uint32_t i = 0; i < PEEK_TRIES && err == TERN_BUSY && begun; i++)
        err = peek_pieces(t, &m, tokens, deadline_ns, &depths, &begun);
    TRY(err);
    *ret = depths;
    return TERN_OK;
}

enum tern_err tern_store(struct tern *t, tern_session s, uint32_t depth, uint32_t deadline_ms,
                         struct tern_stored *ret)
{
    ENTER(t);
    Tern__Wire__Store m = TERN__WIRE__STORE__INIT;
    const ProtobufCMessage *msg;

    m.has_depth = 1;
    m.depth = depth;
    TRY(call_whole(t, FRAME_STORE, s, &m.base, deadline_ms, &msg));
    *ret = stored_of(msg);
    return TERN_OK;
}

static enum tern_err not_published(struct tern *t, enum tern_err err, uint64_t step)
{
    char text[QUICK_TEXT_MAX];

    if (err == TERN_TIMED_OUT)
        snprintf(text, sizeof(text),
                 "not every rank has published step %" PRIu64
                 " yet (tern_done_step; `ternctl engines` shows the rank that lags)",
                 step);
    else
        snprintf(text, sizeof(text), "waiting for step %" PRIu64 ": %.200s", step, t->text);
    return set_error(t, err, text);
}

enum tern_err tern_wait_published(struct tern *t, uint64_t step, uint32_t deadline_ms)
{
    ENTER(t);
    enum tern_err err;
    Tern__Wire__WaitPublished m = TERN__WIRE__WAIT_PUBLISHED__INIT;
    const ProtobufCMessage *msg;

    TRY(check_wait(t, step));
    m.has_step = 1;
    m.step = step;
    err = call_whole(t, FRAME_WAIT_PUBLISHED, 0, &m.base, deadline_ms, &msg);
    return err == TERN_OK ? TERN_OK : not_published(t, err, step);
}

enum tern_err tern_namespace_reset(struct tern *t, const struct tern_namespace *ns,
                                   uint32_t deadline_ms, uint32_t *ret_nodes,
                                   uint32_t *ret_unreached)
{
    ENTER(t);
    Tern__Wire__NamespaceReset m = TERN__WIRE__NAMESPACE_RESET__INIT;
    Tern__Wire__Namespace wire_ns;
    const ProtobufCMessage *msg;

    TRY(put_namespace(t, ns, &wire_ns));
    m.ns = &wire_ns;
    TRY(call_whole(t, FRAME_NAMESPACE_RESET, 0, &m.base, deadline_ms, &msg));
    if (ret_nodes)
        *ret_nodes = ((const Tern__Wire__NamespaceResetReply *)msg)->nodes;
    if (ret_unreached)
        *ret_unreached = ((const Tern__Wire__NamespaceResetReply *)msg)->unreached;
    return TERN_OK;
}
