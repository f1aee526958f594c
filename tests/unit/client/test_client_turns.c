/* Requests and answers of libtern when clients race for one session: turns, and the close that
 * waits for one. The daemon is scripted; a real one is in tests/e2e/test_turns.c. */
#include <stdatomic.h>

#include "unit/rig/rig_client.h"

#define TURN     UINT64_C(0x8000000300000005)
#define LATE_MAX 64 /* turns that libtern keeps while there is no room to end them */

/* ---- begin, end, close ---- */

/* Session 1 gets a turn, 2 is BUSY and 3 GONE; 4 is answered without a turn. Turns end at step 9 or
 * at none. 5 is closed, 6 is BUSY. */
static void serve_turns(struct fake *f)
{
    const ProtobufCMessage *msg;

    while ((msg = fake_read(f))) {
        Tern__Wire__TurnBeginReply begun = TERN__WIRE__TURN_BEGIN_REPLY__INIT;
        const Tern__Wire__TurnEnd *end = (const Tern__Wire__TurnEnd *)msg;
        const Tern__Wire__SessionClose *close = (const Tern__Wire__SessionClose *)msg;

        if (f->h.type == FRAME_TURN_BEGIN && f->h.session == 1) {
            begun.has_turn = 1;
            begun.turn = TURN;
            fake_reply(f, &begun);
        } else if (f->h.type == FRAME_TURN_BEGIN && f->h.session == 4) {
            fake_reply(f, &begun);
        } else if (f->h.type == FRAME_TURN_BEGIN) {
            fake_reply_err(f, f->h.session == 2 ? TERN_BUSY : TERN_GONE, "somebody's turn");
        } else if (f->h.type == FRAME_TURN_END) {
            check(end->step == (f->h.session == TURN ? 9 : 0));
            fake_reply_err(f, f->h.session == TURN ? TERN_OK : TERN_GONE, "it has ended");
        } else {
            check(f->h.type == FRAME_SESSION_CLOSE && close->step == (f->h.session == 5 ? 9 : 0));
            fake_reply_err(f, f->h.session == 5 ? TERN_OK : TERN_BUSY, "nobody said the step");
        }
    }
}

TEST(turn_begin_answers_a_handle_or_why_not)
{
    tern_session turn = 0;

    start(serve_turns, NULL);
    assert_ok(tern_turn_begin(t, 1, 2000, &turn));
    assert_true(turn == TURN);
    turn = 99;
    assert_err(TERN_BUSY, tern_turn_begin(t, 2, 2000, &turn));
    assert_string_equal(tern_error_text(t, NULL), "somebody's turn");
    assert_err(TERN_GONE, tern_turn_begin(t, 3, 2000, &turn));
    assert_int_equal(turn, 99);
}

TEST(turn_begin_without_a_turn_is_no_answer)
{
    tern_session turn = 99;

    start(serve_turns, NULL);
    assert_err(TERN_MALFORMED, tern_turn_begin(t, 4, 2000, &turn));
    assert_int_equal(turn, 99);
    assert_err(TERN_DAEMON_LOST, tern_ping(t, 100));
}

TEST(turn_end_names_a_step_or_says_that_there_is_none)
{
    start(serve_turns, NULL);
    assert_ok(tern_turn_end(t, TURN, 9, 2000));
    assert_err(TERN_GONE, tern_turn_end(t, 7, TERN_STEP_NONE, 2000));
    assert_string_equal(tern_error_text(t, NULL), "it has ended; the handle is 0x7");
    assert_err(TERN_INVALID, tern_turn_end(t, TURN, 0, 2000));
    assert_non_null(strstr(tern_error_text(t, NULL), "TERN_STEP_NONE"));
}

TEST(session_close_is_a_request_of_its_own)
{
    struct tern_result r = {.err = TERN_INTERNAL, .tokens = 99};

    start(serve_turns, NULL);
    assert_ok(tern_session_close(t, 5, 9, 2000, &r));
    assert_ok(r.err);
    assert_int_equal(r.tokens, 0);
    assert_err(TERN_BUSY, tern_session_close(t, 6, TERN_STEP_NONE, 2000, &r));
    assert_err(TERN_BUSY, r.err);
    assert_string_equal(tern_error_text(t, NULL), "nobody said the step");
    assert_err(TERN_INVALID, tern_session_close(t, 5, 0, 2000, &r));
    assert_err(TERN_BUSY, r.err);
}

/* ---- invalid and empty answers ---- */

