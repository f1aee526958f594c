/* Declarations shared by the files of the prefill engine: prefill.c takes requests and answers,
 * prefill_steps.c computes and commits, handing.c hands over. */
#ifndef REPLAY_PREFILL_H
#define REPLAY_PREFILL_H

#include "engine.h"
#include "prefixes.h"

struct prefill {
    struct engine e;
    struct source *source;
    struct prompt next; /* read ahead */
    enum { NEXT_NONE, NEXT_READY, NEXT_END } next_state;
    struct prefixes seen; /* commits that could be resumed if nothing were ever dropped */
    uint64_t start_ns;
    int peer;
};

/* One Step: the operations of every turn that has work, and the bytes that it computes. Returns
 * false if the engine cannot continue, with the reason in e->why. */
bool prefill_step(struct prefill *p);

#endif
