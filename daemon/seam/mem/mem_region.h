/* One region of memory: mapped, populated and, where processes will map it, sealed, all before its
 * descriptor is handed out. SHARED and CONTROL regions are memfds with such a descriptor; PRIVATE
 * ones (the host tier) have none, so that no client can reach them. Only mem_host.c uses this, at
 * start and at the end. */
#ifndef SEAM_MEM_REGION_H
#define SEAM_MEM_REGION_H

#include <stdbool.h>
#include <stdint.h>

#include "base/tern_err.h"
#include "seam/mem/workers.h"

/* DEVICE: owned by seam/mem/cuda; `base` is an address of the device. */
enum region_kind { REGION_SHARED = 0, REGION_CONTROL, REGION_SUMS, REGION_PRIVATE, REGION_DEVICE };

struct region {
    enum region_kind kind;
    int fd;         /* owned; -1: none */
    uint8_t *base;  /* owned mapping; NULL: none */
    uint64_t bytes; /* of the mapping */
    bool hugetlb;
    bool holes; /* clients can punch holes into it */
    bool stale; /* a control page that may contain what the previous engine wrote */
};

#define REGION_NONE ((struct region){.fd = -1})

/* `huge` (never for CONTROL): huge pages of the hugetlb pool first, then transparent ones, plain
 * pages otherwise. On failure *ret_why has the reason and what to do, and the caller must still
 * call region_close. */
enum tern_err region_create(struct region *r, enum region_kind kind, uint64_t bytes, bool huge,
                            struct workers *workers, const char **ret_why);
void region_close(struct region *r); /* also of a region that was never created, or only in part */

/* Refuses memory that does not fit, since Linux grants more than there is and kills processes
 * later. */
enum tern_err region_memory_suffices(uint64_t need, const char **ret_why);

uint64_t region_huge_bytes(void); /* in huge pages of this process, by the kernel's count */

/* Describes a system call that just failed: its purpose, its error and what to do about it. */
enum tern_err region_why(const char *what, const char **ret_why);

#endif
