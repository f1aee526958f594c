/* Sizes the arena and lays it out. Called once at start; nothing here runs afterwards. */
#include "core/arena/hashed.h"

#include <string.h>

#include "base/hash.h"

struct layout {
    uint64_t units; /* of 64 bytes */
    bool overflow;
};

static uint32_t place(struct layout *l, uint64_t n, size_t each)
{
    uint64_t at = l->units;

    l->units += (n * each + 63) / 64;
    if (l->units > UINT32_MAX)
        l->overflow = true;
    return (uint32_t)at;
}

static uint32_t pow2_at_least(uint32_t n)
{
    uint32_t p = 16;

    while (p < n && p < (1u << 30))
        p *= 2;
    return p;
}

static bool disk_sane(const struct core_limits *l)
{
    const uint32_t need[] = {l->disk_chunks, l->disk_files, l->disk_stores,  l->disk_blocks,
                             l->disk_keys,   l->disk_align, l->disk_interval};

    for (size_t i = 0; i < sizeof need / sizeof need[0]; i++)
        if (need[i] == 0 || need[i] > (1u << 29))
            return false;
    return l->disk_interval % l->disk_align == 0;
}

static bool limits_sane(const struct core_limits *l)
{
    const uint32_t need[] = {l->tenants,       l->conns,      l->engines,    l->pools,
                             l->sessions,      l->nodes,      l->namespaces, l->token_blocks,
                             l->extra_keys,    l->pages,      l->slabs,      l->retires,
                             l->links,         l->pulls,      l->serves,     l->seal_jobs,
                             l->sums_per_page, l->copy_jobs,  l->events,     l->resets,
                             l->turn_records,  l->record_jobs};

    for (size_t i = 0; i < sizeof need / sizeof need[0]; i++)
        if (need[i] == 0 || need[i] > (1u << 30))
            return false;
    if (l->events > (1u << 30) / l->tenants || l->record_pages % 64 != 0 ||
        l->record_pages > (1u << 30))
        return false;
    if (l->disk_chunks > 0 && !disk_sane(l))
        return false;
    return l->pools <= POOLS_LIMIT && l->engines <= ENGINES_LIMIT && l->peers <= l->links &&
           l->nodes >= 2 && l->slabs >= 2 && l->reserved_percent <= 100 &&
           l->peer_bytes_in_flight > 0 && l->tenant_bytes_in_flight > 0 &&
           l->transfer_deadline_ns > 0 && l->ticket_deadline_ns > 0 && l->groups <= GROUPS_MAX &&
           l->table_pages <= TABLE_PAGES_MAX &&
           (l->table_pages == 0 || l->table_pages >= TABLE_PAGES_MIN);
}

/* Everything that depends on the secret comes last. */
static void place_tables(struct core *c, const struct core_limits *l, struct layout *at)
{
    const uint32_t records[HASH_TABLES] = {[TABLE_NODES] = l->nodes,
                                           [TABLE_SPACES] = l->namespaces,
                                           [TABLE_CHUNKS] = l->disk_chunks,
                                           [TABLE_EXTENTS] = l->disk_chunks};

    c->secret_at = place(at, 1, sizeof(struct hash_secret));
    for (uint32_t t = 0; t < HASH_TABLES; t++) {
        uint32_t buckets = records[t] ? pow2_at_least(records[t]) : 0;

        c->table[t] =
            (struct table_place){.records = records[t],
                                 .mask = buckets ? buckets - 1 : 0,
                                 .hashed_at = place(at, records[t], sizeof(struct hashed)),
                                 .buckets_at = place(at, buckets, sizeof(uint32_t))};
    }
}

static enum tern_err lay_out(struct core *c, const struct core_limits *l, size_t *ret_bytes)
{
    const uint32_t groups = l->groups ? l->groups : GROUPS_DEFAULT;
    struct layout at = {0};

    if (!limits_sane(l))
        return TERN_INVALID;
    c->node_bytes =
        (uint32_t)(offsetof(struct node, group) + groups * sizeof(struct node_group) + 63) / 64 *
        64;
    place(&at, 1, sizeof *c);
    shares_layout(l, c->share);
#define R(name, limit)           c->name##s_at = place(&at, l->limit, name##_bytes(c));
#define A(type, name, to, limit) c->to = place(&at, limit, sizeof(type));
    ARENA_TABLE(R, R, A)
#undef A
#undef R
    place_tables(c, l, &at);
    if (at.overflow)
        return TERN_INVALID;
    *ret_bytes = (size_t)at.units * 64;
    return TERN_OK;
}

enum tern_err core_size(const struct core_limits *limits, size_t *ret_bytes)
{
    struct core probe;

    memset(&probe, 0, sizeof probe);
    return lay_out(&probe, limits, ret_bytes);
}

