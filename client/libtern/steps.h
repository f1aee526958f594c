/* Publishing of steps in the control page. pool.c and tern.c call it. See steps.c. */
#ifndef CLIENT_STEPS_H
#define CLIENT_STEPS_H

#include "internal.h"
#include "kernels/driver.h"

struct stream_page; /* the control page of one mapping, as registered for the device */

uint64_t control_load(const uint8_t *control, uint32_t at);
/* Stores the rank's step, and wakes the daemon if a process waits for it. Any thread may call it;
 * it makes no call of the driver. */
void control_publish(uint8_t *control, uint32_t rank, uint64_t step, int bell);

/* Returns true if a step of this rank is in a stream and not done. */
bool steps_in_stream(const struct tern *t, const uint8_t *control);
/* Queues the step behind all work in the stream. */
enum tern_err steps_put(struct tern_pool *p, uint64_t step, CUstream stream,
                        enum tern_step_by *ret_by);
/* Call it before the mapping ends: waits for work in streams, at most STEPS_WAIT_MS. Returns false
 * if a device may still use the mapping, which is then kept. */
bool steps_page_end(struct tern_pool *p);
/* Returns true if a mapping of this connection was kept for that reason: then this process never
 * reports that it has left. */
bool steps_left_behind(const struct tern *t);
void steps_finish(struct tern *t); /* all mappings have ended */

#endif
