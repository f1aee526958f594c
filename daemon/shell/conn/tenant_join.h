/* A tenant that joins while the daemon runs takes a free slot of the reserve
 * (shell/config/config_derive.c). The slot's memory, shares and tables exist from the start, so the
 * tenant needs only a name and a socket. Owner thread. */
#ifndef SHELL_TENANT_JOIN_H
#define SHELL_TENANT_JOIN_H

#include "shell/config/config_change.h"
#include "shell/daemon.h"

#define TENANT_WHY_BYTES 1024

/* Returns why a new configuration's tenant needs a restart, maybe in `text`; NULL: it does not. */
const char *tenant_needs_restart(const struct daemon *d, const struct config_change *change,
                                 char text[TENANT_WHY_BYTES]);
/* tenant_may_join checks, without changes, whether the tenant could join; tenant_join adds it. On
 * failure its slot stays free, and `why` receives what to do before the next attempt. */
enum tern_err tenant_may_join(const struct daemon *d, const struct config_tenant *tenant,
                              char why[TENANT_WHY_BYTES]);
enum tern_err tenant_join(struct daemon *d, uint32_t slot, const struct config_tenant *tenant,
                          char why[TENANT_WHY_BYTES]);

#endif
