/* Decoding under limits, encoding into the caller's memory, version ranges. protobuf-c does the
 * parsing; it does not recurse deeper than the schema (no type contains itself) and knows no
 * groups, so nesting in unknown fields is skipped or refused, never followed. */
#include "proto/codec.h"

#include <assert.h>
#include <string.h>

#include "base/err.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "arrays travel as little-endian bytes and are used in place: port wire_array first"
#endif
static_assert(sizeof(struct wire_event) == WIRE_EVENT_BYTES, "an event is copied as it is");

/* Field 100, a varint of 0: no message has it. */
static const uint8_t pad_field[] = {0xa0, 0x06, 0x00};

const ProtobufCMessageDescriptor *wire_descriptor(uint16_t type)
{
    switch (type) {
    case FRAME_HELLO: return &tern__wire__hello__descriptor;
    case FRAME_HELLO_REPLY: return &tern__wire__hello_reply__descriptor;
    case FRAME_ENGINE_JOIN: return &tern__wire__engine_join__descriptor;
    case FRAME_ENGINE_JOIN_REPLY: return &tern__wire__engine_join_reply__descriptor;
    case FRAME_ENGINE_LEAVE: return &tern__wire__engine_leave__descriptor;
    case FRAME_POOL_OPEN: return &tern__wire__pool_open__descriptor;
    case FRAME_POOL_OPEN_REPLY: return &tern__wire__pool_open_reply__descriptor;
    case FRAME_POOL_MAP:
    case FRAME_POOL_CLOSE: return &tern__wire__pool_ref__descriptor;
    case FRAME_POOL_MAP_REPLY: return &tern__wire__pool_map_reply__descriptor;
    case FRAME_SESSION_OPEN: return &tern__wire__session_open__descriptor;
    case FRAME_SESSION_OPEN_REPLY: return &tern__wire__session_open_reply__descriptor;
    case FRAME_PEEK: return &tern__wire__peek__descriptor;
    case FRAME_PEEK_REPLY: return &tern__wire__peek_reply__descriptor;
    case FRAME_MATCH: return &tern__wire__match__descriptor;
    case FRAME_MATCH_REPLY: return &tern__wire__match_reply__descriptor;
    case FRAME_STEP: return &tern__wire__step__descriptor;
    case FRAME_STEP_REPLY: return &tern__wire__step_reply__descriptor;
    case FRAME_FETCH: return &tern__wire__fetch__descriptor;
    case FRAME_FETCH_REPLY: return &tern__wire__fetch_reply__descriptor;
    case FRAME_FETCH_CANCEL: return &tern__wire__fetch_cancel__descriptor;
    case FRAME_RETRACT: return &tern__wire__retract__descriptor;
    case FRAME_RETRACT_REPLY: return &tern__wire__retract_reply__descriptor;
    case FRAME_RECOVER: return &tern__wire__recover__descriptor;
    case FRAME_RECOVER_REPLY: return &tern__wire__recover_reply__descriptor;
    case FRAME_NAMESPACE_RESET: return &tern__wire__namespace_reset__descriptor;
    case FRAME_NAMESPACE_RESET_REPLY: return &tern__wire__namespace_reset_reply__descriptor;
    case FRAME_SUBSCRIBE: return &tern__wire__subscribe__descriptor;
    case FRAME_SUBSCRIBE_REPLY: return &tern__wire__subscribe_reply__descriptor;
    case FRAME_ENGINE_LEAVE_REPLY:
    case FRAME_POOL_CLOSE_REPLY:
    case FRAME_FETCH_CANCEL_REPLY:
    case FRAME_PING:
    case FRAME_PING_REPLY:
    case FRAME_STATS: return &tern__wire__empty__descriptor;
    case FRAME_STATS_REPLY:
    case FRAME_ADMIN_REPLY: return &tern__wire__admin_reply__descriptor;
    case FRAME_ADMIN: return &tern__wire__admin__descriptor;
    case FRAME_PEER_HELLO: return &tern__wire__peer_hello__descriptor;
    case FRAME_PEER_HELLO_REPLY: return &tern__wire__peer_hello_reply__descriptor;
    case FRAME_PEER_MSG: return &tern__wire__peer_msg__descriptor;
    case FRAME_PEER_PATH: return &tern__wire__peer_path__descriptor;
    default: return NULL;
    }
}

