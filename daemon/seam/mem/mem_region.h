/* One region of memory: mapped, populated and, where processes will map it, sealed, all of it
 * before anybody is told of it. SHARED and CONTROL regions are memfds whose descriptor is handed
 * out; PRIVATE ones (the host tier) have none, so that no client can reach them. Only mem_host.c
 * uses this, at start and at the end. */
#ifndef SEAM_MEM_REGION_H
#define SEAM_MEM_REGION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/tern_err.h"
#include "seam/mem/workers.h"

/* DEVICE: made and ended by seam/mem/cuda; `base` is an address of the device. */
enum region_kind { REGION_SHARED = 0, REGION_CONTROL, REGION_SUMS, REGION_PRIVATE, REGION_DEVICE };

struct region {
    enum region_kind kind;
    int fd;         /* owned; -1 for none */
    uint8_t *base;  /* owned mapping; NULL where there is none */
    uint64_t bytes; /* of the mapping */
    bool hugetlb;
    bool holes; /* clients can punch holes into it */
    bool stale; /* a control page that may hold what the engine before has written */
};

#define REGION_NONE ((struct region){.fd = -1})

/* `huge`, which CONTROL is not: huge pages of the hugetlb pool first, then transparent ones, plain
 * pages otherwise. On failure *ret_why says what failed and what to do, and region_close is still
 * the caller's. */
enum tern_err region_create(struct region *r, enum region_kind kind, uint64_t bytes, bool huge,
                            struct workers *workers, const char **ret_why);
void region_close(struct region *r); /* also of what was never made, or only in part */

/* Refuses what does not fit, since Linux hands out more than there is and kills later. */
enum tern_err region_memory_suffices(uint64_t need, const char **ret_why);

uint64_t region_huge_bytes(void); /* in huge pages of this process, as the kernel says */

/* A refusal of a system call just now: what it was for, its error and what to do about it. */
enum tern_err region_why(const char *what, const char **ret_why);

#endif
