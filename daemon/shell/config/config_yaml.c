/* Reads the YAML file with libyaml: a key names a row of the table of settings, a section or a
 * list, and each value is set as a flag is. Keeps the line of each key for later refusals. Called
 * by config.c. Invariant: a collection is entered only where a known key wants one, so the depth of
 * the file cannot drive recursion here. */
#include <string.h>
#include <yaml.h>

#include "base/err.h"
#include "shell/config/config_table.h"

struct file {
    struct loader *l;
    yaml_document_t document;
};

/* The place of a node: see loader_fail. */
struct place {
    const char *section;
    int index;
    const char *key;
};

static enum tern_err wrong(const struct file *f, struct place at, const char *text)
{
    return loader_fail(f->l, ORIGIN_FILE, at.section, at.index, at.key, "%s", text);
}

/* Refusals from here on name this line. */
static uint32_t line_at(struct file *f, yaml_mark_t mark)
{
    return f->l->line = (uint32_t)mark.line + 1;
}

static yaml_node_t *node_of(struct file *f, int node)
{
    return yaml_document_get_node(&f->document, node);
}

/* Refuses the node unless it is of that type. */
static enum tern_err expect(struct file *f, struct place at, int node, yaml_node_type_t type)
{
    const yaml_node_t *n = node_of(f, node);

    if (n->type != type)
        return wrong(f, at,
                     type == YAML_MAPPING_NODE    ? "must be lines of `key: value`"
                     : type == YAML_SEQUENCE_NODE ? "must be a list, each entry on a line that "
                                                    "begins with `- `"
                     : n->type == YAML_SEQUENCE_NODE
                         ? "must be one value, not a list"
                         : "must be one value, not lines of `key: value`");
    if (type == YAML_SCALAR_NODE &&
        strlen((const char *)n->data.scalar.value) != n->data.scalar.length)
        return wrong(f, at, "must not contain control characters");
    return TERN_OK;
}

static const char *text_of(struct file *f, int node)
{
    return (const char *)node_of(f, node)->data.scalar.value;
}

/* Reads the key of a pair; refuses a key that the mapping already has. */
static enum tern_err read_key(struct file *f, struct place of, const yaml_node_t *mapping,
                              const yaml_node_pair_t *pair, const char **ret)
{
    line_at(f, node_of(f, pair->key)->start_mark);
    TRY(expect(f, of, pair->key, YAML_SCALAR_NODE));
    *ret = of.key = text_of(f, pair->key);
    for (const yaml_node_pair_t *p = mapping->data.mapping.pairs.start; p < pair; p++)
        if (strcmp(text_of(f, p->key), *ret) == 0)
            return wrong(f, of, "given twice");
    return TERN_OK;
}

static enum tern_err unknown(const struct file *f, struct place at)
{
    const char *retired = loader_retired(at.section, at.key);

    return wrong(
        f, at,
        retired ? retired
        : strcmp(at.section, "reserve") == 0
            ? "the reserve has the sizes of a tenant: set reserve.like to that tenant's name"
            : "unknown key: `man ternd.yaml` has every one");
}

/* Reads the value of a key at the file's top or in a section. */
static enum tern_err read_setting(struct file *f, struct place at, int value)
{
    size_t row = loader_row(at.section, at.key);

    if (row == config_settings_n)
        return unknown(f, at);
    f->l->row_line[row] = f->l->line;
    TRY(expect(f, at, value, YAML_SCALAR_NODE));
    return loader_set(f->l, row, text_of(f, value), ORIGIN_FILE);
}

static enum tern_err read_names(struct file *f, struct place at, int value, uint32_t peer)
{
    const yaml_node_t *list = node_of(f, value);

    TRY(expect(f, at, value, YAML_SEQUENCE_NODE));
    for (int *item = list->data.sequence.items.start; item < list->data.sequence.items.top;
         item++) {
        TRY(expect(f, at, *item, YAML_SCALAR_NODE));
        TRY(loader_peer_tenant(f->l, peer, text_of(f, *item)));
    }
    return TERN_OK;
}

