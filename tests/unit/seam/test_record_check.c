/* A worker's check of a turn record (M10), without a thread or a daemon: numbers at the borders of
 * runs and pages, hashes compared with those of the whole list, every kind of NaN and infinity, and
 * lost memory. */
#include "testing/test.h"
#include "unit/rig/rig_lost.h"

#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/prng.h"
#include "seam/mem/mem_fault.h"
#include "seam/mem/record_check.h"

#define PAGES       64
#define PAGE_TOKENS (RECORD_PAGE_BYTES / 4)
#define TOKENS_MAX  (8 * PAGE_TOKENS)

static uint8_t *memory;
static uint32_t list[TOKENS_MAX];

FIXTURE(memory_start)
{
    struct prng p;

    memory = mmap(NULL, (size_t)PAGES * RECORD_PAGE_BYTES, PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(memory, MAP_FAILED);
    memset(memory, 0xff, (size_t)PAGES * RECORD_PAGE_BYTES); /* bytes of no list are bad */
    prng_init(&p, 7);
    for (uint32_t i = 0; i < TOKENS_MAX; i++)
        list[i] = (uint32_t)prng_u64(&p) % RECORD_TOKEN_END;
    return 0;
}

FIXTURE(memory_stop)
{
    mem_fault_unwatch(memory);
    munmap(memory, (size_t)PAGES * RECORD_PAGE_BYTES);
    return 0;
}

TEST_EACH(memory_start, memory_stop);

/* Layouts of a section's runs: consecutive in memory, or in any order. */
static const struct record_section layouts[] = {
    {.nruns = 1, .run = {{3, 20}}},
    {.nruns = 4, .run = {{40, 1}, {2, 2}, {30, 1}, {10, 16}}},
    {.nruns = 8, .run = {{9, 1}, {8, 1}, {7, 1}, {50, 2}, {6, 1}, {5, 1}, {63, 1}, {20, 12}}},
};

#define LAYOUTS (sizeof layouts / sizeof *layouts)

static uint32_t *word(const struct record_section *s, uint64_t i)
{
    uint64_t at = 4 * i;
    uint32_t run = 0;

    for (; at >= (uint64_t)s->run[run].n * RECORD_PAGE_BYTES; run++)
        at -= (uint64_t)s->run[run].n * RECORD_PAGE_BYTES;
    return (void *)(memory + (uint64_t)s->run[run].first * RECORD_PAGE_BYTES + at);
}

static float logprob(uint32_t i)
{
    return -(float)(i % 1000) / 16;
}

/* An append of [from, length), written: the former tokens behind one page of another record. */
static struct record_job append_of(uint32_t from, uint32_t length, const struct record_section *own)
{
    struct record_job job = {.id = {.slot = 4, .gen = 9},
                             .kind = RECORD_APPEND,
                             .from = from,
                             .length = length,
                             .logprobs = length - from,
                             .nat = 2,
                             .at = {from, length},
                             .before = {.nruns = from ? 1 : 0, .run = {{52, 8}}},
                             .own = *own};

    for (uint32_t i = 0; i < from; i++)
        *word(&job.before, i) = list[i];
    for (uint32_t i = from; i < length; i++) {
        float v = logprob(i);

        *word(own, i - from) = list[i];
        memcpy(word(own, length - from + i - from), &v, sizeof v);
    }
    return job;
}

static struct record_job rollback_of(uint32_t length, const struct record_section *at)
{
    struct record_job job = {.kind = RECORD_ROLLBACK, .length = length, .before = *at};

    for (uint32_t i = 0; i < length; i++)
        *word(at, i) = list[i];
    return job;
}

static struct record_checked check_of(const struct record_job *job)
{
    struct record_checked found;

    memset(&found, 0xa5, sizeof found);
    record_check(job, memory, mem_fault_bytes, &found);
    return found;
}

static void assert_hashes(const struct record_job *job)
{
    struct record_checked found = check_of(job);

    assert_int_equal(found.err, TERN_OK);
    assert_true(record_id_equal(found.id, job->id));
    assert_int_equal(found.nhashes, job->nat);
    for (uint32_t i = 0; i < job->nat; i++) {
        XXH128_hash_t h = XXH3_128bits(list, (size_t)job->at[i] * sizeof *list);

        assert_true(found.hash[i].hi == h.high64 && found.hash[i].lo == h.low64);
    }
}

static void assert_bad(const struct record_job *job, enum record_part part, uint32_t index)
{
    struct record_checked found = check_of(job);

    assert_int_equal(found.err, TERN_MALFORMED);
    assert_int_equal(found.part, part);
    assert_int_equal(found.index, index);
}

/* Lengths around those of pages, runs and the blocks of the hash. */
static const uint32_t lengths[] = {1,
                                   15,
                                   60,
                                   61,
                                   256,
                                   PAGE_TOKENS - 1,
                                   PAGE_TOKENS,
                                   PAGE_TOKENS + 1,
                                   3 * PAGE_TOKENS,
                                   3 * PAGE_TOKENS + 1,
                                   4 * PAGE_TOKENS - 1,
                                   5 * PAGE_TOKENS + 7};

TEST(record_hashes_are_those_of_the_whole_list)
{
    for (size_t k = 0; k < LAYOUTS; k++)
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
            for (size_t f = 0; f < i; f++) {
                uint32_t from = f ? lengths[f] : 0;
                struct record_job job = append_of(from, lengths[i], &layouts[k]);

                assert_hashes(&job);
            }
}

/* A rollback asks for hashes at the lengths of the records that it may end at; those beyond the
 * prompt are replaced by the prompt's length, which is asked for as well. */
TEST(record_hashes_of_a_rollback_at_every_length_that_is_asked_for)
{
    static const uint32_t at[][4] = {
        {0, 0, 0, 0},
        {0, 1, 9000, 9000},
        {9000, 9000, 9000, 9000},
        {PAGE_TOKENS - 1, PAGE_TOKENS, PAGE_TOKENS + 1, 9000},
        {4999, 5000, 5000, 9000},
        {3 * PAGE_TOKENS, 3 * PAGE_TOKENS, 3 * PAGE_TOKENS + 1, 4 * PAGE_TOKENS},
    };

    for (size_t k = 0; k < LAYOUTS; k++)
        for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
            struct record_job job = rollback_of(at[i][3], &layouts[k]);

            memcpy(job.at, at[i], sizeof at[i]);
            job.nat = 4;
            assert_hashes(&job);
        }
}

