/* See shares.h. */
#include "core/arena/shares.h"

#include <stddef.h>

enum holder { HOLDER_TENANT, HOLDER_TENANT_PEER };

#define TEXT(records, limit, wait)                                                                 \
    "this tenant's share of the " records " and the common rest are in use: " wait                 \
    ", or raise limits." limit

static const struct {
    size_t limit_at; /* in struct core_limits */
    enum holder holder;
    const char *setting, *records, *refused;
} tables[SHARE_TABLES] = {
#define X(NAME, limit, holder, records, wait)                                                      \
    [SHARE_##NAME] = {offsetof(struct core_limits, limit), HOLDER_##holder, #limit, records,       \
                      TEXT(records, #limit, wait)},
    SHARE_TABLE(X)
#undef X
};

static uint32_t limit_of(const struct core_limits *limits, enum share_table table)
{
    return *(const uint32_t *)(const void *)((const char *)limits + tables[table].limit_at);
}

/* At least one for each holder where there are as many, so that nobody is kept out altogether. */
static uint32_t reserved_of(const struct core_limits *limits, enum share_table table,
                            uint32_t holders)
{
    uint32_t limit = limit_of(limits, table), percent = limits->reserved_percent,
             each = (uint32_t)((uint64_t)limit * percent / 100 / holders);

    return each == 0 && percent > 0 && holders <= limit ? 1 : each;
}

uint32_t shares_layout(const struct core_limits *limits, struct share_of_table ret[SHARE_TABLES])
{
    uint32_t at = 0;

    for (uint32_t i = 0; i < SHARE_TABLES; i++) {
        uint32_t peers = limits->peers ? limits->peers : 1,
                 holders = limits->tenants * (tables[i].holder == HOLDER_TENANT ? 1 : peers),
                 each = reserved_of(limits, i, holders);

        ret[i] = (struct share_of_table){.holders = holders,
                                         .reserved = each,
                                         .rest = limit_of(limits, i) - each * holders,
                                         .used_at = at};
        at += holders;
    }
    return at;
}

const char *share_refused(enum share_table table)
{
    return tables[table].refused;
}

const char *share_setting(enum share_table table)
{
    return tables[table].setting;
}

const char *share_records(enum share_table table)
{
    return tables[table].records;
}
