/* Prints for people: aligned columns, units, colour if the terminal supports it. Clients chose some
 * of the names, so the text of each cell is escaped (proto/shown.h). */
#include "ctl.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/shown.h"

#define HUMAN_BUFFERS 8
#define HUMAN_BYTES   40

#define COLUMN_GAP     "  "
#define CUT_MARK       ".."
#define TEXT_WIDTH_MIN 4 /* the fewest columns of a cut text */

static const char *const code[] = {
    [PLAIN] = "",       [BOLD] = "\033[1m",   [DIM] = "\033[2m",
    [RED] = "\033[31m", [GREEN] = "\033[32m", [YELLOW] = "\033[33m",
};

static const char *begin(const struct ctl *ctl, enum colour colour)
{
    return ctl->colour ? code[colour] : "";
}

static const char *end(const struct ctl *ctl, enum colour colour)
{
    return ctl->colour && colour != PLAIN ? "\033[0m" : "";
}

static __attribute__((format(printf, 4, 0))) void
paint_with(FILE *out, const struct ctl *ctl, enum colour colour, const char *format, va_list args)
{
    fputs(begin(ctl, colour), out);
    vfprintf(out, format, args);
    fputs(end(ctl, colour), out);
}

void paint_to(FILE *out, const struct ctl *ctl, enum colour colour, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    paint_with(out, ctl, colour, format, args);
    va_end(args);
}

void paint(const struct ctl *ctl, enum colour colour, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    paint_with(stdout, ctl, colour, format, args);
    va_end(args);
}

char *shown_copy(const char *text)
{
    size_t cap = SHOWN_BYTES(strlen(text));
    char *copy = malloc(cap);

    if (!copy)
        abort();
    shown(copy, cap, text);
    return copy;
}

void table_init(struct table *t, const struct ctl *ctl, const char *const *titles, uint32_t columns)
{
    *t = (struct table){.ctl = ctl,
                        .titles = titles,
                        .out = stdout,
                        .width = TABLE_WIDTH,
                        .rows_max = UINT32_MAX,
                        .columns = columns};
}

void table_add(struct table *t, enum colour colour, const char *format, ...)
{
    char *text = NULL;
    va_list args;
    int n;

    if (t->cells == t->cells_max) {
        uint32_t more = t->cells_max ? 2 * t->cells_max : 256;
        struct cell *grown = realloc(t->cell, more * sizeof(*grown));

        if (!grown)
            ctl_fail(CTL_FAILED, "no memory for a table of that size: use --json");
        t->cell = grown;
        t->cells_max = more;
    }
    va_start(args, format);
    n = vasprintf(&text, format, args);
    va_end(args);
    if (n < 0)
        ctl_fail(CTL_FAILED, "no memory");
    t->cell[t->cells++] = (struct cell){.text = shown_copy(text), .colour = colour};
    free(text);
}

static const char *shown_count(const struct table *t, uint64_t n)
{
    return t->ctl->wide ? human_count(n) : human_short(n);
}

void table_count(struct table *t, enum colour colour, uint64_t n)
{
    table_add(t, colour, "%s", shown_count(t, n));
}

void table_part(struct table *t, enum colour colour, uint64_t n, uint64_t of)
{
    table_add(t, colour, "%s of %s", shown_count(t, n), shown_count(t, of));
}

void table_num(struct table *t, const json_t *row, const char *key)
{
    table_count(t, PLAIN, j_u64(row, key));
}

void table_hex(struct table *t, const char *hex, int digits)
{
    table_add(t, DIM, "%.*s", t->ctl->wide ? INT_MAX : digits, hex);
}

/* ---- columns ---- */

struct column {
    const char *title;
    bool shown, left, whole; /* whole: its cells are not cut */
    uint32_t width;
};

static struct column column_of(const struct ctl *ctl, const char *title)
{
    struct column c = {.shown = title[0] != '+' || ctl->wide};

    title += title[0] == '+';
    c.left = title[0] == '<' || title[0] == '=';
    c.whole = title[0] != '<';
    c.title = title + c.left;
    c.width = (uint32_t)strlen(c.title);
    return c;
}

/* Cuts the widest texts until a line fits the table's width. */
static void fit(const struct table *t, struct column *columns)
{
    uint32_t width = 0, shown = 0;

    for (uint32_t i = 0; i < t->columns; i++) {
        width += columns[i].shown ? columns[i].width : 0;
        shown += columns[i].shown;
    }
    width += shown ? (shown - 1) * (uint32_t)strlen(COLUMN_GAP) : 0;
    while (width > t->width && !t->ctl->wide) {
        struct column *widest = NULL;

        for (uint32_t i = 0; i < t->columns; i++) {
            struct column *c = &columns[i];

            if (c->shown && !c->whole && c->width > TEXT_WIDTH_MIN &&
                (!widest || c->width > widest->width))
                widest = c;
        }
        if (!widest)
            return;
        widest->width--;
        width--;
    }
}

static void measure(const struct table *t, struct column *columns)
{
    for (uint32_t i = 0; i < t->columns; i++)
        columns[i] = column_of(t->ctl, t->titles[i]);
    for (uint32_t i = 0; i < t->cells; i++) {
        uint32_t n = (uint32_t)shown_width(t->cell[i].text),
                 *width = &columns[i % t->columns].width;

        *width = n > *width ? n : *width;
    }
    fit(t, columns);
}

