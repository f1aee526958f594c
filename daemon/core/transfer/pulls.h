/* Transfers in: their records (pulls.c) and their pages (pull_data.c). fetch/fetch.h drives them:
 * it knows the session of each, and what the session gets. */
#ifndef CORE_PULLS_H
#define CORE_PULLS_H

#include "core/busy.h"
#include "core/transfer/spans.h"

/* Requires room in the share of the engine's tenant. */
struct pull *pull_create(struct core *c, const struct engine *e, uint32_t peer);
/* Returns the share to which the engine's fetches from that peer belong. */
uint32_t pull_holder(const struct core *c, const struct engine *e, uint32_t peer);
/* Returns true if a record is left for one more transfer. Prefetches leave some records to fetches
 * that a decode waits for. */
bool pull_may_begin(const struct core *c, uint32_t holder, bool prefetch);
/* X8: adds bytes that were requested; or -bytes, which arrived or are no longer awaited. */
void pull_bytes_add(const struct core *c, const struct pull *p, uint64_t bytes);
/* Adds a message about it to its source. Requires room. */
struct peer_msg *pull_send(const struct core *c, struct actions *out, const struct pull *p,
                           enum peer_msg_kind kind);

/* True if another transfer of its tenant and link precedes it in asking a busy source. */
bool pull_is_behind(const struct core *c, const struct pull *p);
/* The source is busy, or others precede it: asks again after that time, or when those before it are
 * no longer busy. */
void pull_put_off(struct core *c, struct pull *p, enum pull_busy why, uint32_t retry_ms);
/* The source has not published `at_least` yet: asks again after a pause. Such a transfer delays no
 * other one. */
void pull_wait(struct core *c, struct pull *p);
/* The source was not busy, or the transfer ends: the oldest transfer behind it asks now. */
void pull_led(struct core *c, struct pull *p);
/* A follower takes its pages before its first request, so it waits for them. */
void pull_take_first(struct core *c, struct pull *p);
bool pull_takes_first(const struct pull *p);
/* Returns true if it asks the source again at ask_ns. */
bool pull_asks_again(const struct pull *p);
/* Tokens that the source must publish before it offers; 0: it offers what it has. */
uint32_t pull_awaits(const struct core *c, const struct pull *p);
/* Returns true if a source may offer this, or name it as the next piece of its offer. */
bool pull_offer_fits(const struct core *c, const struct pull *p, const struct peer_msg *msg);
/* Takes the pages for the whole offer, up to `to`. They must be free. The source names its own in
 * pieces (pull_told); pages not named yet are not requested. */
void pull_reserve(struct core *c, struct pull *p, uint32_t to);
/* The source named its page_tokens. *ret_need: pages needed beside those of pull_reserve, for whole
 * spans up to `to`; they must be free. pull_reserve_spans takes them. */
void pull_spans_told(const struct core *c, struct pull *p, const struct peer_msg *msg, uint32_t to,
                     uint32_t ret_need[GROUPS_MAX]);
void pull_reserve_spans(struct core *c, struct pull *p);
/* Frees the extra pages in front once they are verified. No engine has seen them. */
void pull_drop_front(struct core *c, struct pull *p);
struct span_shape pull_span_shape(const struct core *c, const struct pull *p, uint32_t g);
/* The length from which on the windows of its pages are whole. For a ticket whose length is no
 * multiple of L the source sends only its pages of the last window: if pages are larger here, the
 * first may have only its end. 0: whole at every length. */
uint32_t pull_whole_from(const struct core *c, const struct pull *p);
/* The span that begins with this page of a list. */
struct pull_span pull_span_at(const struct core *c, const struct pull *p, uint32_t record);
/* First page of the next span; NONE: the list ends there. */
uint32_t pull_span_after(const struct core *c, const struct pull *p, uint32_t record);
/* The source made its offer: requests for named pages may begin. */
void pull_run(struct core *c, struct pull *p);
/* Something arrived: restarts the time of a follower. */
void pull_time(const struct core *c, struct pull *p);
void pull_told(struct core *c, struct pull *p, const struct peer_msg *msg);

/* Checks in the pages of a batch. Returns the pull that may now publish; NULL: none. */
struct pull *pull_check_in(struct core *c, const struct event *ev);
/* For each group, the moved pages still here, up to the chunk that ends at `depth`; 0 if that chunk
 * has none. They exceed the chunk's pages if the tree did not take a WINDOW group's earlier
 * ones. */
void pull_chunk_pages(const struct pool *pool, const struct pull *p, uint32_t depth,
                      uint32_t ret_pages[GROUPS_MAX]);
/* Returns true if all pages of the chunk that ends at `depth` are verified. */
bool pull_chunk_verified(const struct core *c, const struct pull *p, uint32_t depth);
/* Requests pages, each transfer in turn. Returns false if `out` has no room for all of them. */
bool pulls_issue(struct core *c, struct actions *out);

/* Returns true if it has pages to request, and may not yet, as of the end of a step. */
bool pull_lacks_credit(const struct core *c, const struct pull *p);

/* Ends it as BUSY for that reason. */
void pull_set_busy(struct core *c, struct pull *p, enum pull_busy why);
/* Ends it with `err` (OK: all arrived) once the actions have room. The first call counts. */
void pull_set_ending(struct core *c, struct pull *p, enum tern_err err);
/* The pull's source broke the protocol: closes the link. Requires room. */
void pull_broke_protocol(struct core *c, struct actions *out, struct pull *p);
void pull_check_time(struct core *c, struct pull *p); /* ends it if expired */
/* The pull's session is about to end, with the pages that were published. */
void pull_orphan(struct core *c, struct pull *p);
/* The same for all transfers of an engine, before they are freed one by one. */
void pull_engine_gone(struct core *c, uint32_t engine);
/* The peer chosen for it has nothing, or is lost: it looks for another. Returns false if it named
 * its peer, or has begun. */
bool pull_tries_next(struct core *c, struct pull *p);
/* Makes that peer the source. Returns false if the peer's share has no room. */
bool pull_goes_to(struct core *c, struct pull *p, uint32_t peer);
void pull_link_down(struct core *c, uint32_t link);
void pull_broken(struct core *c, struct pull_id pull, enum tern_err err);
void pull_stop(struct core *c, struct actions *out, struct pull *p);
void pull_proved_quiet(struct core *c, struct pull_id pull);
uint64_t pull_deadline(const struct core *c);

/* A transfer in from this daemon's own disk: gives each reserved page its chunk. */
void pull_told_disk(struct core *c, struct pull *p);

#endif
