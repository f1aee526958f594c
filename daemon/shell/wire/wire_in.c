/* Decodes bodies into requests. See wire_in.h. Invariant: nothing received from a socket reaches
 * the core with a count above core/limits.h or an enum value outside its type. */
#include "shell/wire/wire_in.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/err.h"
#include "base/undumped.h"
#include "core/transfer/peer_words.h"
#include "proto/in_place.h"
#include "proto/namespace.h"
#include "proto/shown.h"
#include "proto/ticket.h"
#include "shell/wire/wire_layout.h"

static_assert(WIRE_OPS_MAX <= STEP_OPS_MAX, "a decoded Step fits");
static_assert(WIRE_STEP_RUNS_MAX >= GROUPS_MAX, "an operation names pages of every group");
static_assert(WIRE_GROUPS_MAX <= GROUPS_MAX, "a decoded PoolOpen fits");
static_assert(WIRE_BLOBS_MAX <= RECORD_BLOBS_MAX, "a decoded RecordPrepare fits");
static_assert(WIRE_TOKEN_BYTES == sizeof(uint32_t), "tokens are used in place");
static_assert(WIRE_REF_BYTES == sizeof(struct page_ref), "page refs are used in place");
static_assert(ENGINE_NAME_MAX == 48, "what the refusal of a name says");
static_assert(WIRE_KEY_BYTES == sizeof(struct extra_key), "extra keys are used in place");

enum tern_err wire_in_init(struct wire_in *w, const struct config *config, uint32_t body_max)
{
    size_t cap = BUDGET_BYTES(body_max);

    w->config = config;
    w->mem = undumped_take(cap, false);
    if (!w->mem)
        return TERN_INTERNAL;
    budget_init(&w->budget, w->mem, cap);
    return TERN_OK;
}

void wire_in_finish(struct wire_in *w)
{
    undumped_put(w->mem, w->mem ? w->budget.cap : 0);
    w->mem = NULL;
}

const void *wire_in_message(struct wire_in *w, const struct frame_header *h, const uint8_t *body)
{
    const ProtobufCMessage *m;

    return wire_decode(&w->budget, h->type, body, h->length, &m) == TERN_OK ? m : NULL;
}

/* ---- pieces ---- */

static enum tern_err refused(const char **ret_text, const char *text)
{
    *ret_text = text;
    return TERN_INVALID;
}

static enum tern_err choice_of(uint32_t v, uint32_t last, const char *text, const char **ret_text)
{
    return v <= last ? TERN_OK : refused(ret_text, text);
}

/* Hashes the text after its length, so that ("ab", "c") and ("a", "bc") differ. */
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

static enum tern_err name_of(const char *name, char ret[ENGINE_NAME_MAX], const char **ret_text)
{
    size_t n = name ? strlen(name) : 0;

    if (n == 0 || n >= ENGINE_NAME_MAX)
        return refused(ret_text, "an engine has a name of 1 to 47 bytes");
    memset(ret, 0, ENGINE_NAME_MAX);
    memcpy(ret, name, n);
    return TERN_OK;
}

/* Writes the name, escaped, and the configured peers that fit in the text. */
static enum tern_err no_such_peer(struct wire_in *w, const char *name, const char **ret_text)
{
    char as_shown[41];
    size_t at = (size_t)snprintf(w->words, sizeof w->words, "no such peer is configured: '%s'%s",
                                 shown(as_shown, sizeof as_shown, name),
                                 config_peers(w->config) > 0 ? "; there are" : ", nor any other");
    const char *comma = "";

    for (uint32_t i = 0; i < w->config->npeers && at < sizeof w->words; i++) {
        if (w->config->peers[i].name[0] == '\0' || w->config->peers[i].leaving)
            continue;
        at += (size_t)snprintf(w->words + at, sizeof w->words - at, "%s %s", comma,
                               w->config->peers[i].name);
        comma = ",";
    }
    return refused(ret_text, w->words);
}

/* An empty name is the host tier, WIRE_DISK the disk, WIRE_ANY_PEER any peer that has the prefix.
 * An absent field becomes NONE; a fetch by ticket need not name a peer. */