static void reply_nonsense(struct fake *f)
{
    static const uint8_t body[] = {0x0a, 0x7f}; /* a status that is longer than its answer */
    uint8_t frame[FRAME_HEADER_BYTES + sizeof body];
    struct frame_header h = {
        .length = sizeof body, .version = FRAME_VERSION, .type = (uint16_t)(f->h.type + 1)};

    h.request_id = f->h.request_id;
    frame_encode(&h, frame);
    memcpy(frame + FRAME_HEADER_BYTES, body, sizeof body);
    fake_write(f, frame, sizeof frame);
}

static void serve_nonsense(struct fake *f)
{
    check(fake_read(f) != NULL);
    reply_nonsense(f);
    while (fake_read(f))
        ;
}

TEST(turn_answer_is_nonsense_connection_ends_typed)
{
    for (int which = 0; which < 3; which++) {
        struct tern_result r = {.tokens = 99};
        tern_session turn;

        start(serve_nonsense, NULL);
        assert_err(TERN_MALFORMED, which == 0   ? tern_turn_begin(t, 1, 2000, &turn)
                                   : which == 1 ? tern_turn_end(t, TURN, 9, 2000)
                                                : tern_session_close(t, 1, 9, 2000, &r));
        assert_int_equal(r.tokens, 99);
        assert_err(TERN_DAEMON_LOST, tern_ping(t, 100));
        stop();
    }
}

static void serve_silence(struct fake *f)
{
    while (fake_read(f))
        ;
}

TEST(turn_without_an_answer_leaves_what_is_returned)
{
    struct tern_result r = {.tokens = 99};
    tern_session turn = 99;

    start(serve_silence, NULL);
    assert_err(TERN_TIMED_OUT, tern_turn_begin(t, 1, 30, &turn));
    assert_int_equal(turn, 99);
    assert_err(TERN_TIMED_OUT, tern_session_close(t, 1, TERN_STEP_NONE, 30, &r));
    assert_int_equal(r.tokens, 99);
}

/* ---- answers that come late ---- */

static struct late {
    uint32_t n; /* TurnBegins that are answered late, with turns from TURN on */
    bool open;  /* these are SessionOpens, with sessions */
    enum tern_err err;
    bool nonsense;
    atomic_int go, told; /* by the test: answer, read on; by the script: has read, has answered */
    atomic_uint ended;   /* TurnEnds or SessionCloses that came */
} late;                  /* the case's; the script borrows it */

static void wait_for(const atomic_int *what, int value)
{
    for (int i = 0; i < 100000 && atomic_load(what) < value; i++)
        usleep(100);
    check(atomic_load(what) >= value);
}

static void reply_late(struct fake *f, const struct frame_header *h, uint64_t turn)
{
    Tern__Wire__TurnBeginReply m = TERN__WIRE__TURN_BEGIN_REPLY__INIT;
    Tern__Wire__SessionOpenReply opened = TERN__WIRE__SESSION_OPEN_REPLY__INIT;

    f->h = *h;
    if (late.err != TERN_OK) {
        fake_reply_err(f, late.err, NULL);
        return;
    }
    m.has_turn = opened.has_session = 1;
    m.turn = opened.session = turn;
    if (late.nonsense)
        reply_nonsense(f);
    else if (late.open)
        fake_reply(f, &opened);
    else
        fake_reply(f, &m);
}

/* Reads the TurnBegins; answers them when the test allows it; then reads on. */
static void serve_late(struct fake *f)
{
    struct frame_header begun[LATE_MAX + 1];
    const ProtobufCMessage *msg;

    for (uint32_t i = 0; i < late.n; i++) {
        check(fake_read(f) != NULL);
        check(f->h.type == (late.open ? FRAME_SESSION_OPEN : FRAME_TURN_BEGIN));
        begun[i] = f->h;
    }
    atomic_store(&late.told, 1);
    wait_for(&late.go, 1);
    for (uint32_t i = 0; i < late.n; i++)
        reply_late(f, &begun[i], TURN + i);
    atomic_store(&late.told, 2);
    wait_for(&late.go, 2);
    while ((msg = fake_read(f))) {
        if (f->h.type == (late.open ? FRAME_SESSION_CLOSE : FRAME_TURN_END)) {
            const Tern__Wire__TurnEnd *end = (const Tern__Wire__TurnEnd *)msg;
            const Tern__Wire__SessionClose *close = (const Tern__Wire__SessionClose *)msg;

            check(f->h.session >= TURN && f->h.session < TURN + late.n);
            check((late.open ? close->step : end->step) == 0);
            atomic_fetch_add(&late.ended, 1);
            fake_reply_empty(f);
        } else if (f->h.type == FRAME_PING) {
            fake_reply_empty(f);
        }
    }
}

