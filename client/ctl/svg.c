/* `ternctl tree --svg`: an icicle that grows to the right. A cell is a line of the forest: its
 * width is its pages, it begins where its parent ends, and it is as high as its child branches
 * together. If there are too many branches for the sheet, the smallest are folded into one grey
 * cell at their parent, so nothing is left out silently. Invariant: names come from clients, so
 * every text is escaped; ROWS_MAX and CELLS_MAX bound the file's size. */
#include "svg.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/shown.h"

#define ROWS_MAX        400
#define CELLS_MAX       8000
#define SHEET_WIDTH     1280
#define MARGIN          24
#define NAMES_WIDTH     190 /* right of the longest branch, for holders */
#define PLOT_WIDTH      (SHEET_WIDTH - 2 * MARGIN - NAMES_WIDTH)
#define PLOT_TOP        112
#define HEADER_ROOM     24  /* above each root */
#define LETTER_WIDTH    6.3 /* average width in a text of 11 px */
#define LETTER_ROOM     7.5 /* width of a wide letter: lines avoid that much for each letter */
#define LETTER_UP       11  /* height of a letter above its line, and below it */
#define LETTER_DOWN     4
#define TEXT_ROOM       13 /* a lower cell has no text */
#define CELL_NAME_BYTES 96
#define TICK_ROOM       5 /* chunks closer than this get no ticks */

#define COLOUR_DEVICE "#2f6db3"
#define COLOUR_HOST   "#e0962a"
#define COLOUR_BOTH   "#2a9078"
#define COLOUR_FOLDED "#c4c9d0"
#define COLOUR_HELD   "#14181d"
#define COLOUR_PINNED "#c2185b"

struct box {
    uint32_t rows, folded_children; /* rows of the sheet that the box takes */
    uint64_t total, nodes, reach;   /* of the branch: pages, nodes; pages of its longest path */
    uint64_t folded_nodes, folded_pages, folded_reach;
    double x, y;
    double free_y; /* where its next child goes */
    bool folded;   /* into its parent's grey cell */
};

struct label {
    double x, y, end; /* y: its base line */
};

struct sheet {
    const struct forest *f;
    FILE *out;
    struct box *box;      /* one a line, and one for the sheet, whose children are the roots */
    struct label *labels; /* written labels, which lines avoid */
    uint32_t nlabels, labels_max;
    uint32_t rows, cells;
    double row_height, page_width, height;
};

/* ---- layout ---- */

static uint32_t parent_of(const struct forest *f, uint32_t line)
{
    return f->lines[line].parent == NO_LINE ? f->nlines : f->lines[line].parent;
}

static void sum_up(struct sheet *s)
{
    const struct forest *f = s->f;

    for (uint32_t i = 0; i < f->nlines; i++) {
        s->box[i].total = s->box[i].reach = f->lines[i].width;
        s->box[i].nodes = f->lines[i].nodes;
    }
    for (uint32_t i = f->nlines; i-- > 0;) {
        struct box *c = &s->box[i], *p = &s->box[parent_of(f, i)];
        uint64_t above = parent_of(f, i) == f->nlines ? 0 : f->lines[parent_of(f, i)].width;

        p->total += c->total;
        p->nodes += c->nodes;
        p->reach = above + c->reach > p->reach ? above + c->reach : p->reach;
    }
}

/* Folds lines whose whole branch has fewer pages than `least`. A child never has more than its
 * parent, so the branch of a folded line is folded too. */