static enum tern_err peer_of(struct wire_in *w, const char *name, uint32_t *ret,
                             const char **ret_text)
{
    *ret = NONE;
    if (!name)
        return TERN_OK;
    if (!name[0])
        *ret = PEER_HOST;
    else if (strcmp(name, WIRE_DISK) == 0)
        *ret = PEER_DISK;
    else if (strcmp(name, WIRE_ANY_PEER) == 0)
        *ret = PEER_ANY;
    else if (config_peer_slot(w->config, name, ret) != TERN_OK)
        return no_such_peer(w, name, ret_text);
    return TERN_OK;
}

/* The core answers for a device that is not in the configuration. */
static struct req_device device_of(const struct wire_in *w, uint32_t tenant, const char *name)
{
    struct req_device d = {.named = name && name[0], .region = NONE};

    if (d.named && tenant != NONE)
        (void)config_region_slot(w->config, tenant, name, &d.region);
    return d;
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

static struct group_layout group_of(const Tern__Wire__Group *g)
{
    return (struct group_layout){
        .family = (enum family)g->family,
        .page_tokens = g->page_tokens,
        .window = g->window,
        .reserve = g->reserve,
        .units = g->units ? g->units : 1,
        .cap_pages = g->cap_pages,
        .page_bytes = g->page_bytes,
    };
}

/* Decodes the layouts of a pool, if it has any. The caller knows how many ranks divide them. */
static enum tern_err layouts_of(struct wire_in *w, const Tern__Wire__PoolOpen *m,
                                XXH3_state_t *state, struct req_pool_open *ret,
                                const char **ret_text)
{
    size_t with = 0, bytes = 0;

    for (size_t i = 0; i < m->n_groups; i++) {
        with += m->groups[i]->n_fields > 0;
        bytes += tern__wire__group__get_packed_size(m->groups[i]);
    }
    if (with == 0)
        return TERN_OK;
    if (with < m->n_groups)
        return refused(ret_text, "only some groups of the pool describe their fields: describe "
                                 "those of all groups, or of none");
    if (bytes > WIRE_LAYOUT_BYTES_MAX)
        return refused(ret_text, "the description of the fields is longer than 16 KiB: use shorter "
                                 "names or fewer fields");
    TRY(wire_layout_in(m->groups, m->n_groups, w->layouts, ret_text));
    for (size_t i = 0; i < m->n_groups; i++) {
        w->layouts[i].stages = m->stages ? m->stages : 1;
        if (m->groups[i]->family == FAMILY_RECURRENT)
            w->layouts[i].page_tokens = 0;
    }
    XXH3_128bits_update(state, w->layouts, m->n_groups * sizeof *w->layouts);
    ret->layouts = w->layouts;
    ret->fields_hash = wire_layout_fields(w->layouts, (uint32_t)m->n_groups);
    return TERN_OK;
}

/* Decodes the groups, their names for operators, and a hash of the parts that the core does not
 * use. */
static enum tern_err groups_of(struct wire_in *w, const Tern__Wire__PoolOpen *m,
                               struct req_pool_open *ret, const char **ret_text)
{
    XXH3_state_t state;

