/* The audit of the hash tables: each has all its records, once, in the bucket that the secret
 * gives. See audit.h. */
#include "oracle/audit.h"

#include "core/arena/hashed.h"

static bool belongs(const struct core *c, enum hash_table t, uint32_t i)
{
    switch (t) {
    case TABLE_NODES: return node_at(c, i)->used && node_at(c, i)->depth > 0;
    case TABLE_SPACES: return space_at(c, i)->used;
    case TABLE_CHUNKS: return disk_chunk_at(c, i)->used;
    case TABLE_EXTENTS:
        return disk_chunk_at(c, i)->used && disk_chunk_at(c, i)->kept & 1u << DISK_HISTORY;
    case HASH_TABLES: break;
    }
    return false;
}

void audit_tables(struct audit *a)
{
    const struct core *c = a->c;

    for (enum hash_table t = 0; t < HASH_TABLES; t++) {
        uint32_t records = c->table[t].records, n = 0, met = 0;

        for (uint32_t i = 0; i < records; i++)
            n += belongs(c, t, i);
        for (uint32_t b = 0; records > 0 && b <= c->table[t].mask; b++)
            for (uint32_t at = *bucket_at(c, t, b); at != NONE; at = hashed_at(c, t, at)->next) {
                if (at >= records || ++met > n || !belongs(c, t, at))
                    oracle_fail("audit: record %u has no business in hash table %u", at, t);
                if (hashed_at(c, t, at)->bucket != b)
                    oracle_fail("audit: record %u is in another's bucket of table %u", at, t);
            }
        if (met != n)
            oracle_fail("audit: hash table %u holds %u records of %u", t, met, n);
    }
}
