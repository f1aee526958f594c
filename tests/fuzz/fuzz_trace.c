/* Fuzz target: a trace of tern-replay. Each line is the input's unchanged, or, if it begins with
 * CHOSEN, an object whose numbers the following bytes choose. An accepted line keeps the promises
 * of a prompt; a refused one ends the trace, with its number. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/check.h"
#include "bench/replay/trace.h"
#include "fuzz/message.h"
#include "fuzz/passed.h"

#define CHOSEN    1u
#define IDS_MAX   16u
#define LINES_MAX 64u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static int file = -1;
static char path[64];

static uint64_t number(struct fuzz_bytes *in)
{
    uint8_t how = fuzz_take(in);
    uint64_t v = 1u + fuzz_take(in);

    return how < 128 ? v : how < 240 ? v << how % 16 : v << how % 64;
}

static void put_line(FILE *out, struct fuzz_bytes *in)
{
    uint8_t fields = fuzz_take(in);
    uint64_t length = number(in), block = number(in);
    uint32_t ids = fuzz_take(in) % (IDS_MAX + 1);

    fprintf(out, "{\"input_length\": %llu", (unsigned long long)length);
    if (fields & 1)
        fprintf(out, ", \"timestamp\": %llu", (unsigned long long)number(in));
    if (fields & 2)
        fprintf(out, ", \"output_length\": %llu", (unsigned long long)number(in));
    block = fields & 4 ? block : 512;
    if (fields & 4)
        fprintf(out, ", \"block_size\": %llu", (unsigned long long)block);
    if (fields < 250 && block && ids > (length + block - 1) / block)
        ids = (uint32_t)((length + block - 1) / block);
    fputs(", \"hash_ids\": [", out);
    for (uint32_t i = 0; i < ids; i++)
        fprintf(out, "%s%u", i ? ", " : "", fuzz_take(in));
    fputs("]}\n", out);
}

static void put_trace(const uint8_t *data, size_t n)
{
    struct fuzz_bytes in = {data, n};
    FILE *out = fdopen(dup(file), "we");
    const uint8_t *end;

    check(out && ftruncate(file, 0) == 0 && fseek(out, 0, SEEK_SET) == 0);
    while (in.n > 0) {
        if (*in.v == CHOSEN) {
            fuzz_take(&in);
            put_line(out, &in);
            continue;
        }
        end = memchr(in.v, '\n', in.n);
        end = end ? end + 1 : in.v + in.n;
        fwrite(in.v, 1, (size_t)(end - in.v), out);
        in.n -= (size_t)(end - in.v);
        in.v = end;
    }
    fclose(out);
}

static void set_up(void)
{
    if (file >= 0)
        return;
    file = memfd_create("trace", MFD_CLOEXEC);
    check(file >= 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
}

/* Is the first line a prompt? */
bool fuzz_gets_past(const uint8_t *data, size_t n)
{
    char why[SOURCE_WHY_BYTES];
    struct prompt p = {0};
    struct trace t;
    bool ok;

    set_up();
    put_trace(data, n);
    check(trace_open(&t, path, why));
    ok = trace_next(&t, &p, why) > 0;
    trace_close(&t);
    free(p.ids);
    return ok;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    char why[SOURCE_WHY_BYTES] = "";
    struct prompt p = {0};
    struct trace t;
    int got = 0;

    fuzz_begin();
    set_up();
    put_trace(data, n);
    check(trace_open(&t, path, why));
    for (uint32_t i = 0; i < LINES_MAX && (got = trace_next(&t, &p, why)) > 0; i++) {
        fuzz_passed();
        check(p.input_length > 0 && p.input_length <= PROMPT_TOKENS_MAX);
        check(p.block_size > 0 && p.block_size <= BLOCK_TOKENS_MAX);
        check(p.nblocks <= (p.input_length + p.block_size - 1) / p.block_size);
    }
    check(got >= 0 || strstr(why, path));
    trace_close(&t);
    free(p.ids);
    return 0;
}
