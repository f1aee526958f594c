/* Page memory: a sealed memfd, or an allocation of a GPU, for each (tenant, region), private memory
 * for the host tier of each, and a memfd for each control page: one for each engine slot and
 * tenant. Called by the shell's owner thread and by xfer.
 *
 * Invariant: nothing is allocated or mapped after mem_create; no descriptor refers to a host tier;
 * a job of the workers has its own copy of the places of its pools; after the start the owner
 * thread makes no call to a device, which may answer late. */
#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/brought.h"
#include "base/check.h"
#include "base/err.h"
#include "kernels/driver.h"
#include "seam/io/io.h"
#include "seam/mem/cuda/mem_cuda.h"
#include "seam/mem/mem.h"
#include "seam/mem/mem_fault.h"
#include "seam/mem/mem_region.h"
#include "seam/mem/mem_touch.h"
#include "seam/mem/workers.h"
#include "seam/own_threads.h"

#define PAGE_BYTES       4096u /* to which memory is rounded up */
#define CONTROL_STRIDE   64u   /* bytes from one rank's done_step to the next: a cache line each */
#define REGION_BYTES_MAX (1ull << 46) /* so that sums over tenants and regions do not wrap */
#define ENGINES_MAX      64u          /* the core's ENGINES_LIMIT */
#define TIERS            2
#define WAIT_SHARE       200u /* the owner waits 0.5 % of the time for a tenant's control pages */

#define CONTROL_INCARNATION RANKS_MAX /* lines after those of the ranks */
#define CONTROL_WANTED      (RANKS_MAX + 1)
static_assert(CONTROL_STRIDE * CONTROL_WANTED + sizeof(uint64_t) <= CONTROL_BYTES, "a line each");
static_assert(MEM_TENANTS_MAX * ((TIERS + 1) * RANKS_MAX + 1 + ENGINES_MAX) <= MEM_FAULT_RANGES_MAX,
              "every region, its brought checksums and every control page is watched");

struct mem {
    struct mem_config config;
    union {
        struct {
            struct region region[TIERS][MEM_TENANTS_MAX][RANKS_MAX]; /* by enum tier */
            struct region record[MEM_TENANTS_MAX];
            struct region brought[MEM_TENANTS_MAX][RANKS_MAX]; /* by region */
        };
        struct region each[MEM_TENANTS_MAX * ((TIERS + 1) * RANKS_MAX + 1)]; /* all of these */
    };
    struct region *control;  /* owned, [tenant * config.engines + engine] */
    struct pool_place *pool; /* owned, config.pools */
    uint64_t *sums;          /* owned, page_records * sums_per_page */
    struct workers *workers;
    struct cuda *cuda;              /* owned; NULL: no memory of GPUs */
    struct workers *device_workers; /* owned; for pools on GPUs; NULL: none */
    const struct cuda_region *on_device[MEM_TENANTS_MAX][RANKS_MAX]; /* borrowed from it */
    uint64_t devices_told; /* a bit for each device whose loss was reported */
    int event_fd;
    uint64_t copies;                        /* jobs so far */
    struct mem_stats stats;                 /* without the devices' part, and without faults */
    uint64_t untouched_ns[MEM_TENANTS_MAX]; /* the owner touches no control page before then */
};

static uint64_t tier_bytes(const struct tenant_config *t, enum tier tier)
{
    return tier == TIER_HOST ? t->host_bytes : t->memory_bytes;
}

static bool on_devices(const struct mem_config *c, uint32_t tenant)
{
    return c->device[tenant] != NULL;
}

/* Returns the number of regions on devices, an upper bound of the number of devices. */
static uint32_t device_regions(const struct mem_config *c)
{
    uint32_t n = 0;

    for (uint32_t t = 0; t < c->tenants; t++)
        n += on_devices(c, t) ? c->tenant[t].regions : 0;
    return n;
}

static uint32_t controls(const struct mem *mem)
{
    return mem->config.tenants * mem->config.engines;
}

/* ------------------------------------------------------------------ create */

