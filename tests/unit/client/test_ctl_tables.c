/* Every table of ternctl with the longest names and large numbers. ternctl is linked without the
 * part that asks the daemon: any key that a table reads gets the name or the number here, so no
 * column is left out. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "../../../client/ctl/forest.h"
#include "testing/test.h"
#include "unit/rig/rig_ctl.h"
#include "unit/rig/rig_printed.h"

#define LARGE  987654321987654321u
#define AGES_S 1.8e10 /* the last age, in seconds, of the daemon's clock of nanoseconds */
#define NAME   "a-name-of-63-characters-which-is-the-longest-that-a-tenant-has-"

static_assert(sizeof NAME == 64, "63 characters");

static json_t *lists; /* the daemon's answers, by name of the list or command */

/* ---- in place of ask.c ---- */

void ctl_connect(struct ctl *ctl)
{
    (void)ctl;
}

const char *ctl_try_connect(struct ctl *ctl, uint32_t deadline_ms)
{
    (void)ctl;
    (void)deadline_ms;
    return NULL;
}

json_t *ctl_ask(struct ctl *ctl, const char *command, const char *const *args, uint32_t nargs)
{
    (void)ctl;
    (void)args;
    (void)nargs;
    return json_deep_copy(json_object_get(lists, command));
}

json_t *ctl_ask_within(struct ctl *ctl, const struct ctl_question *q, enum tern_err *ret_lost)
{
    (void)ret_lost;
    return ctl_ask(ctl, q->command, q->args, q->nargs);
}

json_t *ctl_list(struct ctl *ctl, const char *list, const char *arg)
{
    (void)ctl;
    (void)arg;
    return json_deep_copy(json_object_get(lists, list));
}

const char *ctl_pool_arg(struct ctl *ctl)
{
    (void)ctl;
    return NULL;
}

bool ctl_print_json(const struct ctl *ctl, const json_t *answer)
{
    (void)ctl;
    (void)answer;
    return false;
}

/* Keys from which the tree is built. */
static bool is_shape(const char *key)
{
    return strcmp(key, "slot") == 0 || strcmp(key, "depth") == 0 || strcmp(key, "pages") == 0 ||
           strcmp(key, "pool") == 0;
}

uint64_t j_u64(const json_t *object, const char *key)
{
    const json_t *v = json_object_get(object, key);

    return is_shape(key) && v ? (uint64_t)json_integer_value(v) : LARGE;
}

double j_f64(const json_t *object, const char *key)
{
    (void)object;
    (void)key;
    return AGES_S;
}

/* Handles and hashes keep their own length. */
const char *j_str(const json_t *object, const char *key)
{
    static const char *const handles[] = {"pool",    "session",  "id",
                                          "node_id", "transfer", "other_tier"};
    const char *text = json_string_value(json_object_get(object, key));

    if (strcmp(key, "namespace") == 0 || strcmp(key, "chain") == 0)
        return "0123456789abcdef0123456789abcdef";
    for (size_t i = 0; i < sizeof handles / sizeof handles[0]; i++) {
        if (strcmp(key, handles[i]) == 0)
            return text ? text : "00000001000000ff";
    }
    if (strcmp(key, "ref") == 0)
        return "device";
    if ((strcmp(key, "kind") == 0 || strcmp(key, "tier") == 0) && text)
        return text;
    return strcmp(key, "engine") == 0 && text ? text : NAME;
}

bool j_bool(const json_t *object, const char *key)
{
    (void)object;
    (void)key;
    return true;
}

/* ---- what is printed ---- */

static char printed[1u << 20];

static void run_as(const struct command *c, struct ctl ctl)
{
    struct rig_printed p = rig_printed_begin();

    assert_int_equal(c->run(&ctl), CTL_OK);
    rig_printed_end(&p, printed, sizeof printed);
}

static void run(const struct command *c, bool wide)
{
    run_as(c, (struct ctl){.wide = wide, .once = true});
}

