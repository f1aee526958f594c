/* Tickets: Y1 to Y3 and Y6, between two cores. */
#include <stdio.h>

#include "base/prng.h"
#include "core/transfer/handed.h"
#include "unit/rig/rig_ticket.h"

/* d has the whole list and all pages of the ticket. */
#define assert_came(p, d)                                                                          \
    do {                                                                                           \
        assert_lengths(d, FULL, LEN, LEN);                                                         \
        assert_int_equal(rig_wrong((d), FULL), 0);                                                 \
        assert_true(last_page_is((d), 0, 0x5a));                                                   \
    } while (0)

/* Scenario Y-a: the hand-over closes the session; then pressure evicts everything else. */
TEST(y_a_ticket_brings_the_exact_length_the_tail_and_the_blob_after_close_and_pressure)
{
    struct pair p = pair_limited(1 << 20);
    struct rig_session *s = computed(&p), *hog;
    struct ticket t = hand_over(s, 0, 1000);
    struct rig_session *d = asking(&p, 1, LEN);

    assert_int_equal(source_pages(&p).ticket, 1);
    assert_int_equal(source_pages(&p).session, 0);
    assert_err(TERN_GONE, rig_close(s, 0)); /* the session is closed */
    hog = session_with(p.source, &p.se, p.sp, 2, 4 * (128 - 11));
    assert_ok(rig_run_to(hog, rig_tokens(2, 4 * (128 - 11)), 4 * (128 - 11)));
    assert_err(TERN_POOL_EXHAUSTED, rig_extend(hog, 4 * (128 - 10), 0, NULL, 0));
    assert_ok(ticket_fetched(d, t));
    assert_came(&p, d);
    assert_true(blob_came(d, 1000));
    assert_int_equal(source_pages(&p).ticket, 0); /* it was taken */
    assert_err(TERN_GONE, ticket_fetched(asking(&p, 1, LEN), t));
    assert_ok(rig_close(hog, 0));
    assert_ok(rig_close(d, 0));
}

TEST(y1_pages_behind_the_written_length_and_tokens_without_pages_stay_behind)
{
    struct pair p = pair_limited(1 << 20);
    struct rig_session *s = session_with(p.source, &p.se, p.sp, 1, LEN + 6), *d;
    struct ticket t;

    run_and_commit(s, rig_tokens(1, LEN + 6), LEN, FULL, 0);
    write_last_page(s, 0, 0x5a);
    assert_ok(rig_extend(s, LEN + 30, 0, NULL, 0));
    t = hand_over(s, 3, 0);
    assert_int_equal(source_pages(&p).retiring, 7);
    rig_engine_done(p.source, &p.se, 3);
    assert_int_equal(source_pages(&p).retiring, 0);
    d = asking(&p, 1, LEN);
    assert_ok(ticket_fetched(d, t));
    assert_came(&p, d);
    assert_true(blob_came(d, 0));
}

/* E2, E3: a page is read only after the step that writes it has passed. */
TEST(y1_ticket_waits_for_the_step_that_writes_its_pages)
{
    struct pair p = pair_limited(1 << 20);
    struct rig_session *s = session_with(p.source, &p.se, p.sp, 1, LEN), *d;
    struct ticket t;

    run_and_commit(s, rig_tokens(1, LEN), LEN, FULL, 9);
    t = hand_over(s, 9, 0);
    d = asking(&p, 1, LEN);
    ticket_fetch(d, t);
    assert_false(ended(d));
    write_last_page(s, 0, 0x5a); /* the step writes it only now */
    rig_engine_done(p.source, &p.se, 9);
    rig_advance(p.dest, 100 * NS_PER_MS);
    assert_ok(rig_fetched(d, d->fetch));
    assert_came(&p, d);
}

/* A fetch that waits too long for the step is BUSY, and the ticket stands. */
TEST(y1_ticket_whose_step_does_not_pass_is_busy)
{
    struct pair p = pair_limited(1 << 20);
    struct rig_session *s = computed(&p), *d = asking(&p, 1, LEN);
    struct ticket t = hand_over(s, 9, 0);

    ticket_fetch(d, t);
    for (uint32_t i = 0; i < 10 && !ended(d); i++)
        rig_advance(p.dest, PULL_BUSY_MS_MAX / 4 * NS_PER_MS);
    assert_err(TERN_BUSY, rig_fetched(d, d->fetch));
    assert_string_equal(rig_reply_to(p.dest, d->fetch)->text, ticket_busy_text(TICKET_BUSY_STEP));
    rig_engine_done(p.source, &p.se, 9);
    assert_ok(ticket_fetched(d, t));
    assert_came(&p, d);
}

/* A cause that the source does not name, or that is unknown here, has a general text. */
TEST(y1_ticket_that_is_busy_is_told_by_its_cause)
{
    assert_string_equal(ticket_busy_text(TICKET_BUSY_COUNT), ticket_busy_text(TICKET_BUSY_UNSAID));
    for (uint32_t i = 0; i < TICKET_BUSY_COUNT; i++)
        for (uint32_t other = 0; other < i; other++)
            assert_string_not_equal(ticket_busy_text(i), ticket_busy_text(other));
}

