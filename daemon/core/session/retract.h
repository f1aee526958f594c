/* Sessions that are away, or wait for the host tier: Retract, Recover and Fetch from the host. */
#ifndef CORE_RETRACT_H
#define CORE_RETRACT_H

#include "core/session/call.h"

enum tern_err fetch_from_host(struct core *c, struct call *call, struct reply *ret);
/* Ends a session's load, if any; the asker gets GONE. Requires room for that answer. `stays`: the
 * load was cancelled; the session is not aborted or closed. */
void load_end(struct core *c, struct actions *out, struct session *s, bool stays);
/* Ends the session's work on the host tier: one pin, DEVICE or HOST, is left on its prefix. */
void session_come_back(struct core *c, struct session *s);
/* Releases `pages` and the pin of the session's prefix, at `step`. */
void session_let_go(struct core *c, struct session *s, uint64_t step, struct list *pages);
bool away_flush(struct core *c, struct actions *out); /* false: work is left, for want of room */

#endif
