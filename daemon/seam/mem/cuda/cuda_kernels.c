/* The kernels of a device, and checksums of its pages. Kernels (kernels/) compute them, so that
 * only 8 bytes a unit are copied to the host; without kernels the CPU does, on copies of the pages.
 * A launch takes a lane as a copy does, and uses the lane's part of the device's scratch and its
 * pinned memory. A kernel that does not end in time loses the device, as a copy does.
 *
 * The scratch and the module are made after the first region, since regions have priority: a device
 * that has no room for them, or no code for its kind, is used without kernels. */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "seam/mem/checksum.h"
#include "seam/mem/cuda/cuda_state.h"

#define SCRATCH_BYTES (CUDA_LANES * SCRATCH_PARTS * (size_t)CUDA_PIECE_BYTES)

static const char *kernels_make(struct cuda_device *d, const void *module, CUresult *ret)
{
    const struct driver *api = &d->cuda->driver;

    *ret = api->module_load(&d->module, module);
    if (*ret != CUDA_SUCCESS)
        return "cuModuleLoadData";
    for (int k = 0; k < KERNELS_KINDS; k++) {
        *ret = api->module_function(&d->function[k], d->module,
                                    kernels_function((enum kernels_kind)k));
        if (*ret != CUDA_SUCCESS)
            return "cuModuleGetFunction";
    }
    *ret = api->mem_alloc(&d->scratch, SCRATCH_BYTES);
    return *ret == CUDA_SUCCESS ? NULL : "cuMemAlloc";
}

const char *cuda_kernels_open(struct cuda_device *d, CUresult *ret)
{
    size_t bytes;
    const void *module = kernels_fatbin(&bytes);
    const char *call;

    *ret = CUDA_SUCCESS;
    snprintf(d->no_kernels, sizeof d->no_kernels,
             "this build has no kernels: build it with nvcc of CUDA 12.8 or newer");
    if (!module)
        return NULL;
    call = kernels_make(d, module, ret);
    d->kernels = call == NULL;
    d->facts.kernel_bytes = call ? 0 : SCRATCH_BYTES;
    if (!call)
        return NULL;
    cuda_kernels_close(d);
    snprintf(d->no_kernels, sizeof d->no_kernels, "%s: %s", call,
             driver_error_name(&d->cuda->driver, *ret));
    return driver_is_lost(*ret) ? call : NULL;
}

void cuda_kernels_close(struct cuda_device *d)
{
    if (d->scratch)
        d->cuda->driver.mem_free(d->scratch);
    if (d->module)
        d->cuda->driver.module_unload(d->module);
    d->scratch = 0;
    d->module = NULL;
    d->kernels = false;
}

CUdeviceptr cuda_scratch(const struct cuda_device *d, const struct cuda_lane *l, uint32_t part)
{
    return d->scratch + ((uint64_t)(l - d->lane) * SCRATCH_PARTS + part) * CUDA_PIECE_BYTES;
}

bool cuda_launch(struct cuda_device *d, const struct cuda_lane *l, enum kernels_kind kind,
                 union kernels_args *args)
{
    void *params[] = {args};
    struct kernels_launch how;

    check(kernels_prepare(kind, args, &how) == KERNELS_REFUSED_NONE); /* the caller's sizes suit */
    return cuda_did(d, how.function,
                    d->cuda->driver.launch(d->function[kind], how.grid, 1, 1, how.block, 1, 1, 0,
                                           l->stream, params, NULL));
}

/* Returns how many pages of that shape a lane hashes at a time; 0: not even one. */
static uint32_t pages_at_once(const struct mem_far_pages *p)
{
    const struct kernels_checksum one = {.page_bytes = p->page_bytes, .n = 1, .units = p->units};
    uint64_t blocks = kernels_checksum_scratch(&one), sums = p->units * sizeof(uint64_t);
    uint64_t n = CUDA_PIECE_BYTES / sizeof *p->list;

    if (blocks == 0)
        return 0;
    if (n > CUDA_PIECE_BYTES / blocks)
        n = CUDA_PIECE_BYTES / blocks;
    return (uint32_t)(n < CUDA_PIECE_BYTES / sums ? n : CUDA_PIECE_BYTES / sums);
}