/* ---- limits, checked after unpacking ---- */

/* What several parts of one message share. */
struct totals {
    size_t runs, refs;
};

static enum tern_err limit(bool within)
{
    return within ? TERN_OK : TERN_MALFORMED;
}

static enum tern_err check_string(const char *s, size_t max)
{
    return limit(!s || strnlen(s, max + 1) <= max);
}

static enum tern_err check_status(const Tern__Wire__Status *status)
{
    return status ? check_string(status->text, WIRE_TEXT_MAX) : TERN_OK;
}

static enum tern_err check_list(const ProtobufCBinaryData *tokens, const ProtobufCBinaryData *keys)
{
    TRY(limit(tokens->len % WIRE_TOKEN_BYTES == 0));
    TRY(limit(keys->len % WIRE_KEY_BYTES == 0));
    return limit(keys->len / WIRE_KEY_BYTES <= WIRE_KEYS_MAX);
}

static enum tern_err check_tokens(const Tern__Wire__Tokens *t)
{
    return t ? check_list(&t->tokens, &t->keys) : TERN_OK;
}

static enum tern_err check_runs(struct totals *totals, size_t n, Tern__Wire__Run **runs)
{
    totals->runs += n;
    TRY(limit(totals->runs <= WIRE_RUNS_MAX));
    for (size_t i = 0; i < n; i++) {
        TRY(limit(runs[i]->refs.len % WIRE_REF_BYTES == 0));
        totals->refs += runs[i]->refs.len / WIRE_REF_BYTES;
        TRY(limit(totals->refs <= WIRE_REFS_MAX));
    }
    return TERN_OK;
}

static enum tern_err check_namespace(const Tern__Wire__Namespace *ns)
{
    if (!ns)
        return TERN_OK;
    TRY(check_string(ns->model, WIRE_STRING_MAX));
    TRY(check_string(ns->revision, WIRE_STRING_MAX));
    TRY(check_string(ns->kv_dtype, WIRE_STRING_MAX));
    TRY(check_string(ns->lora, WIRE_STRING_MAX));
    return check_string(ns->salt, WIRE_STRING_MAX);
}

static enum tern_err check_pool_open(const Tern__Wire__PoolOpen *m)
{
    TRY(limit(m->n_groups <= WIRE_GROUPS_MAX));
    for (size_t g = 0; g < m->n_groups; g++) {
        const Tern__Wire__Group *group = m->groups[g];

        TRY(check_string(group->name, WIRE_STRING_MAX));
        TRY(limit(group->n_axes <= WIRE_AXES_MAX));
        for (size_t a = 0; a < group->n_axes; a++)
            TRY(check_string(group->axes[a]->name, WIRE_STRING_MAX));
    }
    return TERN_OK;
}

static enum tern_err check_step(const Tern__Wire__Step *m)
{
    TRY(limit(m->n_ops <= WIRE_OPS_MAX));
    for (size_t i = 0; i < m->n_ops; i++)
        TRY(check_tokens(m->ops[i]->tokens));
    return TERN_OK;
}

static enum tern_err check_step_reply(const Tern__Wire__StepReply *m)
{
    struct totals totals = {0};

    TRY(check_status(m->status));
    TRY(limit(m->n_results <= WIRE_OPS_MAX));
    for (size_t i = 0; i < m->n_results; i++) {
        TRY(check_status(m->results[i]->status));
        TRY(check_runs(&totals, m->results[i]->n_runs, m->results[i]->runs));
    }
    return TERN_OK;
}

static enum tern_err check_match_reply(const Tern__Wire__MatchReply *m)
{
    TRY(check_status(m->status));
    return check_runs(&(struct totals){0}, m->n_runs, m->runs);
}

static enum tern_err check_fetch_reply(const Tern__Wire__FetchReply *m)
{
    TRY(check_status(m->status));
    return check_runs(&(struct totals){0}, m->n_runs, m->runs);
}

static enum tern_err check_recover_reply(const Tern__Wire__RecoverReply *m)
{
    TRY(check_status(m->status));
    return check_runs(&(struct totals){0}, m->n_runs, m->runs);
}

static enum tern_err check_peek(const Tern__Wire__Peek *m)
{
    TRY(check_namespace(m->ns));
    return check_tokens(m->tokens);
}

