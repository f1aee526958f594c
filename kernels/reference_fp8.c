/* Element by element. */
#include "kernels/fp8.h"
#include "kernels/reference.h"

/* One head of one page. */
struct head {
    uint16_t *page;
    uint8_t *packed;
    uint32_t *scale;
    uint64_t first; /* element */
};

static struct head head_of(const struct kernels_fp8 *a, uint32_t i, uint32_t head)
{
    const uint32_t *list = (const uint32_t *)(uintptr_t)a->list;

    return (struct head){.page = (uint16_t *)(uintptr_t)(a->pool + list[i] * a->page_bytes),
                         .packed = (uint8_t *)(uintptr_t)(a->packed + i * (a->page_bytes / 2)),
                         .scale = (uint32_t *)(uintptr_t)a->scales + (uint64_t)i * a->heads + head,
                         .first = head * a->head_stride};
}

static void each_element(const struct kernels_fp8 *a, const struct head *h,
                         void (*each)(const struct head *h, uint64_t at, uint32_t *io),
                         uint32_t *io)
{
    for (uint64_t o = 0; o < a->outer; o++)
        for (uint64_t r = 0; r < a->rows; r++)
            for (uint64_t e = 0; e < a->row_elements; e++)
                each(h, h->first + o * a->outer_stride + r * a->row_stride + e, io);
}

static void most_of(const struct head *h, uint64_t at, uint32_t *io)
{
    uint32_t counts = fp8_counts(h->page[at]);

    *io = counts > *io ? counts : *io;
}

static void pack(const struct head *h, uint64_t at, uint32_t *io)
{
    h->packed[at] = (uint8_t)fp8_from_bf16(h->page[at], (int32_t)*io);
}

static void unpack(const struct head *h, uint64_t at, uint32_t *io)
{
    h->page[at] = (uint16_t)fp8_to_bf16(h->packed[at], (int32_t)*io);
}

void reference_fp8_pack(const struct kernels_fp8 *a)
{
    for (uint32_t i = 0; i < a->n; i++)
        for (uint32_t k = 0; k < a->heads; k++) {
            struct head h = head_of(a, i, k);
            uint32_t most = 0, exponent;

            each_element(a, &h, most_of, &most);
            exponent = (uint32_t)fp8_exponent(most);
            *h.scale = exponent << 23;
            each_element(a, &h, pack, &exponent);
        }
}

void reference_fp8_unpack(const struct kernels_fp8 *a)
{
    for (uint32_t i = 0; i < a->n; i++)
        for (uint32_t k = 0; k < a->heads; k++) {
            struct head h = head_of(a, i, k);
            uint32_t exponent = *h.scale >> 23;

            each_element(a, &h, unpack, &exponent);
        }
}
