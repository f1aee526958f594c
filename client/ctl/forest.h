/* The prefix tree as ternctl draws it: trees built from the daemon's list of nodes, with the
 * holders of each node, and lines: runs of alike nodes without holders that have one child each.
 * The table (tree.c) and the drawing (svg.c) use it. */
#ifndef CTL_FOREST_H
#define CTL_FOREST_H

#include "ctl.h"

#define NO_LINE UINT32_MAX

struct forest_node {
    uint64_t id, parent;      /* slots with their generations; parent NO_PARENT: a root */
    uint32_t at;              /* of its row in the list */
    uint32_t first, children; /* places in `order` of its children */
    uint32_t level, line;     /* level: of indentation. line: NO_LINE before it is part of one */
    json_t *row;              /* borrowed */
};

/* One line: `nodes` nodes down to `last`, the tokens from..to. */
struct forest_line {
    uint64_t from, to, nodes, pages, host_pages, state_pages;
    uint64_t width; /* pages of each node on the device or the host, whichever has more */
    double youngest, oldest;
    uint32_t parent; /* the parent line; NO_LINE: none */
    const struct forest_node *last;
};

struct forest {
    struct forest_node *nodes; /* ascending slots */
    uint32_t *order;           /* nodes, grouped by parent; roots first */
    uint32_t n, roots;
    struct forest_line *lines; /* each line comes before its child lines */
    uint32_t nlines;
};

/* Requests the tree, as a list that includes each node's parent, at a lesser depth. The list
 * arrives in pages while the daemon continues, so missing parents are requested one by one. A node
 * whose parent is gone is gone too, and is counted in "left_out". Also requests sessions and
 * transfers and writes "holders" into each row: [{kind, who, id, since_s}]; holders that arrived or
 * left meanwhile are missing. The caller owns the answer. */
json_t *forest_ask(struct ctl *ctl);

void forest_load(struct forest *ret, const json_t *answer); /* borrows the answer */
void forest_free(struct forest *f);

uint64_t forest_refs(const struct forest_node *n, const char *kind);
bool forest_held(const struct forest_node *n);
/* "device", "host", "both"; "device>host", "host>device": being copied; "" for a root. */
const char *forest_tier(const struct forest_node *n);
/* "device decode-0 x2 1.5 s, admin 3 min": kind, who, how many, the longest of them. Heap. */
char *forest_holders(const struct forest_node *n);

#endif
