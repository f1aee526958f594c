/* See mem_far.h. */
#include "seam/mem/mem_far.h"

#include <string.h>

#include "seam/mem/mem_fault.h"

struct copying {
    void *to;
    const void *from;
    uint64_t n;
};

static void copy_touch(void *ctx)
{
    const struct copying *c = ctx;

    memcpy(c->to, c->from, c->n);
}

bool mem_near_copy(void *to, const void *from, uint64_t n)
{
    struct copying c = {.to = to, .from = from, .n = n};

    return mem_fault_bytes(copy_touch, &c);
}

/* The host side of the next piece, in memory that the CPU reaches, pages or not. */
struct stretch {
    uint8_t *to;
    const uint8_t *from;
};

static bool piece_taken(void *ctx, uint8_t *bytes, uint64_t n)
{
    struct stretch *s = ctx;

    s->to += n;
    return mem_near_copy(s->to - n, bytes, n);
}

static bool piece_filled(void *ctx, uint8_t *bytes, uint64_t n)
{
    struct stretch *s = ctx;

    s->from += n;
    return mem_near_copy(bytes, s->from - n, n);
}

bool mem_far_get(const struct mem_far *far, void *to, const void *at, uint64_t n)
{
    struct stretch s = {.to = to};

    return far->get(far->ctx, at, n, piece_taken, &s);
}

bool mem_far_put(const struct mem_far *far, void *at, const void *from, uint64_t n)
{
    struct stretch s = {.from = from};

    return far->put(far->ctx, at, n, piece_filled, &s);
}

bool mem_far_sums(const struct mem_far *far, const void *page, uint64_t bytes, uint32_t units,
                  uint64_t *ret)
{
    const uint32_t first = 0;
    const struct mem_far_pages pages = {
        .base = page, .list = &first, .page_bytes = bytes, .n = 1, .units = units};

    return far->sums(far->ctx, &pages, ret);
}