static enum tern_err config_check(const struct mem_config *c, const char **ret_why)
{
    bool ok = c->tenants >= 1 && c->tenants <= MEM_TENANTS_MAX && c->engines >= 1 &&
              c->engines <= ENGINES_MAX && c->pools >= 1 && c->page_records >= 1 &&
              c->sums_per_page >= 1 && c->jobs >= 1 && c->workers <= MEM_WORKERS_MAX;

    for (uint32_t t = 0; ok && t < c->tenants; t++)
        ok = c->tenant[t].memory_bytes > 0 && c->tenant[t].memory_bytes <= REGION_BYTES_MAX &&
             c->tenant[t].host_bytes <= REGION_BYTES_MAX &&
             c->tenant[t].record_bytes <= REGION_BYTES_MAX && c->tenant[t].regions >= 1 &&
             c->tenant[t].regions <= RANKS_MAX && c->page_bytes_min >= 1;
    *ret_why = "a limit of the page memory is 0 or too large";
    return ok ? TERN_OK : TERN_INVALID;
}

/* Returns the units of a page in one region, if all regions have equally many. */
static uint32_t brought_units(const struct mem_config *c, uint32_t tenant)
{
    uint32_t units = c->sums_per_page / c->tenant[tenant].regions;

    return units ? units : 1;
}

static uint64_t brought_bytes(const struct mem_config *c, uint32_t tenant)
{
    uint64_t entries = brought_entry(c->tenant[tenant].memory_bytes, c->page_bytes_min);

    return (entries ? entries : 1) * brought_entry_bytes(brought_units(c, tenant));
}

