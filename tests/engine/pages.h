/* The bytes of a mapped pool's pages: host memory is accessed directly, memory of a GPU is copied
 * by its driver, as an engine's kernels would reach it. Any failure of the driver ends the program.
 * One thread. */
#ifndef ENGINE_PAGES_H
#define ENGINE_PAGES_H

#include "tern.h"

/* Fills or compares a page as in bytes.h. */
void pool_page_fill(const struct tern_pool *map, uint8_t *page, size_t bytes, uint64_t seed);
size_t pool_page_compare(const struct tern_pool *map, const uint8_t *page, size_t bytes,
                         uint64_t seed);
void pool_page_copy(const struct tern_pool *map, uint8_t *to, const uint8_t *from, size_t bytes);
/* Brings the checksums of pages as an engine would, in a stream of this process. They are complete
 * when it returns. */
enum tern_err pool_bring(struct tern_pool *map, const struct tern_checksums *of);
/* Copy any bytes; the other end is in host memory. */
void pool_bytes_put(const struct tern_pool *map, uint8_t *to, const void *from, size_t n);
void pool_bytes_get(const struct tern_pool *map, void *to, const uint8_t *from, size_t n);

#endif
