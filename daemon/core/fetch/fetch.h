/* Fetch: a session gets chunks from a peer. fetch.c asks, fetch_publish.c takes in what comes. The
 * transfer itself is in transfer/pulls.h. */
#ifndef CORE_FETCH_H
#define CORE_FETCH_H

#include "core/session/call.h"

/* The record of what the call asks for, over that link: all of it but where it ends. */
struct pull *fetch_begin(struct core *c, struct call *call, uint32_t link);
enum tern_err fetch_from_peer(struct core *c, struct actions *out, struct call *call,
                              struct reply *ret);
/* Is it this daemon's ticket for a session of another pool, with a link to move that over? */
bool fetch_moves_here(const struct core *c, const struct call *call);
/* By such a ticket, else. */
enum tern_err fetch_from_here(struct core *c, struct actions *out, struct call *call,
                              struct reply *ret);
/* From this daemon's disk. */
enum tern_err fetch_from_disk(struct core *c, struct actions *out, struct call *call,
                              struct reply *ret);
/* Y2: does it ask for just what the ticket has? */
/* T20: does so much go at once? UNSUPPORTED: its path is too long, or it has too many pages. */
enum tern_err fetch_at_once(const struct core *c, const struct session *s, uint32_t to,
                            struct reply *ret);
enum tern_err fetch_ticket_fits(const struct core *c, const struct session *s,
                                const struct req_fetch *r, struct reply *ret);
struct tokens_range {
    uint32_t at, until;
};
/* The session's tokens and keys of the range, which a message has room for, into `out`. */
void fetch_gather(const struct core *c, const struct session *s, struct tokens_range in,
                  struct actions *out, uint32_t *ret_nkeys);
/* Those that a busy source put off, and those that wait until it has published enough, ask again,
 * when it is time. False: work is left. */
bool fetch_ask_again(struct core *c, struct actions *out);
/* A fetch that names no peer takes its source once its question is over: the peer that says it has
 * most, of those that were not tried. Without one the fetch ends. */
void fetch_choose(struct core *c, struct pull *p);
/* What the session has from that token on that its fetch brought, as runs. There must be room. */
void fetch_gained_runs(const struct core *c, struct actions *out, const struct session *s,
                       uint32_t from);
/* Answers who waits for it, if it has come far enough. False: no room. */
bool fetch_wait_tell(struct core *c, struct actions *out, struct pull *p);
/* The same where it ends, and nothing more will come. There must be room for an action. */
void fetch_wait_end(struct core *c, struct actions *out, struct pull *p);
/* The source has all tokens that it was sent: it gets those that follow. */
void fetch_more(struct core *c, struct actions *out, struct pull *p, const struct peer_msg *msg);
/* A message from the source of a transfer. */
void fetch_msg(struct core *c, struct actions *out, uint32_t link, const struct peer_msg *msg);
void fetch_arrived(struct core *c, const struct event *ev);
/* HISTORY beyond the committed length that is here without the STATE to go on from it is not moved
 * again, and stays while the transfer lasts. */
void fetch_pins_history(struct core *c, struct pull *p);
bool fetch_flush(struct core *c, struct actions *out); /* false: work is left for want of room */

#endif
