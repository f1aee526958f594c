/* Turns beyond the scenarios: closes whose turn nobody ended, handles, closes that wait for a
 * release record, and engines that go. */
#include "unit/rig/rig_turn.h"

static struct session_id claimed(struct bench *b)
{
    struct session_id turn;

    assert_ok(rig_run_to(b->s, seq1, 16));
    assert_ok(turn_begin(b->rig, b->e.conn[0], b->s->id, &turn));
    return turn;
}

TEST(turn_handles_are_used_once)
{
    struct bench b = bench_start(4, 64);
    struct session_id seen[12], turn, own = b.s->id;

    for (uint32_t i = 0; i < 12; i++) {
        assert_ok(turn_begin(b.rig, b.e.conn[0], own, &turn));
        assert_int_equal(turn.slot, own.slot);
        assert_err(TERN_CONFLICT, turn_begin(b.rig, b.e.conn[0], turn, &seen[i]));
        seen[i] = turn;
        assert_ok(turn_end(b.rig, b.e.conn[0], turn, 0));
        assert_err(TERN_INVALID, turn_end(b.rig, b.e.conn[0], own, 0));
        if (i == 5) { /* the slot's next session continues the count */
            assert_ok(rig_close(b.s, 0));
            assert_ok(rig_session_open(b.rig, b.e.conn[0], b.pool, 1, b.s));
            assert_int_equal(b.s->id.slot, own.slot);
            own = b.s->id;
        }
        for (uint32_t k = 0; k <= i; k++) {
            assert_err(TERN_GONE, step_by(b.s, seen[k], STEP_EXTEND));
            assert_int_not_equal(seen[k].gen, own.gen);
            assert_true(k == i || seen[k].gen != seen[i].gen);
        }
    }
}

/* Nobody knows what the turn has in flight, so nothing is released. */
TEST(turn_that_nobody_ends_leaves_the_session_open)
{
    struct bench b = BENCH_LIMITED(limits.turn_deadline_ns = 1000, 4, 64);
    uint64_t closing;

    claimed(&b);
    closing = session_close_asked(b.rig, b.e.conn[0], b.s->id, 0);
    rig_advance(b.rig, 1000);
    assert_answer(b.rig, closing, TERN_BUSY);
    assert_non_null(strstr(rig_reply_to(b.rig, closing)->text, "is unknown"));
    assert_int_equal(rig_free(b.rig, b.pool), 60);
    assert_answer(b.rig, session_close_asked(b.rig, b.e.conn[0], b.s->id, 0), TERN_OK);
    assert_int_equal(rig_free(b.rig, b.pool), 64);
}

TEST(turn_closes_its_own_session_and_who_waits_is_told)
{
    struct bench b = bench_start(4, 64);
    struct session_id turn = claimed(&b);
    uint64_t closing = session_close_asked(b.rig, b.e.conn[0], b.s->id, 0);

    assert_answer(b.rig, session_close_asked(b.rig, b.e.conn[0], turn, 3), TERN_OK);
    assert_answer(b.rig, closing, TERN_OK);
    assert_int_equal(rig_retiring(b.rig, b.pool), 4);
    assert_int_equal(turns_of(b.rig, 0).in_flight, 0);
}

/* A promised close is carried out when there is a record for what it releases. */
TEST(turn_close_waits_for_a_release_record)
{
    struct bench b = BENCH_LIMITED(limits.retires = 2, 4, 64);
    struct rig_session *other[3];
    struct session_id turn;
    struct session_view v;
    uint64_t closing;

    for (uint32_t i = 0; i < 3; i++) {
        other[i] = rig_session(b.rig, &b.e, b.pool, 1);
        assert_ok(rig_run_to(other[i], rig_tokens(2 + i, 8), 8));
    }
    turn = claimed(&b);
    closing = session_close_asked(b.rig, b.e.conn[0], b.s->id, 0);
    for (uint32_t i = 0; i < 3 && rig_close(other[i], 5 + i) == TERN_OK; i++)
        ;
    assert_int_equal(rig_view(b.rig).retires_free, 0);
    assert_ok(turn_end(b.rig, b.e.conn[0], turn, 9));
    assert_null(rig_reply_to(b.rig, closing));
    assert_true(core_session_view(b.rig->core, b.s->id.slot, &v));
    assert_string_equal(v.turn_word, "closed");
    assert_err(TERN_GONE, step_by(b.s, turn, STEP_EXTEND));
    assert_err(TERN_GONE, step_by(b.s, b.s->id, STEP_EXTEND));
    rig_engine_done(b.rig, &b.e, 5);
    assert_answer(b.rig, closing, TERN_OK);
}