static enum tern_err check_admin(const Tern__Wire__Admin *m)
{
    TRY(check_string(m->command, WIRE_STRING_MAX));
    TRY(limit(m->n_args <= WIRE_ARGS_MAX));
    for (size_t i = 0; i < m->n_args; i++)
        TRY(check_string(m->args[i], WIRE_STRING_MAX));
    return TERN_OK;
}

static enum tern_err check_subscribe_reply(const Tern__Wire__SubscribeReply *m)
{
    TRY(check_status(m->status));
    TRY(limit(m->events.len % WIRE_EVENT_BYTES == 0));
    TRY(limit(m->events.len / WIRE_EVENT_BYTES <= WIRE_EVENTS_MAX));
    TRY(limit(m->n_tenants <= WIRE_NAMES_MAX));
    for (size_t i = 0; i < m->n_tenants; i++)
        TRY(check_string(m->tenants[i], WIRE_STRING_MAX));
    return TERN_OK;
}

static enum tern_err check_hello_reply(const Tern__Wire__HelloReply *m)
{
    TRY(check_status(m->status));
    return check_string(m->tenant, WIRE_STRING_MAX);
}

static enum tern_err check_peer_hello_reply(const Tern__Wire__PeerHelloReply *m)
{
    TRY(check_status(m->status));
    return check_string(m->node, WIRE_STRING_MAX);
}

static enum tern_err check_peer_msg(const Tern__Wire__PeerMsg *m)
{
    TRY(check_string(m->tenant, WIRE_STRING_MAX));
    TRY(check_list(&m->tokens, &m->keys));
    return check_runs(&(struct totals){0}, m->n_runs, m->runs);
}

static enum tern_err check_peer_path(const Tern__Wire__PeerPath *m)
{
    TRY(check_string(m->tenant, WIRE_STRING_MAX));
    TRY(check_string(m->text, WIRE_TEXT_MAX));
    TRY(limit(!m->has_gid || m->gid.len == WIRE_GID_BYTES));
    TRY(limit(m->chunks.len % WIRE_CHUNK_BYTES == 0));
    TRY(limit(m->chunks.len / WIRE_CHUNK_BYTES <= WIRE_CHUNKS_MAX));
    TRY(limit(m->windows.len % WIRE_WINDOW_BYTES == 0));
    return limit(m->windows.len / WIRE_WINDOW_BYTES <= WIRE_WINDOWS_MAX);
}

/* The cast is sound: unpack made *msg from wire_descriptor(type). */
#define AS(name) ((const Tern__Wire__##name *)msg)

static enum tern_err check_limits(uint16_t type, const ProtobufCMessage *msg)
{
    switch (type) {
    case FRAME_HELLO: return check_string(AS(Hello)->client, WIRE_STRING_MAX);
    case FRAME_HELLO_REPLY: return check_hello_reply(AS(HelloReply));
    case FRAME_ENGINE_JOIN: return check_string(AS(EngineJoin)->name, WIRE_STRING_MAX);
    case FRAME_ENGINE_JOIN_REPLY: return check_status(AS(EngineJoinReply)->status);
    case FRAME_POOL_OPEN: return check_pool_open(AS(PoolOpen));
    case FRAME_POOL_OPEN_REPLY: return check_status(AS(PoolOpenReply)->status);
    case FRAME_POOL_MAP_REPLY: return check_status(AS(PoolMapReply)->status);
    case FRAME_SESSION_OPEN: return check_namespace(AS(SessionOpen)->ns);
    case FRAME_SESSION_OPEN_REPLY: return check_status(AS(SessionOpenReply)->status);
    case FRAME_PEEK: return check_peek(AS(Peek));
    case FRAME_PEEK_REPLY: return check_status(AS(PeekReply)->status);
    case FRAME_MATCH: return check_tokens(AS(Match)->tokens);
    case FRAME_MATCH_REPLY: return check_match_reply(AS(MatchReply));
    case FRAME_STEP: return check_step(AS(Step));
    case FRAME_STEP_REPLY: return check_step_reply(AS(StepReply));
    case FRAME_FETCH: return check_string(AS(Fetch)->peer, WIRE_STRING_MAX);
    case FRAME_FETCH_REPLY: return check_fetch_reply(AS(FetchReply));
    case FRAME_RETRACT_REPLY: return check_status(AS(RetractReply)->status);
    case FRAME_RECOVER_REPLY: return check_recover_reply(AS(RecoverReply));
    case FRAME_NAMESPACE_RESET: return check_namespace(AS(NamespaceReset)->ns);
    case FRAME_NAMESPACE_RESET_REPLY: return check_status(AS(NamespaceResetReply)->status);
    case FRAME_SUBSCRIBE: return check_namespace(AS(Subscribe)->ns);
    case FRAME_SUBSCRIBE_REPLY: return check_subscribe_reply(AS(SubscribeReply));
    case FRAME_ENGINE_LEAVE_REPLY:
    case FRAME_POOL_CLOSE_REPLY:
    case FRAME_FETCH_CANCEL_REPLY:
    case FRAME_PING:
    case FRAME_PING_REPLY:
    case FRAME_STATS: return check_status(AS(Empty)->status);
    case FRAME_STATS_REPLY:
    case FRAME_ADMIN_REPLY: return check_status(AS(AdminReply)->status);
    case FRAME_ADMIN: return check_admin(AS(Admin));
    case FRAME_PEER_HELLO: return check_string(AS(PeerHello)->node, WIRE_STRING_MAX);
    case FRAME_PEER_HELLO_REPLY: return check_peer_hello_reply(AS(PeerHelloReply));
    case FRAME_PEER_MSG: return check_peer_msg(AS(PeerMsg));
    case FRAME_PEER_PATH: return check_peer_path(AS(PeerPath));
    default: return TERN_OK; /* PoolRef, EngineLeave, FetchCancel, Retract, Recover: numbers only */
    }
}