    memset(ret, 0, sizeof(*ret));
    memset(w->group_names, 0, sizeof(w->group_names));
    XXH3_128bits_reset(&state);
    for (size_t i = 0; i < m->n_groups; i++) {
        const char *name = m->groups[i]->name;

        TRY(choice_of(m->groups[i]->family, FAMILY_RECURRENT,
                      "the pool has a group of an unknown family", ret_text));
        ret->group[i] = group_of(m->groups[i]);
        hash_group(&state, m->groups[i]);
        if (name)
            strncpy(w->group_names[i], name, GROUP_NAME_MAX - 1);
    }
    ret->ngroups = (uint32_t)m->n_groups;
    ret->names = w->group_names;
    TRY(layouts_of(w, m, &state, ret, ret_text));
    ret->axes_hash = (uint32_t)XXH3_128bits_digest(&state).low64;
    return TERN_OK;
}

/* Decodes runs of pages into `ret`, which has room for them. */
static enum tern_err runs_of(struct wire_in *w, Tern__Wire__Run *const *runs, size_t n,
                             struct table_run *ret)
{
    for (size_t i = 0; i < n; i++) {
        const void *refs;

        ret[i] = (struct table_run){.group = runs[i]->group, .first = runs[i]->first};
        TRY(wire_array(&w->budget, &runs[i]->refs, WIRE_REF_BYTES, &refs, &ret[i].n));
        ret[i].refs = refs;
    }
    return TERN_OK;
}

/* ---- Step ---- */

static enum tern_err ops_of(struct wire_in *w, const Tern__Wire__Step *m, struct req_step *ret,
                            const char **ret_text)
{
    struct table_run *runs = w->op_runs; /* has room for the runs of all operations */

    for (size_t i = 0; i < m->n_ops; i++) {
        const Tern__Wire__StepOp *o = m->ops[i];

        if (o->kind < STEP_EXTEND || o->kind >= STEP_KINDS)
            return refused(ret_text, "the Step has an operation of an unknown kind");
        w->ops[i] = (struct step_op){
            .kind = (enum step_op_kind)o->kind,
            .barrier = o->barrier,
            .session = session_id_unpack(o->session),
            .step = o->step,
            .length = o->length,
            .written = o->written,
            .pool = pool_id_unpack(o->pool),
            .runs = runs,
            .nruns = (uint32_t)o->n_runs,
        };
        TRY(tokens_of(w, o->tokens, &w->ops[i].tokens));
        if (o->n_runs > WIRE_STEP_RUNS_MAX)
            return refused(ret_text, "an operation has one run of pages for each group at most");
        TRY(runs_of(w, o->runs, o->n_runs, runs));
        runs += o->n_runs;
    }
    ret->ops = w->ops;
    ret->n = (uint32_t)m->n_ops;
    ret->pieces = m->pieces;
    return TERN_OK;
}

/* ---- RecordPrepare ---- */

static enum tern_err blobs_of(const Tern__Wire__RecordPrepare *m, struct req_blobs *ret,
                              const char **ret_text)
{
    memset(ret, 0, sizeof(*ret));
    for (size_t i = 0; i < m->n_blobs; i++) {
        const char *name = m->blobs[i]->name ? m->blobs[i]->name : "";

        if (strlen(name) >= BLOB_NAME_MAX) {
            *ret_text = "a blob has a name of 1 to 31 bytes";
            return TERN_MALFORMED;
        }
        memcpy(ret->v[i].name, name, strlen(name));
        ret->v[i].bytes = m->blobs[i]->bytes;
    }
    ret->n = (uint32_t)m->n_blobs;
    return TERN_OK;
}

/* ---- tickets ---- */

static_assert(WIRE_BLOB_MAX == TICKET_BLOB_BYTES, "a decoded blob fits");

/* An absent ticket names nothing: its id.gen is 0. */
static enum tern_err ticket_of(const char *text, struct ticket *ret, const char **ret_text)
{
    struct wire_ticket t;

