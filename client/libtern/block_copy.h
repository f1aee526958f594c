/* Values on their way between the caller's memory and pages of the pool: each is copied and hashed
 * in one pass, 4 KiB at a time, by the threads of its set. The hash is always that of the copy, so
 * it holds whatever happens to the source meanwhile.
 *
 * Behind the value a page has a trailer: which block it is, and a checksum of that and of the
 * value. Whoever copies a page without a pin believes the copy only if the trailer is that of its
 * key. */
#ifndef CLIENT_BLOCK_COPY_H
#define CLIENT_BLOCK_COPY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "block_lane.h"
#include "tern.h"

/* The name of a block: namespace and key, filled up with zeros. */
struct block_name {
    uint64_t ns[2], key[TERN_BLOCK_KEY_MAX / sizeof(uint64_t)], key_bytes;
};

struct block_trailer {
    uint64_t sum;
    struct block_name name;
};

/* Where the trailer begins in a page of such values. */
static inline uint64_t block_trailer_at(uint64_t value_bytes)
{
    return (value_bytes + 7) / 8 * 8;
}

static inline uint64_t block_page_bytes(uint64_t value_bytes)
{
    return block_trailer_at(value_bytes) + sizeof(struct block_trailer);
}

struct block_copy {
    struct block_name name;
    uint8_t *page;           /* an address of the GPU, if the copier is for one */
    const struct iovec *iov; /* value_bytes together */
    uint32_t niov;
    uint64_t sum; /* of a copy into a page: the page's checksum (X7) */
    bool ok;      /* of a copy out of a page: it is a put of that name */
};

enum copy_way { COPY_TO_PAGES, COPY_FROM_PAGES };

struct copier;

/* far: NULL for pages in memory of the host; borrowed. INTERNAL: no memory, or the threads cannot
 * be begun. */
enum tern_err copier_create(uint32_t threads, uint64_t value_bytes, const struct block_far *far,
                            struct copier **ret);
/* NULL is allowed. In a forked child, which has no such threads, it only frees. */
void copier_destroy(struct copier *c, bool is_child);
/* As many copies as one run may have. */
uint32_t copier_most(const struct copier *c);
/* The GPU has failed, and may copy to and from pages of a run all the same until this process ends.
 */
bool copier_is_loose(const struct copier *c);
/* Makes n copies and returns when all are made. The calling thread copies, too, if the pages are
 * memory of the host. False: the GPU has failed, and nothing of the run counts. */
bool copier_run(struct copier *c, struct block_copy *copies, uint32_t n, enum copy_way way);

#endif
