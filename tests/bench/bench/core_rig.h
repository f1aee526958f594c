/* A core by itself with one engine and one pool, for `tern-bench index` and `retention`. Requests
 * are events, and the reply is searched among the actions; checksum jobs are answered at once. A
 * turn is one Step of an engine that appends, writes and commits. */
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

/* `open` has the groups and the supersede policy; sizes and units of pages are the rig's. Returns
 * false without memory, or if the core refuses the set-up. */
bool core_rig_init(struct core_rig *rig, const struct req_pool_open *open, uint32_t pages);
/* Likewise, with `sessions` sessions, and turn records in so many pages, a multiple of 64. The
 * record memory is not backed: the core touches none of it. */
struct core_rig_records {
    uint32_t sessions, records, pages;
};
bool core_rig_init_records(struct core_rig *rig, const struct req_pool_open *open, uint32_t pages,
                           const struct core_rig_records *records);
void core_rig_finish(struct core_rig *rig);

/* Runs one core_step with this request. Returns the reply, borrowed until the next call, or NULL if
 * none came. */
const struct reply *core_rig_ask(struct core_rig *rig, struct request *request);

/* Answers what the last step asked of the seams, until the core asks for nothing more. */
void core_rig_settle(struct core_rig *rig);

/* Returns false if the core refused. The session's namespace is the rig's; close settles. */
bool core_rig_open(struct core_rig *rig, struct session_id *ret_session);
bool core_rig_close(struct core_rig *rig, struct session_id session);

/* One Step: appends, writes and commits tokens [from, to). Settles nothing, so that the caller sees
 * the effect of this Step alone. */
bool core_rig_turn(struct core_rig *rig, struct session_id session, const uint32_t *tokens,
                   uint32_t from, uint32_t to, double *ret_us);

/* Evicts every evictable node. Returns false if a node is left. */
bool core_rig_evict(struct core_rig *rig);

#endif
