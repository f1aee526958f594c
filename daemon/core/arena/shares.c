/* See shares.h. */
#include "core/arena/shares.h"

#include <stddef.h>

#include "core/arena/arena.h"

enum holder { HOLDER_TENANT, HOLDER_TENANT_MEMORY, HOLDER_TENANT_PEER, HOLDER_TENANT_SOURCE };

#define TEXT(records, wait)                                                                        \
    "this tenant can have no more " records                                                        \
    ", because its share and the shared remainder are in use: " wait

#define NEVER(records)                                                                             \
    "this request can never fit: it needs # " records                                              \
    " at once, and this tenant's share and the shared remainder have # together: ask for less"

static const struct {
    size_t limit_at; /* in struct core_limits */
    enum holder holder;
    const char *setting, *records, *refused, *never;
} tables[SHARE_TABLES] = {
#define ROW(NAME, limit, holder, records, wait, more)                                              \
    [SHARE_##NAME] = {offsetof(struct core_limits, limit),                                         \
                      HOLDER_##holder,                                                             \
                      #limit,                                                                      \
                      records,                                                                     \
                      TEXT(records, wait more),                                                    \
                      NEVER(records) more},
#define X(NAME, limit, ...) ROW(NAME, limit, __VA_ARGS__, ", or raise limits." #limit)
    SHARE_TABLE(X, ROW)
#undef X
};

uint32_t share_limit(const struct core_limits *limits, enum share_table table)
{
    return *(const uint32_t *)(const void *)((const char *)limits + tables[table].limit_at);
}

uint32_t sources_of(const struct core_limits *limits)
{
    return limits->peers + (limits->disk_chunks > 0 ? 1 : 0);
}

static uint32_t holders_of(const struct core_limits *limits, enum share_table table)
{
    uint32_t each = 1;

    if (tables[table].holder == HOLDER_TENANT_PEER)
        each = limits->peers;
    if (tables[table].holder == HOLDER_TENANT_SOURCE)
        each = sources_of(limits);
    return limits->tenants * (each > 0 ? each : 1);
}

/* Returns the tenant's memory in MiB, over all its regions: an engine may live in each. */
static uint64_t memory_of(const struct tenant_config *tenant)
{
    uint64_t n = (((tenant->memory_bytes + tenant->host_bytes) >> 20) + 1) * tenant->regions;

    return n < UINT32_MAX ? n : UINT32_MAX;
}

/* Returns one record, plus the tenant's part of the others in proportion to its memory. */
static uint32_t by_memory(const struct core_limits *limits, const struct tenant_config *tenants,
                          uint64_t all, uint32_t tenant)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < limits->tenants; i++)
        sum += memory_of(&tenants[i]);
    return 1 + (uint32_t)((all - limits->tenants) * memory_of(&tenants[tenant]) / sum);
}

/* Every holder gets at least one record where there are enough, so none is locked out. */
uint32_t share_reserved(const struct core_limits *limits, const struct tenant_config *tenants,
                        enum share_table table, uint32_t holder)
{
    uint32_t holders = holders_of(limits, table), limit = share_limit(limits, table);
    uint64_t all = (uint64_t)limit * limits->reserved_percent / 100;

    if (all < holders)
        return limits->reserved_percent > 0 && holders <= limit;
    if (tables[table].holder == HOLDER_TENANT_MEMORY)
        return by_memory(limits, tenants, all, holder);
    return (uint32_t)(all / holders);
}

void shares_layout(const struct core_limits *limits, struct share_of_table ret[SHARE_TABLES])
{
    uint32_t at = 0;

    for (uint32_t i = 0; i < SHARE_TABLES; i++) {
        uint32_t holders = holders_of(limits, i);

        ret[i] = (struct share_of_table){
            .holders = holders, .rest = share_limit(limits, i), .first_at = at};
        at += holders;
    }
}

const char *share_refused(enum share_table table)
{
    return tables[table].refused;
}

enum tern_err share_lacks(const struct core *c, struct share_of of, uint64_t needed,
                          struct reason *ret)
{
    const uint32_t most = share_most(c, of.table, of.tenant);

    *ret = (struct reason){share_refused(of.table), {0}};
    if (needed <= most)
        return TERN_BUSY;
    *ret = (struct reason){tables[of.table].never, {needed, most}};
    return TERN_QUOTA;
}

const char *share_setting(enum share_table table)
{
    return tables[table].setting;
}

const char *share_records(enum share_table table)
{
    return tables[table].records;
}
