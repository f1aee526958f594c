/* A core by itself with one engine and one pool: what `tern-bench index` and `retention` measure.
 * Requests go in as events and the answer is looked for among the actions; checksum jobs are
 * answered at once. A turn is what one Step of an engine appends, writes and commits. */
#ifndef BENCH_CORE_RIG_H
#define BENCH_CORE_RIG_H

#include "core/core.h"
#include "core/query.h"

struct core_rig {
    void *mem;           /* owned */
    struct core *core;   /* inside mem */
    struct actions *out; /* owned */
    struct pool_id pool;
    uint64_t now_ns, request_id;
};

#define CORE_RIG_ADMIN 1 /* the connection of the operator */

/* `open` gives groups and supersede policy; sizes and units of pages are the rig's. False without
 * memory, or if the core refuses the set-up. */
bool core_rig_init(struct core_rig *rig, const struct req_pool_open *open, uint32_t pages);
/* Likewise, with so many sessions, and turn records in so many pages, a multiple of 64. Nothing of
 * that memory is there: the core touches none. */
struct core_rig_records {
    uint32_t sessions, records, pages;
};
bool core_rig_init_records(struct core_rig *rig, const struct req_pool_open *open, uint32_t pages,
                           const struct core_rig_records *records);
void core_rig_finish(struct core_rig *rig);

/* One core_step with this request; the reply, which lives until the next call, or NULL if none
 * came. */
const struct reply *core_rig_ask(struct core_rig *rig, struct request *request);

/* Answers whatever the last step asked of the seams, until the core wants nothing more. */
void core_rig_settle(struct core_rig *rig);

/* False if the core refused. The session's namespace is the rig's; close settles. */
bool core_rig_open(struct core_rig *rig, struct session_id *ret_session);
bool core_rig_close(struct core_rig *rig, struct session_id session);

/* One Step: tokens [from, to) are appended, written and committed. Settles nothing, so that the
 * caller sees what this Step alone did. */
bool core_rig_turn(struct core_rig *rig, struct session_id session, const uint32_t *tokens,
                   uint32_t from, uint32_t to, double *ret_us);

/* Throws out every node that can go; false if one is left. */
bool core_rig_evict(struct core_rig *rig);

#endif
