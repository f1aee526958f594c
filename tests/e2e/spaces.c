/* An engine for the scripts of this folder: spaces SOCKET N commits one chunk in each of N
 * namespaces, prints "ready", and stays until the end of its input.
 *
 * Exit status: 0, or 1 with the daemon's error on standard output. */
#include <stdio.h>
#include <stdlib.h>

#include "base/err.h"
#include "engine/engine.h"

#define CALL_MS    20000
#define CHUNK      64
#define PAGE_BYTES 512

static struct engine e;

static void must(enum tern_err err)
{
    if (err == TERN_OK)
        return;
    printf("%s: %s\n", err_name(err), engine_why(&e));
    exit(1);
}

int main(int argc, char **argv)
{
    struct tern_group kv = {.name = "kv", .page_tokens = CHUNK, .page_bytes = PAGE_BYTES};
    struct tern_layout layout = {.groups = &kv, .ngroups = 1, .bytes = 1u << 20};
    uint32_t tokens[CHUNK];
    char model[32];
    int n = argc == 3 ? atoi(argv[2]) : 0;

    if (n < 1)
        return 2;
    for (uint32_t i = 0; i < CHUNK; i++)
        tokens[i] = i;
    must(engine_open(&e, argv[1], "spaces", &layout, CALL_MS));
    for (int i = 0; i < n; i++) {
        struct engine_session s;

        snprintf(model, sizeof(model), "m%d", i);
        e.ns.model = model;
        must(engine_begin(&s, &e, tokens, CHUNK));
        must(engine_run(&s));
        must(engine_end(&s));
    }
    puts("ready");
    fflush(stdout);
    getchar();
    engine_close(&e);
    return 0;
}
