/* Records the events of memory's asynchronous jobs, in order. An event of several seals counts as
 * one event for each. */
#ifndef TEST_RIG_MEM_H
#define TEST_RIG_MEM_H

#include <stdint.h>

#include <cmocka.h>

#include <poll.h>

#include "seam/mem/mem.h"

#define EVENTS_MAX 64

struct taken {
    struct event got[EVENTS_MAX];
    uint32_t ngot;
    uint32_t emitted; /* events before that division */
};

static inline void taken_add(void *ctx, struct event *event)
{
    struct taken *taken = ctx;
    const uint32_t n = event->kind == EV_SEALED ? event->sealed.n : 1;

    assert_true(n > 0 && n <= SEALED_JOBS_MAX);
    assert_true(taken->ngot + n <= EVENTS_MAX);
    for (uint32_t i = 0; i < n; i++) {
        struct event *one = &taken->got[taken->ngot++];

        *one = *event;
        if (event->kind != EV_SEALED)
            continue;
        one->sealed.job[0] = event->sealed.job[i];
        one->sealed.n = 1;
    }
    taken->emitted++;
}

/* Starts the queued jobs, and waits until mem_poll has an event. */
static inline void mem_wait(struct mem *mem)
{
    struct pollfd p = {.fd = mem_event_fd(mem), .events = POLLIN};

    mem_start(mem);
    assert_int_equal(poll(&p, 1, 30000), 1);
}

/* Waits for n events; more are an error. */
static inline void take_events(struct mem *mem, struct taken *taken, uint32_t n)
{
    while (taken->ngot < n) {
        mem_wait(mem);
        mem_poll(mem, taken_add, taken);
    }
    assert_int_equal(taken->ngot, n);
}

#endif
