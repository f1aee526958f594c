/* Access to the bytes of pages, for all code that hashes or copies them. Memory that the CPU
 * reaches is touched in place, within mem_fault_bytes. Memory of a device is copied to the host and
 * back by struct mem_far, the only user of its addresses. On any thread but the owner's; a call may
 * wait for the device, as long as mem_far waits. */
#ifndef SEAM_MEM_TOUCH_H
#define SEAM_MEM_TOUCH_H

#include "seam/mem/mem.h"
#include "seam/mem/mem_far.h"

/* NULL: the CPU reaches all memory. */
const struct mem_far *mem_far(const struct mem *mem);
/* NULL: the CPU reaches `at`. */
const struct mem_far *mem_far_at(const struct mem *mem, const void *at);

/* `at` is page memory, `to` and `from` are not. Returns false if a page is gone: that page is left
 * out. */
bool mem_get(const struct mem *mem, void *to, const void *at, uint64_t n);
bool mem_put(const struct mem *mem, void *at, const void *from, uint64_t n);
/* Copies from one page to another, in any memory. */
bool mem_move(const struct mem *mem, void *to, const void *from, uint64_t n);

#endif
