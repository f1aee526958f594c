/* The kernels themselves, run on the CPU, each beside its reference. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/cases.h"
#include "testing/test.h"
#include "unit/kernels/on_cpu_run.h"

#define ROUNDS     120
#define CASE_BYTES (256 * 1024)

static struct prng order;

static uint64_t cpu_take(void *ctx, size_t bytes)
{
    (void)ctx;
    return (uint64_t)(uintptr_t)aligned_alloc(256, bytes);
}

static void cpu_give(void *ctx, uint64_t at)
{
    (void)ctx;
    free((void *)(uintptr_t)at);
}

static void cpu_put(void *ctx, uint64_t to, const void *from, size_t n)
{
    (void)ctx;
    memcpy((void *)(uintptr_t)to, from, n);
}

static void cpu_get(void *ctx, void *to, uint64_t from, size_t n)
{
    (void)ctx;
    memcpy(to, (const void *)(uintptr_t)from, n);
}

/* Now and then with a small grid, whose blocks go round. */
static void cpu_launch(void *ctx, enum kernels_kind kind, const struct kernels_launch *l,
                       const union kernels_args *args)
{
    struct kernels_launch less = *l;

    (void)ctx;
    if (prng_below(&order, 2))
        less.grid = 1 + prng_below(&order, l->grid);
    on_cpu_launch(kind, &less, args, &order);
}

static const struct device cpu = {
    .take = cpu_take, .give = cpu_give, .put = cpu_put, .get = cpu_get, .launch = cpu_launch};

TEST(kernels_on_cpu_do_what_their_references_do)
{
    for (size_t i = 0; i < case_count; i++) {
        struct prng p;

        prng_init(&p, i);
        prng_init(&order, i);
        for (int round = 0; round < ROUNDS; round++) {
            struct case_result r = {.ok = false};

            case_table[i].run(&cpu, (struct case_size){.bytes = CASE_BYTES}, &p, &r);
            if (!r.ok)
                fail_msg("%s, round %d: %s", case_table[i].name, round, r.text);
        }
        print_message("%s: %d geometries, as the reference has them\n", case_table[i].name, ROUNDS);
    }
}
