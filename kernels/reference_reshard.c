/* A plan, piece by piece, with the strided copies that the daemon itself does. */
#include "kernels/reference.h"

static struct strided shape_of(const struct kernels_piece *p)
{
    struct strided s = {.row_bytes = (uint64_t)p->row_vectors.by * p->width};

    for (int k = 0; k < STRIDED_LOOPS_MAX; k++)
        s.loop[k] = (struct strided_loop){.n = k == 0 ? p->outer : p->loops[k - 1].by,
                                          .from_stride = p->from_stride[k],
                                          .to_stride = p->to_stride[k]};
    return s;
}

void reference_reshard(const struct kernels_reshard *a)
{
    const struct kernels_piece *pieces = (const struct kernels_piece *)(uintptr_t)a->pieces;
    const uint64_t *from_pages = (const uint64_t *)(uintptr_t)a->from_pages;
    const uint64_t *to_pages = (const uint64_t *)(uintptr_t)a->to_pages;

    for (uint64_t span = 0; span < a->spans; span++)
        for (uint32_t i = 0; i < a->npieces; i++) {
            const struct kernels_piece *p = &pieces[i];
            struct strided s = shape_of(p);
            uint64_t from = a->from + from_pages[span * a->from_width + p->from_page] + p->from_at;
            uint64_t to = a->to + to_pages[span * a->to_width + p->to_page] + p->to_at;

            strided_copy((uint8_t *)(uintptr_t)to, (const uint8_t *)(uintptr_t)from, &s);
        }
}
