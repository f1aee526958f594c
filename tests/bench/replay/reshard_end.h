/* One end of a transfer between shardings: an engine whose ranks are connections of this process,
 * its pool, and the expected value of each byte of its pages. */
#ifndef REPLAY_RESHARD_END_H
#define REPLAY_RESHARD_END_H

#include "engine/engine.h"
#include "unit/rig/rig_reshard.h"

#define END_RANKS_MAX (RESHARD_RANKS_MAX * RESHARD_STAGES_MAX)
#define END_GROUPS    2
#define END_CALL_MS   20000u

struct end {
    struct engine engine; /* of rank 0 */
    uint32_t ranks;       /* over all stages */
    uint32_t ngroups;
    uint32_t page_tokens, align; /* align: L */
    struct world_end world[END_GROUPS];
    struct reshard_layout layout[END_GROUPS];
    struct tern *tern[END_RANKS_MAX];     /* owned; [0] is the engine's */
    struct tern_pool *map[END_RANKS_MAX]; /* their connections own them */
};

/* How the end is divided. A STATE has KV of eight heads beside it, as a pool needs some. */
struct end_shape {
    enum world_kind kind;
    uint32_t ranks, stages, order, units; /* ranks: of a stage */
    uint32_t page_tokens, align;          /* align: L, the same at both ends */
    bool whole;
};

/* Returns false if such pages are impossible: their bytes are no multiple of 8, or the units do not
 * divide them. */
bool end_shape(struct end *e, const struct end_shape *shape);
/* Joins, opens the pool and maps it in all ranks. */
enum tern_err end_open(struct end *e, const char *socket, const char *name,
                       const struct tern_namespace *ns);
void end_close(struct end *e);

/* The pages of a session of `tokens` tokens; `salt` makes its bytes differ from the next
 * session's. */
struct end_pages {
    struct engine_session *s;
    uint32_t tokens;
    uint8_t salt;
};
void end_write(struct end *e, const struct end_pages *p);
uint64_t end_wrong(struct end *e, const struct end_pages *p); /* bytes */
enum tern_err end_publish(struct end *e);                     /* the next step, in all ranks */

#endif
