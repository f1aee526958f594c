/* The arena's hash tables: which records exist, and the bucket of each. Part of arena.h. Everything
 * that depends on the secret of base/keyed_hash.h is here, at the end of the arena behind
 * `secret_at`; core_hash leaves it out.
 *
 * Invariant: no outcome depends on the secret. Records that a lookup could confuse have equal
 * hashes, so with any secret they share a bucket, in the order of their insertion. A lookup
 * compares the record itself and never relies on a hash. */
#ifndef CORE_HASHED_H
#define CORE_HASHED_H

#include "core/arena/arena.h"

/* The table's fields of record i. */
struct hashed {
    uint64_t hash; /* by keyed_fold. A root of the prefix tree has one too, but is in no bucket */
    uint32_t next; /* in its bucket */
    uint32_t bucket;
};

/* Kinds of symbols. The first block of a chunk has the chunk's length, other blocks have 0, an
 * extra key has KIND_KEY plus its position in the chunk. */
#define KIND_KEY   (1ull << 32)
#define KIND_SPACE (2ull << 32)
#define KIND_OTHER (3ull << 32)

static inline const struct hash_secret *secret_of(const struct core *c)
{
    return arena_part(c, c->secret_at);
}

static inline struct hashed *hashed_at(const struct core *c, enum hash_table t, uint32_t i)
{
    ARENA_BOUND(i, c->table[t].records);
    return (struct hashed *)arena_part(c, c->table[t].hashed_at) + i;
}

static inline uint32_t *bucket_at(const struct core *c, enum hash_table t, uint32_t bucket)
{
    return (uint32_t *)arena_part(c, c->table[t].buckets_at) + bucket;
}

static inline uint32_t bucket_of(const struct core *c, enum hash_table t, uint64_t hash,
                                 uint64_t with)
{
    return (uint32_t)keyed_place(secret_of(c), hash, with) & c->table[t].mask;
}

/* Returns the first record of the bucket of (hash, with), NONE if empty. `next` has the others. */
static inline uint32_t hashed_first(const struct core *c, enum hash_table t, uint64_t hash,
                                    uint64_t with)
{
    return *bucket_at(c, t, bucket_of(c, t, hash, with));
}

static inline void hashed_put(const struct core *c, enum hash_table t, uint32_t i, uint64_t hash,
                              uint64_t with)
{
    struct hashed *h = hashed_at(c, t, i);
    uint32_t *head;

    h->hash = hash;
    h->bucket = bucket_of(c, t, hash, with);
    head = bucket_at(c, t, h->bucket);
    h->next = *head;
    *head = i;
}

/* Walks the bucket up to the record: one or two records on average (T20). */
static inline void hashed_take_out(const struct core *c, enum hash_table t, uint32_t i)
{
    const struct hashed *h = hashed_at(c, t, i);
    uint32_t *at = bucket_at(c, t, h->bucket);

    for (; *at != i; at = &hashed_at(c, t, *at)->next)
        check(*at != NONE);
    *at = h->next;
}

/* Returns the hash of a namespace's empty prefix, in memory and on the disk. */
uint64_t hash_of_space(const struct core *c, struct namespace_id ns);

#endif
