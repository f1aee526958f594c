/* How a configuration comes to be: values enter one by one through loader_*, whoever read them, are
 * completed with what follows from them, checked against each other, and handed out whole or not at
 * all. Every refusal says where the value came from: a line of the file or a flag. */
#include "shell/config/config.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/err.h"
#include "shell/config/config_derive.h"
#include "shell/config/config_table.h"

/* ---- messages ---- */

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

/* ---- values ---- */

enum tern_err loader_set(struct loader *l, size_t setting, const char *text, enum origin origin)
{
    const struct setting *s = &config_settings[setting];
    char reason[REASON_BYTES];

    if (value_parse(s, text, l->config, reason) != TERN_OK)
        return loader_fail(l, origin, s->section, -1, s->key, "%s, not \"%.80s\"", reason, text);
    l->origin[setting] = origin;
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
    entry_initials(config_tenant_fields, TENANT_FIELDS, &c->tenants[*ret_slot]);
    return TERN_OK;
}

enum tern_err loader_tenant_set(struct loader *l, uint32_t slot, size_t field, const char *text)
{
    const struct setting *s = &config_tenant_fields[field];
    char reason[REASON_BYTES];

    if (value_parse(s, text, &l->config->tenants[slot], reason) != TERN_OK)
        return loader_fail(l, l->tenant_origin[slot], "tenants", (int)slot, s->key,
                           "%s, not \"%.80s\"", reason, text);
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
        return loader_fail(l, l->peer_origin[slot], "peers", (int)slot, s->key, "%s, not \"%.80s\"",
                           reason, text);
    return TERN_OK;
}

/* The name is resolved once every tenant is known: a file may name its peers first. */
enum tern_err loader_peer_tenant(struct loader *l, uint32_t slot, const char *name)
{
    char *names = l->peer_tenants[slot];
    size_t have = strlen(names), n = strlen(name);

    if (n == 0 || strchr(name, '+') != NULL || have + n + 2 > sizeof l->peer_tenants[slot])
        return loader_fail(l, l->peer_origin[slot], "peers", (int)slot, "tenants",
                           "\"%.80s\" is no tenant", name);
    memcpy(names + have, name, n);
    memcpy(names + have + n, "+", 2);
    return TERN_OK;
}

/* ---- the whole ---- */

static enum tern_err loader_init(struct loader *l, char *why, size_t why_cap)
{
    char reason[REASON_BYTES];

    l->why = why;
    l->why_cap = why_cap;
    l->file_name = "";
    l->config = calloc(1, sizeof *l->config);
    if (l->config == NULL)
        return loader_fail(l, ORIGIN_DEFAULT, "", -1, NULL, "out of memory");
    for (size_t i = 0; i < config_settings_n; i++)
        if (config_settings[i].initial != NULL)
            check(value_parse(&config_settings[i], config_settings[i].initial, l->config, reason) ==
                  TERN_OK);
    return TERN_OK;
}

static enum tern_err finish(struct loader *l, struct config **ret)
{
    TRY(config_resolve(l));
    config_derive(l);
    TRY(config_check(l));
    *ret = l->config;
    l->config = NULL;
    return TERN_OK;
}

static enum tern_err read_file(struct loader *l, uint8_t **ret_bytes, size_t *ret_n)
{
    FILE *file = fopen(l->config->file, "rbe");
    uint8_t *bytes = NULL;
    size_t n;

    if (file == NULL)
        return loader_fail(l, ORIGIN_DEFAULT, "", -1, NULL, "%s: %s", l->config->file,
                           strerror(errno));
    bytes = malloc(CONFIG_FILE_MAX + 1);
    n = bytes == NULL ? 0 : fread(bytes, 1, CONFIG_FILE_MAX + 1, file);
    if (bytes == NULL || ferror(file) || n > CONFIG_FILE_MAX) {
        const char *what = bytes == NULL         ? "out of memory"
                           : n > CONFIG_FILE_MAX ? "larger than 1 MiB"
                                                 : strerror(errno);

        fclose(file);
        free(bytes);
        return loader_fail(l, ORIGIN_DEFAULT, "", -1, NULL, "%s: %s", l->config->file, what);
    }
    fclose(file);
    *ret_bytes = bytes;
    *ret_n = n;
    return TERN_OK;
}

