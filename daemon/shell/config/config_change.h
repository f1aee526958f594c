/* What differs between the configuration in force and one that was loaded anew, row by row of the
 * same tables that load both. shell/admin/reload.c tells it and does what can be done. */
#ifndef SHELL_CONFIG_CHANGE_H
#define SHELL_CONFIG_CHANGE_H

#include "shell/config/config.h"

#define CONFIG_CHANGE_NAME  192 /* "tenants[NAME].KEY" */
#define CONFIG_CHANGE_VALUE 256 /* of a value in an answer; a longer one ends in "..." */

enum config_change_of {
    CHANGE_OF_SETTING, /* row of config_settings */
    CHANGE_OF_TENANT,
    CHANGE_OF_TENANT_ADDED, /* tenants[from] of the new one; it takes `slot`, NONE: none is free */
    CHANGE_OF_PEER_ADDED,   /* peers[slot] of the new configuration */
    CHANGE_OF_PEER_REMOVED, /* peers[slot] of the one in force */
    CHANGE_OF_PEER,         /* a field of peers[slot], which is peers[from] of the new one */
};

struct config_change {
    enum config_change_of of;
    size_t row;
    uint32_t slot, from;
    uint64_t tenants; /* of a peer, by their slots in the configuration in force */
    char setting[CONFIG_CHANGE_NAME];
    char was[CONFIG_CHANGE_VALUE], is[CONFIG_CHANGE_VALUE]; /* as in the file; "": there is none */
    const char *why; /* borrowed for the call: why it needs a restart; NULL: it needs none */
};

/* False: it was not taken over, nor would be. Of a tenant that is added peers get nothing then. */
typedef bool config_change_fn(void *ctx, const struct config_change *change);

/* Calls `found` for each difference. A setting that neither file nor flags give in either of the
 * two follows from others and is none. Neither configuration is changed, but `found` may take over
 * what it was called for. */
void config_compare(const struct config *was, const struct config *is, config_change_fn *found,
                    void *ctx);
/* Gives the setting of that change its new value. */
void config_take(struct config *config, const struct config *from,
                 const struct config_change *change);

#endif
