/* Modules and kernels of the stand-in: see standin.h. A kernel runs on the CPU from its own source
 * (tests/unit/kernels/on_cpu.cc), with each address in its arguments replaced by the stand-in's own
 * address of that memory. An access out of reach loses the device, as on a GPU. */
#include <stdlib.h>
#include <string.h>

#include "standin/module.h"
#include "standin/standin_state.h"
#include "unit/kernels/on_cpu_run.h"

#define MODULES_MAX  64
#define FATBIN_MAGIC 0xba55ed50u /* begins nvcc's modules */

/* Absent if no C++ compiler could build the kernels: then no module loads. */
__attribute__((weak)) void on_cpu_launch(enum kernels_kind kind, const struct kernels_launch *l,
                                         const union kernels_args *args, struct prng *p);

struct CUfunc_st {
    CUmodule module;
    enum kernels_kind kind;
};

struct CUmod_st {
    bool used;
    int device;
    struct CUfunc_st function[KERNELS_KINDS];
};

static struct CUmod_st modules[MODULES_MAX];
static struct prng order = {{5, 6, 7, 8}};

/* ---- modules ---- */

static bool is_ours(const void *image)
{
    const uint32_t magic = FATBIN_MAGIC;

    return memcmp(image, &magic, sizeof magic) == 0 ||
           strncmp(image, STANDIN_MODULE, sizeof STANDIN_MODULE) == 0;
}

CUresult standin_module_load(CUmodule *ret, const void *image)
{
    CUresult result = standin_enter("cuModuleLoadData");
    const char *none = getenv("STANDIN_CUDA_KERNELS");
    size_t i = 0;

    while (i < MODULES_MAX && modules[i].used)
        i++;
    if (result == CUDA_SUCCESS && !standin_current)
        result = CUDA_ERROR_INVALID_CONTEXT;
    if (result == CUDA_SUCCESS && i == MODULES_MAX)
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS &&
        (!is_ours(image) || !on_cpu_launch || (none && strcmp(none, "0") == 0)))
        result = CUDA_ERROR_NO_BINARY_FOR_GPU;
    if (result == CUDA_SUCCESS) {
        modules[i] = (struct CUmod_st){.used = true, .device = standin_current->device};
        *ret = &modules[i];
    }
    return standin_leave(result);
}

CUresult standin_module_unload(CUmodule module)
{
    CUresult result = standin_enter("cuModuleUnload");

    if (result == CUDA_SUCCESS && !module->used)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS && standin_launched(module->device))
        standin_broken("a module was unloaded while a kernel was to run");
    if (result == CUDA_SUCCESS)
        module->used = false;
    return standin_leave(result);
}

CUresult standin_module_function(CUfunction *ret, CUmodule module, const char *name)
{
    static const char *const names[] = {
#define X(NAME, function, args) #function,
        KERNELS_TABLE(X)
#undef X
    };
    CUresult result = standin_enter("cuModuleGetFunction");
    int k = 0;

    while (k < KERNELS_KINDS && strcmp(names[k], name) != 0)
        k++;
    if (result == CUDA_SUCCESS && !module->used)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS && k == KERNELS_KINDS)
        result = CUDA_ERROR_NOT_FOUND;
    if (result == CUDA_SUCCESS) {
        module->function[k] = (struct CUfunc_st){.module = module, .kind = (enum kernels_kind)k};
        *ret = &module->function[k];
    }
    return standin_leave(result);
}

void standin_modules_live(struct standin_live *ret)
{
    for (size_t i = 0; i < MODULES_MAX; i++)
        ret->modules += modules[i].used;
}

/* ---- launches ---- */

static bool takes_args(enum kernels_kind kind)
{
    return kind != KERNELS_FP8_PACK && kind != KERNELS_FP8_UNPACK; /* no program launches those */
}

static void args_take(struct standin_launch *ret, void *args)
{
    static const size_t bytes[] = {
#define X(NAME, function, member) sizeof ret->args.member,
        KERNELS_TABLE(X)
#undef X
    };

    memcpy(&ret->args, args, bytes[ret->kind]);
}

