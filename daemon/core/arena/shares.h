/* Shares: what one tenant may take of a table that all tenants fill. A part of each table is
 * reserved for its holders, either equally or, where the need grows with a tenant's memory, in
 * proportion to that; the rest is common and goes to whoever takes it first. A holder is a tenant
 * or, for transfers, a tenant with one peer or with one source of fetches (a peer or the disk). A
 * holder within its reserved records always finds one, however many the others took.
 *
 * Called wherever such a record is taken or released, at constant cost. Invariant: `used` is what
 * each holder really has, and `rest` is the limit minus, for each holder, the larger of what it
 * uses and what is reserved for it. The audit counts both independently. */
#ifndef CORE_SHARES_H
#define CORE_SHARES_H

#include <stdint.h>

#include "base/tern_err.h"
#include "core/limits.h"

struct core;
struct reason;
struct share_of;
struct tenant_config;

/* X(NAME, limit, holder, what the records are, how to get some back). The limit is a field of
 * struct core_limits and a setting of the same name. F: no such setting exists, and the last field
 * is the other advice. */
#define SHARE_TABLE(X, F)                                                                          \
    X(ENGINES, engines, TENANT, "engines", "end an engine")                                        \
    X(POOLS, pools, TENANT, "pools (host tiers included)", "close a pool")                         \
    X(SESSIONS, sessions, TENANT, "sessions", "close sessions")                                    \
    X(RETIRES, retires, TENANT, "releases that wait for a step", "wait until a step has passed")   \
    X(TURN_RECORDS, turn_records, TENANT, "turn records", "close sessions or roll them back")      \
    F(RECORD_JOBS, record_jobs, TENANT, "turn records under check", "retry in a moment", "")       \
    F(RESETS, resets, TENANT, "resets that not all peers have received",                           \
      "nothing was reset: connect the peers or remove them from the configuration", "")            \
    F(ASKS, asks, TENANT, "questions to peers", "retry in a moment", "")                           \
    X(NAMESPACES, namespaces, TENANT, "namespaces", "close sessions")                              \
    X(NODES, nodes, TENANT_MEMORY, "prefix nodes", "close sessions")                               \
    X(TOKEN_BLOCKS, token_blocks, TENANT_MEMORY, "token blocks", "close sessions")                 \
    X(EXTRA_KEYS, extra_keys, TENANT, "extra keys", "close sessions")                              \
    F(SLABS, slabs, TENANT_MEMORY, "slab records", "close a pool", ", or raise limits.pools")      \
    X(PAGES, pages, TENANT_MEMORY, "page records", "close a pool or use larger pages")             \
    X(PULLS, pulls, TENANT_SOURCE, "fetches from this peer or from the disk",                      \
      "retry when a fetch has ended")                                                              \
    F(SERVES, serves, TENANT_PEER, "transfers to a peer", "retry when one has ended",              \
      ", or raise limits.pulls")                                                                   \
    X(DISK_CHUNKS, disk_chunks, TENANT, "chunks on the disk", "retry when some were evicted")      \
    F(DISK_FILES, disk_files, TENANT, "files on the disk", "retry when some were evicted",         \
      ", or raise limits.disk_chunks")                                                             \
    F(DISK_BLOCKS, disk_blocks, TENANT, "token blocks of the disk",                                \
      "retry when some were evicted", ", or raise limits.disk_chunks")                             \
    F(DISK_KEYS, disk_keys, TENANT, "extra keys of the disk", "retry when some were evicted",      \
      ", or raise limits.extra_keys")                                                              \
    F(DISK_STORES, disk_stores, TENANT, "stores to the disk", "retry when one has ended", "")

enum share_table {
#define X(NAME, ...) SHARE_##NAME,
    SHARE_TABLE(X, X)
#undef X
        SHARE_TABLES
};

struct share_of_table {
    uint32_t holders;
    uint32_t rest;     /* common records that are free */
    uint32_t first_at; /* index of its first holder among the arena's holders */
};

struct share_holder {
    uint32_t used, reserved;
};

/* Returns the number of sources of fetches: the peers and, after them, the disk if there is one. */
uint32_t sources_of(const struct core_limits *limits);
/* Fills in all tables, unreserved records as `rest`. */
void shares_layout(const struct core_limits *limits, struct share_of_table ret[SHARE_TABLES]);
/* Returns the holders of all tables. */
static inline uint32_t shares_holders(const struct share_of_table laid[SHARE_TABLES])
{
    return laid[SHARE_TABLES - 1].first_at + laid[SHARE_TABLES - 1].holders;
}
/* Returns how many records of the table are reserved for the holder. */
uint32_t share_reserved(const struct core_limits *limits, const struct tenant_config *tenants,
                        enum share_table table, uint32_t holder);
uint32_t share_limit(const struct core_limits *limits, enum share_table table);

const char *share_setting(enum share_table table); /* the field of `limits`; static */
const char *share_records(enum share_table table); /* what its records are; static */
/* Returns the static text of a refusal: what is used up, and the remedy. */
const char *share_refused(enum share_table table);
/* Returns why the holder gets no `needed` records at once. BUSY: they may become free. QUOTA: it
 * can never have so many, whatever the others have; never returned for a single record. */
enum tern_err share_lacks(const struct core *c, struct share_of of, uint64_t needed,
                          struct reason *ret);

#endif
