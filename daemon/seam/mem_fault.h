/* A client can take the backing of shared pages away (a hole punched in huge pages that the machine
 * then cannot give back). Touching such a page raises SIGBUS, which must cost that pool its bytes
 * and not the daemon its life: an empty page is put in its place, which no checksum will agree
 * with. Only mem_host.c uses this. */
#ifndef SEAM_MEM_FAULT_H
#define SEAM_MEM_FAULT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MEM_FAULT_RANGES_MAX 5120

/* At start, before anything in the range is shared. `page_bytes` is the mapping's page size. False:
 * too many ranges. */
bool mem_fault_watch(const void *base, uint64_t bytes, uint64_t page_bytes);
void mem_fault_unwatch(const void *base);
uint64_t mem_fault_count(void);

#endif
