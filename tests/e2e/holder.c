/* An engine for the scripts of this folder, which watch the daemon while it runs.
 *
 * `holder hold SOCKET` commits three prefixes of 1,024 tokens, the first 512 in common; the
 * sessions of two stay open. It prints "ready" and waits for a byte or the end of its input, prints
 * "back" and waits again.
 *
 * `holder away SOCKET` does the same with a host tier, to which the two sessions are retracted;
 * they are recovered before "back".
 *
 * `holder put SOCKET CHUNKS SEED` commits CHUNKS chunks of 64 tokens of the sequence SEED.
 *
 * Exit status: 0, or 1 with the daemon's error on standard output. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "engine/engine.h"

#define CALL_MS 5000
#define CHUNK   64
#define TOKENS  1024
#define COMMON  512

static struct engine e;

static void must(enum tern_err err)
{
    if (err == TERN_OK)
        return;
    printf("%s: %s\n", err_name(err), engine_why(&e));
    exit(1);
}

static struct engine_session committed(uint32_t n, uint32_t common, uint32_t seed)
{
    uint32_t tokens[TOKENS];
    struct engine_session s;

    for (uint32_t i = 0; i < n; i++)
        tokens[i] = i < common ? i : seed + i;
    must(engine_begin(&s, &e, tokens, n));
    must(engine_run(&s));
    return s;
}

static void tell(const char *word)
{
    puts(word);
    fflush(stdout);
    getchar();
}

static void hold(bool away)
{
    struct engine_session kept[2], closed;
    struct tern_retracted gone;

    for (uint32_t k = 0; k < 2; k++) {
        kept[k] = committed(TOKENS, COMMON, k * 10000);
        if (away)
            must(tern_retract(e.tern, kept[k].id, k ? TERN_RETRACT_DROP : TERN_RETRACT_HOST,
                              TERN_STEP_NONE, CALL_MS, &gone));
    }
    closed = committed(TOKENS, COMMON, 20000);
    must(engine_end(&closed));
    tell("ready");
    for (uint32_t k = 0; away && k < 2; k++) {
        must(engine_recover(&kept[k], CALL_MS));
        must(kept[k].len.committed == TOKENS ? TERN_OK : TERN_INTERNAL);
    }
    tell("back");
    for (uint32_t k = 0; k < 2; k++)
        engine_free(&kept[k]);
}

int main(int argc, char **argv)
{
    struct tern_group kv = {.name = "kv", .page_tokens = CHUNK, .page_bytes = 4096};
    struct tern_layout layout = {.groups = &kv, .ngroups = 1, .bytes = 4u << 20};
    bool away = argc == 3 && strcmp(argv[1], "away") == 0;
    struct engine_session s;

    if (argc != 3 && argc != 5)
        return 2;
    layout.host_bytes = away ? layout.bytes : 0;
    must(engine_open(&e, argv[2], away ? "away <&>" : "holder", &layout, CALL_MS));
    if (argc == 3) {
        hold(away);
    } else {
        s = committed((uint32_t)atoi(argv[3]) * CHUNK, 0, (uint32_t)atoi(argv[4]) * 65536);
        must(engine_end(&s));
    }
    engine_close(&e);
    return 0;
}
