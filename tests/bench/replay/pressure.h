/* A scheduler's reaction to a full pool, in this order: it waits for pages that its own steps are
 * about to free; it retracts its youngest running session, possibly the one that asks; it waits for
 * the others to end; and as the last resort it gives a request up, to be begun again. Retracted
 * sessions resume in their order as others end. Both engines call it between two steps, when every
 * turn is in a lasting state. */
#ifndef REPLAY_PRESSURE_H
#define REPLAY_PRESSURE_H

#include "engine.h"

/* An operation of this turn found the pool full: the turn repeats it after a while. */
void pressure_note(struct engine *e, struct turn *turn, const struct tern_shortage *shortage);
/* An operation was BUSY: the turn repeats it after a while, with pages or without. */
void pressure_wait(struct engine *e, struct turn *turn);
/* The operation succeeded. */
void pressure_over(struct engine *e, struct turn *turn);

/* Returns true if the turn may not try again yet. */
bool pressure_rests(const struct turn *turn, uint64_t now_ns);

/* Acts on what was noted, and resumes one session if a request has ended. Returns false if the
 * engine cannot continue, with the reason in e->why. */
bool pressure_act(struct engine *e);

/* Retracts a running turn, as a scheduler does for another request; it resumes like the others. If
 * it cannot be retracted now it stays in its state. Returns false if the engine cannot continue. */
bool pressure_away(struct engine *e, struct turn *turn);

/* Takes the answer to a Recover: a recovered turn resumes as it was, after a comparison of every
 * byte of its table. Returns false as above. */
bool pressure_recovered(struct engine *e, struct turn *turn, const struct tern_answer *a);

/* Takes the answer to turn_load_host. BUSY: asks again after a while. */
bool pressure_loaded(struct engine *e, struct turn *turn, const struct tern_answer *a);

/* When there may be work here; UINT64_MAX: only an answer or the end of a request can cause it. */
uint64_t pressure_due_ns(const struct engine *e, uint64_t now_ns);

#endif
