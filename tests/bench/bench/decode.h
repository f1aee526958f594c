/* Decode of many sequences with speculation, over a lease, beside an in-process block pool that
 * does the same work. */
#ifndef BENCH_DECODE_H
#define BENCH_DECODE_H

#include <stdbool.h>

#include "engine/stats.h"
#include "raw_echo.h"

#define DECODE_PAGE_TOKENS 16
#define DECODE_PAGES       20480 /* of the pool */

/* Microseconds of the scheduler's thread for a step, between two steps of the device. told: taking
 * the answers while the device computes. raw_send: for comparison, a send to a sleeping process,
 * which a thread of libtern does in a step. touch: touching a byte in each of 32 pages of 4 KiB and
 * nothing else, the least that a step needs: its code, stacks and sockets lie in as many. */
struct decode_figures {
    struct series step, told, pool_step, raw_send, touch;
    uint64_t steps, round_trips;
};

void decode_figures_init(struct decode_figures *f);
void decode_figures_finish(struct decode_figures *f);
/* Runs `passes` passes over a daemon with room for the pool; each begins with short sequences. The
 * scheduler's thread has core `core` to itself, and libtern's the others; `sleeps`: the thread
 * sleeps while the device computes, instead of polling for its end. Returns false with a message on
 * standard error. */
bool decode_measure(const char *socket, uint64_t page_bytes, uint32_t passes, int core, bool sleeps,
                    const struct raw_echo *raw, struct decode_figures *ret);

#endif
