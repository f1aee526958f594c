/* What transfers read of a handed-over session (Y1, Y2). Its life is in session/tickets.h. */
#ifndef CORE_HANDED_H
#define CORE_HANDED_H

#include "core/arena/arena.h"
#include "core/busy.h"

/* The figures of its tenant. */
static inline struct tickets_view *tickets_of(const struct core *c, const struct session *s)
{
    return &tenant_at(c, pool_at(c, s->pool)->tenant)->tickets;
}

/* The session that a ticket of the tenant names: it was handed over, or still runs. GONE: it was
 * fetched or dropped, its time was over, or the daemon has been restarted. DENIED: the ticket is
 * not one that this daemon gave to this tenant. */
enum tern_err handed_find(const struct core *c, uint32_t tenant, const struct ticket *t,
                          struct session **ret);
/* The text of an enum ticket_busy; of a number that this daemon does not know, UNSAID's. Static. */
const char *ticket_busy_text(uint32_t why);
/* May a transfer begin to serve it? BUSY, and why: it still runs, a step or checksums are awaited,
 * or another one does. GONE: it ends. */
enum tern_err handed_ready(const struct core *c, const struct session *s, uint32_t *ret_why);
/* Where the tokens and keys of the message differ from its list first: that position and 1, as
 * struct peer_msg has it. 0: nowhere. */
uint32_t handed_differs(const struct core *c, const struct session *s, const struct peer_msg *m);
/* A transfer out serves it, or no longer does; it owns the page behind its committed length. */
void handed_serve(struct core *c, struct session *s, bool serves);
/* Sets the only transfer out that follows it, or NONE; no other serves it. */
void handed_follow(struct core *c, struct session *s, uint32_t serve);
/* Its last step has passed: its engine has nothing to do with it any more. */
void handed_left_engine(struct core *c, struct session *s);
/* A peer has fetched all of what it names (Y6): it is taken, whatever has become of the transfer
 * here meanwhile. False: no session that was handed over is named. */
bool handed_done(struct core *c, const struct ticket *t);
/* The peer has all of it: it ends when nothing reads it. */
void handed_taken(struct core *c, struct session *s);
/* It is a ticket from now on. */
void handed_made(struct core *c, struct session *s);
/* When its time is over (Y3); UINT64_MAX: it ends already, or is a promise that is followed. */
uint64_t handed_until(const struct session *s);
/* That may be another. */
void handed_timed(const struct core *c, struct session *s);
/* It is looked at in this step, or in the next. */
void handed_look(struct core *c, struct session *s);
/* It is about to be CLOSING, or what it promised is over: it is no ticket any more. */
void handed_leave(struct core *c, struct session *s);
/* Its pages of the group, [first, first + n): those of its path, and those behind it. */
struct handed_range {
    uint32_t node, first, n; /* node: of its path, the deepest that the range reaches into */
};
void handed_refs(const struct core *c, const struct session *s, const struct group *g,
                 struct handed_range of, struct page_ref *refs);

#endif