/* The first and the last number of every run, and of its pages. */
static uint32_t borders(const struct record_section *s, uint32_t n, uint32_t ret[64])
{
    uint32_t got = 0, pages = 0;

    for (uint32_t i = 0; i < s->nruns; i++)
        pages += s->run[i].n;
    for (uint32_t page = 0; page <= pages; page++)
        for (uint32_t i = page ? page * PAGE_TOKENS - 1 : 0; i <= page * PAGE_TOKENS; i++)
            if (i < n)
                ret[got++] = i;
    ret[got++] = n - 1;
    return got;
}

TEST(record_token_ids_are_below_2_to_the_31)
{
    static const uint32_t bad[] = {RECORD_TOKEN_END, RECORD_TOKEN_END + 1, UINT32_MAX};
    uint32_t from = PAGE_TOKENS + 5, length = from + 3 * PAGE_TOKENS + 9, at[64], n;

    for (size_t k = 0; k < LAYOUTS; k++) {
        struct record_job job = append_of(from, length, &layouts[k]);

        n = borders(&job.own, length - from, at);
        for (uint32_t i = 0; i < n; i++) {
            uint32_t *w = word(&job.own, at[i]), was = *w;

            *w = bad[i % 3];
            assert_bad(&job, PART_TOKENS, from + at[i]);
            *w = was;
        }
        n = borders(&job.before, from, at);
        for (uint32_t i = 0; i < n; i++) {
            uint32_t *w = word(&job.before, at[i]), was = *w;

            *w = bad[i % 3];
            assert_bad(&job, PART_TOKENS, at[i]);
            *w = was;
        }
        assert_hashes(&job);
        job = append_of(0, 1, &layouts[k]); /* alone: no other id shares a bit */
        *word(&job.own, 0) = RECORD_TOKEN_END;
        assert_bad(&job, PART_TOKENS, 0);
        list[from] = RECORD_TOKEN_END - 1; /* the greatest */
        job = append_of(from, length, &layouts[k]);
        assert_hashes(&job);
    }
}

