/* Turn records beyond the scenarios: refusals that store nothing, memory that is returned and
 * memory that somebody may still touch, turns and sessions that end half-way. */
#include "unit/rig/rig_record.h"

static enum tern_err prepare_err(struct stand *t, struct req_record_prepare p)
{
    p.session = p.session.gen ? p.session : t->r.turn;
    return record_ask(&t->r, (struct request){.op = OP_RECORD_PREPARE, .record_prepare = p})->err;
}

TEST(records_need_a_turn)
{
    struct stand t = stand();
    struct request get = {.op = OP_RECORD_GET, .record_get.session = t.s->id};

    assert_err(TERN_INVALID,
               prepare_err(&t, (struct req_record_prepare){.session = t.s->id, .length = 4}));
    assert_non_null(strstr(t.rig->last->text, "TurnBegin"));
    assert_err(TERN_INVALID, record_ask(&t.r, get)->err);
    assert_pages(&t, 0, 0);
}

TEST(records_refuse_what_does_not_fit_before_a_page_is_taken)
{
    struct stand t = stand();
    struct req_blobs five = {.n = 5}, unnamed = {.n = 1, .v = {{.bytes = 1}}},
                     empty = {.n = 1, .v = {{.name = "a"}}},
                     twice = {.n = 2, .v = {{.name = "a", .bytes = 1}, {.name = "a", .bytes = 1}}};
    const struct req_record_prepare bad[] = {
        {.length = SESSION_TOKENS_MAX + 1},
        {.length = 4, .logprobs = 3},
        {.length = 4, .blobs = five},
        {.length = 4, .blobs = unnamed},
        {.length = 4, .blobs = empty},
        {.length = 4, .blobs = twice},
        {.length = 4, .kind = RECORD_ROLLBACK, .logprobs = 4},
        {.length = 4, .kind = RECORD_ROLLBACK, .blobs = empty},
    };

    recorder_begin(&t.r);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_err(TERN_MALFORMED, prepare_err(&t, bad[i]));
    assert_err(TERN_CONFLICT, prepare_err(&t, (struct req_record_prepare){.length = 0}));
    assert_err(TERN_INVALID, record_put_now(&t.r)->err);
    assert_pages(&t, 0, 0);
    recorder_end(&t.r);
}

/* M10: the answer names the part and the element, nothing is stored, and the slot is free. */
TEST(records_that_are_written_wrong_are_malformed)
{
    static const uint32_t bad_bits[] = {0x7f800000, 0xff800000, 0x7fc00001, 0xffffffff};
    static const uint32_t lengths[] = {10, 30};
    struct stand t = stand();
    const struct record_body *b;

    records_turn(&t.r, 10);
    recorder_begin(&t.r);
    for (uint32_t i = 0; i < 4; i++) {
        b = record_write(&t.r, 30, 30 * BLOB_TOKEN_BYTES);
        record_word_put(&t.r, &b->own, 20 + 5 + i, bad_bits[i]);
        assert_err(TERN_MALFORMED, record_put_now(&t.r)->err);
        assert_int_equal(t.rig->last->record_put.part, PART_LOGPROBS);
        assert_int_equal(t.rig->last->record_put.index, 5 + i);
        assert_int_equal(t.rig->last->record_put.length, 10);
    }
    b = record_write(&t.r, 30, 1);
    record_word_put(&t.r, &b->own, 19, 1u << 31);
    assert_err(TERN_MALFORMED, record_put_now(&t.r)->err);
    assert_int_equal(t.rig->last->record_put.part, PART_TOKENS);
    assert_int_equal(t.rig->last->record_put.index, 29);
    b = record_write(&t.r, 30, 1);
    record_word_put(&t.r, &b->before, 3, UINT32_MAX);
    assert_err(TERN_MALFORMED, record_put_now(&t.r)->err);
    assert_int_equal(t.rig->last->record_put.index, 3);
    assert_pages(&t, 2, 0);
    recorder_end(&t.r);
    records_turn(&t.r, 30);
    recorder_begin(&t.r);
    records_read(&t.r, 2, lengths);
    recorder_end(&t.r);
}