CUresult standin_launch(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                        unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                        unsigned int block_z, unsigned int shared_bytes, CUstream stream,
                        void **params, void **extra)
{
    CUresult result = standin_enter("cuLaunchKernel");
    struct standin_launch l = {.grid = grid_x, .block = block_x};

    if (result == CUDA_SUCCESS && (!function->module || !function->module->used))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS && function->module->device != stream->device)
        result = CUDA_ERROR_INVALID_CONTEXT;
    if (result == CUDA_SUCCESS &&
        (grid_x == 0 || grid_y != 1 || grid_z != 1 || block_x == 0 || block_x > KERNELS_THREADS ||
         block_y != 1 || block_z != 1 || shared_bytes > 0 || extra))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS && !takes_args(function->kind))
        result = CUDA_ERROR_NOT_SUPPORTED;
    if (result == CUDA_SUCCESS) {
        l.kind = function->kind;
        args_take(&l, params[0]);
        result = standin_ask_launch(stream, &l);
    }
    return standin_leave(result);
}

/* ---- addresses of the arguments ---- */

/* Replaces an address. Returns false if not all n bytes are in reach. */
static bool reach(uint64_t *io, uint64_t n, int device)
{
    CUresult result;
    uint8_t *host = standin_registered(*io, n);
    uint8_t *there = host ? host : standin_reach(*io, n, device, &result);

    *io = (uintptr_t)there;
    return there != NULL;
}

/* Replaces the list and the pool: all pages that the list names lie in one mapping. */
static bool reach_pages(uint64_t *io_pool, uint64_t *io_list, uint64_t page_bytes, uint32_t n,
                        int device)
{
    uint64_t pool = *io_pool;
    const uint32_t *list;

    if (!reach(io_list, (uint64_t)n * sizeof *list, device) || !reach(io_pool, 1, device))
        return false;
    list = (const uint32_t *)(uintptr_t)*io_list;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t page = pool + list[i] * page_bytes;

        if (!reach(&page, page_bytes, device) || page != *io_pool + list[i] * page_bytes)
            return false;
    }
    return true;
}

/* Replaces the address of the checksums' places, which all lie in one mapping. */
static bool reach_places(struct kernels_checksum *a, int device)
{
    uint64_t sums = a->sums, bytes = a->units * sizeof(uint64_t);
    const uint32_t *places;

    if (!reach(&a->places, (uint64_t)a->n * sizeof *places, device) || !reach(&a->sums, 1, device))
        return false;
    places = (const uint32_t *)(uintptr_t)a->places;
    for (uint32_t i = 0; i < a->n; i++) {
        uint64_t at = sums + places[i] * a->place_bytes;

        if (!reach(&at, bytes, device) || at != a->sums + places[i] * a->place_bytes)
            return false;
    }
    return true;
}

static bool reach_checksum(enum kernels_kind kind, struct kernels_checksum *a, int device)
{
    if (!reach(&a->blocks, (uint64_t)a->n * a->page_blocks * sizeof(uint64_t), device))
        return false;
    if (kind == KERNELS_CHECKSUM_BLOCKS)
        return reach_pages(&a->pool, &a->list, a->page_bytes, a->n, device);
    return a->places ? reach_places(a, device)
                     : reach(&a->sums, (uint64_t)a->n * a->units * sizeof(uint64_t), device);
}

/* Returns the bytes from a piece's begin to its end. */
static uint64_t extent(const struct kernels_piece *p, const uint64_t *stride)
{
    return (p->outer - 1) * stride[0] + (p->loops[0].by - 1) * stride[1] +
           (p->loops[1].by - 1) * stride[2] + (uint64_t)p->row_vectors.by * p->width;
}

/* Replaces the address of a span's page, by one of its pieces; all pieces have to agree. Returns
 * CUDA_SUCCESS, or the reason why the device is lost. */
