/* What the files of the decode engine share: decode.c takes requests over, goes on from what it has
 * and compares, fetches.c brings what is missing. */
#ifndef REPLAY_DECODE_H
#define REPLAY_DECODE_H

#include "engine.h"

struct decode {
    struct engine e;
    int peer;
    bool peer_done; /* no further request comes */
    uint32_t fetching;
    uint64_t fetching_since_ns;
};

/* The Match has been answered: what is missing is fetched, unless it is all there. False: the
 * engine cannot go on, and says why. */
bool fetch_begin(struct decode *d, struct turn *turn);
/* The answer to it. */
void fetch_take(struct decode *d, struct turn *turn, const struct tern_answer *a);
/* Cuts those short that are due to be (trouble.h). False as above. */
bool fetches_cut(struct decode *d);
/* When the next one is due; UINT64_MAX: none is. */
uint64_t fetches_due_ns(const struct decode *d);

#endif
