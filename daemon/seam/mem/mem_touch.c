/* See mem_touch.h. */
#include "seam/mem/mem_touch.h"

#include <string.h>

#include "seam/mem/mem_fault.h"

static const struct mem_far *far_of(const struct mem *mem, const void *at)
{
    const struct mem_far *far = mem_far(mem);

    return far && far->holds(far->ctx, at) ? far : NULL;
}

bool mem_is_far(const struct mem *mem, const void *at)
{
    return far_of(mem, at) != NULL;
}

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

/* Where the next piece goes to or comes from, in memory that the CPU reaches, pages or not. */
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

bool mem_get(const struct mem *mem, void *to, const void *at, uint64_t n)
{
    const struct mem_far *far = far_of(mem, at);

    if (!far)
        return mem_near_copy(to, at, n);
    mem_fault_not_owner();
    return mem_far_get(far, to, at, n);
}

bool mem_put(const struct mem *mem, void *at, const void *from, uint64_t n)
{
    const struct mem_far *far = far_of(mem, at);

    if (!far)
        return mem_near_copy(at, from, n);
    mem_fault_not_owner();
    return mem_far_put(far, at, from, n);
}

bool mem_move(const struct mem *mem, void *to, const void *from, uint64_t n)
{
    const struct mem_far *there = far_of(mem, to), *here = far_of(mem, from);

    if (!there)
        return mem_get(mem, to, from, n);
    if (!here)
        return mem_put(mem, to, from, n);
    mem_fault_not_owner();
    return here->move(here->ctx, to, from, n);
}
