/* See mem_region.h. What must stay true: a descriptor leaves here only after its memory is fully
 * allocated and its size is sealed, so no client can shrink it under us; a private region never has
 * a descriptor at all. */
#include "seam/mem/mem_region.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/err.h"
#include "base/undumped.h"
#include "seam/mem/cgroup.h"
#include "seam/mem/mem_fault.h"
#include "seam/mem/numa.h"

#define PAGE_BYTES         4096u
#define HUGE_BYTES         (2u << 20)
#define KEEP_FREE_BYTES    (64u << 20) /* left to the rest of the machine at the least */
#define ALLOCATE_TRIES_MAX 100u        /* that signals interrupt */
#define SEALS              (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

/* mem_create runs once, before there is a second thread that could ask. */
static char why_text[256];

enum tern_err region_why(const char *what, const char **ret_why)
{
    int err = errno;
    const char *hint = "see the system's log";

    if (err == EMFILE || err == ENFILE)
        hint = "raise RLIMIT_NOFILE (ulimit -n, LimitNOFILE=)";
    else if (err == ENOMEM || err == ENOSPC || err == EFAULT)
        hint = "lower the tenants' memory or give the machine or its cgroup more memory";
    else if (err == ENOSYS || err == EPERM || err == EACCES)
        hint = "memfd_create is denied: allow it in the container's seccomp profile";
    snprintf(why_text, sizeof why_text, "%s: %s: %s", what, strerror(err), hint);
    *ret_why = why_text;
    return TERN_INTERNAL;
}

/* ------------------------------------------------------------------ one region */

void region_close(struct region *r)
{
    if (r->base) {
        mem_fault_unwatch(r->base);
        munmap(r->base, r->bytes);
    }
    if (r->fd >= 0)
        close(r->fd);
    *r = REGION_NONE;
}

/* Huge pages need an address that is a multiple of theirs, which mmap does not give by itself. */
static uint8_t *map_aligned(const struct region *r)
{
    int flags = r->kind == REGION_SHARED
                    ? MAP_SHARED
                    : MAP_PRIVATE | MAP_ANONYMOUS | (r->hugetlb ? MAP_HUGETLB : 0);
    uint64_t slack = r->bytes >= HUGE_BYTES ? HUGE_BYTES : 0;
    uint8_t *room =
        mmap(NULL, r->bytes + slack, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    uint8_t *at = room;

    if (room == MAP_FAILED)
        return NULL;
    if (slack) {
        at += (HUGE_BYTES - (uintptr_t)room % HUGE_BYTES) % HUGE_BYTES;
        if (at > room)
            munmap(room, (size_t)(at - room));
        munmap(at + r->bytes, (size_t)(room + slack - at));
    }
    if (mmap(at, r->bytes, PROT_READ | PROT_WRITE, flags | MAP_FIXED, r->fd, 0) == MAP_FAILED) {
        int err = errno;

        munmap(at, r->bytes);
        errno = err;
        return NULL;
    }
    return at;
}

static bool region_open(struct region *r, enum region_kind kind, const char *name, uint64_t bytes,
                        bool hugetlb)
{
    uint64_t unit = hugetlb ? HUGE_BYTES : PAGE_BYTES;

    *r = (struct region){
        .kind = kind, .fd = -1, .hugetlb = hugetlb, .bytes = (bytes + unit - 1) / unit * unit};
    if (kind == REGION_SHARED) {
        r->fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | (hugetlb ? MFD_HUGETLB : 0));
        if (r->fd < 0 || ftruncate(r->fd, (off_t)r->bytes) < 0)
            return false;
    }
    r->base = map_aligned(r);
    if (!r->base)
        return false;
    madvise(r->base, r->bytes, MADV_DONTFORK);
    return undumped(r->base, r->bytes);
}

/* A signal interrupts it, and what it had allocated by then stays. */
static bool allocate(int fd, uint64_t bytes)
{
    for (uint32_t i = 0; i < ALLOCATE_TRIES_MAX; i++)
        if (fallocate(fd, 0, 0, (off_t)bytes) == 0 || errno == EOPNOTSUPP)
            return true;
        else if (errno != EINTR)
            return false;
    return false;
}