static void fold(struct sheet *s, uint64_t least)
{
    const struct forest *f = s->f;

    s->cells = 0;
    for (uint32_t i = 0; i <= f->nlines; i++) {
        struct box *c = &s->box[i];

        c->rows = c->folded_children = 0;
        c->folded_nodes = c->folded_pages = c->folded_reach = 0;
        c->folded = i < f->nlines && c->total < least;
        s->cells += !c->folded;
    }
    for (uint32_t i = f->nlines; i-- > 0;) {
        struct box *c = &s->box[i], *p = &s->box[parent_of(f, i)];

        if (!c->folded) {
            c->rows += c->folded_children > 0;
            c->rows += c->rows == 0;
            p->rows += c->rows;
            continue;
        }
        p->folded_children++;
        p->folded_nodes += c->nodes;
        p->folded_pages += c->total;
        p->folded_reach = c->reach > p->folded_reach ? c->reach : p->folded_reach;
    }
    s->box[f->nlines].rows += s->box[f->nlines].folded_children > 0;
    s->rows = s->box[f->nlines].rows;
}

static void place(struct sheet *s)
{
    const struct forest *f = s->f;
    struct box *sheet = &s->box[f->nlines];

    s->row_height = s->rows <= 24 ? 28 : s->rows <= 80 ? 18 : 10;
    s->page_width = sheet->reach ? (double)PLOT_WIDTH / (double)sheet->reach : 0;
    sheet->free_y = PLOT_TOP;
    for (uint32_t i = 0; i < f->nlines; i++) {
        struct box *c = &s->box[i], *p = &s->box[parent_of(f, i)];

        if (c->folded)
            continue;
        if (p == sheet) {
            c->x = MARGIN;
            c->y = p->free_y + HEADER_ROOM;
            p->free_y = c->y + c->rows * s->row_height + 8;
        } else {
            c->x = p->x + (double)f->lines[parent_of(f, i)].width * s->page_width;
            c->y = p->free_y;
            p->free_y += c->rows * s->row_height;
        }
        c->free_y = c->y;
    }
    s->height = sheet->free_y + (sheet->folded_children ? s->row_height : 0) + MARGIN;
}

/* ---- writing ---- */

/* XML allows no control characters, escaped or not: they are written as proto/shown.h does. */
static void put_text(FILE *out, const char *text)
{
    char one[SHOWN_CHAR_BYTES];

    while (*text) {
        char c = *text;

        text += shown_char(text, one);
        switch (c) {
        case '&': fputs("&amp;", out); break;
        case '<': fputs("&lt;", out); break;
        case '>': fputs("&gt;", out); break;
        case '"': fputs("&quot;", out); break;
        default: fputs(one, out);
        }
    }
}

static struct label label_at(double x, double y, const char *text)
{
    return (struct label){x, y, x + (double)strlen(text) * LETTER_ROOM};
}

static void note_label(struct sheet *s, struct label label)
{
    if (s->nlabels == s->labels_max) {
        uint32_t more = s->labels_max ? 2 * s->labels_max : 256;
        struct label *grown = realloc(s->labels, more * sizeof(*grown));

        if (!grown)
            ctl_fail(CTL_FAILED, "no memory for a drawing of that size: use --pool");
        s->labels = grown;
        s->labels_max = more;
    }
    s->labels[s->nlabels++] = label;
}

static void put_label(struct sheet *s, double x, double y, const char *attributes, const char *text)
{
    note_label(s, label_at(x, y, text));
    fprintf(s->out, "<text x=\"%.1f\" y=\"%.1f\" %s>", x, y, attributes);
    put_text(s->out, text);
    fprintf(s->out, "</text>\n");
}

static const char *fill_of(const char *tier)
{
    if (strchr(tier, '>'))
        return "url(#copying)";
    return strcmp(tier, "both") == 0   ? COLOUR_BOTH
           : strcmp(tier, "host") == 0 ? COLOUR_HOST
                                       : COLOUR_DEVICE;
}

