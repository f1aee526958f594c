/* Counts the basic blocks that the core has executed, where the build instruments the core
 * (tern-sim-bugs), independently of the core's own counts. */
#ifndef SIM_WORK_H
#define SIM_WORK_H

#include <stdbool.h>
#include <stdint.h>

extern const bool work_counted;
extern uint64_t work_done;
/* Beyond work_most the hook is called, in the middle of the running code; it does not return. */
extern uint64_t work_most;
extern void (*work_hook)(void);

/* Sends SIGPROF after so much processor time; 0: stops that. Other load on the machine does not
 * count as a hang. */
void history_watch(uint32_t seconds);

#endif