TEST(y1_ticket_goes_with_an_engine_that_dies_before_its_step_and_outlives_it_behind)
{
    for (uint32_t passed = 0; passed < 2; passed++) {
        struct pair p = pair_limited(1 << 20);
        struct rig_engine keeper = rig_engine(p.source, 0, "keeper", 1);
        struct rig_session *s = computed(&p), *d = asking(&p, 1, LEN);
        struct ticket t;

        assert_ok(rig_map(p.source, keeper.conn[0], p.sp));
        t = hand_over(s, 9, 16);
        if (passed)
            rig_engine_done(p.source, &p.se, 9);
        rig_engine_kill(p.source, &p.se, 0);
        assert_int_equal(source_pages(&p).ticket, passed);
        assert_err(passed ? TERN_OK : TERN_GONE, ticket_fetched(d, t));
        if (passed) {
            assert_came(&p, d);
            assert_true(blob_came(d, 16));
        }
        assert_ok(rig_close(d, 0));
        assert_int_equal(source_pages(&p).ticket, 0);
        rig_destroy_all();
    }
}

/* Y2: a fetch that is cancelled or breaks off leaves the ticket. */
TEST(y2_fetch_that_is_cancelled_or_breaks_off_leaves_the_ticket)
{
    struct pair p = pair_limited(512);
    struct rig_session *s = computed(&p), *d = asking(&p, 1, LEN);
    struct ticket t = hand_over(s, 0, 8);

    p.dest->automatic = BY_HAND(RIG_PULL);
    ticket_fetch(d, t);
    for (uint32_t i = 0; i < 3; i++)
        rig_complete(p.dest, RIG_PULL);
    assert_ok(rig_fetch_cancel(d));
    assert_err(TERN_GONE, rig_fetched(d, d->fetch));
    rig_runs_free(p.dest);
    assert_int_equal(source_pages(&p).ticket, 1);
    assert_ok(rig_close(d, 0));
    d = asking(&p, 1, LEN);
    p.dest->automatic = BY_HAND(RIG_PULL);
    ticket_fetch(d, t);
    rig_complete(p.dest, RIG_PULL);
    rig_link_down(p.dest, 0);
    assert_err(TERN_PEER_LOST, rig_fetched(d, d->fetch));
    rig_runs_free(p.dest);
    rig_link_up(p.dest, 0, p.source, p.source->options.limits.peers);
    assert_int_equal(source_pages(&p).ticket, 1);
    assert_ok(ticket_fetched(d, t));
    assert_came(&p, d);
    assert_true(blob_came(d, 8));
    assert_ok(rig_close(d, 0));
    assert_nothing_left(&p, FULL / 4, FULL / 4);
}

TEST(y2_one_fetch_takes_it_and_the_other_is_told_to_come_back)
{
    struct pair p = pair_limited(512);
    struct rig_session *s = computed(&p), *d[2];
    struct ticket t = hand_over(s, 0, 0);

    for (uint32_t i = 0; i < 2; i++)
        d[i] = asking(&p, 1, LEN);
    p.dest->automatic = BY_HAND(RIG_PULL);
    ticket_fetch(d[0], t);
    ticket_fetch(d[1], t);
    rig_runs_free(p.dest);
    rig_advance(p.dest, 100 * NS_PER_MS);
    assert_ok(rig_fetched(d[0], d[0]->fetch));
    assert_came(&p, d[0]);
    assert_err(TERN_GONE, rig_fetched(d[1], d[1]->fetch));
}

TEST(y3_deadline_unpins_and_who_comes_later_is_told_gone)
{
    struct pair p = pair_limited(1 << 20);
    struct rig_session *s = computed(&p), *d = asking(&p, 1, LEN);
    const struct reply *r = hand_over_full(s, (struct req_handoff){.deadline_ms = 100});
    struct ticket t = r->handoff.ticket;

    assert_int_equal(r->handoff.deadline_ms, 100);
    rig_advance(p.source, 99 * NS_PER_MS);
    assert_int_equal(source_pages(&p).ticket, 1);
    assert_ok(ticket_ask(p.source, p.se.conn[0], OP_TICKET_RENEW, t, 100));
    rig_advance(p.source, 99 * NS_PER_MS);
    assert_int_equal(source_pages(&p).ticket, 1);
    rig_advance(p.source, 1 * NS_PER_MS);
    assert_int_equal(source_pages(&p).ticket, 0);
    assert_err(TERN_GONE, ticket_ask(p.source, p.se.conn[0], OP_TICKET_RENEW, t, 0));
    rig_advance(p.dest, 200 * NS_PER_MS);
    assert_err(TERN_GONE, ticket_fetched(d, t));
    assert_lengths(d, 0, 0, 0);
    assert_nothing_left(&p, FULL / 4, 0);
}

/* The timer of a busy daemon is late: a fetch in the meantime is answered GONE all the same. */
TEST(y3_deadline_holds_before_its_timer_comes)
{
    struct pair p = pair_limited(1 << 20);
    struct rig_session *s = computed(&p), *d = asking(&p, 1, LEN);
    const struct reply *r = hand_over_full(s, (struct req_handoff){.deadline_ms = 100});
    struct ticket t = r->handoff.ticket;

    p.source->now_ns += 100 * NS_PER_MS;
    assert_err(TERN_GONE, ticket_fetched(d, t));
    assert_lengths(d, 0, 0, 0);
    assert_nothing_left(&p, FULL / 4, 0);
}

