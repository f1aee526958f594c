/* Copies stretches of memory, pages or not, into a buffer or out of one, in their order: for
 * sending or receiving many short ones, or pages that the CPU does not reach. On a data thread,
 * like mem_verify.h. */
#ifndef SEAM_MEM_PACK_H
#define SEAM_MEM_PACK_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "seam/mem/mem.h"

/* Returns true if the kernel does not reach some stretch, so that all must be packed. */
bool mem_pack_needed(const struct mem *mem, const struct iovec *stretches, uint32_t n);
/* Copies the first n bytes of the stretches. Returns false if memory of a stretch is gone: its
 * bytes are skipped, and the others are copied. */
bool mem_pack(const struct mem *mem, uint8_t *packed, const struct iovec *stretches, uint64_t n);
bool mem_unpack(const struct mem *mem, const struct iovec *stretches, const uint8_t *packed,
                uint64_t n);

#endif
