/* Waiting for a step (E10). */
#include "unit/rig/rig_pair.h"

/* Sends the request and returns its id. */
static uint64_t waits(struct rig *rig, uint32_t conn, uint64_t step)
{
    struct request request = {.op = OP_WAIT_PUBLISHED, .wait_published.step = step};

    rig_request(rig, conn, &request);
    return request.request_id;
}

static void assert_answered(struct rig *rig, uint64_t id, enum tern_err err)
{
    assert_non_null(rig_reply_to(rig, id));
    assert_err(err, rig_reply_to(rig, id)->err);
}

TEST(wait_published_is_answered_when_every_rank_has_passed_the_step)
{
    struct rig *rig = rig_create(NULL);
    struct rig_engine e = rig_engine(rig, 0, "e", 2);
    struct pool_id pool = rig_pool_pages(rig, &e, 4, 16);
    struct rig_session *s = rig_session(rig, &e, pool, 1), *other = rig_session(rig, &e, pool, 1);
    uint64_t id, second;

    computes_and_commits(s, 1, 16, 16, 5);
    id = waits(rig, e.conn[0], 5);
    second = waits(rig, e.conn[1], 4);
    assert_int_equal(rig->step_wanted, 4);
    rig_step_done(rig, e.id, 0, 9);
    assert_null(rig_reply_to(rig, id));
    rig_step_done(rig, e.id, 1, 4);
    assert_answered(rig, second, TERN_OK);
    assert_null(rig_reply_to(rig, id));
    assert_int_equal(rig->step_wanted, 5);
    rig_step_done(rig, e.id, 1, 5);
    assert_answered(rig, id, TERN_OK);
    assert_int_equal(rig->step_wanted, 0);
    assert_ok(rig_match(other, seq1, 16));
    assert_lengths(other, 16, 16, 16);
    assert_answered(rig, waits(rig, e.conn[0], 5), TERN_OK); /* at once */
}

/* A repeated wait takes the place of the first one, for which nobody waits any more. */
TEST(wait_published_later_one_takes_the_place)
{
    struct rig *rig = rig_create(NULL);
    struct rig_engine e = rig_engine(rig, 0, "e", 1);
    uint64_t first = waits(rig, e.conn[0], 5), again = waits(rig, e.conn[0], 5);

    assert_answered(rig, first, TERN_CONFLICT);
    assert_null(rig_reply_to(rig, again));
    rig_engine_done(rig, &e, 5);
    assert_answered(rig, again, TERN_OK);
}

/* A step that is waited for was named, so reaching it is no jump (E7). */
TEST(wait_published_names_its_step)
{
    struct rig *rig = rig_create(NULL);
    struct rig_engine e = rig_engine(rig, 0, "e", 1);
    uint64_t far = 10ull * STEPS_UNNAMED_MAX, id;

    rig_engine_done(rig, &e, far);
    id = waits(rig, e.conn[0], far + 1);
    assert_null(rig_reply_to(rig, id));
    rig_engine_done(rig, &e, far + 1);
    assert_answered(rig, id, TERN_OK);
}

TEST(wait_published_of_an_engine_that_dies_or_is_left_gone)
{
    struct rig *rig = rig_create(NULL);
    struct rig_engine e = rig_engine(rig, 0, "e", 2);
    struct request leave = {.op = OP_ENGINE_LEAVE};
    uint64_t id = waits(rig, e.conn[0], 5), left;

    rig_engine_kill(rig, &e, 1);
    assert_answered(rig, id, TERN_GONE);
    assert_int_equal(rig->step_wanted, 0);
    e = rig_engine(rig, 0, "f", 1);
    left = waits(rig, e.conn[0], 5);
    assert_ok(rig_request(rig, e.conn[0], &leave)->err);
    assert_answered(rig, left, TERN_GONE);
}

/* Nobody waits any more, so no rank has to ring. */
TEST(wait_published_ends_with_its_connection)
{
    struct rig *rig = rig_create(NULL);
    struct rig_engine e = rig_engine(rig, 0, "e", 2);
    uint64_t id = waits(rig, e.conn[0], 5);

    rig_disconnect(rig, e.conn[0]);
    assert_int_equal(rig->step_wanted, 0);
    rig_engine_done(rig, &e, 5);
    assert_null(rig_reply_to(rig, id));
}
