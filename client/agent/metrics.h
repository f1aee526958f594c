/* Metrics: one table (metrics_table.c) says each one's name, type, help and where in the daemon's
 * answers it lies, and metrics_write makes both text forms of it. docs/metrics.md is made from the
 * table, too.
 *
 * A place is a path that begins with the answer: "stats.tenants[tenant].prompt_tokens".
 *   .key       that member of an object
 *   [a,b]      each row of an array, with the labels a and b, whose values are its members a and b;
 *              or of an object itself, which counts 1
 *   []         the sum over the rows of an array
 *   [#]        how many rows it has
 *   {a}        each member of an object, whose key is the value of the label a
 *   =word      1 if the text is that word, else 0
 * What is not there, or null, has no sample. Rows beyond the limit of a bracket's first label are
 * summed under "other", so that series are bounded; so are samples whose labels are equal. */
#ifndef AGENT_METRICS_H
#define AGENT_METRICS_H

#include <jansson.h>
#include <stdint.h>

#include "client/agent/text.h"

#define METRICS_BYTES_MAX  (16u << 20) /* of one answer */
#define METRICS_SERIES_MAX 65536u      /* of one family */
#define METRICS_LABELS_MAX 6u          /* of one sample */
#define METRICS_ROWS_MAX   256u        /* of pools, and of peers, that have series of their own */

enum metric_type {
    METRIC_COUNTER, /* its name gets _total */
    METRIC_GAUGE,
    METRIC_HISTOGRAM,
};

struct metric {
    const char *name; /* that of the row before: one family, whose type and help stand there */
    enum metric_type type;
    const char *from;
    const char *label; /* of this row's samples: key=value; NULL: none */
    const char *help;  /* one sentence without its full stop */
    double scale;      /* from the answer's unit; 0: as it is */
};

extern const struct metric metrics_table[];
extern const size_t metrics_n;

struct metrics_form {
    bool openmetrics; /* else the text form of Prometheus, 0.0.4 */
    uint32_t tenants; /* so many have series of their own */
};

/* Writes all metrics of these answers, an object with one member for each. False: the text or a
 * family is larger than its limit, or there is no memory. */
bool metrics_write(struct text *out, const json_t *answers, const struct metrics_form *form);

/* The value of a label, with what both forms want escaped. */
void metrics_label(struct text *out, const char *value);

/* True if whoever sent this Accept header takes OpenMetrics; NULL: there was none. */
bool metrics_accepts_openmetrics(const char *accept);

/* The table as a table of Markdown. */
void metrics_describe(struct text *out);

#endif
