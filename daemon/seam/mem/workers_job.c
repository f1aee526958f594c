/* See workers_job.h. A unit is copied in blocks that are hashed in the target, while they are in
 * cache: the checksum covers the bytes that were written, even if somebody writes the source
 * meanwhile. A unit stops at a page whose backing is gone. A seal then has no checksum, so no copy
 * and no peer accepts the page; a copy is reported as wrong. Pages of a device are processed whole,
 * several at a time, since each call waits for the device. */
#include "seam/mem/workers_job.h"

#include <assert.h>
#include <string.h>
#include <sys/mman.h>

#include "base/brought.h"
#include "seam/mem/checksum.h"
#include "seam/mem/mem_fault.h"
#include "seam/mem/record_check.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

#define UNITS_PIECE_BYTES    (128u << 10) /* taken by a thread at once; a job uses all threads */
#define FAR_PAGES            16u          /* of a device, sealed by a thread at once */
#define FAR_SUMS             512u         /* of several pages, on the stack */
#define COPY_BLOCK_BYTES     (64u << 10)  /* whole CHECKSUM_BLOCKs; fits a core's cache */
#define ZERO_PIECE_BYTES     (4u << 20)   /* short enough that a seal waits little for zeroing */
#define PAGE_BYTES           4096u
#define HUGE_BYTES           (2u << 20)
#define POPULATE_PIECE_BYTES (16u << 20)

static_assert(COPY_BLOCK_BYTES % CHECKSUM_BLOCK == 0, "checksum_feed takes whole blocks");

/* Items are numbered by (page, region, unit), the unit fastest. Groups may differ in units, so an
 * item is found by a walk over the pages, of which there are at most SEAL_PAGES_MAX. */
static uint64_t units_items(const struct job *job)
{
    uint64_t items = 0;

    for (uint32_t i = 0; i < job->npages; i++)
        items += (uint64_t)job->place.group[job->page[i].group].units * job->place.regions;
    return items;
}

static uint8_t *page_bytes(const struct pool_place *place, const struct page_at *page,
                           uint32_t region)
{
    return place->base[region] + page->index * place->group[page->group].page_bytes;
}

static uint64_t *sum_of(const struct job *job, const struct page_at *page, uint32_t region,
                        uint32_t unit)
{
    uint32_t units = job->place.group[page->group].units;

    return &job->sums[(size_t)page->record * job->sums_per_page + region * units + unit];
}

/* Returns access to the bytes, if either end of the job is not memory of the host; else NULL. */
static const struct mem_far *far_of(const struct job *job)
{
    if (job->place.far || job->kind != JOB_COPY)
        return job->place.far;
    return job->target.far;
}

/* Fault injection: flips a bit of a copied page. */
static bool far_spoil(const struct mem_far *far, uint8_t *page)
{
    uint8_t byte = 0;
    bool there = mem_far_get(far, &byte, page, 1);

    byte ^= 1;
    return there && mem_far_put(far, page, &byte, 1);
}

struct near_sums {
    const struct group_layout *group;
    uint8_t *page;
    bool spoil; /* fault injection: the first byte is corrupted */
    uint64_t *ret;
};

static void near_hashed(void *ctx)
{
    const struct near_sums *s = ctx;

    s->page[0] ^= s->spoil;
    for (uint32_t unit = 0; unit < s->group->units; unit++) {
        uint64_t from, end = checksum_unit_span(s->group->page_bytes, s->group->units, unit, &from);

        s->ret[unit] = checksum_unit(s->page + from, end - from);
    }
}

/* Copies between a device and the host. The written bytes are hashed in place. */
static bool far_copied(const struct job *job, uint8_t *to, uint8_t *from,
                       const struct group_layout *g, bool spoil, uint64_t *ret_sums)
{
    const struct mem_far *far = far_of(job);
    struct near_sums sums = {.group = g, .page = to, .spoil = spoil, .ret = ret_sums};

    if (job->target.far)
        return mem_far_put(far, to, from, g->page_bytes) && (!spoil || far_spoil(far, to)) &&
               mem_far_sums(far, to, g->page_bytes, g->units, ret_sums);
    return mem_far_get(far, to, from, g->page_bytes) && mem_fault_bytes(near_hashed, &sums);
}

