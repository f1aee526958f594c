/* Bodies to requests. See wire_in.h. What must stay true: nothing that came from a socket reaches
 * the core with a count above core/limits.h or an enum value outside its type. */
#include "shell/wire/wire_in.h"

#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/check.h"
#include "base/err.h"
#include "proto/match.h"
#include "proto/namespace.h"

static_assert(WIRE_OPS_MAX <= STEP_OPS_MAX, "a decoded Step fits");
static_assert(WIRE_GROUPS_MAX <= GROUPS_MAX, "a decoded PoolOpen fits");
static_assert(WIRE_TOKEN_BYTES == sizeof(uint32_t), "tokens are used in place");
static_assert(WIRE_REF_BYTES == sizeof(struct page_ref), "page refs are used in place");
static_assert(WIRE_KEY_BYTES == sizeof(struct extra_key), "extra keys are used in place");

enum tern_err wire_in_init(struct wire_in *w, const struct config *config, uint32_t body_max)
{
    size_t cap = BUDGET_BYTES(body_max);

    w->config = config;
    w->mem = aligned_alloc(64, (cap + 63) & ~(size_t)63);
    if (!w->mem)
        return TERN_INTERNAL;
    budget_init(&w->budget, w->mem, cap);
    return TERN_OK;
}

void wire_in_finish(struct wire_in *w)
{
    free(w->mem);
    w->mem = NULL;
}

enum tern_err wire_in_message(struct wire_in *w, const struct frame_header *h, const uint8_t *body,
                              const ProtobufCMessage **ret)
{
    return wire_decode(&w->budget, h->type, body, h->length, ret);
}

/* ---- pieces ---- */

/* With its length before it, so that ("ab", "c") and ("a", "bc") differ. */
static void hash_field(XXH3_state_t *state, const char *text)
{
    uint32_t n = text ? (uint32_t)strlen(text) : 0;

    XXH3_128bits_update(state, &n, sizeof(n));
    if (n)
        XXH3_128bits_update(state, text, n);
}

struct namespace_id wire_in_namespace(const Tern__Wire__Namespace *ns)
{
    const Tern__Wire__Namespace none = TERN__WIRE__NAMESPACE__INIT, *of = ns ? ns : &none;
    const char *const parts[] = {of->model, of->revision, of->kv_dtype, of->lora, of->salt};
    struct namespace_id id;

    static_assert(sizeof(parts) / sizeof(parts[0]) == WIRE_NAMESPACE_PARTS, "all of them");
    wire_namespace(parts, &id.hi, &id.lo);
    return id;
}

static enum tern_err tokens_of(struct wire_in *w, const Tern__Wire__Tokens *t,
                               struct req_tokens *ret)
{
    const void *tokens, *keys;

    *ret = (struct req_tokens){0};
    if (!t)
        return TERN_OK;
    TRY(wire_array(&w->budget, &t->tokens, WIRE_TOKEN_BYTES, &tokens, &ret->n));
    TRY(wire_array(&w->budget, &t->keys, WIRE_KEY_BYTES, &keys, &ret->nkeys));
    ret->v = tokens;
    ret->keys = keys;
    ret->base = t->kept;
    return TERN_OK;
}

static enum tern_err join_of(const Tern__Wire__EngineJoin *m, struct req_join *ret)
{
    size_t n = m->name ? strlen(m->name) : 0;

    if (n == 0 || n >= sizeof(ret->name) || m->role > ROLE_BOTH)
        return TERN_INVALID;
    memset(ret, 0, sizeof(*ret));
    memcpy(ret->name, m->name, n);
    ret->role = (enum role)m->role;
    ret->rank = m->rank;
    ret->world = m->world;
    return TERN_OK;
}

/* ---- PoolOpen ---- */

static void hash_group(XXH3_state_t *state, const Tern__Wire__Group *g)
{
    uint64_t naxes = g->n_axes;

    hash_field(state, g->name);
    XXH3_128bits_update(state, &naxes, sizeof(naxes));
    for (size_t i = 0; i < g->n_axes; i++) {
        const Tern__Wire__Axis *a = g->axes[i];
        uint64_t numbers[2] = {a->length, a->stride_bytes};

        hash_field(state, a->name);
        XXH3_128bits_update(state, numbers, sizeof(numbers));
    }
}

