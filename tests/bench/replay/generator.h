/* Multi-turn sessions made from a seed, for runs without a trace. Sessions of one kind share a
 * system prompt; every turn's prompt is the whole conversation so far, its answers included, and a
 * new message. */
#ifndef REPLAY_GENERATOR_H
#define REPLAY_GENERATOR_H

#include "base/prng.h"
#include "source.h"

#define SESSIONS_MAX 100000

struct generator {
    uint64_t seed;
    uint32_t sessions, turns, turn_tokens, kinds;
    uint32_t turn, at; /* next request: turn `turn` of session order[at] */
    uint32_t *order;   /* owned: the sessions of this turn, shuffled */
    uint32_t *length;  /* owned: tokens of each session's conversation */
    struct prng prng;
};

void generator_init(struct generator *g, const struct source_options *o);
void generator_finish(struct generator *g);

/* As source_next; -1 only if memory is missing. */
bool generator_next(struct generator *g, struct prompt *p);

#endif