/* Writes what a viewer shows for the cell under the pointer. */
static void put_hint(const struct sheet *s, const struct forest_line *l, const char *holders)
{
    const struct forest_node *n = l->last;

    fprintf(s->out, "<title>");
    fprintf(s->out, "tokens %llu..%llu, %s nodes, %s pages, %s host pages",
            (unsigned long long)l->from, (unsigned long long)l->to, human_count(l->nodes),
            human_count(l->pages), human_count(l->host_pages));
    fprintf(s->out, "\ntier ");
    put_text(s->out, forest_tier(n));
    fprintf(s->out, "%s\nnode ", j_bool(n->row, "resumable") ? ", resume point" : "");
    put_text(s->out, j_str(n->row, "id"));
    if (holders[0])
        fprintf(s->out, "\nheld by ");
    put_text(s->out, holders);
    fprintf(s->out, "</title>");
}

static int by_height(const void *a, const void *b)
{
    const struct label *x = a, *y = b;

    return x->y < y->y ? -1 : x->y > y->y;
}

/* Draws a path's upright line from y to end, with gaps at labels, which are sorted by height. */
static void put_upright(FILE *out, double x, double y, double end, const struct label *labels,
                        uint32_t n)
{
    for (uint32_t i = 0; i < n && y < end; i++) {
        double top = labels[i].y - LETTER_UP, bottom = labels[i].y + LETTER_DOWN;

        if (x < labels[i].x - 1 || x > labels[i].end || bottom <= y || top >= end)
            continue;
        if (top > y)
            fprintf(out, "M%.1f %.1fV%.1f", x, y, top);
        y = bottom;
    }
    if (y < end)
        fprintf(out, "M%.1f %.1fV%.1f", x, y, end);
}

/* Draws white lines between chunks. `name`: the text in the cell. */
static void put_ticks(const struct sheet *s, uint32_t line, double width, const struct label *name)
{
    const struct forest_line *l = &s->f->lines[line];
    const struct box *c = &s->box[line];
    double step = width / (double)l->nodes, end = c->y + c->rows * s->row_height - 1;

    if (l->nodes < 2 || step < TICK_ROOM)
        return;
    fprintf(s->out, "<path class=\"k\" d=\"");
    for (uint64_t i = 1; i < l->nodes; i++)
        put_upright(s->out, c->x + step * (double)i, c->y, end, name, 1);
    fprintf(s->out, "\"/>\n");
}

/* Shortens the text to at most `max` bytes, never within a character of several bytes. */
static void cut(char *text, size_t max)
{
    if (strlen(text) <= max || max < 2)
        return;
    max -= 2;
    while (max > 0 && ((unsigned char)text[max] & 0xc0) == 0x80)
        max--;
    memcpy(text + max, "..", 3);
}

static bool resumable(const struct forest_line *l)
{
    return l->to > 0 && j_bool(l->last->row, "resumable");
}

static double name_line(const struct sheet *s, const struct box *c)
{
    return c->y + c->rows * s->row_height / 2 + 4;
}

/* Returns the cell's tokens, as far as there is room; "": no room. */
static struct label name_of(const struct sheet *s, uint32_t line, double width,
                            char text[CELL_NAME_BYTES])
{
    const struct forest_line *l = &s->f->lines[line];
    const struct box *c = &s->box[line];
    double from = l->parent != NO_LINE && resumable(&s->f->lines[l->parent]) ? 9 : 5; /* a mark */
    double room = width - from - 7;
    int n = snprintf(text, CELL_NAME_BYTES, "%llu..%llu, %s pages", (unsigned long long)l->from,
                     (unsigned long long)l->to, human_count(l->width));

    if (n * LETTER_WIDTH > room)
        n = snprintf(text, CELL_NAME_BYTES, "%llu", (unsigned long long)l->to);
    if (n * LETTER_WIDTH > room || c->rows * s->row_height < TEXT_ROOM)
        text[0] = '\0';
    return label_at(c->x + from, name_line(s, c), text);
}