static enum tern_err group_of(const Tern__Wire__Group *g, struct group_layout *ret)
{
    if (g->family > FAMILY_RECURRENT)
        return TERN_INVALID;
    *ret = (struct group_layout){
        .family = (enum family)g->family,
        .page_tokens = g->page_tokens,
        .window = g->window,
        .reserve = g->reserve,
        .units = g->units ? g->units : 1,
        .cap_pages = g->cap_pages,
        .page_bytes = g->page_bytes,
    };
    return TERN_OK;
}

static enum tern_err pool_open_of(struct wire_in *w, const Tern__Wire__PoolOpen *m,
                                  struct req_pool_open *ret)
{
    XXH3_state_t state;

    memset(ret, 0, sizeof(*ret));
    memset(w->group_names, 0, sizeof(w->group_names));
    if (m->shard > SHARD_TOKENS || m->supersede > SUPERSEDE_OFF)
        return TERN_INVALID;
    XXH3_128bits_reset(&state);
    for (size_t i = 0; i < m->n_groups; i++) {
        const char *name = m->groups[i]->name;

        TRY(group_of(m->groups[i], &ret->group[i]));
        hash_group(&state, m->groups[i]);
        if (name)
            strncpy(w->group_names[i], name, WIRE_GROUP_NAME - 1);
    }
    ret->ngroups = (uint32_t)m->n_groups;
    ret->shard = (enum shard_axis)m->shard;
    ret->supersede = (enum supersede)m->supersede;
    ret->axes_hash = (uint32_t)XXH3_128bits_digest(&state).low64;
    ret->bytes = m->bytes;
    ret->host_bytes = m->host_bytes;
    return TERN_OK;
}

/* ---- Step ---- */

static enum tern_err step_of(struct wire_in *w, const Tern__Wire__Step *m, struct req_step *ret)
{
    for (size_t i = 0; i < m->n_ops; i++) {
        const Tern__Wire__StepOp *o = m->ops[i];

        if (o->kind < STEP_EXTEND || o->kind > STEP_RELEASE)
            return TERN_INVALID;
        w->ops[i] = (struct step_op){
            .kind = (enum step_op_kind)o->kind,
            .barrier = o->barrier,
            .session = session_id_unpack(o->session),
            .step = o->step,
            .length = o->length,
            .written = o->written,
        };
        TRY(tokens_of(w, o->tokens, &w->ops[i].tokens));
    }
    ret->ops = w->ops;
    ret->n = (uint32_t)m->n_ops;
    return TERN_OK;
}

/* ---- the rest ---- */

/* No name at all, or one that is not in the configuration, is the core's NONE: it answers INVALID
 * with what to do. A name without a letter is the host tier. */
static uint32_t peer_of(const struct wire_in *w, const char *name)
{
    uint32_t slot = NONE;

    if (name && !name[0])
        return PEER_HOST;
    return name && config_peer_slot(w->config, name, &slot) == TERN_OK ? slot : NONE;
}

static enum tern_err match_of(struct wire_in *w, const struct frame_header *h, const uint8_t *body,
                              struct request *ret)
{
    struct wire_match m;

    TRY(wire_match(&w->budget, body, h->length, &m));
    ret->op = OP_MATCH;
    ret->trace_id = m.trace_id;
    ret->match.session = session_id_unpack(h->session);
    ret->match.step = m.step;
    ret->match.tokens = (struct req_tokens){
        .v = m.tokens, .n = m.ntokens, .base = m.kept, .keys = m.keys, .nkeys = m.nkeys};
    return TERN_OK;
}