enum tern_err wire_decode(struct budget *budget, uint16_t type, const uint8_t *body, size_t n,
                          const ProtobufCMessage **ret)
{
    const ProtobufCMessageDescriptor *descriptor = wire_descriptor(type);
    const ProtobufCMessage *msg;

    if (!descriptor)
        return TERN_UNSUPPORTED;
    budget_start(budget, n);
    msg = protobuf_c_message_unpack(descriptor, &budget->allocator, n, body);
    if (!msg)
        return TERN_MALFORMED;
    TRY(check_limits(type, msg));
    *ret = msg;
    return TERN_OK;
}

enum tern_err wire_encode(const struct frame_header *header, const ProtobufCMessage *msg,
                          uint32_t body_max, uint8_t *out, size_t cap, size_t *ret_n)
{
    struct frame_header h = *header;
    size_t n = protobuf_c_message_get_packed_size(msg);
    size_t body = n ? n : sizeof pad_field;

    if (body > body_max || cap < FRAME_HEADER_BYTES || body > cap - FRAME_HEADER_BYTES)
        return TERN_INVALID;
    h.length = (uint32_t)body;
    frame_encode(&h, out);
    if (n)
        protobuf_c_message_pack(msg, out + FRAME_HEADER_BYTES);
    else
        memcpy(out + FRAME_HEADER_BYTES, pad_field, sizeof pad_field);
    *ret_n = FRAME_HEADER_BYTES + body;
    return TERN_OK;
}

enum tern_err wire_array(struct budget *budget, const ProtobufCBinaryData *bytes,
                         uint32_t element_bytes, const void **ret, uint32_t *ret_n)
{
    const void *array = bytes->data;

    if (bytes->len % element_bytes != 0 || bytes->len > UINT32_MAX)
        return TERN_MALFORMED;
    if ((uintptr_t)array % sizeof(uint64_t) != 0) {
        void *copy = budget_take(budget, bytes->len);

        if (!copy)
            return TERN_MALFORMED;
        memcpy(copy, array, bytes->len);
        array = copy;
    }
    *ret = array;
    *ret_n = (uint32_t)(bytes->len / element_bytes);
    return TERN_OK;
}

enum tern_err wire_negotiate(uint32_t their_min, uint32_t their_max, uint32_t *ret_version)
{
    uint32_t version = their_max < WIRE_VERSION ? their_max : WIRE_VERSION;

    if (their_min > their_max)
        return TERN_INVALID;
    if (version < their_min || version < WIRE_VERSION_MIN)
        return TERN_UNSUPPORTED;
    *ret_version = version;
    return TERN_OK;
}