/* Writes the holders of a branch's end to the right of it. */
static void put_holders(struct sheet *s, uint32_t line, double width, char *holders)
{
    const struct box *c = &s->box[line];
    double end = c->x + width + 12;

    if (!holders[0] || s->f->lines[line].last->children > 0 || c->rows * s->row_height < TEXT_ROOM)
        return;
    cut(holders, (size_t)((SHEET_WIDTH - MARGIN - end) / LETTER_WIDTH));
    put_label(s, end, name_line(s, c), "class=\"g\"", holders);
}

static void put_cell(struct sheet *s, uint32_t line)
{
    const struct forest_line *l = &s->f->lines[line];
    const struct box *c = &s->box[line];
    double width = (double)l->width * s->page_width, height = c->rows * s->row_height - 1;
    bool dark = strcmp(forest_tier(l->last), "host") == 0 || !j_bool(l->last->row, "visible");
    char *holders = forest_holders(l->last), text[CELL_NAME_BYTES];
    struct label name = name_of(s, line, width, text);

    fprintf(s->out,
            "<rect class=\"c\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\"%s>",
            c->x, c->y, width, height, fill_of(forest_tier(l->last)),
            j_bool(l->last->row, "visible") ? "" : " fill-opacity=\".45\"");
    put_hint(s, l, holders);
    fprintf(s->out, "</rect>\n");
    put_ticks(s, line, width, &name);
    if (text[0])
        put_label(s, name.x, name.y, dark ? "class=\"d\"" : "class=\"w\"", text);
    put_holders(s, line, width, holders);
    free(holders);
}

/* This is drawn over all cells, so that no neighbour hides it. */
static void put_outline(const struct sheet *s, uint32_t line)
{
    const struct forest_line *l = &s->f->lines[line];
    const struct box *c = &s->box[line];

    if (l->to > 0 && forest_held(l->last))
        fprintf(s->out,
                "<rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>\n",
                forest_refs(l->last, "admin") > 0 ? "p" : "h", c->x, c->y,
                (double)l->width * s->page_width, c->rows * s->row_height - 1);
}

static void put_mark(const struct sheet *s, uint32_t line)
{
    const struct forest_line *l = &s->f->lines[line];
    const struct box *c = &s->box[line];

    if (resumable(l))
        fprintf(s->out, "<circle class=\"m\" cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\"/>\n",
                c->x + (double)l->width * s->page_width, c->y + (c->rows * s->row_height - 1) / 2,
                s->row_height >= 18 ? 4.5 : 3.0);
}

static void put_folded(struct sheet *s, const struct box *c, double x)
{
    double width = (double)c->folded_reach * s->page_width;
    char text[96];

    fprintf(s->out,
            "<rect class=\"c\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" "
            "fill=\"" COLOUR_FOLDED "\"><title>%u branches: %s nodes, %s pages</title></rect>\n",
            x, c->free_y, width, s->row_height - 1, c->folded_children,
            human_count(c->folded_nodes), human_count(c->folded_pages));
    snprintf(text, sizeof(text), "%u branches", c->folded_children);
    if (s->row_height >= TEXT_ROOM)
        put_label(s, x + width + 6, c->free_y + s->row_height / 2 + 4, "class=\"g\"", text);
}

static void put_header(struct sheet *s, uint32_t line)
{
    const struct forest_line *l = &s->f->lines[line];
    const struct box *c = &s->box[line];
    const json_t *row = l->last->row;
    char text[160];

    snprintf(text, sizeof(text), "pool %llu, namespace %.8s: %s nodes, %s pages",
             (unsigned long long)j_u64(row, "pool"), j_str(row, "namespace"), human_count(c->nodes),
             human_count(c->total));
    put_label(s, MARGIN, c->y - 7, "class=\"b\"", text);
}

/* ---- the sheet ---- */

