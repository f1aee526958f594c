/* Packs stretches of devices' memory into memory of the host, and back. Short stretches, such as
 * rows of resharded pages, are moved together: a kernel moves them to or from the lane's scratch,
 * and one copy moves the scratch. Each long stretch, and each stretch on a device without kernels,
 * is a copy of its own. */
#include <assert.h>
#include <string.h>

#include "base/check.h"
#include "seam/mem/cuda/cuda_state.h"

#define ROWS_MAX   512u        /* of a launch */
#define ROWS_SHORT (16u << 10) /* mean bytes of a row below which a kernel is worth its launch */

/* Stretches of one device that are moved together. */
struct rows {
    struct cuda_device *device;
    const struct iovec *v;
    uint32_t n;
    uint64_t bytes, last; /* of all, and of the last one, which may be cut */
    uint8_t *packed;
    bool put; /* to the device */
};

/* Takes stretches of one device, at most `bytes`: as many as a lane has room for, at least one. */
static struct rows rows_take(struct cuda *c, const struct iovec *v, uint64_t bytes)
{
    struct rows r = {.device = cuda_device_at(c, v->iov_base), .v = v};

    while (r.bytes < bytes && r.n < ROWS_MAX) {
        uint64_t left = bytes - r.bytes, n = v[r.n].iov_len < left ? v[r.n].iov_len : left;

        if (r.n > 0 &&
            (r.bytes + n > CUDA_PIECE_BYTES || cuda_device_at(c, v[r.n].iov_base) != r.device))
            break;
        r.n++;
        r.bytes += n;
        r.last = n;
    }
    return r;
}

static uint64_t row_bytes(const struct rows *r, uint32_t i)
{
    return i + 1 == r->n ? r->last : r->v[i].iov_len;
}

static bool rows_by_copies(struct cuda *c, const struct rows *r)
{
    uint8_t *at = r->packed;
    bool ok = true;

    for (uint32_t i = 0; ok && i < r->n; at += row_bytes(r, i++))
        ok = r->put ? mem_far_put(&c->far, r->v[i].iov_base, at, row_bytes(r, i))
                    : mem_far_get(&c->far, at, r->v[i].iov_base, row_bytes(r, i));
    return ok;
}

/* The kernel's input: pieces, the two pages of each (its beginning on the device and in the
 * scratch), and tiles. */
struct told {
    struct kernels_piece *pieces;
    uint64_t *pages;
    struct kernels_tile *tiles;
    uint32_t npieces, ntiles;
};

#define TILES_MAX (ROWS_MAX + CUDA_PIECE_BYTES / KERNELS_TILE)
static_assert(ROWS_MAX * (sizeof(struct kernels_piece) + 2 * sizeof(uint64_t)) +
                      TILES_MAX * sizeof(struct kernels_tile) <=
                  CUDA_PIECE_BYTES,
              "what a launch is told goes through one piece");

/* Returns how many rows from row i on have its length and lie at equal distances: they make one
 * piece. */
static uint32_t rows_alike(const struct rows *r, uint32_t i, uint64_t *ret_stride)
{
    uint32_t n = 1;

    *ret_stride = 0;
    for (; i + n < r->n && row_bytes(r, i + n) == row_bytes(r, i); n++) {
        uintptr_t before = (uintptr_t)r->v[i + n - 1].iov_base,
                  here = (uintptr_t)r->v[i + n].iov_base;

        if (here <= before || (n > 1 && here - before != *ret_stride))
            break;
        *ret_stride = here - before;
    }
    return n;
}

/* Adds a piece for rows [i, i + n), whose packed bytes begin at `packed` of the scratch. */
static void piece_tell(const struct rows *r, uint32_t i, uint32_t n, uint64_t stride,
                       CUdeviceptr packed, struct told *io)
{
    uint64_t at = (uintptr_t)r->v[i].iov_base, bytes = row_bytes(r, i);
    const struct kernels_end there = {2 * io->npieces, at % KERNELS_VECTOR},
                             here = {2 * io->npieces + 1, packed % KERNELS_VECTOR};
    struct strided s = {.row_bytes = bytes, .loop = {{.n = 1}, {.n = 1}, {.n = n}}};

    s.loop[2].from_stride = r->put ? bytes : stride;
    s.loop[2].to_stride = r->put ? stride : bytes;
    io->pages[there.page] = at - there.at;
    io->pages[here.page] = packed - here.at;
    check(kernels_piece_make(&s, r->put ? &here : &there, r->put ? &there : &here,
                             &io->pieces[io->npieces++]) == KERNELS_REFUSED_NONE);
}

