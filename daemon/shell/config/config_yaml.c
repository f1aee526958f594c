/* The YAML file, read in one pass over libyaml's events: a key names a row of the table of
 * settings, a section of them, or a list, and each value goes through the same door as a flag.
 * The line of each key is kept for what is refused later. Called by config.c.
 *
 * Invariant: a collection is entered only where a known key wants one, so the depth of the file
 * bounds no recursion here. */
#include <string.h>
#include <yaml.h>

#include "base/check.h"
#include "base/err.h"
#include "shell/config/config_table.h"

#define SECTIONS_MAX 12 /* with the two lists */

struct file {
    struct loader *l;
    yaml_parser_t parser;
    yaml_event_t e; /* the last one */
    char key[CONFIG_NAME_BYTES];
    const char *seen[SECTIONS_MAX]; /* sections and lists that were given; static */
    uint32_t nseen;
};

/* An event belongs to this place: see loader_fail. */
struct place {
    const char *section;
    int index;
    const char *key;
};

static enum tern_err wrong(const struct file *f, struct place at, const char *text)
{
    return loader_fail(f->l, ORIGIN_FILE, at.section, at.index, at.key, "%s", text);
}

/* The next event in f->e. */
static enum tern_err next(struct file *f)
{
    const yaml_parser_t *p = &f->parser;

    yaml_event_delete(&f->e);
    if (yaml_parser_parse(&f->parser, &f->e))
        return TERN_OK;
    memset(&f->e, 0, sizeof f->e);
    snprintf(f->l->why, f->l->why_cap, "%s:%zu: %s", f->l->file_name, p->problem_mark.line + 1,
             p->problem != NULL              ? p->problem
             : p->error == YAML_MEMORY_ERROR ? "out of memory"
                                             : "not YAML");
    return TERN_INVALID;
}

/* Refuses the event unless it is of that type: a scalar, or what begins a list or a mapping. */
static enum tern_err expect(const struct file *f, struct place at, yaml_event_type_t type)
{
    const yaml_event_t *e = &f->e;

    if (e->type == YAML_ALIAS_EVENT)
        return wrong(f, at, "an alias is not supported: write the value out");
    if (e->type != type)
        return wrong(f, at,
                     type == YAML_MAPPING_START_EVENT    ? "must be lines of `key: value`"
                     : type == YAML_SEQUENCE_START_EVENT ? "must be a list, each entry on a line "
                                                           "that begins with `- `"
                     : e->type == YAML_SEQUENCE_START_EVENT
                         ? "must be one value, not a list"
                         : "must be one value, not lines of `key: value`");
    if (type == YAML_SCALAR_EVENT &&
        strlen((const char *)e->data.scalar.value) != e->data.scalar.length)
        return wrong(f, at, "must not hold control characters");
    return TERN_OK;
}

/* The next event is of that type. */
static enum tern_err take(struct file *f, struct place at, yaml_event_type_t type)
{
    TRY(next(f));
    return expect(f, at, type);
}

static const char *text_of(const struct file *f)
{
    return (const char *)f->e.data.scalar.value;
}

/* A refusal from here on names this line. */
static uint32_t line_here(struct file *f)
{
    return f->l->line = (uint32_t)f->e.start_mark.line + 1;
}

/* The next key of a mapping in f->key. *ret_more false: the mapping has ended. */
static enum tern_err next_key(struct file *f, struct place of, bool *ret_more)
{
    TRY(next(f));
    *ret_more = f->e.type != YAML_MAPPING_END_EVENT;
    if (!*ret_more)
        return TERN_OK;
    line_here(f);
    TRY(expect(f, of, YAML_SCALAR_EVENT));
    snprintf(f->key, sizeof f->key, "%s", text_of(f));
    return TERN_OK;
}

static enum tern_err unknown(const struct file *f, struct place at)
{
    const char *retired = loader_retired(at.section, at.key);

    return wrong(f, at,
                 retired ? retired
                 : strcmp(at.section, "reserve") == 0
                     ? "the reserve has the sizes of a tenant: name it by reserve.like"
                     : "unknown key: `man ternd.yaml` has every one");
}

/* The key that was read last, of the file's top or of a section. */
static enum tern_err read_setting(struct file *f, const char *section, size_t row)
{
    const struct place at = {section, -1, f->key};

    if (f->l->origin[row] == ORIGIN_FILE)
        return wrong(f, at, "given twice");
    f->l->row_line[row] = f->l->line;
    TRY(take(f, at, YAML_SCALAR_EVENT));
    return loader_set(f->l, row, text_of(f), ORIGIN_FILE);
}

static enum tern_err read_section(struct file *f, const char *section)
{
    bool more;