static void put_style(const struct sheet *s)
{
    fprintf(
        s->out,
        "<style>text{font:11px system-ui,Helvetica,Arial,sans-serif;fill:#3b424b}"
        ".t{font-size:19px;font-weight:600;fill:#14181d}.b{font-weight:600;font-size:12px}"
        ".w{fill:#fff}.d{fill:#14181d}.g{fill:#5b6470}"
        ".c{stroke:#fff;stroke-width:.8}.k{stroke:#fff;stroke-opacity:.35;fill:none}"
        ".h,.p{fill:none;pointer-events:none}.h{stroke:" COLOUR_HELD
        ";stroke-width:1.8}.p{stroke:" COLOUR_PINNED ";stroke-width:2.6}"
        ".m{fill:#fff;stroke:#14181d;stroke-width:1.4}.a{stroke:#d5d9de}</style>\n"
        "<defs><pattern id=\"copying\" width=\"8\" height=\"8\" patternUnits=\"userSpaceOnUse\" "
        "patternTransform=\"rotate(45)\"><rect width=\"8\" height=\"8\" fill=\"" COLOUR_DEVICE
        "\"/><rect width=\"4\" height=\"8\" fill=\"" COLOUR_HOST "\"/></pattern></defs>\n");
}

static double put_legend_text(struct sheet *s, double x, const char *text)
{
    put_label(s, x, 83, "class=\"l\"", text);
    return x + (double)strlen(text) * LETTER_WIDTH + 18;
}

static void put_legend(struct sheet *s)
{
    static const struct {
        const char *class, *fill, *opacity, *text;
    } boxes[] = {{"c", COLOUR_DEVICE, "1", "on the device"},
                 {"c", COLOUR_HOST, "1", "on the host"},
                 {"c", COLOUR_BOTH, "1", "on both"},
                 {"c", "url(#copying)", "1", "being copied"},
                 {"c", COLOUR_DEVICE, ".45", "step not passed"},
                 {"h", "none", "1", "held"},
                 {"p", "none", "1", "pinned by an operator"},
                 {"c", COLOUR_FOLDED, "1", "folded branches"}};
    double x = MARGIN;

    for (size_t i = 0; i < sizeof(boxes) / sizeof(boxes[0]); i++) {
        fprintf(s->out,
                "<rect class=\"%s\" x=\"%.1f\" y=\"73\" width=\"16\" height=\"12\" fill=\"%s\" "
                "fill-opacity=\"%s\"/>",
                boxes[i].class, x, boxes[i].fill, boxes[i].opacity);
        x = put_legend_text(s, x + 22, boxes[i].text);
    }
    fprintf(s->out, "<circle class=\"m\" cx=\"%.1f\" cy=\"79\" r=\"4.5\"/>", x + 6);
    put_legend_text(s, x + 16, "resume point");
}

/* Draws lines at round numbers of pages, behind the cells and beside the labels, which are already
 * placed.
 */
static void put_axis(struct sheet *s)
{
    uint64_t reach = s->box[s->f->nlines].reach, step = 1;
    uint32_t labels = s->nlabels;
    char text[48];

    qsort(s->labels, labels, sizeof(*s->labels), by_height);

    for (uint32_t i = 0; reach / step >= 10; i++)
        step = i % 3 == 1 ? step / 2 * 5 : step * 2; /* 1, 2, 5, 10 */
    for (uint64_t at = 0; at <= reach; at += step) {
        double x = MARGIN + (double)at * s->page_width;

        fprintf(s->out, "<path class=\"a\" d=\"");
        put_upright(s->out, x, PLOT_TOP, s->height - MARGIN / 2, s->labels, labels);
        fprintf(s->out, "\"/>\n");
        snprintf(text, sizeof(text), at == 0 ? "%s pages from the root" : "%s", human_count(at));
        put_label(s, x, PLOT_TOP - 5, "class=\"g\"", text);
    }
}

