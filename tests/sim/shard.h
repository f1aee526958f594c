/* The layout of the simulators' pages over ranks: the heads of each token, and the plan by which a
 * span moves between two pools (N3). Used by the two-core simulator and the fleet simulator. */
#ifndef SIM_SHARD_H
#define SIM_SHARD_H

#include "reshard/stream.h"

/* Shape of a rank's page. Each token has token_bytes in it; a rank that does not have all heads
 * uses the first of them. */
struct shard_shape {
    uint32_t ranks, heads, token_bytes;
    uint32_t page_tokens; /* 0: a state, which has the bytes of one token */
    uint32_t align_tokens;
    bool whole; /* every rank has all heads */
};

/* Plans the transfer's span `number`. Only the source's pages of `part` exist: the plan omits
 * others. */
enum reshard_refusal shard_plan(const struct shard_shape *from, const struct shard_shape *to,
                                uint32_t number, struct reshard_part part,
                                struct reshard_plan *ret);

#endif
