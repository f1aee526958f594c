/* Read-only views of the core for `ternctl`, metrics and tests. Each fills one struct for one slot
 * and returns false where that slot is empty; the caller walks the slots. Nothing here changes the
 * core. */
#ifndef CORE_QUERY_H
#define CORE_QUERY_H

#include "core/core.h"

/* Pages of one group by where they are: all but `peak_*` and `borrowed` add up to `total`. */
struct group_view {
    struct group_layout layout;
    uint32_t total, free, leased, session, snapshot, reclaimable, transfer, ticket, retiring,
        zeroing, quarantine;
    uint32_t peak_session, peak_snapshot; /* peak_snapshot: in use, reclaimable apart */
};

struct pool_view {
    struct id id;
    uint32_t tenant, engine, ngroups, align_tokens, slabs, slabs_free, nodes;
    uint32_t regions; /* ranks of the engines that use it */
    uint64_t offset, bytes, slab_bytes;
    bool closing, zeroing;
    enum supersede supersede;
    struct group_view group[GROUPS_MAX];
};

struct session_view {
    struct id id, engine, pool;
    struct namespace_id ns;
    const char *state; /* static */
    struct lengths lengths;
    uint32_t tokens, node;
    uint64_t last_use_ns;
};

struct engine_view {
    struct id id;
    char name[ENGINE_NAME_MAX];
    const char *state;
    uint32_t tenant, world, procs_alive, sessions;
    uint64_t done_step[RANKS_MAX];
    uint64_t retiring_until;
};

struct transfer_view {
    struct id id;
    bool outgoing;
    const char *state;
    uint32_t link, from, to, published;
    uint32_t pages, pages_done;
    uint64_t started_ns, deadline_ns;
};

struct node_view {
    uint32_t slot, parent, depth, children, pages, refs_device, refs_transfer;
    uint32_t pool;
    struct namespace_id ns;
    bool visible, sealed; /* visible: every rank has passed the step that wrote it */
    /* STATE: pages of its segments (in `pages` too); superseded, so that whoever needs pages takes
     * them first; a session could go on from here, derived now (false where there is nothing to
     * resume: the root); who borrows it, sessions and transfers. */
    uint32_t state_pages, borrowers;
    bool reclaimable, resumable;
    uint64_t last_use_ns;
};

struct core_view {
    uint64_t incarnation, now_ns;
    uint32_t pools, engines, sessions, nodes, pulls, serves, links_up;
    uint32_t token_blocks_free, nodes_free, retires_free;
    bool draining;
    uint64_t errors[TERN_ERR_COUNT]; /* replies by error */
    uint64_t evicted_nodes, evicted_pages, corrupt_detected, pages_pulled, pages_served, dup_chunks;
    uint64_t oldest_quarantine_ns; /* 0: none */
};

void core_view(const struct core *core, struct core_view *ret);
bool core_pool_view(const struct core *core, uint32_t slot, struct pool_view *ret);
bool core_session_view(const struct core *core, uint32_t slot, struct session_view *ret);
bool core_engine_view(const struct core *core, uint32_t slot, struct engine_view *ret);
bool core_pull_view(const struct core *core, uint32_t slot, struct transfer_view *ret);
bool core_serve_view(const struct core *core, uint32_t slot, struct transfer_view *ret);
bool core_node_view(const struct core *core, uint32_t slot, struct node_view *ret);
const struct core_limits *core_limits_of(const struct core *core);

#endif