/* M4 */
TEST(records_of_another_list_are_a_conflict)
{
    static const uint32_t lengths[] = {10};
    struct stand t = stand();
    const struct record_body *b;

    records_turn(&t.r, 10);
    recorder_begin(&t.r);
    for (uint32_t at = 0; at < 10; at += 9) {
        b = record_write(&t.r, 30, 1);
        record_word_put(&t.r, &b->before, at, 7 + record_word(&t.r, &b->before, at));
        assert_err(TERN_CONFLICT, record_put_now(&t.r)->err);
    }
    assert_null(record_write(&t.r, 10, 1));
    assert_err(TERN_CONFLICT, t.rig->last->err);
    records_read(&t.r, 1, lengths);
    recorder_end(&t.r);
    assert_pages(&t, 2, 0);
}

TEST(records_are_refused_where_memory_has_no_room)
{
    struct stand t = stand();

    recorder_begin(&t.r);
    assert_null(record_write(&t.r, 4, 64 * RECORD_PAGE_BYTES));
    assert_err(TERN_QUOTA, t.rig->last->err);
    assert_non_null(strstr(t.rig->last->text, "record_memory"));
    assert_pages(&t, 0, 0);
    assert_non_null(record_write(&t.r, 4, 63 * RECORD_PAGE_BYTES));
    assert_pages(&t, 64, 0);
    recorder_end(&t.r); /* no record was put: all is free */
    assert_pages(&t, 0, 0);
}

/* Sessions with records take no pages of another's, wherever the free pages lie. */
TEST(records_lie_in_several_runs_where_no_long_one_is_free)
{
    static const uint32_t lengths[] = {10};
    struct stand t = stand();
    struct recorder other[8];

    for (uint32_t i = 0; i < 8; i++) { /* 7 pages each: tokens in one, a blob in six */
        struct rig_session *s = rig_session(t.rig, &t.e, t.s->pool, 1);

        other[i] = t.r;
        other[i].session = s->id;
        other[i].seed = 1 + i;
        recorder_begin(&other[i]);
        assert_non_null(record_write(&other[i], 10, 6 * RECORD_PAGE_BYTES));
        assert_ok(record_put_now(&other[i])->err);
        recorder_end(&other[i]);
    }
    assert_pages(&t, 56, 0);
    for (uint32_t i = 0; i < 8; i += 2) {
        struct request close = {.op = OP_SESSION_CLOSE, .session_close.session = other[i].session};

        assert_ok(record_ask(&t.r, close)->err);
    }
    assert_pages(&t, 28, 0);
    recorder_begin(&t.r);
    assert_non_null(record_write(&t.r, 10, 35 * RECORD_PAGE_BYTES));
    assert_ok(record_put_now(&t.r)->err);
    assert_pages(&t, 64, 0);
    recorder_end(&t.r);
    for (uint32_t i = 1; i < 8; i += 2) {
        const struct reply *reply;

        recorder_begin(&other[i]);
        reply = record_ask(
            &other[i], (struct request){.op = OP_RECORD_GET, .record_get.session = other[i].turn});
        for (uint64_t at = 0; at < 6 * RECORD_PAGE_BYTES; at += 509)
            assert_int_equal(*record_byte(&other[i], &reply->record_get.list[0].blob[0].at, at),
                             blob_byte(&other[i], 10, at));
        recorder_end(&other[i]);
    }
    (void)lengths;
}

/* E1: a turn that never ended may still write the pages that it prepared, and read those that it
 * was given. Nobody else gets that memory until its engine has ended. */
TEST(records_of_a_turn_that_never_ended_are_held)
{
    struct rig_options o = OPTIONS_WITH(limits.turn_deadline_ns = 1000);
    struct stand t = stand_with(o);

    records_turn(&t.r, 10);
    recorder_begin(&t.r);
    assert_non_null(record_write(&t.r, 20, RECORD_PAGE_BYTES));
    rig_advance(t.rig, 1000);
    assert_err(TERN_GONE, record_put_now(&t.r)->err);
    assert_pages(&t, 2 + 3, 3);
    for (uint32_t length = 20; length < 60; length += 10) { /* first blob: dropped, but held */
        recorder_begin(&t.r);
        assert_non_null(record_write(&t.r, length, RECORD_PAGE_BYTES));
        assert_ok(record_put_now(&t.r)->err);
        recorder_end(&t.r);
    }
    assert_pages(&t, 2 + 3 + 4 + 2, 3);
    assert_ok(rig_close(t.s, 0));
    assert_pages(&t, 2 + 3, 2 + 3);
    rig_engine_kill(t.rig, &t.e, 0);
    assert_pages(&t, 2 + 3, 2 + 3);
    rig_engine_kill(t.rig, &t.e, 1);
    assert_pages(&t, 0, 0);
}

