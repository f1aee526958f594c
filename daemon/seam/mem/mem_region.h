/* One region of memory: mapped, populated and, where processes will map it, sealed, all of it
 * before anybody is told of it. SHARED regions are memfds whose descriptor is handed out; PRIVATE
 * ones (the host tier) have none, so that no client can reach them. Only mem_host.c uses this, at
 * start and at the end. */
#ifndef SEAM_MEM_REGION_H
#define SEAM_MEM_REGION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/tern_err.h"
#include "seam/mem/workers.h"

/* DEVICE: made and ended by seam/mem/cuda; `base` is an address of the device. */
enum region_kind { REGION_SHARED = 0, REGION_PRIVATE, REGION_DEVICE };

struct region {
    enum region_kind kind;
    int fd;         /* owned; -1 for none */
    uint8_t *base;  /* owned mapping; NULL where there is none */
    uint64_t bytes; /* of the mapping */
    bool hugetlb;
};

#define REGION_NONE ((struct region){.fd = -1})

/* Pages for a tenant. `huge`: huge pages of the hugetlb pool first, then transparent ones, plain
 * pages otherwise. On failure *ret_why says what failed and what to do, and region_close is still
 * the caller's. */
enum tern_err region_create(struct region *r, enum region_kind kind, uint64_t bytes, bool huge,
                            struct workers *workers, const char **ret_why);
enum tern_err region_create_control(struct region *r, uint64_t bytes, struct workers *workers,
                                    const char **ret_why);
void region_close(struct region *r); /* also of what was never made, or only in part */

/* Linux hands out more than there is and kills later, so what does not fit is refused beforehand.
 */
enum tern_err region_memory_suffices(uint64_t need, const char **ret_why);

uint64_t region_huge_bytes(const struct region *regions,
                           size_t n); /* of all n, as the kernel says */

/* A refusal of a system call just now: what it was for, its error and what to do about it. */
enum tern_err region_why(const char *what, const char **ret_why);

#endif
