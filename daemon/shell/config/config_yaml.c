/* The YAML file: libcyaml checks its shape against a schema made from the table of settings, then
 * each value goes through the same door as a flag. libcyaml loads every scalar as text, so that
 * there is one reader of values, and names the place of an error by a path; config_lines.c finds
 * the line of it. */
#include <cyaml/cyaml.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/err.h"
#include "shell/config/config_table.h"

#define SECTIONS_MAX 10
#define SCALAR_MAX   4096 /* bytes of one value */
#define MESSAGE_MAX  256

struct raw_tenant {
    char *v[TENANT_FIELDS];
};

struct raw_peer {
    char *v[PEER_FIELDS];
    char **tenants;
    uint32_t ntenants;
};

/* What libcyaml fills; NULL where the file says nothing. Sections are mappings at offset 0. */
struct raw {
    char *v[SETTINGS_MAX];
    struct raw_tenant *tenants;
    uint32_t ntenants;
    struct raw_peer *peers;
    uint32_t npeers;
};

/* The schema, built for one load. Each list of fields ends in an empty one. */
struct schema {
    cyaml_schema_field_t top[SETTINGS_MAX + SECTIONS_MAX + 3];
    cyaml_schema_field_t section[SECTIONS_MAX][SETTINGS_MAX + 1];
    const char *section_name[SECTIONS_MAX];
    size_t nsections, ntop, nfields[SECTIONS_MAX];
    cyaml_schema_field_t tenant[TENANT_FIELDS + 1], peer[PEER_FIELDS + 2];
    cyaml_schema_value_t tenant_value, peer_value, name_value, root;
};

/* libcyaml's complaint: what, and the path to it from the inside out. */
struct complaint {
    char text[MESSAGE_MAX];
    char section[CONFIG_NAME_BYTES], key[CONFIG_NAME_BYTES];
    int index;
    bool any;
};

static cyaml_schema_value_t text_value(void)
{
    return (cyaml_schema_value_t){
        .type = CYAML_STRING,
        .flags = CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL,
        .data_size = sizeof(char),
        .string = {.min = 0, .max = SCALAR_MAX},
    };
}

static cyaml_schema_field_t text_field(const char *key, size_t offset)
{
    return (cyaml_schema_field_t){
        .key = key, .data_offset = (uint32_t)offset, .value = text_value()};
}

static cyaml_schema_field_t list_field(const char *key, size_t offset, size_t count_offset,
                                       const cyaml_schema_value_t *entry, size_t stride,
                                       uint32_t max)
{
    return (cyaml_schema_field_t){
        .key = key,
        .data_offset = (uint32_t)offset,
        .count_offset = (uint32_t)count_offset,
        .count_size = sizeof(uint32_t),
        .value = {.type = CYAML_SEQUENCE,
                  .flags = CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL,
                  .data_size = (uint32_t)stride,
                  .sequence = {.entry = entry, .min = 0, .max = max}},
    };
}

static size_t section_of(struct schema *s, const char *name)
{
    size_t i = 0;

    while (i < s->nsections && strcmp(s->section_name[i], name) != 0)
        i++;
    if (i == s->nsections) {
        check(i < SECTIONS_MAX);
        s->section_name[s->nsections++] = name;
        s->top[s->ntop++] = (cyaml_schema_field_t){
            .key = name,
            .value = {.type = CYAML_MAPPING,
                      .flags = CYAML_FLAG_OPTIONAL,
                      .data_size = sizeof(struct raw),
                      .mapping = {.fields = s->section[i]}},
        };
    }
    return i;
}