/* M7, M8: a turn may end in any way while a worker looks at its record; then nothing is stored. */
TEST(records_whose_turn_ends_while_they_are_looked_at_are_not_stored)
{
    for (uint32_t how = 0; how < 4; how++) {
        struct rig_options o = OPTIONS_WITH(limits.turn_deadline_ns = how == 1 ? 1000 : 0);
        struct stand t = stand_with(o);
        struct request put = {.op = OP_RECORD_PUT};
        uint64_t close = 0;

        t.rig->automatic = BY_HAND(RIG_RECORD);
        recorder_begin(&t.r);
        assert_non_null(record_write(&t.r, 20, 1));
        put.record_put.session = t.r.turn;
        assert_null(record_ask(&t.r, put));
        assert_err(TERN_BUSY, prepare_err(&t, (struct req_record_prepare){.length = 30}));
        assert_err(TERN_BUSY, record_put_now(&t.r)->err);
        if (how == 0)
            recorder_end(&t.r);
        if (how == 1)
            rig_advance(t.rig, 1000);
        if (how == 2)
            close = session_close_asked(t.rig, t.e.conn[1], t.s->id, 0);
        if (how == 3)
            assert_ok(step_by(t.s, t.r.turn, STEP_CLOSE));
        assert_pages(&t, 2, 0);
        rig_complete(t.rig, RIG_RECORD);
        assert_err(TERN_GONE, t.rig->last->err);
        assert_int_equal(t.rig->last->op, OP_RECORD_PUT);
        assert_pages(&t, 0, 0);
        if (how == 2) {
            recorder_end(&t.r);
            assert_answer(t.rig, close, TERN_OK);
        }
    }
}

TEST(records_that_are_looked_at_are_limited)
{
    struct rig_options o = OPTIONS_WITH(limits.record_jobs = 1);
    struct stand t = stand_with(o);
    struct recorder other = t.r;
    struct request put = {.op = OP_RECORD_PUT};

    other.session = rig_session(t.rig, &t.e, t.s->pool, 1)->id;
    t.rig->automatic = BY_HAND(RIG_RECORD);
    recorder_begin(&t.r);
    recorder_begin(&other);
    assert_non_null(record_write(&t.r, 20, 1));
    assert_non_null(record_write(&other, 20, 1));
    put.record_put.session = t.r.turn;
    assert_null(record_ask(&t.r, put));
    assert_err(TERN_BUSY, record_put_now(&other)->err);
    assert_non_null(strstr(t.rig->last->text, "turn records under check"));
    rig_complete(t.rig, RIG_RECORD);
    t.rig->automatic = RIG_ALL;
    assert_ok(record_put_now(&other)->err); /* the prepared record is still there */
}

/* M3: the record that a second rollback would reach has its blob, since there were no more records,
 * but may not be taken back either. */
TEST(records_rolled_back_count_since_the_last_append)
{
    static const uint32_t lengths[] = {10};
    struct stand t = stand();

    records_turn(&t.r, 10);
    records_turn(&t.r, 30);
    recorder_begin(&t.r);
    assert_ok(rolls_back(&t.r, 1, 29, 0)->err);
    assert_err(TERN_INVALID, rolls_back(&t.r, 1, 9, 0)->err);
    assert_int_equal(records_read(&t.r, 1, lengths), 1);
    recorder_end(&t.r);
}

