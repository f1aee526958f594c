/* Values from the file and from flags enter the configuration here. A refusal names the origin of
 * the value: a line of the file or a flag. See config_table.h. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "shell/config/config_table.h"

#define PEER_TENANTS_BYTES (CONFIG_TENANTS_MAX * CONFIG_NAME_BYTES + 1)

size_t loader_row(const char *section, const char *key)
{
    size_t i = 0;

    while (i < config_settings_n && (strcmp(config_settings[i].section, section) != 0 ||
                                     strcmp(config_settings[i].key, key) != 0))
        i++;
    return i;
}

const char *loader_retired(const char *section, const char *key)
{
    size_t n = strlen(key);

    for (size_t i = 0; i < RETIRED_SETTINGS; i++)
        for (const char *at = config_retired[i].keys;
             strcmp(config_retired[i].section, section) == 0 && *at != '\0';
             at += strcspn(at, " "), at += strspn(at, " "))
            if (strcspn(at, " ") == n && memcmp(at, key, n) == 0)
                return config_retired[i].instead;
    return NULL;
}

bool loader_is_list(const char *section)
{
    return strcmp(section, "tenants") == 0 || strcmp(section, "peers") == 0;
}

/* A list of the file and its fields; the first field is the entry's name. */
struct entries {
    const struct setting *field;
    size_t fields, bytes; /* bytes: size of an entry */
    void *first;
    uint32_t *n, max;
    enum origin *origin;
    uint32_t (*line)[ENTRY_ITSELF + 1];
};

static struct entries entries_of(struct loader *l, const char *list)
{
    struct config *c = l->config;

    if (strcmp(list, "peers") == 0)
        return (struct entries){config_peer_fields, PEER_FIELDS, sizeof *c->peers,
                                c->peers,           &c->npeers,  CONFIG_PEERS_MAX,
                                l->peer_origin,     l->peer_line};
    return (struct entries){config_tenant_fields, TENANT_FIELDS, sizeof *c->tenants,
                            c->tenants,           &c->ntenants,  CONFIG_TENANTS_MAX,
                            l->tenant_origin,     l->tenant_line};
}

static void *entry_at(const struct entries *e, uint32_t slot)
{
    return (char *)e->first + slot * e->bytes;
}

size_t loader_field(struct loader *l, const char *list, const char *key)
{
    const struct entries e = entries_of(l, list);

    for (size_t f = 0; f < e.fields; f++)
        if (strcmp(e.field[f].key, key) == 0)
            return f;
    return e.first == l->config->peers && strcmp(key, "tenants") == 0 ? PEER_NAMES : ENTRY_ITSELF;
}

uint32_t *loader_lines(struct loader *l, const char *list, uint32_t slot)
{
    return entries_of(l, list).line[slot];
}

/* The line being read, else the key's line, else its entry's; 0: none. */
static uint32_t line_of(struct loader *l, const char *section, int index, const char *key)
{
    size_t at = key == NULL ? config_settings_n : loader_row(section, key);
    const uint32_t *lines;

    if (l->line != 0)
        return l->line;
    if (index < 0)
        return at < config_settings_n ? l->row_line[at] : 0;
    lines = loader_lines(l, section, (uint32_t)index);
    at = key == NULL ? ENTRY_ITSELF : loader_field(l, section, key);
    return lines[at] != 0 ? lines[at] : lines[ENTRY_ITSELF];
}

static void place_in_file(struct loader *l, const char *section, int index, const char *key,
                          char *out, size_t cap)
{
    uint32_t line = line_of(l, section, index, key);
    char number[32] = " ", entry[32] = "";

    if (line != 0)
        snprintf(number, sizeof number, "%u: ", line);
    if (index >= 0)
        snprintf(entry, sizeof entry, "[%d]", index);
    snprintf(out, cap, "%s:%s%s%s%s%s%s", l->file_name, number, section, entry,
             *section != '\0' && key != NULL ? "." : "", key == NULL ? "" : key,
             *section != '\0' || key != NULL ? ": " : "");
}

static void place_in_flags(struct loader *l, const char *section, int index, const char *key,
                           char *out, size_t cap)
{
    const struct entries e = entries_of(l, section);

    if (loader_is_list(section))
        snprintf(out, cap, "--%s %s: %s%s", *section == 't' ? "tenant" : "peer",
                 index < 0 ? "" : (char *)entry_at(&e, (uint32_t)index) + e.field->offset,
                 key == NULL ? "" : key, key == NULL ? "" : ": ");
    else if (key != NULL)
        snprintf(out, cap, "--%s%s%s: ", section, *section != '\0' ? "." : "", key);
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
        key = "tenants"; /* these sizes may fit one tenant, but not that many tenants */
        index = -1;
    }
    if (origin == ORIGIN_FILE)
        place_in_file(l, section, index, key, place, sizeof place);
    else if (origin == ORIGIN_FLAG)
        place_in_flags(l, section, index, key, place, sizeof place);
    else if (key != NULL)
        snprintf(place, sizeof place, "%s%s%s: ", section, *section != '\0' ? "." : "", key);
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    snprintf(l->why, l->why_cap, "%s%s", place, text);
    return TERN_INVALID;
}

enum origin loader_origin(const struct loader *l, const char *section, const char *key)
{
    size_t row = loader_row(section, key);

    return row < config_settings_n ? l->origin[row] : ORIGIN_DEFAULT;
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

enum tern_err loader_entry_add(struct loader *l, const char *list, enum origin origin,
                               uint32_t *ret_slot)
{
    const struct entries e = entries_of(l, list);
    char reason[REASON_BYTES];

    if (*e.n == e.max)
        return loader_fail(l, origin, list, -1, NULL, "more than %u %s", e.max, list);
    *ret_slot = (*e.n)++;
    e.origin[*ret_slot] = origin;
    if (e.first == l->config->tenants)
        l->config->tenants[*ret_slot].spill_bytes = SPILL_PART;
    for (size_t f = 0; f < e.fields; f++)
        if (e.field[f].initial != NULL)
            check(value_parse(&e.field[f], e.field[f].initial, entry_at(&e, *ret_slot), reason) ==
                  TERN_OK);
    return TERN_OK;
}

enum tern_err loader_entry_set(struct loader *l, const char *list, uint32_t slot, size_t field,
                               const char *text)
{
    const struct entries e = entries_of(l, list);
    const struct setting *s = &e.field[field];
    char reason[REASON_BYTES];

    if (value_parse(s, text, entry_at(&e, slot), reason) != TERN_OK)
        return loader_fail(l, e.origin[slot], list, (int)slot, s->key, "%s, not \"%.80s\"", reason,
                           text);
    if (e.first == l->config->tenants)
        l->tenant_given[slot] |= 1u << field;
    return TERN_OK;
}

/* The name is resolved when all tenants are known, because a file may list its peers first. */
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
