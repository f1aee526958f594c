/* Cases that list themselves, for every cmocka test program. A case is written as TEST(name) { ...
 * } and runs because it exists; the program needs no list and no main(), which main.c has. `state`
 * is cmocka's. Cases run in the order of their file. */
#ifndef TESTING_TEST_H
#define TESTING_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* A case with a setup before and a teardown behind it; either may be NULL. */
#define TEST_WITH(name, setup, teardown)                                                           \
    static void name(void **state);                                                                \
    __attribute__((constructor)) static void name##_is_a_case(void)                                \
    {                                                                                              \
        test_add(#name, name, setup, teardown);                                                    \
    }                                                                                              \
    static void name(void **state __attribute__((unused)))

#define TEST(name) TEST_WITH(name, NULL, NULL)

/* setup once before the first and teardown once behind the last of the cases that follow, up to the
 * next TEST_GROUP or the end of the file. */
#define TEST_GROUP(setup, teardown)                                                                \
    __attribute__((constructor)) static void setup##_##teardown##_begins_a_group(void)             \
    {                                                                                              \
        test_group(setup, teardown);                                                               \
    }                                                                                              \
    struct test_needs_a_semicolon

/* For the program's cases that have none of their own. */
#define TEST_EACH(setup, teardown)                                                                 \
    __attribute__((constructor)) static void setup##_##teardown##_has_each_case(void)              \
    {                                                                                              \
        test_each(setup, teardown);                                                                \
    }                                                                                              \
    struct test_needs_a_semicolon

/* setup or teardown of a case or a group */
#define FIXTURE(name) static int name(void **state __attribute__((unused)))

void test_add(const char *name, CMUnitTestFunction test, CMFixtureFunction setup,
              CMFixtureFunction teardown);
void test_group(CMFixtureFunction setup, CMFixtureFunction teardown);
void test_each(CMFixtureFunction setup, CMFixtureFunction teardown);
/* Turns the number of failed cases into the exit status; without one the number is the status. */
void test_ends(int (*status)(int failed));
/* Runs all cases, from main(). Returns the exit status. */
int test_run(int argc, char **argv);

#endif
