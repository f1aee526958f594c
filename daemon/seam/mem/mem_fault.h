/* A client can take the backing of shared pages away (a hole punched in huge pages that the machine
 * then cannot give back), and the machine can lose memory. Touching such a page raises SIGBUS,
 * which must cost that tenant its page and not the daemon its life, nor anyone a wrong byte.
 *
 * Nothing is put in the place of a shared page: what lies there would be our bytes alone, with
 * checksums that agree, and the engines' others. So the touch is ended where it is, what it was for
 * fails, and the mapping stays the one that the engines have: once there is memory again, all see
 * the same. A pool needs no state of its own for that. An engine that is given such a page meets
 * the same SIGBUS.
 *
 * Every access to watched memory goes through here; one that does not is a bug, and its SIGBUS goes
 * to whoever had the signal before. The kernel's own (send, receive) ends with EFAULT instead, see
 * tcp/. A NIC goes on with the memory that it has pinned, hole or not: what it writes there
 * is not what we verify, and what it reads there agrees with the checksum that was made of our view
 * or is refused by the peer. */
#ifndef SEAM_MEM_FAULT_H
#define SEAM_MEM_FAULT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "seam/mem/checksum.h"

#define MEM_FAULT_RANGES_MAX 16448

/* At start, before anything in the range is shared. `page_bytes` is the mapping's page size. What
 * is not `shared` is seen by nobody else: a fresh page takes the place of one that is lost, though
 * the touch fails all the same. False: too many ranges. */
bool mem_fault_watch(const void *base, uint64_t bytes, uint64_t page_bytes, bool shared);
void mem_fault_unwatch(const void *base);
uint64_t mem_fault_count(void); /* touches that were ended */

/* Any thread. False: a page was not there, and touch(ctx) has ended in the middle. It holds and
 * allocates nothing, and makes no other such call. */
bool mem_fault_try(void (*touch)(void *ctx), void *ctx);
/* The same for whatever hashes, copies or zeroes pages, which is not for the owner thread: that one
 * only decides, and has said by mem_fault_decides that it is the one. */
bool mem_fault_bytes(void (*touch)(void *ctx), void *ctx);
void mem_fault_decides(void);
void mem_fault_not_owner(void); /* for who touches page bytes in another way */
/* checksum_feed of watched memory. False likewise; *sum can go on, but its end means nothing. */
bool mem_fault_feed(struct checksum *sum, const void *bytes, size_t n);

#endif
