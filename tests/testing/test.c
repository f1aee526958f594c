/* Registers the cases, which list themselves, and runs them: see test.h. With an argument only
 * cases with a matching name run (* and ? as in a shell). */
#include "testing/test.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define GROUPS_MAX 8
#define CASES_MAX  256

static struct CMUnitTest cases[CASES_MAX];
static struct {
    size_t first;
    CMFixtureFunction setup, teardown;
} groups[GROUPS_MAX];
static size_t ncases, ngroups;
static CMFixtureFunction each_setup, each_teardown;
static int (*ends)(int failed);

void test_add(const char *name, CMUnitTestFunction test, CMFixtureFunction setup,
              CMFixtureFunction teardown)
{
    if (ncases == CASES_MAX)
        abort();
    cases[ncases++] = (struct CMUnitTest){
        .name = name, .test_func = test, .setup_func = setup, .teardown_func = teardown};
}

void test_group(CMFixtureFunction setup, CMFixtureFunction teardown)
{
    if (ngroups == GROUPS_MAX)
        abort();
    groups[ngroups].first = ncases;
    groups[ngroups].setup = setup;
    groups[ngroups++].teardown = teardown;
}

void test_each(CMFixtureFunction setup, CMFixtureFunction teardown)
{
    each_setup = setup;
    each_teardown = teardown;
}

void test_ends(int (*status)(int failed))
{
    ends = status;
}

static int run(size_t first, size_t end, CMFixtureFunction setup, CMFixtureFunction teardown)
{
    if (first == end)
        return 0;
    return _cmocka_run_group_tests(program_invocation_short_name, cases + first, end - first, setup,
                                   teardown);
}

/* The address sanitizer of clang before 17 does not take its allocator's locks over a fork, unlike
 * the C library: a child may wait for ever for a lock of another thread. These calls are those of
 * its leak checker. */
#if defined(TERN_ASAN) && defined(__clang__) && __clang_major__ < 17
void allocator_lock(void) __asm__("_ZN6__lsan13LockAllocatorEv");
void allocator_unlock(void) __asm__("_ZN6__lsan15UnlockAllocatorEv");

static void hold_over_forks(void)
{
    pthread_atfork(allocator_lock, allocator_unlock, allocator_unlock);
}
#else
static void hold_over_forks(void)
{
}
#endif

int test_run(int argc, char **argv)
{
    int failed;

    hold_over_forks();
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    for (size_t i = 0; i < ncases; i++) {
        if (cases[i].setup_func || cases[i].teardown_func)
            continue;
        cases[i].setup_func = each_setup;
        cases[i].teardown_func = each_teardown;
    }
    failed = run(0, ngroups ? groups[0].first : ncases, NULL, NULL);
    for (size_t g = 0; g < ngroups; g++)
        failed += run(groups[g].first, g + 1 < ngroups ? groups[g + 1].first : ncases,
                      groups[g].setup, groups[g].teardown);
    if (ncases == 0) {
        fprintf(stderr, "%s: there is no case\n", program_invocation_short_name);
        return 1;
    }
    return ends ? ends(failed) : failed;
}
