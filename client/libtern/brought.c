/* Checksums of pages (X7), in the entries of base/brought.h: memory of the host that the daemon
 * reads when the step of the commit has passed. So the daemon needs to read no page for a commit.
 * For an engine on a GPU the kernels of kernels/ compute them in a stream of the engine; for blocks
 * the thread that copied the values does. The engine owns the context and the streams, as in
 * device.c.
 *
 * Invariant: an entry has its head only if its checksums are written, or the kernels that write
 * them are in the stream and the step is not in it yet (libtern ensures this order); one launch at
 * a time uses the scratch, in whatever stream; memory that a kernel may still read or write is
 * never unmapped. */
#include "brought.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "base/brought.h"
#include "base/check.h"
#include "base/err.h"
#include "device.h"
#include "kernels/kernels.h"

#define MAP_BYTES       4096u
#define PAGES_AT_ONCE   (KERNELS_WORDS_MAX / 2) /* two words a page: its index, and its place */
#define SCRATCH_WORDS   4096u                   /* bytes of both lists */
#define SCRATCH_BLOCKS  (2u << 20)              /* bytes; enough for a page of 1 GiB */
#define BROUGHT_WAIT_MS 10000u                  /* wait for kernels before their mapping ends */
#define BROUGHT_NAP_NS  50000u                  /* between two looks in that wait */
#define MS_NS           UINT64_C(1000000)

struct brought {
    uint8_t *map; /* mapping of whole pages around the entries */
    uint64_t map_bytes;
    uint8_t *entries;
    uint32_t entry_bytes;
    uint64_t page_bytes; /* bytes of the pool for each entry */

    /* Set by the first launch. */
    CUcontext context; /* of all streams; borrowed; NULL: not set yet */
    CUmodule module;
    CUfunction function[KERNELS_KINDS];
    CUdeviceptr scratch; /* the lists, and behind them the kernels' working memory */
    CUdeviceptr at;      /* the device's address of the entries */
    CUevent behind;      /* recorded behind the last launch */
    bool queued;         /* there was one */
    bool unmarked;       /* `behind` is not recorded there: the driver failed */
};

/* ---- memory of the checksums ---- */

bool brought_range(const struct tern_pool *p, const Tern__Wire__BroughtSums *at,
                   struct brought_range *ret)
{
    uint64_t in_page = at->offset % MAP_BYTES, entries;

    if (at->page_bytes == 0 || at->entry_bytes < brought_entry_bytes(1) ||
        at->entry_bytes % sizeof(uint64_t) || at->offset % sizeof(uint64_t))
        return false;
    entries = brought_entry(p->info.bytes, at->page_bytes);
    if (entries > UINT32_MAX)
        return false;
    ret->from = at->offset - in_page;
    ret->bytes = (in_page + entries * at->entry_bytes + MAP_BYTES - 1) / MAP_BYTES * MAP_BYTES;
    return true;
}

enum tern_err brought_begin(struct tern_pool *p, const Tern__Wire__BroughtSums *at, uint8_t *map)
{
    struct brought_range range = {0};
    struct brought *b = calloc(1, sizeof *b);

    if (!b)
        return set_error(p->owner, TERN_INTERNAL, "no memory");
    check(brought_range(p, at, &range));
    b->map = map;
    b->map_bytes = range.bytes;
    b->entries = map + (at->offset - range.from);
    b->entry_bytes = at->entry_bytes;
    b->page_bytes = at->page_bytes;
    p->brought = b;
    return TERN_OK;
}

/* The page lies in the pool. */
static uint32_t entry_of(const struct brought *b, const struct tern_checksums *of, uint32_t i)
{
    return (uint32_t)brought_entry(of->pages[i].index * of->page_bytes, b->page_bytes);
}

static struct brought_head *head_of(const struct brought *b, const struct tern_checksums *of,
                                    uint32_t i)
{
    return (void *)(b->entries + (uint64_t)entry_of(b, of, i) * b->entry_bytes);
}

static void heads_set(const struct brought *b, const struct tern_checksums *of, uint64_t step)
{
    for (uint32_t i = 0; i < of->n; i++) {
        struct brought_head *head = head_of(b, of, i);

        head->gen = of->pages[i].generation;
        head->units = of->units;
        __atomic_store_n(&head->step, step, __ATOMIC_RELEASE);
    }
}

