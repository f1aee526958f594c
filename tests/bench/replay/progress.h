/* A progress bar with rate and time left, on standard error, and only where that is a terminal. */
#ifndef BENCH_PROGRESS_H
#define BENCH_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress {
    const char *what; /* "requests"; borrowed */
    uint64_t total, start_ns, drawn_ns;
    bool terminal;
};

void progress_start(struct progress *p, const char *what, uint64_t total);
/* Draws at most ten times a second. `note` is a short text; may be "". */
void progress_show(struct progress *p, uint64_t done, const char *note);
void progress_end(struct progress *p);

#endif