    TRY(take(f, (struct place){section, -1, NULL}, YAML_MAPPING_START_EVENT));
    for (;;) {
        size_t row;

        TRY(next_key(f, (struct place){section, -1, NULL}, &more));
        if (!more)
            return TERN_OK;
        row = loader_row(section, f->key);
        if (row == config_settings_n)
            return unknown(f, (struct place){section, -1, f->key});
        TRY(read_setting(f, section, row));
    }
}

static enum tern_err read_names(struct file *f, struct place at, uint32_t peer)
{
    TRY(take(f, at, YAML_SEQUENCE_START_EVENT));
    for (;;) {
        TRY(next(f));
        if (f->e.type == YAML_SEQUENCE_END_EVENT)
            return TERN_OK;
        TRY(expect(f, at, YAML_SCALAR_EVENT));
        TRY(loader_peer_tenant(f->l, peer, text_of(f)));
    }
}

/* An entry of `tenants` or `peers`. */
static enum tern_err read_entry(struct file *f, const char *list, uint32_t slot)
{
    uint32_t *lines = loader_lines(f->l, list, slot);
    bool more;

    for (;;) {
        const struct place at = {list, (int)slot, f->key};
        size_t field;

        TRY(next_key(f, (struct place){list, (int)slot, NULL}, &more));
        if (!more)
            return TERN_OK;
        field = loader_field(f->l, list, f->key);
        if (field == ENTRY_ITSELF)
            return unknown(f, at);
        if (lines[field] != 0)
            return wrong(f, at, "given twice");
        lines[field] = f->l->line;
        if (field == PEER_NAMES) {
            TRY(read_names(f, at, slot));
            continue;
        }
        TRY(take(f, at, YAML_SCALAR_EVENT));
        TRY(loader_entry_set(f->l, list, slot, field, text_of(f)));
    }
}

static enum tern_err read_list(struct file *f, const char *list)
{
    uint32_t slot, line;

    TRY(take(f, (struct place){list, -1, NULL}, YAML_SEQUENCE_START_EVENT));
    for (int i = 0;; i++) {
        TRY(next(f));
        if (f->e.type == YAML_SEQUENCE_END_EVENT)
            return TERN_OK;
        line = line_here(f);
        TRY(expect(f, (struct place){list, i, NULL}, YAML_MAPPING_START_EVENT));
        TRY(loader_entry_add(f->l, list, ORIGIN_FILE, &slot));
        loader_lines(f->l, list, slot)[ENTRY_ITSELF] = line;
        TRY(read_entry(f, list, slot));
    }
}

/* The name of the section or list that the key is; NULL: there is none. */
static const char *section_named(const char *key)
{
    if (strcmp(key, "tenants") == 0 || strcmp(key, "peers") == 0)
        return *key == 't' ? "tenants" : "peers";
    for (size_t i = 0; i < config_settings_n && *key != '\0'; i++)
        if (strcmp(config_settings[i].section, key) == 0)
            return config_settings[i].section;
    return NULL;
}

static enum tern_err read_top(struct file *f)
{
    const struct place top = {"", -1, NULL}, at = {"", -1, f->key};
    bool more;

    TRY(expect(f, top, YAML_MAPPING_START_EVENT));
    for (;;) {
        const char *section;
        size_t row;

        TRY(next_key(f, top, &more));
        if (!more)
            return TERN_OK;
        section = section_named(f->key);
        row = loader_row("", f->key);
        if (section == NULL && row == config_settings_n)
            return unknown(f, at);
        if (section == NULL) {
            TRY(read_setting(f, "", row));
            continue;
        }
        for (uint32_t i = 0; i < f->nseen; i++)
            if (strcmp(f->seen[i], section) == 0)
                return wrong(f, at, "given twice");
        check(f->nseen < SECTIONS_MAX);
        f->seen[f->nseen++] = section;
        TRY((strcmp(section, "tenants") == 0 || strcmp(section, "peers") == 0
                 ? read_list
                 : read_section)(f, section));
    }
}

/* A file without a document says nothing. */
static enum tern_err read_file(struct file *f)
{
    for (bool document = false;; document = true) {
        do
            TRY(next(f));
        while (f->e.type == YAML_STREAM_START_EVENT || f->e.type == YAML_DOCUMENT_END_EVENT);
        if (f->e.type == YAML_STREAM_END_EVENT)
            return TERN_OK;
        line_here(f);
        if (document)
            return wrong(f, (struct place){"", -1, NULL},
                         "more documents than one: leave out what follows `---`");
        TRY(next(f));
        TRY(read_top(f));
    }
}

enum tern_err yaml_load(struct loader *l)
{
    struct file f = {.l = l};
    enum tern_err err;

    if (!yaml_parser_initialize(&f.parser))
        return loader_fail(l, ORIGIN_DEFAULT, "", -1, NULL, "out of memory");
    yaml_parser_set_input_string(&f.parser, l->text, l->text_bytes);
    err = read_file(&f);
    l->line = 0;
    yaml_event_delete(&f.e);
    yaml_parser_delete(&f.parser);
    return err;
}
