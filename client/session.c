/* Sessions are opened here, and prefixes asked about: the calls that are not on an engine's hot
 * path. */
#include "internal.h"

#include "base/err.h"

enum tern_err tern_session_open(struct tern *t, uint64_t pool, const struct tern_namespace *ns,
                                uint32_t deadline_ms, tern_session *ret)
{
    Tern__Wire__SessionOpen m = TERN__WIRE__SESSION_OPEN__INIT;
    Tern__Wire__Namespace wire_ns;
    const ProtobufCMessage *msg;

    TRY(put_namespace(t, ns, &wire_ns));
    m.has_pool = 1;
    m.pool = pool;
    m.ns = &wire_ns;
    TRY(call_whole(t, FRAME_SESSION_OPEN, 0, &m.base, deadline_ms, &msg));
    *ret = ((const Tern__Wire__SessionOpenReply *)msg)->session;
    return TERN_OK;
}

enum tern_err tern_peek_depths(struct tern *t, uint64_t pool, const struct tern_namespace *ns,
                               const struct tern_tokens *tokens, uint32_t deadline_ms,
                               struct tern_depths *ret)
{
    Tern__Wire__Tokens list = TERN__WIRE__TOKENS__INIT;
    Tern__Wire__Peek m = TERN__WIRE__PEEK__INIT;
    const Tern__Wire__PeekReply *reply;
    Tern__Wire__Namespace wire_ns;
    const ProtobufCMessage *msg;

    TRY(check_tokens(t, tokens));
    TRY(put_namespace(t, ns, &wire_ns));
    list.has_kept = 1;
    list.kept = tokens->base;
    list.has_tokens = 1;
    list.tokens = wire_bytes(tokens->v, (size_t)tokens->n * sizeof(*tokens->v));
    list.has_keys = tokens->nkeys > 0;
    list.keys = wire_bytes(tokens->keys, (size_t)tokens->nkeys * sizeof(*tokens->keys));
    m.has_pool = 1;
    m.pool = pool;
    m.ns = &wire_ns;
    m.tokens = &list;
    TRY(call_whole(t, FRAME_PEEK, 0, &m.base, deadline_ms, &msg));
    reply = (const Tern__Wire__PeekReply *)msg;
    *ret = (struct tern_depths){
        .resumable = reply->depth, .history = reply->history_depth, .host = reply->host_depth};
    return TERN_OK;
}

enum tern_err tern_peek_history(struct tern *t, uint64_t pool, const struct tern_namespace *ns,
                                const struct tern_tokens *tokens, uint32_t deadline_ms,
                                uint32_t *ret_depth, uint32_t *ret_history_depth)
{
    struct tern_depths depths;

    TRY(tern_peek_depths(t, pool, ns, tokens, deadline_ms, &depths));
    *ret_depth = depths.resumable;
    *ret_history_depth = depths.history;
    return TERN_OK;
}

enum tern_err tern_peek(struct tern *t, uint64_t pool, const struct tern_namespace *ns,
                        const struct tern_tokens *tokens, uint32_t deadline_ms, uint32_t *ret_depth)
{
    struct tern_depths depths;

    TRY(tern_peek_depths(t, pool, ns, tokens, deadline_ms, &depths));
    *ret_depth = depths.resumable;
    return TERN_OK;
}

enum tern_err tern_wait_published(struct tern *t, uint64_t step, uint32_t deadline_ms)
{
    Tern__Wire__WaitPublished m = TERN__WIRE__WAIT_PUBLISHED__INIT;
    const ProtobufCMessage *msg;

    if (step == 0)
        return set_error(t, TERN_INVALID, "step 0 means that nothing is in flight: do not wait");
    m.has_step = 1;
    m.step = step;
    return call_whole(t, FRAME_WAIT_PUBLISHED, 0, &m.base, deadline_ms, &msg);
}

enum tern_err tern_namespace_reset(struct tern *t, const struct tern_namespace *ns,
                                   uint32_t deadline_ms, uint32_t *ret_nodes)
{
    return tern_namespace_reset_peers(t, ns, deadline_ms, ret_nodes, NULL);
}

enum tern_err tern_namespace_reset_peers(struct tern *t, const struct tern_namespace *ns,
                                         uint32_t deadline_ms, uint32_t *ret_nodes,
                                         uint32_t *ret_unreached)
{
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
