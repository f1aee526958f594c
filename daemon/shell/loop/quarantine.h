/* Warns of pages that wait too long for the proof that nothing can write them: one warning for each
 * transfer, when its wait passes the limit. It changes nothing in the core. Owner thread. */
#ifndef SHELL_QUARANTINE_H
#define SHELL_QUARANTINE_H

#include "core/query.h"
#include "shell/config/config.h"

/* The limit is above the time that a data path needs to end by itself: a connection that makes no
 * progress is closed after deadlines.data_idle_ms. */
#define QUARANTINE_WARN_NS 10000000000u

/* Warns of each transfer whose wait has passed the limit since `seen_ns`, the time of the call
 * before (0: there was none). Returns now_ns, which is the next call's `seen_ns`. CLOCK_MONOTONIC.
 */
uint64_t quarantine_warn(const struct core *core, const struct config *config, uint64_t seen_ns,
                         uint64_t now_ns);

#endif
