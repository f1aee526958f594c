/* Fetch: a session gets chunks from a peer. fetch.c asks, fetch_publish.c handles what arrives, and
 * transfer/pulls.h has the transfer itself. */
#ifndef CORE_FETCH_H
#define CORE_FETCH_H

#include "core/session/call.h"

/* Creates the record of the call's fetch over that link, complete but for its end. */
struct pull *fetch_begin(struct core *c, struct call *call, uint32_t link);
enum tern_err fetch_from_peer(struct core *c, struct call *call, struct reply *ret);
/* True for this daemon's own ticket of a session of another pool, if a link can move that. */
bool fetch_moves_here(const struct core *c, const struct call *call);
/* Fetches by this daemon's own ticket within a pool. */
enum tern_err fetch_from_here(struct core *c, struct call *call, struct reply *ret);
/* Fetches from this daemon's disk. */
enum tern_err fetch_from_disk(struct core *c, struct call *call, struct reply *ret);
/* Y2: checks that it requests exactly what the ticket has. */
/* T20: UNSUPPORTED if the path is too long or has too many pages to move at once. */
enum tern_err fetch_at_once(const struct core *c, const struct session *s, uint32_t to,
                            struct reply *ret);
enum tern_err fetch_ticket_fits(const struct core *c, const struct session *s,
                                const struct req_fetch *r, struct reply *ret);
struct tokens_range {
    uint32_t at, until;
};
/* Copies the session's tokens and keys of the range into `out`, as far as a message has room. */
void fetch_gather(const struct core *c, const struct session *s, struct tokens_range in,
                  struct actions *out, uint32_t *ret_nkeys);
/* Repeats requests that a busy source put off, or that wait until it has published enough, when
 * due. Returns false if work is left. */
bool fetch_ask_again(struct core *c, struct actions *out);
/* A fetch that names no peer chooses its source once its question is over: the untried peer that
 * reported most. Without a peer the fetch ends. */
void fetch_choose(struct core *c, struct pull *p);
/* Adds the runs of the pages that the session gained by the fetch, from that token on. Requires
 * room. */
void fetch_gained_runs(const struct core *c, struct actions *out, const struct session *s,
                       uint32_t from);
/* Answers the wait for it, if it has come far enough. Returns false without room. */
bool fetch_wait_tell(struct core *c, struct actions *out, struct pull *p);
/* The same at its end, when nothing more will arrive. Requires room for an action. */
void fetch_wait_end(struct core *c, struct actions *out, struct pull *p);
/* The source has all tokens that were sent: sends it the following ones. */
void fetch_more(struct core *c, struct actions *out, struct pull *p, const struct peer_msg *msg);
/* A message from the source of a transfer. */
void fetch_msg(struct core *c, struct actions *out, uint32_t link, const struct peer_msg *msg);
void fetch_arrived(struct core *c, const struct event *ev);
/* HISTORY beyond the committed length that is resident without the STATE to resume there: pins it
 * during the transfer, which does not move it again (X5). */
void fetch_pins_history(struct core *c, struct pull *p);
bool fetch_flush(struct core *c, struct actions *out); /* false: work is left, for want of room */

#endif