/* Allocates every page, then seals the size. fallocate comes last: it proves that all is there. */
static bool region_fill(struct region *r, struct workers *workers, bool huge)
{
    if (!workers_populate(workers, r->base, r->bytes, huge && !r->hugetlb)) {
        errno = ENOMEM; /* the worker's own is not seen here */
        return false;
    }
    if (r->kind == REGION_PRIVATE)
        return true;
    if (!allocate(r->fd, r->bytes))
        return false;
    return fcntl(r->fd, F_ADD_SEALS, SEALS) == 0;
}

/* A private region is watched as well: memory that the machine has lost costs one page. */
static enum tern_err region_watch(struct region *r, const char **ret_why)
{
    if (!mem_fault_watch(r->base, r->bytes, r->hugetlb ? HUGE_BYTES : PAGE_BYTES,
                         r->kind == REGION_SHARED))
        return region_why("SIGBUS handler", ret_why);
    return TERN_OK;
}

enum tern_err region_create(struct region *r, enum region_kind kind, uint64_t bytes, bool huge,
                            struct workers *workers, const char **ret_why)
{
    if (huge) {
        if (region_open(r, kind, "tern-pages", bytes, true) && region_fill(r, workers, true))
            return region_watch(r, ret_why);
        region_close(r);
    }
    if (!region_open(r, kind, "tern-pages", bytes, false) || !region_fill(r, workers, huge))
        return region_why(kind == REGION_SHARED ? "page memory" : "host memory", ret_why);
    return region_watch(r, ret_why);
}

enum tern_err region_create_control(struct region *r, uint64_t bytes, struct workers *workers,
                                    const char **ret_why)
{
    if (!region_open(r, REGION_SHARED, "tern-control", bytes, false) ||
        !region_fill(r, workers, false))
        return region_why("control page", ret_why);
    return region_watch(r, ret_why);
}

/* ------------------------------------------------------------------ how much there is */

enum tern_err region_memory_suffices(uint64_t need, const char **ret_why)
{
    uint64_t kib, have = UINT64_MAX;
    struct cgroup_memory group;

    if (file_number("/proc/meminfo", "MemAvailable:", 10, &kib))
        have = kib << 10;
    cgroup_memory(CGROUP_ROOT, &group);
    have = group.left < have ? group.left : have;
    if (need <= have && have - need >= KEEP_FREE_BYTES)
        return TERN_OK;
    snprintf(why_text, sizeof why_text,
             "too little memory: %llu MiB of pages are configured, %llu MiB are available: lower "
             "the tenants' memory and host_memory or give the machine or its cgroup more",
             (unsigned long long)(need >> 20), (unsigned long long)(have >> 20));
    *ret_why = why_text;
    return TERN_INVALID;
}

/* Neighbours of the same kind are one mapping to the kernel, so a line may begin before a region.
 */
static bool line_is_of(const char *line, const struct region *regions, size_t n)
{
    unsigned long long from, to;

    if (sscanf(line, "%llx-%llx", &from, &to) != 2)
        return false;
    for (size_t i = 0; i < n; i++) {
        uintptr_t base = (uintptr_t)regions[i].base;

        if (base && base < to && from < base + regions[i].bytes)
            return true;
    }
    return false;
}

uint64_t region_huge_bytes(const struct region *regions, size_t n)
{
    static const char *const keys[] = {
        "ShmemPmdMapped:", "AnonHugePages:", "Shared_Hugetlb:", "Private_Hugetlb:"};
    char line[512];
    uint64_t bytes = 0;
    bool ours = false;
    FILE *f = fopen("/proc/self/smaps", "re");

    if (!f)
        return 0;
    while (fgets(line, sizeof line, f)) {
        unsigned long long kib;

        if (line[0] < 'A' || line[0] > 'Z') {
            ours = line_is_of(line, regions, n);
            continue;
        }
        for (size_t k = 0; ours && k < sizeof keys / sizeof keys[0]; k++)
            if (strncmp(line, keys[k], strlen(keys[k])) == 0 &&
                sscanf(line + strlen(keys[k]), "%llu", &kib) == 1)
                bytes += kib << 10;
    }
    fclose(f);
    return bytes;
}