void brought_leave(struct tern_pool *p, uint64_t page_bytes, const struct tern_page *page,
                   uint64_t sum, uint64_t step)
{
    const struct tern_checksums of = {.page_bytes = page_bytes, .units = 1, .n = 1, .pages = page};

    if (!p->brought)
        return;
    heads_set(p->brought, &of, 0);
    memcpy(head_of(p->brought, &of, 0) + 1, &sum, sizeof sum);
    heads_set(p->brought, &of, step);
}

/* ---- the device ---- */

static enum tern_err failed(struct tern_pool *p, enum tern_err err, const char *call,
                            CUresult result)
{
    char text[QUICK_TEXT_MAX];

    snprintf(text, sizeof text,
             "this process cannot compute checksums: %s: %s; commit without them, and the daemon "
             "computes them",
             call, driver_error_name(device_map_driver(p->device), result));
    return set_error(p->owner, err, text);
}

/* Without these abilities the daemon reads the pages itself. */
static enum tern_err device_can(struct tern_pool *p)
{
    const struct driver *d = device_map_driver(p->device);
    int value = 0;
    CUresult result = d->device_attribute(&value, CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED,
                                          device_map_device(p->device));

    if (result != CUDA_SUCCESS)
        return failed(p, TERN_INTERNAL, "cuDeviceGetAttribute", result);
    if (!value)
        return set_error(p->owner, TERN_UNSUPPORTED,
                         "the GPU cannot write host memory: commit without checksums, and the "
                         "daemon computes them");
    return TERN_OK;
}

static enum tern_err module_begin(struct tern_pool *p)
{
    static const enum kernels_kind needed[] = {KERNELS_TELL, KERNELS_CHECKSUM_BLOCKS,
                                               KERNELS_CHECKSUM_UNITS};
    const struct driver *d = device_map_driver(p->device);
    struct brought *b = p->brought;
    size_t bytes;
    const void *module = kernels_fatbin(&bytes);
    CUresult result;

    if (!module)
        return set_error(p->owner, TERN_UNSUPPORTED,
                         "this libtern has no kernels: build it with nvcc of CUDA 12.8 or newer, "
                         "or commit without checksums, and the daemon computes them");
    result = d->module_load(&b->module, module);
    if (result != CUDA_SUCCESS)
        return failed(p, driver_is_lost(result) ? TERN_INTERNAL : TERN_UNSUPPORTED,
                      "cuModuleLoadData", result);
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
        result =
            d->module_function(&b->function[needed[i]], b->module, kernels_function(needed[i]));
        if (result != CUDA_SUCCESS)
            return failed(p, TERN_INTERNAL, "cuModuleGetFunction", result);
    }
    return TERN_OK;
}

static enum tern_err memory_begin(struct tern_pool *p)
{
    const struct driver *d = device_map_driver(p->device);
    struct brought *b = p->brought;
    CUdeviceptr map;
    CUresult result = d->event_create(&b->behind, CU_EVENT_DISABLE_TIMING);

    if (result != CUDA_SUCCESS)
        return failed(p, TERN_INTERNAL, "cuEventCreate", result);
    result = d->mem_alloc(&b->scratch, SCRATCH_WORDS + SCRATCH_BLOCKS);
    if (result != CUDA_SUCCESS)
        return failed(p, TERN_INTERNAL, "cuMemAlloc", result);
    result = d->host_register(b->map, b->map_bytes,
                              (unsigned)CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
    if (result != CUDA_SUCCESS)
        return failed(p, TERN_INTERNAL, "cuMemHostRegister", result);
    result = d->host_device_at(&map, b->map, 0);
    if (result != CUDA_SUCCESS) {
        d->host_unregister(b->map);
        return failed(p, TERN_INTERNAL, "cuMemHostGetDevicePointer", result);
    }
    b->at = map + (uint64_t)(b->entries - b->map);
    return TERN_OK;
}

/* Frees what exists of it. Returns false if the driver keeps the entries registered. */
static bool let_go(struct tern_pool *p)
{
    const struct driver *d = device_map_driver(p->device);
    struct brought *b = p->brought;
    bool ok = !b->at || d->host_unregister(b->map) == CUDA_SUCCESS;

    if (b->scratch)
        d->mem_free(b->scratch);
    if (b->behind)
        d->event_destroy(b->behind);
    if (b->module)
        d->module_unload(b->module);
    b->at = b->scratch = 0;
    b->behind = NULL;
    b->module = NULL;
    b->context = NULL;
    return ok;
}

/* Requires one context for all streams: that of this thread, on the pool's own device. */
static enum tern_err begin(struct tern_pool *p)
{
    const struct driver *d = device_map_driver(p->device);
    struct brought *b = p->brought;
    CUcontext current;
    CUdevice device;
    CUresult result = d->context_get(&current);
    enum tern_err err;

