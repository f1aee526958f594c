/* The window of a session's STATE: which pages have left it, and where the session may return to.
 * And what it owns behind its committed length when it fetches, from a peer or from the host. */
#ifndef CORE_SLIDE_H
#define CORE_SLIDE_H

#include "core/session/call.h"

/* T5: takes STATE pages that are wholly below the window of min(written, next) into `list`, up to
 * PIECE_VISITS_MAX, and so many chunks of what is borrowed: a later slide takes the rest. Returns
 * the node, pinned for the caller's retire_release, up to which borrowed segments end (from the
 * session's `state_from` before the call); NONE: none do. */
uint32_t session_slide(struct core *c, struct session *s, uint64_t step, uint32_t next,
                       struct list *list);
/* A page of a session's table: of which group, and the how many-th from the first token on. */
struct group_page {
    uint32_t group, page;
};

/* Pages of a WINDOW group below `first` leave the table; steps up to `step` may still read them. */
void session_slid_to(struct session *s, struct group_page first, uint64_t step);
/* May the session go on from length p? Not where STATE that it would need has left its table. */
bool session_can_return(const struct core *c, const struct session *s, uint32_t p);

/* May the session fetch now, wherever from? */
enum tern_err session_may_fetch(const struct core *c, const struct session *s, struct reply *ret);
/* The same for a fetch that brings no page, so nothing takes the place of what the session owns. */
enum tern_err session_may_fetch_nothing(const struct session *s, struct reply *ret);
/* Can a fetch that brings a session to `most` tokens bring it to what is asked for? */
enum tern_err at_least_fits(const struct session *s, const struct req_fetch *r, uint32_t most,
                            struct reply *ret);
/* Pages that it owns, of all groups. */
uint32_t session_owns(const struct core *c, const struct session *s);
/* Does it have more than what it borrows up to its committed length? */
bool tail_is_there(const struct core *c, const struct session *s);
/* Records that its release at `step` needs. */
uint32_t tail_records(const struct core *c, const struct session *s, uint64_t step);
/* Gives back all that it owns by that step: what was fetched replaces it. There are records. */
void tail_give_way(struct core *c, struct session *s, uint64_t step);

#endif
