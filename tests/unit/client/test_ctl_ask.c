/* Lists that ternctl reads page by page, and its reaction to a daemon that is lost or late. This
 * part of ternctl is compiled in; libtern's calls are replaced here. */
#include <stdlib.h>

#include "tern.h"

static enum tern_err gives(struct tern *t, const char *command, const char *const *args,
                           uint32_t nargs, uint32_t deadline_ms, const char **ret_text);

#define tern_admin gives
#include "../../../client/ctl/ask.c"
#undef tern_admin
#include "testing/test.h"

static struct {
    enum tern_err err;
    const char *text;
} answer[8];
static char began[8][32]; /* first arguments of the questions */
static uint32_t asked;

static enum tern_err gives(struct tern *t, const char *command, const char *const *args,
                           uint32_t nargs, uint32_t deadline_ms, const char **ret_text)
{
    (void)t;
    (void)command;
    (void)deadline_ms;
    assert_true(asked < 8);
    snprintf(began[asked], sizeof began[asked], "%s", nargs ? args[0] : "");
    *ret_text = answer[asked].text;
    return answer[asked++].err;
}

FIXTURE(begin)
{
    asked = 0;
    memset(answer, 0, sizeof answer);
    return 0;
}

TEST_EACH(begin, NULL);

static struct ctl connected(void)
{
    static char nobody;

    return (struct ctl){.tern = (struct tern *)(void *)&nobody};
}

TEST(lists_are_read_from_page_to_page_until_there_is_no_next)
{
    struct ctl ctl = connected();
    json_t *whole, *rows;

    answer[0].text = "{\"pools\":[{\"slot\":0},{\"slot\":3}],\"slots\":9,\"next\":4,\"beside\":1}";
    answer[1].text = "{\"pools\":[{\"slot\":4}],\"slots\":9,\"next\":7,\"beside\":2}";
    answer[2].text = "{\"pools\":[{\"slot\":8}],\"slots\":9}";
    whole = ctl_list(&ctl, "pools", NULL);
    assert_int_equal(asked, 3);
    assert_string_equal(began[0], "from=0");
    assert_string_equal(began[1], "from=4");
    assert_string_equal(began[2], "from=7");
    rows = json_object_get(whole, "pools");
    assert_int_equal(json_array_size(rows), 4);
    assert_int_equal(j_u64(json_array_get(rows, 3), "slot"), 8);
    assert_int_equal(j_u64(whole, "beside"), 1); /* from the first page */
    assert_null(json_object_get(whole, "next"));
    assert_null(json_object_get(whole, "slots"));
    json_decref(whole);
}

TEST(questions_to_a_daemon_that_is_lost_or_late_have_no_answer)
{
    const struct ctl_question q = {.command = "status", .deadline_ms = 1};
    struct ctl ctl = connected();
    enum tern_err err;
    json_t *is;

    answer[0].err = TERN_TIMED_OUT;
    answer[1].err = TERN_DAEMON_LOST;
    answer[2].text = "{}";
    assert_null(ctl_ask_within(&ctl, &q, &err));
    assert_int_equal(err, TERN_TIMED_OUT);
    assert_null(ctl_ask_within(&ctl, &q, &err));
    assert_int_equal(err, TERN_DAEMON_LOST);
    is = ctl_ask_within(&ctl, &q, &err);
    assert_non_null(is);
    assert_int_equal(err, TERN_OK);
    json_decref(is);
}
