/* ternctl's view of the tree from lists as a daemon sends them: which session holds which node,
 * which nodes are one line, and the drawing: folded branches, its largest size, escaped text. These
 * parts of ternctl are compiled in, and answers are made here. */
#include <stdlib.h>
#include <unistd.h>

#include "../../../client/ctl/answer.c"
#include "../../../client/ctl/forest.c"
#include "../../../client/ctl/svg.c"
#include "../../../client/ctl/table.c"
#include "testing/test.h"
#include "unit/rig/rig_ctl.h"

#define HAND_SLOT 9u /* generation in the ids of the made-up nodes */

static json_t *lists;  /* {"tree": [...], "sessions": [...], "transfers": [...], "now": [...]} */
static uint32_t asked; /* nodes of "now" */

/* ---- in place of ask.c ---- */

json_t *ctl_list(struct ctl *ctl, const char *list, const char *arg)
{
    (void)ctl;
    (void)arg;
    return json_pack("{s:o}", list, json_deep_copy(json_object_get(lists, list)));
}

/* One node: the present contents of its slot. */
json_t *ctl_ask(struct ctl *ctl, const char *command, const char *const *args, uint32_t nargs)
{
    json_t *rows = json_array(), *now;
    size_t i;

    (void)ctl;
    assert_string_equal(command, "tree");
    assert_int_equal(nargs, 2);
    asked++;
    json_array_foreach(json_object_get(lists, "now"), i, now)
    {
        if (strtoull(args[0] + strlen("from="), NULL, 10) ==
            (uint64_t)json_integer_value(json_object_get(now, "slot")))
            json_array_append(rows, now);
    }
    return json_pack("{s:o}", "tree", rows);
}

const char *ctl_pool_arg(struct ctl *ctl)
{
    (void)ctl;
    return NULL;
}

/* ---- made-up lists ---- */

static struct forest f; /* the case's */
static json_t *answer;
static char *picture; /* the last one drawn */

