/* The record of a session: what all code that works on sessions needs to know of one. */
#ifndef CORE_RECORD_H
#define CORE_RECORD_H

#include "core/busy.h"
#include "core/session/call.h"
#include "core/tree/tokens.h"

#define MATCH_INCOMPLETE                                                                           \
    "this session's Match is incomplete: send its remaining pieces, or Abort the session"

#define STEP_TOO_MUCH                                                                              \
    "the Step has more work than one Step may do: the earlier operations are done, and a commit "  \
    "is done up to the lengths in its answer; retry the rest, which continues the work"

#define TICKET_GONE                                                                                \
    "the ticket is gone: it was fetched or dropped, it expired, its session ended before the "     \
    "Handoff, or it was issued by another daemon or before this one was restarted"

#define TICKET_DENIED                                                                              \
    "this daemon issued no such ticket to this tenant: pass the unchanged text of the Handoff's "  \
    "answer, from an engine of the same tenant"

#define TICKET_OTHER_TOKENS                                                                        \
    "the session's tokens differ from the ticket's: Match with the tokens that were handed over"

#define TICKET_OTHER_TOKEN                                                                         \
    "the token or extra key at position # of the session's list differs from the ticket's: Match " \
    "with the tokens that were handed over"

#define TOO_MANY_TOKENS "the list would be longer than the 4,194,304 tokens of a session"

#define TOO_MANY_KEYS "a request has at most 1,024 extra keys: append some tokens later"

#define TABLE_TOO_LONG                                                                             \
    "the session's table would have # pages, and an answer of frame_body_max bytes can name only " \
    "#: give fewer tokens, or raise frame_body_max"

#define TABLE_TOO_DEEP                                                                             \
    "a session of a pool with STATE or a host tier has at most 131,072 chunks of L tokens: give "  \
    "fewer tokens, or open the pool with a larger align_tokens"

#define TAIL_TOO_LONG                                                                              \
    "the session owns more pages than one operation may release: Rewind it to its committed "      \
    "length first, which releases them in pieces"

#define NO_STATE_THERE                                                                             \
    "the session has no STATE to resume from that length: a RECURRENT group has only the STATE "   \
    "of the written and committed lengths, and a WINDOW group can rewind only by its reserve; "    \
    "Abort, then Match again"

#define FETCH_UNDER_WAY                                                                            \
    "this session has a fetch or a recovery under way: wait for its end, or cancel it"

#define TURN_IN_FLIGHT "a turn of this session is in flight: wait for its end, or use its handle"

/* M3: true while a rollback is checked: the table may be freed at any moment, at the step that the
 * rollback named, so nothing that a later step touches may begin. The error is BUSY. */
bool session_rolls_back(const struct core *c, const struct session *s);
#define ROLLING_BACK "a rollback of this session is under way: wait for its answer"

/* Finds the session that an engine names by its own handle or by its turn's. GONE: none exists, or
 * the turn ended, or the session only waits to be closed. BUSY, with *ret set: its own handle was
 * used while a turn is in flight. */
enum tern_err session_of(const struct core *c, const struct engine *e, struct session_id id,
                         struct session **ret, const char **ret_text);
/* Returns true if this is the handle of the turn in flight. */
bool session_turn_is(const struct session *s, struct session_id id);
static inline struct pool *session_pool(const struct core *c, const struct session *s)
{
    return pool_at(c, s->pool);
}
/* Fills in the session's lengths if the answer to that operation has them. */
void reply_lengths(const struct session *s, struct reply *ret);
struct lengths session_lengths(const struct session *s);
/* Returns true if that many tokens make the path too long for one step's walk. */
bool session_too_deep(const struct core *c, const struct session *s, uint32_t tokens);
/* Most pages in its table at that many tokens, with its present own pages. */
uint32_t session_table_refs(const struct core *c, const struct session *s, uint32_t tokens);
struct token_view session_view(const struct core *c, const struct session *s, uint32_t base,
                               const struct req_tokens *req);
