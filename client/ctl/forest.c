/* See forest.h. A node has whole chunks of L tokens. */
#include "forest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NO_PARENT         UINT64_MAX
#define HOLDERS_SHOWN_MAX 4    /* names of holders of one kind; the others are counted */
#define PARENTS_ASKED_MAX 4096 /* single requests for one snapshot of the tree */

static const char *const kinds[] = {"device", "retracted", "host", "transfer", "admin", "job"};

#define KINDS (sizeof(kinds) / sizeof(kinds[0]))

/* ---- the daemon's lists ---- */

static uint32_t slot_of(uint64_t id)
{
    return (uint32_t)id;
}

static int by_slot(const void *a, const void *b)
{
    const struct forest_node *x = a, *y = b;

    return slot_of(x->id) < slot_of(y->id) ? -1 : slot_of(x->id) > slot_of(y->id);
}

/* Returns the node of the list with that slot, of any generation. */
static struct forest_node *find_slot(const struct forest *f, uint64_t id)
{
    struct forest_node key = {.id = id};

    return f->n ? bsearch(&key, f->nodes, f->n, sizeof(key), by_slot) : NULL;
}

static struct forest_node *find(const struct forest *f, uint64_t id)
{
    struct forest_node *n = find_slot(f, id);

    return n && n->id == id ? n : NULL;
}

static uint64_t id_in(const json_t *row, const char *key, uint64_t absent)
{
    const char *id = json_string_value(json_object_get(row, key));

    return id ? strtoull(id, NULL, 16) : absent;
}

static void load_nodes(struct forest *f, const json_t *rows)
{
    uint32_t room = (uint32_t)json_array_size(rows);
    json_t *row;
    size_t i;

    *f = (struct forest){.nodes = calloc(room + 1u, sizeof(*f->nodes)),
                         .order = calloc(room + 1u, sizeof(*f->order)),
                         .lines = calloc(room + 1u, sizeof(*f->lines))};
    if (!f->nodes || !f->order || !f->lines)
        ctl_fail(CTL_FAILED, "no memory for a tree of that size: use --pool");
    json_array_foreach(rows, i, row)
    {
        f->nodes[f->n++] = (struct forest_node){
            .id = id_in(row, "id", 0),
            .parent = id_in(row, "parent_id", NO_PARENT),
            .at = (uint32_t)i,
            .line = NO_LINE,
            .row = row,
        };
    }
    qsort(f->nodes, f->n, sizeof(*f->nodes), by_slot);
}

/* ---- making one tree of a list that was read in pages ---- */

/* Returns the row of that node, or NULL; the caller owns it. */
static json_t *ask_node(struct ctl *ctl, uint64_t id)
{
    char from[32], limit[] = "limit=1";
    const char *const args[] = {from, limit};
    json_t *answer, *row;

    snprintf(from, sizeof(from), "from=%u", slot_of(id));
    answer = ctl_ask(ctl, "tree", args, 2);
    row = json_incref(json_array_get(json_object_get(answer, "tree"), 0));
    json_decref(answer);
    if (row && id_in(row, "id", NO_PARENT) == id)
        return row;
    json_decref(row);
    return NULL;
}

/* Requests each missing parent once. Returns true if some arrived, whose own parents may be
 * missing. */
static bool ask_parents(struct ctl *ctl, json_t *rows, json_t *asked)
{
    bool came = false;
    struct forest f;

    load_nodes(&f, rows);
    for (uint32_t i = 0; i < f.n && json_object_size(asked) < PARENTS_ASKED_MAX; i++) {
        uint64_t parent = f.nodes[i].parent;
        const struct forest_node *before = find_slot(&f, parent);
        char key[24];
        json_t *row;

        snprintf(key, sizeof(key), "%016llx", (unsigned long long)parent);
        if (parent == NO_PARENT || (before && before->id == parent) || json_object_get(asked, key))
            continue;
        json_object_set_new(asked, key, json_true());
        row = ask_node(ctl, parent);
        if (row && before) /* the node before is gone */
            json_array_set_new(rows, before->at, row);
        else if (row)
            json_array_append_new(rows, row);
        came |= row != NULL;
    }
    forest_free(&f);
    return came;
}

