/* What the files of the prefill engine share: prefill.c takes requests in and answers,
 * prefill_steps.c computes and commits, hand_over.c hands over. */
#ifndef REPLAY_PREFILL_H
#define REPLAY_PREFILL_H

#include "engine.h"
#include "prefixes.h"

struct prefill {
    struct engine e;
    struct source *source;
    struct prompt next; /* read ahead */
    enum { NEXT_NONE, NEXT_READY, NEXT_END } next_state;
    struct prefixes
        seen; /* what was committed and could be resumed, if nothing were ever dropped */
    uint64_t start_ns;
    int peer;
};

/* One Step: the operations of every turn that has something to do, and the bytes that it computes.
 * False: the engine cannot go on, and says why. */
bool prefill_step(struct prefill *p);

#endif
