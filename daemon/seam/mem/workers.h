/* The threads behind mem: they hash, copy and zero ranges of page memory and check turn records,
 * nothing else. A job is cut into pieces that the threads take in turn; seals go before copies,
 * because a transfer waits for a seal and a session for a copy. Seals and copies get most of the
 * time; the rest is for turn records and zeroing, where tenants take turns. The owner thread
 * submits and polls; neither blocks nor allocates. Only mem_host.c uses this: one set for memory of
 * the host, and another for devices, so that nothing waits behind a slow device. */
#ifndef SEAM_WORKERS_H
#define SEAM_WORKERS_H

#include "base/tern_err.h"
#include "core/core.h"
#include "seam/mem/mem_touch.h"

struct workers;

uint64_t workers_bytes(uint32_t jobs); /* of the tables */
/* `jobs`: queued or running, at most. A finished job writes to `event_fd`. workers_poll adds to
 * `stats`, which several sets may share. Both are borrowed. */
enum tern_err workers_create(uint32_t threads, uint32_t jobs, int event_fd, struct mem_stats *stats,
                             struct workers **ret, const char **ret_why);
void workers_destroy(struct workers *w); /* finishes no job: joins the threads after their piece */

/* `sums` is the store of mem_sums: sums_per_page values a record. */
void workers_seal(struct workers *w, struct seal_id job, const struct pool_place *place,
                  const struct page_at *pages, uint32_t n, uint64_t *sums, uint32_t sums_per_page);
/* `sums`: the store of mem_sums, for the records of both lists. `spoil`: fault injection, one
 * copied byte is wrong. */
void workers_copy(struct workers *w, struct copy_id job, const struct pool_place *from_place,
                  const struct pool_place *to_place, const struct page_at *from,
                  const struct page_at *to, uint32_t n, uint64_t *sums, uint32_t sums_per_page,
                  bool spoil);
/* `memory`: the tenant's record memory. `here`: on the calling thread. */
void workers_check_record(struct workers *w, const struct record_job *job, const uint8_t *memory,
                          bool here);
void workers_zero(struct workers *w, struct pool_id pool, const struct pool_place *place);
/* Returns true if jobs wait for workers_start. */
bool workers_has_unstarted(const struct workers *w);
/* Hands the jobs queued since the last call to the threads, and wakes as many as they need. */
void workers_start(struct workers *w);

/* All threads populate memory before it is shared; blocks. Returns false if there is no memory. */
bool workers_populate(struct workers *w, uint8_t *base, uint64_t bytes, bool huge);

/* Emits the event of each finished job. The caller reads the event_fd, before this call. */
void workers_poll(struct workers *w, void (*emit)(void *ctx, struct event *event), void *ctx);

#endif
