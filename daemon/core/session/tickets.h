/* Tickets (Y1 to Y3): sessions that were handed over, or will be. A HANDED session keeps its
 * record, and with it everything that it had at its written length: its pinned path, the STATE that
 * it borrows, its own pages (PAGE_HANDED), its tokens; and its engine's blob. A ticket is that
 * record's handle with a key. No engine can use the session any more. A transfer out serves it
 * (transfer/handed.h); when the peer has it, or it is dropped, or it expires, the session is closed
 * like any other.
 *
 * The ticket may be made earlier, while the session runs, as a promise: its length is open, it pins
 * nothing, and it ends when the session is closed or aborted, or it expires. A transfer out may
 * follow the session meanwhile (transfer/serve_record.h); it does not expire then.
 *
 * Until the last step that writes its pages has passed, the session stays with its engine, and ends
 * with it. After that it has no engine. */
#ifndef CORE_TICKETS_H
#define CORE_TICKETS_H

#include "core/session/call.h"

/* The checksums of the ticket's own pages are known. The job's slot counts from limits.nodes. */
void ticket_sealed(struct core *c, struct seal_id job);
/* Drops the session's ticket, and the session if it was handed over. */
void ticket_end(struct core *c, struct session *s);
/* Does the next work of due tickets. Returns false if work is left. */
bool tickets_flush(struct core *c, struct actions *out);
/* Ends expired tickets (Y3). Returns false if more are left. */
bool tickets_expire(struct core *c);
uint64_t ticket_deadline(const struct core *c);

#endif
