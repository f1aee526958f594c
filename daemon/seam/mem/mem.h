/* Page memory: owns the bytes of pages. Each (tenant, region) has one region of memory, reserved,
 * populated and sealed before it is shared, and one for the host tier, which no process can map;
 * pools are ranges of regions. A region lies in memory of the host (a memfd) or of a GPU
 * (seam/mem/cuda), the same for all regions of a tenant; the host tier is memory of the host. One
 * pool of threads computes checksums, copies between the tiers and zeroes; another does so for
 * devices, and waits for their copies; both report to the owner thread through an eventfd. All
 * functions are for the owner thread, except those that return where a page in use lies and
 * mem_spread, which data threads call for pages that they receive. None blocks or allocates after
 * mem_create, except the two for registration with NICs, at start. Only seam/mem/mem_touch.h
 * accesses the bytes of a page, since the CPU may not reach them. */
#ifndef SEAM_MEM_H
#define SEAM_MEM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/check.h"
#include "base/tern_err.h"
#include "core/core.h"

struct mem;
struct mem_far;

#define MEM_TENANTS_MAX  64
#define MEM_WORKERS_MAX  256
#define MEM_GPUS_MAX     64u /* that regions may lie on */
#define MEM_DEVICE_BYTES 64  /* of a device's UUID, with the NUL */
#define MEM_PCI_BYTES    20  /* of its PCI address, with the NUL */
/* One page for each engine: u64 done_step of rank r at 64 * r; u64 incarnation at 64 * RANKS_MAX;
 * then, at 64 * (RANKS_MAX + 1), the u64 step that the daemon waits for, 0 for none. */
#define CONTROL_BYTES 8192

struct mem_config {
    uint32_t tenants;
    struct tenant_config tenant[MEM_TENANTS_MAX];
    uint32_t engines; /* control pages of each tenant */
    uint32_t pools;
    uint32_t page_records;   /* core_limits.pages */
    uint32_t sums_per_page;  /* core_limits.sums_per_page */
    uint64_t page_bytes_min; /* core_limits.page_bytes_min */
    uint32_t workers;        /* threads; M13's default is min(16, cores) */
    uint32_t jobs; /* queued at most: core_limits.seal_jobs + copy_jobs + pools + record_jobs */
    uint64_t incarnation; /* written to each control page */
    bool huge_pages;      /* try; mem_stats has the result */
    /* For each tenant: the UUIDs of the GPUs that its regions lie on; NULL: in memory of the host.
     * Borrowed for the life of the mem, like the name of CUDA's library (NULL: the system's). */
    const char (*device[MEM_TENANTS_MAX])[MEM_DEVICE_BYTES];
    const char *cuda_library;
    bool no_peers; /* copies between GPUs go through memory of the host; peer access is not tried */
    uint32_t device_wait_ms; /* for a piece of a copy, before a GPU is lost; 0: a long time */
    uint32_t fault_copy_corrupt_every; /* fault injection: each n-th copy job writes one wrong byte,
                                          before the copy is hashed; 0: never */
    bool fault_checks_on_owner; /* fault injection: the owner checks turn records, so that the
                                   effect of the workers can be measured */
};

/* Computes the host memory that mem_create will allocate: for regions in it, host tiers, record
 * memory, and (ret_tables) for checksums, jobs, control pages and copies to devices. */
void mem_bytes(const struct mem_config *config, uint64_t *ret_pages, uint64_t *ret_host,
               uint64_t *ret_records, uint64_t *ret_tables);
/* *ret_why has the failure and what to do (too little memory, RLIMIT, no memfd). */
enum tern_err mem_create(const struct mem_config *config, struct mem **ret, const char **ret_why);
void mem_destroy(struct mem *mem); /* joins the workers */

int mem_event_fd(const struct mem *mem); /* readable when mem_poll has something */
/* Emits the results of finished jobs: EV_SEALED, EV_ZEROED, EV_COPIED. The caller sets now_ns. */
void mem_poll(struct mem *mem, void (*emit)(void *ctx, struct event *event), void *ctx);

/* Sets where a pool lies, before its first page is used, and again for each pool that opens in that
 * slot. `region`: the tenant's region of each rank; NULL: r for rank r. `transfer_regions`: the
 * regions that transfers carry: all, or 1 if all have the same bytes. From here on a region is
 * numbered by its rank: 0 is that of rank 0. */
void mem_pool_set(struct mem *mem, uint32_t pool, enum tier tier, uint32_t tenant, uint64_t offset,
                  uint64_t bytes, uint32_t regions, const uint8_t *region,
                  uint32_t transfer_regions, uint32_t ngroups, const struct group_layout *groups);
