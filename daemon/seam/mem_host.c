/* Page memory of the host: a sealed memfd for each (tenant, region) and one for each engine's
 * control page. Called by the shell's owner thread and by xfer.
 *
 * What must stay true: a descriptor is handed out only after its memory is fully allocated and its
 * size is sealed, so no client can shrink it under us; nothing is allocated or mapped after
 * mem_create; a job of the workers carries its own copy of where the pool lies. */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/check.h"
#include "base/err.h"
#include "seam/mem.h"
#include "seam/mem_fault.h"
#include "seam/workers.h"

#define PAGE_BYTES       4096u
#define HUGE_BYTES       (2u << 20)
#define CONTROL_STRIDE   64u /* bytes from one rank's done_step to the next: a cache line each */
#define REGION_BYTES_MAX (1ull << 46) /* so that sums over tenants and regions do not wrap */
#define ENGINES_MAX      4096u
#define KEEP_FREE_BYTES  (64u << 20) /* left to the rest of the machine at the least */
#define SEALS            (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

struct region {
    int fd;
    uint8_t *base;  /* owned mapping; NULL where there is none */
    uint64_t bytes; /* of the mapping */
    bool hugetlb;
};

struct pool {
    bool set;
    struct pool_place place;
};

struct mem {
    struct mem_config config;
    struct region region[MEM_TENANTS_MAX][RANKS_MAX];
    struct region *control; /* owned, config.engines */
    struct pool *pool;      /* owned, config.pools */
    uint64_t *sums;         /* owned, page_records * sums_per_page */
    struct workers *workers;
    int event_fd;
    uint64_t bytes, huge_bytes;
};

static char
    why_text[256]; /* mem_create runs once, before there is a second thread that could ask */

/* ------------------------------------------------------------------ create: one region */

static void region_close(struct region *r)
{
    if (r->base) {
        mem_fault_unwatch(r->base);
        munmap(r->base, r->bytes);
    }
    if (r->fd >= 0)
        close(r->fd);
    *r = (struct region){.fd = -1};
}

/* Huge pages need an address that is a multiple of theirs, which mmap does not give by itself. */
static uint8_t *map_aligned(int fd, uint64_t bytes)
{
    uint64_t slack = bytes >= HUGE_BYTES ? HUGE_BYTES : 0;
    uint8_t *room =
        mmap(NULL, bytes + slack, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    uint8_t *at = room;

    if (room == MAP_FAILED)
        return NULL;
    if (slack) {
        at += (HUGE_BYTES - (uintptr_t)room % HUGE_BYTES) % HUGE_BYTES;
        if (at > room)
            munmap(room, (size_t)(at - room));
        munmap(at + bytes, (size_t)(room + slack - at));
    }
    if (mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
        munmap(at, bytes);
        return NULL;
    }
    return at;
}

static bool region_open(struct region *r, const char *name, uint64_t bytes, bool hugetlb)
{
    uint64_t unit = hugetlb ? HUGE_BYTES : PAGE_BYTES;

    *r = (struct region){.fd = -1, .hugetlb = hugetlb, .bytes = (bytes + unit - 1) / unit * unit};
    r->fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | (hugetlb ? MFD_HUGETLB : 0));
    if (r->fd < 0 || ftruncate(r->fd, (off_t)r->bytes) < 0)
        return false;
    r->base = map_aligned(r->fd, r->bytes);
    if (!r->base)
        return false;
    madvise(r->base, r->bytes, MADV_DONTFORK);
    madvise(r->base, r->bytes, MADV_DONTDUMP); /* a crash dump holds no tenant's bytes */
    return true;
}

/* Allocates every page, then seals the size. fallocate comes last: it finds everything there, and
 * proves it. */
static bool region_fill(struct region *r, struct workers *workers, bool huge)
{
    if (!workers_populate(workers, r->base, r->bytes, huge && !r->hugetlb))
        return false;
    if (fallocate(r->fd, 0, 0, (off_t)r->bytes) < 0 && errno != EOPNOTSUPP)
        return false;
    return fcntl(r->fd, F_ADD_SEALS, SEALS) == 0;
}

static enum tern_err why_errno(const char *what, const char **ret_why)
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

/* Huge pages of the hugetlb pool first, where they are wanted; plain pages otherwise. What was got
 * is counted. */