static int by_depth(const void *a, const void *b)
{
    const struct forest_node *const *x = a, *const *y = b;
    uint64_t p = j_u64((*x)->row, "depth"), q = j_u64((*y)->row, "depth");

    return p < q ? -1 : p > q;
}

/* Removes nodes without a path to a root, from the roots downwards; returns their number. */
static size_t prune(json_t *rows)
{
    json_t *kept = json_array();
    struct forest_node **sorted;
    struct forest f;
    size_t n;

    load_nodes(&f, rows);
    sorted = calloc(f.n + 1u, sizeof(struct forest_node *));
    if (!sorted || !kept)
        ctl_fail(CTL_FAILED, "no memory for a tree of that size: use --pool");
    for (uint32_t i = 0; i < f.n; i++)
        sorted[i] = &f.nodes[i];
    qsort(sorted, f.n, sizeof(struct forest_node *), by_depth);
    for (uint32_t i = 0; i < f.n; i++) {
        const struct forest_node *parent = find(&f, sorted[i]->parent);

        /* `level` marks nodes whose path is complete. */
        if (sorted[i]->parent != NO_PARENT && (!parent || parent->level == 0))
            continue;
        sorted[i]->level = 1;
        json_array_append(kept, sorted[i]->row);
    }
    n = f.n - json_array_size(kept);
    json_array_clear(rows);
    json_array_extend(rows, kept);
    json_decref(kept);
    free(sorted);
    forest_free(&f);
    return n;
}

static json_t *ask_tree(struct ctl *ctl)
{
    json_t *answer = ctl_list(ctl, "tree", ctl_pool_arg(ctl)), *asked = json_object();
    json_t *rows = json_object_get(answer, "tree");

    while (ask_parents(ctl, rows, asked))
        ;
    json_object_set_new(answer, "left_out", json_integer((json_int_t)prune(rows)));
    json_decref(asked);
    return answer;
}

/* ---- holders ---- */

static void add_holder(json_t *row, const char *kind, const char *who, const char *id, double since)
{
    json_array_append_new(
        json_object_get(row, "holders"),
        json_pack("{s:s, s:s, s:s*, s:f}", "kind", kind, "who", who, "id", id, "since_s", since));
}

/* Returns the row of the node that a row of another list names, if the node is still the same. */
static json_t *held_by(const struct forest *f, const json_t *row)
{
    const struct forest_node *n = find(f, id_in(row, "node_id", NO_PARENT));

    return n ? n->row : NULL;
}

static void join_sessions(struct ctl *ctl, const struct forest *f)
{
    json_t *answer = ctl_list(ctl, "sessions", NULL), *row;
    size_t i;

    json_array_foreach(json_object_get(answer, "sessions"), i, row)
    {
        json_t *node = held_by(f, row);

        if (node)
            add_holder(node, j_str(row, "ref"), j_str(row, "engine"), j_str(row, "session"),
                       j_f64(row, "ref_s"));
    }
    json_decref(answer);
}

static void join_transfers(struct ctl *ctl, const struct forest *f)
{
    json_t *answer = ctl_list(ctl, "transfers", NULL), *row;
    size_t i;

    json_array_foreach(json_object_get(answer, "transfers"), i, row)
    {
        json_t *node = held_by(f, row);

        if (node)
            add_holder(node, "transfer",
                       strcmp(j_str(row, "direction"), "in") == 0 ? j_str(row, "peer") : "out",
                       j_str(row, "transfer"), j_f64(row, "age_s"));
    }
    json_decref(answer);
}

