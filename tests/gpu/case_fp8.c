/* Pages of heads in any order of memory, packed and unpacked again. The elements are random bits,
 * or of similar size, like keys and values. */
#include <stdio.h>
#include <string.h>

#include "gpu/arena.h"

static void fp8_shape(struct case_size size, struct prng *p, struct kernels_fp8 *f)
{
    static const int orders[][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                    {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    const int *order = orders[prng_below(p, 6)];
    uint32_t *n[] = {&f->heads, &f->outer, &f->rows}, left = (uint32_t)(size.bytes / 16);
    uint64_t *stride[] = {&f->head_stride, &f->outer_stride, &f->row_stride}, reach;

    f->row_elements = KERNELS_FP8_EACH * (1 + prng_below(p, 20));
    left /= f->row_elements;
    reach = f->row_elements;
    for (int i = 0; i < 3; i++) {
        uint32_t most = left < 12 ? left : 12;

        *n[order[i]] = 1 + prng_below(p, most + 1);
        *stride[order[i]] = reach;
        reach *= *n[order[i]];
        left /= *n[order[i]];
    }
    f->page_bytes = reach * 2;
    f->n = prng_below(p, 5);
}

/* Elements of similar size: exponents within 2^±6 of one, with some zeros and some not finite. */
static void elements_make(uint16_t *v, uint64_t n, struct prng *p)
{
    uint32_t middle = prng_below(p, 256);

    for (uint64_t i = 0; i < n; i++) {
        uint32_t exponent = middle + prng_below(p, 13), bits = (uint32_t)prng_u64(p);

        exponent = exponent < 6 ? 0 : exponent - 6;
        exponent = exponent > 254 ? 254 : exponent;
        v[i] = (uint16_t)((bits & 0x807f) | exponent << 7);
        if (prng_below(p, 64) == 0)
            v[i] = prng_below(p, 8) ? (uint16_t)(bits & 0x8000) : (uint16_t)(bits | 0x7f80);
    }
}

static void fp8_run(enum kernels_kind kind, const struct arena *a,
                    const struct kernels_fp8 *offsets)
{
    union kernels_args args[2];

    for (int device = 0; device < 2; device++) {
        struct kernels_fp8 *f = &args[device].fp8;

        *f = *offsets;
        f->pool += arena_address(a, device);
        f->list += arena_address(a, device);
        f->packed += arena_address(a, device);
        f->scales += arena_address(a, device);
    }
    arena_run(a, kind, &args[0], &args[1]);
}

void case_fp8(const struct device *d, struct case_size size, struct prng *p,
              struct case_result *ret)
{
    struct kernels_fp8 f = {.pool = 0};
    uint64_t scales;
    struct arena a;

    fp8_shape(size, p, &f);
    scales = (uint64_t)f.n * f.heads * sizeof(float);
    snprintf(ret->text, sizeof ret->text, "%u pages of %u heads, %u outer, %u rows of %u elements",
             f.n, f.heads, f.outer, f.rows, f.row_elements);
    arena_begin(&a, d, f.n * (2 * f.page_bytes + sizeof(uint32_t)) + scales + ARENA_ROOM, p);
    f.pool = arena_take(&a, f.n * f.page_bytes, KERNELS_VECTOR);
    f.packed = arena_take(&a, f.n * f.page_bytes / 2, KERNELS_FP8_EACH);
    f.scales = arena_take(&a, scales, sizeof(float));
    f.list = arena_take(&a, f.n * sizeof(uint32_t), sizeof(uint32_t));
    if (prng_below(p, 4))
        elements_make((uint16_t *)(void *)(a.want + f.pool), f.n * f.page_bytes / 2, p);
    for (uint32_t i = 0; i < f.n; i++) {
        uint32_t page = f.n - 1 - i;

        memcpy(a.want + f.list + i * sizeof page, &page, sizeof page);
    }
    arena_put(&a);
    fp8_run(KERNELS_FP8_PACK, &a, &f);
    fp8_run(KERNELS_FP8_UNPACK, &a, &f);
    arena_end(&a, ret);
}