static enum tern_err region_create(struct mem *mem, struct region *r, uint64_t bytes,
                                   const char **ret_why)
{
    bool huge = mem->config.huge_pages;

    if (huge && region_open(r, "tern-pages", bytes, true)) {
        if (region_fill(r, mem->workers, true))
            goto filled;
    }
    if (huge)
        region_close(r);
    if (!region_open(r, "tern-pages", bytes, false) || !region_fill(r, mem->workers, huge))
        return why_errno("page memory", ret_why);
filled:
    if (!mem_fault_watch(r->base, r->bytes, r->hugetlb ? HUGE_BYTES : PAGE_BYTES))
        return why_errno("SIGBUS handler", ret_why);
    mem->bytes += r->bytes;
    return TERN_OK;
}

/* ------------------------------------------------------------------ create: how much there is */

static uint64_t file_number(const char *path, const char *key)
{
    char line[256];
    unsigned long long value = UINT64_MAX;
    FILE *f = fopen(path, "re");

    if (!f)
        return UINT64_MAX;
    while (fgets(line, sizeof line, f)) {
        if (strncmp(line, key, strlen(key)) == 0 && sscanf(line + strlen(key), "%llu", &value) == 1)
            break;
    }
    fclose(f);
    return value;
}

/* Linux hands out more than there is and kills later, so what does not fit is refused beforehand.
 */
static enum tern_err memory_suffices(uint64_t need, const char **ret_why)
{
    uint64_t kib = file_number("/proc/meminfo", "MemAvailable:");
    uint64_t have = kib == UINT64_MAX ? UINT64_MAX : kib << 10;
    uint64_t max = file_number("/sys/fs/cgroup/memory.max", "");
    uint64_t used = file_number("/sys/fs/cgroup/memory.current", "");

    if (max != UINT64_MAX && used != UINT64_MAX) {
        uint64_t left = max > used ? max - used : 0;

        have = left < have ? left : have;
    }
    if (need <= have && have - need >= KEEP_FREE_BYTES)
        return TERN_OK;
    snprintf(why_text, sizeof why_text,
             "too little memory: %llu MiB of pages are configured, %llu MiB are available: lower "
             "the tenants' memory or give the machine or its cgroup more",
             (unsigned long long)(need >> 20), (unsigned long long)(have >> 20));
    *ret_why = why_text;
    return TERN_INTERNAL;
}

static bool maps_line_of(const char *line, const struct mem *mem)
{
    unsigned long long from;

    if (sscanf(line, "%llx-", &from) != 1)
        return false;
    for (uint32_t t = 0; t < mem->config.tenants; t++)
        for (uint32_t r = 0; r < mem->config.tenant[t].regions; r++)
            if ((uintptr_t)mem->region[t][r].base == from)
                return true;
    return false;
}

static uint64_t count_huge(const struct mem *mem)
{
    char line[512];
    uint64_t bytes = 0;
    bool ours = false;
    FILE *f = fopen("/proc/self/smaps", "re");

    if (!f)
        return 0;
    while (fgets(line, sizeof line, f)) {
        unsigned long long kib;

        if (line[0] >= 'A' && line[0] <= 'Z') {
            if (ours && (sscanf(line, "ShmemPmdMapped: %llu", &kib) == 1 ||
                         sscanf(line, "Shared_Hugetlb: %llu", &kib) == 1 ||
                         sscanf(line, "Private_Hugetlb: %llu", &kib) == 1))
                bytes += kib << 10;
        } else {
            ours = maps_line_of(line, mem);
        }
    }
    fclose(f);
    return bytes;
}

/* ------------------------------------------------------------------ create */

static enum tern_err config_check(const struct mem_config *c, const char **ret_why)
{
    bool ok = c->tenants >= 1 && c->tenants <= MEM_TENANTS_MAX && c->engines >= 1 &&
              c->engines <= ENGINES_MAX && c->pools >= 1 && c->page_records >= 1 &&
              c->sums_per_page >= 1 && c->jobs >= 1 && c->workers <= WORKERS_MAX;

    for (uint32_t t = 0; ok && t < c->tenants; t++)
        ok = c->tenant[t].memory_bytes > 0 && c->tenant[t].memory_bytes <= REGION_BYTES_MAX &&
             c->tenant[t].regions >= 1 && c->tenant[t].regions <= RANKS_MAX;
    *ret_why = "a limit of the page memory is 0 or too large";
    return ok ? TERN_OK : TERN_INVALID;
}

static enum tern_err create_regions(struct mem *mem, const char **ret_why)
{
    const struct mem_config *c = &mem->config;
    uint64_t need = 0;

    for (uint32_t t = 0; t < c->tenants; t++) {
        need += c->tenant[t].memory_bytes * c->tenant[t].regions;
    }
    TRY(memory_suffices(need, ret_why));
    for (uint32_t t = 0; t < c->tenants; t++)
        for (uint32_t r = 0; r < c->tenant[t].regions; r++)
            TRY(region_create(mem, &mem->region[t][r], c->tenant[t].memory_bytes, ret_why));
    mem->huge_bytes = c->huge_pages ? count_huge(mem) : 0;
    return TERN_OK;
}

