/* Fuzz target: a tape's bytes through the reader into core_step on a small arena. Whatever the
 * reader lets through, the core has to take: its own checks are what this looks for. Limits come
 * from the target, not from the tape's head, so that an input cannot ask for a large arena; a tape
 * with other limits is only read. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "core/core.h"
#include "core/query.h"
#include "shell/tape.h"

#define TENANT_BYTES ((uint64_t)1 << 20)
#define FLUSHES_MAX  64 /* timers after an event while the core has work left over */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct core_limits limits = {
    .tenants = 2,
    .conns = 8,
    .procs = 8,
    .engines = 4,
    .pools = 4,
    .sessions = 16,
    .nodes = 64,
    .namespaces = 4,
    .token_blocks = 256,
    .extra_keys = 32,
    .pages = 256,
    .slabs = 64,
    .retires = 32,
    .links = 4,
    .peers = 2,
    .pulls = 4,
    .serves = 4,
    .seal_jobs = 4,
    .sums_per_page = 2,
    .busy_retry_ms = 5,
    .peer_bytes_in_flight = 1 << 20,
    .tenant_bytes_in_flight = 1 << 20,
    .transfer_deadline_ns = 1000000000,
};

static struct actions *actions;
static void *arena, *fresh;
static size_t arena_bytes;

static void start(uint64_t incarnation)
{
    const struct tenant_config tenants[2] = {{TENANT_BYTES, 2, 8}, {TENANT_BYTES, 1, 8}};

    if (arena == NULL) {
        check(core_size(&limits, &arena_bytes) == TERN_OK);
        arena = aligned_alloc(64, (arena_bytes + 63) / 64 * 64);
        fresh = calloc(1, arena_bytes);
        actions = calloc(1, sizeof *actions);
        check(arena != NULL && fresh != NULL && actions != NULL);
    }
    memcpy(arena, fresh, arena_bytes);
    core_init(arena, &limits, tenants, incarnation);
}

/* The shell promises that a list holds as many tokens as it says; the reader keeps that promise for
 * it. */
static void play(struct tape_reader *reader)
{
    struct core *core = arena;
    struct event e;

    while (tape_next(reader, &e) == TERN_OK && e.kind != 0) {
        core_step(core, &e, actions);
        for (uint32_t i = 0; i < FLUSHES_MAX && core_deadline(core) == 0; i++) {
            struct event timer = {.kind = EV_TIMER, .now_ns = e.now_ns};

            core_step(core, &timer, actions);
        }
    }
    for (uint32_t slot = 0; slot < limits.pools; slot++) {
        struct pool_view v;

        if (!core_pool_view(core, slot, &v))
            continue;
        for (uint32_t g = 0; g < v.ngroups; g++) {
            const struct group_view *q = &v.group[g];

            check(q->total == q->free + q->leased + q->session + q->snapshot + q->reclaimable +
                                  q->transfer + q->ticket + q->retiring + q->zeroing +
                                  q->quarantine);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tape_reader *reader = NULL;
    struct event e;

    if (tape_open(data, size, &reader) != TERN_OK)
        return 0;
    if (memcmp(&tape_header(reader)->limits, &limits, sizeof limits) == 0) {
        start(tape_header(reader)->incarnation);
        play(reader);
    } else {
        while (tape_next(reader, &e) == TERN_OK && e.kind != 0)
            ;
    }
    tape_close(reader);
    return 0;
}
