/* Declarations shared by the files of the decode engine: decode.c takes requests over, resumes and
 * compares them, fetches.c fetches what is missing. */
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

/* The Match has been answered: fetches what is missing, if anything. Returns false if the engine
 * cannot continue, with the reason in e->why. */
bool fetch_begin(struct decode *d, struct turn *turn);
/* Takes the answer of a fetch. */
void fetch_take(struct decode *d, struct turn *turn, const struct tern_answer *a);
/* Cuts short the fetches that are due for it (trouble.h). Returns false as above. */
bool fetches_cut(struct decode *d);
/* When the next cut is due; UINT64_MAX: none is. */
uint64_t fetches_due_ns(const struct decode *d);

#endif
