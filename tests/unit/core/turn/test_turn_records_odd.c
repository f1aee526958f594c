/* Turn records in unusual cases: lengths that exceed all memory, turns that are lost again and
 * again, engines that end in pieces while a worker looks, and rollbacks of sessions in every state,
 * each of which must then run on as usual. */
#include <stdio.h>

#include "base/prng.h"
#include "unit/rig/rig_host.h"
#include "unit/rig/rig_pair.h"
#include "unit/rig/rig_record.h"

/* A blob of nearly 2^64 bytes is refused, however its length is rounded up. */
TEST(records_blobs_longer_than_any_memory_are_refused)
{
    static const uint64_t bytes[] = {
        UINT64_MAX, UINT64_MAX - RECORD_PAGE_BYTES + 2, UINT64_MAX - RECORD_PAGE_BYTES + 1,
        1ull << 63, (1ull << 32) * RECORD_PAGE_BYTES,   (1ull << 32) * RECORD_PAGE_BYTES + 1};
    struct stand t = stand();

    recorder_begin(&t.r);
    for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++) {
        assert_null(record_write(&t.r, 4, bytes[i]));
        assert_err(TERN_QUOTA, t.rig->last->err);
        assert_pages(&t, 0, 0);
    }
    recorder_end(&t.r);
}

/* Only the pages that a lost turn was given are held. Records that came later are not, whatever
 * their tokens: a session may roll back and append any number of times. */
TEST(records_that_came_after_a_lost_turn_are_not_held)
{
    struct rig_options o = OPTIONS_WITH(limits.turn_deadline_ns = 1000);
    struct stand t = stand_with(o);

    records_turn(&t.r, 10);
    records_turn(&t.r, 30);
    recorder_begin(&t.r);
    assert_non_null(record_write(&t.r, 40, RECORD_PAGE_BYTES));
    rig_advance(t.rig, 1000);
    assert_pages(&t, 2 + 3 + 3, 3);
    for (uint32_t i = 0; i < 8; i++) {
        recorder_begin(&t.r);
        assert_ok(rolls_back(&t.r, 1, 29, 0)->err);
        assert_int_equal(t.rig->last->rollback.length, 10);
        recorder_end(&t.r);
        assert_pages(&t, 2 + 6, 6); /* the lost turn's record, and the one it had read */
        records_turn(&t.r, 30);
    }
}

/* Updates the rig's copy of a session after a rollback, which may have ended the table. */
static void table_ended(struct rig_session *s)
{
    struct session_view v;

    assert_true(core_session_view(s->rig->core, s->id.slot, &v));
    if (v.lengths.allocated == s->len.allocated && v.lengths.committed == s->len.committed)
        return;
    assert_int_equal(v.lengths.allocated, 0);
    s->len = v.lengths;
    s->ntokens = v.tokens;
    s->low = 0;
    memset(s->slid, 0, sizeof s->slid);
    memset(s->table, 0, sizeof s->table);
}

/* M3, M9: a turn was finished, has failed, and left no record. Only a rollback can take back what
 * it committed, and there is no record to take back. */
TEST(records_rolled_back_where_a_failed_turn_has_committed_more)
{
    struct stand t = stand();
    struct rig_session *s = t.s;
    uint32_t tokens[40];

    assert_ok(rig_match(s, seq1, 30));
    records_turn(&t.r, 10);
    run_and_commit(s, seq1, 30, 28, 0);
    assert_ok(rig_finish(s, 30, 0));
    memcpy(tokens, seq1, sizeof tokens);
    for (uint32_t i = 12; i < 40; i++)
        tokens[i] ^= 1; /* the repeated turn has other tokens */
    assert_err(TERN_INVALID, rig_match(s, tokens, 40));
    recorder_begin(&t.r);
    assert_ok(rolls_back(&t.r, 1, 12, 0)->err);
    assert_int_equal(t.rig->last->rollback.length, 10);
    recorder_end(&t.r);
    table_ended(s);
    assert_lengths(s, 0, 0, 0);
    assert_ok(rig_match(s, tokens, 40));
    assert_int_equal(s->matched, 12);
    assert_ok(rig_run_to(s, tokens, 40));
    assert_ok(rig_commit(s, 40, 0));
    assert_whole(s, 40);
}

