/* Stretches of memory, of pages and of others, that are copied into a buffer, or out of one, in
 * their order: for whoever sends or receives many short ones, or pages that the CPU does not reach.
 * On a data thread, like mem_verify.h. */
#ifndef SEAM_MEM_PACK_H
#define SEAM_MEM_PACK_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "seam/mem/mem.h"

/* Some of the stretches is memory that the kernel does not reach, so that all go this way. */
bool mem_pack_needed(const struct mem *mem, const struct iovec *stretches, uint32_t n);
/* The first n bytes of the stretches. False: memory of one is gone, and what that had to give or to
 * take is left out; the others were copied. */
bool mem_pack(const struct mem *mem, uint8_t *packed, const struct iovec *stretches, uint64_t n);
bool mem_unpack(const struct mem *mem, const struct iovec *stretches, const uint8_t *packed,
                uint64_t n);

#endif
