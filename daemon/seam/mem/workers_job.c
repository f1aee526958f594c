/* See workers_job.h. A unit is copied in blocks that are hashed where they were written, while they
 * are in cache: what agrees with its checksum is what lies there, whoever wrote the source
 * meanwhile. A unit that meets a page whose backing is gone ends there: sealed it has no checksum,
 * which no copy and no peer believes, and copied it is wrong. */
#include "seam/mem/workers_job.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "seam/mem/checksum.h"
#include "seam/mem/mem_fault.h"
#include "seam/mem/record_check.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

#define UNITS_PIECE_BYTES                                                                          \
    (128u << 10) /* what a thread takes at once, so that a job spreads over all */
#define COPY_BLOCK_BYTES     (64u << 10) /* of CHECKSUM_BLOCKs; stays in the cache of a core */
#define ZERO_PIECE_BYTES     (4u << 20) /* short enough that a seal never waits long behind zeroing */
#define PAGE_BYTES           4096u
#define HUGE_BYTES           (2u << 20)
#define POPULATE_PIECE_BYTES (16u << 20)

static_assert(COPY_BLOCK_BYTES % CHECKSUM_BLOCK == 0, "checksum_feed takes whole blocks");

/* ---- units of pages ---- */

/* Items count (page, region, unit), unit fastest; groups may differ in units, so an item is found
 * by walking the pages, of which there are at most SEAL_PAGES_MAX. */
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

/* ---- on a device ---- */

static bool far_sum(const struct mem_far *far, const void *at, uint64_t n, uint64_t *ret)
{
    struct checksum sum;

    checksum_begin(&sum);
    if (!mem_far_feed(far, &sum, at, n))
        return false;
    *ret = checksum_end(&sum);
    return true;
}

/* The end of a copy that lies in memory of the host: where the next piece goes to or comes from. */
struct near_end {
    uint8_t *at, *piece;
    uint64_t n;
    bool spoil; /* fault injection: the next byte goes wrong */
};

static void near_written(void *ctx)
{
    const struct near_end *e = ctx;

    memcpy(e->at, e->piece, e->n);
}

static void near_read(void *ctx)
{
    const struct near_end *e = ctx;

    memcpy(e->piece, e->at, e->n);
}

static bool near_next(struct near_end *e, void (*touch)(void *ctx), uint8_t *piece, uint64_t n)
{
    bool ok;

    e->piece = piece;
    e->n = n;
    ok = mem_fault_bytes(touch, e);
    e->at += n;
    return ok;
}

static void near_spoil(struct near_end *e, uint8_t *piece)
{
    if (e->spoil)
        piece[0] ^= 1;
    e->spoil = false;
}

static bool near_takes(void *ctx, uint8_t *piece, uint64_t n)
{
    near_spoil(ctx, piece);
    return near_next(ctx, near_written, piece, n);
}

static bool near_gives(void *ctx, uint8_t *piece, uint64_t n)
{
    bool ok = near_next(ctx, near_read, piece, n);

    near_spoil(ctx, piece);
    return ok;
}

struct near_sum {
    const uint8_t *at;
    uint64_t n, sum;
};

static void near_hashed(void *ctx)
{
    struct near_sum *s = ctx;

    s->sum = checksum_unit(s->at, s->n);
}

/* One end of each copy is a device's, the other memory of the host. What was written is hashed
 * where it lies. */
static bool far_copied(const struct job *job, uint8_t *to, uint8_t *from, uint64_t n, bool spoil,
                       uint64_t *ret_sum)
{
    struct near_end near = {.at = job->target.far ? from : to, .spoil = spoil};
    struct near_sum sum = {.at = to, .n = n};

    if (job->target.far)
        return job->target.far->put(job->target.far->ctx, to, n, near_gives, &near) &&
               far_sum(job->target.far, to, n, ret_sum);
    if (!job->place.far->get(job->place.far->ctx, from, n, near_takes, &near) ||
        !mem_fault_bytes(near_hashed, &sum))
        return false;
    *ret_sum = sum.sum;
    return true;
}

