/* The ranks of one engine: rank 0 is the scheduler's own process, each other rank a process of its
 * own that maps its region, writes or compares its share of every page, and publishes its own
 * done_step. */
#ifndef REPLAY_RANKS_H
#define REPLAY_RANKS_H

#include <sys/types.h>

#include "engine/profile.h"

#define ENGINE_PREFILL "replay-prefill"
#define ENGINE_DECODE  "replay-decode"

enum rank_work { RANK_WRITE = 1, RANK_COMPARE, RANK_COPY };

/* One page to write or to compare: `page` of the prefix that hashes to `prefix`, at `index` of its
 * group. Or to copy from the page `from` of the same group. */
struct page_job {
    uint64_t prefix;
    uint32_t page, index, gen, from;
    uint16_t group, work; /* enum rank_work */
};

/* The memory and the role of a rank. */
struct rank_place {
    uint32_t rank; /* as used in the bytes: 0 for all ranks of a replicated group */
    uint32_t ngroups;
    uint64_t page_bytes[PROFILE_GROUPS_MAX];
    uint32_t units[PROFILE_GROUPS_MAX];
    bool brings;           /* it brings the checksums of its writes for the commit */
    struct tern_pool *map; /* borrowed */
};

struct team {
    uint32_t ranks;
    struct rank_place own;
    int fd[TERN_RANKS_MAX]; /* [1, ranks): to the rank processes; -1: none */
    pid_t pid[TERN_RANKS_MAX];
};

/* As tern_join. TERN_PREFILL_DEVICES and TERN_DECODE_DEVICES, for tests: NAME+NAME, the devices of
 * the ranks of each engine. */
enum tern_err rank_join(struct tern *t, const char *engine, enum tern_role role, uint32_t rank,
                        uint32_t ranks, uint32_t ms);

/* Forks the rank processes, which connect and join. Call it before the caller has a connection.
 * Returns NULL, or why it failed (static). */
const char *team_start(struct team *team, const char *socket, const char *engine,
                       const struct geometry *g, bool brings);

/* Maps the pool in every rank; `own`: the caller's mapping, borrowed. Returns NULL, or why not. */
const char *team_map(struct team *team, uint64_t pool, struct tern_pool *own);

/* All ranks work on these pages in order and then publish `step`. Returns false if a rank process
 * is gone. *ret_wrong: wrong bytes over all ranks. */
bool team_run(struct team *team, const struct page_job *jobs, uint32_t n, uint64_t step,
              uint64_t *ret_wrong);

void team_end(struct team *team);

#endif