static enum tern_err create_controls(struct mem *mem, const char **ret_why)
{
    for (uint32_t e = 0; e < mem->config.engines; e++) {
        struct region *r = &mem->control[e];

        if (!region_open(r, "tern-control", CONTROL_BYTES, false) ||
            !region_fill(r, mem->workers, false))
            return why_errno("control page", ret_why);
        if (!mem_fault_watch(r->base, r->bytes, PAGE_BYTES))
            return why_errno("SIGBUS handler", ret_why);
        mem_control_reset(mem, e);
    }
    return TERN_OK;
}

static enum tern_err create_tables(struct mem *mem, const char **ret_why)
{
    const struct mem_config *c = &mem->config;
    uint32_t threads = c->workers ? c->workers : 1;

    *ret_why = "no memory for the tables of the page memory";
    mem->control = calloc(c->engines, sizeof *mem->control);
    mem->pool = calloc(c->pools, sizeof *mem->pool);
    mem->sums = calloc((size_t)c->page_records * c->sums_per_page, sizeof *mem->sums);
    if (!mem->control || !mem->pool || !mem->sums)
        return TERN_INTERNAL;
    for (uint32_t e = 0; e < c->engines; e++)
        mem->control[e].fd = -1;
    mem->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (mem->event_fd < 0)
        return why_errno("eventfd", ret_why);
    return workers_create(threads, c->jobs, mem->event_fd, &mem->workers, ret_why);
}

enum tern_err mem_create(const struct mem_config *config, struct mem **ret, const char **ret_why)
{
    struct mem *mem;
    enum tern_err err;

    TRY(config_check(config, ret_why));
    mem = calloc(1, sizeof *mem);
    if (!mem) {
        *ret_why = "no memory for the tables of the page memory";
        return TERN_INTERNAL;
    }
    mem->config = *config;
    mem->event_fd = -1;
    for (uint32_t t = 0; t < MEM_TENANTS_MAX; t++)
        for (uint32_t r = 0; r < RANKS_MAX; r++)
            mem->region[t][r].fd = -1;
    err = create_tables(mem, ret_why);
    if (err == TERN_OK)
        err = create_regions(mem, ret_why);
    if (err == TERN_OK)
        err = create_controls(mem, ret_why);
    if (err != TERN_OK) {
        mem_destroy(mem);
        return err;
    }
    *ret_why = NULL;
    *ret = mem;
    return TERN_OK;
}

void mem_destroy(struct mem *mem)
{
    if (!mem)
        return;
    workers_destroy(mem->workers); /* first: they touch everything below */
    for (uint32_t t = 0; t < MEM_TENANTS_MAX; t++)
        for (uint32_t r = 0; r < RANKS_MAX; r++)
            region_close(&mem->region[t][r]);
    for (uint32_t e = 0; mem->control && e < mem->config.engines; e++)
        region_close(&mem->control[e]);
    if (mem->event_fd >= 0)
        close(mem->event_fd);
    free(mem->control);
    free(mem->pool);
    free(mem->sums);
    free(mem);
}

/* ------------------------------------------------------------------ pools and pages */

void mem_pool_set(struct mem *mem, uint32_t pool, enum tier tier, uint32_t tenant, uint64_t offset,
                  uint64_t bytes, uint32_t regions, uint32_t ngroups,
                  const struct group_layout *groups)
{
    struct pool_place *place;

    check(pool < mem->config.pools && tenant < mem->config.tenants && tier == TIER_DEVICE);
    check(regions >= 1 && regions <= mem->config.tenant[tenant].regions);
    check(ngroups >= 1 && ngroups <= GROUPS_MAX);
    check(offset <= mem->config.tenant[tenant].memory_bytes &&
          bytes <= mem->config.tenant[tenant].memory_bytes - offset);
    place = &mem->pool[pool].place;
    memset(place, 0, sizeof *place);
    place->bytes = bytes;
    place->tenant = tenant;
    place->regions = regions;
    place->ngroups = ngroups;
    for (uint32_t g = 0; g < ngroups; g++) {
        check(groups[g].units >= 1 && groups[g].page_bytes >= groups[g].units);
        check((uint64_t)groups[g].units * regions <= mem->config.sums_per_page);
        place->group[g] = groups[g];
    }
    for (uint32_t r = 0; r < regions; r++)
        place->base[r] = mem->region[tenant][r].base + offset;
    mem->pool[pool].set = true;
}