/* Pages that a transfer reads stay until it has ended, whatever happens to the ticket. */
TEST(y3_deadline_and_drop_wait_for_the_transfer_that_reads)
{
    for (uint32_t drop = 0; drop < 2; drop++) {
        struct pair p = pair_limited(512);
        struct rig_session *s = computed(&p), *d = asking(&p, 1, LEN);
        struct ticket t = hand_over(s, 0, 0);

        p.dest->automatic = BY_HAND(RIG_PULL);
        ticket_fetch(d, t);
        if (drop)
            assert_ok(ticket_ask(p.source, p.se.conn[0], OP_TICKET_DROP, t, 0));
        else
            assert_ok(ticket_ask(p.source, p.se.conn[0], OP_TICKET_RENEW, t, 1));
        rig_advance(p.source, 2 * NS_PER_MS);
        assert_int_equal(source_pages(&p).ticket, 1);
        assert_err(TERN_GONE, ticket_ask(p.source, p.se.conn[0], OP_TICKET_DROP, t, 0));
        rig_runs_free(p.dest);
        assert_ok(rig_fetched(d, d->fetch));
        assert_came(&p, d);
        assert_int_equal(source_pages(&p).ticket, 0);
        rig_destroy_all();
    }
}

TEST(y1_ticket_that_is_forged_or_foreign_is_denied)
{
    struct pair p = pair_limited(1 << 20);
    struct rig_session *s = computed(&p), *d = asking(&p, 1, LEN),
                       *other = another_tenant_asking(&p, 1, FULL);
    struct ticket t = hand_over(s, 0, 0), forged = t;

    assert_ok(rig_match(other, rig_tokens(1, LEN), LEN));
    forged.key[1] ^= 1;
    assert_err(TERN_DENIED, ticket_fetched(d, forged));
    assert_err(TERN_DENIED, ticket_ask(p.source, p.se.conn[0], OP_TICKET_DROP, forged, 0));
    assert_err(TERN_DENIED, ticket_fetched(other, t));
    forged = t;
    forged.id.gen++;
    assert_err(TERN_GONE, ticket_fetched(d, forged));
    forged = t;
    forged.incarnation++; /* of a daemon that is not connected */
    assert_err(TERN_PEER_LOST, ticket_fetched(d, forged));
    forged = t;
    forged.id.slot = 1u << 20;
    assert_err(TERN_GONE, ticket_fetched(d, forged));
    assert_ok(ticket_fetched(d, t));
    assert_came(&p, d);
}

/* Another peer is not connected, so the daemon that made an unknown ticket may connect later. */
TEST(x6_ticket_of_a_former_life_of_a_peer_is_gone)
{
    struct pair p = pair_limited(1 << 20);
    struct rig_session *s = computed(&p), *d = asking(&p, 1, LEN);
    struct ticket t = hand_over(s, 0, 0);
    struct event again = {.kind = EV_LINK_UP, .link = {.incarnation = t.incarnation + 7}};

    rig_event(p.dest, &(struct event){.kind = EV_LINK_DOWN});
    assert_err(TERN_PEER_LOST, ticket_fetched(d, t)); /* the same daemon may be back */
    rig_event(p.dest, &again);
    assert_err(TERN_GONE, ticket_fetched(d, t));
    t.incarnation++;
    assert_err(TERN_PEER_LOST, ticket_fetched(d, t)); /* of another daemon */
}

TEST(y2_tokens_have_to_be_those_that_were_handed_over)
{
    struct pair p = pair_limited(1 << 20);
    struct rig_session *s = computed(&p);
    struct ticket t = hand_over(s, 0, 0);
    struct rig_session *longer = asking(&p, 1, LEN + 1), *other = asking(&p, 2, LEN);
    uint32_t tokens[LEN];

    assert_err(TERN_INVALID, ticket_fetched(longer, t));
    assert_int_equal(rig_reply_to(p.dest, longer->fetch)->fetch.handed, LEN);
    assert_err(TERN_INVALID, ticket_fetched(other, t));
    for (uint32_t at = FULL - 1; at < LEN; at += 2) { /* in a whole chunk, and in the tail */
        struct rig_session *d = rig_session(p.dest, &p.de, p.dp, 1);

        memcpy(tokens, rig_tokens(1, LEN), sizeof tokens);
        tokens[at] ^= 1;
        assert_ok(rig_match(d, tokens, LEN));
        assert_err(TERN_INVALID, ticket_fetched(d, t));
        assert_non_null(strstr(rig_reply_to(p.dest, d->fetch)->text, "at position #"));
        assert_int_equal(rig_reply_to(p.dest, d->fetch)->number[0], at);
        assert_lengths(d, 0, 0, 0);
    }
    assert_int_equal(source_pages(&p).ticket, 1);
    p.d = asking(&p, 1, LEN);
    assert_ok(ticket_fetched(p.d, t));
    assert_came(&p, p.d);
}

/* An engine that fetches again gets GONE whatever its tokens, from a peer and its own daemon. */
TEST(y2_ticket_that_is_used_up_is_gone_whatever_tokens_are_shown)
{
    struct pair p = pair_limited(1 << 20);
    struct ticket t = hand_over(computed(&p), 0, 0);
    struct rig_engine e = rig_engine(p.source, 0, "decode", 1);

    p.d = asking(&p, 1, LEN);
    assert_ok(ticket_fetched(p.d, t));
    assert_err(TERN_GONE, ticket_fetched(asking(&p, 1, LEN + 1), t));
    assert_err(TERN_GONE, ticket_fetched(asking(&p, 1, LEN - 1), t));
    assert_err(TERN_GONE, ticket_fetched(asking(&p, 2, LEN), t));
    assert_ok(rig_map(p.source, e.conn[0], p.sp));
    assert_err(TERN_GONE, ticket_fetched(session_with(p.source, &e, p.sp, 1, LEN + 1), t));
}

