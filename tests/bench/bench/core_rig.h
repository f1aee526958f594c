/* A core by itself with one engine and one pool: what `tern-bench index` measures. Requests go in
 * as events and the answer is looked for among the actions; checksum jobs are answered at once. */
#ifndef BENCH_CORE_RIG_H
#define BENCH_CORE_RIG_H

#include "core/core.h"
#include "core/query.h"

struct core_rig {
    void *mem;           /* owned */
    struct core *core;   /* inside mem */
    struct actions *out; /* owned */
    struct id pool;
    uint64_t now_ns, request_id;
};

/* False without memory, or if the core refuses the set-up. */
bool core_rig_init(struct core_rig *rig, uint32_t page_tokens, uint32_t pages);
void core_rig_finish(struct core_rig *rig);

/* One core_step with this request; the reply, which lives until the next call, or NULL if none
 * came. */
const struct reply *core_rig_ask(struct core_rig *rig, struct request *request);

/* Answers whatever the last step asked of the seams, until the core wants nothing more. */
void core_rig_settle(struct core_rig *rig);

#endif