/* --- engines that end in pieces --- */

struct interloper {
    struct stand *t;
    void (*act)(struct stand *t);
    bool done;
};

/* Runs `act` once, between two pieces of work that continues by itself. */
static void between(void *ctx, const struct event *event)
{
    struct interloper *i = ctx;

    if (event->kind != EV_TIMER || i->done)
        return;
    i->done = true;
    i->act(i->t);
}

/* One process is gone; the engine's other one goes, and `act` runs between two pieces of the
 * end. */
static void ends_in_pieces(struct interloper *i)
{
    struct stand *t = i->t;

    rig_proc_gone(t->rig, t->e.proc[1]);
    t->rig->on_event_ctx = i;
    t->rig->on_event = between;
    rig_proc_gone(t->rig, t->e.proc[0]);
    assert_true(i->done);
    t->rig->on_event = NULL;
}

static void looked(struct stand *t)
{
    rig_complete(t->rig, RIG_RECORD);
}

/* The turn's process is gone before its connection; what the turn held is returned in pieces. */
TEST(records_looked_at_while_their_engine_ends)
{
    for (uint32_t back = 0; back < 2; back++) {
        struct rig_options o = OPTIONS_WITH(limits.give_back_visits = 1);
        struct stand t = stand_with(o);
        struct rig_session *s = t.s, *other;
        struct interloper i = {.t = &t, .act = looked};
        struct pool_id pool = s->pool;

        assert_ok(rig_match(s, seq1, 30));
        assert_ok(rig_run_to(s, seq1, 30));
        for (uint32_t k = 0; rig_commit(s, 28, 0) == TERN_BUSY; k++)
            assert_true(k < 28); /* each Step takes about one chunk */
        records_turn(&t.r, 10);
        records_turn(&t.r, 30);
        other = rig_session(t.rig, &t.e, pool, 1); /* closed first */
        computes(other, 2, 40);
        recorder_begin(&t.r);
        t.rig->automatic = BY_HAND(RIG_RECORD);
        if (back) {
            struct request prepare = {
                .op = OP_RECORD_PREPARE,
                .record_prepare = {.session = t.r.turn, .kind = RECORD_ROLLBACK, .length = 20}};
            struct request roll = {.op = OP_ROLLBACK, .rollback = {.session = t.r.turn, .step = 9}};
            struct record_section before;

            before = record_ask(&t.r, prepare)->record_prepare.body->before;
            for (uint32_t k = 0; k < 20; k++)
                record_word_put(&t.r, &before, k, seq1[k]);
            assert_null(record_ask(&t.r, roll));
        } else {
            struct request put = {.op = OP_RECORD_PUT, .record_put.session = t.r.turn};

            assert_non_null(record_write(&t.r, 60, 1));
            assert_null(record_ask(&t.r, put));
        }
        ends_in_pieces(&i);
        assert_pages(&t, 0, 0);
        assert_int_equal(rig_view(t.rig).sessions, 0);
        assert_int_equal(rig_view(t.rig).retires_free, rig_defaults().limits.retires);
    }
}

/* The same for a close that was promised at the turn's end and waits for a release record. */
static struct rig_engine another;

static void room_comes(struct stand *t)
{
    rig_step_done(t->rig, another.id, 1, 5);
}