static void print_cell(const struct table *t, const struct column *c, const struct cell *cell,
                       bool last)
{
    int n = (int)shown_width(cell->text), width = (int)c->width, mark = (int)strlen(CUT_MARK);
    bool cut = n > width;
    int pad = cut ? 0 : width - n;

    fprintf(t->out, "%*s%s%.*s%s%s%*s", c->left ? 0 : pad, "", begin(t->ctl, cell->colour),
            (int)shown_bytes(cell->text, (size_t)(cut ? width - mark : n)), cell->text,
            cut ? CUT_MARK : "", end(t->ctl, cell->colour), c->left && !last ? pad : 0, "");
}

static void print_line(const struct table *t, const struct column *columns,
                       const struct cell *cells)
{
    const char *gap = "";
    uint32_t last = 0;

    for (uint32_t i = 0; i < t->columns; i++)
        last = columns[i].shown ? i : last;
    for (uint32_t i = 0; i <= last; i++) {
        if (!columns[i].shown)
            continue;
        fputs(gap, t->out);
        print_cell(t, &columns[i], &cells[i], i == last);
        gap = COLUMN_GAP;
    }
    fputc('\n', t->out);
}

void table_print(struct table *t, const char *if_empty)
{
    struct column columns[TABLE_COLUMNS_MAX];
    struct cell titles[TABLE_COLUMNS_MAX];
    uint32_t rows = t->cells / t->columns, shown = rows < t->rows_max ? rows : t->rows_max;

    measure(t, columns);
    if (t->cells == 0)
        fprintf(t->out, "%s\n", if_empty);
    for (uint32_t i = 0; i < t->columns; i++)
        titles[i] = (struct cell){.text = columns[i].title, .colour = BOLD};
    if (t->cells > 0)
        print_line(t, columns, titles);
    for (uint32_t i = 0; i < shown; i++)
        print_line(t, columns, &t->cell[i * t->columns]);
    if (shown < rows)
        fprintf(t->out, "and %s more\n", human_count(rows - shown));
    for (uint32_t i = 0; i < t->cells; i++)
        free((char *)(uintptr_t)t->cell[i].text);
    free(t->cell);
}

static char *human_buffer(void)
{
    static char buffer[HUMAN_BUFFERS][HUMAN_BYTES];
    static uint32_t at;

    return buffer[at++ % HUMAN_BUFFERS];
}

const char *human_bytes(uint64_t bytes)
{
    static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    char *out = human_buffer();
    double v = (double)bytes;
    size_t i = 0;

    for (; v >= 1024 && i + 1 < sizeof(unit) / sizeof(unit[0]); i++)
        v /= 1024;
    snprintf(out, HUMAN_BYTES, i == 0 || v >= 100 ? "%.0f %s" : "%.1f %s", v, unit[i]);
    return out;
}

const char *human_count(uint64_t n)
{
    char digits[24], *out = human_buffer();
    size_t len = (size_t)snprintf(digits, sizeof(digits), "%llu", (unsigned long long)n), at = 0;

    for (size_t i = 0; i < len; i++) {
        if (i && (len - i) % 3 == 0)
            out[at++] = ',';
        out[at++] = digits[i];
    }
    out[at] = '\0';
    return out;
}

const char *human_short(uint64_t n)
{
    static const char *const unit[] = {"M", "G", "T", "P", "E"};
    char *out;
    double v = (double)n / 1e6;
    size_t i = 0;

    if (n < 1000000)
        return human_count(n);
    out = human_buffer();
    for (; v >= 1000 && i + 1 < sizeof(unit) / sizeof(unit[0]); i++)
        v /= 1000;
    snprintf(out, HUMAN_BYTES, v >= 100 ? "%.0f %s" : "%.2f %s", v, unit[i]);
    return out;
}

const char *num(const json_t *row, const char *key)
{
    return human_count(j_u64(row, key));
}

const char *human_us(uint64_t us)
{
    char *out;

    if (us >= 1000000)
        return human_age((double)us / 1e6);
    out = human_buffer();
    if (us < 1000)
        snprintf(out, HUMAN_BYTES, "%llu us", (unsigned long long)us);
    else
        snprintf(out, HUMAN_BYTES, us < 10000 ? "%.1f ms" : "%.0f ms", (double)us / 1000);
    return out;
}

const char *human_age(double s)
{
    char *out = human_buffer();

    if (s < 1)
        snprintf(out, HUMAN_BYTES, "%.0f ms", s * 1000);
    else if (s < 60)
        snprintf(out, HUMAN_BYTES, "%.1f s", s);
    else if (s < 3600)
        snprintf(out, HUMAN_BYTES, "%.0f min", s / 60);
    else if (s < 48 * 3600)
        snprintf(out, HUMAN_BYTES, "%.1f h", s / 3600);
    else if (s < 1000.0 * 86400)
        snprintf(out, HUMAN_BYTES, "%.1f d", s / 86400);
    else
        snprintf(out, HUMAN_BYTES, "%.0f y", s / (365.25 * 86400));
    return out;
}
