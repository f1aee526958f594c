/* The bump arena behind protobuf-c. */
#include "proto/budget.h"

#include "base/check.h"

static void *arena_alloc(void *data, size_t n)
{
    return budget_take(data, n);
}

static void arena_free(void *data, void *p)
{
    (void)data; /* budget_start frees all pieces at once */
    (void)p;
}

void budget_init(struct budget *b, void *mem, size_t cap)
{
    check((uintptr_t)mem % BUDGET_ALIGN == 0);
    check(cap >= BUDGET_BASE);
    *b = (struct budget){
        .mem = mem,
        .cap = cap,
        .allocator = {.alloc = arena_alloc, .free = arena_free, .allocator_data = b},
    };
}

void budget_start(struct budget *b, size_t body_bytes)
{
    size_t most = (b->cap - BUDGET_BASE) / BUDGET_FACTOR;

    b->limit = body_bytes < most ? BUDGET_BYTES(body_bytes) : b->cap;
    b->used = 0;
    b->exceeded = false;
}

void *budget_take(struct budget *b, size_t n)
{
    size_t room = b->limit - b->used, padded;
    void *p;

    check(b->used <= b->limit);
    if (n > room || room - n < BUDGET_ALIGN - 1) {
        b->exceeded = true;
        return NULL;
    }
    padded = (n + BUDGET_ALIGN - 1) & ~(size_t)(BUDGET_ALIGN - 1);
    p = b->mem + b->used;
    b->used += padded;
    if (b->used > b->high_water)
        b->high_water = b->used;
    return p;
}