TEST(turn_close_waits_while_its_engine_ends)
{
    for (uint32_t own = 0; own < 2; own++) {
        struct rig_options o = OPTIONS_WITH(limits.give_back_visits = 1);
        struct stand t;
        struct interloper i = {.t = &t, .act = room_comes};
        struct rig_session *other[8], *first;
        uint64_t close;

        o.limits.retires = 6;
        t = stand_with(o);
        another = rig_engine(t.rig, 0, "two", 2);
        assert_ok(rig_map(t.rig, another.conn[0], t.s->pool));
        computes(t.s, 1, 8);
        first = rig_session(t.rig, &t.e, t.s->pool, 1); /* closed first */
        computes(first, 9, 40);
        for (uint32_t k = 0; k < 8; k++) {
            other[k] = rig_session(t.rig, own && k == 0 ? &t.e : &another, t.s->pool, 1);
            computes(other[k], 2 + k % 4, 8);
        }
        recorder_begin(&t.r);
        close = session_close_asked(t.rig, t.e.conn[0], t.s->id, 3);
        for (uint32_t k = 0; k < 8; k++)
            (void)rig_close(other[k], k == 0 ? 7 : 5);
        assert_int_equal(rig_view(t.rig).retires_free, 0);
        assert_ok(turn_end(t.rig, t.e.conn[0], t.r.turn, 3));
        assert_null(rig_reply_to(t.rig, close));
        rig_step_done(t.rig, another.id, 0, 5);
        ends_in_pieces(&i);
        assert_answer(t.rig, close, TERN_OK);
        rig_engine_done(t.rig, &another, 9);
        assert_int_equal(rig_view(t.rig).retires_free, 6);
    }
}

/* --- rollbacks of sessions in every state --- */

enum { SESSIONS = 4, LIST_MAX = 120 };

/* Sessions of a pool with groups of every family, which run random operations. */
struct crowd {
    struct rig *rig;
    struct rig_engine e;
    struct rig_session *s[SESSIONS];
    struct recorder r[SESSIONS];
    uint64_t recover[SESSIONS];
    struct prng prng;
    uint64_t step;
    uint32_t ended, went_on, put;
};

static uint32_t any(struct crowd *w, uint32_t n)
{
    return (uint32_t)prng_below(&w->prng, n);
}

static void opens(struct crowd *w, uint32_t i, struct pool_id pool)
{
    w->s[i] = rig_session(w->rig, &w->e, pool, 1);
    w->recover[i] = 0;
    w->r[i] = (struct recorder){
        .rig = w->rig, .conn = w->e.conn[0], .session = w->s[i]->id, .seed = 1 + i % 2};
}

/* Runs a random operation by the session's present handle. */
static void does_something(struct crowd *w, uint32_t i)
{
    struct rig_session *s = w->s[i];
    const uint32_t *tokens = rig_tokens(w->r[i].seed, LIST_MAX);
    uint32_t n = any(w, LIST_MAX) + 1;

    switch (any(w, 10)) {
    case 0:
    case 1: (void)rig_match(s, tokens, n); break;
    case 2:
    case 3: (void)(s->len.written < n && s->ntokens <= n && rig_run_to(s, tokens, n)); break;
    case 4: (void)rig_commit(s, s->len.written, w->step); break;
    case 5: (void)rig_finish(s, any(w, 2) ? s->len.written : s->len.committed, w->step); break;
    case 6: (void)rig_slide(s, 0, w->step); break;
    case 7: (void)rig_retract(s, any(w, 2) ? RETRACT_DROP : RETRACT_HOST, w->step); break;
    case 8: w->recover[i] = rig_recover(s); break;
    case 9: (void)(any(w, 3) ? rig_rewind(s, s->len.committed, w->step) : rig_abort(s, w->step));
    }
    if (w->recover[i] && rig_recovered(s, w->recover[i]) != TERN_BUSY)
        w->recover[i] = 0;
}

