/* Fuzz target: a worker's check of a turn record (daemon/seam/mem/record_check.c). The bytes choose
 * the record's contents, the runs of pages of its sections, the lengths at which hashes are wanted,
 * and the words that are wrong. The result must be OK exactly if a word by word reading finds no
 * fault, and must name the fault that this reading finds. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/check.h"
#include "fuzz/passed.h"
#include "seam/mem/mem_fault.h"
#include "seam/mem/record_check.h"

#define PAGES      8u
#define PAGE_WORDS (RECORD_PAGE_BYTES / 4)
#define POKES_MAX  16

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint32_t memory[PAGES * PAGE_WORDS]; /* between two inputs: words that are valid anywhere */

struct input {
    const uint8_t *v;
    size_t n;
};

static uint32_t take(struct input *in, uint32_t bytes)
{
    uint32_t v = 0;

    for (; bytes > 0; bytes--) {
        v = v << 8 | (in->n ? *in->v : 0);
        in->v += in->n > 0;
        in->n -= in->n > 0;
    }
    return v;
}

static uint32_t good(uint32_t i)
{
    return i * 2654435761u % 0x7f800000u;
}

/* Runs that may touch each other, and may overlap those of the other section. */
static void lay_out(struct input *in, struct record_section *s, uint64_t bytes)
{
    uint32_t pages = (uint32_t)((bytes + RECORD_PAGE_BYTES - 1) / RECORD_PAGE_BYTES);

    *s = (struct record_section){.bytes = bytes};
    while (pages > 0) {
        uint32_t n = 1 + take(in, 1) % pages, at;

        if (s->nruns + 1 == RECORD_RUNS_MAX)
            n = pages;
        at = take(in, 1) % (PAGES - n + 1);
        s->run[s->nruns++] = (struct record_run){at, n};
        pages -= n;
    }
}

static uint32_t *word(const struct record_section *s, uint32_t i)
{
    uint32_t page = i / PAGE_WORDS, run = 0;

    while (page >= s->run[run].n)
        page -= s->run[run++].n;
    check(run < s->nruns && 4ull * i < s->bytes);
    return memory + (size_t)(s->run[run].first + page) * PAGE_WORDS + i % PAGE_WORDS;
}

static void make_job(struct input *in, struct record_job *job)
{
    uint32_t most = PAGES * PAGE_WORDS, n, flags = take(in, 1);

    *job = (struct record_job){.id = {.slot = 3, .gen = flags}, .kind = flags & 1};
    if (flags & 2)
        most = 600; /* a page each, most often */
    job->length = take(in, 2) % (most + 1);
    if (job->kind == RECORD_APPEND) {
        job->from = take(in, 2) % (job->length + 1);
        n = job->length - job->from;
        job->logprobs = flags & 4 ? n : take(in, 2) % (n + 1);
        if (n + job->logprobs > most)
            job->logprobs = most - n;
        lay_out(in, &job->own, 4ull * (n + job->logprobs));
    }
    lay_out(in, &job->before, 4ull * (job->kind == RECORD_APPEND ? job->from : job->length));
    job->nat = 1 + (flags >> 3) % (BLOBS_KEPT_MAX + 1);
    for (uint32_t i = 0, at = 0; i < job->nat; i++) {
        at += i + 1 < job->nat ? take(in, 2) % (job->length - at + 1) : job->length - at;
        job->at[i] = at;
    }
}

/* The word of the i-th token. */
static uint32_t *token(const struct record_job *job, uint32_t i)
{
    uint32_t before = job->kind == RECORD_APPEND ? job->from : job->length;

    return i < before ? word(&job->before, i) : word(&job->own, i - before);
}

static void read_all(const struct record_job *job, struct record_checked *ret)
{
    static uint32_t list[PAGES * PAGE_WORDS];

    *ret = (struct record_checked){.id = job->id};
    for (uint32_t i = 0; i < job->length; i++) {
        list[i] = *token(job, i);
        if (list[i] > INT32_MAX) {
            ret->err = TERN_MALFORMED;
            ret->part = PART_TOKENS;
            ret->index = i;
            return;
        }
    }
    for (uint32_t i = 0; i < job->logprobs; i++) {
        float v;

        memcpy(&v, word(&job->own, job->length - job->from + i), sizeof v);
        if (isfinite(v))
            continue;
        ret->err = TERN_MALFORMED;
        ret->part = PART_LOGPROBS;
        ret->index = i;
        return;
    }
    for (uint32_t i = 0; i < job->nat; i++) {
        XXH128_hash_t h = XXH3_128bits(list, 4ull * job->at[i]);

        ret->hash[ret->nhashes++] = (struct list_hash){.hi = h.high64, .lo = h.low64};
    }
}

static void compare(const struct record_checked *a, const struct record_checked *b)
{
    check(a->id.slot == b->id.slot && a->id.gen == b->id.gen && a->err == b->err);
    check(a->part == b->part && a->index == b->index);
    if (a->err != TERN_OK)
        return;
    check(a->nhashes == b->nhashes);
    for (uint32_t i = 0; i < a->nhashes; i++)
        check(a->hash[i].hi == b->hash[i].hi && a->hash[i].lo == b->hash[i].lo);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool filled;
    struct input in = {data, size};
    struct record_checked found, want;
    uint32_t poked[POKES_MAX], n = 0;
    struct record_job job;

    for (uint32_t i = 0; i < PAGES * PAGE_WORDS && !filled; i++)
        memory[i] = good(i);
    filled = true;
    fuzz_begin();
    fuzz_passed(); /* every input is a record that can be checked */
    make_job(&in, &job);
    for (; n < POKES_MAX && in.n > 0; n++) {
        poked[n] = take(&in, 2) % (PAGES * PAGE_WORDS);
        memory[poked[n]] = take(&in, 4);
    }
    record_check(&job, (const uint8_t *)memory, mem_fault_bytes, &found);
    read_all(&job, &want);
    compare(&found, &want);
    for (uint32_t i = 0; i < n; i++)
        memory[poked[i]] = good(poked[i]);
    return 0;
}
