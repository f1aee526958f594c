/* See metrics.h. A family is written in three steps: walk its rows' paths and collect samples; sort
 * the samples by their labels and merge equal ones; write the lines. */
#include "client/agent/metrics.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "client/agent/spaces.h"

#define KEY_BYTES   64
#define BUCKETS     32u /* buckets of a histogram, as in the daemon: bucket i ends at 2^i us */
#define US_PER_S    1e6
#define FIRST_ROOM  256u
#define OPENMETRICS "application/openmetrics-text"

struct label {
    char name[KEY_BYTES];
    const char *value; /* borrowed from the answers */
};

struct sample {
    size_t labels, labels_bytes; /* range in family.labels */
    double value;                /* whole numbers up to 2^53 are exact */
    const json_t *histogram;     /* NULL: none */
};

struct family {
    const struct metrics_form *form;
    const struct metric *row; /* the row being walked */
    struct sample *sample;    /* owned */
    size_t n, room;
    struct text labels;
    bool failed;
};

struct walk {
    struct family *family;
    struct label label[METRICS_LABELS_MAX];
    uint32_t n;
};

/* ---- labels ---- */

void metrics_label(struct text *out, const char *value)
{
    for (; *value; value++) {
        if (*value == '\n')
            text_word(out, "\\n");
        else if (*value == '\\' || *value == '"')
            text_add(out, (const char[]){'\\', *value}, 2);
        else
            text_add(out, value, 1);
    }
}

static bool push_label(struct walk *w, const char *name, size_t bytes, const char *value)
{
    struct label *l = &w->label[w->n];

    if (w->n == METRICS_LABELS_MAX || bytes >= sizeof(l->name)) {
        w->family->failed = true;
        return false;
    }
    memcpy(l->name, name, bytes);
    l->name[bytes] = '\0';
    l->value = value;
    w->n++;
    return true;
}

static void write_labels(const struct walk *w, struct text *out)
{
    for (uint32_t i = 0; i < w->n; i++) {
        text_format(out, "%s%s=\"", i ? "," : "", w->label[i].name);
        metrics_label(out, w->label[i].value);
        text_word(out, "\"");
    }
}

/* ---- collecting ---- */

static struct sample *new_sample(struct family *f)
{
    size_t room = f->room ? 2 * f->room : FIRST_ROOM;
    struct sample *grown;

    if (f->n < f->room)
        return &f->sample[f->n++];
    if (f->n >= METRICS_SERIES_MAX)
        return NULL;
    grown = realloc(f->sample, room * sizeof(*grown));
    if (!grown)
        return NULL;
    f->sample = grown;
    f->room = room;
    return &f->sample[f->n++];
}

static void collect(struct walk *w, double value, const json_t *histogram)
{
    struct family *f = w->family;
    size_t at = f->labels.bytes;
    struct sample *s;

    write_labels(w, &f->labels);
    s = f->labels.failed ? NULL : new_sample(f);
    if (!s) {
        f->failed = true;
        return;
    }
    *s = (struct sample){at, f->labels.bytes - at, value, histogram};
}

static void leaf(struct walk *w, const json_t *node, const char *word)
{
    double scale = w->family->row->scale, value;

    if (w->family->row->type == METRIC_HISTOGRAM) {
        if (json_is_object(node))
            collect(w, 0, node);
        return;
    }
    if (word)
        value = strcmp(json_string_value(node) ? json_string_value(node) : "", word) == 0;
    else if (json_is_boolean(node) || json_is_object(node))
        value = !json_is_false(node);
    else
        value = json_number_value(node);
    if (!json_is_null(node))
        collect(w, scale != 0 ? value * scale : value, NULL);
}

/* ---- walking ---- */

static bool is(const char *name, size_t bytes, const char *word)
{
    return bytes == strlen(word) && memcmp(name, word, bytes) == 0;
}

/* Returns the number of rows with series of their own. Lists without a limit here are bounded by
 * the daemon's program. */
static uint32_t rows_shown(const struct family *f, const char *label, size_t bytes)
{
    if (is(label, bytes, "tenant"))
        return f->form->tenants;
    return is(label, bytes, "pool") || is(label, bytes, "peer") ? METRICS_ROWS_MAX
                                                                : METRICS_SERIES_MAX;
}

/* Writes the labels of one row; `beyond` the limit they are all "other". */
static bool row_labels(struct walk *w, const char *names, size_t bytes, const json_t *row,
                       bool beyond)
{
    const char *end = names + bytes;

    while (names < end) {
        const char *comma = memchr(names, ',', (size_t)(end - names));
        size_t n = (size_t)((comma ? comma : end) - names);
        const char *value = json_string_value(json_object_getn(row, names, n));

        if (!push_label(w, names, n, beyond ? SPACES_OTHER : value ? value : ""))
            return false;
        names += n + (comma ? 1 : 0);
    }
    return true;
}

