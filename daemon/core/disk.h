/* What lies on the disk tier, as the core decides it and as a seam writes, reads and finds it.
 *
 * A file holds extents, is written once, synced and only then given its name; no byte of it is ever
 * written a second time. What is not needed any more is given back to the file system: an extent as
 * a hole, or the whole file. An extent describes itself, so that no index is believed: whoever
 * reads one compares what it says of itself with what was looked for.
 *
 * A chunk of L tokens has a HISTORY extent (its tokens, extra keys, checksums and the pages of its
 * HISTORY groups) and, where one may have to resume there, a STATE extent (checksums and pages of
 * its STATE groups). An ENTRY extent says that the prefix that ends with a chunk was stored as one
 * and can be resumed; it is written with, or after, everything that it needs. So entries that have
 * chunks in common share what is written of those (D9). */
#ifndef CORE_DISK_H
#define CORE_DISK_H

#include "core/ids.h"
#include "core/limits.h"

#define DISK_BLOCK 4096u /* extents begin at multiples of it, and so does the body of one */

enum disk_part { DISK_HISTORY, DISK_STATE, DISK_ENTRY, DISK_PARTS };

/* Why an entry was stored (D1, D2). */
enum disk_reason { DISK_COLD, DISK_CONTINUED, DISK_EVICT, DISK_SHUTDOWN, DISK_REASONS };

struct disk_place {
    uint64_t file, offset; /* file: its number, from 1; no two files ever have the same */
};

/* What an extent says of itself. Its header is one block. Behind it lies the body: `align` token
 * ids, `nkeys` extra keys, `nsums` checksums, and then from the next multiple of 8 the pages: by
 * group, those of a group in page_tokens order, of a page the regions that transfers carry. The
 * checksums are in the order of the pages, of a page [region * units + unit]. */
struct disk_extent {
    uint32_t part, tenant; /* tenant: local slot; the seam writes its name */
    struct namespace_id ns;
    uint64_t layout_hash; /* of the pool */
    uint64_t chain,
        parent_chain; /* of all tokens and keys up to its end, and up to its beginning */
    uint32_t depth;   /* tokens up to its end */
    uint32_t align;   /* L */
    uint32_t tokens;  /* in the body: L of a HISTORY extent, else 0 */
    uint32_t nkeys, npages, nsums;
    uint32_t groups;       /* whose pages it has, as bits */
    uint32_t reach;        /* ENTRY: chunks, up to and with its own, whose STATE extents it needs */
    uint64_t page_bytes;   /* of all of its pages, in the regions that transfers carry */
    uint32_t reason, hits; /* ENTRY: enum disk_reason; what was served from it */
    uint64_t served_ns;    /* ENTRY: the serving time (D7) when it was stored */
    struct disk_place place;
    struct disk_place above; /* HISTORY: that of the chunk before it, {0, 0} for the first one.
                                STATE and ENTRY: the HISTORY extent of their own chunk. A hash may
                                lie, a place does not */
};

static inline uint64_t disk_meta_bytes(const struct disk_extent *e)
{
    return ((uint64_t)e->tokens * 4 + 7) / 8 * 8 + (uint64_t)e->nkeys * sizeof(struct extra_key) +
           (uint64_t)e->nsums * 8;
}

/* Of its body, without what fills up the last block. */
static inline uint64_t disk_body_bytes(const struct disk_extent *e)
{
    return disk_meta_bytes(e) + e->page_bytes;
}

/* Of the whole extent: what counts against a budget. */
static inline uint64_t disk_extent_bytes(const struct disk_extent *e)
{
    return DISK_BLOCK + (disk_body_bytes(e) + DISK_BLOCK - 1) / DISK_BLOCK * DISK_BLOCK;
}

HANDLE(store) /* something that is being written to the disk */

/* A file that is to be written: its extents in order, the first one at offset DISK_BLOCK (behind
 * the file's own header), each where the one before it ends. All are of one (tenant, namespace,
 * layout). The arrays lie in the actions of the step. */
struct disk_write {
    struct store_id store;
    uint64_t file;
    uint32_t tenant, pool; /* pool: of the device tier; a page names the pool that it lies in */
    uint32_t nextents, npages, ntokens, nkeys;
    const struct disk_extent *extents;
    const struct page_at *pages; /* of the first extent, of the second ...; in order of groups */
    const uint32_t *tokens;      /* likewise */
    const struct extra_key *keys;
};

/* Where a page that is to be read lies: which extent, and where in its body. */
struct disk_page {
    struct disk_extent extent; /* as it was written, or found */
    uint64_t body_at;          /* of its first byte, from the beginning of the body */
    uint32_t sum_at;           /* of its first checksum, among those of the extent */
    uint32_t zero;
};

/* An extent, or with offset 0 a whole file, that nobody needs any more. */
struct disk_drop {
    uint32_t tenant;
    uint64_t bytes; /* of the extent */
    struct disk_place place;
};

/* What has happened since the start, of a tenant. */
struct disk_counts {
    uint64_t stored[DISK_REASONS]; /* entries that became durable */
    uint64_t written_bytes;
    uint64_t failed;              /* stores that came to nothing, for whatever reason */
    uint64_t refused;             /* of them, those that could not fit (D3) */
    uint64_t pruned, evicted;     /* entries: D5; D7 */
    uint64_t hits, fetched_pages; /* Fetches that were begun; pages that they asked for */
    uint64_t recovered, dropped;  /* entries that were found; extents that were, and that nothing
                                     leads to, or that are of no entry */
};

#endif
