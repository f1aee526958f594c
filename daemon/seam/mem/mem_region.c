/* See mem_region.h. Invariant: a descriptor leaves here only after its memory is fully allocated,
 * its size is sealed, and its pages are fixed where the kernel can do that, so that no client can
 * remove a page that the daemon uses. A private region never has a descriptor. */
#include "seam/mem/mem_region.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/err.h"
#include "base/undumped.h"
#include "seam/mem/cgroup.h"
#include "seam/mem/mem_fault.h"
#include "seam/mem/numa.h"

#define PAGE_BYTES         4096u
#define HUGE_BYTES         (2u << 20)
#define KEEP_FREE_BYTES    (64u << 20) /* at least, for the rest of the machine */
#define ALLOCATE_TRIES_MAX 100u        /* interrupted by signals */
#define SEALS              (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

/* mem_create runs once, before a second thread exists that could use this. */
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

void region_close(struct region *r)
{
    if (r->kind == REGION_DEVICE)
        return;
    if (r->base) {
        mem_fault_unwatch(r->base);
        munmap(r->base, r->bytes);
    }
    if (r->fd >= 0)
        close(r->fd);
    *r = REGION_NONE;
}

/* Aligns the mapping to the size of huge pages, which mmap does not do by itself. */
static uint8_t *map_aligned(const struct region *r)
{
    int flags = r->kind != REGION_PRIVATE
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

static bool region_open(struct region *r, enum region_kind kind, uint64_t bytes, bool hugetlb)
{
    const char *name = kind == REGION_CONTROL ? "tern-control"
                       : kind == REGION_SUMS  ? "tern-sums"
                                              : "tern-pages";
    uint64_t unit = hugetlb ? HUGE_BYTES : PAGE_BYTES;

    *r = (struct region){
        .kind = kind, .fd = -1, .hugetlb = hugetlb, .bytes = (bytes + unit - 1) / unit * unit};
    if (kind != REGION_PRIVATE) {
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

/* A signal interrupts fallocate, which keeps what it has allocated. */
static bool allocate(int fd, uint64_t bytes)
{
    for (uint32_t i = 0; i < ALLOCATE_TRIES_MAX; i++)
        if (fallocate(fd, 0, 0, (off_t)bytes) == 0 || errno == EOPNOTSUPP)
            return true;
        else if (errno != EINTR)
            return false;
    return false;
}

/* A client can map a page as often as it likes, and the kernel visits every mapping of a page that
 * a hole removes, while a thread that touches the page waits. The pages of an immutable file cannot
 * be removed, by fallocate or by MADV_REMOVE, while its mappings stay writable. Setting or clearing
 * the flag takes CAP_LINUX_IMMUTABLE; files of hugetlb have no such flag. */
static bool fix_pages(int fd)
{
    return ioctl(fd, FS_IOC_SETFLAGS, &(int){FS_IMMUTABLE_FL}) == 0;
}

/* Allocates every page, then seals the size. fallocate comes last: it proves that all exist. */
static bool region_fill(struct region *r, struct workers *workers, bool huge)
{
    if (!workers_populate(workers, r->base, r->bytes, huge && !r->hugetlb)) {
        errno = ENOMEM; /* the worker's errno is not visible here */
        return false;
    }
    if (r->kind == REGION_PRIVATE)
        return true;
    if (!allocate(r->fd, r->bytes) || fcntl(r->fd, F_ADD_SEALS, SEALS) < 0)
        return false;
    r->holes = !fix_pages(r->fd);
    return true;
}

/* A private region is watched as well, so that lost memory costs only one page. */
static enum tern_err region_watch(struct region *r, const char **ret_why)
{
    if (!mem_fault_watch(r->base, r->bytes, r->hugetlb ? HUGE_BYTES : PAGE_BYTES,
                         r->kind != REGION_PRIVATE))
        return region_why("SIGBUS handler", ret_why);
    return TERN_OK;
}

enum tern_err region_create(struct region *r, enum region_kind kind, uint64_t bytes, bool huge,
                            struct workers *workers, const char **ret_why)
{
    static const char *const what[] = {[REGION_SHARED] = "page memory",
                                       [REGION_CONTROL] = "control page",
                                       [REGION_SUMS] = "memory for checksums of engines",
                                       [REGION_PRIVATE] = "host memory"};

    if (huge) {
        if (region_open(r, kind, bytes, true) && region_fill(r, workers, true))
            return region_watch(r, ret_why);
        region_close(r);
    }
    if (!region_open(r, kind, bytes, false) || !region_fill(r, workers, huge))
        return region_why(what[kind], ret_why);
    return region_watch(r, ret_why);
}

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

uint64_t region_huge_bytes(void)
{
    static const char *const keys[] = {
        "ShmemPmdMapped:", "AnonHugePages:", "Shared_Hugetlb:", "Private_Hugetlb:"};
    uint64_t bytes = 0, kib;

    for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++)
        if (file_number("/proc/self/smaps_rollup", keys[k], 10, &kib))
            bytes += kib << 10;
    return bytes;
}
