/* Tickets (Y1 to Y3): sessions that were handed over, or will be. A session that is HANDED keeps
 * its record, and with it all that it had at its written length: its path, pinned, the STATE that
 * it borrows, its own pages (PAGE_HANDED), its tokens; and a blob of its engine's. A ticket is that
 * record's handle with a key. No engine finds the session any more; a transfer out serves it
 * (transfer/handed.h), and once the peer has it, or when it is dropped, or its time is over, it is
 * closed as any other.
 *
 * The ticket may be made before, while the session runs. That only promises: its length is open, it
 * holds nothing, and it is over when the session is closed or aborted, or the time is over. A
 * transfer out may follow the session meanwhile (transfer/serve_follow.h); then the time waits.
 *
 * Until the last step that writes its pages has passed it stays among its engine's, and ends with
 * it. After that it is nobody's. */
#ifndef CORE_TICKETS_H
#define CORE_TICKETS_H

#include "core/session/call.h"

/* The checksums of its own pages are known. The job's slot counts from limits.nodes. */
void ticket_sealed(struct core *c, struct seal_id job);
/* The ticket of the session is dropped, and with it a session that was handed over. */
void ticket_end(struct core *c, struct session *s);
/* Has done what is next for those that are due. False: work is left. */
bool tickets_flush(struct core *c, struct actions *out);
/* Those whose time is over end (Y3). False: there are more. */
bool tickets_expire(struct core *c);
uint64_t ticket_deadline(const struct core *c);

#endif
