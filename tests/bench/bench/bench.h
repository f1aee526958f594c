/* The sub-commands of tern-bench. Each measures Tern beside a raw baseline in the same run, prints
 * one JSON object or a table, and says whether the figures are within the stated limits. */
#ifndef BENCH_BENCH_H
#define BENCH_BENCH_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define BENCH_ARGS_MAX 16

struct bench_args {
    bool json, quick;  /* quick: fewer rounds, for tests of the program itself */
    const char *table; /* neighbours: the only row; transfer: "pages"; NULL: all */
    const char *dir;   /* spill: where its files lie; NULL: /var/tmp */
    uint64_t bytes;    /* spill: of one pass; 0: as many as it wants */
};

/* Exit status: 0 within the limits, 1 not, 2 could not be measured; main makes 3 of it where a
 * limit of bench_count is not kept. */
int bench_blocks(const struct bench_args *args);
int bench_health(const struct bench_args *args);
int bench_index(const struct bench_args *args);
int bench_kernels(const struct bench_args *args);
int bench_neighbours(const struct bench_args *args);
int bench_publish(const struct bench_args *args);
int bench_reshard(const struct bench_args *args);
int bench_retention(const struct bench_args *args);
int bench_rpc(const struct bench_args *args);
int bench_spill(const struct bench_args *args);
int bench_transfer(const struct bench_args *args);

/* A figure: its key in the JSON object; and its line of the table, with the limit that it is held
 * to or NULL. No line where `row` is NULL. */
struct bench_figure {
    const char *key;
    double value;
    const char *row, *unit, *limit;
};
/* Puts them into the JSON object, or prints the table where that is asked for. */
void bench_show(const struct bench_args *args, json_t *o, const struct bench_figure *v, size_t n);
/* Says on standard error what is outside its limit; returns `ok`. */
bool bench_limit(bool ok, const char *text);
/* The same for a limit that no clock is asked about, or that holds by far whatever the clock says:
 * the machine's load is no excuse. */
bool bench_count(bool ok, const char *text);

#endif
