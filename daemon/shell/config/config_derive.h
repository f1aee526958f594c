/* The second half of loading: names become slots, open settings are derived from the others, and
 * the whole is checked. config.c calls these in this order. Internal to config*.c. */
#ifndef SHELL_CONFIG_DERIVE_H
#define SHELL_CONFIG_DERIVE_H

#include "shell/config/config_table.h"

/* Resolves the tenants of peers, and adds those of the reserve; refuses entries that lack a name, a
 * socket or memory, and duplicates. */
enum tern_err config_resolve(struct loader *l);

/* config_peer.c: what is wrong with a peer that has a name. NULL: nothing is. */
const char *config_peer_wrong(const struct config_peer *peer);

/* Fills the settings that nobody set and that have no fixed default. */
void config_derive(struct loader *l);

/* Refuses more memory than the machine has, limits that the core does not accept, and peers in the
 * clear where that is not allowed. */
enum tern_err config_check(struct loader *l);

/* config_spill.c: the same for the disk tier. */
void config_derive_spill(struct config *c);
enum tern_err config_check_spill(struct loader *l);

#endif
