/* The screen of `ternctl top` with more rows than lines: each section gets its part, and shows how
 * many rows it leaves out. This part of ternctl is compiled in; there is no daemon. */
#include <stdlib.h>
#include <string.h>

#include "../../../client/ctl/top.c"
#include "testing/test.h"
#include "unit/rig/rig_ctl.h"

/* ---- in place of ask.c and stats.c ---- */

void ctl_connect(struct ctl *ctl)
{
    (void)ctl;
}

const char *ctl_try_connect(struct ctl *ctl, uint32_t deadline_ms)
{
    (void)ctl;
    (void)deadline_ms;
    return "this is a test";
}

json_t *ctl_ask_within(struct ctl *ctl, const struct ctl_question *q, enum tern_err *ret_lost)
{
    (void)ctl;
    (void)q;
    *ret_lost = TERN_DAEMON_LOST;
    return NULL;
}

bool ctl_print_json(const struct ctl *ctl, const json_t *answer)
{
    (void)ctl;
    (void)answer;
    return false;
}

uint64_t found_tokens(const json_t *row)
{
    (void)row;
    return 0;
}

/* ---- the cases ---- */

static json_t *rows(uint32_t n, const char *name)
{
    json_t *all = json_array();
    char text[32];

    for (uint32_t i = 0; i < n; i++) {
        snprintf(text, sizeof text, "%s-%u", name, i);
        json_array_append_new(all, json_pack("{s:s, s:s, s:s, s:s, s:s, s:i, s:i, s:s, s:s}",
                                             "tenant", text, "pool", "0000000100000002", "tier",
                                             "device", "group", "kv", "name", text, "total", 8,
                                             "free", 4, "transfer", text, "direction", "in"));
    }
    return all;
}

/* The screen with `lines` lines and that many rows of each kind; owned by the caller. */
static char *drawn(uint32_t alarms, uint32_t others, uint32_t lines)
{
    struct ctl ctl = {.every_ms = 1000};
    struct view t = {.ctl = &ctl};
    char *text;

    t.now.status =
        json_pack("{s:o, s:i, s:o, s:o}", "alarms", rows(alarms, "alarm"), "alarms_on", (int)alarms,
                  "figures", rows(others, "tenant"), "pools", rows(others, "pool"));
    t.now.transfers = json_pack("{s:o}", "transfers", rows(others, "transfer"));
    text = draw(&t, (struct screen_size){lines, TABLE_WIDTH});
    look_free(&t.now);
    return text;
}

static uint32_t count_of(const char *text, const char *what)
{
    uint32_t n = 0;

    for (; (text = strstr(text, what)) != NULL; text += strlen(what))
        n++;
    return n;
}

TEST(top_shows_all_where_there_is_room)
{
    char *text = drawn(2, 5, 60);

    assert_int_equal(count_of(text, "alarm-"), 2);
    assert_int_equal(count_of(text, "tenant-"), 5);
    assert_int_equal(count_of(text, "pool-"), 5);
    assert_int_equal(count_of(text, "transfer-"), 5);
    assert_int_equal(count_of(text, " more"), 0);
    free(text);
}

TEST(top_cuts_each_section_to_its_lines_and_says_so)
{
    for (uint32_t lines = 25; lines < 50; lines++) {
        char *text = drawn(30, 30, lines);

        assert_true(count_of(text, "\n") <= lines);
        assert_int_equal(count_of(text, "more alarms are on"), 1);
        assert_int_equal(count_of(text, "\nand "), 3); /* rates, pools, transfers */
        for (const char *const *name =
                 (const char *const[]){"alarm-", "tenant-", "pool-", "transfer-", NULL};
             *name; name++)
            assert_true(count_of(text, *name) > 0 && count_of(text, *name) < 20);
        free(text);
    }
}
