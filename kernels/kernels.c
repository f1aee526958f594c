/* Checks arguments, and computes grids: a block takes a tile at a time, and continues with another
 * where the list is longer than the largest grid. */
#include "kernels/kernels.h"

const char *kernels_text(enum kernels_refusal refusal)
{
    static const char *const text[] = {
#define X(NAME, words) words,
        KERNELS_REFUSAL_TABLE(X)
#undef X
    };

    return text[refusal];
}

/* With 2^(l-1) < by <= 2^l the factor is below 2^32, and its rounding error is too small to change
 * the quotient of a number below 2^31. */
struct kernels_divisor kernels_divide_by(uint32_t by)
{
    struct kernels_divisor d = {.by = by, .shift = 31};

    while ((1ull << (d.shift - 31)) < by)
        d.shift++;
    d.times = (uint32_t)(((1ull << d.shift) + by - 1) / by);
    return d;
}

static uint32_t grid_of(uint64_t blocks)
{
    return blocks < KERNELS_GRID_MAX ? (uint32_t)blocks : KERNELS_GRID_MAX;
}

static uint64_t shares(uint64_t n, uint64_t of)
{
    return n / of + (n % of != 0);
}

static enum kernels_refusal pages_check(enum kernels_kind kind, struct kernels_pages *io,
                                        struct kernels_launch *ret)
{
    if (io->page_bytes == 0 || io->page_bytes > KERNELS_PAGE_BYTES_MAX ||
        io->page_bytes % KERNELS_VECTOR)
        return KERNELS_REFUSED_PAGE_BYTES;
    if (io->pool % KERNELS_VECTOR || io->list % sizeof(uint32_t) ||
        (kind != KERNELS_ZERO && io->packed % KERNELS_VECTOR))
        return KERNELS_REFUSED_ALIGNED;
    io->vectors = kernels_divide_by((uint32_t)(io->page_bytes / KERNELS_VECTOR));
    ret->block = KERNELS_THREADS;
    ret->grid = grid_of(shares((uint64_t)io->n * io->vectors.by, KERNELS_TILE));
    return KERNELS_REFUSED_NONE;
}

static enum kernels_refusal checksum_shape(struct kernels_checksum *io)
{
    uint64_t share, last;

    if (io->page_bytes == 0 || io->page_bytes > KERNELS_PAGE_BYTES_MAX)
        return KERNELS_REFUSED_PAGE_BYTES;
    if (io->units == 0 || io->units > KERNELS_UNITS_MAX || io->units > io->page_bytes)
        return KERNELS_REFUSED_UNITS;
    share = io->page_bytes / io->units;
    last = io->page_bytes - share * (io->units - 1);
    io->unit_blocks = (uint32_t)shares(share, KERNELS_BLOCK);
    io->page_blocks = io->unit_blocks * (io->units - 1) + (uint32_t)shares(last, KERNELS_BLOCK);
    return KERNELS_REFUSED_NONE;
}

uint64_t kernels_checksum_scratch(const struct kernels_checksum *a)
{
    struct kernels_checksum shape = *a;

    return checksum_shape(&shape) ? 0 : (uint64_t)a->n * shape.page_blocks * sizeof(uint64_t);
}

static enum kernels_refusal checksum_check(enum kernels_kind kind, struct kernels_checksum *io,
                                           struct kernels_launch *ret)
{
    enum kernels_refusal no = checksum_shape(io);
    uint64_t each = kind == KERNELS_CHECKSUM_BLOCKS ? io->page_blocks : io->units;

    if (no)
        return no;
    if (io->list % sizeof(uint32_t) || io->blocks % sizeof(uint64_t) ||
        io->sums % sizeof(uint64_t) || io->places % sizeof(uint32_t) ||
        io->place_bytes % sizeof(uint64_t))
        return KERNELS_REFUSED_ALIGNED;
    ret->block = KERNELS_THREADS;
    ret->grid = grid_of(shares(io->n * each, KERNELS_HASHED));
    return KERNELS_REFUSED_NONE;
}