static void walk(struct walk *w, const char *path, const json_t *node);

static void walk_rows(struct walk *w, const char *names, const json_t *array)
{
    size_t bytes = strcspn(names, "]"), i;
    uint32_t shown = rows_shown(w->family, names, strcspn(names, ",]")), n = w->n;
    json_t *row;

    if (names[0] == '#') {
        collect(w, (double)json_array_size(array), NULL);
        return;
    }
    if (json_is_object(array) && row_labels(w, names, bytes, array, false))
        walk(w, names + bytes + 1, array);
    json_array_foreach(array, i, row)
    {
        if (!row_labels(w, names, bytes, row, i >= shown))
            return;
        walk(w, names + bytes + 1, row);
        w->n = n;
    }
    w->n = n;
}

static void walk_members(struct walk *w, const char *name, const json_t *object)
{
    size_t bytes = strcspn(name, "}"), i = 0;
    uint32_t shown = rows_shown(w->family, name, bytes);
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)(uintptr_t)object, key, value)
    {
        if (!push_label(w, name, bytes, i++ >= shown ? SPACES_OTHER : key))
            return;
        walk(w, name + bytes + 1, value);
        w->n--;
    }
}

static void walk(struct walk *w, const char *path, const json_t *node)
{
    size_t n;

    if (!node || w->family->failed)
        return;
    if (*path == '\0' || *path == '=') {
        leaf(w, node, *path ? path + 1 : NULL);
    } else if (*path == '[') {
        walk_rows(w, path + 1, node);
    } else if (*path == '{') {
        walk_members(w, path + 1, node);
    } else {
        path += *path == '.';
        n = strcspn(path, ".[{=");
        walk(w, path + n, json_object_getn(node, path, n));
    }
}

static void walk_row(struct family *f, const struct metric *row, const json_t *answers)
{
    struct walk w = {.family = f};
    const char *value = row->label ? strchr(row->label, '=') : NULL;

    f->row = row;
    if (value && !push_label(&w, row->label, (size_t)(value - row->label), value + 1))
        return;
    walk(&w, row->from, answers);
}

/* ---- equal labels ---- */

static int by_labels(const void *a, const void *b, void *labels)
{
    const struct sample *x = a, *y = b;
    const char *text = labels;
    size_t n = x->labels_bytes < y->labels_bytes ? x->labels_bytes : y->labels_bytes;
    int order = n ? memcmp(text + x->labels, text + y->labels, n) : 0;

    if (order)
        return order;
    return (x->labels_bytes > y->labels_bytes) - (x->labels_bytes < y->labels_bytes);
}

static void merge(struct family *f)
{
    size_t n = 0;

    if (f->n > 1)
        qsort_r(f->sample, f->n, sizeof(*f->sample), by_labels, f->labels.at);
    for (size_t i = 0; i < f->n; i++) {
        if (n > 0 && by_labels(&f->sample[n - 1], &f->sample[i], f->labels.at) == 0)
            f->sample[n - 1].value += f->sample[i].value;
        else
            f->sample[n++] = f->sample[i];
    }
    f->n = n;
}

/* ---- lines ---- */

static void number(struct text *out, double value)
{
    if (value == floor(value) && fabs(value) <= 0x1p53)
        text_format(out, "%.0f\n", value);
    else
        text_format(out, "%.15g\n", value);
}

/* Writes name{labels,more} and a space; `more` may be "". */
static void series(struct text *out, const struct family *f, const struct sample *s,
                   const char *suffix, const char *more)
{
    bool has = s->labels_bytes > 0, any = has || *more;

    text_format(out, "%s%s%s", f->row->name, suffix, any ? "{" : "");
    if (has)
        text_add(out, f->labels.at + s->labels, s->labels_bytes);
    text_word(out, has && *more ? "," : "");
    text_word(out, more);
    text_word(out, any ? "} " : " ");
}

static void histogram(struct text *out, const struct family *f, const struct sample *s)
{
    const json_t *buckets = json_object_get(s->histogram, "buckets");
    char le[KEY_BYTES];
    double below = 0;

    for (uint32_t i = 0; i + 1 < BUCKETS; i++) {
        below += json_number_value(json_array_get(buckets, i));
        snprintf(le, sizeof(le), "le=\"%.10g\"", (double)(1ull << i) / US_PER_S);
        series(out, f, s, "_bucket", le);
        number(out, below);
    }
    below += json_number_value(json_array_get(buckets, BUCKETS - 1));
    series(out, f, s, "_bucket", "le=\"+Inf\"");
    number(out, below);
    series(out, f, s, "_sum", "");
    number(out, json_number_value(json_object_get(s->histogram, "sum_us")) / US_PER_S);
    series(out, f, s, "_count", "");
    number(out, below);
}

