/* Operations of transfers on a handed-over session (Y1, Y2). session/tickets.h has its life. */
#ifndef CORE_HANDED_H
#define CORE_HANDED_H

#include "core/arena/arena.h"
#include "core/busy.h"

/* The figures of its tenant. */
static inline struct tickets_view *tickets_of(const struct core *c, const struct session *s)
{
    return &tenant_at(c, pool_at(c, s->pool)->tenant)->tickets;
}

/* Finds the session that a ticket of the tenant names: handed over, or still running. GONE: it was
 * fetched or dropped, it expired, or the daemon was restarted. DENIED: this daemon did not issue
 * the ticket to this tenant. */
enum tern_err handed_find(const struct core *c, uint32_t tenant, const struct ticket *t,
                          struct session **ret);
/* The text of an enum ticket_busy; for a number unknown to this daemon, UNSAID's. Static. */
const char *ticket_busy_text(uint32_t why);
/* Checks that a transfer may begin to serve it. BUSY, with the reason: it still runs, a step or
 * checksums are awaited, or another transfer serves it. GONE: it ends. */
enum tern_err handed_ready(const struct core *c, const struct session *s, uint32_t *ret_why);
/* Position plus 1 of the first difference between the message's tokens and keys and its list, as in
 * struct peer_msg. 0: none. */
uint32_t handed_differs(const struct core *c, const struct session *s, const struct peer_msg *m);
/* A transfer out serves the session, or no longer does; the session owns the page behind its
 * committed length. */
void handed_serve(struct core *c, struct session *s, bool serves);
/* Sets the only transfer out that follows it, or NONE; no other one serves it. */
void handed_follow(struct core *c, struct session *s, uint32_t serve);
/* The session's last step has passed: it no longer belongs to its engine. */
void handed_left_engine(struct core *c, struct session *s);
/* A peer has fetched all that the ticket names (Y6): the ticket is used up, whatever happened to
 * the transfer here meanwhile. Returns false if it names no handed-over session. */
bool handed_done(struct core *c, const struct ticket *t);
/* The peer has all of it: the session is closed when nothing reads it. */
void handed_taken(struct core *c, struct session *s);
/* The session has a ticket from now on. */
void handed_made(struct core *c, struct session *s);
/* Time when it expires (Y3); UINT64_MAX: it ends already, or is a followed promise. */
uint64_t handed_until(const struct session *s);
/* handed_until may have changed. */
void handed_timed(const struct core *c, struct session *s);
/* Has it examined in this step, or in the next. */
void handed_look(struct core *c, struct session *s);
/* The session becomes CLOSING, or its promise ended: it has no ticket any more. */
void handed_leave(struct core *c, struct session *s);
/* The session's pages of the group, [first, first + n): pages of its path, then those behind it. */
struct handed_range {
    uint32_t node, first, n; /* node: the deepest node of its path within the range */
};
void handed_refs(const struct core *c, const struct session *s, const struct group *g,
                 struct handed_range of, struct page_ref *refs);

#endif
