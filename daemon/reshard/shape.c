#include "reshard/plan.h"

static void loop_drop(struct box *b, uint32_t k)
{
    b->nloops--;
    for (; k < b->nloops; k++)
        b->loop[k] = b->loop[k + 1];
}

/* A loop that steps by exactly a row at both ends lengthens the row. */
static bool row_grow(struct box *b)
{
    for (uint32_t k = 0; k < b->nloops; k++) {
        const struct strided_loop *l = &b->loop[k];

        if (l->n > 1 && (l->from_stride != b->row_bytes || l->to_stride != b->row_bytes))
            continue;
        b->row_bytes *= l->n;
        loop_drop(b, k);
        return true;
    }
    return false;
}

/* Joins a loop that continues where another ends, at both ends. */
static bool loops_join(struct box *b)
{
    for (uint32_t k = 0; k < b->nloops; k++)
        for (uint32_t j = 0; j < b->nloops; j++) {
            struct strided_loop *outer = &b->loop[k], *inner = &b->loop[j];

            if (k == j || outer->from_stride != inner->from_stride * inner->n ||
                outer->to_stride != inner->to_stride * inner->n)
                continue;
            inner->n *= outer->n;
            loop_drop(b, k);
            return true;
        }
    return false;
}

void box_join(struct box *b)
{
    while (row_grow(b) || loops_join(b)) {
    }
    for (uint32_t k = 1; k < b->nloops; k++)
        for (uint32_t j = k; j > 0 && b->loop[j - 1].to_stride < b->loop[j].to_stride; j--) {
            struct strided_loop l = b->loop[j];

            b->loop[j] = b->loop[j - 1];
            b->loop[j - 1] = l;
        }
}

/* Returns true if a loop makes separate pieces: loops with the fewest steps do, and among equals
 * the first. */
static bool loop_is_apart(const struct box *b, uint32_t k)
{
    uint32_t before = 0;

    if (b->nloops <= STRIDED_LOOPS_MAX)
        return false;
    for (uint32_t j = 0; j < b->nloops; j++)
        before += b->loop[j].n < b->loop[k].n || (b->loop[j].n == b->loop[k].n && j < k);
    return before < b->nloops - STRIDED_LOOPS_MAX;
}

uint64_t box_parts(const struct box *b)
{
    uint64_t parts = 1;

    for (uint32_t k = 0; k < b->nloops; k++)
        if (loop_is_apart(b, k))
            parts *= b->loop[k].n;
    return parts;
}

struct strided box_part(const struct box *b, uint64_t i, uint64_t *ret_from, uint64_t *ret_to)
{
    struct strided s = {.row_bytes = b->row_bytes};
    int free = STRIDED_LOOPS_MAX;

    *ret_from = *ret_to = 0;
    for (uint32_t k = b->nloops; k-- > 0;) {
        const struct strided_loop *l = &b->loop[k];

        if (!loop_is_apart(b, k)) {
            s.loop[--free] = *l;
            continue;
        }
        *ret_from += i % l->n * l->from_stride;
        *ret_to += i % l->n * l->to_stride;
        i /= l->n;
    }
    while (free > 0)
        s.loop[--free] = (struct strided_loop){.n = 1};
    return s;
}

static bool same_loops(const struct strided *a, const struct strided *b)
{
    for (int k = 0; k < STRIDED_LOOPS_MAX; k++) {
        const struct strided_loop *x = &a->loop[k], *y = &b->loop[k];

        if (x->n != y->n || x->from_stride != y->from_stride || x->to_stride != y->to_stride)
            return false;
    }
    return true;
}

static bool adjoins(const struct reshard_piece *p, const struct reshard_piece *next)
{
    return p->from.at + p->shape.row_bytes == next->from.at &&
           p->to.at + p->shape.row_bytes == next->to.at;
}

bool piece_join(struct reshard_piece *p, const struct reshard_piece *next)
{
    struct box b = {.nloops = 0};
    uint64_t from, to;

    if (!same_loops(&p->shape, &next->shape))
        return false;
    if (!adjoins(p, next)) {
        if (!adjoins(next, p))
            return false;
        p->from = next->from;
        p->to = next->to;
    }
    b.row_bytes = p->shape.row_bytes + next->shape.row_bytes;
    for (int k = 0; k < STRIDED_LOOPS_MAX; k++)
        if (p->shape.loop[k].n > 1)
            b.loop[b.nloops++] = p->shape.loop[k];
    box_join(&b);
    p->shape = box_part(&b, 0, &from, &to);
    return true;
}
