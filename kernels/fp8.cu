/* bf16 to e4m3 and back. A block has one head of one page: it finds the largest magnitude, derives
 * the scale from it, and converts. */
#include "kernels/device.h"
#include "kernels/fp8.h"

struct fp8_head {
    const struct kernels_fp8 *a;
    uint64_t page, packed; /* addresses of the page at both ends */
    uint64_t head;
    uint32_t vectors;
};

static __device__ __forceinline__ struct fp8_head fp8_head_of(const struct kernels_fp8 *a,
                                                              uint64_t i)
{
    uint64_t in_list = i / a->heads, page = memory<const uint32_t>(a->list)[in_list];
    struct fp8_head h;

    h.a = a;
    h.page = a->pool + page * a->page_bytes;
    h.packed = a->packed + in_list * (a->page_bytes / 2);
    h.head = i - in_list * a->heads;
    h.vectors = a->outer * a->rows * a->by_row.by;
    return h;
}

/* Returns the index in its page of the first element of a head's vector i. */
static __device__ __forceinline__ uint64_t element_of(const struct fp8_head *h, uint32_t i)
{
    const struct kernels_fp8 *a = h->a;
    uint32_t row = divide(&a->by_row, i), outer = divide(&a->by_rows, row);
    uint64_t in_row = (i - row * a->by_row.by) * KERNELS_FP8_EACH;

    return h->head * a->head_stride + outer * a->outer_stride +
           (row - outer * a->by_rows.by) * a->row_stride + in_row;
}

static __device__ __forceinline__ uint32_t bf16_of(ulonglong2 v, uint32_t k)
{
    return static_cast<uint32_t>((k < 4 ? v.x : v.y) >> (k % 4 * 16) & 0xffff);
}

static __device__ __forceinline__ uint32_t most_of(const struct fp8_head *h)
{
    uint32_t most = 0;

    for (uint32_t i = threadIdx.x; i < h->vectors; i += KERNELS_THREADS) {
        ulonglong2 v = *memory<const ulonglong2>(h->page + element_of(h, i) * 2);

#pragma unroll
        for (uint32_t k = 0; k < KERNELS_FP8_EACH; k++) {
            uint32_t counts = fp8_counts(bf16_of(v, k));

            most = counts > most ? counts : most;
        }
    }
    return most;
}

extern "C" __global__ void tern_fp8_pack(struct kernels_fp8 a)
{
    __shared__ uint32_t most[KERNELS_THREADS];
    uint64_t all = static_cast<uint64_t>(a.n) * a.heads;

    for (uint64_t n = blockIdx.x; n < all; n += gridDim.x) {
        struct fp8_head h = fp8_head_of(&a, n);
        int32_t scale;

        most[threadIdx.x] = most_of(&h);
        __syncthreads();
        for (uint32_t half = KERNELS_THREADS / 2; half > 0; half /= 2) {
            if (threadIdx.x < half && most[threadIdx.x + half] > most[threadIdx.x])
                most[threadIdx.x] = most[threadIdx.x + half];
            __syncthreads();
        }
        scale = fp8_exponent(most[0]);
        __syncthreads(); /* before the next head's magnitudes are written */
        if (threadIdx.x == 0)
            memory<uint32_t>(a.scales)[n] = static_cast<uint32_t>(scale) << 23;
        for (uint32_t i = threadIdx.x; i < h.vectors; i += KERNELS_THREADS) {
            uint64_t at = element_of(&h, i), packed = 0;
            ulonglong2 v = *memory<const ulonglong2>(h.page + at * 2);

#pragma unroll
            for (uint32_t k = 0; k < KERNELS_FP8_EACH; k++)
                packed |= static_cast<uint64_t>(fp8_from_bf16(bf16_of(v, k), scale)) << 8 * k;
            *memory<uint64_t>(h.packed + at) = packed;
        }
    }
}

extern "C" __global__ void tern_fp8_unpack(struct kernels_fp8 a)
{
    uint64_t all = static_cast<uint64_t>(a.n) * a.heads;

    for (uint64_t n = blockIdx.x; n < all; n += gridDim.x) {
        struct fp8_head h = fp8_head_of(&a, n);
        int32_t scale = static_cast<int32_t>(memory<const uint32_t>(a.scales)[n] >> 23);

        for (uint32_t i = threadIdx.x; i < h.vectors; i += KERNELS_THREADS) {
            uint64_t at = element_of(&h, i), packed = *memory<const uint64_t>(h.packed + at);
            uint64_t half[2] = {0, 0};
            ulonglong2 v;

#pragma unroll
            for (uint32_t k = 0; k < KERNELS_FP8_EACH; k++)
                half[k / 4] |= static_cast<uint64_t>(fp8_to_bf16(packed >> 8 * k & 0xff, scale))
                               << k % 4 * 16;
            v.x = half[0];
            v.y = half[1];
            *memory<ulonglong2>(h.page + at * 2) = v;
        }
    }
}
