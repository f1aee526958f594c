/* How the prefill engine hands a request over. Plain: it says what was asked, keeps its session
 * open, and the decode engine fetches by the tokens. By ticket (--tickets): the session becomes a
 * ticket with all that it has, which goes along; the prefill engine renews it while it waits, drops
 * or forgets some on purpose, and judges by the decode engine's answer what became of each. */
#ifndef REPLAY_HANDING_H
#define REPLAY_HANDING_H

#include "handover.h"
#include "prefill.h"

/* Every turn that is ready is handed over, and what is due is done to tickets that stand. False:
 * the engine cannot go on, and says why. */
bool handing_act(struct prefill *p);

/* The decode engine's word on a request that was handed over. False as above. */
bool handing_answered(struct prefill *p, struct turn *turn, const struct handover_done *m);

/* When the next thing is due; UINT64_MAX: nothing is. */
uint64_t handing_due_ns(const struct prefill *p);

#endif
