/* The sub-commands of tern-bench. Each measures Tern beside a raw baseline in the same run, prints
 * one JSON object or a table, and says whether the figures are within the stated limits. */
#ifndef BENCH_BENCH_H
#define BENCH_BENCH_H

#include <jansson.h>
#include <stdbool.h>

#define BENCH_ARGS_MAX 16

struct bench_args {
    bool json, quick;  /* quick: fewer rounds, for tests of the program itself */
    const char *trace; /* rpc: what the replay beside it plays; NULL: generated sessions */
};

/* Exit status: 0 within the limits, 1 not, 2 could not be measured. */
int bench_index(const struct bench_args *args);
int bench_rpc(const struct bench_args *args);
int bench_transfer(const struct bench_args *args);

/* One line of the table: name, figure with its unit, and the limit that it is held to or "". */
void bench_row(const char *name, double value, const char *unit, const char *limit);
/* Says on standard error what is outside its limit; returns `ok`. */
bool bench_limit(bool ok, const char *text);

#endif