/* X5: pages that the destination has do not move again. */
TEST(y2_only_what_is_missing_moves)
{
    struct pair p = pair_limited(1 << 20);
    struct rig_session *s = computed(&p);
    struct ticket t = hand_over(s, 0, 0);

    dest_has(&p, 1, 32);
    p.d = asking(&p, 1, LEN);
    assert_lengths(p.d, 32, 32, 32);
    assert_ok(ticket_fetched(p.d, t));
    assert_came(&p, p.d);
    assert_int_equal(p.dest->pulled_pages, 3);
}

/* All but the tail is here: only the tail moves. */
TEST(y2_a_tail_alone_moves_and_takes_the_place_of_what_was_computed)
{
    struct pair p = pair_limited(1 << 20);
    struct rig_session *s = computed(&p);
    struct ticket t = hand_over(s, 0, 0);

    dest_has(&p, 1, FULL);
    p.d = asking(&p, 1, LEN);
    assert_ok(rig_run_to(p.d, rig_tokens(1, LEN), LEN - 1));
    ticket_fetch_at(p.d, t, 4);
    assert_ok(rig_fetched(p.d, p.d->fetch));
    assert_came(&p, p.d);
    assert_int_equal(p.dest->pulled_pages, 1);
    assert_int_equal(rig_group_view(p.dest, p.dp, 0).retiring, 1);
    rig_engine_done(p.dest, &p.de, 4);
}

/* No page moves, but the blob does, and the ticket is used up. */
TEST(y2_session_that_has_all_of_it_gets_the_blob)
{
    struct pair p = pair_limited(1 << 20);
    struct rig_session *s = session_with(p.source, &p.se, p.sp, 1, FULL);
    struct ticket t;

    run_and_commit(s, rig_tokens(1, FULL), FULL, FULL, 0);
    t = hand_over(s, 9, 5);
    dest_has(&p, 1, FULL);
    p.d = asking(&p, 1, FULL);
    assert_lengths(p.d, FULL, FULL, FULL);
    ticket_fetch(p.d, t);
    assert_false(ended(p.d)); /* the blob needs the step, too */
    rig_engine_done(p.source, &p.se, 9);
    rig_advance(p.dest, 100 * NS_PER_MS);
    assert_ok(rig_fetched(p.d, p.d->fetch));
    assert_lengths(p.d, FULL, FULL, FULL);
    assert_int_equal(rig_wrong(p.d, FULL), 0);
    assert_true(blob_came(p.d, 5));
    assert_int_equal(p.dest->pulled_pages, 0);
    assert_int_equal(source_pages(&p).ticket, 0);
    assert_err(TERN_GONE, ticket_fetched(asking(&p, 1, FULL), t));
}

/* The session keeps the pages that it has computed itself, committed or not. */
TEST(y2_session_that_has_computed_all_of_it_keeps_its_pages)
{
    for (uint32_t committed = 0; committed <= FULL; committed += FULL) {
        struct pair p = pair_limited(1 << 20);
        struct rig_session *s = computed(&p);
        struct ticket t = hand_over(s, 0, 5);
        struct page_ref first, last;

        p.d = asking(&p, 1, LEN);
        run_and_commit(p.d, rig_tokens(1, LEN), LEN, committed, 0);
        write_last_page(p.d, 0, 0x33);
        first = p.d->table[0][0];
        last = p.d->table[0][FULL / 4];
        assert_ok(ticket_fetched(p.d, t));
        assert_lengths(p.d, committed, LEN, LEN);
        assert_int_equal(p.d->table[0][0].index, first.index);
        assert_int_equal(p.d->table[0][FULL / 4].index, last.index);
        assert_true(last_page_is(p.d, 0, 0x33));
        assert_true(blob_came(p.d, 5));
        assert_int_equal(p.dest->pulled_pages, 0);
        assert_err(TERN_GONE, ticket_fetched(asking(&p, 1, LEN), t));
        rig_destroy_all();
    }
}

TEST(y1_session_without_whole_chunks_and_one_without_a_tail_are_handed_over)
{
    for (uint32_t n = 3; n <= 8; n += 5) {
        struct pair p = pair_limited(1 << 20);
        struct rig_session *s = session_with(p.source, &p.se, p.sp, 1, n);
        struct ticket t;

        run_and_commit(s, rig_tokens(1, n), n, n / 4 * 4, 0);
        write_last_page(s, 0, 0x77);
        t = hand_over(s, 0, 4);
        p.d = asking(&p, 1, n);
        assert_ok(ticket_fetched(p.d, t));
        assert_lengths(p.d, n / 4 * 4, n, n);
        assert_true(last_page_is(p.d, 0, 0x77));
        assert_true(blob_came(p.d, 4));
        rig_destroy_all();
    }
}