    *ret = (struct ticket){0};
    if (!text || !text[0])
        return TERN_OK;
    if (!wire_ticket_parse(text, &t) || session_id_unpack(t.id).gen == 0)
        return refused(ret_text, "that is not a ticket: pass the text of the Handoff's answer");
    *ret = (struct ticket){.id = session_id_unpack(t.id),
                           .key = {t.key[0], t.key[1]},
                           .incarnation = t.incarnation,
                           .length = t.length};
    return TERN_OK;
}

/* Copies the blob into whole words, for the core. */
static void blob_of(struct wire_in *w, const ProtobufCBinaryData *blob, struct req_tokens *ret,
                    uint32_t *ret_bytes)
{
    *ret_bytes = (uint32_t)blob->len;
    *ret = (struct req_tokens){.v = w->blob, .n = (*ret_bytes + 3) / 4};
    if (ret->n > 0)
        w->blob[ret->n - 1] = 0;
    if (blob->len > 0)
        memcpy(w->blob, blob->data, blob->len);
}

static enum tern_err key_of(uint64_t ret[2], const char **ret_text)
{
    if (getrandom(ret, 2 * sizeof *ret, GRND_NONBLOCK) == (ssize_t)(2 * sizeof *ret))
        return TERN_OK;
    *ret_text = "the system has no random numbers yet: hand over in a moment";
    return TERN_BUSY;
}

/* ---- checks that the core's table of operations matches the table of messages ---- */

enum {
#define CORE_NEEDS_ANY         NEEDS_NOTHING
#define CORE_NEEDS_OPERATOR    NEEDS_NOTHING
#define CORE_NEEDS_ENGINE      NEEDS_ENGINE
#define CORE_NEEDS_SESSION(op) NEEDS_SESSION
#define CORE_NEEDS_ANYHOW(op)  NEEDS_SESSION
#define CORE_NEEDS_RECORDS(op) NEEDS_SESSION
#define CORE_ANSWER_AT_ONCE    ANSWER_AT_ONCE
#define CORE_ANSWER_LATER      ANSWER_LATER
#define X(NAME, name, function, asked_by, answered)                                                \
    NEEDS_OF_##NAME = CORE_NEEDS_##asked_by, ANSWER_OF_##NAME = CORE_ANSWER_##answered,
    OP_TABLE(X)
#undef X
};

#define X(number, NAME, message, reply, from, needs, answer, ...)                                  \
    static_assert((int)NEEDS_OF_##NAME == (int)(needs), #NAME " needs what the core asks for");    \
    static_assert((int)ANSWER_OF_##NAME == (int)(answer), #NAME " is answered when the core "      \
                                                                "says");
REQUEST_TABLE(X)
#undef X

/* ---- whole requests ---- */

/* Decoders of each kind of field of messages.h: `m` is the message, `to` the request's struct. */
#define IN_SESSION(to, member, limit)   (to).member = session_id_unpack(h->session);
#define IN_POOL(to, member, limit)      (to).member = pool_id_unpack(m->member);
#define IN_NAMESPACE(to, member, limit) (to).member = wire_in_namespace(m->member);
#define IN_TOKENS(to, member, limit)    TRY(tokens_of(w, m->member, &(to).member));
#define IN_NODE(to, member, limit)      (to).member = node_id_unpack(m->member);
#define IN_U32(to, member, limit)       (to).member = m->member;
#define IN_U64(to, member, limit)       (to).member = m->member;
#define IN_TRUTH(to, member, limit)     (to).member = m->member;
#define IN_CHOICE(to, member, limit)                                                               \
    TRY(choice_of(m->member, limit, "its " #member " has a value that this daemon does not know",  \
                  ret_text));                                                                      \
    (to).member = (__typeof__((to).member))m->member;
#define IN_NAME(to, member, limit)   TRY(name_of(m->member, (to).member, ret_text));
#define IN_PEER(to, member, limit)   TRY(peer_of(w, m->member, &(to).member, ret_text));
#define IN_DEVICE(to, member, limit) (to).member = device_of(w, tenant, m->member);
#define IN_GROUPS(to, member, limit) TRY(groups_of(w, m, &(to), ret_text));
#define IN_HASH(to, member, limit)   /* set by IN_GROUPS */
#define IN_HASH64(to, member, limit) /* the same */
#define IN_OPS(to, member, limit)    TRY(ops_of(w, m, &(to), ret_text));
#define IN_BLOBS(to, member, limit)  TRY(blobs_of(m, &(to).member, ret_text));
#define IN_TICKET(to, member, limit) TRY(ticket_of(m->member, &(to).member, ret_text));
#define IN_BLOB(to, member, limit)   blob_of(w, &m->member, &(to).member, &(to).member##_bytes);
#define IN_KEY(to, member, limit)    TRY(key_of((to).member, ret_text));

/* One function for each request of the table: NAME_of. */
#define F(op, member, KIND, limit) IN_##KIND(ret->op, member, limit)
#define X(number, NAME, message, ...)                                                              \
    static enum tern_err NAME##_of(                                                                \
        struct wire_in *w, uint32_t tenant, const struct frame_header *h,                          \
        const MESSAGE_STRUCT(message) * m, struct request * ret, const char **ret_text)            \
    {                                                                                              \
        (void)w, (void)tenant, (void)h, (void)ret_text;                                            \
        ret->op = OP_##NAME;                                                                       \
        ret->trace_id = m->trace_id;                                                               \
        REQUEST_##NAME(F) return TERN_OK;                                                          \
    }
REQUEST_TABLE(X)
#undef X
#undef F

enum op wire_in_op(uint16_t type)
{
    switch (type) {
#define X(number, NAME, ...)                                                                       \
    case FRAME_##NAME: return OP_##NAME;
        REQUEST_TABLE(X)
#undef X
    default: return OP_NONE;
    }
}

enum tern_err wire_in_request(struct wire_in *w, uint32_t tenant, const struct frame_header *h,
                              const uint8_t *body, struct request *ret, const char **ret_text)
{
    const ProtobufCMessage *msg;

    ret->op = OP_NONE;
    ret->trace_id = 0;
    *ret_text = "";
    if (wire_in_op(h->type) == OP_NONE)
        return TERN_UNSUPPORTED;
    TRY(wire_decode_in_place(&w->budget, h->type, body, h->length, &msg));
    switch (h->type) {
#define X(number, NAME, message, ...)                                                              \
    case FRAME_##NAME:                                                                             \
        return NAME##_of(w, tenant, h, (const MESSAGE_STRUCT(message) *)(const void *)msg, ret,    \
                         ret_text);
        REQUEST_TABLE(X)
#undef X
    default: return TERN_INTERNAL;
    }
}