static void put_head(struct sheet *s, const char *node)
{
    const struct box *all = &s->box[s->f->nlines];
    char title[160], about[200];

    fprintf(s->out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" width=\"%d\" height=\"%.0f\" "
            "viewBox=\"0 0 %d %.0f\">\n",
            SHEET_WIDTH, s->height, SHEET_WIDTH, s->height);
    snprintf(title, sizeof(title), "Prefix tree of %.120s", node);
    snprintf(about, sizeof(about),
             "%s nodes, %s pages. Width: pages, from the root to the right. Height: the branches "
             "that hang from a prefix. Numbers in cells: tokens.",
             human_count(all->nodes), human_count(all->total));
    fprintf(s->out, "<title>");
    put_text(s->out, title);
    fprintf(s->out, "</title>\n");
    put_style(s);
    fprintf(s->out, "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n");
    put_label(s, MARGIN, 36, "class=\"t\"", title);
    put_label(s, MARGIN, 56, "class=\"g\"", about);
    put_legend(s);
}

static void put_cells(struct sheet *s)
{
    const struct forest *f = s->f;
    const struct box *sheet = &s->box[f->nlines];

    for (uint32_t i = 0; i < f->nlines; i++) {
        const struct box *c = &s->box[i];

        if (c->folded)
            continue;
        if (parent_of(f, i) == f->nlines)
            put_header(s, i);
        if (f->lines[i].to > 0) /* a root has no pages: its header stands for it */
            put_cell(s, i);
        if (c->folded_children > 0)
            put_folded(s, c, c->x + (double)f->lines[i].width * s->page_width);
    }
    for (uint32_t i = 0; i < f->nlines; i++) {
        if (!s->box[i].folded)
            put_outline(s, i);
    }
    for (uint32_t i = 0; i < f->nlines; i++) {
        if (!s->box[i].folded)
            put_mark(s, i);
    }
    if (sheet->folded_children > 0)
        put_folded(s, sheet, MARGIN);
}

/* Draws the cells into memory first, because the lines behind them avoid their labels. */
static void put_sheet(struct sheet *s, const char *node)
{
    FILE *out = s->out;
    char *cells = NULL;
    size_t bytes = 0;

    s->out = open_memstream(&cells, &bytes);
    if (!s->out)
        ctl_fail(CTL_FAILED, "no memory for a drawing of that size: use --pool");
    put_cells(s);
    if (fclose(s->out) != 0)
        ctl_fail(CTL_FAILED, "no memory for a drawing of that size: use --pool");
    s->out = out;
    put_head(s, node);
    if (s->f->nlines == 0)
        put_label(s, MARGIN, PLOT_TOP + 20, "class=\"b\"", "The prefix tree is empty.");
    else
        put_axis(s);
    fwrite(cells, 1, bytes, out);
    fprintf(out, "</svg>\n");
    free(cells);
}

struct svg_drawn svg_write(const struct forest *f, const char *node, const char *path)
{
    struct sheet s = {.f = f, .box = calloc(f->nlines + 1u, sizeof(*s.box))};
    struct svg_drawn drawn = {0};
    bool failed;

    if (!s.box)
        ctl_fail(CTL_FAILED, "no memory for a drawing of that size: use --pool");
    sum_up(&s);
    fold(&s, 0);
    for (uint64_t least = 1; s.rows > ROWS_MAX || s.cells > CELLS_MAX; least *= 2)
        fold(&s, least);
    place(&s);
    s.out = fopen(path, "we");
    if (!s.out)
        ctl_fail(CTL_FAILED, "%s: %s", path, strerror(errno));
    put_sheet(&s, node);
    failed = ferror(s.out) != 0;
    if (fclose(s.out) != 0 || failed)
        ctl_fail(CTL_FAILED,
                 "%s: the file could not be written completely: check whether the disk is full",
                 path);
    for (uint32_t i = 0; i <= f->nlines; i++) {
        if (s.box[i].folded)
            continue;
        drawn.cells += i < f->nlines && f->lines[i].to > 0;
        drawn.folded += (uint32_t)s.box[i].folded_nodes;
    }
    free(s.box);
    free(s.labels);
    return drawn;
}