static void schema_lists(struct schema *s)
{
    for (size_t i = 0; i < TENANT_FIELDS; i++)
        s->tenant[i] = text_field(config_tenant_fields[i].key,
                                  offsetof(struct raw_tenant, v) + i * sizeof(char *));
    for (size_t i = 0; i < PEER_FIELDS; i++)
        s->peer[i] = text_field(config_peer_fields[i].key,
                                offsetof(struct raw_peer, v) + i * sizeof(char *));
    s->name_value = text_value();
    s->peer[PEER_FIELDS] = list_field("tenants", offsetof(struct raw_peer, tenants),
                                      offsetof(struct raw_peer, ntenants), &s->name_value,
                                      sizeof(char *), CONFIG_TENANTS_MAX);
    s->tenant_value = (cyaml_schema_value_t){.type = CYAML_MAPPING,
                                             .data_size = sizeof(struct raw_tenant),
                                             .mapping = {.fields = s->tenant}};
    s->peer_value = (cyaml_schema_value_t){.type = CYAML_MAPPING,
                                           .data_size = sizeof(struct raw_peer),
                                           .mapping = {.fields = s->peer}};
    s->top[s->ntop++] =
        list_field("tenants", offsetof(struct raw, tenants), offsetof(struct raw, ntenants),
                   &s->tenant_value, sizeof(struct raw_tenant), CONFIG_TENANTS_MAX);
    s->top[s->ntop++] =
        list_field("peers", offsetof(struct raw, peers), offsetof(struct raw, npeers),
                   &s->peer_value, sizeof(struct raw_peer), CONFIG_PEERS_MAX);
    s->root = (cyaml_schema_value_t){.type = CYAML_MAPPING,
                                     .flags = CYAML_FLAG_POINTER,
                                     .data_size = sizeof(struct raw),
                                     .mapping = {.fields = s->top}};
}

static void schema_build(struct schema *s)
{
    memset(s, 0, sizeof *s);
    for (size_t i = 0; i < config_settings_n; i++) {
        const struct setting *setting = &config_settings[i];
        cyaml_schema_field_t field =
            text_field(setting->key, offsetof(struct raw, v) + i * sizeof(char *));

        if (*setting->section == '\0') {
            s->top[s->ntop++] = field;
        } else {
            size_t section = section_of(s, setting->section);

            s->section[section][s->nfields[section]++] = field;
        }
    }
    schema_lists(s);
}

/* The name in quotes that follows `before` in a backtrace line; false if there is none. */
static bool quoted(const char *line, const char *before, char *ret, size_t cap)
{
    const char *start = strstr(line, before);
    size_t n;

    if (start == NULL)
        return false;
    start += strlen(before);
    n = strcspn(start, "'");
    if (n >= cap)
        n = cap - 1;
    memcpy(ret, start, n);
    ret[n] = '\0';
    return true;
}

/* Backtrace lines come from the inside out, so each outer name moves the one before it inwards. */
static void collect_place(struct complaint *c, const char *line)
{
    char name[CONFIG_NAME_BYTES];

    if (quoted(line, "in sequence entry '", name, sizeof name)) {
        c->index = atoi(name);
        return;
    }
    if (!quoted(line, "in mapping field '", name, sizeof name))
        return;
    if (c->section[0] != '\0' && c->key[0] == '\0')
        memcpy(c->key, c->section, sizeof c->key);
    memcpy(c->section, name, sizeof c->section);
}

static void collect(cyaml_log_t level, void *ctx, const char *format, va_list args)
{
    struct complaint *c = ctx;
    char line[MESSAGE_MAX];
    const char *text = line;

    (void)level;
    vsnprintf(line, sizeof line, format, args);
    line[strcspn(line, "\n")] = '\0';
    if (strncmp(text, "Load: ", 6) == 0)
        text += 6;
    if (strncmp(text, "Backtrace", 9) == 0)
        return;
    if (strncmp(line, "  in ", 5) == 0)
        collect_place(c, line);
    else if (!c->any)
        snprintf(c->text, sizeof c->text, "%s", text);
    c->any = true;
}

/* Rewords libcyaml's "Expecting SEQUENCE, got event: SCALAR" and the like for people who do not
 * know YAML's grammar; other texts stay. The result is static or `text`. */
static const char *shape_text(const char *text)
{
    static const struct {
        const char *theirs, *ours;
    } words[] = {
        {"Expecting STRING, got event: SEQUENCE", "must be one value, not a list"},
        {"Expecting STRING, got event: MAPPING", "must be one value, not lines of `key: value`"},
        {"Expecting SEQUENCE", "must be a list, each entry on a line that begins with `- `"},
        {"Expecting MAPPING", "must be lines of `key: value`"},
        {"YAML alias unsupported", "an alias is not supported: write the value out"},
        {"Ignoring documents", "more documents than one: leave out what follows `---`"},
        {"libyaml: (null)", "out of memory"}, /* the only error that it has no words for */
        {"libyaml parser init failed", "out of memory"},
    };

    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strncmp(text, words[i].theirs, strlen(words[i].theirs)) == 0)
            return words[i].ours;
    return text;
}

