/* A tenant that joins while the daemon runs: it takes a free slot of the reserve
 * (shell/config/config_derive.c), whose memory, shares and tables are there from the start, so
 * that a name and a socket are all it needs. Owner thread. */
#ifndef SHELL_TENANT_JOIN_H
#define SHELL_TENANT_JOIN_H

#include "shell/config/config_change.h"
#include "shell/daemon.h"

#define TENANT_WHY_BYTES 1024

/* Why a tenant of a new configuration needs a restart; NULL: it does not. `text` may hold that. */
const char *tenant_needs_restart(const struct daemon *d, const struct config_change *change,
                                 char text[TENANT_WHY_BYTES]);
/* Whether it could join, as far as that shows without doing it; or does it. On failure its slot
 * stays free, and `why` says what to do before it is tried again. */
enum tern_err tenant_may_join(const struct daemon *d, const struct config_tenant *tenant,
                              char why[TENANT_WHY_BYTES]);
enum tern_err tenant_join(struct daemon *d, uint32_t slot, const struct config_tenant *tenant,
                          char why[TENANT_WHY_BYTES]);

#endif