static enum tern_err load(int argc, char **argv, struct loader *l, uint8_t **ret_bytes)
{
    TRY(flags_first_pass(argc, argv, l));
    if (l->config->file[0] != '\0') {
        TRY(read_file(l, ret_bytes, &l->text_bytes));
        l->file_name = l->config->file;
        l->text = *ret_bytes;
        TRY(yaml_load(l));
    }
    l->file_tenants = l->config->ntenants;
    l->file_peers = l->config->npeers;
    return flags_apply(argc, argv, l);
}

enum tern_err config_load(int argc, char **argv, struct config **ret, char *why, size_t why_cap)
{
    struct loader *l = calloc(1, sizeof *l);
    uint8_t *bytes = NULL;
    enum tern_err err;

    if (l == NULL) {
        snprintf(why, why_cap, "out of memory");
        return TERN_INVALID;
    }
    err = loader_init(l, why, why_cap);
    if (err == TERN_OK)
        err = load(argc, argv, l, &bytes);
    if (err == TERN_OK)
        err = finish(l, ret);
    free(bytes);
    config_destroy(l->config);
    free(l);
    return err;
}

enum tern_err config_load_text(const char *name, const void *bytes, size_t n, struct config **ret,
                               char *why, size_t why_cap)
{
    struct loader *l = calloc(1, sizeof *l);
    enum tern_err err;

    if (l == NULL) {
        snprintf(why, why_cap, "out of memory");
        return TERN_INVALID;
    }
    err = loader_init(l, why, why_cap);
    l->file_name = name;
    l->text = bytes;
    l->text_bytes = n;
    if (err == TERN_OK)
        err = yaml_load(l);
    if (err == TERN_OK)
        err = finish(l, ret);
    config_destroy(l->config);
    free(l);
    return err;
}

void config_destroy(struct config *config)
{
    free(config);
}

/* ---- printing ---- */

static void print_entry(const struct setting *fields, size_t n, const void *base, FILE *out)
{
    for (size_t i = 0; i < n; i++) {
        fprintf(out, "  %s %s: ", i == 0 ? "-" : " ", fields[i].key);
        value_print(&fields[i], base, out);
        fputc('\n', out);
    }
}

void config_print(const struct config *config, FILE *out)
{
    const char *section = "";

    for (size_t i = 0; i < config_settings_n; i++) {
        const struct setting *s = &config_settings[i];

        if (s->kind == VALUE_PATH && *((const char *)config + s->offset) == '\0')
            continue; /* a file that is not named: no text stands for that */
        if (strcmp(section, s->section) != 0)
            fprintf(out, "%s:\n", s->section);
        section = s->section;
        fprintf(out, "%s%s: ", *section == '\0' ? "" : "  ", s->key);
        value_print(s, config, out);
        fputc('\n', out);
    }
    if (config->ntenants > 0)
        fputs("tenants:\n", out);
    for (uint32_t i = 0; i < config->ntenants; i++)
        print_entry(config_tenant_fields, TENANT_FIELDS, &config->tenants[i], out);
    if (config->npeers > 0)
        fputs("peers:\n", out);
    for (uint32_t i = 0; i < config->npeers; i++) {
        const char *comma = "";

        print_entry(config_peer_fields, PEER_FIELDS, &config->peers[i], out);
        fputs("    tenants: [", out);
        for (uint32_t t = 0; t < config->ntenants; t++) {
            if (config->peers[i].tenants >> t & 1) {
                fprintf(out, "%s\"%s\"", comma, config->tenants[t].name);
                comma = ", ";
            }
        }
        fputs("]\n", out);
    }
}

enum tern_err config_tenant_slot(const struct config *config, const char *name, uint32_t *ret)
{
    for (uint32_t i = 0; i < config->ntenants; i++) {
        if (strcmp(config->tenants[i].name, name) == 0) {
            *ret = i;
            return TERN_OK;
        }
    }
    return TERN_INVALID;
}

enum tern_err config_peer_slot(const struct config *config, const char *name, uint32_t *ret)
{
    for (uint32_t i = 0; i < config->npeers; i++) {
        if (strcmp(config->peers[i].name, name) == 0) {
            *ret = i;
            return TERN_OK;
        }
    }
    return TERN_INVALID;
}
