/* The second half of loading: names become slots, what was left open follows from the rest, and the
 * whole is checked. Called by config.c in this order. Internal to config*.c. */
#ifndef SHELL_CONFIG_DERIVE_H
#define SHELL_CONFIG_DERIVE_H

#include "shell/config/config_table.h"

/* Resolves the tenants of peers; refuses entries that lack a name, a socket or memory, and whatever
 * is there twice. */
enum tern_err config_resolve(struct loader *l);

/* Fills the settings that nobody set and that have no fixed default. */
void config_derive(struct loader *l);

/* Memory within the machine, limits that the core accepts, peers only where talking in the clear is
 * allowed. */
enum tern_err config_check(struct loader *l);

#endif
