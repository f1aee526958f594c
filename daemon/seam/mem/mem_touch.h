/* The way to the bytes of pages, for all who hash or copy them. Memory that the CPU reaches is
 * touched where it lies, within mem_fault_bytes. Memory of a device is not: struct mem_far copies
 * it to the host and back, and its addresses are given to that alone. On any thread but the
 * owner's; a call may wait for the device, as long as mem_far says. */
#ifndef SEAM_MEM_TOUCH_H
#define SEAM_MEM_TOUCH_H

#include "seam/mem/mem.h"
#include "seam/mem/mem_far.h"

/* NULL: the CPU reaches all memory. */
const struct mem_far *mem_far(const struct mem *mem);

bool mem_is_far(const struct mem *mem, const void *at);

/* `at` is page memory, `to` and `from` are not. False: a page is gone, its bytes are left out. */
bool mem_get(const struct mem *mem, void *to, const void *at, uint64_t n);
bool mem_put(const struct mem *mem, void *at, const void *from, uint64_t n);
/* From one page to another one, of any memory. */
bool mem_move(const struct mem *mem, void *to, const void *from, uint64_t n);

#endif