TEST(y1_what_cannot_be_handed_over_is_refused_and_nothing_changes)
{
    struct pair p = pair_limited(1 << 20);
    struct rig_session *s = session_with(p.source, &p.se, p.sp, 1, LEN);
    uint32_t word = 0;

    assert_refused(p.source, TERN_INVALID, hand_over_full(s, (struct req_handoff){0})->err);
    assert_ok(rig_run_to(s, rig_tokens(1, LEN), LEN));
    assert_refused(p.source, TERN_INVALID, hand_over_full(s, (struct req_handoff){0})->err);
    assert_int_equal(p.source->last->number[0], LEN); /* written, committed */
    assert_int_equal(p.source->last->number[1], 0);
    assert_ok(rig_commit(s, FULL, 0));
    assert_refused(p.source, TERN_INVALID,
                   hand_over_full(s, (struct req_handoff){.blob_bytes = TICKET_BLOB_BYTES + 1,
                                                          .blob = {.v = &word, .n = 1}})
                       ->err);
    assert_ok(rig_reset(p.source, p.se.conn[0], 1, &word));
    assert_refused(p.source, TERN_GONE, hand_over_full(s, (struct req_handoff){0})->err);
    assert_lengths(s, FULL, LEN, LEN);
    assert_ok(rig_close(s, 0));
}

TEST(y3_reset_ends_what_a_ticket_is_good_for)
{
    struct pair p = pair_limited(1 << 20);
    struct rig_session *s = computed(&p), *d = asking(&p, 1, LEN);
    struct ticket t = hand_over(s, 0, 0);
    uint32_t n;

    rig_link_down(p.dest, 0);
    assert_ok(rig_reset(p.source, p.se.conn[0], 1, &n));
    rig_link_up(p.dest, 0, p.source, p.source->options.limits.peers);
    assert_err(TERN_GONE, ticket_fetched(d, t));
}

/* The blob takes room at both ends. */
TEST(y2_largest_blob_comes_whole)
{
    struct pair p = PAIR_LIMITED(limits.token_blocks = 4096, 4, 128, 64);
    struct rig_session *s = computed(&p), *d = asking(&p, 1, LEN);
    struct ticket t = hand_over(s, 0, TICKET_WORDS);

    assert_ok(ticket_fetched(d, t));
    assert_came(&p, d);
    assert_true(blob_came(d, TICKET_WORDS));
}

/* X6: the ticket is from before a restart. */
TEST(x6_ticket_of_an_earlier_incarnation_is_gone)
{
    struct pair p = PAIR_LIMITED(limits.peers = 1, 4, 128, 64);
    struct rig_session *s = computed(&p);
    struct ticket t = hand_over(s, 0, 0);

    t.incarnation++;
    assert_err(TERN_GONE, ticket_fetched(asking(&p, 1, LEN), t));
    assert_err(TERN_GONE, ticket_ask(p.source, p.se.conn[0], OP_TICKET_DROP, t, 0));
}

/* ---- with STATE ---- */

static void state_comes(struct state_shape shape, uint32_t n, uint32_t there)
{
    struct pair p = state_pair(shape);
    struct rig_session *s = state_computed(&p, shape.align, n), *d;
    struct ticket t = hand_over(s, 0, 3);
    uint32_t next = n + 2 * shape.align + 1;

    if (there > 0)
        assert_ok(rig_close(rig_committed(p.dest, &p.de, p.dp, 1, there), 0));
    d = rig_session(p.dest, &p.de, p.dp, 1);
    assert_ok(rig_match(d, rig_tokens(1, n), n));
    assert_int_equal(d->matched, there);
    assert_ok(ticket_fetched(d, t));
    assert_lengths(d, n / shape.align * shape.align, n, n);
    assert_int_equal(rig_wrong(d, n), 0);
    assert_true(there < n || p.dest->pulled_pages == 0); /* the session has the STATE, too */
    assert_true(blob_came(d, 3));
    assert_int_equal(rig_group_view(p.source, p.sp, 2).ticket, 0);
    /* The session runs on from there, and commits. */
    assert_ok(rig_extend(d, next, 0, rig_tokens(1, next) + n, next - n));
    rig_write(d, n, next);
    assert_ok(rig_extend(d, next, next, NULL, 0));
    assert_ok(rig_commit(d, next / shape.align * shape.align, 0));
    assert_int_equal(rig_wrong(d, next), 0);
    assert_ok(rig_close(d, 0));
    rig_destroy_all();
}

TEST(y1_state_at_the_exact_length_comes_with_every_window_and_tail)
{
    static const struct state_shape shapes[] = {{8, 4, 4},  {8, 4, 8},  {8, 4, 12}, {8, 8, 16},
                                                {8, 2, 20}, {16, 4, 8}, {16, 4, 40}};

    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (uint32_t n = 1; n <= 5 * shapes[i].align; n++)
            for (uint32_t there = 0; there <= n; there += 2 * shapes[i].align)
                state_comes(shapes[i], n, there);
}

/* The session has computed all of it, and its STATE is its own: it keeps that, and does not ask for
 * STATE of lengths that it could not go back to. */
TEST(y2_session_that_has_computed_its_state_gets_the_blob)
{
    for (uint32_t n = 37; n <= 40; n += 3) {
        struct pair p = state_pair((struct state_shape){8, 4, 12});
        struct ticket t = hand_over(state_computed(&p, 8, n), 0, 5);
        const uint32_t *tokens = rig_tokens(1, n);

        p.d = asking(&p, 1, n);
        assert_ok(rig_run_to(p.d, tokens, 20));
        assert_ok(rig_commit(p.d, 16, 0));
        assert_err(TERN_INVALID, ticket_fetched(p.d, t)); /* it would have to keep a part */
        assert_ok(rig_run_to(p.d, tokens, n));
        assert_ok(ticket_fetched(p.d, t));
        assert_lengths(p.d, 16, n, n);
        assert_int_equal(rig_wrong(p.d, n), 0);
        assert_true(blob_came(p.d, 5));
        assert_int_equal(p.dest->pulled_pages, 0);
        assert_err(TERN_GONE, ticket_fetched(asking(&p, 1, n), t));
        assert_ok(rig_close(p.d, 0));
        rig_destroy_all();
    }
}