/* Turns libcyaml's words into ours. Its path ends at the mapping of a key that it does not know,
 * and at the key itself otherwise. */
static enum tern_err explain(struct loader *l, struct complaint *c, cyaml_err_t err)
{
    static const char unknown[] = "Unexpected key: ", twice[] = "Mapping field already seen: ";
    const char *text = c->text[0] != '\0' ? c->text : cyaml_strerror(err);

    /* In a list it counts the entry that is being read from 1, from 0 when it is one too many. */
    if (c->index >= 0 && err != CYAML_ERR_SEQUENCE_ENTRIES_MAX)
        c->index--;
    if (strncmp(c->text, unknown, strlen(unknown)) == 0) {
        snprintf(c->key, sizeof c->key, "%.*s", CONFIG_NAME_BYTES - 1, c->text + strlen(unknown));
        text = strcmp(c->section, "reserve") == 0
                   ? "the reserve has the sizes of a tenant: name it by reserve.like"
                   : "unknown key: `man ternd.yaml` has every one";
    } else if (strncmp(c->text, twice, strlen(twice)) == 0) {
        text = "given twice";
    }
    return loader_fail(l, ORIGIN_FILE, c->section, c->index, c->key[0] != '\0' ? c->key : NULL,
                       "%s", shape_text(text));
}

static enum tern_err apply(struct loader *l, const struct raw *raw)
{
    for (size_t i = 0; i < config_settings_n; i++)
        if (raw->v[i] != NULL)
            TRY(loader_set(l, i, raw->v[i], ORIGIN_FILE));
    for (uint32_t i = 0; i < raw->ntenants; i++) {
        uint32_t slot;

        TRY(loader_tenant_add(l, ORIGIN_FILE, &slot));
        for (size_t f = 0; f < TENANT_FIELDS; f++)
            if (raw->tenants[i].v[f] != NULL)
                TRY(loader_tenant_set(l, slot, f, raw->tenants[i].v[f]));
    }
    for (uint32_t i = 0; i < raw->npeers; i++) {
        uint32_t slot;

        TRY(loader_peer_add(l, ORIGIN_FILE, &slot));
        for (size_t f = 0; f < PEER_FIELDS; f++)
            if (raw->peers[i].v[f] != NULL)
                TRY(loader_peer_set(l, slot, f, raw->peers[i].v[f]));
        for (uint32_t t = 0; t < raw->peers[i].ntenants; t++)
            TRY(loader_peer_tenant(l, slot, raw->peers[i].tenants[t]));
    }
    return TERN_OK;
}

enum tern_err yaml_load(struct loader *l)
{
    struct complaint complaint = {.index = -1};
    const cyaml_config_t config = {
        .log_fn = collect,
        .log_ctx = &complaint,
        .mem_fn = cyaml_mem,
        .log_level = CYAML_LOG_WARNING,
        .flags = CYAML_CFG_NO_ALIAS,
    };
    char problem[YAML_PROBLEM_BYTES];
    struct raw *raw = NULL;
    enum tern_err err;
    cyaml_err_t cyaml;
    struct schema *s;
    size_t broken = yaml_first_problem(l, problem);

    if (broken != 0) {
        snprintf(l->why, l->why_cap, "%s:%zu: %s", l->file_name, broken, problem);
        return TERN_INVALID;
    }
    s = malloc(sizeof *s);
    if (s == NULL)
        return loader_fail(l, ORIGIN_DEFAULT, "", -1, NULL, "out of memory");
    schema_build(s);
    cyaml = cyaml_load_data(l->text, l->text_bytes, &config, &s->root, (cyaml_data_t **)&raw, NULL);
    if (cyaml != CYAML_OK || complaint.any)
        err = explain(l, &complaint, cyaml);
    else
        err = raw == NULL ? TERN_OK : apply(l, raw);
    if (cyaml == CYAML_OK)
        cyaml_free(&config, &s->root, raw, 0);
    free(s);
    return err;
}
