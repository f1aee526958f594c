/* One alarm: its states, and the condition of each kind on the views. */
#include <string.h>

#include "shell/alarm/alarms.h"
#include "testing/test.h"

#define MS    UINT64_C(1000000)
#define S     (1000 * MS)
#define START (1000 * S)

/* An alarm of that kind with the facts `v`, one a second from START on: the resulting news. */
static void tells(enum alarm_kind kind, const char *facts, const char *news)
{
    struct alarm a = {.kind = kind};
    char got[64] = "";
    bool on = false;

    for (size_t i = 0; facts[i]; i++) {
        enum alarm_fact fact = facts[i] == '+'   ? ALARM_IS
                               : facts[i] == '~' ? ALARM_IS_NEARLY
                                                 : ALARM_IS_NOT;

        got[i] = ".BE"[alarm_look(&a, fact, START + i * S)];
        on = got[i] == 'B' || (on && got[i] != 'E');
        assert_int_equal(alarm_on(&a), on);
    }
    assert_string_equal(got, news);
}

/* B: it began, E: it ended. */
TEST(alarm_begins_once_and_ends_once)
{
    tells(ALARM_KIND_STEP_OVERDUE, "-+++--", ".B..E.");
    tells(ALARM_KIND_STEP_OVERDUE, "+-+-", "BEBE");
}

TEST(alarm_that_is_to_last_begins_when_it_has)
{
    tells(ALARM_KIND_PEER_DOWN, "+++++-", "......");
    tells(ALARM_KIND_PEER_DOWN, "++++-++++++", "..........B");
    tells(ALARM_KIND_PEER_DOWN, "++++++", ".....B");
}

TEST(alarm_that_comes_and_goes_is_one)
{
    tells(ALARM_KIND_SPILL_FULL, "+-+-+----+-----", "B..............");
    tells(ALARM_KIND_SPILL_FULL, "+-----", "B.....");
    tells(ALARM_KIND_SPILL_FULL, "+------", "B.....E");
    tells(ALARM_KIND_PEER_DOWN, "++++++-----+------", ".....B...........E");
}

TEST(alarm_nearly_there_neither_begins_nor_ends)
{
    tells(ALARM_KIND_QUARANTINE_OLD, "~~~", "...");
    tells(ALARM_KIND_QUARANTINE_OLD, "+~~~--", "B....E");
    tells(ALARM_KIND_QUARANTINE_OLD, "+-~-~--", "B.....E");
}

TEST(alarm_counts_from_when_its_condition_held_first)
{
    struct alarm a = {.kind = ALARM_KIND_PEER_DOWN};

    for (uint64_t s = 0; s < 5; s++)
        assert_int_equal(alarm_look(&a, ALARM_IS, START + s * S), ALARM_NO_NEWS);
    assert_int_equal(alarm_look(&a, ALARM_IS, START + 5 * S), ALARM_BEGAN);
    assert_true(a.since_ns == START);
}

TEST(alarm_whose_subject_is_gone_ends_at_once)
{
    struct alarm a = {.kind = ALARM_KIND_PEER_DOWN};

    assert_int_equal(alarm_end(&a), ALARM_NO_NEWS);
    alarm_look(&a, ALARM_IS, START);
    assert_int_equal(alarm_end(&a), ALARM_NO_NEWS); /* nobody was informed of it */
    alarm_look(&a, ALARM_IS, START);
    assert_int_equal(alarm_look(&a, ALARM_IS, START + 5 * S), ALARM_BEGAN);
    assert_int_equal(alarm_end(&a), ALARM_ENDED);
    assert_int_equal(a.state, ALARM_CLEAR);
}

TEST(alarm_rows_are_whole)
{
    for (enum alarm_kind k = 0; k < ALARM_KINDS; k++) {
        const struct alarm_row *row = &alarm_row[k];

        assert_true(row->severity == LEVEL_WARN || row->severity == LEVEL_ERROR);
        assert_true(strlen(row->means) > 0 && strlen(row->action) > 0);
        assert_true(strlen(row->means) + strlen(row->action) < 512); /* of a line of the log */
    }
}

/* ---- the conditions ---- */

TEST(alarm_quarantine_goes_by_the_oldest)
{
    struct core_view v = {0};

    assert_int_equal(alarm_quarantine(&v, START), ALARM_IS_NOT);
    v.oldest_quarantine_ns = START;
    assert_int_equal(alarm_quarantine(&v, START + 5 * S - 1), ALARM_IS_NOT);
    assert_int_equal(alarm_quarantine(&v, START + 5 * S), ALARM_IS_NEARLY);
    assert_int_equal(alarm_quarantine(&v, START + 10 * S - 1), ALARM_IS_NEARLY);
    assert_int_equal(alarm_quarantine(&v, START + 10 * S), ALARM_IS);
}

TEST(alarm_backlog_is_three_quarters_of_the_records)
{
    static const struct {
        uint32_t free;
        enum alarm_fact fact;
    } cases[] = {{1000, ALARM_IS_NOT},   {501, ALARM_IS_NOT}, {500, ALARM_IS_NEARLY},
                 {251, ALARM_IS_NEARLY}, {250, ALARM_IS},     {0, ALARM_IS}};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(alarm_backlog(&(struct core_view){.retires_free = cases[i].free}, 1000),
                         cases[i].fact);
}

TEST(alarm_step_is_overdue_if_it_does_not_come_or_jumped)
{
    struct engine_view e = {0};

    assert_false(engine_overdue(&e, 30 * S, START));
    e.waits_since_ns = START;
    assert_false(engine_overdue(&e, 30 * S, START + 30 * S - 1));
    assert_true(engine_overdue(&e, 30 * S, START + 30 * S));
    e.jumped = true;
    assert_true(engine_overdue(&e, 30 * S, START));
}

TEST(alarm_refusal_counts_for_ten_seconds)
{
    assert_int_equal(alarm_refused(0, 5 * S), ALARM_IS_NOT);
    assert_int_equal(alarm_refused(START, START), ALARM_IS);
    assert_int_equal(alarm_refused(START, START + 10 * S - 1), ALARM_IS);
    assert_int_equal(alarm_refused(START, START + 10 * S), ALARM_IS_NOT);
}
