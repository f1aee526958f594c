/* Work that waits until every rank of an engine has passed a step. */
#ifndef CORE_RETIRES_H
#define CORE_RETIRES_H

#include "core/arena/arena.h"

/* Returns true if a release at `step` needs no record, or a record is free. */
bool retire_ready(const struct core *c, const struct engine *e, uint64_t step);
/* Releases pages and at most one DEVICE pin, with the STATE borrowed along its path, when every
 * rank has passed `step`; at once if they have. Requires retire_ready. Empties the list. pin.node
 * NONE: no pin. */
void retire_release(struct core *c, struct engine *e, uint64_t step, struct list *pages,
                    struct path pin);
/* The same for a session that becomes CLOSING and adds its pages one by one. Returns the record, or
 * NONE if all of them may be freed at once. */
uint32_t retire_open(struct core *c, struct engine *e, uint64_t step, uint32_t session);
void retire_add(struct core *c, struct retire *r, uint32_t page);
/* Ends the record; only the pin is left to add. */
void retire_close(struct core *c, uint32_t record, struct path pin);
/* Makes the nodes chained by work.publish_next visible when `step` has passed. */
void retire_publish(struct core *c, struct engine *e, uint64_t step, uint32_t nodes);
/* Applies passed steps, up to `end` visits. Returns false if more is left to do. */
bool retire_advance(struct core *c, struct engine *e, uint32_t end);
/* The same for all engines. */
bool retires_flush(struct core *c);
/* The engine and its sessions are gone: removes pending nodes, frees the rest, up to `end` visits.
 * Returns false if more is left to do. */
bool retire_drop_all(struct core *c, struct engine *e, uint32_t end);
uint64_t retire_until(const struct core *c, const struct engine *e, const struct pool *pool,
                      const struct shortage *s);

#endif