/* An entry of `tenants` or `peers`. */
static enum tern_err read_entry(struct file *f, const char *list, uint32_t slot, int value)
{
    const yaml_node_t *entry = node_of(f, value);
    uint32_t *lines = loader_lines(f->l, list, slot);

    for (const yaml_node_pair_t *p = entry->data.mapping.pairs.start;
         p < entry->data.mapping.pairs.top; p++) {
        struct place at = {list, (int)slot, NULL};
        size_t field;

        TRY(read_key(f, at, entry, p, &at.key));
        field = loader_field(f->l, list, at.key);
        if (field == ENTRY_ITSELF)
            return unknown(f, at);
        lines[field] = f->l->line;
        if (field == PEER_NAMES) {
            TRY(read_names(f, at, p->value, slot));
            continue;
        }
        TRY(expect(f, at, p->value, YAML_SCALAR_NODE));
        TRY(loader_entry_set(f->l, list, slot, field, text_of(f, p->value)));
    }
    return TERN_OK;
}

static enum tern_err read_list(struct file *f, const char *list, int value)
{
    const yaml_node_t *node = node_of(f, value);
    const int *first = node->data.sequence.items.start;

    TRY(expect(f, (struct place){list, -1, NULL}, value, YAML_SEQUENCE_NODE));
    for (const int *item = first; item < node->data.sequence.items.top; item++) {
        uint32_t slot, line = line_at(f, node_of(f, *item)->start_mark);

        TRY(expect(f, (struct place){list, (int)(item - first), NULL}, *item, YAML_MAPPING_NODE));
        TRY(loader_entry_add(f->l, list, ORIGIN_FILE, &slot));
        loader_lines(f->l, list, slot)[ENTRY_ITSELF] = line;
        TRY(read_entry(f, list, slot, *item));
    }
    return TERN_OK;
}

static bool is_section(const char *key)
{
    size_t i = 0;

    while (i < config_settings_n && strcmp(config_settings[i].section, key) != 0)
        i++;
    return i < config_settings_n && *key != '\0';
}

/* Reads the keys of a section, or of the file's top, whose section is "". */
static enum tern_err read_section(struct file *f, const char *section, int value)
{
    const yaml_node_t *mapping = node_of(f, value);

    TRY(expect(f, (struct place){section, -1, NULL}, value, YAML_MAPPING_NODE));
    for (const yaml_node_pair_t *p = mapping->data.mapping.pairs.start;
         p < mapping->data.mapping.pairs.top; p++) {
        struct place at = {section, -1, NULL};

        TRY(read_key(f, at, mapping, p, &at.key));
        if (*section == '\0' && loader_is_list(at.key))
            TRY(read_list(f, at.key, p->value));
        else if (*section == '\0' && is_section(at.key))
            TRY(read_section(f, at.key, p->value));
        else
            TRY(read_setting(f, at, p->value));
    }
    return TERN_OK;
}

/* A file without a document sets nothing. */
static enum tern_err read_documents(struct file *f, yaml_parser_t *parser)
{
    for (bool first = true;; first = false) {
        enum tern_err err;

        if (!yaml_parser_load(parser, &f->document)) {
            snprintf(f->l->why, f->l->why_cap, "%s:%zu: %s", f->l->file_name,
                     parser->problem_mark.line + 1,
                     parser->problem != NULL ? parser->problem : "out of memory");
            return TERN_INVALID;
        }
        if (yaml_document_get_root_node(&f->document) == NULL) {
            yaml_document_delete(&f->document);
            return TERN_OK;
        }
        line_at(f, f->document.start_mark);
        err = first ? read_section(f, "", 1)
                    : wrong(f, (struct place){"", -1, NULL},
                            "more than one document: leave out what follows `---`");
        yaml_document_delete(&f->document);
        TRY(err);
    }
}

enum tern_err yaml_load(struct loader *l)
{
    struct file f = {.l = l};
    yaml_parser_t parser;
    enum tern_err err;

    if (!yaml_parser_initialize(&parser))
        return loader_fail(l, ORIGIN_DEFAULT, "", -1, NULL, "out of memory");
    yaml_parser_set_input_string(&parser, l->text, l->text_bytes);
    err = read_documents(&f, &parser);
    l->line = 0;
    yaml_parser_delete(&parser);
    return err;
}
