/* Pairs of layouts that transfers are resharded between (N3). The data path has plans for
 * RESHARD_PAIRS_MAX at a time, and each peer has at most RESHARD_PEER_PAIRS. All transfers between
 * the same two layouts share one pair. */
#ifndef CORE_RESHARDED_H
#define CORE_RESHARDED_H

#include "core/arena/arena.h"

struct layout_pair {
    uint64_t from, to; /* hashes of the source's pool and of the destination's */
};

/* Returns true if one more transfer with the link's peer may use these layouts; else BUSY (X8). */
bool resharded_room(const struct core *c, uint32_t link, struct layout_pair pair);

#endif
