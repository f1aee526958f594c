/* Is a mark's count enough? The table says how often a state is reached per 1,000 seeds at least; a
 * run of few seeds meets a rare one less often by chance, so three standard deviations less will
 * do. Of a mark whose count is 1 a run says something from 10,000 seeds on, of one with 10 from
 * 1,000. */
#ifndef SIM_ENOUGH_H
#define SIM_ENOUGH_H

#include <stdbool.h>
#include <stdint.h>

#define MARK_SIGMAS 3u

static inline bool mark_missed(uint64_t count, uint32_t least, uint64_t histories)
{
    uint64_t want = least * histories, have = count * 1000; /* in thousandths */

    return have < want && (want - have) * (want - have) > MARK_SIGMAS * MARK_SIGMAS * 1000 * want;
}

#endif
