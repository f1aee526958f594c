/* Steps on their way into the control page: see steps.c. pool.c and tern.c use it. */
#ifndef CLIENT_STEPS_H
#define CLIENT_STEPS_H

#include "internal.h"
#include "kernels/driver.h"

struct stream_page; /* the control page of one mapping, as the device has it */

uint64_t control_load(const uint8_t *control, uint32_t at);
/* Stores the rank's step, and wakes the daemon if somebody waits for it. Any thread; it asks the
 * driver for nothing. */
void control_publish(uint8_t *control, uint32_t rank, uint64_t step, int bell);

/* A step of this rank is in a stream, and not done. */
bool steps_in_stream(const struct tern *t, const uint8_t *control);
/* Puts the step behind all that is in the stream. */
enum tern_err steps_put(struct tern_pool *p, uint64_t step, CUstream stream,
                        enum tern_step_by *ret_by);
/* Before the mapping ends: waits for what is in a stream, for STEPS_WAIT_MS at most. False: a
 * device may still be at the mapping, which stays as it is. */
bool steps_page_end(struct tern_pool *p);
/* Whether that was so for a mapping of this connection: then this process never says that it has
 * left. */
bool steps_left_behind(const struct tern *t);
void steps_finish(struct tern *t); /* all mappings have ended */

#endif
