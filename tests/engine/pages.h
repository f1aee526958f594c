/* The bytes of a mapped pool's pages, wherever it lies: in memory of the host they are touched, on
 * a GPU they are copied by its driver, as an engine's kernels would reach them. Any failure of the
 * driver ends the program. One thread. */
#ifndef ENGINE_PAGES_H
#define ENGINE_PAGES_H

#include "tern.h"

/* A page of such bytes, as in bytes.h. */
void pool_page_fill(const struct tern_pool *map, uint8_t *page, size_t bytes, uint64_t seed);
size_t pool_page_compare(const struct tern_pool *map, const uint8_t *page, size_t bytes,
                         uint64_t seed);
void pool_page_copy(const struct tern_pool *map, uint8_t *to, const uint8_t *from, size_t bytes);
/* The checksums of pages, brought as an engine would, in a stream of this process's own; they are
 * there when it returns. */
enum tern_err pool_bring(struct tern_pool *map, const struct tern_checksums *of);
/* Any bytes; these are in memory of the host. */
void pool_bytes_put(const struct tern_pool *map, uint8_t *to, const void *from, size_t n);
void pool_bytes_get(const struct tern_pool *map, void *to, const uint8_t *from, size_t n);

#endif
