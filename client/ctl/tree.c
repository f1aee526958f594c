/* `ternctl tree`: the prefix tree as indented lines. A node has whole chunks of L tokens; nodes in
 * a row that have one child each, and are held and seen alike, are one line with the depths
 * from..to. The list comes in pages while the daemon goes on, so a node may be there without its
 * parent: it is then shown as the start of a tree of its own, and one that a moved parent has
 * hidden is counted, never followed for ever. */
#include "ctl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INDENT_MAX 40 /* levels; deeper branches are not moved further to the right */

struct node {
    uint64_t slot, parent;    /* NO_PARENT: a root */
    uint32_t first, children; /* places in `order` of its children */
    uint32_t level;
    bool shown;
    const json_t *row;
};

#define NO_PARENT UINT64_MAX

struct forest {
    struct node *nodes; /* ascending slots */
    uint32_t *order;    /* nodes, grouped by parent; roots first */
    uint32_t n, roots;
};

static int by_slot(const void *a, const void *b)
{
    const struct node *x = a, *y = b;

    return x->slot < y->slot ? -1 : x->slot > y->slot;
}

static struct node *find(const struct forest *f, uint64_t slot)
{
    struct node key = {.slot = slot};

    return f->n ? bsearch(&key, f->nodes, f->n, sizeof(key), by_slot) : NULL;
}

static void load(struct forest *f, const json_t *rows)
{
    uint32_t room = (uint32_t)json_array_size(rows);
    json_t *row;
    size_t i;

    f->nodes = calloc(room + 1u, sizeof(*f->nodes));
    f->order = calloc(room + 1u, sizeof(*f->order));
    if (!f->nodes || !f->order)
        ctl_fail(CTL_FAILED, "no memory for a tree of that size: use --pool or --json");
    json_array_foreach(rows, i, row)
    {
        const json_t *parent = json_object_get(row, "parent");

        f->nodes[f->n++] = (struct node){
            .slot = j_u64(row, "slot"),
            .parent = json_is_integer(parent) ? (uint64_t)json_integer_value(parent) : NO_PARENT,
            .row = row,
        };
    }
    qsort(f->nodes, f->n, sizeof(*f->nodes), by_slot);
}

/* Counting sort by parent: first how many children each has, then their places. */
static void group(struct forest *f)
{
    uint32_t at = 0;

    for (uint32_t i = 0; i < f->n; i++) {
        struct node *parent = find(f, f->nodes[i].parent);

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
        struct node *parent = find(f, f->nodes[i].parent);

        if (parent)
            f->order[parent->first + parent->children++] = i;
    }
}

static uint64_t refs(const struct node *n, const char *kind)
{
    return j_u64(json_object_get(n->row, "refs"), kind);
}

/* May the only child stand on its parent's line? */
static bool alike(const struct node *a, const struct node *b)
{
    return j_u64(a->row, "depth") > 0 && refs(a, "device") == refs(b, "device") &&
           refs(a, "transfer") == refs(b, "transfer") &&
           j_bool(a->row, "visible") == j_bool(b->row, "visible") &&
           j_bool(a->row, "sealed") == j_bool(b->row, "sealed") &&
           j_bool(a->row, "resumable") == j_bool(b->row, "resumable") &&
           j_bool(a->row, "reclaimable") == j_bool(b->row, "reclaimable") &&
           j_u64(a->row, "borrowers") == j_u64(b->row, "borrowers") &&
           (j_u64(a->row, "state_pages") > 0) == (j_u64(b->row, "state_pages") > 0);
}

struct line {
    uint64_t from, to, pages, state_pages, nodes;
    double youngest, oldest;
};

static const char *state_of(const struct node *n)
{
    if (!j_bool(n->row, "visible"))
        return "writing"; /* its step has not passed on every rank */
    return j_bool(n->row, "sealed") ? "sealed" : "local"; /* peers may read it, or not yet */
}

/* STATE pages of the line: in use, or superseded and the first to go; and whether a session can go
 * on from its nodes. */
static void add_snapshot(struct table *t, const struct node *last, const struct line *l)
{
    uint64_t borrowers = j_u64(last->row, "borrowers");
    bool reclaimable = j_bool(last->row, "reclaimable");

    table_add(t, reclaimable ? DIM : PLAIN, "%s%s", human_count(l->state_pages),
              reclaimable ? " reclaimable" : "");
    table_add(t, borrowers ? GREEN : DIM, "%s", human_count(borrowers));
    table_add(t, PLAIN, "%s", j_bool(last->row, "resumable") ? "yes" : l->to == 0 ? "" : "no");
}

