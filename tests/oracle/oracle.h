/* What must be true of a core between two of its steps, whoever drives it: shared by the rig of the
 * unit tests, which asks after every event, by the simulator and by the fuzzers. It reads the arena
 * and nothing else, and takes nothing on trust that it can count itself. */
#ifndef ORACLE_ORACLE_H
#define ORACLE_ORACLE_H

#include "core/core.h"

/* Fails if the arena contradicts itself. */
void oracle_audit(const struct core *core);
/* Fails unless both ends of a copy job that is under way keep still: no page of either is used for
 * anything else (T16). */
void oracle_audit_copy(const struct core *core, const struct page_at *from,
                       const struct page_at *to, uint32_t n);
/* Is this very page, of that generation, one of those that the session, or its ticket, owns? `id`
 * is a session's that the core has told of. */
bool oracle_session_owns(const struct core *core, struct session_id id, uint32_t group,
                         struct page_ref ref);

/* Says it to the hook, which does not return; without one it goes to standard error, and aborts. */
_Noreturn void oracle_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
extern void (*oracle_fail_hook)(const char *text);

#endif
