/* Was a mark reached in enough histories? The table says in how many of 10,000 at least. Histories
 * are independent of each other, so a run of few meets a rare state in fewer by chance, and three
 * standard deviations less will do. Of a mark whose least is 1 a run says something from 90,000
 * histories on, of one with 100 from 900. */
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