/* M9: a turn that failed is not recorded. */
TEST(records_of_a_turn_that_puts_none_stay_as_they_are)
{
    static const uint32_t lengths[] = {10};
    struct stand t = stand();

    records_turn(&t.r, 10);
    recorder_begin(&t.r);
    assert_non_null(record_write(&t.r, 30, 1));
    recorder_end(&t.r);
    recorder_begin(&t.r);
    assert_int_equal(records_read(&t.r, 1, lengths), 1);
    recorder_end(&t.r);
    assert_pages(&t, 2, 0);
}

/* M2 */
TEST(records_of_a_session_for_merging_drop_nothing)
{
    struct stand t = stand();
    struct request open = {.op = OP_SESSION_OPEN,
                           .session_open = {.pool = t.s->pool, .merging = true, .blobs_kept = 2}};

    assert_err(TERN_INVALID, record_ask(&t.r, open)->err);
    assert_non_null(strstr(t.rig->last->text, "merging"));
    open.session_open.merging = false;
    open.session_open.blobs_kept = BLOBS_KEPT_MAX + 1;
    open.request_id = 0;
    assert_err(TERN_INVALID, record_ask(&t.r, open)->err);
}

/* A rollback below the committed length ends the table at its step; one above keeps the table. */
TEST(records_rolled_back_below_what_is_committed_end_the_table)
{
    for (uint32_t below = 0; below < 2; below++) {
        struct stand t = stand();
        struct rig_session *s = t.s;

        assert_ok(rig_match(s, seq1, 30));
        run_and_commit(s, seq1, 30, below ? 28 : 8, 0);
        records_turn(&t.r, 10);
        records_turn(&t.r, 30);
        recorder_begin(&t.r);
        assert_ok(rolls_back(&t.r, 1, 20, 5)->err);
        assert_int_equal(t.rig->last->rollback.length, 10);
        recorder_end(&t.r);
        if (!below) {
            assert_lengths(s, 8, 30, 30);
            continue;
        }
        assert_int_equal(rig_group_view(t.rig, s->pool, 0).retiring, 1);
        rig_engine_done(t.rig, &t.e, 5);
        assert_int_equal(rig_group_view(t.rig, s->pool, 0).retiring, 0);
        assert_ok(rig_match(s, seq1, 30));
        assert_int_equal(s->matched, 28);
        assert_int_equal(rig_wrong(s, 28), 0);
    }
}

/* M3: the table goes at the step that the rollback names, so no later step begins. */
TEST(records_rolled_back_leave_no_room_for_later_steps)
{
    struct stand t = stand();
    struct request back = {.op = OP_ROLLBACK}, prepare = {.op = OP_RECORD_PREPARE};

    assert_ok(rig_match(t.s, seq1, 30));
    run_and_commit(t.s, seq1, 30, 28, 0);
    recorder_begin(&t.r);
    prepare.record_prepare =
        (struct req_record_prepare){.session = t.r.turn, .kind = RECORD_ROLLBACK, .length = 0};
    back.rollback = (struct req_rollback){.session = t.r.turn, .step = 5};
    assert_ok(record_ask(&t.r, prepare)->err);
    t.rig->automatic = BY_HAND(RIG_RECORD);
    assert_null(record_ask(&t.r, back));
    assert_err(TERN_BUSY, step_by(t.s, t.r.turn, STEP_EXTEND)); /* step 6 would write it */
    assert_non_null(strstr(t.rig->res.text, "rollback"));
    assert_ok(step_by(t.s, t.r.turn, STEP_ABORT)); /* an Abort ends the table itself */
    rig_complete(t.rig, RIG_RECORD);
    assert_ok(t.rig->last->err);
    recorder_end(&t.r);
}

/* M3: back to no record, if the prompt does not even begin with the first. */
TEST(records_rolled_back_to_nothing)
{
    struct stand t = stand();

    records_turn(&t.r, 10);
    recorder_begin(&t.r);
    assert_ok(rolls_back(&t.r, 2, 40, 0)->err); /* another conversation */
    assert_int_equal(t.rig->last->rollback.length, 0);
    assert_int_equal(t.rig->last->rollback.records, 0);
    assert_ok(rolls_back(&t.r, 2, 0, 0)->err);
    assert_pages(&t, 0, 0);
    recorder_end(&t.r);
}
