/* The bytes that a page must have. Tokens come from block ids, page seeds from a running hash over
 * all tokens up to the page's end, and bytes from the seed: so they depend on (tenant, namespace,
 * prefix, group, page, rank) and on nothing else, and the decode side can make them again without
 * having seen the prefill side's. */
#ifndef ENGINE_BYTES_H
#define ENGINE_BYTES_H

#include <stddef.h>
#include <stdint.h>

/* Tokens [first, first + n) of the block `id`. The same id always gives the same tokens. */
void block_tokens(uint64_t id, uint32_t first, uint32_t n, uint32_t *out);

/* The start of a running hash: everything that is the same for all pages of one content space. */
uint64_t content_root(const char *tenant, const char *model, const char *salt, const char *group);

/* The hash of the prefix that ends with these tokens, from the hash of the prefix before them. */
uint64_t content_chain(uint64_t prefix, const uint32_t *tokens, uint32_t n);

/* The seed of one page in one rank's region. */
uint64_t page_seed(uint64_t prefix, uint32_t page, uint32_t rank);

/* `bytes` is a multiple of 8; pages are 8-byte aligned. */
void page_fill(void *page, size_t bytes, uint64_t seed);

/* How many bytes differ from what page_fill writes; 0 for a right page. */
size_t page_compare(const void *page, size_t bytes, uint64_t seed);

#endif