/* Writes the input to the lane's first piece; *ret_bytes: its length. */
static struct told rows_tell(const struct rows *r, const struct cuda_lane *l, CUdeviceptr scratch,
                             uint64_t *ret_bytes)
{
    struct told t = {.pieces = (void *)l->pinned,
                     .pages = (void *)(l->pinned + ROWS_MAX * sizeof *t.pieces)};
    uint64_t stride, tiles, *pages;

    for (uint32_t i = 0, n; i < r->n; i += n) {
        n = rows_alike(r, i, &stride);
        if (row_bytes(r, i) > 0)
            piece_tell(r, i, n, stride, scratch, &t);
        scratch += n * row_bytes(r, i);
    }
    pages = (void *)(t.pieces + t.npieces); /* closes the gap, to copy less */
    memmove(pages, t.pages, 2 * t.npieces * sizeof *pages);
    t.pages = pages;
    t.tiles = (void *)(pages + 2 * t.npieces);
    tiles = kernels_tiles(t.pieces, t.npieces, t.tiles, TILES_MAX);
    check(tiles <= TILES_MAX);
    t.ntiles = (uint32_t)tiles;
    *ret_bytes = (uint64_t)((uint8_t *)(t.tiles + tiles) - l->pinned);
    return t;
}

static bool rows_ask(const struct rows *r, const struct cuda_lane *l, uint8_t *packed)
{
    struct cuda_device *d = r->device;
    const struct driver *api = &d->cuda->driver;
    CUdeviceptr scratch = cuda_scratch(d, l, SCRATCH_WORK),
                table = cuda_scratch(d, l, SCRATCH_TOLD);
    uint64_t bytes;
    const struct told t = rows_tell(r, l, scratch, &bytes);
    CUdeviceptr pages = table + (uint64_t)((uint8_t *)t.pages - l->pinned);
    union kernels_args args = {
        .reshard = {.from_pages = pages,
                    .to_pages = pages,
                    .from_width = 2 * t.npieces,
                    .to_width = 2 * t.npieces,
                    .pieces = table,
                    .tiles = table + (uint64_t)((uint8_t *)t.tiles - l->pinned),
                    .npieces = t.npieces,
                    .ntiles = t.ntiles,
                    .spans = 1}};

    return cuda_did(d, "cuMemcpyHtoDAsync", api->put_async(table, l->pinned, bytes, l->stream)) &&
           (!r->put || cuda_did(d, "cuMemcpyHtoDAsync",
                                api->put_async(scratch, packed, r->bytes, l->stream))) &&
           cuda_launch(d, l, KERNELS_RESHARD, &args) &&
           (r->put || cuda_did(d, "cuMemcpyDtoHAsync",
                               api->get_async(packed, scratch, r->bytes, l->stream))) &&
           cuda_did(d, "cuEventRecord", api->event_record(l->done[0], l->stream));
}

static bool rows_by_kernel(const struct rows *r)
{
    struct cuda_lane *l = cuda_lane_take(r->device);
    uint8_t *packed;
    bool ok;

    if (!l)
        return false;
    packed = l->pinned + CUDA_PIECE_BYTES;
    if (r->put)
        memcpy(packed, r->packed, r->bytes);
    ok = rows_ask(r, l, packed) && cuda_lane_wait(r->device, l, 0, "a kernel");
    if (ok && !r->put)
        memcpy(r->packed, packed, r->bytes);
    cuda_lane_put(r->device, l);
    return ok;
}

/* Stretches after those of a lost device are still moved. */
bool cuda_far_pack(void *ctx, const struct iovec *v, uint64_t bytes, uint8_t *packed, bool put)
{
    struct cuda *c = ctx;
    bool all = true;

    while (bytes > 0) {
        struct rows r = rows_take(c, v, bytes);
        bool kernel = r.device->kernels && r.n > 1 && r.bytes > 0 && r.bytes / r.n < ROWS_SHORT, ok;

        r.packed = packed;
        r.put = put;
        ok = kernel ? rows_by_kernel(&r) : rows_by_copies(c, &r);
        atomic_fetch_add(kernel ? &c->rows_by_kernels : &c->rows_by_copies, ok ? r.n : 0);
        all = all && ok;
        v += r.n;
        packed += r.bytes;
        bytes -= r.bytes;
    }
    return all;
}
