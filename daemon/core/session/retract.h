/* Sessions that are away, or wait for the host tier: Retract, Recover, and Fetch from the host. */
#ifndef CORE_RETRACT_H
#define CORE_RETRACT_H

#include "core/session/call.h"

enum tern_err fetch_from_host(struct core *c, struct call *call, struct reply *ret);
/* Ends the load of a session that has one; the asker is told GONE. There must be room for that.
 * `stays`: it was cancelled, the session is not aborted or closed. */
void load_end(struct core *c, struct actions *out, struct session *s, bool stays);
void load_conn_closed(struct core *c, uint32_t conn);
/* Ends what the session began on the host tier: it holds its prefix by one pin, DEVICE or HOST. */
void session_come_back(struct core *c, struct session *s);
/* Gives back `pages` and whatever holds the session's prefix, at `step`. */
void session_let_go(struct core *c, struct session *s, uint64_t step, struct list *pages);
bool away_flush(struct core *c, struct actions *out); /* false: work is left for want of room */

#endif
