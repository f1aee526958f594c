/* A reader of Mooncake JSONL traces: one line at a time, every field checked. */
#ifndef REPLAY_TRACE_H
#define REPLAY_TRACE_H

#include <stdio.h>

#include "source.h"

#define TRACE_LINE_MAX (8u << 20)

struct trace {
    const char *name; /* borrowed */
    FILE *file;       /* owned */
    uint64_t line;
    char *buf; /* owned; one line */
    size_t cap;
};

bool trace_open(struct trace *t, const char *name, char *why);
void trace_close(struct trace *t);
int trace_next(struct trace *t, struct prompt *p, char *why); /* as source_next */

#endif
