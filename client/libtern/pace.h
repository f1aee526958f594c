/* Computes when the thread of sender.c looks for the next Step. Steps come at a steady pace, and a
 * timer that expires while the scheduler's thread works costs that thread time. So the thread looks
 * shortly after the next Step is due, and then at growing intervals if the Step is late. */
#ifndef CLIENT_PACE_H
#define CLIENT_PACE_H

#include <stdint.h>

#define PACE_LOOK_NS   UINT64_C(4000000) /* most time to the next look: a Step waits no longer */
#define PACE_BEHIND_NS UINT64_C(100000)  /* operations queued within it are one Step */
#define PACE_LATE_PART 4 /* wait for a late Step: this part of the time since the last */

/* queued_ns: time of the last Step; pace_ns: time between it and the one before. */
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
