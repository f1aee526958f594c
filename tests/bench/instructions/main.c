/* tern-instructions plays a fixed list of requests, each once and by stages, for callgrind to
 * count. instructions.py runs it. Invariant: every run executes the same instructions, so nothing
 * here depends on a clock, an address or another thread. */
#include <stdio.h>
#include <stdlib.h>
#include <valgrind/callgrind.h>

#include "stages.h"

#define NAME_BYTES 64

static const char *request, *running;

static void end_stage(void)
{
    char name[NAME_BYTES];

    if (request && running) {
        snprintf(name, sizeof name, "%s/%s", request, running);
        CALLGRIND_DUMP_STATS_AT(name);
    }
    running = NULL;
}

void stage(const char *name)
{
    end_stage();
    running = name;
    if (request && running)
        CALLGRIND_ZERO_STATS;
}

void stages_begin(const char *name)
{
    end_stage();
    request = name;
}

void wrong(const char *what)
{
    fprintf(stderr, "tern-instructions: %s does not hold\n", what);
    exit(1);
}

int main(void)
{
    count_pins();
    count_requests();
    count_fetches();
    return 0;
}
