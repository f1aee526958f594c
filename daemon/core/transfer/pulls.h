/* Transfers in: their records (pulls.c) and their pages (pull_data.c). Which session one is for,
 * and what it gets, is the business of fetch/fetch.h, which drives them. */
#ifndef CORE_PULLS_H
#define CORE_PULLS_H

#include "core/busy.h"
#include "core/transfer/spans.h"

/* The engine's tenant must have room in its share. */
struct pull *pull_create(struct core *c, const struct engine *e, uint32_t peer);
/* Whose share its fetches from that peer are of. */
uint32_t pull_holder(const struct core *c, const struct engine *e, uint32_t peer);
/* Is there a record for one more? A prefetch leaves some to fetches that a decode waits for. */
bool pull_may_begin(const struct core *c, uint32_t holder, bool prefetch);
/* X8: so many bytes of it are asked for; or are here, or nobody waits for them. */
void pull_bytes_asked(const struct core *c, const struct pull *p, uint64_t bytes);
void pull_bytes_over(const struct core *c, const struct pull *p, uint64_t bytes);
/* A message about it to its source; there must be room. */
struct peer_msg *pull_send(const struct core *c, struct actions *out, const struct pull *p,
                           enum peer_msg_kind kind);

/* Another transfer of its tenant over its link asks a busy source again: it has to wait behind. */
bool pull_is_behind(const struct core *c, const struct pull *p);
/* The source is busy, or others are before it, for so long: it is asked again then, or when those
 * before it were not. */
void pull_put_off(struct core *c, struct pull *p, enum pull_busy why, uint32_t retry_ms);
/* The source has not published `at_least` yet: it is asked again after a pause. Such a transfer
 * waits for itself alone; others go past it. */
void pull_wait(struct core *c, struct pull *p);
/* The source was not busy, or the transfer ends: the oldest of those behind it asks now. */
void pull_led(struct core *c, struct pull *p);
/* One that follows takes its pages before it asks for the first time; so it waits for that. */
void pull_take_first(struct core *c, struct pull *p);
bool pull_takes_first(const struct pull *p);
/* It asks the source again at ask_ns. */
bool pull_asks_again(const struct pull *p);
/* What the source has to have published before it offers anything; 0: it offers what it has. */
uint32_t pull_awaits(const struct core *c, const struct pull *p);
/* Is this what a source may offer to what was asked, or the piece of its offer that follows? */
bool pull_offer_fits(const struct core *c, const struct pull *p, const struct peer_msg *msg);
/* Takes the pages for all that was offered, up to `to`. They must be free. The source names its
 * own, in pieces, by pull_told: what it has not named yet is not asked for. */
void pull_reserve(struct core *c, struct pull *p, uint32_t to);
/* The source named the tokens of its pages. *ret_need: pages needed beside those of pull_reserve,
 * for whole spans up to `to`; they must be free. pull_reserve_spans takes them. */
void pull_spans_told(const struct core *c, struct pull *p, const struct peer_msg *msg, uint32_t to,
                     uint32_t ret_need[GROUPS_MAX]);
void pull_reserve_spans(struct core *c, struct pull *p);
/* Frees those of the beginning, once they are verified. No engine has seen them. */
void pull_drop_front(struct core *c, struct pull *p);
struct span_shape pull_span_shape(const struct core *c, const struct pull *p, uint32_t g);
/* The length from which on the windows of what it brings are whole. By a ticket of a length that is
 * no multiple of L the source sends its pages of the last one alone: of larger pages here the first
 * may have no more than its end. 0: they are whole at every length. */
uint32_t pull_whole_from(const struct core *c, const struct pull *p);
/* That begins with this page of a list. */
struct pull_span pull_span_at(const struct core *c, const struct pull *p, uint32_t record);
/* The first page of the next one; NONE: the list ends there. */
uint32_t pull_span_after(const struct core *c, const struct pull *p, uint32_t record);
/* The source has offered: from now on it asks for pages that were named. */
void pull_run(struct core *c, struct pull *p);
/* Something of it has come: the time of one that follows begins anew. */
void pull_time(const struct core *c, struct pull *p);
void pull_told(struct core *c, struct pull *p, const struct peer_msg *msg);

/* Checks the pages of a batch in. NULL: nobody is affected; else look what can be published. */
struct pull *pull_check_in(struct core *c, const struct event *ev);
/* For each group, the pages that are moved and still here, up to the chunk that ends at `depth`; 0
 * if that chunk has none. There are more than the chunk's where a WINDOW group's earlier ones found
 * no place in the tree. */
void pull_chunk_pages(const struct pool *pool, const struct pull *p, uint32_t depth,
                      uint32_t ret_pages[GROUPS_MAX]);
/* Are all pages of the chunk that ends at `depth` here? */
bool pull_chunk_verified(const struct core *c, const struct pull *p, uint32_t depth);
/* Asks for pages, each transfer in turn. False: `out` has no room for all that could be asked. */
bool pulls_issue(struct core *c, struct actions *out);

/* Has it pages to ask for, and may not yet? As of the end of a step. */
bool pull_lacks_credit(const struct core *c, const struct pull *p);

/* It ends as BUSY for that. */
void pull_set_busy(struct core *c, struct pull *p, enum pull_busy why);
/* Ends it with `err` (OK: all came) once there is room for the actions. The first call counts. */
void pull_set_ending(struct core *c, struct pull *p, enum tern_err err);
/* Its source says what it may not: the link is closed. There must be room. */
void pull_broke_protocol(struct core *c, struct actions *out, struct pull *p);
void pull_check_time(struct core *c, struct pull *p); /* ends it if its time is over */
/* Its session is about to go, with the pages that were published. */
void pull_orphan(struct core *c, struct pull *p);
/* The same for all of an engine, before they are given back one by one. */
void pull_engine_gone(struct core *c, uint32_t engine);
void pull_conn_closed(struct core *c, uint32_t conn);
/* The peer that was chosen for it has nothing, or is lost: it looks for another. False: it named
 * its peer, or has begun. */
bool pull_tries_next(struct core *c, struct pull *p);
/* Makes that peer the source. False: its share has no room. */
bool pull_goes_to(struct core *c, struct pull *p, uint32_t peer);
void pull_link_down(struct core *c, uint32_t link);
void pull_broken(struct core *c, struct pull_id pull, enum tern_err err);
void pull_stop(struct core *c, struct actions *out, struct pull *p);
void pull_proved_quiet(struct core *c, struct pull_id pull);
uint64_t pull_deadline(const struct core *c);

/* Transfers in whose source is this daemon's own disk: which extents their pages lie in. */
/* Its pages were reserved: each is told which chunk it is of. */
void pull_told_disk(struct core *c, struct pull *p);
/* Where the n pages of a batch lie; in `out`. There is room. */
const struct disk_page *pull_disk_from(const struct core *c, struct actions *out,
                                       const struct pull *p, const struct page_at *pages,
                                       const struct page_ref *refs, uint32_t n);
/* What was read of this page is not what was written, each time. STATE that was written anew since
 * the transfer began is not judged: it may have been read where it lay before. */
void pull_disk_bad(struct core *c, const struct pull *p, const struct page *pg);

#endif
