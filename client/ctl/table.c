/* Prints for people: columns that line up, units, colour where the terminal wants it. Cells are
 * ASCII. */
#include "ctl.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HUMAN_BUFFERS 8
#define HUMAN_BYTES   40

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

void paint(const struct ctl *ctl, enum colour colour, const char *format, ...)
{
    va_list args;

    printf("%s", begin(ctl, colour));
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    printf("%s", end(ctl, colour));
}

void table_init(struct table *t, const struct ctl *ctl, const char *const *titles, uint32_t columns)
{
    *t = (struct table){.ctl = ctl, .titles = titles, .columns = columns};
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
    /* A client chose some of these names, so no character may command the terminal. */
    for (char *c = text; *c; c++) {
        if (*c < ' ' || *c > '~')
            *c = '?';
    }
    t->cell[t->cells++] = (struct cell){.text = text, .colour = colour};
}

static void print_cell(const struct table *t, uint32_t column, const char *text, enum colour colour,
                       size_t width)
{
    bool left = t->titles[column][0] == '<', last = column + 1 == t->columns;
    int pad = (int)(width - strlen(text));

    printf("%s%*s%s%s%s%*s%s", column ? "  " : "", left ? 0 : pad, "", begin(t->ctl, colour), text,
           end(t->ctl, colour), left && !last ? pad : 0, "", last ? "\n" : "");
}

static const char *title(const struct table *t, uint32_t column)
{
    return t->titles[column] + (t->titles[column][0] == '<');
}

void table_print(struct table *t, const char *if_empty)
{
    size_t width[TABLE_COLUMNS_MAX];

    for (uint32_t c = 0; c < t->columns; c++)
        width[c] = strlen(title(t, c));
    for (uint32_t i = 0; i < t->cells; i++) {
        size_t n = strlen(t->cell[i].text);

        if (n > width[i % t->columns])
            width[i % t->columns] = n;
    }
    if (t->cells == 0)
        printf("%s\n", if_empty);
    for (uint32_t c = 0; c < t->columns && t->cells; c++)
        print_cell(t, c, title(t, c), BOLD, width[c]);
    for (uint32_t i = 0; i < t->cells; i++) {
        print_cell(t, i % t->columns, t->cell[i].text, t->cell[i].colour, width[i % t->columns]);
        free(t->cell[i].text);
    }
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
    static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
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

const char *human_tokens(uint64_t n)
{
    static const char *const unit[] = {"M", "G", "T", "P"};
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
    else
        snprintf(out, HUMAN_BYTES, "%.1f d", s / 86400);
    return out;
}
