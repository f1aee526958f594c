/* Metrics: one table (metrics_table.c) has the name, type, help and place in the daemon's answers
 * of each, and metrics_write makes both text forms of it. docs/metrics.md is made from it, too.
 *
 * A place is a path that begins with the answer: "stats.tenants[tenant].prompt_tokens".
 *   .key       that member of an object
 *   [a,b]      each row of an array, with the labels a and b, whose values are its members a and b;
 *              or of an object itself, which counts 1
 *   []         the sum over the rows of an array
 *   [#]        how many rows it has
 *   {a}        each member of an object, whose key is the value of the label a
 *   =word      1 if the text is that word, else 0
 * Absent or null members have no sample. Rows beyond the limit of a bracket's first label are
 * summed under "other", so that series are bounded; samples with equal labels are summed, too. */
#ifndef AGENT_METRICS_H
#define AGENT_METRICS_H

#include <jansson.h>
#include <stdint.h>

#include "client/agent/text.h"

#define METRICS_BYTES_MAX  (16u << 20) /* of one answer */
#define METRICS_SERIES_MAX 65536u      /* of one family */
#define METRICS_LABELS_MAX 6u          /* of one sample */
#define METRICS_ROWS_MAX   256u        /* pools, and peers, with series of their own */

enum metric_type {
    METRIC_COUNTER, /* its name gets _total */
    METRIC_GAUGE,
    METRIC_HISTOGRAM,
};

struct metric {
    const char *name; /* as in the row before: one family; its first row has type and help */
    enum metric_type type;
    const char *from;
    const char *label; /* label of this row's samples: key=value; NULL: none */
    const char *help;  /* one sentence without its full stop */
    double scale;      /* factor from the answer's unit; 0: unchanged */
};

extern const struct metric metrics_table[];
extern const size_t metrics_n;

struct metrics_form {
    bool openmetrics; /* else the text form of Prometheus, 0.0.4 */
    uint32_t tenants; /* number of tenants with series of their own */
};

/* Writes all metrics of these answers, an object with one member for each answer. Returns false if
 * the text or a family exceeds its limit, or there is no memory. */
bool metrics_write(struct text *out, const json_t *answers, const struct metrics_form *form);

/* Writes the value of a label, with the escapes of both forms. */
void metrics_label(struct text *out, const char *value);

/* Returns true if this Accept header accepts OpenMetrics; NULL: no header. */
bool metrics_accepts_openmetrics(const char *accept);

/* Writes the table as Markdown. */
void metrics_describe(struct text *out);

#endif
