/* Was a mark reached in enough histories? The table has the least number of 10,000. Histories are
 * independent of each other, so a run of few histories meets a rare state in fewer by chance; three
 * standard deviations fewer are enough. For a mark whose least is 1, only a run of 90,000 histories
 * or more is conclusive; for one of 100, a run of 900. */
#ifndef SIM_ENOUGH_H
#define SIM_ENOUGH_H

#include <stdbool.h>
#include <stdint.h>

#define MARK_SIGMAS 3u
#define MARK_PER    10000u

static inline bool mark_missed(uint64_t count, uint32_t least, uint64_t histories)
{
    uint64_t want = least * histories, have = count * MARK_PER;

    return have < want &&
           (want - have) * (want - have) > MARK_SIGMAS * MARK_SIGMAS * MARK_PER * want;
}

#endif