/* From any state the session continues with this prompt, and every byte that it finds is right. */
static void goes_on(struct crowd *w, uint32_t i)
{
    struct rig_session *s = w->s[i];
    uint32_t n = 20 + any(w, 20);
    const uint32_t *tokens = rig_tokens(w->r[i].seed, LIST_MAX);

    if (s->len.allocated > 0 || rig_match(s, tokens, n) != TERN_OK)
        return;
    assert_int_equal(rig_wrong(s, s->len.committed), 0);
    if (rig_run_to(s, tokens, n) != TERN_OK || rig_commit(s, n, w->step) != TERN_OK)
        return;
    assert_int_equal(rig_wrong(s, n), 0);
    w->went_on++;
}

static void rolls(struct crowd *w, uint32_t i)
{
    struct recorder *r = &w->r[i];
    uint32_t n = any(w, LIST_MAX), seed = any(w, 8) ? r->seed : 3;
    struct request prepare = {
        .op = OP_RECORD_PREPARE,
        .record_prepare = {.session = r->turn, .kind = RECORD_ROLLBACK, .length = n}};
    struct request roll = {.op = OP_ROLLBACK, .rollback = {.session = r->turn, .step = w->step}};
    const struct reply *reply = record_ask(r, prepare);
    struct record_section before;
    uint32_t committed = w->s[i]->len.committed;

    if (reply->err != TERN_OK)
        return;
    before = reply->record_prepare.body->before;
    for (uint32_t k = 0; k < n; k++)
        record_word_put(r, &before, k, rig_tokens(seed, n)[k]);
    (void)record_ask(r, roll);
    if (!(w->rig->automatic & RIG_RECORD)) { /* another session runs an operation meanwhile */
        assert_err(TERN_BUSY, rig_slide(w->s[i], 0, w->step));
        does_something(w, (i + 1) % SESSIONS);
        complete_all(w->rig, RIG_RECORD);
    }
    if (w->s[i]->len.committed == committed && w->recover[i])
        w->recover[i] = rig_recovered(w->s[i], w->recover[i]) == TERN_BUSY ? w->recover[i] : 0;
    table_ended(w->s[i]);
    w->ended += committed > 0 && w->s[i]->len.committed == 0;
}

static void appends(struct crowd *w, uint32_t i)
{
    struct recorder *r = &w->r[i];
    struct session_view v;

    assert_true(core_session_view(w->rig->core, r->session.slot, &v));
    if (v.recorded + 30 < LIST_MAX && record_write(r, v.recorded + 1 + any(w, 20), any(w, 40000)))
        w->put += record_put_now(r)->err == TERN_OK;
}

static void turn_of(struct crowd *w, uint32_t i)
{
    struct session_id own = w->s[i]->id;

    if (turn_begin(w->rig, w->r[i].conn, own, &w->r[i].turn) != TERN_OK)
        return;
    w->s[i]->id = w->r[i].turn;
    w->rig->automatic = RIG_ALL;
    if (any(w, 2))
        appends(w, i);
    w->rig->automatic = any(w, 2) ? RIG_ALL : BY_HAND(RIG_RECORD);
    rolls(w, i);
    w->rig->automatic = RIG_ALL;
    goes_on(w, i);
    if (any(w, 8))
        (void)turn_end(w->rig, w->r[i].conn, w->r[i].turn, w->step);
    else
        rig_advance(w->rig, 1000); /* the turn is lost */
    w->s[i]->id = own;
    rig_settle(w->rig);
}