/* The same without a request: the tokens behind the committed length. */
static inline struct token_view session_rest(const struct core *c, const struct session *s)
{
    return session_view(c, s, s->tokens.end, &(struct req_tokens){0});
}
bool session_away(const struct session *s);
/* The step at which pages that the session frees may be reused: at least that of its Retract, of
 * its last slide and of its last turn. */
uint64_t session_step(const struct session *s, uint64_t step);
/* sessions_flush frees the rest in pieces; until then the session is `releasing`. */
static inline void session_begin_release(struct core *c, struct session *s)
{
    s->releasing = 1;
    closing_list_push(c, &c->closing, session_slot(c, s));
}
/* INVALID until the last piece of its Match. */
enum tern_err session_is_matched(const struct session *s, struct reply *ret);
/* BUSY while a fetch or a load of it is running. */
enum tern_err session_fetches_nothing(const struct session *s, struct reply *ret);
bool has_recurrent(const struct pool *p);
/* Finds a pool that this engine has opened or mapped. */
enum tern_err session_pool_find(const struct core *c, const struct engine *e, struct pool_id id,
                                struct pool **ret_pool, struct reply *ret);
/* S4, the only place: moves the pages of [ceil_page(p), allocated) to `list`, or only those of
 * RECURRENT groups unless `all`; then p tokens are allocated and at most p are written. */
void session_free_tail(struct core *c, struct session *s, uint32_t p, bool all, struct list *list);
/* Number of these pages, without RECURRENT groups', which have one each. */
uint32_t session_tail_pages(const struct core *c, const struct session *s, uint32_t p);
/* Own pages of the group needed for p tokens. */
uint32_t session_keeps(const struct core *c, uint32_t p, const struct session *s, uint32_t group);
void session_use(struct core *c, struct session *s);
/* The page from which a RECURRENT group's page starts: that of the committed length, if no more is
 * written. Repeated, since an earlier answer that named it may be lost. */
struct page_ref recurrent_from(const struct core *c, const struct session *s, uint32_t group);
/* The session's own pages of a group as one run; no run if it has none. */
void session_owned_run(const struct core *c, struct actions *out, const struct session *s,
                       uint32_t group);
/* The deepest node of its path whose pages of this group it borrows; behind it the session has its
 * own pages, which no node took (T18). */
uint32_t session_borrows_to(const struct core *c, const struct session *s, uint32_t group);
/* A page of a session's table: its group, and its number counted from the first token. */
struct group_page {
    uint32_t group, page;
};
/* The run of a group's borrowed pages from that one on, up to the session's own pages, which may
 * begin before the committed length (T18); no run if the path lacks one of them. */
void session_path_run(const struct core *c, struct actions *out, const struct session *s,
                      struct group_page from);
/* Runs of the borrowed pages, from the one with token `from`. */
void session_path_runs(const struct core *c, struct actions *out, const struct session *s,
                       uint32_t from);
/* The whole table as runs: borrowed pages from token `from` on, then its own. */
void session_runs(const struct core *c, struct actions *out, const struct session *s,
                  uint32_t from);

/* The window of a session's STATE: which pages left it, and where the session may return to. And
 * the session's own pages behind its committed length when it fetches from a peer or the host. */

/* T5: moves STATE pages wholly below the window of min(written, next) to `list`, at most
 * PIECE_VISITS_MAX, and ends as many chunks' borrows: a later slide does the rest. Borrows end from
 * the session's former `state_from` on, up to the returned node, which is pinned for the caller's
 * retire_release. Returns NONE if no borrow ends. */
uint32_t session_slide(struct core *c, struct session *s, uint64_t step, uint32_t next,
                       struct list *list);
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
/* Returns true if the session has anything beside what it borrows up to its committed length. */
bool tail_is_there(const struct core *c, const struct session *s);
/* Number of retire records needed to release its own pages at `step`. */
uint32_t tail_records(const struct core *c, const struct session *s, uint64_t step);
/* Frees all of the session's own pages at that step: the fetch replaces them. Requires the
 * records. */
void tail_give_way(struct core *c, struct session *s, uint64_t step);

#endif