    if (result != CUDA_SUCCESS)
        return failed(p, TERN_INTERNAL, "cuCtxGetCurrent", result);
    if (!current || d->context_device(&device) != CUDA_SUCCESS ||
        device != device_map_device(p->device) || (b->context && current != b->context))
        return set_error(p->owner, TERN_INVALID,
                         "this thread has no CUDA context on the pool's GPU, or another one than "
                         "at the first call: set the stream's context first");
    if (b->context)
        return TERN_OK;
    err = device_can(p);
    if (err == TERN_OK)
        err = module_begin(p);
    if (err == TERN_OK)
        err = memory_begin(p);
    if (err == TERN_OK)
        b->context = current;
    else
        let_go(p);
    return err;
}

/* ---- into a stream ---- */

static enum tern_err pages_suit(struct tern_pool *p, const struct tern_checksums *of)
{
    const struct brought *b = p->brought;

    if (of->n == 0 || !of->pages)
        return set_error(p->owner, TERN_INVALID, "no page is named: name the pages of a commit");
    if (of->page_bytes < b->page_bytes || of->page_bytes > p->info.bytes)
        return set_error(p->owner, TERN_INVALID,
                         "no group of the pool has this page_bytes: pass the page_bytes of the "
                         "group, from the layout");
    for (uint32_t i = 0; i < of->n; i++)
        if (of->pages[i].index >= p->info.bytes / of->page_bytes)
            return set_error(
                p->owner, TERN_INVALID,
                "a page lies outside the pool: pass pages of one group, and its page_bytes");
    if (brought_entry_bytes(of->units) > b->entry_bytes)
        return set_error(p->owner, TERN_UNSUPPORTED,
                         "the daemon has no room for that many units: raise limits.sums_per_page, "
                         "or commit without checksums, and the daemon computes them");
    return TERN_OK;
}

/* Returns the number of pages in one launch. */
static enum tern_err pages_at_once(struct tern_pool *p, const struct tern_checksums *of,
                                   uint32_t *ret)
{
    const struct kernels_checksum one = {.page_bytes = of->page_bytes, .n = 1, .units = of->units};
    uint64_t bytes = kernels_checksum_scratch(&one);

    if (bytes == 0 || bytes > SCRATCH_BLOCKS)
        return set_error(p->owner, TERN_UNSUPPORTED,
                         "a page is too large, or has more units than bytes: commit without "
                         "checksums, and the daemon computes them");
    *ret =
        SCRATCH_BLOCKS / bytes < PAGES_AT_ONCE ? (uint32_t)(SCRATCH_BLOCKS / bytes) : PAGES_AT_ONCE;
    return TERN_OK;
}

/* Makes the stream wait for the launch before, which may be in another stream. */
static enum tern_err stream_suits(struct tern_pool *p, CUstream stream)
{
    const struct driver *d = device_map_driver(p->device);
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult result = d->stream_capturing(stream, &status);