/* All tokens and their HISTORY are here, but no STATE at their end: only that moves. */
TEST(y2_state_alone_moves_where_it_is_what_is_missing)
{
    struct state_shape shape = {8, 4, 12};
    struct pair p = state_pair(shape);
    struct rig_session *s = state_computed(&p, 8, 40);
    struct ticket t = hand_over(s, 0, 3);

    rig_put(p.dest, &p.de, p.dp, 1, 48);
    state_drop(p.dest->core, node_of(p.dest, p.dp, rig_tokens(1, 48), 40));
    p.d = asking(&p, 1, 40);
    assert_true(p.d->len.written < 40);
    assert_ok(ticket_fetched(p.d, t));
    assert_lengths(p.d, 40, 40, 40);
    assert_int_equal(rig_wrong(p.d, 40), 0);
    assert_true(blob_came(p.d, 3));
    assert_true(p.dest->pulled_pages > 0);
    assert_true(p.dest->pulled_pages <= 8 + 1); /* two chunks of the window, and the last page */
    assert_ok(rig_close(p.d, 0));
}

/* T5, S1: only the STATE that its length needs came, so the session cannot go back to a length that
 * needs more: neither to its committed length nor to those between. */
TEST(y2_session_goes_back_no_further_than_the_state_that_came)
{
    struct group_layout groups[2] = {rig_group(8, 512), rig_window(4, 8, 512)};
    struct pair p = pair_limited(1 << 20);
    struct rig_session *d;
    struct ticket t;

    assert_ok(rig_pool_open(p.source, p.se.conn[0], groups, 2, 1u << 19, &p.sp));
    assert_ok(rig_pool_open(p.dest, p.de.conn[0], groups, 2, 1u << 19, &p.dp));
    t = hand_over(state_computed(&p, 8, 46), 0, 0);
    d = asking(&p, 1, 46);
    assert_ok(ticket_fetched(d, t));
    assert_lengths(d, 40, 46, 46);
    assert_err(TERN_INVALID, rig_retract(d, RETRACT_DROP, 0));
    assert_err(TERN_INVALID, rig_rewind(d, 41, 0));
    assert_lengths(d, 40, 46, 46);
    assert_ok(rig_rewind(d, 44, 0));
    assert_int_equal(rig_wrong(d, 44), 0);
    assert_ok(rig_close(d, 0));
}

/* T14: the session is retracted with its pages and recovered with all of them: the window of its
 * end, of which the path has no more than came. */
TEST(y2_session_comes_back_with_the_window_that_came)
{
    struct group_layout groups[2] = {rig_group(8, 512), rig_window(4, 12, 512)};
    struct pair p = pair_limited(1 << 20);
    struct rig_session *d;
    struct ticket t;

    p.dest->host_bytes = 64 * 1024;
    assert_ok(rig_pool_open(p.source, p.se.conn[0], groups, 2, 1u << 19, &p.sp));
    assert_ok(rig_pool_open(p.dest, p.de.conn[0], groups, 2, 1u << 19, &p.dp));
    t = hand_over(state_computed(&p, 8, 46), 0, 0);
    d = asking(&p, 1, 46);
    assert_ok(ticket_fetched(d, t));
    assert_ok(rig_retract(d, RETRACT_HOST, 0));
    assert_ok(rig_recover_now(d));
    assert_lengths(d, 40, 46, 46);
    for (uint32_t page = 8; page < 12; page++)
        assert_int_not_equal(d->table[1][page].index, 0);
    assert_int_equal(rig_wrong(d, 46), 0);
    assert_ok(rig_close(d, 0));
}

/* T18: nobody may read a refill before its step, so the second session keeps its own window, which
 * no node took. The session is handed over like any other, and its ticket has these pages. */
TEST(y1_window_that_no_node_took_is_handed_over)
{
    struct group_layout groups[2] = {rig_group(8, 512), rig_window(4, 28, 512)};
    struct pair p = pair_limited(1 << 20);
    const uint32_t *tokens = rig_tokens(1, 46);
    struct rig_engine other = rig_engine(p.source, 0, "other", 1);
    struct rig_session *s, *d;
    struct ticket t;

    assert_ok(rig_pool_open(p.source, p.se.conn[0], groups, 2, 1u << 19, &p.sp));
    assert_ok(rig_pool_open(p.dest, p.de.conn[0], groups, 2, 1u << 19, &p.dp));
    rig_put(p.source, &p.se, p.sp, 1, 40);
    for (uint32_t depth = 32; depth <= 40; depth += 8)
        state_drop(p.source->core, node_of(p.source, p.sp, tokens, depth));
    assert_ok(rig_map(p.source, other.conn[0], p.sp));
    s = rig_session(p.source, &other, p.sp, 1);
    assert_ok(rig_match(s, tokens, 46));
    assert_ok(rig_run_to(s, tokens, 40));
    assert_ok(rig_commit(s, 40, 9)); /* a step that does not pass */
    s = rig_session(p.source, &p.se, p.sp, 1);
    assert_ok(rig_match(s, tokens, 46));
    assert_int_equal(s->matched, 24);
    assert_ok(rig_run_to(s, tokens, 46));
    assert_ok(rig_commit(s, 40, 0));
    t = hand_over(s, 0, 0);
    assert_int_equal(rig_group_view(p.source, p.sp, 1).ticket,
                     6); /* pages 6 to 11; 4 and 5 are the path's */
    d = asking(&p, 1, 46);
    assert_ok(ticket_fetched(d, t)); /* without the step of the other session */
    assert_lengths(d, 40, 46, 46);
    assert_int_equal(rig_wrong(d, 46), 0);
    rig_engine_kill(p.source, &other, 0); /* its refill is lost */
    assert_ok(rig_close(d, 0));
}