/* The place of a pool, and its layout. */
struct pool_place {
    uint64_t bytes; /* in one region */
    enum tier tier;
    uint32_t tenant, ngroups;
    uint32_t regions;          /* one for each rank; 0: the pool was never set */
    uint32_t transfer_regions; /* those that transfers carry */
    const struct mem_far *far; /* access to its bytes; NULL: by the CPU */
    uint32_t brought_entry_bytes;
    uint64_t page_bytes_min;
    /* The lists. The copy in a worker's job has only the first `regions` and `ngroups` entries. */
    uint8_t *base[RANKS_MAX];  /* first byte of the pool in each rank's region */
    uint8_t region[RANKS_MAX]; /* the tenant's region of each rank */
    /* In each region, the checksums that engines bring (base/brought.h): entries of
     * brought_entry_bytes, one for page_bytes_min of the pool. NULL: the host tier has none. */
    uint8_t *brought[RANKS_MAX];
    struct group_layout group[GROUPS_MAX];
};
/* The place of a pool that was set; valid until it is set again. */
const struct pool_place *mem_place(const struct mem *mem, uint32_t pool);
/* The pages of one of its groups, in one region. */
static inline const struct group_layout *mem_group(const struct mem *mem, uint32_t pool,
                                                   uint32_t group)
{
    const struct pool_place *place = mem_place(mem, pool);

    check(group < place->ngroups);
    return &place->group[group];
}

/* For mem_touch.h, and for the kernel where mem_far_at returns NULL. */
void *mem_page(const struct mem *mem, uint32_t pool, uint32_t region, uint32_t group,
               uint32_t index);
/* Copies an arrived, verified page and its checksums to the regions that transfers do not carry. On
 * any thread that is processing the page. Returns false if memory of those regions is gone. */
bool mem_spread(struct mem *mem, uint32_t pool, const struct page_at *page);
/* Return the bytes of one page that a transfer carries, and the number of their checksums. */
static inline uint64_t mem_transfer_bytes(const struct mem *mem, uint32_t pool, uint32_t group)
{
    return mem_group(mem, pool, group)->page_bytes * mem_place(mem, pool)->transfer_regions;
}
static inline uint32_t mem_transfer_sums(const struct mem *mem, uint32_t pool, uint32_t group)
{
    return mem_group(mem, pool, group)->units * mem_place(mem, pool)->transfer_regions;
}
uint32_t mem_page_records(const struct mem *mem); /* as configured */
/* A whole region of a tenant's device tier, for registration with a device. */
uint8_t *mem_region_base(const struct mem *mem, uint32_t tenant, uint32_t region,
                         uint64_t *ret_bytes);
uint32_t mem_region_count(const struct mem *mem, uint32_t tenant);
/* Returns how many bytes at the beginning of each region belong to no page: a pool that has these
 * bytes begins with them, and slab 0 of a pool, which is at least a page long, is never used. 0:
 * not known. */
uint64_t mem_unheld_bytes(const struct mem *mem);
/* The UUID of a region's GPU, and the bytes that processes map of the region; NULL: memory of the
 * host. *ret_lost: the GPU has failed, so nobody may map it. Either output may be NULL. */
const char *mem_region_device(const struct mem *mem, uint32_t tenant, uint32_t region,
                              uint64_t *ret_bytes, bool *ret_lost);
/* Exports a region on a GPU for registration with NICs, at start: a dma-buf whose first byte is the
 * region's; the caller closes *ret_fd. `pcie`: mapped through the GPU's BAR, even where another way
 * exists. UNSUPPORTED: *ret_why says what is missing, and is valid until the next call. */
enum tern_err mem_region_export(struct mem *mem, uint32_t tenant, uint32_t region, bool pcie,
                                int *ret_fd, const char **ret_why);
/* The place where engines store the checksums of pages that they wrote in the region, for a pool
 * that begins at `offset` of the region (base/brought.h). */
struct mem_brought {
    int fd;          /* borrowed */
    uint64_t offset; /* of the pool's first entry */
    uint32_t entry_bytes;
    uint64_t page_bytes; /* bytes of the pool for each entry */
};
struct mem_brought mem_brought(const struct mem *mem, uint32_t tenant, uint32_t region,
                               uint64_t offset);
/* The GPU's PCI address, as the driver writes it; "": not known. NULL: memory of the host. */
const char *mem_region_pci(const struct mem *mem, uint32_t tenant, uint32_t region);
/* A GPU that memory lies on. Returns false if `device` is too high. Any thread. */
struct mem_device_view {
    const char *uuid, *pci; /* pci: as mem_region_pci */
    const char *lost;       /* why: the call and its error; NULL: not lost */
    const char *no_kernels; /* why the CPU hashes its pages; NULL: its kernels do */
    struct mem_device_facts {
        int node; /* NUMA; -1: not known */
        int mps;  /* 1: our work there goes through MPS; 0: it does not; -1: not known */
        /* Of its memory: for regions and for kernels; without the driver's own. */
        uint64_t pool_bytes, kernel_bytes;
    } facts; /* as they were at the start */
};
bool mem_device_view(const struct mem *mem, uint32_t device, struct mem_device_view *ret);
/* Returns why copies between two GPUs that memory lies on go through memory of the host. NULL: they
 * use peer access. Any thread. */
