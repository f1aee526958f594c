/* See mem_touch.h. */
#include "seam/mem/mem_touch.h"

#include "seam/mem/mem_fault.h"

const struct mem_far *mem_far_at(const struct mem *mem, const void *at)
{
    const struct mem_far *far = mem_far(mem);

    return far && far->holds(far->ctx, at) ? far : NULL;
}

bool mem_get(const struct mem *mem, void *to, const void *at, uint64_t n)
{
    const struct mem_far *far = mem_far_at(mem, at);

    if (!far)
        return mem_near_copy(to, at, n);
    mem_fault_not_owner();
    return mem_far_get(far, to, at, n);
}

bool mem_put(const struct mem *mem, void *at, const void *from, uint64_t n)
{
    const struct mem_far *far = mem_far_at(mem, at);

    if (!far)
        return mem_near_copy(at, from, n);
    mem_fault_not_owner();
    return mem_far_put(far, at, from, n);
}

bool mem_move(const struct mem *mem, void *to, const void *from, uint64_t n)
{
    const struct mem_far *there = mem_far_at(mem, to), *here = mem_far_at(mem, from);

    if (!there)
        return mem_get(mem, to, from, n);
    if (!here)
        return mem_put(mem, to, from, n);
    mem_fault_not_owner();
    return here->move(here->ctx, to, from, n);
}
