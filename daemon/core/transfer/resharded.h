/* Pairs of layouts that transfers are resharded between (N3): the data path has plans for so many
 * at a time (RESHARD_PAIRS_MAX), and one peer leaves room for others (RESHARD_PEER_PAIRS). All
 * transfers between the same two layouts share one. */
#ifndef CORE_RESHARDED_H
#define CORE_RESHARDED_H

#include "core/arena/arena.h"

struct layout_pair {
    uint64_t from, to; /* hashes, of the source's pool and of the destination's */
};

/* May one more transfer with the link's peer go between these layouts? Else BUSY (X8). */
bool resharded_room(const struct core *c, uint32_t link, struct layout_pair pair);

#endif