const char *mem_no_peers(const struct mem *mem, uint32_t device, uint32_t other);
/* Returns a GPU that was lost since the last call, and why. Returns false if there is none. */
bool mem_device_lost(struct mem *mem, const char **ret_uuid, const char **ret_why);
uint32_t mem_sums_per_page(const struct mem *mem); /* as configured */

/* Checksums of a page, [region * units + unit]; owned by the seam, valid once the page was sealed
 * or verified. CHECKSUM_NONE: the page could not be read when it was to be sealed. */
uint64_t *mem_sums(struct mem *mem, uint32_t record);

void mem_seal(struct mem *mem, struct seal_id job, uint32_t pool, const struct page_at *pages,
              uint32_t n);
void mem_zero(struct mem *mem, struct pool_id pool);
/* Copies pages between the tiers, bytes and checksums, in every region, and hashes the copy:
 * EV_COPIED is CORRUPT if that does not agree with the checksums of `from`. Both pools have the
 * same groups. The page lists are copied. */
void mem_copy(struct mem *mem, struct copy_id job, uint32_t from_pool, uint32_t to_pool,
              const struct page_at *from, const struct page_at *to, uint32_t n);

/* Checks a turn record that its engine has written: EV_RECORD_CHECKED. The job is copied. */
void mem_check_record(struct mem *mem, const struct record_job *job);

/* Starts the jobs of the four calls above, which wake no thread themselves, so that many small jobs
 * of one turn cost one wake. */
void mem_start(struct mem *mem);
/* Returns true if jobs of these calls wait for mem_start. */
bool mem_has_unstarted(const struct mem *mem);

/* All of a tenant's record memory; borrowed, to send. */
int mem_record_fd(const struct mem *mem, uint32_t tenant);
int mem_region_fd(const struct mem *mem, uint32_t tenant, uint32_t region); /* borrowed, to send */
/* A control page belongs to a tenant, like its regions: each tenant has its own for engine slot e,
 * so that a process that still writes after its engine has ended stays in its tenant (fault 4). */
int mem_control_fd(const struct mem *mem, uint32_t tenant, uint32_t engine); /* borrowed */
uint64_t mem_done_step(struct mem *mem, uint32_t tenant, uint32_t engine, uint32_t rank);
/* Asks the ranks of the engine to ring when they reach `step`; 0: not to. Read done_step after this
 * call: a rank that had reached the step before does not ring. */
void mem_want_step(struct mem *mem, uint32_t tenant, uint32_t engine, uint64_t step);
/* Zeroes the steps, not the incarnation: now, or before the next read if the owner may not touch
 * the page now. */
void mem_control_reset(struct mem *mem, uint32_t tenant, uint32_t engine);

struct mem_stats {
    uint64_t bytes;        /* of all tenants' regions */
    uint64_t device_bytes; /* memory of GPUs, within `bytes` */
    uint32_t devices, devices_lost, devices_with_kernels;
    struct mem_far_work {
        uint64_t sums_by_kernels, sums_by_copies; /* checksums of their pages */
        uint64_t sums_by_engine; /* taken from those that engines computed for commits */
        uint64_t rows_by_kernels, rows_by_copies; /* stretches of pages, packed and unpacked */
        /* Bytes moved within a device, by peer access, and through memory of the host. */
        uint64_t moved_within, moved_by_peer, moved_staged;
    } work;
    uint64_t host_bytes; /* of their host tiers */
    uint64_t record_bytes, records_checked;
    uint64_t huge_page_bytes, sealed_pages, zeroed_bytes, queue_high_water;
    uint64_t copied_pages, copied_bytes; /* between the tiers, by jobs that succeeded */
    uint64_t copies_corrupt;             /* jobs whose copy did not agree with the checksums */
    uint64_t copies_spoilt;              /* jobs that fault_copy_corrupt_every has hit */
    uint64_t faults; /* touches of pages whose backing was gone: a client did that (fault 40), or
                        the machine has lost the memory */
    struct mem_holes {
        uint32_t memories;   /* that clients can punch holes into; 0: the kernel prevents it */
        uint32_t waited_for; /* the tenant of the last wait */
        uint64_t waits, waited_ns; /* of the owner, for control pages among them */
    } holes;
};
void mem_stats(const struct mem *mem, struct mem_stats *ret);

#endif
