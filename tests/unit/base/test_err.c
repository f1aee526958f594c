/* The error table: dense ids, unique names and texts, and a safe answer for an unknown number. */
#include <string.h>

#include "base/err.h"
#include "testing/test.h"

struct row {
    const char *name, *text;
    int id, category;
};

/* The table again as data, in its order. */
static const struct row rows[] = {
#define X(name, id, category, text) {#name, text, id, TERN_CAT_##category},
    TERN_ERR_TABLE(X)
#undef X
};
#define ROWS (sizeof rows / sizeof rows[0])

TEST(err_ids_are_dense_and_in_order)
{
    assert_int_equal(ROWS, TERN_ERR_COUNT);
    for (size_t i = 0; i < ROWS; i++)
        assert_int_equal(rows[i].id, i);
}

TEST(err_ids_on_the_wire_never_change)
{
    static const char *const names[] = {
        "OK",        "INVALID",   "MALFORMED", "UNSUPPORTED", "CONFLICT", "POOL_EXHAUSTED",
        "PEER_LOST", "TIMED_OUT", "BUSY",      "GONE",        "DENIED",   "QUOTA",
        "CORRUPT",   "DISK",      "INTERNAL",  "DAEMON_LOST",
    };

    assert_true(ROWS >= sizeof names / sizeof names[0]);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        assert_string_equal(rows[i].name, names[i]);
}

TEST(err_names_and_texts_are_unique_and_not_empty)
{
    for (size_t i = 0; i < ROWS; i++) {
        assert_true(strlen(rows[i].name) > 0);
        assert_true(strlen(rows[i].text) > 0);
        for (size_t j = 0; j < i; j++) {
            assert_string_not_equal(rows[i].name, rows[j].name);
            assert_string_not_equal(rows[i].text, rows[j].text);
        }
    }
}

TEST(err_functions_answer_from_the_table)
{
    for (size_t i = 0; i < ROWS; i++) {
        enum tern_err err = (enum tern_err)rows[i].id;

        assert_string_equal(err_name(err), rows[i].name);
        assert_string_equal(err_text(err), rows[i].text);
        assert_int_equal(err_category(err), rows[i].category);
    }
}

TEST(err_unknown_number_is_answered_safely)
{
    static const int strange[] = {TERN_ERR_COUNT, TERN_ERR_COUNT + 1, 1000, -1,
                                  INT32_MAX,      INT32_MIN};

    for (size_t i = 0; i < sizeof strange / sizeof strange[0]; i++) {
        enum tern_err err = (enum tern_err)strange[i];

        assert_string_equal(err_name(err), "UNKNOWN");
        assert_true(strlen(err_text(err)) > 0);
        assert_int_equal(err_category(err), TERN_CAT_INTERNAL);
    }
}

TEST(err_only_ok_is_in_the_category_ok)
{
    for (size_t i = 0; i < ROWS; i++)
        assert_int_equal(rows[i].category == TERN_CAT_OK, rows[i].id == TERN_OK);
}
