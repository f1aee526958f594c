/* See record_check.h. Runs of a section are whole pages, so no number crosses pages. */
#include "seam/mem/record_check.h"

#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

static_assert(RECORD_PAGE_BYTES % sizeof(uint32_t) == 0, "numbers do not lie across pages");

struct look {
    const struct record_job *job;
    const uint8_t *memory;
    struct record_checked *ret;
    XXH3_state_t state;
    uint32_t tokens; /* fed so far */
};

/* Reads a section's numbers in contiguous pieces. */
struct reader {
    const struct record_section *section;
    uint32_t run;
    uint64_t at; /* bytes into that run */
};

static const uint32_t *read_next(const struct look *l, struct reader *r, uint32_t most,
                                 uint32_t *ret_n)
{
    const struct record_run *run = &r->section->run[r->run];
    uint64_t bytes = (uint64_t)run->n * RECORD_PAGE_BYTES - r->at;
    const uint8_t *p = l->memory + (uint64_t)run->first * RECORD_PAGE_BYTES + r->at;

    *ret_n = bytes / sizeof(uint32_t) < most ? (uint32_t)(bytes / sizeof(uint32_t)) : most;
    r->at += *ret_n * sizeof(uint32_t);
    if (r->at == (uint64_t)run->n * RECORD_PAGE_BYTES) {
        r->run++;
        r->at = 0;
    }
    return (const uint32_t *)(const void *)p;
}

static bool found(struct look *l, enum record_part part, uint32_t index)
{
    l->ret->err = TERN_MALFORMED;
    l->ret->part = part;
    l->ret->index = index;
    return false;
}

static void hash_note(struct look *l)
{
    while (l->ret->nhashes < l->job->nat && l->job->at[l->ret->nhashes] == l->tokens) {
        XXH128_hash_t h = XXH3_128bits_digest(&l->state);

        l->ret->hash[l->ret->nhashes++] = (struct list_hash){h.high64, h.low64};
    }
}

/* Hashes the ids in parts, each up to the next requested length. */
static bool feed(struct look *l, const uint32_t *ids, uint32_t n)
{
    while (n > 0) {
        uint32_t wanted = l->ret->nhashes < l->job->nat ? l->job->at[l->ret->nhashes] : UINT32_MAX,
                 k = wanted - l->tokens < n ? wanted - l->tokens : n, bad = 0;

        for (uint32_t i = 0; i < k; i++)
            bad |= ids[i];
        if (bad >= RECORD_TOKEN_END)
            for (uint32_t i = 0; i < k; i++)
                if (ids[i] >= RECORD_TOKEN_END)
                    return found(l, PART_TOKENS, l->tokens + i);
        XXH3_128bits_update(&l->state, ids, (size_t)k * sizeof *ids);
        l->tokens += k;
        ids += k;
        n -= k;
        hash_note(l);
    }
    return true;
}

static bool tokens(struct look *l, struct reader *r, uint32_t n)
{
    while (n > 0) {
        uint32_t k;
        const uint32_t *ids = read_next(l, r, n, &k);

        if (!feed(l, ids, k))
            return false;
        n -= k;
    }
    return true;
}

/* Finite: not all bits of the exponent are set. */
static bool logprobs(struct look *l, struct reader *r, uint32_t n)
{
    const uint32_t exponent = 0x7f800000;
    uint32_t seen = 0;

    while (seen < n) {
        uint32_t k;
        const uint32_t *bits = read_next(l, r, n - seen, &k);

        for (uint32_t i = 0; i < k; i++)
            if ((bits[i] & exponent) == exponent)
                return found(l, PART_LOGPROBS, seen + i);
        seen += k;
    }
    return true;
}

static void look(void *ctx)
{
    struct look *l = ctx;
    const struct record_job *job = l->job;
    struct reader before = {.section = &job->before}, own = {.section = &job->own};
    bool append = job->kind == RECORD_APPEND;

    hash_note(l); /* of an empty list */
    if (!tokens(l, &before, append ? job->from : job->length))
        return;
    if (append && tokens(l, &own, job->length - job->from))
        logprobs(l, &own, job->logprobs);
}

void record_check(const struct record_job *job, const uint8_t *memory, record_touch *within,
                  struct record_checked *ret)
{
    struct look l = {.job = job, .memory = memory, .ret = ret};

    *ret = (struct record_checked){.id = job->id};
    XXH3_128bits_reset(&l.state);
    if (!within(look, &l))
        ret->err = TERN_CORRUPT;
}