static const char *const type_words[] = {
    [METRIC_COUNTER] = "counter", [METRIC_GAUGE] = "gauge", [METRIC_HISTOGRAM] = "histogram"};

/* The unit is the end of the name. */
static const char *unit_of(const char *name)
{
    static const char *const units[] = {"seconds", "bytes"};
    size_t n = strlen(name);

    for (size_t i = 0; i < sizeof(units) / sizeof(*units); i++) {
        size_t m = strlen(units[i]);

        if (n > m && name[n - m - 1] == '_' && strcmp(name + n - m, units[i]) == 0)
            return units[i];
    }
    return NULL;
}

static void head(struct text *out, const struct metric *m, bool openmetrics)
{
    const char *total = m->type == METRIC_COUNTER && !openmetrics ? "_total" : "";
    const char *unit = unit_of(m->name);

    text_format(out, "# HELP %s%s ", m->name, total);
    text_word(out, m->help);
    text_format(out, ".\n# TYPE %s%s %s\n", m->name, total, type_words[m->type]);
    if (openmetrics && unit)
        text_format(out, "# UNIT %s %s\n", m->name, unit);
}

/* Writes the family that begins at that row, and returns the row behind it. */
static size_t write_family(struct text *out, struct family *f, size_t at, const json_t *answers)
{
    const struct metric *first = &metrics_table[at];

    f->n = 0;
    f->labels.bytes = 0;
    do
        walk_row(f, &metrics_table[at++], answers);
    while (at < metrics_n && strcmp(metrics_table[at].name, first->name) == 0);
    merge(f);
    if (f->n > 0)
        head(out, first, f->form->openmetrics);
    for (size_t i = 0; i < f->n; i++) {
        if (first->type == METRIC_HISTOGRAM) {
            histogram(out, f, &f->sample[i]);
        } else {
            series(out, f, &f->sample[i], first->type == METRIC_COUNTER ? "_total" : "", "");
            number(out, f->sample[i].value);
        }
    }
    return at;
}

bool metrics_write(struct text *out, const json_t *answers, const struct metrics_form *form)
{
    struct family f = {.form = form};

    text_begin(&f.labels, METRICS_BYTES_MAX);
    for (size_t at = 0; at < metrics_n && !f.failed && !out->failed;)
        at = write_family(out, &f, at, answers);
    if (form->openmetrics)
        text_word(out, "# EOF\n");
    free(f.sample);
    text_end(&f.labels);
    return !f.failed && !out->failed;
}

/* ---- the requested form ---- */

bool metrics_accepts_openmetrics(const char *accept)
{
    while (accept && *accept) {
        size_t n = strcspn(accept, ",");
        const char *q;

        accept += strspn(accept, " \t");
        if (strncasecmp(accept, OPENMETRICS, strlen(OPENMETRICS)) == 0) {
            q = memmem(accept, strcspn(accept, ","), "q=", 2);
            return !q || strtod(q + 2, NULL) > 0;
        }
        n = strcspn(accept, ",");
        accept += n + (accept[n] == ',');
    }
    return false;
}

/* ---- the document ---- */

/* Writes the labels that a row's path names, and its own. */
static void describe_labels(struct text *out, const struct metric *m)
{
    const char *between = "";

    if (m->label) {
        text_format(out, "`%.*s`", (int)strcspn(m->label, "="), m->label);
        between = ", ";
    }
    for (const char *c = strpbrk(m->from, "[{"); c; c = strpbrk(c + 1, "[{")) {
        const char *name = c + 1;

        while (*name != ']' && *name != '}' && *name != '#') {
            size_t n = strcspn(name, ",]}");

            text_format(out, "%s`%.*s`", between, (int)n, name);
            between = ", ";
            name += n + (name[n] == ',');
        }
    }
}

void metrics_describe(struct text *out)
{
    text_word(out, "| metric | type | labels | what it is | from |\n|---|---|---|---|---|\n");
    for (size_t i = 0; i < metrics_n;) {
        const struct metric *m = &metrics_table[i];

        text_format(out, "| `%s%s` | %s | ", m->name, m->type == METRIC_COUNTER ? "_total" : "",
                    type_words[m->type]);
        describe_labels(out, m);
        text_word(out, " | ");
        text_word(out, m->help);
        text_word(out, " | ");
        do {
            text_format(out, "%s`", &metrics_table[i] == m ? "" : ", ");
            text_word(out, metrics_table[i].from);
            text_word(out, "`");
            i++;
        } while (i < metrics_n && strcmp(metrics_table[i].name, m->name) == 0);
        text_word(out, " |\n");
    }
}
