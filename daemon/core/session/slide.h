/* The window of a session's STATE: which pages left it, and where the session may return to. And
 * the session's own pages behind its committed length when it fetches from a peer or the host. */
#ifndef CORE_SLIDE_H
#define CORE_SLIDE_H

#include "core/session/call.h"

/* T5: moves STATE pages wholly below the window of min(written, next) to `list`, at most
 * PIECE_VISITS_MAX, and ends as many chunks' borrows: a later slide does the rest. Returns the
 * node, pinned for the caller's retire_release, up to which borrows end (from the session's former
 * `state_from` on); NONE: none end. */
uint32_t session_slide(struct core *c, struct session *s, uint64_t step, uint32_t next,
                       struct list *list);
/* A page of a session's table: its group, and its number counted from the first token. */
struct group_page {
    uint32_t group, page;
};

/* Removes WINDOW pages below `first` from the table; steps up to `step` may still read them. */
void session_slid_to(struct session *s, struct group_page first, uint64_t step);
/* Returns true if the session may resume at length p; false if needed STATE has left its table. */
bool session_can_return(const struct core *c, const struct session *s, uint32_t p);

/* Checks that the session may fetch now, from any source. */
enum tern_err session_may_fetch(const struct core *c, const struct session *s, struct reply *ret);
/* The same for a fetch without pages, which replaces none of the session's own. */
enum tern_err session_may_fetch_nothing(const struct session *s, struct reply *ret);
/* Checks that a fetch to at most `most` tokens can reach the requested at_least. */
enum tern_err at_least_fits(const struct session *s, const struct req_fetch *r, uint32_t most,
                            struct reply *ret);
/* Number of the session's own pages, of all groups. */
uint32_t session_owns(const struct core *c, const struct session *s);
/* Returns true if it has more than what it borrows up to its committed length. */
bool tail_is_there(const struct core *c, const struct session *s);
/* Retire records for its release at `step`. */
uint32_t tail_records(const struct core *c, const struct session *s, uint64_t step);
/* Frees all its own pages by that step: the fetch replaces them. Requires the records. */
void tail_give_way(struct core *c, struct session *s, uint64_t step);

#endif
