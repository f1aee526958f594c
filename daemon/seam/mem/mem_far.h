/* Memory that the CPU does not reach, and plain memory that may go while it is copied: what
 * mem_touch.h and the threads that hash and copy pages are made of. It knows nothing of regions or
 * pools. */
#ifndef SEAM_MEM_FAR_H
#define SEAM_MEM_FAR_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

/* n bytes in host memory, which lie there until it returns. False: no more of them. */
typedef bool mem_piece(void *ctx, uint8_t *bytes, uint64_t n);

/* Pages of equal length in memory that the CPU does not reach: page list[i] lies at base + list[i]
 * * page_bytes, and all of them in one region. */
struct mem_far_pages {
    const uint8_t *base;
    const uint32_t *list;
    uint64_t page_bytes;
    uint32_t n, units; /* equal shares of a page; the last one has what is left over */
};

/* Memory that the CPU does not reach. Its addresses are no addresses of host memory. Of the calls,
 * false: the device is lost, or a piece was refused. Pieces come in order; each but the last is a
 * multiple of CHECKSUM_BLOCK long. */
struct mem_far {
    void *ctx;
    bool (*holds)(void *ctx, const void *at);
    bool (*get)(void *ctx, const void *at, uint64_t n, mem_piece *take, void *to);
    bool (*put)(void *ctx, void *at, uint64_t n, mem_piece *fill, void *from);
    bool (*zero)(void *ctx, void *at, uint64_t n);
    /* Both are its own: on one device, or on two. */
    bool (*move)(void *ctx, void *to, const void *from, uint64_t n);
    /* The first `bytes` of stretches on any devices, in order, to `packed` in host memory; `put`:
     * from there, which is read alone. */
    bool (*pack)(void *ctx, const struct iovec *stretches, uint64_t bytes, uint8_t *packed,
                 bool put);
    /* The checksums of all units (X7), page by page: n * units of them. */
    bool (*sums)(void *ctx, const struct mem_far_pages *pages, uint64_t *ret);
};

/* n bytes between memory that the CPU reaches, pages or not. False: a page is gone. */
bool mem_near_copy(void *to, const void *from, uint64_t n);

/* All n bytes at once, of memory that is far. */
bool mem_far_get(const struct mem_far *far, void *to, const void *at, uint64_t n);
bool mem_far_put(const struct mem_far *far, void *at, const void *from, uint64_t n);

/* The checksums of the units of one page that is far. */
bool mem_far_sums(const struct mem_far *far, const void *page, uint64_t bytes, uint32_t units,
                  uint64_t *ret);

#endif
