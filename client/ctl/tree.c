/* `ternctl tree`: the prefix tree as indented lines, or as a drawing (svg.c). */
#include "forest.h"
#include "svg.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INDENT_MAX      6 /* levels; deeper branches are not moved further to the right */
#define INDENT_MAX_WIDE 40

static const char *state_of(const struct forest_node *n)
{
    if (!j_bool(n->row, "visible"))
        return "writing"; /* its step has not passed on every rank */
    return j_bool(n->row, "sealed") ? "sealed" : "local"; /* peers may read it, or not yet */
}

static enum colour tier_colour(const char *tier)
{
    if (strchr(tier, '>'))
        return YELLOW;
    return strcmp(tier, "host") == 0 ? DIM : PLAIN;
}

/* Shows the STATE pages of the line: in use, or superseded and evicted first; and whether a session
 * can resume from its nodes. */
static void add_snapshot(struct table *t, const struct forest_line *l)
{
    uint64_t borrowers = j_u64(l->last->row, "borrowers");
    bool reclaimable = j_bool(l->last->row, "reclaimable");

    table_add(t, reclaimable ? DIM : PLAIN, "%s%s", human_count(l->state_pages),
              reclaimable ? " reclaimable" : "");
    table_count(t, borrowers ? GREEN : DIM, borrowers);
    table_add(t, PLAIN, "%s", j_bool(l->last->row, "resumable") ? "yes" : l->to == 0 ? "" : "no");
}

static void add_line(struct table *t, const struct forest_line *l)
{
    const struct forest_node *last = l->last;
    uint32_t most = t->ctl->wide ? INDENT_MAX_WIDE : INDENT_MAX;
    uint32_t indent = last->level > most ? most : last->level;
    const char *tier = forest_tier(last);
    char ages[64], *holders = forest_holders(last);

    if (l->to == 0)
        table_add(t, BOLD, "pool %llu / %.8s", (unsigned long long)j_u64(last->row, "pool"),
                  j_str(last->row, "namespace"));
    else
        table_add(t, PLAIN, "%*s%llu..%llu", (int)(2 * indent), "", (unsigned long long)l->from,
                  (unsigned long long)l->to);
    table_count(t, PLAIN, l->nodes);
    table_count(t, l->pages ? PLAIN : DIM, l->pages);
    table_count(t, l->host_pages ? PLAIN : DIM, l->host_pages);
    table_add(t, tier_colour(tier), "%s", tier);
    add_snapshot(t, l);
    if (t->ctl->wide && l->nodes > 1 && l->oldest - l->youngest >= 1)
        snprintf(ages, sizeof(ages), "%s .. %s", human_age(l->youngest), human_age(l->oldest));
    else
        snprintf(ages, sizeof(ages), "%s", human_age(l->youngest));
    table_add(t, PLAIN, "%s", ages);
    table_add(t, PLAIN, "%s", l->to == 0 ? "" : state_of(last));
    table_add(t, DIM, "%s", j_str(last->row, "id"));
    table_add(t, GREEN, "%s", holders[0] ? holders : "-");
    free(holders);
}

static void show(const struct ctl *ctl, const struct forest *f, uint64_t left_out)
{
    static const char *const titles[] = {"=TOKENS",   "+NODES",       "PAGES",      "HOST",
                                         "<TIER",     "+STATE PAGES", "+BORROWERS", "+<RESUME",
                                         "LAST USED", "<STATUS",      "=NODE",      "<PINNED BY"};
    struct table t;

    table_init(&t, ctl, titles, sizeof(titles) / sizeof(titles[0]));
    for (uint32_t i = 0; i < f->nlines; i++)
        add_line(&t, &f->lines[i]);
    table_print(&t, "the prefix tree is empty");
    if (left_out > 0)
        printf("%s nodes are left out: they were evicted while the list was read\n",
               human_count(left_out));
}

/* Prints what was drawn. */
static void draw(struct ctl *ctl, const struct forest *f, uint64_t left_out)
{
    json_t *status = ctl_ask(ctl, "status", NULL, 0), *told;
    struct svg_drawn drawn = svg_write(f, j_str(status, "node"), ctl->svg);

    told = json_pack("{s:s, s:I, s:I, s:I, s:I}", "svg", ctl->svg, "nodes", (json_int_t)f->n,
                     "cells", (json_int_t)drawn.cells, "folded_nodes", (json_int_t)drawn.folded,
                     "left_out", (json_int_t)left_out);
    if (!ctl_print_json(ctl, told)) {
        printf("%s: %s nodes in %s cells\n", ctl->svg, human_count(f->n), human_count(drawn.cells));
        if (drawn.folded)
            printf("%s nodes of small branches are drawn together: --pool draws one pool alone\n",
                   human_count(drawn.folded));
    }
    json_decref(told);
    json_decref(status);
}

static int run_tree(struct ctl *ctl)
{
    json_t *answer = forest_ask(ctl);
    struct forest f;

    if (ctl->svg || !ctl_print_json(ctl, answer)) {
        uint64_t left_out = j_u64(answer, "left_out");

        forest_load(&f, answer);
        if (ctl->svg)
            draw(ctl, &f, left_out);
        else
            show(ctl, &f, left_out);
        forest_free(&f);
    }
    json_decref(answer);
    return CTL_OK;
}

/* ---- the rows ---- */

static const struct argp_option tree_options[] = {
    {"pool", OPT_POOL, "POOL", 0, "Only this pool: its handle or its slot (ternctl pools)", 0},
    {"svg", OPT_SVG, "FILE", 0,
     "Draw the tree into FILE as an icicle, with the pools below each other", 0},
    OPTION_WIDE,
    {0},
};

const struct command tree_commands[] = {
    {"tree", "", "The prefix tree: pages, tier, pins and age of its nodes",
     "  ternctl tree\n  ternctl tree --pool 0 --svg /tmp/tree.svg\n\nSuccessive nodes without "
     "branches and pins share one line, with the depths from..to, if they agree in tier and "
     "status; NODE is the id of the last one, for `ternctl pin`. TIER: device, host, both, or "
     "being copied (device>host). HOST: "
     "pages on the host tier.\nIn the drawing, width is pages, colour is the tier, and a dot is a "
     "resume point.\n",
     tree_options, 0, run_tree},
    {0},
};
