/* ternctl's view of the tree from lists as a daemon sends them: who holds which node, which nodes
 * are one line, and the drawing: what is folded, how large it can get, what is escaped. The parts
 * of ternctl are compiled in, and answers are given in place of a daemon. */
#include <stdlib.h>
#include <unistd.h>

#include "../../../client/ctl/forest.c"
#include "../../../client/ctl/svg.c"
#include "../../../client/ctl/table.c"
#include "testing/test.h"

#define HAND_SLOT 9u /* generation in the ids of the made-up nodes */

static json_t *lists; /* {"tree": [...], "sessions": [...], "transfers": [...]} */

/* ---- in place of ask.c ---- */

void ctl_fail(enum ctl_exit status, const char *format, ...)
{
    fail_msg("%d: %s", (int)status, format);
    abort();
}

json_t *ctl_list(struct ctl *ctl, const char *list, const char *arg)
{
    (void)ctl;
    (void)arg;
    return json_pack("{s:o}", list, json_deep_copy(json_object_get(lists, list)));
}

const char *ctl_pool_arg(struct ctl *ctl)
{
    (void)ctl;
    return NULL;
}

uint64_t j_u64(const json_t *object, const char *key)
{
    return (uint64_t)json_integer_value(json_object_get(object, key));
}

double j_f64(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

const char *j_str(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));

    return text ? text : "-";
}

bool j_bool(const json_t *object, const char *key)
{
    return json_is_true(json_object_get(object, key));
}

/* ---- made-up lists ---- */

static struct forest f; /* the case's */
static json_t *answer;
static char *picture; /* the last one drawn */

FIXTURE(lists_start)
{
    lists = json_pack("{s:[], s:[], s:[]}", "tree", "sessions", "transfers");
    return 0;
}

static void forest_drop(void)
{
    if (answer)
        forest_free(&f);
    json_decref(answer);
    answer = NULL;
}

FIXTURE(lists_end)
{
    forest_drop();
    json_decref(lists);
    free(picture);
    picture = NULL;
    return 0;
}

TEST_EACH(lists_start, lists_end);

static void lists_anew(void)
{
    lists_end(NULL);
    lists_start(NULL);
}

/* As the lists are now. */
static void ask(void)
{
    struct ctl ctl = {0};

    forest_drop();
    answer = forest_ask(&ctl);
    forest_load(&f, answer);
}

static uint32_t tree_size(void)
{
    return (uint32_t)json_array_size(json_object_get(lists, "tree"));
}

static json_t *row(uint32_t slot)
{
    return json_array_get(json_object_get(lists, "tree"), slot);
}

static void set(uint32_t slot, const char *key, json_t *value)
{
    json_object_set_new(row(slot), key, value);
}

static char *id_of(uint32_t slot)
{
    static char text[4][24];
    static uint32_t at;
    char *out = text[at++ % 4];

    snprintf(out, sizeof(text[0]), "%016llx", (unsigned long long)HAND_SLOT << 32 | slot);
    return out;
}

/* A root if there is no parent (-1); else a chunk of 64 tokens, 2 pages. */
static uint32_t node(int parent)
{
    uint32_t slot = tree_size();
    uint64_t depth = parent < 0 ? 0 : j_u64(row((uint32_t)parent), "depth") + 64;

    json_array_append_new(
        json_object_get(lists, "tree"),
        json_pack("{s:i, s:s, s:o, s:i, s:s, s:I, s:i, s:i, s:s, s:b, s:{s:i, s:i, s:i}, s:f, s:b, "
                  "s:b, s:b, s:b, s:i, s:i}",
                  "slot", (int)slot, "id", id_of(slot), "parent",
                  parent < 0 ? json_null() : json_integer(parent), "pool", 0, "namespace",
                  "b7864b9f", "depth", (json_int_t)depth, "pages", depth ? 2 : 0, "host_pages", 0,
                  "tier", "device", "copying", 0, "refs", "device", 0, "transfer", 0, "host", 0,
                  "age_s", 3.0, "visible", 1, "sealed", 1, "resumable", 0, "reclaimable", 0,
                  "borrowers", 0, "state_pages", 0));
    return slot;
}

static uint32_t chain(uint32_t from, uint32_t n)
{
    while (n-- > 0)
        from = node((int)from);
    return from;
}