/* Submits all steps to the lane's stream, in order. */
static bool sums_ask(struct cuda_device *d, const struct cuda_lane *l,
                     const struct mem_far_pages *p, uint8_t *sums)
{
    const struct driver *api = &d->cuda->driver;
    CUdeviceptr list = cuda_scratch(d, l, SCRATCH_TOLD), out = cuda_scratch(d, l, SCRATCH_SUMS);
    union kernels_args args = {.checksum = {.pool = (uintptr_t)p->base,
                                            .list = list,
                                            .page_bytes = p->page_bytes,
                                            .n = p->n,
                                            .units = p->units,
                                            .blocks = cuda_scratch(d, l, SCRATCH_WORK),
                                            .sums = out}};

    memcpy(l->pinned, p->list, p->n * sizeof *p->list);
    return cuda_did(d, "cuMemcpyHtoDAsync",
                    api->put_async(list, l->pinned, p->n * sizeof *p->list, l->stream)) &&
           cuda_launch(d, l, KERNELS_CHECKSUM_BLOCKS, &args) &&
           cuda_launch(d, l, KERNELS_CHECKSUM_UNITS, &args) &&
           cuda_did(
               d, "cuMemcpyDtoHAsync",
               api->get_async(sums, out, (size_t)p->n * p->units * sizeof(uint64_t), l->stream)) &&
           cuda_did(d, "cuEventRecord", api->event_record(l->done[0], l->stream));
}

static bool sums_by_kernels(struct cuda_device *d, const struct mem_far_pages *p, uint64_t *ret)
{
    struct cuda_lane *l = cuda_lane_take(d);
    uint8_t *sums;
    bool ok;

    if (!l)
        return false;
    sums = l->pinned + CUDA_PIECE_BYTES;
    ok = sums_ask(d, l, p, sums) && cuda_lane_wait(d, l, 0, "a kernel");
    if (ok)
        memcpy(ret, sums, (size_t)p->n * p->units * sizeof *ret);
    cuda_lane_put(d, l);
    return ok;
}

static bool piece_hashed(void *ctx, uint8_t *bytes, uint64_t n)
{
    checksum_feed(ctx, bytes, n);
    return true;
}

static bool sums_by_copies(struct cuda *c, const struct mem_far_pages *p, uint64_t *ret)
{
    for (uint32_t i = 0; i < p->n; i++)
        for (uint32_t unit = 0; unit < p->units; unit++) {
            uint64_t from, end = checksum_unit_span(p->page_bytes, p->units, unit, &from);
            const uint8_t *page = p->base + p->list[i] * p->page_bytes;
            struct checksum sum;

            checksum_begin(&sum);
            if (!c->far.get(c, page + from, end - from, piece_hashed, &sum))
                return false;
            *ret++ = checksum_end(&sum);
        }
    return true;
}

bool cuda_far_sums(void *ctx, const struct mem_far_pages *pages, uint64_t *ret)
{
    struct cuda *c = ctx;
    struct cuda_device *d = cuda_device_at(c, pages->base);
    uint32_t most = d->kernels ? pages_at_once(pages) : 0;
    struct mem_far_pages part = *pages;
    bool ok = true;

    if (most == 0) {
        ok = sums_by_copies(c, pages, ret);
        atomic_fetch_add(&c->sums_by_copies, ok ? (uint64_t)pages->n * pages->units : 0);
        return ok;
    }
    for (uint32_t i = 0; ok && i < pages->n; i += part.n) {
        part.list = pages->list + i;
        part.n = pages->n - i < most ? pages->n - i : most;
        ok = sums_by_kernels(d, &part, ret + (size_t)i * pages->units);
        atomic_fetch_add(&c->sums_by_kernels, ok ? (uint64_t)part.n * part.units : 0);
    }
    return ok;
}