/* The same at a multiple of L, where a fetch gives nodes their segments: the whole segment in which
 * the window begins has stayed in the table. */
TEST(y1_window_that_no_node_took_is_handed_over_in_whole_segments)
{
    struct group_layout groups[2] = {rig_group(8, 512), rig_window(4, 28, 512)};
    struct pair p = pair_limited(1 << 20);
    const uint32_t *tokens = rig_tokens(1, 40);
    struct rig_engine other = rig_engine(p.source, 0, "other", 1);
    struct rig_session *s, *d;
    struct ticket t;

    assert_ok(rig_pool_open(p.source, p.se.conn[0], groups, 2, 1u << 19, &p.sp));
    assert_ok(rig_pool_open(p.dest, p.de.conn[0], groups, 2, 1u << 19, &p.dp));
    rig_put(p.source, &p.se, p.sp, 1, 40);
    for (uint32_t depth = 8; depth <= 40; depth += 8)
        state_drop(p.source->core, node_of(p.source, p.sp, tokens, depth));
    assert_ok(rig_map(p.source, other.conn[0], p.sp));
    s = rig_session(p.source, &other, p.sp, 1);
    assert_ok(rig_match(s, tokens, 40));
    assert_ok(rig_run_to(s, tokens, 40));
    assert_ok(rig_commit(s, 40, 9)); /* a step that does not pass */
    s = rig_session(p.source, &p.se, p.sp, 1);
    assert_ok(rig_match(s, tokens, 40));
    assert_int_equal(s->matched, 0);
    assert_ok(rig_run_to(s, tokens, 40));
    assert_ok(rig_commit(s, 40, 0));
    t = hand_over(s, 0, 0);
    d = asking(&p, 1, 40);
    assert_ok(ticket_fetched(d, t));
    assert_lengths(d, 40, 40, 40);
    assert_int_equal(rig_wrong(d, 40), 0);
    assert_int_equal(rig_depth(d, tokens, 40), 40);
    assert_ok(rig_close(d, 0));
}

/* T18, at the other end: a node within the window that came has its beginning, and the next node
 * takes no page of it, since its refill waits. The answer names the borrowed pages beside the
 * session's own. */
TEST(y2_window_is_borrowed_to_where_a_refill_waits_and_its_own_from_there)
{
    struct group_layout groups[2] = {rig_group(8, 512), rig_window(4, 28, 512)};
    struct pair p = pair_limited(1 << 20);
    const uint32_t *tokens = rig_tokens(1, 46);
    struct rig_engine other = rig_engine(p.dest, 0, "other", 1);
    struct rig_session *s, *d;
    struct ticket t;

    assert_ok(rig_pool_open(p.source, p.se.conn[0], groups, 2, 1u << 19, &p.sp));
    assert_ok(rig_pool_open(p.dest, p.de.conn[0], groups, 2, 1u << 19, &p.dp));
    t = hand_over(state_computed(&p, 8, 46), 0, 0);
    rig_put(p.dest, &p.de, p.dp, 1, 40);
    for (uint32_t depth = 8; depth <= 40; depth += depth == 16 ? 16 : 8) /* but for 24 */
        state_drop(p.dest->core, node_of(p.dest, p.dp, tokens, depth));
    assert_ok(rig_map(p.dest, other.conn[0], p.dp));
    s = rig_session(p.dest, &other, p.dp, 1);
    assert_ok(rig_match(s, tokens, 46));
    assert_ok(rig_run_to(s, tokens, 32));
    assert_ok(rig_commit(s, 32, 9)); /* a step that does not pass */
    d = asking(&p, 1, 46);
    assert_int_equal(d->matched, 0);
    assert_ok(ticket_fetched(d, t));
    assert_lengths(d, 40, 46, 46);
    for (uint32_t page = 4; page < 12; page++)
        assert_int_not_equal(d->table[1][page].index, 0);
    assert_int_equal(rig_wrong(d, 46), 0);
    rig_engine_kill(p.dest, &other, 0);
    assert_ok(rig_close(d, 0));
}

/* ---- cancel against completion ---- */

#define RACES 1000

/* Completes a job of either rig: of a random kind, the oldest. */
static void something_happens(struct pair *p, struct prng *r)
{
    struct rig *rig = prng_below(r, 2) ? p->source : p->dest;

    if (rig->njobs > 0)
        rig_complete(rig, rig->jobs[prng_below(r, rig->njobs)].kind);
}

static struct rig_session *short_computed(struct pair *p, uint32_t seed)
{
    struct rig_session *s = session_with(p->source, &p->se, p->sp, seed, 14);