static void session_holds(uint32_t slot, const char *kind, const char *engine, double since)
{
    json_t *refs = json_object_get(row(slot), "refs");

    json_object_set_new(refs, kind, json_integer((json_int_t)j_u64(refs, kind) + 1));
    json_array_append_new(json_object_get(lists, "sessions"),
                          json_pack("{s:s, s:s, s:s, s:s, s:f}", "session", "0000000100000001",
                                    "engine", engine, "node_id", id_of(slot), "ref", kind, "ref_s",
                                    since));
}

/* ---- lines ---- */

TEST(lines_end_at_branches_at_what_is_held_and_where_nodes_differ)
{
    uint32_t root, at, last;

    root = node(-1);
    at = chain(root, 4);
    last = chain(at, 2);
    chain(at, 3);
    set(last, "tier", json_string("host"));
    set(last, "pages", json_integer(0));
    set(last, "host_pages", json_integer(2));
    session_holds(2, "device", "decode-0", 1);
    ask();

    /* The root; 0..64; 64..128, which is held; 128..256; its branches: 256..320, 320..384 on the
     * host; 256..448. */
    assert_int_equal(f.nlines, 7);
    assert_int_equal(f.lines[1].to, 64);
    assert_int_equal(f.lines[2].to, 128);
    assert_int_equal(f.lines[2].nodes, 1);
    assert_true(f.lines[3].from == 128 && f.lines[3].to == 256 && f.lines[3].nodes == 2);
    assert_true(f.lines[5].from == 320 && f.lines[5].pages == 0 && f.lines[5].host_pages == 2);
    assert_int_equal(f.lines[5].width, 2);
    assert_string_equal(forest_tier(f.lines[5].last), "host");
    assert_true(f.lines[6].from == 256 && f.lines[6].nodes == 3 && f.lines[6].parent == 3);
    assert_int_equal(f.hidden, 0);
}

TEST(nodes_that_moved_are_shown_apart_or_counted_never_followed_for_ever)
{
    uint32_t root, a, b;

    root = node(-1);
    a = chain(root, 1);
    b = chain(a, 1);
    chain(b, 1);
    set(a, "parent", json_integer((json_int_t)b)); /* a ring */
    set(b, "parent", json_integer((json_int_t)a));
    ask();
    assert_int_equal(f.nlines, 1);
    assert_int_equal(f.hidden, 3);

    set(a, "parent", json_integer(77)); /* not in the list */
    ask();
    assert_int_equal(f.roots, 2);
    assert_int_equal(f.hidden, 0);
}

/* ---- holders ---- */

static void assert_holders(const struct forest_node *n, const char *wanted)
{
    char *text = forest_holders(n);

    assert_string_equal(text, wanted);
    free(text);
}

TEST(holders_are_named_together_by_kind_with_the_longest_of_them)
{
    chain(node(-1), 3);
    session_holds(1, "device", "decode-0", 2);
    session_holds(1, "device", "decode-1", 4);
    session_holds(1, "device", "decode-0", 9);
    session_holds(1, "host", "prefill", 600);
    json_object_set_new(json_object_get(row(2), "refs"), "admin", json_integer(2));
    set(2, "admin_s", json_real(30));
    json_object_set_new(json_object_get(row(2), "refs"), "transfer", json_integer(2));
    json_array_append_new(json_object_get(lists, "transfers"),
                          json_pack("{s:s, s:s, s:s, s:s, s:f}", "transfer", "0", "direction", "in",
                                    "peer", "host-a", "node_id", id_of(2), "age_s", 0.25));
    /* Another generation of that slot: the node that it named is gone. */
    json_array_append_new(json_object_get(lists, "sessions"),
                          json_pack("{s:s, s:s, s:s, s:f}", "engine", "old", "node_id",
                                    "0000000100000003", "ref", "device", "ref_s", 1.0));
    ask();
    assert_holders(&f.nodes[0], "");
    assert_holders(&f.nodes[1], "device decode-0 x2 9.0 s, device decode-1 4.0 s, host prefill 10 "
                                "min");
    assert_holders(&f.nodes[2], "admin x2 30.0 s, transfer host-a 250 ms, transfer");
    assert_holders(&f.nodes[3], "");
}

TEST(holders_of_many_names_are_counted)
{
    char name[16];

    node(-1);
    for (uint32_t i = 0; i < 7; i++) {
        snprintf(name, sizeof(name), "e%u", i);
        session_holds(0, "device", name, 1);
    }
    ask();
    assert_holders(&f.nodes[0],
                   "device e0 1.0 s, device e1 1.0 s, device e2 1.0 s, device e3 1.0 s, 3 more");
}

/* ---- the drawing ---- */