/* The connection that asked for the close is gone: the close is carried out all the same. */
TEST(turn_close_is_not_told_to_who_has_gone)
{
    struct rig *rig = rig_create(NULL);
    struct rig_engine e = rig_engine(rig, 0, "e", 2);
    struct pool_id pool = rig_pool_pages(rig, &e, 4, 16);
    struct rig_session *s = rig_session(rig, &e, pool, 1);
    struct session_id turn;
    uint64_t closing;

    assert_ok(rig_run_to(s, seq1, 8));
    assert_ok(turn_begin(rig, e.conn[0], s->id, &turn));
    closing = session_close_asked(rig, e.conn[1], s->id, 0);
    rig_disconnect(rig, e.conn[1]);
    assert_ok(turn_end(rig, e.conn[0], turn, 0));
    assert_null(rig_reply_to(rig, closing));
    assert_int_equal(rig_view(rig).sessions, 0);
    assert_int_equal(rig_free(rig, pool), 16);
}

TEST(turn_ends_with_its_process_and_its_engine)
{
    struct rig *rig = rig_create(NULL);
    struct rig_engine e = rig_engine(rig, 0, "e", 2);
    struct pool_id pool = rig_pool_pages(rig, &e, 4, 16);
    struct rig_session *s = rig_session(rig, &e, pool, 1), *t = rig_session(rig, &e, pool, 1);
    struct session_id turn;
    uint64_t closing;

    assert_ok(turn_begin(rig, e.conn[1], s->id, &turn));
    assert_ok(turn_begin(rig, e.conn[0], t->id, &turn));
    closing = session_close_asked(rig, e.conn[1], t->id, 0);
    assert_int_equal(turns_of(rig, 0).in_flight, 2);
    assert_ok(rig_leave(rig, e.conn[1])); /* its connection is still open */
    assert_int_equal(turns_of(rig, 0).in_flight, 1);
    assert_ok(rig_leave(rig, e.conn[0]));
    assert_answer(rig, closing, TERN_BUSY);
    assert_int_equal(turns_of(rig, 0).in_flight, 0);
    assert_int_equal(turns_of(rig, 0).lost, 2);
    assert_int_equal(rig_view(rig).sessions, 0);
}

/* The gate answers without the body, as the core would. */
TEST(turn_gate_says_what_the_request_would_be_told)
{
    struct bench b = bench_start(4, 64);
    struct session_id turn = claimed(&b), none = {.slot = 63, .gen = 1};
    uint32_t stranger = rig_connect(b.rig, 0, NULL);
    const char *text;

    assert_err(TERN_BUSY, gate_says(b.rig, b.e.conn[0], OP_FETCH, b.s->id, &text));
    assert_err(TERN_GONE, gate_says(b.rig, b.e.conn[0], OP_FETCH, none, &text));
    assert_ok(gate_says(b.rig, b.e.conn[0], OP_FETCH, turn, &text));
    assert_ok(gate_says(b.rig, b.e.conn[0], OP_SESSION_CLOSE, b.s->id, &text));
    assert_ok(gate_says(b.rig, b.e.conn[0], OP_STEP, b.s->id, &text)); /* names many */
    assert_ok(gate_says(b.rig, stranger, OP_FETCH, b.s->id, &text));   /* not an engine's */
    assert_ok(gate_says(b.rig, 4000, OP_FETCH, b.s->id, &text));
    assert_ok(gate_says(b.rig, b.e.conn[0], OP_NONE, b.s->id, &text));
}