static uint64_t region_bytes(uint64_t bytes)
{
    return (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
}

void mem_bytes(const struct mem_config *c, uint64_t *ret_pages, uint64_t *ret_host,
               uint64_t *ret_records, uint64_t *ret_tables)
{
    uint32_t devices = device_regions(c) < CUDA_DEVICES_MAX ? device_regions(c) : CUDA_DEVICES_MAX;
    uint64_t brought = 0;

    *ret_pages = *ret_host = *ret_records = 0;
    for (uint32_t t = 0; t < c->tenants; t++) {
        if (!on_devices(c, t))
            *ret_pages += region_bytes(c->tenant[t].memory_bytes) * c->tenant[t].regions;
        brought += region_bytes(brought_bytes(c, t)) * c->tenant[t].regions;
        *ret_host += region_bytes(c->tenant[t].host_bytes) * c->tenant[t].regions;
        *ret_records += region_bytes(c->tenant[t].record_bytes);
    }
    *ret_tables = (uint64_t)c->page_records * c->sums_per_page * sizeof(uint64_t) +
                  workers_bytes(c->jobs) + (devices ? workers_bytes(c->jobs) : 0) +
                  cuda_staging_bytes(devices) + brought + c->pools * sizeof(struct pool_place) +
                  sizeof(struct mem) +
                  (uint64_t)c->tenants * c->engines * (CONTROL_BYTES + sizeof(struct region));
}

static enum tern_err create_region(struct mem *mem, struct region *r, enum region_kind kind,
                                   uint64_t bytes, const char **ret_why)
{
    TRY(region_create(r, kind, bytes,
                      mem->config.huge_pages && kind != REGION_CONTROL && kind != REGION_SUMS,
                      mem->workers, ret_why));
    mem->stats.holes.memories += r->holes;
    return TERN_OK;
}

static enum tern_err create_on_devices(struct mem *mem, uint32_t tenant, const char **ret_why)
{
    const struct tenant_config *t = &mem->config.tenant[tenant];

    for (uint32_t i = 0; i < t->regions; i++) {
        const struct cuda_region *made;

        TRY(cuda_region_create(mem->cuda, mem->config.device[tenant][i], t->memory_bytes, &made,
                               ret_why));
        mem->on_device[tenant][i] = made;
        mem->region[TIER_DEVICE][tenant][i] = (struct region){
            .kind = REGION_DEVICE, .fd = made->fd, .base = made->base, .bytes = made->bytes};
        mem->stats.bytes += made->bytes;
        mem->stats.device_bytes += made->bytes;
    }
    return TERN_OK;
}

/* Creates n regions; none if `bytes` is 0. */
static enum tern_err create_each(struct mem *mem, struct region *r, uint32_t n,
                                 enum region_kind kind, uint64_t bytes, uint64_t *total,
                                 const char **ret_why)
{
    for (uint32_t i = 0; i < n && bytes > 0; i++) {
        TRY(create_region(mem, &r[i], kind, bytes, ret_why));
        *total += r[i].bytes;
    }
    return TERN_OK;
}

static enum tern_err create_tenant(struct mem *mem, uint32_t tenant, const char **ret_why)
{
    const struct tenant_config *t = &mem->config.tenant[tenant];
    uint64_t sums = 0;

    if (!on_devices(&mem->config, tenant))
        TRY(create_each(mem, mem->region[TIER_DEVICE][tenant], t->regions, REGION_SHARED,
                        t->memory_bytes, &mem->stats.bytes, ret_why));
    TRY(create_each(mem, mem->region[TIER_HOST][tenant], t->regions, REGION_PRIVATE, t->host_bytes,
                    &mem->stats.host_bytes, ret_why));
    TRY(create_each(mem, mem->brought[tenant], t->regions, REGION_SUMS,
                    brought_bytes(&mem->config, tenant), &sums, ret_why));
    return create_each(mem, &mem->record[tenant], 1, REGION_SHARED, t->record_bytes,
                       &mem->stats.record_bytes, ret_why);
}

static enum tern_err create_regions(struct mem *mem, const char **ret_why)
{
    const struct mem_config *c = &mem->config;
    uint64_t need = 0, before = region_huge_bytes(), huge;

    for (uint32_t t = 0; t < c->tenants; t++)
        need += ((on_devices(c, t) ? 0 : c->tenant[t].memory_bytes) + c->tenant[t].host_bytes) *
                    c->tenant[t].regions +
                c->tenant[t].record_bytes;
    TRY(region_memory_suffices(need, ret_why));
    for (uint32_t t = 0; t < c->tenants; t++)
        TRY(create_tenant(mem, t, ret_why));
    huge = region_huge_bytes();
    mem->stats.huge_page_bytes = c->huge_pages && huge > before ? huge - before : 0;
    return TERN_OK;
}

static enum tern_err create_controls(struct mem *mem, const char **ret_why)
{
    for (uint32_t i = 0; i < controls(mem); i++) {
        TRY(create_region(mem, &mem->control[i], REGION_CONTROL, CONTROL_BYTES, ret_why));
        mem_control_reset(mem, i / mem->config.engines, i % mem->config.engines);
    }
    return TERN_OK;
}

static enum tern_err create_tables(struct mem *mem, const char **ret_why)
{
    const struct mem_config *c = &mem->config;
    uint32_t threads = c->workers ? c->workers : 1;

    *ret_why = "no memory for the tables of the page memory";
    mem->control = calloc(controls(mem), sizeof *mem->control);
    for (uint32_t i = 0; mem->control && i < controls(mem); i++)
        mem->control[i] = REGION_NONE;
    mem->pool = calloc(c->pools, sizeof *mem->pool);
    mem->sums = calloc((size_t)c->page_records * c->sums_per_page, sizeof *mem->sums);
    if (!mem->control || !mem->pool || !mem->sums)
        return TERN_INTERNAL;
    mem->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (mem->event_fd < 0)
        return region_why("eventfd", ret_why);
    return workers_create(threads, c->jobs, mem->event_fd, &mem->stats, &mem->workers, ret_why);
}

/* Runs before memory of the host is made: a missing device must fail before minutes of zeroing. */
static enum tern_err create_devices(struct mem *mem, const char **ret_why)
{
    const struct mem_config *c = &mem->config;

    if (device_regions(c) == 0)
        return TERN_OK;
    TRY(cuda_create(c->cuda_library ? c->cuda_library : DRIVER_LIBRARY, mem->event_fd,
                    c->device_wait_ms ? c->device_wait_ms : CUDA_WAIT_MS, &mem->cuda, ret_why));
    for (uint32_t t = 0; t < c->tenants; t++)
        if (on_devices(c, t))
            TRY(create_on_devices(mem, t, ret_why));
    cuda_peers_open(mem->cuda, c->no_peers);
    return workers_create(CUDA_LANES, c->jobs, mem->event_fd, &mem->stats, &mem->device_workers,
                          ret_why);
}

enum tern_err mem_create(const struct mem_config *config, struct mem **ret, const char **ret_why)
{
    struct mem *mem;
    sigset_t before;
    enum tern_err err;

    TRY(config_check(config, ret_why));
    mem = calloc(1, sizeof *mem);
    if (!mem) {
        *ret_why = "no memory for the tables of the page memory";
        return TERN_INTERNAL;
    }
    mem->config = *config;
    mem->event_fd = -1;
    for (size_t i = 0; i < sizeof mem->each / sizeof *mem->each; i++)
        mem->each[i] = REGION_NONE;
    err = create_tables(mem, ret_why);
    if (err == TERN_OK) /* first: too few descriptors must fail before minutes of zeroing */
        err = create_controls(mem, ret_why);
    own_threads_mask(&before); /* for CUDA's driver (mem_cuda.h) */
    if (err == TERN_OK)
        err = create_devices(mem, ret_why);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (err == TERN_OK)
        err = create_regions(mem, ret_why);
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
    workers_destroy(mem->device_workers);
    cuda_destroy(mem->cuda);
    for (size_t i = 0; i < sizeof mem->each / sizeof *mem->each; i++)
        region_close(&mem->each[i]);
    for (uint32_t i = 0; mem->control && i < controls(mem); i++)
        region_close(&mem->control[i]);
    if (mem->event_fd >= 0)
        close(mem->event_fd);
    free(mem->control);
    free(mem->pool);
    free(mem->sums);
    free(mem);
}

/* ------------------------------------------------------------------ pools and pages */

/* Returns where the entries of a pool at `offset` of its region begin. */
static uint64_t brought_at(const struct mem *mem, uint32_t tenant, uint64_t offset)
{
    return brought_entry(offset, mem->config.page_bytes_min) *
           brought_entry_bytes(brought_units(&mem->config, tenant));
}

struct mem_brought mem_brought(const struct mem *mem, uint32_t tenant, uint32_t region,
                               uint64_t offset)
{
    check(tenant < mem->config.tenants && region < mem->config.tenant[tenant].regions);
    return (struct mem_brought){.fd = mem->brought[tenant][region].fd,
                                .offset = brought_at(mem, tenant, offset),
                                .entry_bytes =
                                    brought_entry_bytes(brought_units(&mem->config, tenant)),
                                .page_bytes = mem->config.page_bytes_min};
}

void mem_pool_set(struct mem *mem, uint32_t pool, enum tier tier, uint32_t tenant, uint64_t offset,
                  uint64_t bytes, uint32_t regions, const uint8_t *region,
                  uint32_t transfer_regions, uint32_t ngroups, const struct group_layout *groups)
{
    struct pool_place *place;
    uint64_t have;

    check(pool < mem->config.pools && tenant < mem->config.tenants && (uint32_t)tier < TIERS);
    check(regions >= 1 && regions <= mem->config.tenant[tenant].regions);
    check(transfer_regions == regions || transfer_regions == 1);
    check(ngroups >= 1 && ngroups <= GROUPS_MAX);
    have = tier_bytes(&mem->config.tenant[tenant], tier);
    check(offset <= have && bytes <= have - offset);
    place = &mem->pool[pool];
    memset(place, 0, sizeof *place);
    place->tier = tier;
    place->bytes = bytes;
    place->tenant = tenant;
    place->regions = regions;
    place->transfer_regions = transfer_regions;
    place->ngroups = ngroups;
    place->far = tier == TIER_DEVICE && on_devices(&mem->config, tenant) ? mem_far(mem) : NULL;
    place->brought_entry_bytes = brought_entry_bytes(brought_units(&mem->config, tenant));
    place->page_bytes_min = mem->config.page_bytes_min;
    for (uint32_t g = 0; g < ngroups; g++) {
        check(groups[g].units >= 1 && groups[g].page_bytes >= groups[g].units);
        check((uint64_t)groups[g].units * regions <= mem->config.sums_per_page);
        place->group[g] = groups[g];
    }
    for (uint32_t r = 0; r < regions; r++) {
        uint8_t at = region ? region[r] : (uint8_t)r;

        check(at < mem->config.tenant[tenant].regions);
        place->region[r] = at;
        place->base[r] = mem->region[tier][tenant][at].base + offset;
        if (tier == TIER_DEVICE)
            place->brought[r] = mem->brought[tenant][at].base + brought_at(mem, tenant, offset);
    }
}

const struct pool_place *mem_place(const struct mem *mem, uint32_t pool)
{
    check(pool < mem->config.pools && mem->pool[pool].regions > 0);
    return &mem->pool[pool];
}

void *mem_page(const struct mem *mem, uint32_t pool, uint32_t region, uint32_t group,
               uint32_t index)
{
    const struct pool_place *place = mem_place(mem, pool);
    uint64_t page_bytes;

    check(region < place->regions && group < place->ngroups);
    page_bytes = place->group[group].page_bytes;
    check(index < place->bytes / page_bytes);
    return place->base[region] + index * page_bytes;
}

uint8_t *mem_region_base(const struct mem *mem, uint32_t tenant, uint32_t region,
                         uint64_t *ret_bytes)
{
    check(tenant < mem->config.tenants && region < mem->config.tenant[tenant].regions);
    *ret_bytes = mem->config.tenant[tenant].memory_bytes;
    return mem->region[TIER_DEVICE][tenant][region].base;
}

uint64_t mem_unheld_bytes(const struct mem *mem)
{
    return mem->config.page_bytes_min;
}

uint32_t mem_region_count(const struct mem *mem, uint32_t tenant)
{
    check(tenant < mem->config.tenants);
    return mem->config.tenant[tenant].regions;
}

/* Gets the view of the region's GPU. Returns false for memory of the host. */
static bool region_view(const struct mem *mem, uint32_t tenant, uint32_t region,
                        struct mem_device_view *ret)
{
    check(tenant < mem->config.tenants && region < mem->config.tenant[tenant].regions);
    if (!on_devices(&mem->config, tenant))
        return false;
    check(cuda_device_view(mem->cuda, mem->on_device[tenant][region]->device, ret));
    return true;
}

const char *mem_region_device(const struct mem *mem, uint32_t tenant, uint32_t region,
                              uint64_t *ret_bytes, bool *ret_lost)
{
    struct mem_device_view view;

    if (!region_view(mem, tenant, region, &view))
        return NULL;
    if (ret_bytes)
        *ret_bytes = mem->on_device[tenant][region]->bytes;
    if (ret_lost)
        *ret_lost = view.lost != NULL;
    return view.uuid;
}

enum tern_err mem_region_export(struct mem *mem, uint32_t tenant, uint32_t region, bool pcie,
                                int *ret_fd, const char **ret_why)
{
    sigset_t before;
    enum tern_err err;

    check(on_devices(&mem->config, tenant));
    own_threads_mask(&before);
    err = cuda_region_export(mem->cuda, mem->on_device[tenant][region], pcie, ret_fd, ret_why);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return err;
}

const char *mem_region_pci(const struct mem *mem, uint32_t tenant, uint32_t region)
{
    struct mem_device_view view;

    return region_view(mem, tenant, region, &view) ? view.pci : NULL;
}

bool mem_device_view(const struct mem *mem, uint32_t device, struct mem_device_view *ret)
{
    return mem->cuda && cuda_device_view(mem->cuda, device, ret);
}

const char *mem_no_peers(const struct mem *mem, uint32_t device, uint32_t other)
{
    return cuda_no_peers(mem->cuda, device, other);
}

bool mem_device_lost(struct mem *mem, const char **ret_uuid, const char **ret_why)
{
    struct mem_device_view view;

    for (uint32_t i = 0; mem->cuda && cuda_device_view(mem->cuda, i, &view); i++)
        if (view.lost && !(mem->devices_told >> i & 1)) {
            mem->devices_told |= UINT64_C(1) << i;
            *ret_uuid = view.uuid;
            *ret_why = view.lost;
            return true;
        }
    return false;
}

const struct mem_far *mem_far(const struct mem *mem)
{
    return mem->cuda ? cuda_far(mem->cuda) : NULL;
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

bool mem_has_unstarted(const struct mem *mem)
{
    return workers_has_unstarted(mem->workers) ||
           (mem->device_workers && workers_has_unstarted(mem->device_workers));
}

void mem_start(struct mem *mem)
{
    workers_start(mem->workers);
    if (mem->device_workers)
        workers_start(mem->device_workers);
}

void mem_poll(struct mem *mem, void (*emit)(void *ctx, struct event *event), void *ctx)
{
    eventfd_clear(mem->event_fd);
    workers_poll(mem->workers, emit, ctx);
    if (mem->device_workers)
        workers_poll(mem->device_workers, emit, ctx);
}

static struct workers *workers_of(const struct mem *mem, const struct pool_place *place)
{
    return place->far ? mem->device_workers : mem->workers;
}

/* Pages come from the core, so a page outside its pool is our bug. */
static void check_pages(const struct mem *mem, const struct pool_place *place,
                        const struct page_at *pages, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        check(pages[i].group < place->ngroups && pages[i].record < mem->config.page_records);
        check(pages[i].index < place->bytes / place->group[pages[i].group].page_bytes);
    }
}

void mem_seal(struct mem *mem, struct seal_id job, uint32_t pool, const struct page_at *pages,
              uint32_t n)
{
    const struct pool_place *place = mem_place(mem, pool);

    check_pages(mem, place, pages, n);
    workers_seal(workers_of(mem, place), job, place, pages, n, mem->sums,
                 mem->config.sums_per_page);
}

void mem_copy(struct mem *mem, struct copy_id job, uint32_t from_pool, uint32_t to_pool,
              const struct page_at *from, const struct page_at *to, uint32_t n)
{
    const struct pool_place *source = mem_place(mem, from_pool), *target = mem_place(mem, to_pool);
    uint32_t every = mem->config.fault_copy_corrupt_every;
    bool spoil;

    check(source->regions == target->regions && source->ngroups == target->ngroups);
    check_pages(mem, source, from, n);
    check_pages(mem, target, to, n);
    for (uint32_t i = 0; i < n; i++) {
        const struct group_layout *a = &source->group[from[i].group];
        const struct group_layout *b = &target->group[to[i].group];

        check(from[i].group == to[i].group && from[i].record != to[i].record);
        check(a->page_bytes == b->page_bytes && a->units == b->units);
    }
    mem->copies++;
    spoil = every > 0 && n > 0 && mem->copies % every == 0;
    mem->stats.copies_spoilt += spoil ? 1 : 0;
    check(!source->far || !target->far);
    workers_copy(workers_of(mem, source->far ? source : target), job, source, target, from, to, n,
                 mem->sums, mem->config.sums_per_page, spoil);
}

void mem_zero(struct mem *mem, struct pool_id pool)
{
    workers_zero(workers_of(mem, mem_place(mem, pool.slot)), pool, mem_place(mem, pool.slot));
}

/* Runs come from the core, so a run outside the memory is our bug. */
static void check_section(const struct region *memory, const struct record_section *section)
{
    check(section->nruns <= RECORD_RUNS_MAX);
    for (uint32_t i = 0; i < section->nruns; i++)
        check(((uint64_t)section->run[i].first + section->run[i].n) * RECORD_PAGE_BYTES <=
              memory->bytes);
}

void mem_check_record(struct mem *mem, const struct record_job *job)
{
    const struct region *memory = &mem->record[job->tenant];

    check(job->tenant < mem->config.tenants && memory->base);
    check_section(memory, &job->before);
    check_section(memory, &job->own);
    workers_check_record(mem->workers, job, memory->base, mem->config.fault_checks_on_owner);
}

/* ------------------------------------------------------------------ descriptors, control pages */

int mem_region_fd(const struct mem *mem, uint32_t tenant, uint32_t region)
{
    check(tenant < mem->config.tenants && region < mem->config.tenant[tenant].regions);
    return mem->region[TIER_DEVICE][tenant][region].fd;
}

int mem_record_fd(const struct mem *mem, uint32_t tenant)
{
    check(tenant < mem->config.tenants);
    return mem->record[tenant].fd;
}

static struct region *control_of(const struct mem *mem, uint32_t tenant, uint32_t engine)
{
    check(tenant < mem->config.tenants && engine < mem->config.engines);
    return &mem->control[tenant * mem->config.engines + engine];
}

int mem_control_fd(const struct mem *mem, uint32_t tenant, uint32_t engine)
{
    return control_of(mem, tenant, engine)->fd;
}

static _Atomic uint64_t *control_word(const struct region *control, uint32_t line)
{
    check(line <= CONTROL_WANTED);
    return (_Atomic uint64_t *)(void *)(control->base + line * CONTROL_STRIDE);
}

struct control_touch {
    _Atomic uint64_t *word;
    uint64_t value;
    bool store; /* otherwise load */
};

static void control_access(void *ctx)
{
    struct control_touch *t = ctx;

    if (t->store)
        atomic_store_explicit(t->word, t->value, memory_order_release);
    else
        t->value = atomic_load_explicit(t->word, memory_order_acquire);
}

/* Invariant: the owner touches control pages here only. A page that cannot get a hole is resident,
 * so the touch never waits. After any other wait of w, unless it was a preemption, the owner does
 * not touch the tenant's control pages for WAIT_SHARE * w. Returns false if the page is untouched
 * or gone. */
static bool control_touch(struct mem *mem, uint32_t tenant, const struct region *control,
                          struct control_touch *t)
{
    uint64_t begun_ns, took_ns;
    struct rusage before, after;
    bool there;

    if (!control->holes)
        return mem_fault_try(control_access, t);
    begun_ns = io_now_ns();
    if (begun_ns < mem->untouched_ns[tenant])
        return false;
    getrusage(RUSAGE_THREAD, &before);
    there = mem_fault_try(control_access, t);
    getrusage(RUSAGE_THREAD, &after);
    if (after.ru_nvcsw != before.ru_nvcsw) {
        took_ns = io_now_ns() - begun_ns;
        mem->untouched_ns[tenant] = begun_ns + WAIT_SHARE * took_ns;
        mem->stats.holes.waits++;
        mem->stats.holes.waited_for = tenant;
        mem->stats.holes.waited_ns += took_ns;
    }
    return there;
}

static bool control_put(struct mem *mem, uint32_t tenant, const struct region *control,
                        uint32_t line, uint64_t value)
{
    struct control_touch t = {.word = control_word(control, line), .value = value, .store = true};

    return control_touch(mem, tenant, control, &t);
}

void mem_control_reset(struct mem *mem, uint32_t tenant, uint32_t engine)
{
    struct region *control = control_of(mem, tenant, engine);

    control->stale = false;
    for (uint32_t line = 0; line <= CONTROL_WANTED && !control->stale; line++)
        control->stale = !control_put(mem, tenant, control, line,
                                      line == CONTROL_INCARNATION ? mem->config.incarnation : 0);
}

uint64_t mem_done_step(struct mem *mem, uint32_t tenant, uint32_t engine, uint32_t rank)
{
    struct region *control = control_of(mem, tenant, engine);
    struct control_touch t = {.word = control_word(control, rank)};

    check(rank < RANKS_MAX);
    if (control->stale)
        mem_control_reset(mem, tenant, engine);
    /* If the page cannot be read, no step counts as done. */
    return !control->stale && control_touch(mem, tenant, control, &t) ? t.value : 0;
}

/* The fence orders this store before the later reads of done_step; a rank has a fence between its
 * store of done_step and its read of this word. So one of them sees the other's store. */
void mem_want_step(struct mem *mem, uint32_t tenant, uint32_t engine, uint64_t step)
{
    /* If the page is gone, no rank rings. */
    control_put(mem, tenant, control_of(mem, tenant, engine), CONTROL_WANTED, step);
    atomic_thread_fence(memory_order_seq_cst);
}

void mem_stats(const struct mem *mem, struct mem_stats *ret)
{
    struct mem_device_view view;

    *ret = mem->stats;
    for (; mem->cuda && cuda_device_view(mem->cuda, ret->devices, &view); ret->devices++) {
        ret->devices_lost += view.lost ? 1 : 0;
        ret->devices_with_kernels += view.no_kernels ? 0 : 1;
    }
    if (mem->cuda)
        cuda_work(mem->cuda, &ret->work);
    ret->faults = mem_fault_count();
}
