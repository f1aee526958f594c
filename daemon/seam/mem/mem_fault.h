/* A client can remove the backing of shared pages (by a hole in huge pages that the machine then
 * cannot replace), and the machine can lose memory. Touching such a page raises SIGBUS, which must
 * cost that tenant its page, but neither end the daemon nor give anyone a wrong byte.
 *
 * A shared page is not replaced: a new page would have bytes that only we see, with checksums that
 * agree, while the engines see others. So the touch is aborted, its caller fails, and the mapping
 * stays the one that engines share: once there is memory again, all see the same bytes. A pool
 * needs no state for that. An engine that touches such a page gets the same SIGBUS.
 *
 * Invariant: every access to watched memory goes through here; any other is a bug, and its SIGBUS
 * goes to the handler that was there before. The kernel's own access (send, receive) ends with
 * EFAULT instead, see tcp/. A NIC keeps using the memory that it has pinned, hole or not. Bytes
 * that it writes there are not the bytes that we verify. Bytes that it reads there agree with the
 * checksum of our view, or the peer refuses them. */
#ifndef SEAM_MEM_FAULT_H
#define SEAM_MEM_FAULT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "seam/mem/checksum.h"

#define MEM_FAULT_RANGES_MAX 16448

/* At start, before anything in the range is shared. `page_bytes` is the mapping's page size. In a
 * range that is not `shared`, which nobody else sees, a fresh page replaces a lost one, though the
 * touch still fails. Returns false if there are too many ranges. */
bool mem_fault_watch(const void *base, uint64_t bytes, uint64_t page_bytes, bool shared);
void mem_fault_unwatch(const void *base);
uint64_t mem_fault_count(void); /* touches that were aborted */

/* Any thread. Returns false if a page was gone: touch(ctx) was aborted in the middle. touch must
 * take no lock, allocate nothing, and not make such a call itself. */
bool mem_fault_try(void (*touch)(void *ctx), void *ctx);
/* The same for functions that hash, copy or zero pages, on any thread but the owner: the owner only
 * decides, and has declared itself by mem_fault_decides. */
bool mem_fault_bytes(void (*touch)(void *ctx), void *ctx);
void mem_fault_decides(void);
void mem_fault_not_owner(void); /* for callers that touch page bytes in another way */
/* checksum_feed of watched memory. Returns false if a page was gone: *sum stays usable, but its
 * result is void. */
bool mem_fault_feed(struct checksum *sum, const void *bytes, size_t n);

#endif
