/* Copies of values between the caller's memory and pages of the pool: the threads of a set copy and
 * hash each value in one pass, 4 KiB at a time. The hash is always that of the copy, so it is right
 * even if the source changes meanwhile.
 *
 * Behind the value a page has a trailer: the block's name, and a checksum of the name and the
 * value. A copy of a page without a pin is valid only if the trailer is that of its key. */
#ifndef CLIENT_BLOCK_COPY_H
#define CLIENT_BLOCK_COPY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "block_lane.h"
#include "tern.h"

/* The name of a block: namespace and key, padded with zeros. */
struct block_name {
    uint64_t ns[2], key[TERN_BLOCK_KEY_MAX / sizeof(uint64_t)], key_bytes;
};

struct block_trailer {
    uint64_t sum;
    struct block_name name;
};

/* Returns the offset of the trailer in a page of such values. */
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
    const struct iovec *iov; /* pieces of value_bytes together */
    uint32_t niov;
    uint64_t sum; /* for a copy into a page: the page's checksum (X7) */
    bool ok;      /* for a copy out of a page: the bytes are of one put of that name */
};

enum copy_way { COPY_TO_PAGES, COPY_FROM_PAGES };

struct copier;

/* far: NULL for pages in memory of the host; borrowed. INTERNAL: no memory, or the threads cannot
 * be started. */
enum tern_err copier_create(uint32_t threads, uint64_t value_bytes, const struct block_far *far,
                            struct copier **ret);
/* NULL is allowed. In a forked child, which has no such threads, the call only frees. */
void copier_destroy(struct copier *c, bool is_child);
/* Returns the most copies of one run. */
uint32_t copier_most(const struct copier *c);
/* Returns true if the GPU has failed and may still copy to and from pages of a run until this
 * process ends.
 */
bool copier_is_loose(const struct copier *c);
/* Makes n copies and returns when all are complete. The calling thread copies, too, if the pages
 * are memory of the host. Returns false if the GPU has failed; then no copy of the run is valid. */
bool copier_run(struct copier *c, struct block_copy *copies, uint32_t n, enum copy_way way);

#endif