static bool far_copy(const struct job *job, uint32_t i, uint32_t region)
{
    const struct page_at *page = &job->page[i], *to_page = &job->to[i];
    const struct group_layout *g = &job->place.group[page->group];
    const uint64_t *want = sum_of(job, page, region, 0);
    uint64_t *sums = sum_of(job, to_page, region, 0);
    bool ok = far_copied(job, page_bytes(&job->target, to_page, region),
                         page_bytes(&job->place, page, region), g,
                         job->spoil && i == 0 && region == 0, sums);

    for (uint32_t unit = 0; unit < g->units; unit++) {
        ok = ok && sums[unit] == want[unit] && want[unit] != CHECKSUM_NONE;
        sums[unit] = want[unit];
    }
    return ok;
}

/* Looks for checksums in an entry of base/brought.h. */
struct brought_look {
    const uint8_t *entry;
    const struct page_at *page;
    uint32_t units, first, n; /* n from the first on are wanted */
    uint64_t *ret;
    bool found;
};

static void brought_touch(void *ctx)
{
    struct brought_look *l = ctx;
    const struct brought_head *head = (const void *)l->entry;

    l->found = __atomic_load_n(&head->step, __ATOMIC_ACQUIRE) == l->page->step &&
               head->gen == l->page->gen && head->units == l->units;
    if (l->found)
        memcpy(l->ret, (const uint64_t *)(head + 1) + l->first, l->n * sizeof *l->ret);
}

/* Takes the checksums of n units. The step of the page's commit has passed, and so has the work of
 * the engine's stream before it. A taken checksum counts as if computed here: if it is wrong, the
 * page does not agree with it, and each receiver of the page finds that. */
static bool brought_take(struct job *job, const struct page_at *page, uint32_t region,
                         uint32_t first, uint32_t n)
{
    const struct pool_place *place = &job->place;
    const struct group_layout *g = &place->group[page->group];
    struct brought_look look = {.page = page,
                                .units = g->units,
                                .first = first,
                                .n = n,
                                .ret = sum_of(job, page, region, first)};

    if (page->step == 0 || brought_entry_bytes(g->units) > place->brought_entry_bytes)
        return false;
    look.entry =
        place->brought[region] + brought_entry(page->index * g->page_bytes, place->page_bytes_min) *
                                     place->brought_entry_bytes;
    if (!mem_fault_bytes(brought_touch, &look) || !look.found)
        return false;
    atomic_fetch_add_explicit(&job->brought, n, memory_order_relaxed);
    return true;
}

/* Seals the pages of the job in `at`, all of one group. */
static bool far_seal(const struct job *job, uint32_t region, const uint32_t *at, uint32_t n)
{
    uint32_t list[FAR_PAGES];
    uint64_t sums[FAR_SUMS];
    const struct page_at *first = &job->page[at[0]];
    const struct group_layout *g = &job->place.group[first->group];
    const struct mem_far_pages pages = {.base = job->place.base[region],
                                        .list = list,
                                        .page_bytes = g->page_bytes,
                                        .n = n,
                                        .units = g->units};
    uint64_t *ret = n == 1 ? sum_of(job, first, region, 0) : sums;
    bool ok;

    for (uint32_t k = 0; k < n; k++)
        list[k] = job->page[at[k]].index;
    ok = job->place.far->sums(job->place.far->ctx, &pages, ret);
    for (uint32_t k = 0; k < n; k++)
        for (uint32_t unit = 0; unit < g->units; unit++)
            *sum_of(job, &job->page[at[k]], region, unit) =
                ok ? ret[k * g->units + unit] : CHECKSUM_NONE;
    return ok;
}

/* Seals pages [first, first + n) of the job, at most FAR_PAGES: takes brought checksums, and
 * computes the others by groups, as many at a time as there is room for. */
static bool far_seals(struct job *job, uint32_t region, uint32_t first, uint32_t n)
{
    bool ok = true;

    for (uint32_t g = 0; g < job->place.ngroups; g++) {
        uint32_t at[FAR_PAGES], k = 0, units = job->place.group[g].units;

        for (uint32_t i = first; i < first + n; i++) {
            if (job->page[i].group != g || brought_take(job, &job->page[i], region, 0, units))
                continue;
            at[k++] = i;
            if ((k + 1) * units > FAR_SUMS) {
                ok = far_seal(job, region, at, k) && ok;
                k = 0;
            }
        }
        ok = (k == 0 || far_seal(job, region, at, k)) && ok;
    }
    return ok;
}

