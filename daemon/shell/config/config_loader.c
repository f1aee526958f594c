/* Values enter the configuration here, from the file and from flags. A refusal says where the value
 * came from: a line of the file or a flag. See config_table.h. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "shell/config/config_table.h"

#define PEER_TENANTS_BYTES (CONFIG_TENANTS_MAX * CONFIG_NAME_BYTES + 1)

static const char *entry_name(const struct loader *l, const char *section, int index)
{
    if (index < 0)
        return "";
    if (strcmp(section, "tenants") == 0)
        return (uint32_t)index < l->config->ntenants ? l->config->tenants[index].name : "";
    return (uint32_t)index < l->config->npeers ? l->config->peers[index].name : "";
}

static const char *flag_of(const char *section, const char *key)
{
    if (key == NULL)
        return NULL;
    for (size_t i = 0; i < config_settings_n; i++)
        if (strcmp(config_settings[i].section, section) == 0 &&
            strcmp(config_settings[i].key, key) == 0)
            return config_settings[i].flag;
    return NULL;
}

static void place_in_file(const struct loader *l, const char *section, int index, const char *key,
                          char *out, size_t cap)
{
    size_t line = yaml_line(l, section, index, key);
    char number[32] = " ", entry[32] = "";

    if (line != 0)
        snprintf(number, sizeof number, "%zu: ", line);
    if (index >= 0)
        snprintf(entry, sizeof entry, "[%d]", index);
    snprintf(out, cap, "%s:%s%s%s%s%s%s", l->file_name, number, section, entry,
             *section != '\0' && key != NULL ? "." : "", key == NULL ? "" : key,
             *section != '\0' || key != NULL ? ": " : "");
}

static void place_in_flags(const struct loader *l, const char *section, int index, const char *key,
                           char *out, size_t cap)
{
    const char *flag = flag_of(section, key);
    bool list = strcmp(section, "tenants") == 0 || strcmp(section, "peers") == 0;

    if (list)
        snprintf(out, cap, "--%s %s: %s%s", *section == 't' ? "tenant" : "peer",
                 entry_name(l, section, index), key == NULL ? "" : key, key == NULL ? "" : ": ");
    else if (flag != NULL || key != NULL)
        snprintf(out, cap, "--%s: ", flag != NULL ? flag : key);
    else
        out[0] = '\0';
}

enum tern_err loader_fail(struct loader *l, enum origin origin, const char *section, int index,
                          const char *key, const char *format, ...)
{
    char place[4096 + 256] = "", text[1024];
    va_list args;

    if (l->reserved > 0 && strcmp(section, "tenants") == 0 && index >= 0 &&
        (uint32_t)index >= l->config->ntenants - l->reserved) {
        section = "reserve";
        key = "tenants"; /* sizes that one tenant may have, and not as many */
        index = -1;
    }
    if (origin == ORIGIN_FILE)
        place_in_file(l, section, index, key, place, sizeof place);
    else if (origin == ORIGIN_FLAG)
        place_in_flags(l, section, index, key, place, sizeof place);
    else if (key != NULL)
        snprintf(place, sizeof place,
                 "%s: ", flag_of(section, key) != NULL ? flag_of(section, key) : key);
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    snprintf(l->why, l->why_cap, "%s%s", place, text);
    return TERN_INVALID;
}

enum origin loader_origin(const struct loader *l, const char *section, const char *key)
{
    for (size_t i = 0; i < config_settings_n; i++)
        if (strcmp(config_settings[i].section, section) == 0 &&
            strcmp(config_settings[i].key, key) == 0)
            return l->origin[i];
    return ORIGIN_DEFAULT;
}

enum tern_err loader_set(struct loader *l, size_t setting, const char *text, enum origin origin)
{
    const struct setting *s = &config_settings[setting];
    char reason[REASON_BYTES];

    if (value_parse(s, text, l->config, reason) != TERN_OK)
        return loader_fail(l, origin, s->section, -1, s->key, "%s, not \"%.80s\"", reason, text);
    l->origin[setting] = origin;
    l->config->given[setting] = true;
    return TERN_OK;
}

static void entry_initials(const struct setting *fields, size_t n, void *base)
{
    char reason[REASON_BYTES];

    for (size_t i = 0; i < n; i++)
        if (fields[i].initial != NULL)
            check(value_parse(&fields[i], fields[i].initial, base, reason) == TERN_OK);
}

enum tern_err loader_tenant_add(struct loader *l, enum origin origin, uint32_t *ret_slot)
{
    struct config *c = l->config;

    if (c->ntenants == CONFIG_TENANTS_MAX)
        return loader_fail(l, origin, "tenants", -1, NULL, "more than %u tenants",
                           CONFIG_TENANTS_MAX);
    *ret_slot = c->ntenants++;
    l->tenant_origin[*ret_slot] = origin;
    c->tenants[*ret_slot].spill_bytes = SPILL_PART;
    entry_initials(config_tenant_fields, TENANT_FIELDS, &c->tenants[*ret_slot]);
    return TERN_OK;
}

enum tern_err loader_tenant_set(struct loader *l, uint32_t slot, size_t field, const char *text)
{
    const struct setting *s = &config_tenant_fields[field];
    char reason[REASON_BYTES];

    if (value_parse(s, text, &l->config->tenants[slot], reason) != TERN_OK)
        return tenant_fail(l, slot, s->key, "%s, not \"%.80s\"", reason, text);
    l->tenant_given[slot] |= 1u << field;
    return TERN_OK;
}

enum tern_err loader_peer_add(struct loader *l, enum origin origin, uint32_t *ret_slot)
{
    struct config *c = l->config;

    if (c->npeers == CONFIG_PEERS_MAX)
        return loader_fail(l, origin, "peers", -1, NULL, "more than %u peers", CONFIG_PEERS_MAX);
    *ret_slot = c->npeers++;
    l->peer_origin[*ret_slot] = origin;
    entry_initials(config_peer_fields, PEER_FIELDS, &c->peers[*ret_slot]);
    return TERN_OK;
}

enum tern_err loader_peer_set(struct loader *l, uint32_t slot, size_t field, const char *text)
{
    const struct setting *s = &config_peer_fields[field];
    char reason[REASON_BYTES];

    if (value_parse(s, text, &l->config->peers[slot], reason) != TERN_OK)
        return peer_fail(l, slot, s->key, "%s, not \"%.80s\"", reason, text);
    return TERN_OK;
}

/* The name is resolved once every tenant is known, because a file may name its peers first. */
enum tern_err loader_peer_tenant(struct loader *l, uint32_t slot, const char *name)
{
    char *names = l->peer_tenants[slot];
    size_t have = names == NULL ? 0 : strlen(names), n = strlen(name);

    if (n == 0 || strchr(name, '+') != NULL || have + n + 2 > PEER_TENANTS_BYTES)
        return peer_fail(l, slot, "tenants", "\"%.80s\" is no tenant", name);
    names = realloc(names, have + n + 2);
    if (names == NULL)
        return loader_fail(l, ORIGIN_DEFAULT, "", -1, NULL, "out of memory");
    l->peer_tenants[slot] = names;
    memcpy(names + have, name, n);
    memcpy(names + have + n, "+", 2);
    return TERN_OK;
}
