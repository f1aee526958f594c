/* Pages of record memory: a section takes the first free run that is long enough, the one that a
 * search of the bitmap page by page would find. The search costs little however fragmented the
 * memory is. */
#include "unit/rig/rig_host.h"

#include "base/prng.h"
#include "core/memory/record_pages.h"

#include <stdlib.h>
#include <time.h>

#define PAGES_MAX 262144
#define SECTIONS  64
#define ROUNDS    20000

static struct rig *rig_with(uint32_t pages)
{
    struct rig_options o = rig_defaults();
    struct rig *rig;

    o.tenant[0].record_bytes = 0; /* the rig touches no such large memory */
    o.limits.record_pages = div_up(pages, 64) * 64 + 64 * RIG_TENANTS_MAX;
    rig = rig_create(&o);
    tenant_at(rig->core, 0)->record_word = RIG_TENANTS_MAX;
    tenant_at(rig->core, 0)->record_pages = pages;
    rig->no_audit = true;
    return rig;
}

/* --- the search page by page --- */

static bool used[PAGES_MAX];

static struct record_run plain_search(uint32_t pages, uint32_t least, uint32_t most)
{
    for (uint32_t at = 0, n; at < pages; at += n + 1) {
        for (n = 0; at + n < pages && n < most && !used[at + n]; n++)
            ;
        if (n >= least)
            return (struct record_run){at, n};
    }
    return (struct record_run){0, 0};
}

static void plain_mark(const struct record_section *s, bool on)
{
    for (uint32_t i = 0; i < s->nruns; i++)
        for (uint32_t k = 0; k < s->run[i].n; k++)
            used[s->run[i].first + k] = on;
}

static bool plain_take(uint32_t pages, uint32_t need, struct record_section *s)
{
    *s = (struct record_section){0};
    while (need > 0) {
        uint32_t left = RECORD_RUNS_MAX - s->nruns;
        struct record_run run = plain_search(pages, need, need);

        if (run.n == 0 && left > 1)
            run = plain_search(pages, div_up(need, left), need);
        if (run.n == 0) {
            plain_mark(s, false);
            return false;
        }
        s->run[s->nruns++] = run;
        plain_mark(s, true);
        need -= run.n;
    }
    return true;
}

static void same_runs(const struct record_section *a, const struct record_section *b)
{
    assert_int_equal(a->nruns, b->nruns);
    assert_memory_equal(a->run, b->run, a->nruns * sizeof *a->run);
}

static void plays(uint32_t pages, uint64_t seed)
{
    struct rig *rig = rig_with(pages);
    struct prng p;
    struct turn_record r = {.tenant = 0, .session = NONE};
    struct record_section s[SECTIONS] = {{0}}, plain;

    prng_init(&p, seed);
    memset(used, 0, sizeof used);
    for (uint32_t i = 0; i < ROUNDS; i++) {
        struct record_section *at = &s[prng_u64(&p) % SECTIONS];
        uint32_t need = 1 + (uint32_t)(prng_u64(&p) % (1 + pages / (1 + prng_u64(&p) % 64)));
        bool fits;

        if (at->nruns > 0) {
            plain_mark(at, false);
            section_free(rig->core, &r, at);
            continue;
        }
        if (need > pages - tenant_at(rig->core, 0)->record_used)
            continue;
        fits = section_take(rig->core, &r, at, (uint64_t)need * RECORD_PAGE_BYTES);
        assert_int_equal(fits, plain_take(pages, need, &plain));
        if (fits)
            same_runs(at, &plain);
    }
}

TEST(record_pages_are_the_first_that_are_free)
{
    static const uint32_t pages[] = {1, 63, 64, 65, 128, 200, 1000, 4096, 4097};

    for (uint32_t i = 0; i < sizeof pages / sizeof *pages; i++)
        plays(pages[i], 7 + i);
}

/* --- its cost --- */

/* Every second page is in use, except for the last ones. */
static double ns_of_a_take(uint32_t pages)
{
    struct rig *rig = rig_with(pages);
    struct core *c = rig->core;
    struct turn_record r = {.tenant = 0, .session = NONE};
    struct record_section *cut = calloc(pages, sizeof *cut), s;
    struct timespec from, to;

    for (uint32_t i = 0; i + 16 < pages; i++)
        assert_true(section_take(c, &r, &cut[i], RECORD_PAGE_BYTES));
    for (uint32_t i = 0; i + 16 < pages; i += 2)
        section_free(c, &r, &cut[i]);
    c->visits = 0;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &from);
    for (uint32_t i = 0; i < ROUNDS; i++) {
        assert_true(section_take(c, &r, &s, 15 * RECORD_PAGE_BYTES));
        section_free(c, &r, &s);
    }
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &to);
    assert_true(c->visits >= ROUNDS);
    free(cut);
    return ((double)(to.tv_sec - from.tv_sec) * 1e9 + (double)(to.tv_nsec - from.tv_nsec)) / ROUNDS;
}

/* T20: 64 times as much memory is six more looks. A walk over the free runs is 64 times as long. */
TEST(t20_record_pages_are_found_however_the_memory_is_cut_up)
{
    double one = ns_of_a_take(PAGES_MAX / 64), many = ns_of_a_take(PAGES_MAX);

    assert_true(many < 12 * one);
}
