/* What a scheduler does when its pool is full, in this order: it waits for pages that its own steps
 * are about to give back; it retracts its youngest running session, which may be the one that asks;
 * it waits for the others to come to an end; and as the last resort it gives a request up, to be
 * begun again. Sessions that gave way come back in their order as others end. Called by both
 * engines between two steps, when every turn is in a state that lasts. */
#ifndef REPLAY_PRESSURE_H
#define REPLAY_PRESSURE_H

#include "engine.h"

/* An operation of this turn found the pool full: it is to be repeated, in a while. */
void pressure_note(struct engine *e, struct turn *turn, const struct tern_shortage *shortage);
/* It was told to come again, pages or not. */
void pressure_wait(struct engine *e, struct turn *turn);
/* ... and now it was not. */
void pressure_over(struct engine *e, struct turn *turn);

/* Whether the turn may try again. */
bool pressure_rests(const struct turn *turn, uint64_t now_ns);

/* Acts on what was noted, and lets one session come back if something has ended. False: the engine
 * cannot go on; e->why says why. */
bool pressure_act(struct engine *e);

/* Retracts a turn that runs, as a scheduler does for somebody else's sake; it comes back like the
 * others. It stays in its state where it cannot give way now. False: the engine cannot go on. */
bool pressure_away(struct engine *e, struct turn *turn);

/* The answer to a Recover: the turn goes on as it was if it is there again, after every byte of its
 * table was compared. False as above. */
bool pressure_recovered(struct engine *e, struct turn *turn, const struct tern_answer *a);

/* The answer to what turn_load_host asked for. BUSY: it is asked again, in a while. */
bool pressure_loaded(struct engine *e, struct turn *turn, const struct tern_answer *a);

/* When there may be something to do here; UINT64_MAX: only an answer or an end can bring it. */
uint64_t pressure_due_ns(const struct engine *e, uint64_t now_ns);

#endif