/* ---- peer messages ---- */

/* Decodes the layouts of a peer's own pool. */
static enum tern_err peer_layouts(struct wire_in *w, const Tern__Wire__PeerMsg *m,
                                  struct peer_msg *ret)
{
    const char *text;

    w->nlayouts = 0;
    if (m->n_groups == 0)
        return TERN_OK;
    if (wire_layout_in(m->groups, m->n_groups, w->layouts, &text) != TERN_OK)
        return TERN_MALFORMED;
    for (size_t i = 0; i < m->n_groups; i++) {
        w->layouts[i].ranks = m->ranks;
        w->layouts[i].stages = m->stages;
        w->layouts[i].align_tokens = m->align_tokens;
        ret->page_tokens[i] = w->layouts[i].page_tokens;
        if (m->align_tokens > ALIGN_TOKENS_MAX ||
            reshard_check_layout(&w->layouts[i]) != RESHARD_NONE)
            return TERN_MALFORMED;
    }
    w->nlayouts = (uint32_t)m->n_groups;
    return TERN_OK;
}

/* The slot of that tenant, if it is configured here and allowed to the peer; otherwise NONE. */
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
    const Tern__Wire__PeerMsg *m = wire_in_message(w, h, body);
    const void *tokens, *keys;
    uint32_t ntokens;
    const char *text, *unfit;

    w->peer_unfit = "the message is malformed";
    if (!m)
        return TERN_MALFORMED;
    w->peer_tenant = m->tenant;
    w->peer_word = m->err;
    *ret = (struct peer_msg){.kind = (enum peer_msg_kind)m->kind,
                             .pull = pull_id_unpack(m->pull),
                             .serve = serve_id_unpack(m->serve),
                             .err = peer_err_heard((enum peer_msg_kind)m->kind, m->err),
                             .tenant = tenant_of(w, m->tenant, allowed),
                             .ns = {.hi = m->ns_hi, .lo = m->ns_lo},
#define F(member, KIND) .member = m->member,
                             PEER_MSG_NUMBERS(F)
#undef F
    };
    TRY(wire_array(&w->budget, &m->tokens, WIRE_TOKEN_BYTES, &tokens, &ntokens));
    TRY(wire_array(&w->budget, &m->keys, WIRE_KEY_BYTES, &keys, &ret->nkeys));
    if (ticket_of(m->ticket, &ret->ticket, &text) != TERN_OK)
        return TERN_MALFORMED;
    ret->tokens = tokens;
    ret->keys = keys;
    if (m->kind == PEER_PULL_OFFER && m->blob.len > 0) {
        struct req_tokens blob;

        blob_of(w, &m->blob, &blob, &ret->blob_bytes);
        ret->tokens = blob.v;
    }
    TRY(peer_layouts(w, m, ret));
    if (m->n_runs > GROUPS_MAX)
        return TERN_MALFORMED;
    TRY(runs_of(w, m->runs, m->n_runs, w->runs));
    ret->runs = w->runs;
    ret->nruns = (uint32_t)m->n_runs;
    *ret_sequence = m->sequence;
    unfit = peer_msg_unfit(ret, ntokens); /* the core reads that many tokens: they must exist */
    if (unfit)
        w->peer_unfit = unfit;
    return unfit ? TERN_MALFORMED : TERN_OK;
}
