/* What the core has done, in basic blocks: counted where the build instruments the core
 * (tern-sim-bugs), and apart from what the core counts itself. */
#ifndef SIM_WORK_H
#define SIM_WORK_H

#include <stdbool.h>
#include <stdint.h>

extern const bool work_counted;
extern uint64_t work_done;
/* Beyond work_most the hook is called, in the middle of whatever runs; it does not return. */
extern uint64_t work_most;
extern void (*work_hook)(void);

/* Sends SIGPROF after so much processor time; 0: no more. A machine that does other things is no
 * hang. */
void history_watch(uint32_t seconds);

#endif