static enum kernels_refusal reshard_check(const struct kernels_reshard *a,
                                          struct kernels_launch *ret)
{
    if (a->ntiles < a->npieces || a->npieces == 0 || a->from_width == 0 || a->to_width == 0)
        return KERNELS_REFUSED_TILES;
    if (a->from % KERNELS_VECTOR || a->to % KERNELS_VECTOR || a->from_pages % sizeof(uint64_t) ||
        a->to_pages % sizeof(uint64_t) || a->pieces % sizeof(uint64_t) ||
        a->tiles % sizeof(uint32_t))
        return KERNELS_REFUSED_ALIGNED;
    ret->block = KERNELS_THREADS;
    ret->grid = grid_of((uint64_t)a->ntiles * a->spans);
    return KERNELS_REFUSED_NONE;
}

/* Returns true if the loops, from the innermost outwards, cover the whole page without gaps. */
static int fp8_is_whole(const struct kernels_fp8 *a)
{
    uint64_t n[] = {a->heads, a->outer, a->rows};
    uint64_t stride[] = {a->head_stride, a->outer_stride, a->row_stride};
    uint64_t reach = a->row_elements;

    for (int left = 3; left > 0; left--) {
        int next = 0;

        while (next < 3 && (n[next] <= 1 || stride[next] != reach))
            next++;
        if (next == 3)
            break;
        reach *= n[next];
        n[next] = 1;
    }
    return n[0] * n[1] * n[2] == 1 && reach == a->page_bytes / 2;
}

static enum kernels_refusal fp8_check(struct kernels_fp8 *io, struct kernels_launch *ret)
{
    if (io->page_bytes == 0 || io->page_bytes > KERNELS_PAGE_BYTES_MAX ||
        io->page_bytes % KERNELS_VECTOR)
        return KERNELS_REFUSED_PAGE_BYTES;
    if (io->row_elements == 0 || io->row_elements % KERNELS_FP8_EACH || !fp8_is_whole(io))
        return KERNELS_REFUSED_HEADS;
    if (io->pool % KERNELS_VECTOR || io->packed % KERNELS_FP8_EACH || io->list % sizeof(uint32_t) ||
        io->scales % sizeof(float))
        return KERNELS_REFUSED_ALIGNED;
    io->by_row = kernels_divide_by(io->row_elements / KERNELS_FP8_EACH);
    io->by_rows = kernels_divide_by(io->rows);
    ret->block = KERNELS_THREADS;
    ret->grid = grid_of((uint64_t)io->n * io->heads);
    return KERNELS_REFUSED_NONE;
}

static enum kernels_refusal told_check(const struct kernels_told *a, struct kernels_launch *ret)
{
    if (a->n == 0 || a->n > KERNELS_WORDS_MAX)
        return KERNELS_REFUSED_WORDS;
    if (a->to % sizeof(uint32_t))
        return KERNELS_REFUSED_ALIGNED;
    ret->block = KERNELS_THREADS;
    ret->grid = 1;
    return KERNELS_REFUSED_NONE;
}

const char *kernels_function(enum kernels_kind kind)
{
    static const char *const function[KERNELS_KINDS] = {
#define X(NAME, name, args) #name,
        KERNELS_TABLE(X)
#undef X
    };

    return function[kind];
}

enum kernels_refusal kernels_prepare(enum kernels_kind kind, union kernels_args *io,
                                     struct kernels_launch *ret)
{
    ret->function = kernels_function(kind);
    switch (kind) {
    case KERNELS_CHECKSUM_BLOCKS:
    case KERNELS_CHECKSUM_UNITS: return checksum_check(kind, &io->checksum, ret);
    case KERNELS_RESHARD: return reshard_check(&io->reshard, ret);
    case KERNELS_FP8_PACK:
    case KERNELS_FP8_UNPACK: return fp8_check(&io->fp8, ret);
    case KERNELS_TELL: return told_check(&io->told, ret);
    case KERNELS_GATHER:
    case KERNELS_SCATTER:
    case KERNELS_ZERO:
    default: return pages_check(kind, &io->pages, ret);
    }
}
