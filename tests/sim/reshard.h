/* Pages between pools of other layout (reshard.c). */
#ifndef SIM_RESHARD_H
#define SIM_RESHARD_H

#include "sim.h"

/* A pool of a daemon. */
struct pool_at {
    uint32_t daemon, pool;
};
/* Do pages between these pools go by a plan? */
bool pools_reshard(const struct sim *w, struct pool_at from, struct pool_at to);
/* Ranks of a pool whose bytes a transfer moves. */
uint32_t pool_moves(const struct sim *w, struct pool_at of);
/* Pages that a span of the group has at the daemon's end. */
uint32_t span_pages_at(const struct sim *w, uint32_t daemon, uint32_t group);

/* A span that moves now: granules of its pages at both ends. */
struct span_move {
    struct pool_at from, to;
    uint32_t group, number; /* number: of the span in the transfer */
    uint32_t first, n;      /* the pages of the source's part of the span that exist */
    uint32_t there[SLOTS], here[SLOTS];
};
void span_carry(struct sim *w, const struct span_move *m);

#endif