static CUresult reach_end(uint64_t *io_page, uint64_t page, const struct kernels_piece *p, bool to,
                          int device)
{
    uint64_t in_page = to ? p->to_at : p->from_at, at = page + in_page;

    if (at % p->width)
        return CUDA_ERROR_MISALIGNED_ADDRESS;
    if (!reach(&at, extent(p, to ? p->to_stride : p->from_stride), device) ||
        (*io_page != 0 && *io_page != at - in_page))
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    *io_page = at - in_page;
    return CUDA_SUCCESS;
}

/* Copies the tables of pages, with the stand-in's address in place of each offset. ret: from_width
 * + to_width entries a span. */
static CUresult reach_spans(struct kernels_reshard *a, uint64_t *ret_from, uint64_t *ret_to,
                            int device)
{
    const struct kernels_piece *pieces = (const struct kernels_piece *)(uintptr_t)a->pieces;
    const uint64_t *from = (const uint64_t *)(uintptr_t)a->from_pages,
                   *to = (const uint64_t *)(uintptr_t)a->to_pages;

    for (uint64_t span = 0; span < a->spans; span++)
        for (uint32_t i = 0; i < a->npieces; i++) {
            const struct kernels_piece *p = &pieces[i];
            uint64_t f = span * a->from_width + p->from_page, t = span * a->to_width + p->to_page;
            CUresult result = reach_end(&ret_from[f], a->from + from[f], p, false, device);

            if (result == CUDA_SUCCESS)
                result = reach_end(&ret_to[t], a->to + to[t], p, true, device);
            if (result != CUDA_SUCCESS)
                return result;
        }
    a->from = a->to = 0;
    a->from_pages = (uintptr_t)ret_from;
    a->to_pages = (uintptr_t)ret_to;
    return CUDA_SUCCESS;
}

static void run(const struct standin_launch *l, const union kernels_args *args)
{
    const struct kernels_launch launch = {.grid = l->grid, .block = l->block};

    on_cpu_launch(l->kind, &launch, args, &order);
}

static CUresult reshard_run(const struct standin_launch *l, int device)
{
    union kernels_args args = {.reshard = l->args.reshard};
    struct kernels_reshard *a = &args.reshard;
    uint64_t from = (uint64_t)a->spans * a->from_width, to = (uint64_t)a->spans * a->to_width;
    CUresult result = CUDA_ERROR_ILLEGAL_ADDRESS;
    uint64_t *pages;

    if (!reach(&a->pieces, a->npieces * sizeof(struct kernels_piece), device) ||
        !reach(&a->tiles, a->ntiles * sizeof(struct kernels_tile), device) ||
        !reach(&a->from_pages, from * sizeof *pages, device) ||
        !reach(&a->to_pages, to * sizeof *pages, device))
        return result;
    pages = calloc(from + to, sizeof *pages);
    if (!pages)
        abort();
    result = reach_spans(a, pages, pages + from, device);
    if (result == CUDA_SUCCESS)
        run(l, &args);
    free(pages);
    return result;
}

CUresult standin_kernel(const struct standin_launch *l, int device)
{
    union kernels_args args = l->args;
    bool ok;

    if (l->kind == KERNELS_RESHARD)
        return reshard_run(l, device);
    if (l->kind == KERNELS_TELL)
        ok = reach(&args.told.to, args.told.n * sizeof(uint32_t), device);
    else if (l->kind == KERNELS_CHECKSUM_BLOCKS || l->kind == KERNELS_CHECKSUM_UNITS)
        ok = reach_checksum(l->kind, &args.checksum, device);
    else
        ok = reach_pages(&args.pages.pool, &args.pages.list, args.pages.page_bytes, args.pages.n,
                         device) &&
             (l->kind == KERNELS_ZERO ||
              reach(&args.pages.packed, args.pages.n * args.pages.page_bytes, device));
    if (!ok)
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    run(l, &args);
    return CUDA_SUCCESS;
}