FIXTURE(lists_start)
{
    lists = json_pack("{s:[], s:[], s:[], s:[]}", "tree", "sessions", "transfers", "now");
    asked = 0;
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

/* Reads the lists as they are now. */
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

/* Adds a node: a root if `parent` is -1; else a chunk of 64 tokens with 2 pages. */
static uint32_t node(int parent)
{
    uint32_t slot = tree_size();
    uint64_t depth = parent < 0 ? 0 : j_u64(row((uint32_t)parent), "depth") + 64;

    json_array_append_new(
        json_object_get(lists, "tree"),
        json_pack("{s:i, s:s, s:o, s:i, s:s, s:I, s:i, s:i, s:s, s:b, s:{s:i, s:i, s:i}, s:f, s:b, "
                  "s:b, s:b, s:b, s:i, s:i}",
                  "slot", (int)slot, "id", id_of(slot), "parent_id",
                  parent < 0 ? json_null() : json_string(id_of((uint32_t)parent)), "pool", 0,
                  "namespace", "b7864b9f", "depth", (json_int_t)depth, "pages", depth ? 2 : 0,
                  "host_pages", 0, "tier", "device", "copying", 0, "refs", "device", 0, "transfer",
                  0, "host", 0, "age_s", 3.0, "visible", 1, "sealed", 1, "resumable", 0,
                  "reclaimable", 0, "borrowers", 0, "state_pages", 0));
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

    /* The root; 0..64; 64..128, which is held; 128..256; its branches 256..320, 320..384 (on the
     * host) and 256..448. */
    assert_int_equal(f.nlines, 7);
    assert_int_equal(f.lines[1].to, 64);
    assert_int_equal(f.lines[2].to, 128);
    assert_int_equal(f.lines[2].nodes, 1);
    assert_true(f.lines[3].from == 128 && f.lines[3].to == 256 && f.lines[3].nodes == 2);
    assert_true(f.lines[5].from == 320 && f.lines[5].pages == 0 && f.lines[5].host_pages == 2);
    assert_int_equal(f.lines[5].width, 2);
    assert_string_equal(forest_tier(f.lines[5].last), "host");
    assert_true(f.lines[6].from == 256 && f.lines[6].nodes == 3 && f.lines[6].parent == 3);
}

/* ---- a list that was read in pages ---- */

static json_t *with_id(const char *id)
{
    json_t *r;
    size_t i;

    json_array_foreach(json_object_get(answer, "tree"), i, r)
    {
        if (strcmp(j_str(r, "id"), id) == 0)
            return r;
    }
    return NULL;
}

/* Asserts that each row's parent is in the list, at a lesser depth. */
static void assert_one_picture(uint32_t rows, uint32_t left_out)
{
    json_t *all = json_object_get(answer, "tree"), *r;
    size_t i;

    json_array_foreach(all, i, r)
    {
        const char *parent = json_string_value(json_object_get(r, "parent_id"));

        if (parent && !with_id(parent))
            fail_msg("%s: its parent %s is not in the picture", j_str(r, "id"), parent);
        if (parent)
            assert_true(j_u64(with_id(parent), "depth") < j_u64(r, "depth"));
    }
    assert_int_equal(json_array_size(all), rows);
    assert_int_equal(j_u64(answer, "left_out"), left_out);
    assert_int_equal(f.n, rows);
    assert_int_equal(f.roots, rows > 0);
}

/* Moves a row from the list to the present contents of its slot. */
static void came_later(uint32_t slot)
{
    json_t *all = json_object_get(lists, "tree");

    json_array_append(json_object_get(lists, "now"), json_array_get(all, slot));
    json_array_remove(all, slot);
}

static void rename_node(uint32_t slot, uint32_t generation)
{
    set(slot, "id", json_sprintf("%08x%08x", generation, slot));
}

TEST(parents_that_came_after_their_page_was_read_are_asked_for)
{
    uint32_t root = node(-1);

    chain(root, 3);
    came_later(2);
    came_later(1);
    ask();
    assert_one_picture(4, 0);
    assert_int_equal(asked, 2);
}

TEST(a_node_takes_the_place_of_what_had_its_slot_before)
{
    uint32_t root = node(-1), other;

    chain(root, 2); /* slots 1 and 2 */
    came_later(1);
    /* When the page with slot 1 was read, another node had that slot, with a child. */
    other = tree_size();
    json_array_insert_new(json_object_get(lists, "tree"), 1, json_deep_copy(row(1)));
    set(1, "slot", json_integer(1));
    set(1, "parent_id", json_string(id_of(root)));
    rename_node(1, HAND_SLOT - 1);
    assert_int_equal(other, 2);
    ask();
    assert_one_picture(3, 0);
    assert_non_null(with_id(id_of(1)));
}

TEST(nodes_whose_parent_has_gone_are_left_out_with_all_that_hangs_from_them)
{
    uint32_t root, gone, end;

    root = node(-1);
    gone = chain(root, 1);
    end = chain(gone, 2);
    set(end, "pages", json_integer(1));
    chain(root, 1);
    rename_node(gone, HAND_SLOT + 1); /* another node has its slot now, and no child */
    ask();
    assert_one_picture(3, 2);
    assert_null(with_id(id_of(end)));
    assert_int_equal(asked, 1);
}

TEST(a_list_without_a_way_to_the_root_ends)
{
    uint32_t root, a, b;

    root = node(-1);
    a = chain(root, 1);
    b = chain(a, 1);
    set(a, "parent_id", json_string(id_of(b))); /* a ring, which no daemon sends */
    ask();
    assert_one_picture(1, 2);
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
    /* Another generation of the slot: the node that it names is gone. */
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

/* A control character of Latin-1 begins a command as ESC [ does, also if it comes as UTF-8. */
TEST(tables_show_what_others_have_named)
{
    static const char *const titles[] = {"<NAME"};
    const struct ctl ctl = {0};
    struct table t;

    table_init(&t, &ctl, titles, 1);
    table_add(&t, PLAIN, "%s",
              "a\033[31m\x7f \xc2\x9b"
              "2J\x9b\xc3\xab~");
    assert_string_equal(t.cell[0].text, "a\\x1b[31m\\x7f \\u009b2J\\x9b\xc3\xab~");
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
    assert_non_null(strstr(picture, "&lt;script&gt;&amp;&quot;\\x1b[31m"));
    assert_non_null(strstr(picture, "a&lt;b&gt;&amp;\\x01"));
}

TEST(drawings_mark_resume_points_pins_and_tiers)
{
    struct svg_drawn d;
    uint32_t base;

    chain(node(-1), 6);
    draws(&d, "n");
    base = count_of(picture, "<circle");
    assert_int_equal(base, 1); /* in the legend */
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

/* A name is written in its cell if it has room, and each tree has one header. */
TEST(drawings_name_each_tree_and_each_cell_once)
{
    struct svg_drawn d;
    uint32_t end;

    end = chain((uint32_t)node(-1), 2);
    chain(end, 1);
    for (uint32_t i = 0; i < 3; i++)
        chain(end, 60);
    chain((uint32_t)node(-1), 100);
    draws(&d, "n");
    assert_int_equal(count_of(picture, "class=\"b\">pool 0, namespace b7864b9f: "), 2);
    assert_int_equal(count_of(picture, ">0..6400, 200 pages</text>"), 1);
    assert_int_equal(count_of(picture, ">128..3968, 120 pages</text>"), 3);
    assert_int_equal(count_of(picture, "></text>"), 0); /* one page is too narrow for it */
}

/* Lines of the axis: from the root to the last page, if that is a round number. */
static void axis_of(uint32_t pages, uint32_t lines, const char *last)
{
    struct svg_drawn d;

    lists_anew();
    chain(node(-1), pages / 2);
    draws(&d, "n");
    assert_int_equal(count_of(picture, "<path class=\"a\""), lines);
    assert_non_null(strstr(picture, last));
}

TEST(drawings_have_a_line_at_every_round_number_of_pages)
{
    axis_of(4, 5, ">4</text>");
    axis_of(20, 5, ">20</text>");
    axis_of(22, 5, ">20</text>");
}

/* Far more branches than a sheet has rows: small ones are folded and counted, the large one stays.
 * One path of any length is bounded, too. */
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

/* ---- lines avoid labels ---- */

struct text_box {
    double x, y;
    size_t letters;
};

/* Places of the plot's texts, whose letters are about 6 wide and 9 high. */
static uint32_t text_boxes(struct text_box *ret, uint32_t max)
{
    uint32_t n = 0;

    for (const char *at = picture; (at = strstr(at, "<text x=")) != NULL && n < max; at++) {
        const char *text = strchr(at, '>');

        assert_int_equal(sscanf(at, "<text x=\"%lf\" y=\"%lf\"", &ret[n].x, &ret[n].y), 2);
        ret[n].letters = (size_t)(strchr(text, '<') - text) - 1;
        n += ret[n].y > PLOT_TOP;
    }
    return n;
}

/* The number of pieces in paths of that class; none may meet a text. */
static uint32_t pieces_beside(const char *class, const struct text_box *boxes, uint32_t n)
{
    double x, from, to;
    uint32_t pieces = 0;

    for (const char *at = picture; (at = strstr(at, class)) != NULL; at++) {
        const char *end = strchr(at, '>');

        for (const char *m = strchr(at, 'M'); m && m < end; m = strchr(m + 1, 'M')) {
            assert_int_equal(sscanf(m, "M%lf %lfV%lf", &x, &from, &to), 3);
            pieces++;
            for (uint32_t i = 0; i < n; i++) {
                if (x > boxes[i].x && x < boxes[i].x + 6.0 * (double)boxes[i].letters &&
                    from < boxes[i].y && to > boxes[i].y - 9)
                    fail_msg("a line at %.1f from %.1f to %.1f meets the text at %.1f, %.1f", x,
                             from, to, boxes[i].x, boxes[i].y);
            }
        }
    }
    return pieces;
}

TEST(lines_of_drawings_keep_out_of_their_labels)
{
    struct text_box boxes[64];
    struct svg_drawn d;
    uint32_t n;

    for (uint32_t root = 0; root < 3; root++) { /* one below another, of different lengths */
        uint32_t end = chain((uint32_t)node(-1), 8 + 30 * root);

        session_holds(end, "device", "an-engine-of-a-long-name-that-reaches-far", 1);
    }
    draws(&d, "n");
    n = text_boxes(boxes, 64);
    assert_true(n >= 3 * 3); /* header, name and holder of each */
    assert_true(pieces_beside("class=\"a\"", boxes, n) > count_of(picture, "class=\"a\""));
    assert_true(pieces_beside("class=\"k\"", boxes, n) > 3 * 8);
}
