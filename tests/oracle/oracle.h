/* The invariants of a core between two steps. The rig of the unit tests checks them after every
 * event, and so do the simulator and the fuzzers. The oracle reads only the arena, and trusts no
 * value that it can count itself. */
#ifndef ORACLE_ORACLE_H
#define ORACLE_ORACLE_H

#include "core/core.h"

/* Fails if the arena contradicts itself. */
void oracle_audit(const struct core *core);
/* Fails unless both ends of a copy job under way are unchanged: no page of either is used for
 * anything else (T16). */
void oracle_audit_copy(const struct core *core, const struct page_at *from,
                       const struct page_at *to, uint32_t n);
/* Returns whether the session, or its ticket, owns this page of that generation. `id`: a session's,
 * as the core reported it. */
bool oracle_session_owns(const struct core *core, struct session_id id, uint32_t group,
                         struct page_ref ref);

/* Calls the hook, which does not return; without a hook it prints to standard error, and aborts. */
_Noreturn void oracle_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
extern void (*oracle_fail_hook)(const char *text);

#endif