static bool far_unit(const struct job *job, uint32_t i, uint32_t region, uint32_t unit)
{
    const struct page_at *page = &job->page[i];
    const struct group_layout *g = &job->place.group[page->group];
    uint64_t at, end = checksum_unit_span(g->page_bytes, g->units, unit, &at), sum,
                 want = *sum_of(job, page, region, unit);
    uint8_t *from = page_bytes(&job->place, page, region) + at;
    bool ok;

    if (job->kind == JOB_SEAL) {
        ok = far_sum(job->place.far, from, end - at, &sum);
        *sum_of(job, page, region, unit) = ok ? sum : CHECKSUM_NONE;
        return ok;
    }
    ok = far_copied(job, page_bytes(&job->target, &job->to[i], region) + at, from, end - at,
                    job->spoil && i == 0 && region == 0 && unit == 0, &sum);
    *sum_of(job, &job->to[i], region, unit) = want;
    return ok && sum == want && want != CHECKSUM_NONE;
}

/* ---- in memory of the host ---- */

static void seal_unit(const struct job *job, uint32_t i, uint32_t region, uint32_t unit)
{
    const struct page_at *page = &job->page[i];
    const struct group_layout *g = &job->place.group[page->group];
    uint64_t from, to = checksum_unit_span(g->page_bytes, g->units, unit, &from);

    *sum_of(job, page, region, unit) =
        checksum_unit(page_bytes(&job->place, page, region) + from, to - from);
}

/* True if the bytes agree with the checksum that the source's record has, which the target's gets
 * too. */
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

static bool unit_run(const struct job *job, uint32_t i, uint32_t region, uint32_t unit)
{
    struct unit u = {.job = job, .i = i, .region = region, .unit = unit};

    if (job->place.far || (job->kind == JOB_COPY && job->target.far))
        return far_unit(job, i, region, unit);
    if (mem_fault_bytes(unit_touch, &u))
        return u.ok;
    if (job->kind == JOB_SEAL)
        *sum_of(job, &job->page[i], region, unit) = CHECKSUM_NONE;
    return false;
}

static bool units_run(const struct job *job, uint64_t first, uint64_t n)
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

/* ---- ranges ---- */

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
        /* Advice only: what does not become a huge page is populated with small ones, and mem
         * reports it. A page must be there for its surroundings to be collapsed around it. */
        madvise(at, n, MADV_HUGEPAGE);
        for (uint64_t i = 0; i + HUGE_BYTES <= n; i += HUGE_BYTES)
            *(volatile uint8_t *)(at + i) = 0;
        madvise(at, n, MADV_COLLAPSE);
    }
    if (madvise(at, n, MADV_POPULATE_WRITE) == 0)
        return true;
    if (errno != EINVAL)
        return false;
    for (uint64_t i = 0; i < n; i += PAGE_BYTES) /* before Linux 5.14: touch each page */
        *(volatile uint8_t *)(at + i) = 0;
    return true;
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

/* What is not there has nothing to zero: fresh memory is zero where it comes back, if it does. */
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

static bool range_run(const struct job *job, uint64_t item)
{
    uint64_t piece = range_piece_bytes(job);
    uint64_t per_region = (job->place.bytes + piece - 1) / piece;
    uint64_t from = item % per_region * piece;
    uint64_t n = job->place.bytes - from < piece ? job->place.bytes - from : piece;
    uint8_t *at = job->place.base[item / per_region] + from;

    if (job->kind == JOB_POPULATE)
        return populate(at, n, job->huge);
    if (job->place.far) /* of a device that is lost nothing is ever read again */
        (void)job->place.far->zero(job->place.far->ctx, at, n);
    else
        zero(at, n);
    return true;
}

/* ---- any job ---- */

static bool of_units(const struct job *job)
{
    return job->kind == JOB_SEAL || job->kind == JOB_COPY;
}

uint64_t job_items(const struct job *job)
{
    if (job->kind == JOB_RECORD)
        return 1;
    return of_units(job) ? units_items(job) : range_items(job);
}

uint64_t job_run_length(const struct job *job)
{
    uint64_t left = job->items - job->taken, n = 1;

    if (of_units(job)) {
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
        return units_run(job, first, n);
    for (uint64_t i = 0; i < n; i++)
        ok = range_run(job, first + i) && ok;
    return ok;
}