static void add_line(struct table *t, const struct node *last, const struct line *l)
{
    uint32_t indent = last->level > INDENT_MAX ? INDENT_MAX : last->level;
    char ages[64];

    if (l->to == 0)
        table_add(t, BOLD, "pool %llu, namespace %.8s",
                  (unsigned long long)j_u64(last->row, "pool"), j_str(last->row, "namespace"));
    else
        table_add(t, PLAIN, "%*s%llu..%llu", (int)(2 * indent), "", (unsigned long long)l->from,
                  (unsigned long long)l->to);
    table_add(t, PLAIN, "%s", human_count(l->nodes));
    table_add(t, PLAIN, "%s", human_count(l->pages));
    table_add(t, refs(last, "device") ? GREEN : DIM, "%s", human_count(refs(last, "device")));
    table_add(t, refs(last, "transfer") ? YELLOW : DIM, "%s", human_count(refs(last, "transfer")));
    add_snapshot(t, last, l);
    if (l->nodes > 1 && l->oldest - l->youngest >= 1)
        snprintf(ages, sizeof(ages), "%s .. %s", human_age(l->youngest), human_age(l->oldest));
    else
        snprintf(ages, sizeof(ages), "%s", human_age(l->youngest));
    table_add(t, PLAIN, "%s", ages);
    table_add(t, PLAIN, "%s", l->to == 0 ? "" : state_of(last));
}

/* Takes the node and all that may stand with it on one line; returns the last of them. */
static struct node *take_line(struct forest *f, struct node *n, struct line *ret)
{
    const struct node *parent = find(f, n->parent);
    double age = j_f64(n->row, "age_s");

    *ret = (struct line){
        .from = parent ? j_u64(parent->row, "depth") : 0, .youngest = age, .oldest = age};
    for (;;) {
        struct node *child = n->children == 1 ? &f->nodes[f->order[n->first]] : NULL;

        n->shown = true;
        ret->nodes++;
        ret->pages += j_u64(n->row, "pages");
        ret->state_pages += j_u64(n->row, "state_pages");
        ret->to = j_u64(n->row, "depth");
        age = j_f64(n->row, "age_s");
        ret->youngest = age < ret->youngest ? age : ret->youngest;
        ret->oldest = age > ret->oldest ? age : ret->oldest;
        if (!child || child->shown || !alike(n, child))
            return n;
        child->level = n->level;
        n = child;
    }
}

static void show(struct ctl *ctl, struct forest *f)
{
    static const char *const titles[] = {"<TOKENS",   "NODES",       "PAGES",     "SESSIONS",
                                         "TRANSFERS", "STATE PAGES", "BORROWERS", "<RESUME",
                                         "LAST USED", "<IS"};
    uint32_t *stack = calloc(f->n + 1u, sizeof(*stack)), depth = 0, shown = 0;
    struct table t;

    if (!stack)
        ctl_fail(CTL_FAILED, "no memory for a tree of that size");
    table_init(&t, ctl, titles, sizeof(titles) / sizeof(titles[0]));
    for (uint32_t i = f->roots; i-- > 0;)
        stack[depth++] = f->order[i];
    while (depth > 0) {
        struct node *n = &f->nodes[stack[--depth]];
        struct line line;

        n = take_line(f, n, &line);
        shown += (uint32_t)line.nodes;
        add_line(&t, n, &line);
        for (uint32_t i = n->children; i-- > 0;) {
            uint32_t child = f->order[n->first + i];

            f->nodes[child].level = n->level + 1;
            stack[depth++] = child;
        }
    }
    table_print(&t, "the prefix tree is empty");
    if (shown < f->n)
        printf("%u nodes moved while the list was read and are left out\n", f->n - shown);
    free(stack);
}

int run_tree(struct ctl *ctl)
{
    json_t *answer = ctl_list(ctl, "tree", ctl_pool_arg(ctl));
    struct forest f = {0};

    if (!ctl_print_json(ctl, answer)) {
        load(&f, json_object_get(answer, "tree"));
        group(&f);
        show(ctl, &f);
        free(f.nodes);
        free(f.order);
    }
    json_decref(answer);
    return CTL_OK;
}
