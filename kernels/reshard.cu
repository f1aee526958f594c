/* Carries out a plan of strided copies (strided.h) over a list of spans. A block has one tile,
 * which is some vectors of one piece, for one span at a time; vectors are as wide as the piece
 * allows. */
#include "kernels/device.h"

struct tile_place {
    const struct kernels_piece *piece;
    const struct kernels_tile *tile;
    uint64_t from, to; /* addresses of the first row of the piece */
};

/* Returns the offsets of vector i of the tile from the beginning of the piece. */
static __device__ __forceinline__ void vector_at(const struct tile_place *w, uint32_t i,
                                                 uint64_t *ret_from, uint64_t *ret_to)
{
    const struct kernels_piece *p = w->piece;
    uint32_t at = w->tile->column + i, rows = divide(&p->row_vectors, at);
    uint32_t row = w->tile->row + rows, b = divide(&p->loops[1], row), a = divide(&p->loops[0], b);
    uint64_t in_row = static_cast<uint64_t>(at - rows * p->row_vectors.by) * p->width;

    row -= b * p->loops[1].by;
    b -= a * p->loops[0].by;
    *ret_from = a * p->from_stride[0] + b * p->from_stride[1] + row * p->from_stride[2] + in_row;
    *ret_to = a * p->to_stride[0] + b * p->to_stride[1] + row * p->to_stride[2] + in_row;
}

template <typename T> static __device__ __forceinline__ void tile_copy(const struct tile_place *w)
{
    T v[KERNELS_EACH], *to[KERNELS_EACH];

#pragma unroll
    for (uint32_t k = 0; k < KERNELS_EACH; k++) {
        uint32_t i = k * KERNELS_THREADS + threadIdx.x;
        uint64_t from_at, to_at;

        to[k] = nullptr;
        if (i >= w->tile->vectors)
            continue;
        vector_at(w, i, &from_at, &to_at);
        v[k] = *memory<const T>(w->from + from_at);
        to[k] = memory<T>(w->to + to_at);
    }
#pragma unroll
    for (uint32_t k = 0; k < KERNELS_EACH; k++)
        if (to[k])
            *to[k] = v[k];
}

extern "C" __global__ void tern_reshard(struct kernels_reshard a)
{
    uint64_t all = static_cast<uint64_t>(a.ntiles) * a.spans;

    for (uint64_t i = blockIdx.x; i < all; i += gridDim.x) {
        uint64_t span = i / a.ntiles;
        struct tile_place w;

        w.tile = memory<const struct kernels_tile>(a.tiles) + (i - span * a.ntiles);
        w.piece = memory<const struct kernels_piece>(a.pieces) + w.tile->piece;
        w.from = a.from +
                 memory<const uint64_t>(a.from_pages)[span * a.from_width + w.piece->from_page] +
                 w.piece->from_at;
        w.to = a.to + memory<const uint64_t>(a.to_pages)[span * a.to_width + w.piece->to_page] +
               w.piece->to_at;
        switch (w.piece->width) {
        case 16: tile_copy<ulonglong2>(&w); break;
        case 8: tile_copy<uint64_t>(&w); break;
        case 4: tile_copy<uint32_t>(&w); break;
        case 2: tile_copy<uint16_t>(&w); break;
        default: tile_copy<uint8_t>(&w); break;
        }
    }
}
