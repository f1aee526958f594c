/* Access to memory that the CPU does not reach, and to plain memory that may vanish while it is
 * copied: the base of mem_touch.h and of the threads that hash and copy pages. Independent of
 * regions and pools. */
#ifndef SEAM_MEM_FAR_H
#define SEAM_MEM_FAR_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

/* Gets n bytes in host memory, valid until it returns. Returns false to refuse further pieces. */
typedef bool mem_piece(void *ctx, uint8_t *bytes, uint64_t n);

/* Pages of equal length in memory that the CPU does not reach: page list[i] lies at base + list[i]
 * * page_bytes, all in one region. */
struct mem_far_pages {
    const uint8_t *base;
    const uint32_t *list;
    uint64_t page_bytes;
    uint32_t n, units; /* equal shares of a page; the last one has the rest */
};

/* Memory that the CPU does not reach. Its addresses are not host addresses. The calls return false
 * if the device is lost or a piece was refused. Pieces follow in order; the length of each but the
 * last is a multiple of CHECKSUM_BLOCK. */
struct mem_far {
    void *ctx;
    bool (*holds)(void *ctx, const void *at);
    bool (*get)(void *ctx, const void *at, uint64_t n, mem_piece *take, void *to);
    bool (*put)(void *ctx, void *at, uint64_t n, mem_piece *fill, void *from);
    bool (*zero)(void *ctx, void *at, uint64_t n);
    /* Both addresses are far: on one device, or on two. */
    bool (*move)(void *ctx, void *to, const void *from, uint64_t n);
    /* Copies the first `bytes` of stretches on any devices, in order, to `packed` in host memory;
     * `put`: from `packed`, which is only read. */
    bool (*pack)(void *ctx, const struct iovec *stretches, uint64_t bytes, uint8_t *packed,
                 bool put);
    /* The checksums of all units (X7), page by page: n * units of them. */
    bool (*sums)(void *ctx, const struct mem_far_pages *pages, uint64_t *ret);
};

/* Copies n bytes between memory that the CPU reaches, pages or not. Returns false if a page is
 * gone. */
bool mem_near_copy(void *to, const void *from, uint64_t n);

/* Copy all n bytes from or to far memory at once. */
bool mem_far_get(const struct mem_far *far, void *to, const void *at, uint64_t n);
bool mem_far_put(const struct mem_far *far, void *at, const void *from, uint64_t n);

/* The checksums of the units of one far page. */
bool mem_far_sums(const struct mem_far *far, const void *page, uint64_t bytes, uint32_t units,
                  uint64_t *ret);

#endif