static void draws(struct svg_drawn *ret, const char *name)
{
    char path[] = "/tmp/tern-svg-XXXXXX";
    int fd = mkstemp(path);
    FILE *file;
    size_t n;

    assert_true(fd >= 0);
    ask();
    *ret = svg_write(&f, name, path);
    file = fdopen(fd, "r");
    free(picture);
    picture = calloc(1, 8u << 20);
    n = fread(picture, 1, (8u << 20) - 1, file);
    assert_true(n > 0 && n < (8u << 20) - 1);
    fclose(file);
    unlink(path);
    assert_true(strcmp(picture + n - 7, "</svg>\n") == 0);
}

static uint32_t count_of(const char *text, const char *what)
{
    uint32_t n = 0;

    for (; (text = strstr(text, what)) != NULL; text += strlen(what))
        n++;
    return n;
}

/* A control of Latin-1 begins a command as ESC [ does, also where it comes as UTF-8. */
TEST(tables_show_what_others_have_named_as_ascii)
{
    static const char *const titles[] = {"<NAME"};
    const struct ctl ctl = {0};
    struct table t;

    table_init(&t, &ctl, titles, 1);
    table_add(&t, PLAIN, "%s",
              "a\033[31m\x7f \xc2\x9b"
              "2J\x9b~");
    assert_string_equal(t.cell[0].text, "a?[31m? ??2J?~");
    table_print(&t, "");
}

TEST(drawings_escape_what_others_have_named)
{
    struct svg_drawn d;

    chain(node(-1), 2);
    session_holds(2, "device", "<script>&\"\033[31m", 1);
    draws(&d, "a<b>&\x01");
    assert_null(strstr(picture, "<script>"));
    assert_null(strstr(picture, "a<b>"));
    assert_null(strchr(picture, '\033'));
    assert_null(strchr(picture, '\x01'));
    assert_non_null(strstr(picture, "&lt;script&gt;&amp;&quot;?[31m"));
    assert_non_null(strstr(picture, "a&lt;b&gt;&amp;?"));
}

TEST(drawings_mark_resume_points_pins_and_tiers)
{
    struct svg_drawn d;
    uint32_t base;

    chain(node(-1), 6);
    draws(&d, "n");
    base = count_of(picture, "<circle");
    assert_int_equal(base, 1); /* the legend's */
    assert_int_equal(d.cells, 1);
    set(3, "resumable", json_true());
    set(4, "tier", json_string("both"));
    set(5, "copying", json_true());
    json_object_set_new(json_object_get(row(6), "refs"), "admin", json_integer(1));
    draws(&d, "n");
    assert_int_equal(d.cells, 5);
    assert_int_equal(count_of(picture, "<circle"), base + 1);
    assert_int_equal(count_of(picture, "fill=\"" COLOUR_BOTH "\""), 2); /* one in the legend */
    assert_int_equal(count_of(picture, "fill=\"url(#copying)\""), 2);
    assert_int_equal(count_of(picture, "class=\"p\""), 2);
}

/* Far more branches than a sheet has rows: the small ones are folded and counted, the large one
 * stays; and one way down of any length is bounded too. */
TEST(drawings_are_bounded_and_say_what_is_folded)
{
    struct svg_drawn d;
    uint32_t root, at;

    root = node(-1);
    for (uint32_t i = 0; i < 5 * ROWS_MAX; i++)
        chain(root, 1 + (i == 77) * 40);
    draws(&d, "n");
    assert_int_equal(d.folded, 5 * ROWS_MAX - 1);
    assert_int_equal(d.cells, 1);
    assert_non_null(strstr(picture, "1999 branches: 1,999 nodes, 3,998 pages"));
    assert_non_null(strstr(picture, "tokens 0..2624"));
    lists_anew();
    at = node(-1);
    for (uint32_t i = 0; i < 3 * CELLS_MAX; i++) {
        at = node((int)at);
        set(at, "resumable", json_boolean(i % 2));
    }
    draws(&d, "n");
    assert_true(d.cells > CELLS_MAX / 4 && d.cells <= CELLS_MAX);
    assert_int_equal(d.cells + d.folded, 3 * CELLS_MAX);
    lists_anew();
    for (uint32_t i = 0; i < 2 * ROWS_MAX; i++)
        node(-1);
    draws(&d, "n");
    assert_int_equal(d.folded, 2 * ROWS_MAX);
    lists_anew();
    draws(&d, "n");
    assert_non_null(strstr(picture, "is empty"));
}
