/* The disk tier in the simulator: see disk.c. What is kept of it hangs on the history as one block
 * a daemon; others only say what has happened. */
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
/* Something that is under way there ends. False: nothing is. */
bool disk_work(struct sim *w, uint32_t d);
bool disk_writes(const struct sim *w, uint32_t d);
bool disk_pending(const struct sim *w, uint32_t d);
uint64_t disk_pause(const struct sim *w, uint32_t d); /* no store begins before that */

/* Where the core is at rest: is what it counts what lies there? */
void disk_check(struct sim *w, uint32_t d);
void disk_check_rest(struct sim *w, uint32_t d);

/* ---- disk_reads.c ---- */
/* The first pages of a fetch are asked for. */
void disk_pull_begins(struct sim *w, uint32_t d, const struct action *act);
void disk_batch_page(struct sim *w, uint32_t d, struct pull *p, struct batch *b,
                     const struct action *act, uint32_t i);
/* One page is read. */
void disk_page_move(struct sim *w, uint32_t d, const struct pull *p, struct batch *b, uint32_t i,
                    bool corrupt);
void disk_read_broke(struct sim *w, uint32_t d, bool broke);
/* The core is told that the page came wrong. */
void disk_page_wrong(struct sim *w, uint32_t d, const struct pull *p, const struct batch *b,
                     uint32_t i);

/* ---- disk_asks.c ---- */
void ask_store(struct sim *w, uint32_t d, uint32_t s);
void store_answered(struct sim *w, uint32_t d, const struct reply *r);
void disk_conn_left(struct sim *w, uint32_t d, uint32_t conn);
void disk_shut(struct sim *w, uint32_t d); /* the daemon is told that it ends */
bool disk_shutting(const struct sim *w, uint32_t d);
/* How deep a Fetch from the disk would bring a session of the pool; `then`: as it was before this
 * step's drops. */
uint32_t disk_depth(struct sim *w, uint32_t d, uint32_t pool, uint32_t ns, uint32_t variant,
                    uint32_t n, bool then);
/* D4: what a Match or Peek has said of it. */
void check_disk_depth(struct sim *w, uint32_t d, uint32_t pool, uint32_t space, uint32_t variant,
                      uint32_t n, uint32_t depth, uint32_t told);
void check_disk_fetch(struct sim *w, uint32_t d, const struct session *s, const struct reply *r);
/* N1: a reset was answered; `all`: all peers have heard of it. */
void disk_reset_answered(struct sim *w, uint32_t d, const struct reset_asked *a, bool all);
/* A peer's message is about to come, or was taken in. */
void disk_reset_told(struct sim *w, uint32_t d, const struct peer_msg *msg, bool on);
/* The namespace is reset: what lies there now is never found again. */
void disk_reset_begun(struct sim *w, uint32_t d, uint32_t tenant, uint32_t ns);
/* At the end: after one more crash everything is matched, and most of it fetched. */
void disk_last_start(struct sim *w, uint32_t d);
/* Nobody uses the daemon any more, and it is told to end, with all the time there is. Then, when
 * all has come to rest: D6. */
void disk_told_to_end(struct sim *w, uint32_t d);
void disk_check_ended(struct sim *w, uint32_t d);

#endif