json_t *forest_ask(struct ctl *ctl)
{
    json_t *answer = ask_tree(ctl);
    struct forest f;

    load_nodes(&f, json_object_get(answer, "tree"));
    for (uint32_t i = 0; i < f.n; i++)
        json_object_set_new(f.nodes[i].row, "holders", json_array());
    if (f.n > 0) {
        join_sessions(ctl, &f);
        join_transfers(ctl, &f);
    }
    for (uint32_t i = 0; i < f.n; i++) {
        if (forest_refs(&f.nodes[i], "admin") > 0)
            add_holder(f.nodes[i].row, "admin", "", NULL, j_f64(f.nodes[i].row, "admin_s"));
    }
    forest_free(&f);
    return answer;
}

/* ---- kinds of nodes ---- */

uint64_t forest_refs(const struct forest_node *n, const char *kind)
{
    return j_u64(json_object_get(n->row, "refs"), kind);
}

bool forest_held(const struct forest_node *n)
{
    for (size_t i = 0; i < KINDS; i++) {
        if (forest_refs(n, kinds[i]) > 0)
            return true;
    }
    return false;
}

const char *forest_tier(const struct forest_node *n)
{
    const char *tier = j_str(n->row, "tier");

    if (j_u64(n->row, "depth") == 0)
        return "";
    if (j_bool(n->row, "copying"))
        return strcmp(tier, "host") == 0 ? "host>device" : "device>host";
    return tier;
}

static void add_text(FILE *f, const char *kind, const char *who, uint64_t count, double since)
{
    fprintf(f, "%s%s%s", ftell(f) > 0 ? ", " : "", kind, who[0] ? " " : "");
    fputs(who, f);
    if (count > 1)
        fprintf(f, " x%llu", (unsigned long long)count);
    if (since >= 0)
        fprintf(f, " %s", human_age(since));
}

/* Collects holders of one kind and sums up those of one name; the text names some, *more counts the
 * others. Returns their number. */
static uint64_t add_kind(FILE *f, const json_t *holders, const char *kind, uint64_t *more)
{
    struct {
        const char *who;
        uint64_t count;
        double since;
    } crowd[HOLDERS_SHOWN_MAX];
    uint64_t of_kind = 0;
    uint32_t n = 0;
    const json_t *h;
    size_t i;

    json_array_foreach(holders, i, h)
    {
        const char *who = j_str(h, "who");
        double since = j_f64(h, "since_s");
        uint32_t at = 0;

        if (strcmp(j_str(h, "kind"), kind) != 0)
            continue;
        of_kind++;
        while (at < n && strcmp(crowd[at].who, who) != 0)
            at++;
        if (at == HOLDERS_SHOWN_MAX) {
            *more += 1;
            continue;
        }
        if (at == n)
            crowd[n++].count = 0;
        crowd[at].who = who;
        crowd[at].since =
            crowd[at].count++ == 0 || since > crowd[at].since ? since : crowd[at].since;
    }
    for (uint32_t k = 0; k < n; k++)
        add_text(f, kind, crowd[k].who, crowd[k].count, crowd[k].since);
    return of_kind;
}

char *forest_holders(const struct forest_node *n)
{
    const json_t *holders = json_object_get(n->row, "holders");
    uint64_t more = 0, admin = forest_refs(n, "admin");
    char *text = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&text, &bytes);

    if (!f)
        ctl_fail(CTL_FAILED, "no memory");
    if (admin > 0)
        add_text(f, "admin", "", admin, j_f64(n->row, "admin_s"));
    for (size_t i = 0; i < KINDS; i++) {
        uint64_t refs = forest_refs(n, kinds[i]), known;

        if (strcmp(kinds[i], "admin") == 0)
            continue;
        known = add_kind(f, holders, kinds[i], &more);
        /* Counts holders in no list: jobs, and sessions that were closed meanwhile. */
        if (refs > known)
            add_text(f, kinds[i], "", refs - known, -1);
    }
    if (more > 0)
        fprintf(f, ", %llu more", (unsigned long long)more);
    if (fclose(f) != 0)
        ctl_fail(CTL_FAILED, "no memory");
    return text;
}

