/* The contents of the disk tier, as the core decides on them and as a seam writes, reads and finds
 * them.
 *
 * A file has extents. It is written once, synced and only then named; no byte of it is written a
 * second time. Unneeded bytes return to the file system: an extent as a hole, or the whole file. An
 * extent describes itself, so no index is trusted: each reader compares the extent's description
 * with what it looked for.
 *
 * A chunk of L tokens has a HISTORY extent (its tokens, extra keys, checksums and the pages of its
 * HISTORY groups) and, where a session may have to resume there, a STATE extent (checksums and
 * pages of its STATE groups). An ENTRY extent states that the prefix that ends with a chunk was
 * stored as one and can be resumed; it is written with, or after, everything that it needs. So
 * entries with common chunks share what is written of them (D9). */
#ifndef CORE_DISK_H
#define CORE_DISK_H

#include "core/ids.h"
#include "core/limits.h"

#define DISK_BLOCK 4096u /* extents and their bodies begin at multiples of it */

enum disk_part { DISK_HISTORY, DISK_STATE, DISK_ENTRY, DISK_PARTS };

/* Why an entry was stored (D1, D2). */
enum disk_reason { DISK_COLD, DISK_CONTINUED, DISK_EVICT, DISK_SHUTDOWN, DISK_REASONS };

struct disk_place {
    uint64_t file, offset; /* file: its number, from 1, never reused */
};

/* An extent's description of itself. Its header is one block. The body follows: `align` token ids,
 * `nkeys` extra keys, `nsums` checksums and, from the next multiple of 8, the pages: by group, in
 * page_tokens order within a group, and of each page the regions that transfers carry. Checksums
 * are in the order of the pages, within a page as [region * units + unit]. */
struct disk_extent {
    uint32_t part, tenant; /* tenant: local slot; the seam writes its name */
    struct namespace_id ns;
    uint64_t layout_hash;         /* of the pool */
    uint64_t chain, parent_chain; /* of all tokens and keys up to its end, and to its start */
    uint32_t depth;               /* tokens up to its end */
    uint32_t align;               /* L */
    uint32_t tokens;              /* in the body: L of a HISTORY extent, else 0 */
    uint32_t nkeys, npages, nsums;
    uint32_t groups;       /* groups whose pages it has, as bits */
    uint32_t reach;        /* ENTRY: number of chunks, its own last, whose STATE extents it needs */
    uint64_t page_bytes;   /* of all its pages, in the regions that transfers carry */
    uint32_t reason, hits; /* ENTRY: enum disk_reason; how often it was served */
    uint64_t served_ns;    /* ENTRY: the serving time (D7) when it was stored */
    struct disk_place place;
    struct disk_place above; /* HISTORY: extent of the chunk before it, {0, 0} for the first one.
                                STATE and ENTRY: the HISTORY extent of their own chunk. Hashes may
                                collide, places do not */
};

static inline uint64_t disk_meta_bytes(const struct disk_extent *e)
{
    return ((uint64_t)e->tokens * 4 + 7) / 8 * 8 + (uint64_t)e->nkeys * sizeof(struct extra_key) +
           (uint64_t)e->nsums * 8;
}

/* Size of the body, without padding of the last block. */
static inline uint64_t disk_body_bytes(const struct disk_extent *e)
{
    return disk_meta_bytes(e) + e->page_bytes;
}

/* Size of the whole extent, which counts against a budget. */
static inline uint64_t disk_extent_bytes(const struct disk_extent *e)
{
    return DISK_BLOCK + (disk_body_bytes(e) + DISK_BLOCK - 1) / DISK_BLOCK * DISK_BLOCK;
}

HANDLE(store) /* something being written to the disk */

/* A file to write: its extents in order, the first at offset DISK_BLOCK (behind the file's own
 * header), each one where the one before it ends. All have one (tenant, namespace, layout). The
 * arrays lie in the actions of the step. */
struct disk_write {
    struct store_id store;
    uint64_t file;
    uint32_t tenant, pool; /* pool: of the device tier; each page names its own pool */
    uint32_t nextents, npages, ntokens, nkeys;
    const struct disk_extent *extents;
    const struct page_at *pages; /* those of the first extent, then of the second ...; in order of
                                    groups */
    const uint32_t *tokens;      /* in the same order */
    const struct extra_key *keys;
};

/* Location of a page to read: its extent, and its place in the body. */
struct disk_page {
    struct disk_extent extent; /* as it was written, or found */
    uint64_t body_at;          /* offset of its first byte in the body */
    uint32_t sum_at;           /* index of its first checksum in the extent */
    uint32_t zero;
};

/* An unneeded extent, or with offset 0 a whole unneeded file. */
struct disk_drop {
    uint32_t tenant;
    uint64_t bytes; /* of the extent */
    struct disk_place place;
};

/* Counts since the start, of one tenant. */
struct disk_counts {
    uint64_t stored[DISK_REASONS]; /* entries that became durable */
    uint64_t written_bytes;
    uint64_t failed;              /* failed stores, for whatever reason */
    uint64_t refused;             /* those of `failed` that could not fit (D3) */
    uint64_t pruned, evicted;     /* entries: D5; D7 */
    uint64_t hits, fetched_pages; /* fetches that began; pages that they requested */
    uint64_t recovered, dropped;  /* entries found; extents found that nothing leads to, or of no
                                     entry */
};

#endif
