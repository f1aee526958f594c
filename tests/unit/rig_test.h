/* What every cmocka test of the core begins with: cmocka in the order that it wants, failures of the rig and of
 * the core's own checks turned into failures of the one test, and the few assertions that all tests use. */
#ifndef TEST_RIG_TEST_H
#define TEST_RIG_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/check.h"
#include "base/err.h"
#include "rig.h"

static inline void rig_test_failed(const char *text)
{
    fail_msg("%s", text);
}

static inline int rig_test_setup(void **state)
{
    (void)state;
    rig_fail_hook = rig_test_failed;
    check_set_hook(rig_test_failed); /* gone after a failed check, so it is set for every test */
    return 0;
}

#define RIG_TEST(f) cmocka_unit_test_setup(f, rig_test_setup)
#define RIG_RUN(tests) cmocka_run_group_tests(tests, NULL, NULL)

#define assert_err(want, expr) assert_string_equal(err_name(expr), err_name(want))
#define assert_ok(expr) assert_err(TERN_OK, expr)

#define assert_lengths(s, T, C, A)                                                                 \
    do {                                                                                           \
        assert_int_equal((s)->len.committed, (T));                                                 \
        assert_int_equal((s)->len.written, (C));                                                   \
        assert_int_equal((s)->len.allocated, (A));                                                 \
    } while (0)

#endif
