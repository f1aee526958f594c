/* When the thread of sender.c looks for the next Step. Steps come at a pace, and its timer costs
 * the scheduler's thread time where it ends while that one works: so it looks shortly behind what
 * is due, and again after longer and longer where that is late. */
#ifndef CLIENT_PACE_H
#define CLIENT_PACE_H

#include <stdint.h>

#define PACE_LOOK_NS   UINT64_C(4000000) /* to the next look at most: so long a Step waits */
#define PACE_BEHIND_NS UINT64_C(100000)  /* what is queued within it is one Step */
#define PACE_LATE_PART 4                 /* what is late waits for so large a part of the time */

/* queued_ns: of the last Step; pace_ns: how long after the one before. */
static inline uint64_t pace_next_look(uint64_t now_ns, uint64_t queued_ns, uint64_t pace_ns)
{
    uint64_t due_ns = queued_ns + pace_ns + PACE_BEHIND_NS, wait_ns;

    if (due_ns > now_ns)
        wait_ns = due_ns - now_ns;
    else
        wait_ns = PACE_BEHIND_NS + (now_ns - queued_ns) / PACE_LATE_PART;
    return now_ns + (wait_ns < PACE_LOOK_NS ? wait_ns : PACE_LOOK_NS);
}

#endif
