/* Gather, scatter and zero. The pages of a list form one run of vectors; a block has one tile of
 * the run, and neighbouring threads have neighbouring vectors, in whichever pages they lie. */
#include "kernels/device.h"

struct pages_run {
    uint64_t first, all; /* vectors: the tile's first, and number of all */
    uint64_t page;       /* position in the list of the page in which the tile begins */
    uint32_t in_page;    /* vectors: offset of the tile in that page */
};

static __device__ __forceinline__ struct pages_run run_of(const struct kernels_pages *a,
                                                          uint64_t tile)
{
    struct pages_run r;

    r.first = tile * KERNELS_TILE;
    r.all = static_cast<uint64_t>(a->n) * a->vectors.by;
    r.page = r.first / a->vectors.by;
    r.in_page = static_cast<uint32_t>(r.first - r.page * a->vectors.by);
    return r;
}

/* Returns the place of vector i of the tile in the pool. */
static __device__ __forceinline__ ulonglong2 *in_pool(const struct kernels_pages *a,
                                                      const struct pages_run *r, uint32_t i)
{
    uint32_t at = r->in_page + i, pages = divide(&a->vectors, at);
    uint64_t page = memory<const uint32_t>(a->list)[r->page + pages];

    return memory<ulonglong2>(a->pool + page * a->page_bytes) + (at - pages * a->vectors.by);
}

static __device__ __forceinline__ ulonglong2 *in_packed(const struct kernels_pages *a,
                                                        const struct pages_run *r, uint32_t i)
{
    return memory<ulonglong2>(a->packed) + r->first + i;
}

enum pages_way { WAY_GATHER, WAY_SCATTER, WAY_ZERO };

template <enum pages_way way>
static __device__ __forceinline__ void pages_tile(const struct kernels_pages *a, uint64_t tile)
{
    struct pages_run r = run_of(a, tile);
    ulonglong2 v[KERNELS_EACH], *to[KERNELS_EACH];

#pragma unroll
    for (uint32_t k = 0; k < KERNELS_EACH; k++) {
        uint32_t i = k * KERNELS_THREADS + threadIdx.x;

        v[k].x = v[k].y = 0;
        to[k] = nullptr;
        if (r.first + i >= r.all)
            continue;
        to[k] = way == WAY_GATHER ? in_packed(a, &r, i) : in_pool(a, &r, i);
        if (way != WAY_ZERO)
            v[k] = way == WAY_GATHER ? *in_pool(a, &r, i) : *in_packed(a, &r, i);
    }
#pragma unroll
    for (uint32_t k = 0; k < KERNELS_EACH; k++)
        if (to[k])
            *to[k] = v[k];
}

template <enum pages_way way>
static __device__ __forceinline__ void pages_all(const struct kernels_pages *a)
{
    uint64_t all = static_cast<uint64_t>(a->n) * a->vectors.by;

    for (uint64_t tile = blockIdx.x; tile * KERNELS_TILE < all; tile += gridDim.x)
        pages_tile<way>(a, tile);
}

extern "C" __global__ void tern_gather(struct kernels_pages a)
{
    pages_all<WAY_GATHER>(&a);
}

extern "C" __global__ void tern_scatter(struct kernels_pages a)
{
    pages_all<WAY_SCATTER>(&a);
}

extern "C" __global__ void tern_zero(struct kernels_pages a)
{
    pages_all<WAY_ZERO>(&a);
}
