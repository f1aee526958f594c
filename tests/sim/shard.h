/* How the simulators' pages lie over ranks: heads of each token, and the plan by which a span of
 * them moves between two pools (N3). Called by the two-core simulator and by that of fleets. */
#ifndef SIM_SHARD_H
#define SIM_SHARD_H

#include "reshard/stream.h"

/* Of a rank's page. Each token has token_bytes in it, of which a rank that has not all heads uses
 * the first. */
struct shard_shape {
    uint32_t ranks, heads, token_bytes;
    uint32_t page_tokens; /* 0: a state, which has the bytes of one token */
    uint32_t align_tokens;
    bool whole; /* every rank has all heads */
};

/* Number `number` of the transfer's spans. Of the source's pages those of `part` are there: what
 * would move from others is left out. */
enum reshard_refusal shard_plan(const struct shard_shape *from, const struct shard_shape *to,
                                uint32_t number, struct reshard_part part,
                                struct reshard_plan *ret);

#endif
