/* Scenarios M-f, M-h and M-i of turns, in the core (M5, M6, M7, M12). tests/e2e/test_turns.c has
 * the shell's part before a body is decoded, and M-g in real time. */
#include "unit/rig/rig_turn.h"

struct race { /* two processes of one engine, and a session with 16 tokens */
    struct rig *rig;
    struct rig_engine e;
    struct pool_id pool;
    struct rig_session *s;
    struct session_id turn;
};

static struct race race_start(uint64_t turn_ns)
{
    struct rig_options o = OPTIONS_WITH(limits.turn_deadline_ns = turn_ns);
    struct race r = {.rig = rig_create(&o)};

    r.e = rig_engine(r.rig, 0, "e", 2);
    r.pool = rig_pool_pages(r.rig, &r.e, 4, 64);
    r.s = rig_session(r.rig, &r.e, r.pool, 1);
    assert_ok(rig_match(r.s, seq1, 16));
    assert_ok(rig_run_to(r.s, seq1, 16));
    assert_ok(turn_begin(r.rig, r.e.conn[0], r.s->id, &r.turn));
    return r;
}

/* Asserts that the slot is free, and that the next turn works. */
static void assert_next_succeeds(struct race *r, uint32_t seat)
{
    struct session_id old = r->turn;

    assert_ok(turn_begin(r->rig, r->e.conn[seat], r->s->id, &r->turn));
    assert_int_not_equal(r->turn.gen, old.gen);
    assert_err(TERN_GONE, step_by(r->s, old, STEP_EXTEND));
    assert_err(TERN_GONE, turn_end(r->rig, r->e.conn[seat], old, 0));
    assert_ok(step_by(r->s, r->turn, STEP_EXTEND));
    assert_ok(turn_end(r->rig, r->e.conn[seat], r->turn, 0));
    assert_ok(step_by(r->s, r->s->id, STEP_EXTEND));
}

TEST(m_f_three_contenders_are_busy_until_the_turn_ends)
{
    struct race r = race_start(0);
    uint64_t before = core_changes(r.rig->core);
    struct session_id other;
    const char *text;

    for (uint32_t i = 0; i < 3; i++) {
        assert_err(TERN_BUSY, turn_begin(r.rig, r.e.conn[i % 2], r.s->id, &other));
        assert_err(TERN_BUSY, gate_says(r.rig, r.e.conn[1], OP_MATCH, r.s->id, &text));
        assert_non_null(strstr(text, "a turn of this session is in flight"));
    }
    assert_err(TERN_BUSY, step_by(r.s, r.s->id, STEP_EXTEND));
    assert_int_equal(r.rig->res.lengths.written, 16); /* the refusal has the lengths */
    assert_err(TERN_BUSY, rig_match(r.s, seq1, 16));
    assert_int_equal(r.rig->last->match.lengths.written, 16);
    assert_int_equal(r.rig->last->match.tokens, 16);
    assert_err(TERN_BUSY, turn_end(r.rig, r.e.conn[1], r.s->id, 0));
    assert_int_equal(core_changes(r.rig->core), before);
    assert_ok(gate_says(r.rig, r.e.conn[1], OP_MATCH, r.turn, &text));
    assert_ok(step_by(r.s, r.turn, STEP_EXTEND));
    assert_int_equal(turns_of(r.rig, 0).in_flight, 1);
    assert_ok(turn_end(r.rig, r.e.conn[1], r.turn, 0)); /* by whoever has the handle */
    assert_next_succeeds(&r, 1);
    assert_int_equal(turns_of(r.rig, 0).in_flight, 0);
    assert_int_equal(turns_of(r.rig, 0).begun, 2);
}

TEST(m_h_a_close_in_mid_turn_waits_and_later_use_is_gone)
{
    struct race r = race_start(0);
    uint64_t closing = session_close_asked(r.rig, r.e.conn[1], r.s->id, 0);
    struct session_id unused;

    assert_null(rig_reply_to(r.rig, closing));
    assert_err(TERN_GONE, turn_begin(r.rig, r.e.conn[1], r.s->id, &unused)); /* not BUSY */
    assert_answer(r.rig, session_close_asked(r.rig, r.e.conn[1], r.s->id, 0), TERN_GONE);
    assert_ok(step_by(r.s, r.turn, STEP_EXTEND)); /* the turn continues */
    assert_null(rig_reply_to(r.rig, closing));
    assert_ok(turn_end(r.rig, r.e.conn[0], r.turn, 7));
    assert_answer(r.rig, closing, TERN_OK);
    assert_int_equal(rig_retiring(r.rig, r.pool), 4); /* pages that the turn had in flight */
    rig_engine_done(r.rig, &r.e, 7);
    assert_int_equal(rig_free(r.rig, r.pool), 64);
    assert_err(TERN_GONE, step_by(r.s, r.turn, STEP_EXTEND));
    assert_err(TERN_GONE, step_by(r.s, r.s->id, STEP_EXTEND));
    assert_answer(r.rig, session_close_asked(r.rig, r.e.conn[1], r.s->id, 0), TERN_GONE);
}

TEST(m_i_the_slot_after_failed_work)
{
    struct race r = race_start(0);
    struct session_id own = r.s->id;

    r.s->id = r.turn;
    assert_err(TERN_QUOTA, rig_extend(r.s, 4000, 16, NULL, 0));
    r.s->id = own;
    assert_ok(turn_end(r.rig, r.e.conn[0], r.turn, 0));
    assert_next_succeeds(&r, 0);
}

TEST(m_i_the_slot_after_a_validation_error)
{
    struct race r = race_start(0);
    struct session_id own = r.s->id;

    r.s->id = r.turn;
    assert_err(TERN_INVALID, rig_rewind(r.s, 400, 0));
    r.s->id = own;
    assert_ok(turn_end(r.rig, r.e.conn[0], r.turn, 0));
    assert_next_succeeds(&r, 1);
}

TEST(m_i_the_slot_after_a_cancel)
{
    struct race r = race_start(0);

    assert_ok(step_by(r.s, r.turn, STEP_ABORT));
    assert_int_equal(rig_free(r.rig, r.pool), 64);
    assert_ok(turn_end(r.rig, r.e.conn[0], r.turn, 0));
    assert_next_succeeds(&r, 0);
}

/* The same after a malformed body, which ends the connection. */
TEST(m_i_the_slot_after_a_disconnect)
{
    struct race r = race_start(0);

    rig_disconnect(r.rig, r.e.conn[0]);
    assert_int_equal(turns_of(r.rig, 0).lost, 1);
    assert_int_equal(rig_group_view(r.rig, r.pool, 0).session, 4); /* as the turn left it */
    r.s->conn = r.e.conn[1];
    assert_next_succeeds(&r, 1);
}

TEST(m_i_the_slot_after_the_deadline)
{
    struct race r = race_start(1000000);

    assert_int_equal(core_deadline(r.rig->core), r.rig->now_ns + 1000000);
    rig_advance(r.rig, 999999);
    assert_ok(step_by(r.s, r.turn, STEP_EXTEND));
    rig_advance(r.rig, 1);
    assert_int_equal(turns_of(r.rig, 0).expired, 1);
    assert_err(TERN_GONE, step_by(r.s, r.turn, STEP_EXTEND));
    assert_next_succeeds(&r, 0);
}