/* ---- lines ---- */

/* Sorts by parent: counts the children of each node first, then assigns their places. */
static void group(struct forest *f)
{
    uint32_t at = 0;

    for (uint32_t i = 0; i < f->n; i++) {
        struct forest_node *parent = find(f, f->nodes[i].parent);

        if (parent)
            parent->children++;
        else
            f->order[at++] = i;
    }
    f->roots = at;
    for (uint32_t i = 0; i < f->n; i++) {
        f->nodes[i].first = at;
        at += f->nodes[i].children;
        f->nodes[i].children = 0;
    }
    for (uint32_t i = 0; i < f->n; i++) {
        struct forest_node *parent = find(f, f->nodes[i].parent);

        if (parent)
            f->order[parent->first + parent->children++] = i;
    }
}

/* Returns true if the only child may be on its parent's line. */
static bool alike(const struct forest_node *a, const struct forest_node *b)
{
    return j_u64(a->row, "depth") > 0 && !forest_held(a) && !forest_held(b) &&
           strcmp(forest_tier(a), forest_tier(b)) == 0 &&
           j_bool(a->row, "visible") == j_bool(b->row, "visible") &&
           j_bool(a->row, "sealed") == j_bool(b->row, "sealed") &&
           j_bool(a->row, "resumable") == j_bool(b->row, "resumable") &&
           j_bool(a->row, "reclaimable") == j_bool(b->row, "reclaimable") &&
           j_u64(a->row, "borrowers") == j_u64(b->row, "borrowers") &&
           (j_u64(a->row, "state_pages") > 0) == (j_u64(b->row, "state_pages") > 0);
}

static void line_take(struct forest_line *l, const json_t *row)
{
    uint64_t pages = j_u64(row, "pages"), host = j_u64(row, "host_pages");
    double age = j_f64(row, "age_s");

    l->youngest = l->nodes == 0 || age < l->youngest ? age : l->youngest;
    l->oldest = age > l->oldest ? age : l->oldest;
    l->nodes++;
    l->pages += pages;
    l->host_pages += host;
    l->width += pages > host ? pages : host;
    l->state_pages += j_u64(row, "state_pages");
    l->to = j_u64(row, "depth");
}

/* Makes a line of the node and all nodes that may be on it; returns the last of them. */
static struct forest_node *take_line(struct forest *f, struct forest_node *n)
{
    const struct forest_node *parent = find(f, n->parent);
    struct forest_line *l = &f->lines[f->nlines];

    *l = (struct forest_line){.from = parent ? j_u64(parent->row, "depth") : 0,
                              .parent = parent ? parent->line : NO_LINE};
    for (;;) {
        struct forest_node *child = n->children == 1 ? &f->nodes[f->order[n->first]] : NULL;

        n->line = f->nlines;
        line_take(l, n->row);
        if (!child || !alike(n, child))
            break;
        child->level = n->level;
        n = child;
    }
    l->last = n;
    f->nlines++;
    return n;
}

void forest_load(struct forest *f, const json_t *answer)
{
    uint32_t *stack, depth = 0;

    load_nodes(f, json_object_get(answer, "tree"));
    group(f);
    stack = calloc(f->n + 1u, sizeof(*stack));
    if (!stack)
        ctl_fail(CTL_FAILED, "no memory for a tree of that size: use --pool");
    for (uint32_t i = f->roots; i-- > 0;)
        stack[depth++] = f->order[i];
    while (depth > 0) {
        const struct forest_node *n = take_line(f, &f->nodes[stack[--depth]]);

        for (uint32_t i = n->children; i-- > 0;) {
            uint32_t child = f->order[n->first + i];

            f->nodes[child].level = n->level + 1;
            stack[depth++] = child;
        }
    }
    free(stack);
}

void forest_free(struct forest *f)
{
    free(f->nodes);
    free(f->order);
    free(f->lines);
}