static const struct pool_place *place_of(const struct mem *mem, uint32_t pool)
{
    check(pool < mem->config.pools && mem->pool[pool].set);
    return &mem->pool[pool].place;
}

void *mem_page(const struct mem *mem, uint32_t pool, uint32_t region, uint32_t group,
               uint32_t index)
{
    const struct pool_place *place = place_of(mem, pool);
    uint64_t page_bytes;

    check(region < place->regions && group < place->ngroups);
    page_bytes = place->group[group].page_bytes;
    check(index < place->bytes / page_bytes);
    return place->base[region] + index * page_bytes;
}

uint64_t mem_page_bytes(const struct mem *mem, uint32_t pool, uint32_t group)
{
    const struct pool_place *place = place_of(mem, pool);

    check(group < place->ngroups);
    return place->group[group].page_bytes;
}

uint32_t mem_pool_regions(const struct mem *mem, uint32_t pool)
{
    return place_of(mem, pool)->regions;
}

uint32_t mem_units(const struct mem *mem, uint32_t pool, uint32_t group)
{
    const struct pool_place *place = place_of(mem, pool);

    check(group < place->ngroups);
    return place->group[group].units;
}

uint32_t mem_page_records(const struct mem *mem)
{
    return mem->config.page_records;
}

uint32_t mem_sums_per_page(const struct mem *mem)
{
    return mem->config.sums_per_page;
}

uint64_t *mem_sums(struct mem *mem, uint32_t record)
{
    check(record < mem->config.page_records);
    return mem->sums + (size_t)record * mem->config.sums_per_page;
}

/* ------------------------------------------------------------------ workers */

int mem_event_fd(const struct mem *mem)
{
    return mem->event_fd;
}

void mem_poll(struct mem *mem, void (*emit)(void *ctx, struct event *event), void *ctx)
{
    workers_poll(mem->workers, emit, ctx);
}

void mem_seal(struct mem *mem, struct id job, uint32_t pool, const struct page_at *pages,
              uint32_t n)
{
    const struct pool_place *place = place_of(mem, pool);

    for (uint32_t i = 0; i < n; i++) {
        check(pages[i].group < place->ngroups && pages[i].record < mem->config.page_records);
        check(pages[i].index < place->bytes / place->group[pages[i].group].page_bytes);
    }
    workers_seal(mem->workers, job, place, pages, n, mem->sums, mem->config.sums_per_page);
}

void mem_zero(struct mem *mem, struct id pool)
{
    workers_zero(mem->workers, pool, place_of(mem, pool.slot));
}

/* ------------------------------------------------------------------ descriptors and control pages
 */

int mem_region_fd(const struct mem *mem, uint32_t tenant, uint32_t region)
{
    check(tenant < mem->config.tenants && region < mem->config.tenant[tenant].regions);
    return mem->region[tenant][region].fd;
}

int mem_control_fd(const struct mem *mem, uint32_t engine)
{
    check(engine < mem->config.engines);
    return mem->control[engine].fd;
}

static _Atomic uint64_t *control_word(const struct mem *mem, uint32_t engine, uint32_t at)
{
    check(engine < mem->config.engines && at <= CONTROL_BYTES - sizeof(uint64_t));
    return (_Atomic uint64_t *)(void *)(mem->control[engine].base + at);
}

uint64_t mem_done_step(const struct mem *mem, uint32_t engine, uint32_t rank)
{
    check(rank < RANKS_MAX);
    return atomic_load_explicit(control_word(mem, engine, rank * CONTROL_STRIDE),
                                memory_order_acquire);
}

void mem_control_reset(struct mem *mem, uint32_t engine)
{
    for (uint32_t rank = 0; rank < RANKS_MAX; rank++)
        atomic_store_explicit(control_word(mem, engine, rank * CONTROL_STRIDE), 0,
                              memory_order_release);
    atomic_store_explicit(control_word(mem, engine, RANKS_MAX * CONTROL_STRIDE),
                          mem->config.incarnation, memory_order_release);
}

void mem_stats(const struct mem *mem, struct mem_stats *ret)
{
    struct workers_stats w;

    workers_stats(mem->workers, &w);
    ret->bytes = mem->bytes;
    ret->huge_page_bytes = mem->huge_bytes;
    ret->sealed_pages = w.sealed_pages;
    ret->zeroed_bytes = w.zeroed_bytes;
    ret->queue_high_water = w.queue_high_water;
    ret->faults = mem_fault_count();
}

void mem_copy(struct mem *mem, struct id job, uint32_t from_pool, uint32_t to_pool,
              const struct page_at *from, const struct page_at *to, uint32_t n)
{
    (void)mem, (void)job, (void)from_pool, (void)to_pool, (void)from, (void)to, (void)n;
}
