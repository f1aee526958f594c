/* What waits until every rank of an engine has passed a step. */
#ifndef CORE_RETIRES_H
#define CORE_RETIRES_H

#include "core/arena/arena.h"

/* True if a release at `step` needs no record or there is one. */
bool retire_ready(const struct core *c, const struct engine *e, uint64_t step);
/* Gives back pages and at most one DEVICE pin, with the STATE that was borrowed along its path,
 * when every rank has passed `step`; at once if they have. retire_ready must hold. The list is
 * emptied. pin.node NONE: no pin. */
void retire_release(struct core *c, struct engine *e, uint64_t step, struct list *pages,
                    struct path pin);
/* Nodes that are chained by work.publish_next become visible when `step` has passed. */
void retire_publish(struct core *c, struct engine *e, uint64_t step, uint32_t nodes);
void retire_advance(struct core *c, struct engine *e); /* applies what has passed */
void retire_drop_all(struct core *c,
                     struct engine *e); /* the engine is gone: pending nodes go, the rest is free */
uint64_t retire_until(const struct core *c, const struct engine *e, const struct pool *pool,
                      const struct shortage *s);

#endif