/* Items are numbered by (region, page), the page fastest, so that successive pages lie on the same
 * device. */
static bool far_run(struct job *job, uint64_t item, uint64_t n)
{
    bool ok = true;

    while (n > 0) {
        uint32_t region = (uint32_t)(item / job->npages), i = (uint32_t)(item % job->npages);
        uint32_t took = 1;

        if (job->kind == JOB_COPY) {
            ok = far_copy(job, i, region) && ok;
        } else {
            took = job->npages - i < n ? job->npages - i : (uint32_t)n;
            ok = far_seals(job, region, i, took) && ok;
        }
        item += took;
        n -= took;
    }
    return ok;
}

static void seal_unit(const struct job *job, uint32_t i, uint32_t region, uint32_t unit)
{
    const struct page_at *page = &job->page[i];
    const struct group_layout *g = &job->place.group[page->group];
    uint64_t from, to = checksum_unit_span(g->page_bytes, g->units, unit, &from);

    *sum_of(job, page, region, unit) =
        checksum_unit(page_bytes(&job->place, page, region) + from, to - from);
}

/* Returns true if the bytes agree with the source record's checksum, which is copied too. */
static bool copy_unit(const struct job *job, uint32_t i, uint32_t region, uint32_t unit)
{
    const struct page_at *page = &job->page[i], *to_page = &job->to[i];
    const struct group_layout *g = &job->place.group[page->group];
    uint64_t at, end = checksum_unit_span(g->page_bytes, g->units, unit, &at);
    const uint8_t *source = page_bytes(&job->place, page, region);
    uint8_t *target = page_bytes(&job->target, to_page, region);
    uint64_t want = *sum_of(job, page, region, unit);
    bool spoil = job->spoil && i == 0 && region == 0 && unit == 0;
    struct checksum sum;

    checksum_begin(&sum);
    while (at < end) {
        uint64_t n = end - at < COPY_BLOCK_BYTES ? end - at : COPY_BLOCK_BYTES;

        memcpy(target + at, source + at, n);
        if (spoil)
            target[at] ^= 1;
        spoil = false;
        checksum_feed(&sum, target + at, n);
        at += n;
    }
    *sum_of(job, to_page, region, unit) = want;
    return checksum_end(&sum) == want && want != CHECKSUM_NONE;
}

struct unit {
    const struct job *job;
    uint32_t i, region, unit;
    bool ok;
};

static void unit_touch(void *ctx)
{
    struct unit *u = ctx;

    if (u->job->kind == JOB_COPY) {
        u->ok = copy_unit(u->job, u->i, u->region, u->unit);
        return;
    }
    seal_unit(u->job, u->i, u->region, u->unit);
    u->ok = true;
}

static bool unit_run(struct job *job, uint32_t i, uint32_t region, uint32_t unit)
{
    struct unit u = {.job = job, .i = i, .region = region, .unit = unit};

    if (job->kind == JOB_SEAL && brought_take(job, &job->page[i], region, unit, 1))
        return true;
    if (mem_fault_bytes(unit_touch, &u))
        return u.ok;
    if (job->kind == JOB_SEAL)
        *sum_of(job, &job->page[i], region, unit) = CHECKSUM_NONE;
    return false;
}

static bool units_run(struct job *job, uint64_t first, uint64_t n)
{
    bool ok = true;

    for (uint32_t i = 0; i < job->npages && n > 0; i++) {
        uint32_t units = job->place.group[job->page[i].group].units;
        uint64_t here = (uint64_t)units * job->place.regions;

        if (first >= here) {
            first -= here;
            continue;
        }
        for (; first < here && n > 0; first++, n--) {
            uint32_t region = (uint32_t)(first / units), unit = (uint32_t)(first % units);

            ok = unit_run(job, i, region, unit) && ok;
        }
        first = 0;
    }
    return ok;
}

static uint64_t range_piece_bytes(const struct job *job)
{
    return job->kind == JOB_ZERO ? ZERO_PIECE_BYTES : POPULATE_PIECE_BYTES;
}