    if (result != CUDA_SUCCESS)
        return failed(p, TERN_INTERNAL, "cuStreamIsCapturing", result);
    if (status != CU_STREAM_CAPTURE_STATUS_NONE)
        return set_error(
            p->owner, TERN_INVALID,
            "the stream is being captured: request checksums after the graph's launch");
    if (p->brought->unmarked)
        return set_error(p->owner, TERN_INTERNAL,
                         "the driver failed, and checksums are still in a stream: commit without "
                         "them, and the daemon computes them");
    if (!p->brought->queued)
        return TERN_OK;
    result = d->stream_wait_event(stream, p->brought->behind, 0);
    return result == CUDA_SUCCESS ? TERN_OK : failed(p, TERN_INTERNAL, "cuStreamWaitEvent", result);
}

static enum tern_err launch(struct tern_pool *p, enum kernels_kind kind, union kernels_args *args,
                            CUstream stream)
{
    void *params[] = {args};
    struct kernels_launch how;
    CUresult result;

    check(kernels_prepare(kind, args, &how) == KERNELS_REFUSED_NONE); /* the sizes suit */
    result = device_map_driver(p->device)->launch(p->brought->function[kind], how.grid, 1, 1,
                                                  how.block, 1, 1, 0, stream, params, NULL);
    return result == CUDA_SUCCESS ? TERN_OK : failed(p, TERN_INTERNAL, "cuLaunchKernel", result);
}

/* Pages [first, first + n). */
static enum tern_err put_some(struct tern_pool *p, const struct tern_checksums *of, uint32_t first,
                              uint32_t n, CUstream stream)
{
    const struct brought *b = p->brought;
    union kernels_args told = {.told = {.to = b->scratch, .n = 2 * n}};
    union kernels_args args = {.checksum = {.pool = (uintptr_t)p->info.base,
                                            .list = b->scratch,
                                            .page_bytes = of->page_bytes,
                                            .n = n,
                                            .units = of->units,
                                            .blocks = b->scratch + SCRATCH_WORDS,
                                            .sums = b->at + sizeof(struct brought_head),
                                            .places = b->scratch + n * sizeof(uint32_t),
                                            .place_bytes = b->entry_bytes}};

    for (uint32_t i = 0; i < n; i++) {
        told.told.word[i] = of->pages[first + i].index;
        told.told.word[n + i] = entry_of(b, of, first + i);
    }
    TRY(launch(p, KERNELS_TELL, &told, stream));
    TRY(launch(p, KERNELS_CHECKSUM_BLOCKS, &args, stream));
    return launch(p, KERNELS_CHECKSUM_UNITS, &args, stream);
}

static enum tern_err put_all(struct tern_pool *p, const struct tern_checksums *of, uint32_t at_once,
                             CUstream stream)
{
    struct brought *b = p->brought;
    enum tern_err err = TERN_OK;
    CUresult result;

    for (uint32_t i = 0; err == TERN_OK && i < of->n; i += at_once)
        err = put_some(p, of, i, of->n - i < at_once ? of->n - i : at_once, stream);
    b->queued = true; /* also after an error: some kernels may be queued */
    result = device_map_driver(p->device)->event_record(b->behind, stream);
    b->unmarked = result != CUDA_SUCCESS;
    if (err == TERN_OK && b->unmarked)
        err = failed(p, TERN_INTERNAL, "cuEventRecord", result);
    return err;
}

enum tern_err brought_put(struct tern_pool *p, const struct tern_checksums *of, CUstream stream)
{
    struct tern_checksums all = *of;
    uint32_t at_once = 0;

    if (!p->brought || !p->device)
        return set_error(p->owner, TERN_UNSUPPORTED,
                         "the pool is in host memory, or the daemon is too old to accept "
                         "checksums: commit without them, and the daemon computes them");
    all.units = all.units ? all.units : 1;
    TRY(pages_suit(p, &all));
    TRY(pages_at_once(p, &all, &at_once));
    TRY(begin(p));
    TRY(stream_suits(p, stream));
    heads_set(p->brought, &all, 0);
    TRY(put_all(p, &all, at_once, stream));
    heads_set(p->brought, &all, all.step);
    return TERN_OK;
}

/* ---- the end ---- */

static bool drained(const struct tern_pool *p)
{
    const struct driver *d = device_map_driver(p->device);
    uint64_t until = client_socket_now_ns() + BROUGHT_WAIT_MS * MS_NS;
    CUresult result = CUDA_SUCCESS;

    while (p->brought->queued) {
        result = p->brought->unmarked ? CUDA_ERROR_NOT_READY : d->event_query(p->brought->behind);
        if (result != CUDA_ERROR_NOT_READY || client_socket_now_ns() > until)
            break;
        nanosleep(&(struct timespec){.tv_nsec = BROUGHT_NAP_NS}, NULL);
    }
    return result == CUDA_SUCCESS;
}

/* The thread that ends a mapping may have another context, or none. A context that was destroyed
 * has freed everything in it. */
static bool ended(struct tern_pool *p)
{
    const struct driver *d = device_map_driver(p->device);
    CUcontext before = NULL;
    bool ok = true;

    if (!p->brought->context)
        return true;
    if (!drained(p))
        return false;
    d->context_get(&before);
    if (d->context_set(p->brought->context) == CUDA_SUCCESS)
        ok = let_go(p);
    d->context_set(before);
    return ok;
}

bool brought_end(struct tern_pool *p)
{
    bool ok = true;

    if (p->brought && is_owner(p->owner)) {
        ok = ended(p);
        if (ok)
            munmap(p->brought->map, p->brought->map_bytes);
    }
    free(p->brought);
    p->brought = NULL;
    return ok;
}