static enum tern_err peek_of(struct wire_in *w, const Tern__Wire__Peek *m, struct request *ret)
{
    ret->op = OP_PEEK;
    ret->trace_id = m->trace_id;
    ret->peek.pool = pool_id_unpack(m->pool);
    ret->peek.ns = wire_in_namespace(m->ns);
    TRY(tokens_of(w, m->tokens, &ret->peek.tokens));
    return ret->peek.tokens.base == 0 ? TERN_OK : TERN_INVALID;
}

static enum tern_err retract_of(const struct frame_header *h, const Tern__Wire__Retract *m,
                                struct request *ret)
{
    if (m->mode > RETRACT_DROP)
        return TERN_INVALID;
    ret->op = OP_RETRACT;
    ret->trace_id = m->trace_id;
    ret->retract.session = session_id_unpack(h->session);
    ret->retract.mode = (enum retract_mode)m->mode;
    ret->retract.step = m->step;
    return TERN_OK;
}

/* The types of frame that are an engine's requests. Even ones are answers. */
static bool is_request(uint16_t type)
{
    return type % 2 == 1 && ((type > FRAME_HELLO && type <= FRAME_FETCH_CANCEL) ||
                             (type >= FRAME_RETRACT && type <= FRAME_NAMESPACE_RESET));
}

#define AS(name) ((const Tern__Wire__##name *)(const void *)msg)

/* Requests that name a session or tokens. */
static enum tern_err session_request(struct wire_in *w, const struct frame_header *h,
                                     const ProtobufCMessage *msg, struct request *ret)
{
    switch (h->type) {
    case FRAME_PEEK: return peek_of(w, AS(Peek), ret);
    case FRAME_STEP:
        ret->op = OP_STEP;
        ret->trace_id = AS(Step)->trace_id;
        return step_of(w, AS(Step), &ret->step);
    case FRAME_FETCH:
        ret->op = OP_FETCH;
        ret->trace_id = AS(Fetch)->trace_id;
        ret->fetch.session = session_id_unpack(h->session);
        ret->fetch.peer = peer_of(w, AS(Fetch)->peer);
        ret->fetch.depth = AS(Fetch)->depth;
        return TERN_OK;
    case FRAME_RETRACT: return retract_of(h, AS(Retract), ret);
    case FRAME_RECOVER:
        ret->op = OP_RECOVER;
        ret->trace_id = AS(Recover)->trace_id;
        ret->recover.session = session_id_unpack(h->session);
        return TERN_OK;
    default:
        check(h->type == FRAME_FETCH_CANCEL);
        ret->op = OP_FETCH_CANCEL;
        ret->trace_id = AS(FetchCancel)->trace_id;
        ret->fetch_cancel.session = session_id_unpack(h->session);
        return TERN_OK;
    }
}

enum tern_err wire_in_request(struct wire_in *w, const struct frame_header *h, const uint8_t *body,
                              struct request *ret)
{
    const ProtobufCMessage *msg;

    ret->op = OP_NONE;
    ret->trace_id = 0;
    if (!is_request(h->type))
        return TERN_UNSUPPORTED;
    if (h->type == FRAME_MATCH)
        return match_of(w, h, body, ret);
    TRY(wire_decode(&w->budget, h->type, body, h->length, &msg));
    switch (h->type) {
    case FRAME_ENGINE_JOIN:
        ret->op = OP_ENGINE_JOIN;
        ret->trace_id = AS(EngineJoin)->trace_id;
        return join_of(AS(EngineJoin), &ret->join);
    case FRAME_ENGINE_LEAVE:
        ret->op = OP_ENGINE_LEAVE;
        ret->trace_id = AS(EngineLeave)->trace_id;
        return TERN_OK;
    case FRAME_POOL_OPEN:
        ret->op = OP_POOL_OPEN;
        ret->trace_id = AS(PoolOpen)->trace_id;
        return pool_open_of(w, AS(PoolOpen), &ret->pool_open);
    case FRAME_POOL_MAP:
        ret->op = OP_POOL_MAP;
        ret->trace_id = AS(PoolRef)->trace_id;
        ret->pool_map.pool = pool_id_unpack(AS(PoolRef)->pool);
        return TERN_OK;
    case FRAME_POOL_CLOSE:
        ret->op = OP_POOL_CLOSE;
        ret->trace_id = AS(PoolRef)->trace_id;
        ret->pool_close.pool = pool_id_unpack(AS(PoolRef)->pool);
        return TERN_OK;
    case FRAME_SESSION_OPEN:
        ret->op = OP_SESSION_OPEN;
        ret->trace_id = AS(SessionOpen)->trace_id;
        ret->session_open.pool = pool_id_unpack(AS(SessionOpen)->pool);
        ret->session_open.ns = wire_in_namespace(AS(SessionOpen)->ns);
        return TERN_OK;
    case FRAME_NAMESPACE_RESET:
        ret->op = OP_NAMESPACE_RESET;
        ret->trace_id = AS(NamespaceReset)->trace_id;
        ret->namespace_reset.ns = wire_in_namespace(AS(NamespaceReset)->ns);
        return TERN_OK;
    default: return session_request(w, h, msg, ret);
    }
}