TEST(records_rolled_back_in_every_state)
{
    const struct group_layout groups[] = {rig_group(4, 512), rig_window(4, 8, 512),
                                          rig_recurrent(4, 512)};
    uint32_t ended = 0, went_on = 0, put = 0;

    for (uint32_t seed = 1; seed <= 12; seed++) {
        struct rig_options o = OPTIONS_WITH(limits.turn_deadline_ns = 1000);
        struct crowd w = {0};
        struct pool_id pool;

        prng_init(&w.prng, seed);
        o.limits.give_back_visits = seed % 3 == 0 ? 1 : 0;
        w.rig = rig_create(&o);
        w.rig->host_bytes = seed % 2 ? 1u << 18 : 0;
        w.e = rig_engine(w.rig, 0, "e", 1);
        assert_ok(rig_pool_open(w.rig, w.e.conn[0], groups, 1 + seed % 4 % 3, 1u << 17, &pool));
        for (uint32_t i = 0; i < SESSIONS; i++)
            opens(&w, i, pool);
        for (uint32_t n = 0; n < 400; n++) {
            uint32_t i = any(&w, SESSIONS);

            w.step += any(&w, 4) == 0;
            if (any(&w, 3) == 0)
                rig_engine_done(w.rig, &w.e, w.step);
            if (any(&w, 4) == 0)
                turn_of(&w, i);
            else
                does_something(&w, i);
            if (any(&w, 60) == 0 && rig_close(w.s[i], w.step) == TERN_OK)
                opens(&w, i, pool);
        }
        ended += w.ended;
        went_on += w.went_on;
        put += w.put;
        rig_engine_kill(w.rig, &w.e, 0);
        assert_int_equal(rig_view(w.rig).sessions, 0);
        rig_destroy(w.rig);
    }
    printf("tables ended %u, went on %u, records %u\n", ended, went_on, put);
    assert_true(ended > 50 && went_on > 50 && put > 100);
}

/* A rollback ends a request that is under way, and that request is answered. */
static void ends_what_waits(struct rig_session *s, uint64_t request)
{
    struct recorder r = {.rig = s->rig, .conn = s->conn, .session = s->id, .seed = 1};
    struct session_id own = s->id;

    recorder_begin(&r);
    s->id = r.turn;
    assert_ok(rolls_back(&r, 1, 6, 3)->err);
    s->rig->automatic = RIG_ALL;
    rig_settle(s->rig);
    if (request) {
        assert_non_null(rig_reply_to(s->rig, request));
        assert_err(TERN_GONE, rig_reply_to(s->rig, request)->err);
    }
    table_ended(s);
    assert_lengths(s, 0, 0, 0);
    recorder_end(&r);
    s->id = own;
    assert_ok(rig_match(s, seq1, 30));
    assert_ok(rig_run_to(s, seq1, 30));
    assert_ok(rig_commit(s, 28, 4));
    assert_int_equal(rig_wrong(s, 28), 0);
}

TEST(records_rolled_back_while_the_session_fetches)
{
    struct pair p = pair_limited(512);

    source_has(&p, 1, 40);
    dest_has(&p, 1, 8);
    p.d = asking(&p, 1, 40);
    assert_lengths(p.d, 8, 8, 8);
    p.dest->automatic = BY_HAND(RIG_PULL);
    ends_what_waits(p.d, rig_fetch(p.d, 0, 0));
}

TEST(records_rolled_back_while_the_session_comes_back)
{
    struct rig_options o = rig_defaults();
    struct bench b = host_bench_with(&o, 4, 64, 16);

    assert_ok(rig_match(b.s, seq1, 30));
    run_and_commit(b.s, seq1, 30, 28, 0);
    assert_ok(rig_retract(b.s, RETRACT_HOST, 0));
    rig_evict(b.rig, b.admin, b.pool, 0);
    b.rig->automatic = BY_HAND(RIG_COPY);
    ends_what_waits(b.s, rig_recover(b.s));
}

TEST(records_rolled_back_between_pieces_of_a_match)
{
    struct bench b = bench_start(4, 64);
    struct request piece = {.op = OP_MATCH};

    rig_put(b.rig, &b.e, b.pool, 1, 28);
    piece.match.session = b.s->id;
    piece.match.more = true;
    piece.match.tokens = (struct req_tokens){.v = seq1, .n = 18};
    assert_ok(rig_request(b.rig, b.s->conn, &piece)->err);
    b.s->len.committed = 16;
    ends_what_waits(b.s, 0);
}
