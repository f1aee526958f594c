/* The disk tier in the simulator: see disk.c. The model of the disk hangs on the history as one
 * block a daemon. The other files only report events to it. */
#ifndef SIM_DISK_H
#define SIM_DISK_H

#include "sim.h"

void disks_create(struct sim *w);
void disks_destroy(struct sim *w);
/* Another history begins: nothing lies on the disk. */
void disks_clear(struct sim *w, uint32_t d);
/* Has the daemon a disk, and the tenant a part of it? */
bool disk_is_on(const struct sim *w, uint32_t d);
bool disk_has_part(const struct sim *w, uint32_t d, uint32_t tenant);
void disk_limits(const struct sim *w, uint32_t d, struct core_limits *l);
uint64_t disk_budget(const struct sim *w, uint32_t d, uint32_t tenant);

/* The daemon's process ends at this instant; then another one starts over what is left. */
void disk_crash(struct sim *w, uint32_t d);
void disk_start(struct sim *w, uint32_t d);

/* Before and after each step of its core. */
void disk_before(struct sim *w, uint32_t d);
void disk_after(struct sim *w, uint32_t d);
void disk_engine_died(struct sim *w, uint32_t d);
void take_disk_write(struct sim *w, uint32_t d, const struct action *act);
void take_disk_drop(struct sim *w, uint32_t d, const struct action *act);
/* Ends one operation that is under way on the disk. Returns false if none is. */
bool disk_work(struct sim *w, uint32_t d);
bool disk_writes(const struct sim *w, uint32_t d);
bool disk_pending(const struct sim *w, uint32_t d);
uint64_t disk_pause(const struct sim *w, uint32_t d); /* no store begins before this time */

/* At rest: do the core's counts agree with the contents of the disk? */
void disk_check(struct sim *w, uint32_t d);
void disk_check_rest(struct sim *w, uint32_t d);

/* ---- disk_reads.c ---- */
/* The core asks for the first pages of a fetch. */
void disk_pull_begins(struct sim *w, uint32_t d, const struct action *act);
void disk_batch_page(struct sim *w, uint32_t d, struct pull *p, struct batch *b,
                     const struct action *act, uint32_t i);
/* One page is read. */
void disk_page_move(struct sim *w, uint32_t d, const struct pull *p, struct batch *b, uint32_t i,
                    bool corrupt);
void disk_read_broke(struct sim *w, uint32_t d, bool broke);
/* The core receives the page as wrong. */
void disk_page_wrong(struct sim *w, uint32_t d, const struct pull *p, const struct batch *b,
                     uint32_t i);

/* ---- disk_asks.c ---- */
void ask_store(struct sim *w, uint32_t d, uint32_t s);
void store_answered(struct sim *w, uint32_t d, const struct reply *r);
void disk_conn_left(struct sim *w, uint32_t d, uint32_t conn);
void disk_shut(struct sim *w, uint32_t d); /* the daemon's end is announced to it */
bool disk_shutting(const struct sim *w, uint32_t d);
/* The depth that a Fetch from the disk would reach for a session of the pool; `then`: as it was
 * before the drops of this step. */
uint32_t disk_depth(struct sim *w, uint32_t d, uint32_t pool, uint32_t ns, uint32_t variant,
                    uint32_t n, bool then);
/* D4: checks the disk depth in the answer to a Match or Peek. */
void check_disk_depth(struct sim *w, uint32_t d, uint32_t pool, uint32_t space, uint32_t variant,
                      uint32_t n, uint32_t depth, uint32_t told);
void check_disk_fetch(struct sim *w, uint32_t d, const struct session *s, const struct reply *r);
/* N1: a reset was answered; `all`: it has reached all peers. */
void disk_reset_answered(struct sim *w, uint32_t d, const struct reset_asked *a, bool all);
/* A peer's message is about to arrive (`on`), or has been processed. */
void disk_reset_told(struct sim *w, uint32_t d, const struct peer_msg *msg, bool on);
/* The namespace is reset: the present contents of the disk are never found again. */
void disk_reset_begun(struct sim *w, uint32_t d, uint32_t tenant, uint32_t ns);
/* At the end: after one more crash everything is matched, and most of it fetched. */
void disk_last_start(struct sim *w, uint32_t d);
/* Nobody uses the daemon any more, and it is asked to end, without a deadline. Then, when all has
 * come to rest: D6. */
void disk_told_to_end(struct sim *w, uint32_t d);
void disk_check_ended(struct sim *w, uint32_t d);

#endif