/* ---- peer messages ---- */

static enum tern_err peer_runs(struct wire_in *w, const Tern__Wire__PeerMsg *m,
                               struct peer_msg *ret)
{
    if (m->n_runs > GROUPS_MAX)
        return TERN_MALFORMED;
    for (size_t i = 0; i < m->n_runs; i++) {
        const void *refs;

        TRY(wire_array(&w->budget, &m->runs[i]->refs, WIRE_REF_BYTES, &refs, &w->runs[i].n));
        w->runs[i].group = m->runs[i]->group;
        w->runs[i].first = m->runs[i]->first;
        w->runs[i].refs = refs;
        w->runs[i].from = (struct page_ref){0}; /* nothing is copied between hosts */
    }
    ret->runs = w->runs;
    ret->nruns = (uint32_t)m->n_runs;
    return TERN_OK;
}

/* The tenant by its name, if it is configured here and the peer may ask for it; else NONE. */
static uint32_t tenant_of(const struct wire_in *w, const char *name, uint64_t allowed)
{
    uint32_t slot = NONE;

    if (!name || config_tenant_slot(w->config, name, &slot) != TERN_OK)
        return NONE;
    return allowed >> slot & 1 ? slot : NONE;
}

enum tern_err wire_in_peer_msg(struct wire_in *w, const struct frame_header *h, const uint8_t *body,
                               uint64_t allowed, struct peer_msg *ret, uint64_t *ret_sequence)
{
    const Tern__Wire__PeerMsg *m;
    const ProtobufCMessage *msg;
    const void *tokens, *keys;
    uint32_t ntokens;

    TRY(wire_decode(&w->budget, h->type, body, h->length, &msg));
    m = AS(PeerMsg);
    if (m->kind < PEER_PULL_OPEN || m->kind >= PEER_MSG_COUNT || m->err >= TERN_ERR_COUNT)
        return TERN_MALFORMED;
    *ret = (struct peer_msg){
        .kind = (enum peer_msg_kind)m->kind,
        .pull = pull_id_unpack(m->pull),
        .serve = serve_id_unpack(m->serve),
        .trace_id = m->trace_id,
        .err = (enum tern_err)m->err,
        .retry_ms = m->retry_ms,
        .tenant = tenant_of(w, m->tenant, allowed),
        .ns = {.hi = m->ns_hi, .lo = m->ns_lo},
        .layout_hash = m->layout_hash,
        .history = m->history,
        .from = m->from,
        .to = m->to,
    };
    TRY(wire_array(&w->budget, &m->tokens, WIRE_TOKEN_BYTES, &tokens, &ntokens));
    TRY(wire_array(&w->budget, &m->keys, WIRE_KEY_BYTES, &keys, &ret->nkeys));
    /* The core reads `to` tokens: they have to be there. */
    if (ret->from > ret->to || (m->kind == PEER_PULL_OPEN && ntokens != ret->to))
        return TERN_MALFORMED;
    ret->tokens = tokens;
    ret->keys = keys;
    TRY(peer_runs(w, m, ret));
    *ret_sequence = m->sequence;
    return TERN_OK;
}