static void begin_in_vain(struct late how)
{
    late = how;
    start(serve_late, NULL);
    for (uint32_t i = 0; i < late.n; i++) {
        const struct tern_namespace ns = {.model = "m"};
        tern_session turn = 99;

        if (late.open)
            assert_err(TERN_TIMED_OUT, tern_session_open(t, 7, &ns, NULL, i ? 1 : 30, &turn));
        else
            assert_err(TERN_TIMED_OUT, tern_turn_begin(t, 1, i ? 1 : 30, &turn));
        assert_int_equal(turn, 99);
    }
    wait_for(&late.told, 1);
}

static void ended_by_the_next_call(struct late how)
{
    begin_in_vain(how);
    atomic_store(&late.go, 2);
    assert_ok(tern_ping(t, 2000));
    assert_ok(tern_ping(t, 2000)); /* answered after the ends; the first ping received both */
    assert_int_equal(atomic_load(&late.ended), how.n);
}

TEST(turn_that_began_for_nobody_is_ended_by_the_next_call)
{
    ended_by_the_next_call((struct late){.n = 2});
}

TEST(session_that_was_opened_for_nobody_is_closed_by_the_next_call)
{
    ended_by_the_next_call((struct late){.n = 2, .open = true});
}

static void wait_until_ended(bool polling)
{
    struct tern_answer answer;

    for (int i = 0; i < 300000 && atomic_load(&late.ended) < late.n; i++) {
        if (polling)
            assert_err(TERN_BUSY, tern_poll(t, &answer));
        usleep(100);
    }
    assert_int_equal(atomic_load(&late.ended), late.n);
}

TEST(turn_that_began_for_nobody_is_ended_by_poll)
{
    struct tern_answer answer;

    begin_in_vain((struct late){.n = 1});
    atomic_store(&late.go, 2);
    wait_for(&late.told, 2);
    assert_err(TERN_BUSY, tern_poll(t, &answer));
    wait_until_ended(false); /* everything is sent */
}

TEST(late_refusal_ends_nothing)
{
    for (int open = 0; open < 2; open++) {
        begin_in_vain((struct late){.n = 1, .open = open, .err = TERN_BUSY});
        atomic_store(&late.go, 2);
        assert_ok(tern_ping(t, 2000));
        assert_ok(tern_ping(t, 2000));
        assert_int_equal(atomic_load(&late.ended), 0);
        stop();
    }
}

TEST(late_nonsense_ends_the_connection)
{
    begin_in_vain((struct late){.n = 1, .nonsense = true});
    atomic_store(&late.go, 2);
    (void)tern_ping(t, 2000); /* may have come with the invalid answer */
    assert_err(TERN_DAEMON_LOST, tern_ping(t, 2000));
}

/* Fills socket and buffer, until neither has room for the smallest request. */
static void fill_the_way_out(void)
{
    static const uint32_t tokens[FRAME_BODY_MAX / sizeof(uint32_t)];

    for (uint32_t n = sizeof(tokens) / sizeof(*tokens) - 64; n > 0; n /= 2) {
        struct tern_tokens list = {.v = tokens, .n = n};

        while (tern_submit_match(t, 1, &list, TERN_STEP_NONE, n) == TERN_OK)
            ;
    }
    while (tern_submit_recover(t, 1, 1) == TERN_OK)
        ;
    assert_null(strstr(tern_error_text(t, NULL), "TERN_INFLIGHT_MAX"));
}

/* Such turns are kept until a call or a poll finds room, up to a limit. */
TEST(turns_wait_for_room_to_be_ended)
{
    for (uint32_t polling = 0; polling < 2; polling++) {
        struct tern_answer answer;

        begin_in_vain((struct late){.n = LATE_MAX});
        fill_the_way_out();
        atomic_store(&late.go, 1);
        wait_for(&late.told, 2);
        assert_err(TERN_BUSY, tern_poll(t, &answer));
        assert_int_equal(atomic_load(&late.ended), 0);
        atomic_store(&late.go, 2);
        if (!polling) {
            assert_ok(tern_ping(t, 20000)); /* waits for room */
            assert_ok(tern_ping(t, 20000));
        }
        wait_until_ended(polling);
        stop();
    }
}

TEST(too_many_turns_wait_for_room_the_connection_ends)
{
    struct tern_answer answer;

    begin_in_vain((struct late){.n = LATE_MAX + 1});
    fill_the_way_out();
    atomic_store(&late.go, 1);
    wait_for(&late.told, 2);
    while (tern_poll(t, &answer) == TERN_OK)
        assert_err(TERN_DAEMON_LOST, answer.err);
    assert_err(TERN_DAEMON_LOST, tern_ping(t, 100));
    atomic_store(&late.go, 2);
}
