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
/* The same for a session that is about to be CLOSING, which gives it its pages one by one: the
 * release, or NONE where all of that may be free at once. */
uint32_t retire_open(struct core *c, struct engine *e, uint64_t step, uint32_t session);
void retire_add(struct core *c, struct retire *r, uint32_t page);
/* That was all, but for the pin. */
void retire_close(struct core *c, uint32_t record, struct path pin);
/* Nodes that are chained by work.publish_next become visible when `step` has passed. */
void retire_publish(struct core *c, struct engine *e, uint64_t step, uint32_t nodes);
/* Applies what has passed, up to `end` visits. False: there is more to do. */
bool retire_advance(struct core *c, struct engine *e, uint32_t end);
/* The same for all engines. */
bool retires_flush(struct core *c);
/* The engine is gone, and so are its sessions: pending nodes go, the rest is free, up to `end`
 * visits. False: there is more to do. */
bool retire_drop_all(struct core *c, struct engine *e, uint32_t end);
uint64_t retire_until(const struct core *c, const struct engine *e, const struct pool *pool,
                      const struct shortage *s);

#endif