/* Only the titles of a table are lines in capitals. */
static bool is_head(const char *line, size_t n)
{
    bool letters = false;

    for (size_t i = 0; i < n; i++) {
        if (line[i] >= 'a' && line[i] <= 'z')
            return false;
        letters |= line[i] >= 'A' && line[i] <= 'Z';
    }
    return letters;
}

/* The widest line of tables: from their titles to the next empty line. */
static size_t widest_line(const struct command *c, uint32_t *ret_lines)
{
    bool in_table = false;
    size_t most = 0;

    *ret_lines = 0;
    for (char *line = printed, *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        size_t n = (size_t)(end - line);

        in_table = n > 0 && (in_table || is_head(line, n));
        if (!in_table)
            continue;
        (*ret_lines)++;
        most = n > most ? n : most;
        if (n > TABLE_WIDTH)
            print_message("%s: %zu columns: %.*s\n", c->name, n, (int)n, line);
    }
    return most;
}

static uint32_t count_of(const char *what)
{
    uint32_t n = 0;

    for (const char *at = printed; (at = strstr(at, what)) != NULL; at += strlen(what))
        n++;
    return n;
}

static bool prints_tables(const struct command *c)
{
    static const char *const others[] = {"doctor", "verify"};

    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        if (strcmp(c->name, others[i]) == 0)
            return false;
    }
    return true;
}

/* Rows of every list, with the parts that are read without a key's helper: lists within rows, and
 * strings whose absence has a meaning. */
static json_t *rows(void)
{
    json_t *names = json_pack("[s, s]", NAME, NAME), *two = json_array(), *row;
    json_t *numbers = json_pack("[I, I]", (json_int_t)LARGE, (json_int_t)LARGE);

    for (uint32_t i = 0; i < 2; i++) {
        row = json_pack("{s:s, s:s, s:s, s:s, s:s, s:O, s:O, s:O, s:[{}], s:[{}, {}], s:{}, s:{}}",
                        "turn", NAME, "ref", NAME, "waits_for", NAME, "last_error", NAME, "last",
                        NAME, "tenants", names, "pids", numbers, "done_step", numbers, "groups",
                        "paths", "tls", "connections");
        json_object_set_new(row, "node_id", json_string("0000000000000003"));
        json_array_append_new(two, row);
    }
    json_decref(names);
    json_decref(numbers);
    return two;
}

/* A root, and a chain of nodes that are each a line, since all are held. */
static json_t *tree(void)
{
    json_t *nodes = json_array();

    for (int i = 0; i < 12; i++) {
        char id[24], parent[24];

        snprintf(id, sizeof id, "%016x", i);
        snprintf(parent, sizeof parent, "%016x", i - 1);
        json_array_append_new(nodes,
                              json_pack("{s:i, s:s, s:o, s:o, s:I, s:i, s:I}", "slot", i, "id", id,
                                        "parent", i ? json_integer(i - 1) : json_null(),
                                        "parent_id", i ? json_string(parent) : json_null(), "depth",
                                        (json_int_t)i * UINT32_MAX / 12, "pages", i, "pool",
                                        (json_int_t)UINT32_MAX));
    }
    return nodes;
}

FIXTURE(lists_start)
{
    static const char *const names[] = {"pools", "sessions",   "records", "engines",  "peers",
                                        "disk",  "namespaces", "tickets", "transfers"};
    json_t *all = rows(), *engines, *row;
    size_t i;

    lists = json_pack("{s:{s:O, s:O, s:O, s:[], s:[]}, s:{s:O, s:O, s:{s:{}}, s:{s:{}}}}", "status",
                      "pools", all, "tenants", all, "figures", all, "shares", "alarms", "stats",
                      "tenants", all, "pools", all, "latencies", "fetch", "requests", NAME);
    for (i = 0; i < sizeof names / sizeof names[0]; i++)
        json_object_set_new(lists, names[i], json_pack("{s:O}", names[i], all));
    engines = json_deep_copy(all);
    json_array_foreach(engines, i, row)
        json_object_set_new(row, "engine", json_string("0000000100000001"));
    json_object_set_new(lists, "engines", json_pack("{s:o}", "engines", engines));
    json_object_set_new(lists, "tree", json_pack("{s:o}", "tree", tree()));
    json_decref(all);
    return 0;
}

