/* Retire records: releases and publications that wait until every rank of an engine has passed a
 * step. `end` is a value of c->visits (arena.h) at which a function stops and leaves the rest. */
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
/* Opens a record for a session, CLOSING or releasing, that adds its pages one by one by retire_add.
 * Returns the record, or NONE if every rank has passed `step`: the pages may be freed at once. */
uint32_t retire_open(struct core *c, struct engine *e, uint64_t step, uint32_t session);
void retire_add(struct core *c, struct retire *r, uint32_t page);
/* Adds the pin, the last part of the record: from now on the record waits for its step alone. */
void retire_close(struct core *c, uint32_t record, struct path pin);
/* Makes the nodes chained by work.publish_next visible when `step` has passed. */
void retire_publish(struct core *c, struct engine *e, uint64_t step, uint32_t nodes);
/* Applies the records of passed steps. Returns false if more is left to do. */
bool retire_advance(struct core *c, struct engine *e, uint32_t end);
/* The same for all engines. */
bool retires_flush(struct core *c);
/* The engine and its sessions are gone: removes pending nodes and frees the rest. Returns false if
 * more is left to do. */
bool retire_drop_all(struct core *c, struct engine *e, uint32_t end);
/* E4: the step that frees the missing pages, or the last step examined; 0: none frees more. */
uint64_t retire_until(const struct core *c, const struct engine *e, const struct pool *pool,
                      const struct shortage *s);

#endif
