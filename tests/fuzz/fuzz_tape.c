/* Fuzz target: a tape's bytes through the reader into core_step. Whatever the reader lets through,
 * the core has to take: its own checks are what this looks for. Limits and tenants come from the
 * tape's head too; a head that asks for a large arena, or for tenants that no configuration can
 * give, is only read. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "client/tape/tape_read.h"
#include "client/tape/tape_text.h"
#include "core/core.h"
#include "core/query.h"

#define ARENA_BYTES_MAX ((size_t)1 << 19)
#define FLUSHES_MAX     64 /* timers after an event while the core has work left over */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct actions *actions;
static void *arena;

static bool start(const struct tape_header *head)
{
    const struct core_limits most = {.table_pages = TABLE_PAGES_MAX};
    size_t bytes;

    if (core_size(&head->limits, &bytes) != TERN_OK || bytes > ARENA_BYTES_MAX ||
        head->tenants != head->limits.tenants)
        return false;
    for (uint32_t i = 0; i < head->tenants; i++)
        if (head->tenant[i].regions == 0 || head->tenant[i].regions > RANKS_MAX ||
            head->tenant[i].sessions_max == 0 || head->tenant[i].memory_bytes > (uint64_t)1 << 50)
            return false;
    if (arena == NULL) {
        arena = aligned_alloc(64, ARENA_BYTES_MAX);
        actions = calloc(1, actions_bytes(&most));
        check(arena != NULL && actions != NULL);
    }
    actions_init(actions, &head->limits);
    memset(arena, 0, bytes);
    core_init(arena, &head->limits, head->tenant, head->incarnation);
    return true;
}

/* The shell promises that a list holds as many tokens as it says; the reader keeps that promise for
 * it. */
/* What is let through can be shown, too. */
static bool next(struct tape_reader *reader, struct event *ret)
{
    struct tape_line line;

    if (tape_next(reader, ret) != TERN_OK || ret->kind == 0)
        return false;
    tape_line(ret, &line);
    return true;
}

static void play(struct tape_reader *reader)
{
    uint32_t pools = tape_header(reader)->limits.pools;
    struct core *core = arena;
    struct event e;

    while (next(reader, &e)) {
        core_step(core, &e, actions);
        for (uint32_t i = 0; i < FLUSHES_MAX && core_deadline(core) == 0; i++) {
            struct event timer = {.kind = EV_TIMER, .now_ns = e.now_ns};

            core_step(core, &timer, actions);
        }
    }
    for (uint32_t slot = 0; slot < pools; slot++) {
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
    if (start(tape_header(reader))) {
        play(reader);
    } else {
        while (next(reader, &e))
            ;
    }
    tape_close(reader);
    return 0;
}
