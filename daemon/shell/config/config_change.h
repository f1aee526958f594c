/* Compares the configuration in force with a new one, row by row of the tables that load both.
 * shell/admin/reload.c reports the differences and applies those that need no restart. */
#ifndef SHELL_CONFIG_CHANGE_H
#define SHELL_CONFIG_CHANGE_H

#include "shell/config/config.h"

#define CONFIG_CHANGE_NAME  192 /* "tenants[NAME].KEY" */
#define CONFIG_CHANGE_VALUE 256 /* size of a value in an answer; a longer value ends in "..." */

enum config_change_of {
    CHANGE_OF_SETTING, /* a row of config_settings */
    CHANGE_OF_TENANT,
    CHANGE_OF_TENANT_ADDED, /* tenants[from] of the new one takes `slot`; NONE: none free */
    CHANGE_OF_PEER_ADDED,   /* peers[slot] of the new configuration */
    CHANGE_OF_PEER_REMOVED, /* peers[slot] of the configuration in force */
    CHANGE_OF_PEER, /* a field of peers[slot], which is peers[from] in the new configuration */
};

struct config_change {
    enum config_change_of of;
    size_t row;
    uint32_t slot, from;
    uint64_t tenants; /* a peer's tenants, by slots of the configuration in force */
    char setting[CONFIG_CHANGE_NAME];
    char was[CONFIG_CHANGE_VALUE], is[CONFIG_CHANGE_VALUE]; /* as in the file; "": none */
    const char *why; /* why the change needs a restart, borrowed for the call; NULL: no restart */
};

/* Returns false if the change is not applied: peers then get no access to an added tenant. */
typedef bool config_change_fn(void *ctx, const struct config_change *change);

/* Calls `found` for each difference. Skips derived settings, set by neither file nor flags in
 * either configuration. Changes neither configuration; `found` may apply its change. */
void config_compare(const struct config *was, const struct config *is, config_change_fn *found,
                    void *ctx);
/* Sets the setting of that change to its new value. */
void config_take(struct config *config, const struct config *from,
                 const struct config_change *change);

#endif