    run_and_commit(s, rig_tokens(seed, 14), 14, 12, 0);
    write_last_page(s, 0, 0x5a);
    return s;
}

static void came_whole(struct rig_session *d)
{
    assert_lengths(d, 12, 14, 14);
    assert_int_equal(rig_wrong(d, 12), 0);
    assert_true(last_page_is(d, 0, 0x5a));
}

/* Y6: the fetch is cancelled at a random moment, twice. Returns true if it had completed before. */
static bool cancelled_race(struct pair *p, struct prng *r, uint32_t seed)
{
    struct rig_session *s = short_computed(p, seed), *d = asking(p, seed, 14);
    struct ticket t = hand_over(s, 0, 2);
    enum tern_err err;

    rig_session_free(s);
    p->source->automatic = p->dest->automatic = 0;
    ticket_fetch(d, t);
    for (uint32_t n = prng_below(r, 60); n > 0; n--)
        something_happens(p, r);
    assert_ok(rig_fetch_cancel(d));
    assert_ok(rig_fetch_cancel(d));
    p->source->automatic = p->dest->automatic = RIG_ALL;
    rig_runs_free(p->source);
    rig_runs_free(p->dest);
    err = rig_fetched(d, d->fetch);
    assert_int_equal(source_pages(p).ticket, err == TERN_OK ? 0 : 1);
    if (err != TERN_OK) {
        assert_err(TERN_GONE, err);
        assert_ok(rig_close(d, 0));
        rig_session_free(d);
        d = asking(p, seed, 14);
        assert_ok(ticket_fetched(d, t));
    }
    came_whole(d);
    assert_true(blob_came(d, 2));
    assert_int_equal(source_pages(p).ticket, 0);
    assert_ok(rig_close(d, 0));
    rig_session_free(d);
    return err == TERN_OK;
}

TEST(y_b_cancel_races_completion_and_both_sides_agree_who_has_won)
{
    struct pair p = pair_limited(1024);
    struct prng r;
    uint32_t completed = 0;

    prng_init(&r, 5);
    for (uint32_t i = 0; i < RACES; i++)
        completed += cancelled_race(&p, &r, 100 + i);
    assert_true(completed > RACES / 20 && completed < RACES / 20 * 19);
    assert_int_equal(quarantined(&p), 0);
    printf("races=%d completed=%u cancelled=%u\n", RACES, completed, RACES - completed);
}

/* E2: the step that writes its pages may still run. */
TEST(y3_pages_of_a_ticket_that_is_dropped_before_its_step_wait_for_it)
{
    struct pair p = pair_limited(1 << 20);
    struct rig_session *s = computed(&p);
    struct ticket t = hand_over(s, 9, 0);

    assert_ok(ticket_ask(p.source, p.se.conn[0], OP_TICKET_DROP, t, 0));
    assert_int_equal(source_pages(&p).ticket, 0);
    assert_int_equal(source_pages(&p).retiring, 1);
    rig_engine_done(p.source, &p.se, 8);
    assert_int_equal(source_pages(&p).retiring, 1);
    rig_engine_done(p.source, &p.se, 9);
    assert_int_equal(source_pages(&p).retiring, 0);
    assert_nothing_left(&p, FULL / 4, 0);
}

/* Pages that a ticket held come free without another event. */
TEST(p5_pages_of_a_ticket_that_ends_come_free_without_another_event)
{
    struct pair p = pair_limited(1 << 20);
    struct rig_session *s = computed(&p);
    struct ticket t = hand_over(s, 0, 0);
    struct core_view v;

    p.source->no_audit = true; /* the audit gives the core another event */
    assert_ok(ticket_ask(p.source, p.se.conn[0], OP_TICKET_DROP, t, 0));
    core_view(p.source->core, &v);
    assert_int_equal(v.sessions, 0);
    computed(&p);
    t = hand_over(p.source->sessions, 0, 0);
    rig_advance(p.source, 20000000000u);
    core_view(p.source->core, &v);
    assert_int_equal(v.sessions, 0);
}

/* Y6: the destination has completed when the source gives the transfer up. */
TEST(y6_completion_that_crosses_the_source_s_own_end_uses_the_ticket_up)
{
    for (uint32_t quiet = 0; quiet < 2; quiet++) {
        struct pair p = pair_limited(1 << 20);
        struct rig_session *s = computed(&p), *d = asking(&p, 1, LEN);
        struct ticket t = hand_over(s, 0, 0);

        p.dest->automatic = RIG_ALL & ~(uint32_t)RIG_PULL;
        ticket_fetch(d, t);
        p.dest->automatic = RIG_ALL & ~(uint32_t)RIG_MSG;
        rig_complete(p.dest, RIG_PULL);
        assert_ok(rig_fetched(d, d->fetch));
        assert_came(&p, d);
        p.source->automatic = quiet ? RIG_ALL : RIG_ALL & ~(uint32_t)RIG_SERVE_STOP;
        rig_advance(p.source, 5000000000u);
        assert_int_equal(source_pages(&p).ticket, 1);
        p.dest->automatic = RIG_ALL;
        rig_runs_free(p.dest);
        p.source->automatic = RIG_ALL;
        rig_runs_free(p.source);
        assert_int_equal(source_pages(&p).ticket, 0);
        assert_err(TERN_GONE, ticket_fetched(asking(&p, 1, LEN), t));
        rig_destroy_all();
    }
}
