/* Ends by an operator (E2, E11): of a session that only named steps may touch, of an engine as if
 * one of its processes had died, and of a pool that nobody has mapped. */
#include "unit/rig/rig_lease.h"
#include "unit/rig/rig_pair.h"

static const struct reply *end_session(struct bench *b, struct session_id id)
{
    struct request r = {.op = OP_SESSION_END, .session_end.session = id};

    return rig_request(b->rig, b->admin, &r);
}

static const struct reply *kick(struct bench *b)
{
    struct request r = {.op = OP_ENGINE_KICK, .engine_kick.engine = b->e.id};

    return rig_request(b->rig, b->admin, &r);
}

static const struct reply *end_pool(struct bench *b, struct pool_id id)
{
    struct request r = {.op = OP_POOL_END, .pool_end.pool = id};

    return rig_request(b->rig, b->admin, &r);
}

TEST(e11_session_that_its_engine_uses_is_not_closed)
{
    struct bench b = bench_start(4, 16);

    commits(b.s, 1, 8);
    assert_err(TERN_CONFLICT, end_session(&b, b.s->id)->err);
    assert_int_equal(rig_view(b.rig).sessions, 1);
}

TEST(e11_finished_session_is_closed_behind_the_steps_that_were_named)
{
    struct bench b = bench_start(4, 16);
    const struct reply *r;

    commits(b.s, 1, 8);
    assert_ok(rig_run_to(b.s, seq1, 10));
    assert_ok(rig_finish(b.s, 10, 7));
    r = end_session(&b, b.s->id);
    assert_ok(r->err);
    assert_true(r->session_end.until_step == 7);
    assert_int_equal(rig_group_view(b.rig, b.pool, 0).retiring, 1); /* the page behind 8 */
    assert_err(TERN_GONE, rig_match(b.s, seq1, 8));
    rig_engine_done(b.rig, &b.e, 7);
    assert_int_equal(rig_group_view(b.rig, b.pool, 0).retiring, 0);
    assert_int_equal(rig_view(b.rig).sessions, 0);
    assert_err(TERN_GONE, end_session(&b, b.s->id)->err);
}

/* E5: an engine with leased pages may write to a session before it sends a request for it. */
TEST(e11_finished_session_of_an_engine_that_leases_is_not_closed)
{
    struct bench b = bench_start(4, 16);
    struct rig_lease l = rig_lease_of(b.rig, &b.e, b.pool);

    commits(b.s, 1, 8);
    assert_ok(rig_finish(b.s, 8, 0));
    assert_ok(lease_more(&l, 1));
    assert_err(TERN_CONFLICT, end_session(&b, b.s->id)->err);
}

TEST(e11_session_with_a_turn_in_flight_is_busy)
{
    struct bench b = bench_start(4, 16);
    struct request r = {.op = OP_TURN_BEGIN, .turn_begin.session = b.s->id};

    assert_ok(rig_request(b.rig, b.e.conn[0], &r)->err);
    assert_err(TERN_BUSY, end_session(&b, b.s->id)->err);
}

TEST(e11_kicked_engine_keeps_its_pages_until_its_processes_are_gone)
{
    struct bench b = bench_start(4, 16);
    struct rig_session next;

    assert_ok(rig_match(b.s, seq1, 8));
    assert_ok(rig_run_to(b.s, seq1, 8));
    assert_int_equal(rig_group_view(b.rig, b.pool, 0).session, 2);
    assert_int_equal(kick(&b)->engine_kick.alive, 1);
    assert_err(TERN_GONE, rig_session_open(b.rig, b.e.conn[0], b.pool, 1, &next));
    assert_err(TERN_CONFLICT, end_session(&b, b.s->id)->err);
    assert_int_equal(rig_group_view(b.rig, b.pool, 0).session, 2);
    assert_ok(kick(&b)->err); /* a repeated kick does no harm */
    rig_engine_kill(b.rig, &b.e, 0);
    assert_int_equal(rig_group_view(b.rig, b.pool, 0).session, 0);
    assert_int_equal(rig_view(b.rig).engines, 0);
    assert_err(TERN_GONE, kick(&b)->err);
}

TEST(e11_pool_is_closed_when_nobody_has_mapped_it)
{
    struct bench b = bench_start(4, 16);
    const struct reply *r = end_pool(&b, b.pool);

    assert_err(TERN_CONFLICT, r->err);
    assert_true(r->number[0] == 1 && r->number[1] == 1); /* engines, sessions */
    rig_engine_kill(b.rig, &b.e, 0);
    assert_ok(end_pool(&b, b.pool)->err);
    assert_int_equal(rig_view(b.rig).pools, 0);
    assert_err(TERN_GONE, end_pool(&b, b.pool)->err);
}

TEST(e11_tenants_may_end_nothing)
{
    struct bench b = bench_start(4, 16);
    struct request r = {.op = OP_ENGINE_KICK, .engine_kick.engine = b.e.id};

    assert_err(TERN_DENIED, rig_request(b.rig, b.e.conn[0], &r)->err);
}
