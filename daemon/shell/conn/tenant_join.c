/* See conn.h. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/err.h"
#include "shell/daemon.h"
#include "shell/log/log.h"

/* The tenant's records of that shared table. */
static uint32_t used(const struct daemon *d, uint32_t tenant, const char *table)
{
    struct share_view v;
    uint32_t i = 0;

    while (core_share_view(d->core, (struct share_of){i, tenant}, &v) && strcmp(v.setting, table))
        i++;
    return v.used;
}

/* Lists the tenants in the slots of the reserve, and the engines, sessions and pools of each. */
static const char *all_taken(const struct daemon *d, char text[TENANT_WHY_BYTES])
{
    const struct config *c = d->config;
    uint32_t first = c->ntenants - c->reserve_tenants;
    size_t n = (size_t)snprintf(text, TENANT_WHY_BYTES,
                                "reserve.tenants is %u and used up: raise it, or remove one of "
                                "these tenants, which use it:",
                                c->reserve_tenants);

    for (uint32_t i = first; i < c->ntenants && n < TENANT_WHY_BYTES; i++)
        n += (size_t)snprintf(text + n, TENANT_WHY_BYTES - n,
                              "%s %s %u engines, %u sessions, %u pools", i > first ? ";" : "",
                              config_tenant_free(c, i) ? "(another of this reload)"
                                                       : c->tenants[i].name,
                              used(d, i, "engines"), used(d, i, "sessions"), used(d, i, "pools"));
    return text;
}

const char *tenant_needs_restart(const struct daemon *d, const struct config_change *change,
                                 char text[TENANT_WHY_BYTES])
{
    if (change->slot == NONE && d->config->reserve_tenants > 0)
        return all_taken(d, text);
    return change->why;
}

/* Files in the folder would conflict with new ones, and were not counted at start. */
static bool has_folder(const struct config *config, const char *name)
{
    char path[sizeof config->spill_dir + CONFIG_NAME_BYTES];
    struct stat st;

    snprintf(path, sizeof path, "%s/%s", config->spill_dir, name);
    return config->spill_dir[0] && lstat(path, &st) == 0;
}

enum tern_err tenant_may_join(const struct daemon *d, const struct config_tenant *tenant,
                              char why[TENANT_WHY_BYTES])
{
    if (has_folder(d->config, tenant->name))
        return fail_with(why, TENANT_WHY_BYTES, TERN_CONFLICT,
                         "spill.dir has a folder %s of an earlier tenant: restart to use it again, "
                         "or remove it and reload",
                         tenant->name);
    return listen_unix_may(tenant->socket, why, TENANT_WHY_BYTES);
}

enum tern_err tenant_join(struct daemon *d, uint32_t slot, const struct config_tenant *tenant,
                          char why[TENANT_WHY_BYTES])
{
    struct config_tenant *is = &d->config->tenants[slot];

    TRY(tenant_may_join(d, tenant, why));
    TRY(conns_join(d, slot, tenant, why, TENANT_WHY_BYTES));
    memcpy(is->name, tenant->name, sizeof is->name);
    memcpy(is->socket, tenant->socket, sizeof is->socket);
    is->mode = tenant->mode;
    is->events_tokens = tenant->events_tokens;
    if (d->disk)
        disk_name_tenant(d->disk, slot, is->name);
    log_event(LEVEL_INFO, "tenant_joined",
              "tenant=%s socket=%s memory_bytes=%" PRIu64 " regions=%u reserve_left=%u", is->name,
              is->socket, is->memory_bytes, is->regions,
              d->config->ntenants - config_tenants(d->config));
    return TERN_OK;
}
