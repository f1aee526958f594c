/* Units that a step writes, ahead of their commit (Y4): what an engine says of its session's pages
 * waits here until the step has passed and a follower was told (serve_early.h). It is a hint that
 * only a follower reads, and what that gets counts by the checksums of the commit alone. */
#ifndef CORE_AHEAD_H
#define CORE_AHEAD_H

#include "core/arena/arena.h"

/* STEP_WRITTEN. */
enum tern_err ahead_written(struct core *c, struct engine *e, struct session *s,
                            const struct step_op *op, struct op_result *ret);
/* What was said is put together as far as that step has passed. */
void ahead_join(struct session *s, uint64_t done);
/* The session gives up what is behind that length: what was said reaches up to there. */
void ahead_cut(struct session *s, uint32_t length);

#endif