FIXTURE(lists_end)
{
    json_decref(lists);
    return 0;
}

TEST_EACH(lists_start, lists_end);

static const struct command *const groups[] = {show_commands,  top_commands,  stats_commands,
                                               moves_commands, disk_commands, tree_commands};

/* ---- the cases ---- */

TEST(no_line_of_any_table_is_wider_than_100_columns)
{
    uint32_t tables = 0, lines;

    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++) {
        for (const struct command *c = groups[i]; c->name; c++) {
            if (!prints_tables(c))
                continue;
            run(c, false);
            assert_true(widest_line(c, &lines) <= TABLE_WIDTH);
            assert_true(lines >= 2);
            tables++;
        }
    }
    assert_int_equal(tables, 14);
}

TEST(wide_tables_show_every_name_whole_and_every_number_to_its_last_digit)
{
    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++) {
        for (const struct command *c = groups[i]; c->name; c++) {
            if (!prints_tables(c))
                continue;
            run(c, true);
            if (count_of(NAME) == 0)
                fail_msg("%s: %s", c->name, printed);
            assert_int_equal(count_of(NAME), count_of("a-nam"));
            assert_non_null(strstr(printed, "987,654,321,987,654,321"));
        }
    }
}

TEST(columns_that_are_shown_with_wide_alone_are_shown_then)
{
    static const char *const of[][2] = {{"status", "RECLAIMABLE"}, {"pools", "OTHER TIER"},
                                        {"sessions", "PIN AGE"},   {"engines", "RETIRING UNTIL"},
                                        {"peers", "INCARNATION"},  {"tree", "BORROWERS"}};
    uint32_t found = 0;

    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++) {
        for (const struct command *c = groups[i]; c->name; c++) {
            for (size_t k = 0; k < sizeof of / sizeof of[0]; k++) {
                if (strcmp(c->name, of[k][0]) != 0)
                    continue;
                run(c, false);
                assert_int_equal(count_of(of[k][1]), 0);
                run(c, true);
                assert_int_equal(count_of(of[k][1]) > 0, 1);
                found++;
            }
        }
    }
    assert_int_equal(found, sizeof of / sizeof of[0]);
}

/* The device's tier stands out from the host's. */
TEST(host_tier_is_dim_and_the_device_is_not)
{
    static const char *const tiers[] = {"host", "device"};
    const json_t *pools = json_object_get(json_object_get(lists, "pools"), "pools");

    for (size_t i = 0; i < 2; i++)
        json_object_set_new(json_array_get(pools, i), "tier", json_string(tiers[i]));
    for (const struct command *c = show_commands; c->name; c++) {
        if (strcmp(c->name, "pools") != 0)
            continue;
        run_as(c, (struct ctl){.colour = true, .once = true});
        assert_true(count_of("host") > 0 && count_of("device") > 0);
        assert_int_equal(count_of("\033[2mhost\033[0m"), count_of("host"));
        assert_int_equal(count_of("\033[2mdevice\033[0m"), 0);
    }
}

TEST(handles_are_whole_in_tables_that_are_cut)
{
    static const char *const lists_of_handles[] = {"pools", "sessions", "records", "transfers"};

    for (const struct command *c = show_commands; c->name; c++) {
        for (size_t i = 0; i < 4; i++) {
            if (strcmp(c->name, lists_of_handles[i]) != 0)
                continue;
            run(c, false);
            assert_non_null(strstr(printed, "00000001000000ff"));
        }
    }
}