/* Infinities, and NaNs: quiet and signalling, of both signs, least and greatest. */
static const uint32_t not_finite[] = {0x7f800000, 0xff800000, 0x7fc00000, 0xffc00000, 0x7f800001,
                                      0xff800001, 0x7fbfffff, 0xffbfffff, 0x7fffffff, 0xffffffff};
/* The greatest, the least normal, the greatest and the least subnormal, and zeros. */
static const uint32_t finite[] = {0x7f7fffff, 0xff7fffff, 0x00800000, 0x80800000,
                                  0x007fffff, 0x807fffff, 0x00000001, 0x80000001,
                                  0x00000000, 0x80000000, 0x3f800000};

TEST(record_log_probabilities_are_finite)
{
    uint32_t from = 3, length = from + PAGE_TOKENS + 9, tokens = length - from, at[64], n;

    for (size_t k = 0; k < LAYOUTS; k++) {
        struct record_job job = append_of(from, length, &layouts[k]);

        n = borders(&job.own, 2 * tokens, at);
        for (uint32_t i = 0; i < n; i++) {
            if (at[i] < tokens)
                continue;
            for (size_t b = 0; b < sizeof not_finite / sizeof *not_finite; b++) {
                *word(&job.own, at[i]) = not_finite[b];
                assert_bad(&job, PART_LOGPROBS, at[i] - tokens);
            }
            for (size_t b = 0; b < sizeof finite / sizeof *finite; b++) {
                *word(&job.own, at[i]) = finite[b];
                assert_hashes(&job);
            }
        }
    }
}

/* The first bad element of a kind, and tokens before log-probabilities. */
TEST(record_check_tells_what_comes_first)
{
    struct record_job job = append_of(10, 30, &layouts[0]);

    *word(&job.own, 20 + 7) = 0x7f800000;
    *word(&job.own, 20 + 19) = 0x7f800000;
    assert_bad(&job, PART_LOGPROBS, 7);
    *word(&job.own, 19) = UINT32_MAX;
    *word(&job.own, 4) = UINT32_MAX;
    assert_bad(&job, PART_TOKENS, 14);
    *word(&job.before, 9) = UINT32_MAX;
    assert_bad(&job, PART_TOKENS, 9);
}

/* Bytes behind the last number are not checked. */
TEST(record_check_looks_at_nothing_more)
{
    struct record_job job = append_of(0, PAGE_TOKENS, &layouts[1]);

    *word(&job.own, 2 * PAGE_TOKENS) = UINT32_MAX;
    assert_hashes(&job);
    *word(&job.own, PAGE_TOKENS) = UINT32_MAX; /* a log-probability, where there is one */
    assert_bad(&job, PART_LOGPROBS, 0);
    job.logprobs = 0;
    assert_hashes(&job);
}

TEST(record_pages_that_are_gone_are_corrupt)
{
    uint64_t before = mem_fault_count();
    struct record_job job;
    struct lost lost;

    /* Not before: cmocka takes the signal when the test begins. */
    assert_true(mem_fault_watch(memory, (uint64_t)PAGES * RECORD_PAGE_BYTES, 4096, true));
    lost_open(&lost, memory + 30 * RECORD_PAGE_BYTES, RECORD_PAGE_BYTES);
    job = append_of(0, 4 * PAGE_TOKENS, &layouts[1]); /* its fourth page is that one */
    assert_hashes(&job);
    lost_cut(&lost);
    assert_int_equal(check_of(&job).err, TERN_CORRUPT);
    assert_true(record_id_equal(check_of(&job).id, job.id));
    assert_int_equal(mem_fault_count() - before, 2);
    job = append_of(0, PAGE_TOKENS, &layouts[1]); /* ends before it */
    assert_hashes(&job);
    job = append_of(0, 1, &layouts[2]);
    assert_hashes(&job);
    lost_back(&lost);
    job = append_of(0, 4 * PAGE_TOKENS, &layouts[1]);
    assert_hashes(&job);
    lost_close(&lost);
}
