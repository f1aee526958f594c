/* How the prefill engine hands a request over. Plain: it sends the prompt and keeps its session
 * open, and the decode engine fetches by the tokens. By ticket (--tickets): the session becomes
 * a ticket that the decode engine fetches by; the prefill engine renews the ticket while it
 * waits, drops or abandons some on purpose, and judges the fate of each from the decode engine's
 * answer. */
#ifndef REPLAY_HANDING_H
#define REPLAY_HANDING_H

#include "handover.h"
#include "prefill.h"

/* Hands over every ready turn, and does what is due to standing tickets. Returns false if the
 * engine cannot continue, with the reason in e->why. */
bool handing_act(struct prefill *p);

/* Takes the decode engine's answer on a request that was handed over. Returns false as above. */
bool handing_answered(struct prefill *p, struct turn *turn, const struct handover_done *m);

/* When the next action is due; UINT64_MAX: none is. */
uint64_t handing_due_ns(const struct prefill *p);

#endif
