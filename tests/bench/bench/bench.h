/* The sub-commands of tern-bench. Each measures Tern beside a raw baseline in the same run, prints
 * one JSON object or a table, and reports whether the figures are within the stated limits. */
#ifndef BENCH_BENCH_H
#define BENCH_BENCH_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define BENCH_ARGS_MAX 16

struct bench_args {
    bool json, quick;  /* quick: fewer rounds, for tests of the program itself */
    const char *table; /* neighbours: the only row; transfer: "pages"; NULL: all */
    const char *dir;   /* spill: folder of its files; NULL: /var/tmp */
    uint64_t bytes;    /* spill: of one pass; 0: the default */
};

/* Return the exit status: 0 within the limits, 1 not, 2 could not be measured; main returns 3
 * instead if a limit of bench_count is exceeded. */
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

/* A figure: its key in the JSON object; its line of the table, none if `row` is NULL; and the limit
 * that it is held to, or NULL. */
struct bench_figure {
    const char *key;
    double value;
    const char *row, *unit, *limit;
};
/* Puts the figures into the JSON object, or prints the table if that was asked for. */
void bench_show(const struct bench_args *args, json_t *o, const struct bench_figure *v, size_t n);
/* Reports on standard error if a figure is outside its limit. Returns `ok`. */
bool bench_limit(bool ok, const char *text);
/* The same for a limit that does not depend on time, or that holds with a wide margin: a loaded
 * machine is no excuse. */
bool bench_count(bool ok, const char *text);

#endif
