/* Prints a configuration as a YAML file, and finds tenants and peers by name. See config.h. */
#include <string.h>

#include "shell/config/config_table.h"

static void print_entry(const struct setting *fields, size_t n, const void *base, FILE *out)
{
    char text[VALUE_TEXT_BYTES];

    for (size_t i = 0; i < n; i++) {
        value_text(&fields[i], base, text, sizeof text);
        fprintf(out, "%s%s: %s\n", i == 0 ? "  - " : "    ", fields[i].key, text);
    }
}

void config_print(const struct config *config, FILE *out)
{
    const char *section = "";
    char text[VALUE_TEXT_BYTES];

    for (size_t i = 0; i < config_settings_n; i++) {
        const struct setting *s = &config_settings[i];

        value_text(s, config, text, sizeof text);
        if (text[0] == '\0')
            continue;
        if (strcmp(section, s->section) != 0)
            fprintf(out, "%s:\n", s->section);
        section = s->section;
        fprintf(out, "%s%s: %s\n", *section == '\0' ? "" : "  ", s->key, text);
    }
    if (config_tenants(config) > 0)
        fputs("tenants:\n", out);
    for (uint32_t i = 0; i < config->ntenants; i++)
        if (!config_tenant_free(config, i))
            print_entry(config_tenant_fields, TENANT_FIELDS, &config->tenants[i], out);
    if (config->npeers > 0)
        fputs("peers:\n", out);
    for (uint32_t i = 0; i < config->npeers; i++) {
        const char *comma = "";

        print_entry(config_peer_fields, PEER_FIELDS, &config->peers[i], out);
        fputs("    tenants: [", out);
        for (uint32_t t = 0; t < config->ntenants; t++)
            if (config->peers[i].tenants >> t & 1) {
                fprintf(out, "%s\"%s\"", comma, config->tenants[t].name);
                comma = ", ";
            }
        fputs("]\n", out);
    }
}

enum tern_err config_tenant_slot(const struct config *config, const char *name, uint32_t *ret)
{
    for (uint32_t i = 0; i < config->ntenants && name[0] != '\0'; i++)
        if (strcmp(config->tenants[i].name, name) == 0) {
            *ret = i;
            return TERN_OK;
        }
    return TERN_INVALID;
}

void config_region_name(const struct config *config, uint32_t tenant, uint32_t region,
                        char ret[CONFIG_NAME_BYTES])
{
    const struct config_names *devices = &config->tenants[tenant].devices;

    if (devices->n > 0)
        snprintf(ret, CONFIG_NAME_BYTES, "%s", devices->name[region]);
    else
        snprintf(ret, CONFIG_NAME_BYTES, "%" PRIu32, region);
}

enum tern_err config_region_slot(const struct config *config, uint32_t tenant, const char *name,
                                 uint32_t *ret)
{
    char device[CONFIG_NAME_BYTES];

    for (uint32_t i = 0; i < config->tenants[tenant].regions; i++) {
        config_region_name(config, tenant, i, device);
        if (strcmp(device, name) == 0) {
            *ret = i;
            return TERN_OK;
        }
    }
    return TERN_INVALID;
}

uint32_t config_tenants(const struct config *config)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < config->ntenants; i++)
        n += !config_tenant_free(config, i);
    return n;
}

uint32_t config_peers(const struct config *config)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < config->npeers; i++)
        n += config->peers[i].name[0] != '\0';
    return n;
}

enum tern_err config_peer_slot(const struct config *config, const char *name, uint32_t *ret)
{
    for (uint32_t i = 0; i < config->npeers && name[0] != '\0'; i++)
        if (!config->peers[i].leaving && strcmp(config->peers[i].name, name) == 0) {
            *ret = i;
            return TERN_OK;
        }
    return TERN_INVALID;
}