/* Record 0 is handed out first, so it goes in last. */
static void free_all(struct core *c)
{
#define X(record, ...)                                                                             \
    c->free_##record##s = (struct free_list){.head = NONE};                                        \
    for (uint32_t i = record##_limit(c); i-- > 0;)                                                 \
        record##_slot_push(c, i);
    ARENA_FREE_TABLE(X, X)
#undef X
}

/* X6: a handle from before a restart must be GONE, so each incarnation starts its generations
 * elsewhere. */
static void start_generations(struct core *c, uint32_t gen)
{
#define START(record)                                                                              \
    for (uint32_t i = 0; i < record##_limit(c); i++)                                               \
    record##_at(c, i)->gen = gen
    START(engine);
    START(pool);
    START(session);
    START(node); /* operators' pins name node generations */
    START(turn_record);
    START(disk_chunk);
    START(disk_store);
    START(pull);
    START(ask);
    START(serve);
#undef START
    for (uint32_t i = 0; i < c->limits.sessions; i++)
        session_at(c, i)->gen_last = gen;
}

static void reserve_shares(struct core *c, const struct core_limits *l,
                           const struct tenant_config *tenants)
{
    for (uint32_t t = 0; t < SHARE_TABLES; t++)
        for (uint32_t i = 0; i < c->share[t].holders; i++) {
            uint32_t reserved = share_reserved(l, tenants, t, i);

            share_holder(c, t, i)->reserved = reserved;
            check(reserved <= c->share[t].rest);
            c->share[t].rest -= reserved;
        }
}

static void give_record_memory(struct core *c)
{
    uint32_t word = 0;

    for (uint32_t i = 0; i < c->limits.tenants; i++) {
        struct tenant *t = tenant_at(c, i);

        t->record_word = word;
        t->record_pages = (uint32_t)(t->config.record_bytes / RECORD_PAGE_BYTES);
        word += div_up(t->record_pages, 64);
    }
    check(word <= c->limits.record_pages / 64);
}

static void start_tables(struct core *c, const struct hash_secret *secret)
{
    memcpy(arena_part(c, c->secret_at), secret, sizeof *secret);
    for (uint32_t t = 0; t < HASH_TABLES; t++)
        for (uint32_t i = 0; c->table[t].records > 0 && i <= c->table[t].mask; i++)
            *bucket_at(c, t, i) = NONE;
}

struct core *core_init(void *mem, const struct core_limits *limits,
                       const struct tenant_config *tenants, uint64_t incarnation,
                       const struct hash_secret *secret)
{
    struct core *c = mem;
    size_t bytes = 0;

    check(lay_out(c, limits, &bytes) == TERN_OK);
    c->limits = *limits;
    if (c->limits.table_pages == 0)
        c->limits.table_pages = TABLE_PAGES;
    if (c->limits.groups == 0)
        c->limits.groups = GROUPS_DEFAULT;
    c->incarnation = incarnation;
    c->bytes = bytes;
    c->seals_out = c->copies_out = c->copies_come = c->away = c->closing = c->turns =
        c->pulls_active = c->serves_active = c->asks = c->checks = c->disk_stores =
            c->disk_leaving = c->tickets_due = LIST_EMPTY;
    c->over.bound = c->limits.step_visits ? c->limits.step_visits : STEP_VISITS_MAX;
    c->disk_gone_first = c->disk_gone_last = NONE;
    c->disk_file_found = NONE;
    c->disk_next_file = c->disk_let_go = 1;
    c->members = limits->peers;
    c->event_next = 1;
    free_all(c);
    start_generations(c, (uint32_t)hash_mix(incarnation, 0));
    start_tables(c, secret);
    for (uint32_t i = 0; i < limits->tenants; i++)
        tenant_at(c, i)->config = tenants[i];
    for (uint32_t i = 0; i < limits->tenants; i++) {
        tenant_at(c, i)->event_next = 1;
        tenant_at(c, i)->idle = tenant_at(c, i)->closes = tenant_at(c, i)->seals_queued =
            tenant_at(c, i)->copies_queued = tenant_at(c, i)->disk_entries =
                tenant_at(c, i)->disk_roots = tenant_at(c, i)->disk_bare =
                    tenant_at(c, i)->disk_due = tenant_at(c, i)->disk_late = LIST_EMPTY;
        tenant_at(c, i)->disk_writing = tenant_at(c, i)->disk_sweep = NONE;
    }
    give_record_memory(c);
    reserve_shares(c, limits, tenants);
    return c;
}

uint64_t core_hash(const struct core *c)
{
    return hash_words(0, (const uint32_t *)(const void *)c, (size_t)c->secret_at * 64 / 4);
}

uint64_t hash_of_space(const struct core *c, struct namespace_id ns)
{
    const uint32_t words[] = {(uint32_t)ns.hi, (uint32_t)(ns.hi >> 32), (uint32_t)ns.lo,
                              (uint32_t)(ns.lo >> 32)};
    const struct hash_secret *k = secret_of(c);

    return keyed_fold(k, KEYED_START, keyed_block(k, words, 4), KIND_SPACE);
}

uint64_t core_changes(const struct core *c)
{
    return c->changes;
}

const struct core_limits *core_limits_of(const struct core *c)
{
    return &c->limits;
}

uint32_t node_above(const struct core *c, struct path path)
{
    uint32_t at = path.node;

    while (node_at(c, at)->depth > path.state_from) {
        uint32_t jump = node_at(c, at)->jump;

        at = node_at(c, jump)->depth >= path.state_from ? jump : node_at(c, at)->parent;
    }
    return at;
}