static uint64_t range_items(const struct job *job)
{
    uint64_t piece = range_piece_bytes(job);

    return (job->place.bytes + piece - 1) / piece * job->place.regions;
}

static bool populate(uint8_t *at, uint64_t n, bool huge)
{
    if (huge) {
        /* Advice only: memory that does not become huge pages is populated with small ones, and mem
         * reports it. One page must exist before the memory around it can be collapsed. */
        madvise(at, n, MADV_HUGEPAGE);
        for (uint64_t i = 0; i + HUGE_BYTES <= n; i += HUGE_BYTES)
            *(volatile uint8_t *)(at + i) = 0;
        madvise(at, n, MADV_COLLAPSE);
    }
    return madvise(at, n, MADV_POPULATE_WRITE) == 0;
}

struct zeroing {
    uint8_t *at;
    uint64_t n;
};

static void zero_touch(void *ctx)
{
    struct zeroing *z = ctx;

    memset(z->at, 0, z->n);
}

/* A page that is gone needs no zeroing: its fresh memory, if any, is zero. */
static void zero(uint8_t *at, uint64_t n)
{
    struct zeroing all = {.at = at, .n = n};

    if (mem_fault_bytes(zero_touch, &all))
        return;
    for (uint64_t i = 0; i < n; i += PAGE_BYTES) {
        struct zeroing page = {.at = at + i, .n = n - i < PAGE_BYTES ? n - i : PAGE_BYTES};

        mem_fault_bytes(zero_touch, &page);
    }
}

/* Zeroes the entries of the piece: the next owner of the memory restarts steps and generations. */
static void brought_zero(const struct pool_place *place, uint32_t region, uint64_t from, uint64_t n)
{
    uint64_t first = brought_entry(from, place->page_bytes_min),
             end = brought_entry(from + n, place->page_bytes_min);

    if (place->brought[region])
        zero(place->brought[region] + first * place->brought_entry_bytes,
             (end - first) * place->brought_entry_bytes);
}

static bool range_run(const struct job *job, uint64_t item)
{
    uint64_t piece = range_piece_bytes(job);
    uint64_t per_region = (job->place.bytes + piece - 1) / piece;
    uint64_t from = item % per_region * piece;
    uint64_t n = job->place.bytes - from < piece ? job->place.bytes - from : piece;
    uint8_t *at = job->place.base[item / per_region] + from;

    if (job->kind == JOB_POPULATE)
        return populate(at, n, job->huge);
    if (!job->place.far)
        zero(at, n);
    else /* a lost device is never read again */
        (void)job->place.far->zero(job->place.far->ctx, at, n);
    brought_zero(&job->place, (uint32_t)(item / per_region), from, n);
    return true;
}

static bool of_units(const struct job *job)
{
    return job->kind == JOB_SEAL || job->kind == JOB_COPY;
}

uint64_t job_items(const struct job *job)
{
    if (job->kind == JOB_RECORD)
        return 1;
    if (of_units(job) && far_of(job))
        return (uint64_t)job->npages * job->place.regions;
    return of_units(job) ? units_items(job) : range_items(job);
}

uint64_t job_run_length(const struct job *job)
{
    uint64_t left = job->items - job->taken, n = 1;

    if (of_units(job) && far_of(job)) {
        n = job->kind == JOB_SEAL ? FAR_PAGES : 1;
    } else if (of_units(job)) {
        const struct group_layout *g = &job->place.group[job->page[0].group];
        uint64_t unit_bytes = g->page_bytes / g->units;

        n = unit_bytes < UNITS_PIECE_BYTES ? UNITS_PIECE_BYTES / unit_bytes : 1;
    }
    return n < left ? n : left;
}

bool job_run(struct job *job, uint64_t first, uint64_t n)
{
    bool ok = true;

    if (job->kind == JOB_RECORD) {
        record_check(&job->record, job->memory, mem_fault_bytes, &job->checked);
        return true;
    }
    if (of_units(job))
        return far_of(job) ? far_run(job, first, n) : units_run(job, first, n);
    for (uint64_t i = 0; i < n; i++)
        ok = range_run(job, first + i) && ok;
    return ok;
}
