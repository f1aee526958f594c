/* Finds the line of a setting in the YAML file, for messages: libyaml's marks are exact, while
 * libcyaml names the place of an error by a path. Called by config_loader.c. */
#include <string.h>
#include <yaml.h>

#include "shell/config/config_table.h"

#define WALK_DEPTH 4 /* the file's top, a section or list, an entry, a list in an entry */

struct walk {
    uint32_t depth; /* open collections; deeper ones than WALK_DEPTH are only counted */
    struct {
        bool mapping, at_key;
        int index; /* of the entry in a list */
        char key[CONFIG_NAME_BYTES];
    } level[WALK_DEPTH + 1];
};

/* Notes a scalar or the start of a collection inside level `depth`. True if it is a key. */
static bool walk_node(struct walk *w, const yaml_event_t *e)
{
    bool is_key = false;

    if (w->depth == 0 || w->depth > WALK_DEPTH)
        return false;
    if (!w->level[w->depth].mapping) {
        w->level[w->depth].index++;
        return false;
    }
    is_key = w->level[w->depth].at_key;
    w->level[w->depth].at_key = !is_key;
    if (is_key)
        snprintf(w->level[w->depth].key, CONFIG_NAME_BYTES, "%.*s", CONFIG_NAME_BYTES - 1,
                 e->type == YAML_SCALAR_EVENT ? (const char *)e->data.scalar.value : "");
    return is_key;
}

static bool walk_at(const struct walk *w, bool is_key, const char *section, int index,
                    const char *key)
{
    uint32_t depth = *section == '\0' ? 1 : index < 0 ? 2 : 3;

    if (*section != '\0' && (w->depth == 0 || strcmp(w->level[1].key, section) != 0))
        return false;
    if (key == NULL)
        return index < 0 ? is_key && w->depth == 1
                         : !is_key && w->depth == 2 && w->level[2].index == index;
    return is_key && w->depth == depth && strcmp(w->level[depth].key, key) == 0 &&
           (index < 0 || w->level[2].index == index);
}

static void walk_open(struct walk *w, bool mapping)
{
    w->depth++;
    if (w->depth <= WALK_DEPTH) {
        memset(&w->level[w->depth], 0, sizeof w->level[0]);
        w->level[w->depth].mapping = mapping;
        w->level[w->depth].at_key = true;
        w->level[w->depth].index = -1;
    }
}

static size_t walk_event(struct walk *w, const yaml_event_t *e, const char *section, int index,
                         const char *key)
{
    bool opens = e->type == YAML_MAPPING_START_EVENT || e->type == YAML_SEQUENCE_START_EVENT,
         is_key;
    size_t line = 0;

    if (e->type == YAML_MAPPING_END_EVENT || e->type == YAML_SEQUENCE_END_EVENT) {
        w->depth--;
        return 0;
    }
    if (!opens && e->type != YAML_SCALAR_EVENT && e->type != YAML_ALIAS_EVENT)
        return 0;
    is_key = walk_node(w, e);
    if (walk_at(w, is_key, section, index, key))
        line = e->start_mark.line + 1;
    if (opens)
        walk_open(w, e->type == YAML_MAPPING_START_EVENT);
    return line;
}

/* Finds the last place that fits, because a key that is given twice is wrong at its second place.
 * It stops at bytes that are no YAML: *ret_broken is their line, with the parser's words. */
static size_t walk_file(const struct loader *l, const char *section, int index, const char *key,
                        size_t *ret_broken, char problem[YAML_PROBLEM_BYTES])
{
    struct walk w = {.depth = 0};
    yaml_parser_t parser;
    size_t found = 0;
    bool more = true;

    *ret_broken = 0;
    if (!yaml_parser_initialize(&parser))
        return 0;
    yaml_parser_set_input_string(&parser, l->text, l->text_bytes);
    while (more) {
        yaml_event_t e;
        size_t line;

        if (!yaml_parser_parse(&parser, &e)) {
            *ret_broken = parser.problem_mark.line + 1;
            snprintf(problem, YAML_PROBLEM_BYTES, "%s",
                     parser.problem != NULL              ? parser.problem
                     : parser.error == YAML_MEMORY_ERROR ? "out of memory"
                                                         : "not YAML");
            break;
        }
        line = walk_event(&w, &e, section, index, key);
        if (line != 0)
            found = line;
        more = e.type != YAML_STREAM_END_EVENT && e.type != YAML_DOCUMENT_END_EVENT;
        yaml_event_delete(&e);
    }
    yaml_parser_delete(&parser);
    return found;
}

size_t yaml_line(const struct loader *l, const char *section, int index, const char *key)
{
    char problem[YAML_PROBLEM_BYTES];
    size_t broken, line = 0;

    if (l->text == NULL)
        return 0;
    line = walk_file(l, section, index, key, &broken, problem);
    if (line == 0 && key != NULL && *section != '\0')
        line = walk_file(l, section, index, NULL, &broken, problem);
    if (line == 0 && index >= 0)
        line = walk_file(l, section, -1, NULL, &broken, problem);
    return line;
}

size_t yaml_first_problem(const struct loader *l, char ret[YAML_PROBLEM_BYTES])
{
    size_t broken;

    walk_file(l, "", -1, NULL, &broken, ret);
    return broken;
}
