/* Y1, Y4, Y5: tickets that are made while the session runs, and fetches that follow it, between two
 * cores. */
#include <stdio.h>

#include "base/prng.h"
#include "core/transfer/handed.h"
#include "unit/rig/rig_follow.h"

static struct group_view source_group(struct followed *f)
{
    return rig_group_view(f->p.source, f->p.sp, 0);
}

static struct group_view dest_group(struct followed *f)
{
    return rig_group_view(f->p.dest, f->p.dp, 0);
}

/* The source computes the rest and hands the session over at LEN. */
static struct ticket handed_at_last(struct followed *f)
{
    goes_on(f->s, 1, LEN, 0);
    write_last_page(f->s, 0, 0x5a);
    return hand_over(f->s, 0, 7);
}

#define assert_came_whole(f)                                                                       \
    do {                                                                                           \
        assert_ok(rig_fetched((f)->d, (f)->d->fetch));                                             \
        assert_lengths((f)->d, FULL, LEN, LEN);                                                    \
        assert_int_equal(rig_wrong((f)->d, FULL), 0);                                              \
        assert_true(last_page_is((f)->d, 0, 0x5a));                                                \
        assert_true(blob_came((f)->d, 7));                                                         \
    } while (0)

/* Neither a transfer nor a page of one is left. */
#define assert_all_over(f)                                                                         \
    do {                                                                                           \
        assert_int_equal(rig_view((f)->p.source).serves, 0);                                       \
        assert_int_equal(rig_view((f)->p.dest).pulls, 0);                                          \
        assert_int_equal(dest_group(f).transfer, 0);                                               \
        assert_int_equal(dest_group(f).quarantine, 0);                                             \
    } while (0)

/* Y2: a follower that has all tokens waits for the hand-over and gets the blob. No page is taken or
 * moved, whether the follower matched, committed or only wrote its tokens. */
TEST(y4_follower_that_has_all_of_it_gets_the_blob_at_the_hand_over)
{
    for (uint32_t way = 0; way < 4; way++) {
        const uint32_t n = way < 3 ? FULL : LEN;
        struct pair p = pair_limited(1 << 20);
        struct rig_session *s = session_with(p.source, &p.se, p.sp, 1, n), *d;
        struct ticket t = ticket_early(s);

        if (way == 0)
            dest_has(&p, 1, FULL);
        d = asking(&p, 1, n);
        if (way == 1)
            run_and_commit(d, rig_tokens(1, n), n, n, 0);
        else if (way > 1)
            assert_ok(rig_run_to(d, rig_tokens(1, n), n));
        assert_int_equal(d->len.written, n);
        follow(d, t);
        assert_int_equal(rig_group_view(p.dest, p.dp, 0).transfer, 0);
        for (uint32_t to = 4; to <= n; to += 4)
            goes_on(s, 1, to, 0);
        goes_on(s, 1, n, 0);
        assert_false(ended(d));
        hand_over(s, 0, 7);
        assert_ok(rig_fetched(d, d->fetch));
        assert_lengths(d, way < 2 ? n : 0, n, n);
        assert_int_equal(rig_wrong(d, n), 0);
        assert_true(blob_came(d, 7));
        assert_int_equal(p.dest->pulled_pages, 0);
        assert_int_equal(rig_group_view(p.source, p.sp, 0).ticket, 0);
        assert_int_equal(rig_view(p.dest).pulls, 0);
        assert_int_equal(rig_group_view(p.dest, p.dp, 0).transfer, 0);
        rig_destroy_all();
    }
}

TEST(y4_chunks_arrive_while_the_source_computes_and_the_depth_is_told)
{
    struct followed f = begin();
    struct ticket t;
    uint64_t wait;

    follow(f.d, f.t);
    for (uint32_t to = 4; to < FULL; to += 4) {
        wait = fetch_wait_for(f.d, to - 4);
        assert_null(rig_reply_to(f.p.dest, wait));
        goes_on(f.s, 1, to, 0);
        assert_ok(rig_reply_to(f.p.dest, wait)->err);
        assert_int_equal(rig_reply_to(f.p.dest, wait)->fetch_wait.lengths.committed, to);
        assert_int_equal(rig_reply_to(f.p.dest, wait)->fetch_wait.arriving, LEN);
        assert_false(ended(f.d));
    }
    wait = fetch_wait_for(f.d, LEN - 1);
    t = handed_at_last(&f);
    assert_int_equal(t.key[1], f.t.key[1]); /* it is the ticket that was made early */
    assert_int_equal(t.id.gen, f.t.id.gen);
    assert_int_equal(t.length, LEN);
    assert_ok(rig_reply_to(f.p.dest, wait)->err);
    assert_came_whole(&f);
    assert_int_equal(source_group(&f).ticket, 0); /* it was taken */
    assert_all_over(&f);
    assert_int_equal(f.p.dest->pulled_pages, 11); /* each page once */
    assert_ok(rig_close(f.d, 0));
    assert_nothing_left(&f.p, FULL / 4, FULL / 4);
}

/* Y5: all pages are taken and named at the beginning; at the end they are in the table. */
TEST(y5_pages_are_taken_and_told_before_anything_has_come)
{
    struct followed f = begin();
    struct request request = {.op = OP_FETCH_WAIT,
                              .fetch_wait = {.session = f.d->id, .pages = true}};
    struct page_ref told[11];
    const struct reply *r;

    follow(f.d, f.t);
    assert_int_equal(dest_group(&f).transfer, 11);
    r = rig_request(f.p.dest, f.d->conn, &request);
    assert_ok(r->err);
    assert_int_equal(r->nruns, 1);
    assert_int_equal(r->runs[0].first, 0);
    assert_int_equal(r->runs[0].n, 11);
    memcpy(told, r->runs[0].refs, sizeof told);
    handed_at_last(&f);
    assert_came_whole(&f);
    assert_memory_equal(told, f.d->table[0], sizeof told);
}

/* Y5: the answer also names pages that have arrived, so `written` never exceeds what it names. */
TEST(y5_pages_that_have_come_are_told_with_those_to_come)
{
    struct followed f = begin();
    struct request request = {.op = OP_FETCH_WAIT,
                              .fetch_wait = {.session = f.d->id, .pages = true}};
    const struct reply *r;
    uint32_t pages = 0;

    follow(f.d, f.t);
    goes_on(f.s, 1, 20, 0);
    r = rig_request(f.p.dest, f.d->conn, &request);
    assert_ok(r->err);
    assert_int_equal(r->fetch_wait.lengths.written, 20);
    for (uint32_t i = 0; i < r->nruns; i++) {
        assert_int_equal(r->runs[i].first, pages); /* in order, from the first on */
        pages += r->runs[i].n;
    }
    assert_int_equal(pages, 11);
    handed_at_last(&f);
    assert_came_whole(&f);
}

/* Y5, E4: admission is that of an extend. */
TEST(y5_follow_that_the_pool_has_no_pages_for_is_refused_with_the_shortage)
{
    struct followed f = begin_with(PAIR_LIMITED(limits.peer_bytes_in_flight = 1 << 20, 4, 128, 10));
    const struct reply *r;

    follow(f.d, f.t);
    assert_err(TERN_QUOTA, rig_fetched(f.d, f.d->fetch));
    r = rig_reply_to(f.p.dest, f.d->fetch);
    assert_int_equal(r->shortage.needed, 11);
    assert_int_equal(r->shortage.free, 10);
    assert_int_equal(rig_view(f.p.source).serves, 0);
    assert_int_equal(rig_free(f.p.dest, f.p.dp), 10);
    assert_lengths(f.d, 0, 0, 0);
}

/* E3: nothing is offered before its step has passed and its checksums are known. */
TEST(y4_chunk_waits_for_its_step_and_for_its_checksum)
{
    struct followed f = begin();

    follow(f.d, f.t);
    goes_on(f.s, 1, 8, 3);
    assert_int_equal(come_so_far(f.d), 0);
    f.p.source->automatic = BY_HAND(RIG_SEAL);
    rig_engine_done(f.p.source, &f.p.se, 3);
    assert_int_equal(come_so_far(f.d), 0);
    rig_complete_nth(f.p.source, RIG_SEAL, 1); /* the first is missing */
    assert_int_equal(come_so_far(f.d), 0);
    rig_complete(f.p.source, RIG_SEAL);
    assert_int_equal(come_so_far(f.d), 8);
    f.p.source->automatic = RIG_ALL;
    handed_at_last(&f);
    assert_came_whole(&f);
}

/* The end waits for the last step and for the checksums of the pages behind the last chunk. */
TEST(y4_end_waits_for_the_step_and_the_checksums_of_what_was_handed_over)
{
    struct followed f = begin();

    follow(f.d, f.t);
    goes_on(f.s, 1, LEN, 5);
    hand_over(f.s, 5, 7);
    assert_int_equal(come_so_far(f.d), 0);
    write_last_page(f.s, 0, 0x5a); /* the step writes it only now */
    f.p.source->automatic = BY_HAND(RIG_SEAL);
    rig_engine_done(f.p.source, &f.p.se, 5);
    while (rig_jobs(f.p.source, RIG_SEAL) > 0) {
        assert_false(ended(f.d));
        assert_true(come_so_far(f.d) < FULL);
        rig_complete(f.p.source, RIG_SEAL);
    }
    assert_came_whole(&f);
}

/* After the hand-over each page is offered when its checksum is known, but for the last page, and
 * the end when all are known. */
TEST(y4_end_comes_page_by_page_as_checksums_are_known)
{
    for (uint32_t tail_first = 0; tail_first < 2; tail_first++) {
        struct followed f = begin();

        follow(f.d, f.t);
        goes_on(f.s, 1, LEN, 5);
        hand_over(f.s, 5, 7);
        write_last_page(f.s, 0, 0x5a);
        f.p.source->automatic = BY_HAND(RIG_SEAL);
        rig_engine_done(f.p.source, &f.p.se, 5);
        if (tail_first)
            rig_complete(f.p.source, RIG_SEAL); /* the checksum of the tail */
        for (uint32_t to = 4; to < FULL; to += 4) {
            rig_complete_nth(f.p.source, RIG_SEAL, tail_first ? 0 : 1);
            assert_int_equal(come_so_far(f.d), to);
        }
        assert_false(ended(f.d));
        rig_complete(f.p.source, RIG_SEAL);
        if (!tail_first) {
            assert_int_equal(come_so_far(f.d), FULL - 4);
            rig_complete(f.p.source, RIG_SEAL);
        }
        assert_came_whole(&f);
        rig_destroy_all();
    }
}

/* Several events may report checksums: the core looks once at what to offer for those that come
 * together. */
struct looks {
    struct rig *rig;
    enum event_kind last;
    uint32_t offers, offers_when_sealed;
};

static void look(void *ctx, const struct event *event)
{
    struct looks *l = ctx;

    for (uint32_t i = 0; i < l->rig->out->n; i++) {
        const struct action *a = &l->rig->out->v[i];
        bool offer = a->kind == ACT_PEER_SEND && a->peer.msg.kind == PEER_PULL_OFFER;

        l->offers += offer;
        l->offers_when_sealed += offer && l->last == EV_SEALED;
    }
    l->last = event->kind;
    l->rig->out->n = 0;
}

TEST(y4_checksums_that_are_told_together_are_offered_together)
{
    struct followed f = begin();
    struct looks l = {.rig = f.p.source};

    follow(f.d, f.t);
    f.p.source->on_event = look;
    f.p.source->on_event_ctx = &l;
    goes_on(f.s, 1, 20, 0);
    assert_int_equal(come_so_far(f.d), 20);
    assert_true(l.offers > 0);
    assert_int_equal(l.offers_when_sealed, 0);
}

/* E10: a follower need not wait until somebody looks at the steps of the followed engine. */
TEST(y4_ranks_ring_at_the_next_step_while_a_session_of_theirs_is_followed)
{
    struct followed f = begin();

    goes_on(f.s, 1, 4, 3);
    assert_int_equal(f.p.source->step_wanted, 0);
    follow(f.d, f.t);
    assert_int_equal(f.p.source->step_wanted, 1);
    rig_engine_done(f.p.source, &f.p.se, 1);
    assert_int_equal(f.p.source->step_wanted, 2);
    rig_engine_done(f.p.source, &f.p.se, 3);
    assert_int_equal(f.p.source->step_wanted, 0); /* every named step has passed */
    goes_on(f.s, 1, 8, 7);
    assert_int_equal(f.p.source->step_wanted, 4);
    goes_on(f.s, 1, LEN, 8);
    hand_over(f.s, 9, 7);
    rig_engine_done(f.p.source, &f.p.se, 8);
    assert_int_equal(f.p.source->step_wanted, 9); /* the step of the hand-over alone */
    write_last_page(f.s, 0, 0x5a);
    rig_engine_done(f.p.source, &f.p.se, 9);
    assert_came_whole(&f);
    assert_int_equal(f.p.source->step_wanted, 0);
}

TEST(y4_ranks_ring_no_more_when_the_follower_is_gone)
{
    for (uint32_t how = 0; how < 2; how++) {
        struct followed f = begin();

        goes_on(f.s, 1, 4, 3);
        follow(f.d, f.t);
        assert_int_equal(f.p.source->step_wanted, 1);
        if (how == 0)
            assert_ok(rig_close(f.s, 3));
        else
            assert_ok(rig_abort(f.d, 0));
        assert_int_equal(f.p.source->step_wanted, 0);
        rig_destroy_all();
    }
}

/* Ends of a promise: the follower gets an error, and keeps the chunks that have arrived. */
enum ending { CLOSED, ABORTED, KILLED, RESET, DROPPED, REWOUND, OTHER_LENGTH, ENDINGS };

static void source_ends(struct followed *f, enum ending how)
{
    uint32_t n;

    switch (how) {
    case CLOSED: assert_ok(rig_close(f->s, 0)); return;
    case ABORTED: assert_ok(rig_abort(f->s, 0)); return;
    case KILLED: rig_engine_kill(f->p.source, &f->p.se, 0); return;
    case RESET: assert_ok(rig_reset(f->p.source, f->p.se.conn[0], 1, &n)); return;
    case DROPPED:
        assert_ok(ticket_ask(f->p.source, f->p.se.conn[0], OP_TICKET_DROP, f->t, 0));
        return;
    case REWOUND: assert_ok(rig_rewind(f->s, 21, 0)); return;
    case OTHER_LENGTH:
        assert_ok(rig_run_to(f->s, rig_tokens(1, 23), 23));
        hand_over(f->s, 0, 0);
        return;
    case ENDINGS: return;
    }
}

TEST(y4_what_ends_the_source_session_ends_the_follower_and_what_came_stays)
{
    for (enum ending how = CLOSED; how < ENDINGS; how++) {
        struct followed f = begin();
        bool invalid = how == REWOUND || how == OTHER_LENGTH;
        const struct reply *r;
        uint64_t wait;

        follow(f.d, f.t);
        goes_on(f.s, 1, 20, 0);
        assert_int_equal(come_so_far(f.d), 20);
        assert_ok(rig_run_to(f.s, rig_tokens(1, 22), 22));
        wait = fetch_wait_for(f.d, 20);
        source_ends(&f, how);
        assert_err(invalid ? TERN_INVALID : TERN_GONE, rig_fetched(f.d, f.d->fetch));
        assert_lengths(f.d, 20, 20, 20);
        assert_int_equal(rig_wrong(f.d, 20), 0);
        r = rig_reply_to(f.p.dest, f.d->fetch);
        assert_int_equal(r->fetch.handed, how == OTHER_LENGTH ? 23 : 0);
        r = rig_reply_to(f.p.dest, wait);
        assert_ok(r->err);
        assert_int_equal(r->fetch_wait.arriving, 0);
        assert_all_over(&f);
        follow(f.d, f.t); /* GONE, unless the session may yet be handed over */
        assert_int_equal(ended(f.d), how != REWOUND);
        rig_destroy_all();
    }
}

/* Y6: the source refuses pages, and its message with the cause is late. */
static uint64_t refused_with_message_late(struct followed *f, enum ending how)
{
    uint64_t fetch;

    f->p.dest->automatic &= ~(uint32_t)RIG_PULL;
    fetch = follow(f->d, f->t);
    goes_on(f->s, 1, 20, 0);
    assert_true(rig_jobs(f->p.dest, RIG_PULL) > 0);
    f->p.source->automatic &= ~(uint32_t)RIG_MSG;
    source_ends(f, how);
    f->p.dest->automatic = RIG_ALL;
    rig_runs_free(f->p.dest);
    return fetch;
}

/* However the session ended, the engine gets the cause that the source names, and never CORRUPT. */
TEST(y6_follower_whose_pages_are_refused_waits_for_the_source_to_say_why)
{
    for (uint32_t other = 0; other < 2; other++) {
        struct followed f = begin();
        uint64_t fetch = refused_with_message_late(&f, other ? OTHER_LENGTH : RESET);

        assert_err(TERN_BUSY, rig_fetched(f.d, fetch)); /* no answer yet */
        f.p.source->automatic = RIG_ALL;
        rig_runs_free(f.p.source);
        assert_err(other ? TERN_INVALID : TERN_GONE, rig_fetched(f.d, fetch));
        assert_int_equal(rig_reply_to(f.p.dest, fetch)->fetch.handed, other ? 23 : 0);
        assert_int_equal(rig_view(f.p.dest).corrupt_detected, 0);
        assert_all_over(&f);
        rig_destroy_all();
    }
}

/* A source that never names a cause ends only this fetch, and in bounded time. */
TEST(y6_follower_whose_source_does_not_say_why_ends_gone)
{
    struct followed f = begin();
    uint64_t fetch = refused_with_message_late(&f, OTHER_LENGTH);

    rig_advance(f.p.dest, PULL_WORD_MS_MAX * NS_PER_MS - 1);
    assert_err(TERN_BUSY, rig_fetched(f.d, fetch));
    rig_advance(f.p.dest, 1);
    assert_err(TERN_GONE, rig_fetched(f.d, fetch));
    assert_non_null(strstr(rig_reply_to(f.p.dest, fetch)->text, "the source released its pages"));
    assert_int_equal(rig_view(f.p.dest).corrupt_detected, 0);
    assert_lengths(f.d, 0, 0, 0);
    f.p.source->automatic = RIG_ALL;
    rig_runs_free(f.p.source); /* too late */
    assert_all_over(&f);
    rig_destroy_all();
}

TEST(y4_follower_is_cancelled_or_lost_and_the_ticket_stands)
{
    for (uint32_t how = 0; how < 4; how++) {
        struct followed f = begin();
        struct rig_engine other = rig_engine(f.p.dest, 0, "other", 1);
        uint64_t wait;

        assert_ok(rig_map(f.p.dest, other.conn[0], f.p.dp));
        follow(f.d, f.t);
        goes_on(f.s, 1, 20, 0);
        wait = fetch_wait_for(f.d, 20);
        if (how == 0)
            assert_ok(rig_fetch_cancel(f.d));
        if (how == 1)
            rig_link_down(f.p.dest, 0);
        if (how == 2)
            assert_ok(rig_close(f.d, 0));
        if (how == 3)
            rig_engine_kill(f.p.dest, &f.p.de, 0);
        if (how < 2)
            assert_err(how == 0 ? TERN_GONE : TERN_PEER_LOST, rig_fetched(f.d, f.d->fetch));
        if (how == 2)
            assert_err(TERN_GONE, rig_reply_to(f.p.dest, wait)->err);
        if (how == 1)
            rig_link_up(f.p.dest, 0, f.p.source, f.p.source->options.limits.peers);
        assert_all_over(&f);
        goes_on(f.s, 1, 32, 0);
        f.d = session_with(f.p.dest, &other, f.p.dp, 1, LEN);
        assert_lengths(f.d, 20, 20, 20); /* chunks that arrived are there for others */
        follow(f.d, f.t);
        assert_int_equal(come_so_far(f.d), 32);
        handed_at_last(&f);
        assert_came_whole(&f);
        rig_destroy_all();
    }
}

TEST(y4_one_follows_and_who_does_not_follow_is_told_to_come_back)
{
    struct followed f = begin();
    struct rig_session *second = asking(&f.p, 1, LEN), *plain = asking(&f.p, 1, LEN);
    struct rig_session *here = session_with(f.p.source, &f.p.se, f.p.sp, 1, LEN);

    follow(f.d, f.t);
    goes_on(f.s, 1, 20, 0);
    follow(second, f.t);
    ticket_fetch(plain, f.t);
    for (uint32_t i = 0; i < 10; i++)
        rig_advance(f.p.dest, PULL_BUSY_MS_MAX / 4 * NS_PER_MS);
    assert_err(TERN_BUSY, rig_fetched(second, second->fetch));
    assert_string_equal(rig_reply_to(f.p.dest, second->fetch)->text,
                        ticket_busy_text(TICKET_BUSY_TAKEN));
    assert_err(TERN_BUSY, rig_fetched(plain, plain->fetch));
    assert_err(TERN_BUSY, ticket_fetched(here, f.t));
    follow(here, f.t);
    assert_err(TERN_UNSUPPORTED, rig_fetched(here, here->fetch));
    handed_at_last(&f);
    assert_came_whole(&f);
    assert_err(TERN_GONE, ticket_fetched(plain, f.t));
}

/* X8: a follower that was put off once and now waits for its session holds no other fetch up. */
TEST(x8_follower_that_waits_for_its_session_lets_others_pass)
{
    struct followed f = begin();
    struct rig_session *second = asking(&f.p, 1, LEN), *other = asking_source(&f.p, 5, 16);

    follow(f.d, f.t);
    follow(second, f.t);
    assert_int_equal(rig_view(f.p.source).serves, 1);
    assert_ok(rig_fetch_cancel(f.d));
    rig_advance(f.p.dest, 100 * NS_PER_MS);
    assert_int_equal(rig_view(f.p.source).serves, 1); /* the second one's */
    assert_ok(fetch_all(other));
    assert_whole(other, 16);
    assert_false(ended(second));
    f.d = second;
    handed_at_last(&f);
    assert_came_whole(&f);
}

/* A fetch without `follow` of an early ticket after its hand-over: its text has no length. */
TEST(y1_early_ticket_is_good_behind_the_hand_over_too)
{
    for (uint32_t follows = 0; follows < 2; follows++) {
        struct followed f = begin();
        struct rig_session *longer = asking(&f.p, 1, LEN + 1);

        handed_at_last(&f);
        assert_err(TERN_INVALID, follows ? rig_fetched(longer, follow(longer, f.t))
                                         : ticket_fetched(longer, f.t));
        if (follows)
            follow(f.d, f.t);
        else
            ticket_fetch(f.d, f.t);
        assert_came_whole(&f);
        rig_destroy_all();
    }
}

TEST(y1_early_ticket_that_is_forged_foreign_or_named_with_a_length_is_denied)
{
    struct followed f = begin();
    struct ticket bad = f.t;

    bad.key[0] ^= 1;
    follow(f.d, bad);
    assert_err(TERN_DENIED, rig_fetched(f.d, f.d->fetch));
    bad = f.t;
    bad.length = LEN; /* a length that no answer had */
    follow(f.d, bad);
    assert_err(TERN_DENIED, rig_fetched(f.d, f.d->fetch));
    assert_err(TERN_DENIED, ticket_ask(f.p.source, f.p.se.conn[0], OP_TICKET_RENEW, bad, 0));
    bad = f.t;
    bad.id.gen++;
    follow(f.d, bad);
    assert_err(TERN_GONE, rig_fetched(f.d, f.d->fetch));
    assert_int_equal(dest_group(&f).transfer, 0);
}

TEST(y4_tokens_are_those_of_the_source_session_committed_or_not)
{
    struct followed f = begin();
    uint32_t tokens[LEN];

    goes_on(f.s, 1, 20, 0);
    for (uint32_t at = 1; at < LEN; at += 8) {
        memcpy(tokens, rig_tokens(1, LEN), sizeof tokens);
        tokens[at] ^= 1;
        f.d = rig_session(f.p.dest, &f.p.de, f.p.dp, 1);
        assert_ok(rig_match(f.d, tokens, LEN));
        follow(f.d, f.t);
        assert_err(TERN_INVALID, rig_fetched(f.d, f.d->fetch));
    }
    assert_int_equal(rig_view(f.p.source).serves, 0);
    assert_int_equal(dest_group(&f).transfer, 0);
}

/* The deadline of a promise waits while somebody follows. The follower's deadline begins anew with
 * each chunk. */
TEST(y4_time_waits_for_the_follower_and_the_follower_for_the_source)
{
    struct followed f = begin();
    uint64_t ms = f.p.source->options.limits.ticket_deadline_ns / NS_PER_MS;

    assert_int_equal(ticket_open_full(f.s, 100)->ticket_open.deadline_ms, 100);
    follow(f.d, f.t);
    for (uint32_t to = 4; to <= 20; to += 4) {
        rig_advance(f.p.source, (ms - 1) * NS_PER_MS);
        rig_advance(f.p.dest, (ms - 1) * NS_PER_MS);
        goes_on(f.s, 1, to, 0);
        assert_int_equal(come_so_far(f.d), to);
    }
    rig_advance(f.p.dest, ms * NS_PER_MS);
    assert_err(TERN_TIMED_OUT, rig_fetched(f.d, f.d->fetch));
    assert_lengths(f.d, 20, 20, 20);
    assert_all_over(&f);
    rig_advance(f.p.source, 1); /* nobody follows it any more */
    assert_err(TERN_GONE, ticket_ask(f.p.source, f.p.se.conn[0], OP_TICKET_RENEW, f.t, 0));
    assert_ok(rig_close(f.s, 0));
}

TEST(y3_early_ticket_goes_by_its_time_and_holds_nothing)
{
    struct followed f = begin();

    assert_int_equal(ticket_open_full(f.s, 100)->ticket_open.deadline_ms, 100);
    goes_on(f.s, 1, 20, 0);
    rig_advance(f.p.source, 99 * NS_PER_MS);
    assert_ok(ticket_ask(f.p.source, f.p.se.conn[0], OP_TICKET_RENEW, f.t, 100));
    rig_advance(f.p.source, 99 * NS_PER_MS);
    assert_int_equal(source_group(&f).ticket, 0);
    rig_advance(f.p.source, NS_PER_MS);
    rig_advance(f.p.dest, 200 * NS_PER_MS);
    follow(f.d, f.t);
    assert_err(TERN_GONE, rig_fetched(f.d, f.d->fetch));
    f.t = handed_at_last(&f); /* another ticket, with another key */
    assert_int_equal(f.t.key[1], TICKET_KEY_LO);
    assert_ok(ticket_fetched(f.d, f.t));
    assert_came_whole(&f);
}

/* The source goes back behind the tokens that were compared, which stay as they are. */
TEST(y4_tokens_behind_what_is_followed_may_come_and_go)
{
    struct followed f = begin();

    follow(f.d, f.t);
    goes_on(f.s, 1, LEN, 0);
    assert_ok(rig_extend(f.s, LEN + 6, 0, rig_tokens(1, LEN + 6) + LEN, 6));
    assert_ok(rig_rewind(f.s, LEN, 0));
    write_last_page(f.s, 0, 0x5a);
    hand_over(f.s, 0, 7);
    assert_came_whole(&f);
}

/* The followed session is retracted: the follower waits until it is recovered. */
TEST(y4_follower_waits_while_its_session_is_retracted)
{
    struct followed f = begin();

    follow(f.d, f.t);
    goes_on(f.s, 1, 20, 0);
    f.p.dest->automatic = BY_HAND(RIG_PULL);
    goes_on(f.s, 1, 28, 0);
    assert_ok(rig_retract(f.s, RETRACT_DROP, 0));
    f.p.dest->automatic = RIG_ALL;
    rig_runs_free(f.p.dest);
    assert_int_equal(come_so_far(f.d), 28);
    assert_ok(rig_recover_now(f.s));
    handed_at_last(&f);
    assert_came_whole(&f);
}

/* X5: chunks that the destination has do not move, and chunks that another session commits
 * meanwhile replace those to come. */
TEST(y4_chunks_that_another_session_commits_meanwhile_are_told_as_they_are)
{
    struct followed f = begin();
    struct rig_session *other;
    const struct reply *r;
    uint64_t wait;

    dest_has(&f.p, 1, 8);
    f.d = asking(&f.p, 1, LEN);
    follow(f.d, f.t);
    assert_int_equal(dest_group(&f).transfer, 9);
    other = rig_committed(f.p.dest, &f.p.de, f.p.dp, 1, 20);
    wait = fetch_wait_for(f.d, 12);
    goes_on(f.s, 1, 16, 0);
    r = rig_reply_to(f.p.dest, wait);
    assert_ok(r->err);
    assert_int_equal(r->fetch_wait.lengths.committed, 16);
    assert_int_equal(r->nruns, 1);
    assert_int_equal(r->runs[0].first, 3);
    assert_memory_equal(r->runs[0].refs, &other->table[0][3], sizeof(struct page_ref));
    handed_at_last(&f);
    assert_came_whole(&f);
    assert_int_equal(f.p.dest->pulled_pages, 9);
}

TEST(y4_wait_gives_way_to_a_later_one_and_without_a_fetch_is_refused)
{
    struct followed f = begin();
    uint64_t first, second;

    first = fetch_wait_for(f.d, 0);
    assert_err(TERN_INVALID, rig_reply_to(f.p.dest, first)->err);
    assert_true(strlen(rig_reply_to(f.p.dest, first)->text) > 0);
    follow(f.d, f.t);
    first = fetch_wait_for(f.d, 0);
    second = fetch_wait_for(f.d, 8);
    assert_err(TERN_CONFLICT, rig_reply_to(f.p.dest, first)->err);
    goes_on(f.s, 1, 8, 0);
    assert_null(rig_reply_to(f.p.dest, second));
    goes_on(f.s, 1, 12, 0);
    assert_ok(rig_reply_to(f.p.dest, second)->err);
    first = fetch_wait_for(f.d, 4);
    assert_ok(rig_reply_to(f.p.dest, first)->err); /* true already */
    assert_int_equal(rig_reply_to(f.p.dest, first)->runs[0].first, 1);
    assert_int_equal(rig_reply_to(f.p.dest, first)->runs[0].n, 2);
    handed_at_last(&f);
    assert_ok(rig_fetched(f.d, f.d->fetch));
    first = fetch_wait_for(f.d, LEN); /* the fetch has ended: no wait */
    assert_ok(rig_reply_to(f.p.dest, first)->err);
    assert_int_equal(rig_reply_to(f.p.dest, first)->fetch_wait.arriving, 0);
    assert_ok(rig_match(f.d, rig_tokens(1, LEN), LEN));
    first = fetch_wait_for(f.d, LEN);
    assert_err(TERN_INVALID, rig_reply_to(f.p.dest, first)->err);
}

/* The answer to a fetch that comes too early has the session's lengths, at either daemon. */
TEST(y1_early_ticket_that_is_fetched_too_early_says_how_far_its_session_is)
{
    struct followed f = begin();
    struct rig_session *here = session_with(f.p.source, &f.p.se, f.p.sp, 1, LEN);
    const struct reply *r;

    goes_on(f.s, 1, 8, 0);
    for (uint32_t local = 0; local < 2; local++) {
        struct rig_session *d = local ? here : f.d;

        ticket_fetch(d, f.t);
        for (uint32_t i = 0; i < 10 && !ended(d); i++)
            rig_advance(f.p.dest, PULL_BUSY_MS_MAX / 4 * NS_PER_MS);
        r = rig_reply_to(d->rig, d->fetch);
        assert_err(TERN_BUSY, r->err);
        assert_non_null(strstr(r->text, "session still runs, with # of its # tokens"));
        assert_int_equal(r->number[0], 8);
        assert_int_equal(r->number[1], LEN);
    }
}

/* Long lists: tokens and offers in pieces; the destination's session has committed some tokens. */
TEST(x9_long_session_is_followed_in_pieces)
{
    struct rig_options options = rig_defaults();
    struct pair p;
    struct rig_session *s, *d;
    struct ticket t;

    options.limits.open_tokens = 48;
    options.limits.offer_pages = 5;
    p = pair_with(options, 4, 128, 128);
    s = session_with(p.source, &p.se, p.sp, 1, 202);
    goes_on(s, 1, 100, 0);
    d = asking(&p, 1, 202);
    t = ticket_early(s);
    follow(d, t);
    assert_int_equal(come_so_far(d), 100);
    for (uint32_t to = 108; to < 200; to += 8) {
        goes_on(s, 1, to, 0);
        assert_int_equal(come_so_far(d), to);
    }
    goes_on(s, 1, 202, 0);
    write_last_page(s, 0, 0x77);
    hand_over(s, 0, 3);
    assert_ok(rig_fetched(d, d->fetch));
    assert_lengths(d, 200, 202, 202);
    assert_int_equal(rig_wrong(d, 200), 0);
    assert_true(last_page_is(d, 0, 0x77));
    assert_true(blob_came(d, 3));
}

/* ---- with STATE ---- */

static void state_follows(struct state_shape shape, uint32_t n, uint32_t there)
{
    struct pair p = state_pair(shape);
    struct rig_session *s = rig_session(p.source, &p.se, p.sp, 1), *d;
    const uint32_t *tokens = rig_tokens(1, n);
    uint32_t next = n + 2 * shape.align + 1;
    struct ticket t;

    if (there > 0)
        assert_ok(rig_close(rig_committed(p.dest, &p.de, p.dp, 1, there), 0));
    assert_ok(rig_match(s, tokens, n));
    t = ticket_early(s);
    d = rig_session(p.dest, &p.de, p.dp, 1);
    assert_ok(rig_match(d, tokens, n));
    follow(d, t);
    for (uint32_t at = shape.align; at <= n; at += shape.align) {
        assert_ok(rig_run_to(s, tokens, at));
        assert_ok(rig_commit(s, at, 0));
        assert_false(ended(d));
    }
    assert_ok(rig_run_to(s, tokens, n));
    hand_over(s, 0, 3);
    assert_ok(rig_fetched(d, d->fetch));
    assert_lengths(d, n / shape.align * shape.align, n, n);
    assert_int_equal(rig_wrong(d, n), 0);
    assert_true(blob_came(d, 3));
    assert_int_equal(rig_group_view(p.source, p.sp, 2).ticket, 0);
    assert_ok(rig_extend(d, next, 0, rig_tokens(1, next) + n, next - n));
    rig_write(d, n, next);
    assert_ok(rig_extend(d, next, next, NULL, 0));
    assert_ok(rig_commit(d, next / shape.align * shape.align, 0));
    assert_int_equal(rig_wrong(d, next), 0);
    assert_ok(rig_close(d, 0));
    rig_destroy_all();
}

TEST(y4_state_of_the_end_comes_with_every_window_and_tail)
{
    static const struct state_shape shapes[] = {{8, 4, 4},  {8, 4, 8},  {8, 4, 12},
                                                {8, 2, 20}, {16, 4, 8}, {16, 4, 40}};

    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (uint32_t n = 1; n <= 5 * shapes[i].align; n++)
            for (uint32_t there = 0; there < n; there += 2 * shapes[i].align)
                state_follows(shapes[i], n, there);
}

/* Tokens that end within a chunk although others follow: the walk would have to resume there. */
TEST(y4_tokens_that_break_off_within_a_chunk_are_invalid)
{
    for (uint32_t until = 5; until < FULL; until += 6) {
        struct followed f = begin();
        struct peer_msg open, more;
        struct rig_job *answer;

        goes_on(f.s, 1, 4, 0);
        f.p.source->automatic = f.p.dest->automatic = BY_HAND(RIG_MSG);
        follow(f.d, f.t);
        open = rig_job(f.p.dest, RIG_MSG, 0)->msg;
        open.until = until;
        dest_says(&f.p, &open);
        answer = rig_job(f.p.source, RIG_MSG, 0);
        assert_non_null(answer);
        assert_int_equal(answer->msg.kind, PEER_PULL_OFFER);
        assert_err(TERN_INVALID, answer->msg.err);
        goes_on(f.s, 1, 8, 0);
        more = open;
        more.kind = PEER_PULL_TOKENS;
        more.serve = answer->msg.serve;
        more.at = until;
        more.until = 0;
        more.tokens = open.tokens + until;
        dest_says(&f.p, &more);
        assert_int_equal(rig_view(f.p.source).serves, 0);
        rig_destroy_all();
    }
}

static void hands_over_at(struct rig_session *s, uint32_t length)
{
    goes_on(s, 1, length, 0);
    hand_over(s, 0, 0);
}

/* Before the hand-over nobody knows which STATE the end will need, so no offer names any. */
TEST(y4_state_is_named_with_the_end_alone)
{
    struct pair p = state_pair((struct state_shape){8, 4, 20});
    struct rig_session *s = rig_session(p.source, &p.se, p.sp, 1),
                       *d = rig_session(p.dest, &p.de, p.dp, 1);
    uint32_t offers = 0;

    assert_ok(rig_match(s, rig_tokens(1, 36), 36));
    assert_ok(rig_match(d, rig_tokens(1, 36), 36));
    follow(d, ticket_early(s));
    p.source->automatic = BY_HAND(RIG_MSG);
    for (uint32_t at = 8; at <= 36; at += 8) {
        goes_on(s, 1, at, 0);
        if (at == 32)
            hands_over_at(s, 36);
        for (; rig_jobs(p.source, RIG_MSG) > 0; rig_complete(p.source, RIG_MSG), offers++) {
            const struct peer_msg *m = &rig_job(p.source, RIG_MSG, 0)->msg;
            bool ends = peer_msg_until(m) == m->to;

            assert_int_equal(m->kind, PEER_PULL_OFFER);
            assert_int_equal(m->runs[1].n + m->runs[2].n > 0, ends);
        }
    }
    assert_true(offers >= 4);
    assert_ok(rig_fetched(d, d->fetch));
    assert_int_equal(rig_wrong(d, 36), 0);
}

/* Sources of an older version offer units of a chunk's pages ahead of the chunk. */
TEST(y4_units_that_an_older_source_offers_are_passed_over)
{
    struct followed f = begin();
    struct event event = {.kind = EV_PEER_MSG};
    uint64_t changes;

    follow(f.d, f.t);
    f.p.source->automatic = BY_HAND(RIG_MSG);
    goes_on(f.s, 1, 8, 0);
    assert_non_null(rig_job(f.p.source, RIG_MSG, 0));
    event.peer.msg = rig_job(f.p.source, RIG_MSG, 0)->msg;
    event.peer.msg.kind = PEER_PULL_EARLY;
    changes = core_changes(f.p.dest->core);
    rig_event(f.p.dest, &event);
    assert_true(core_changes(f.p.dest->core) == changes);
    f.p.source->automatic = RIG_ALL;
    while (rig_jobs(f.p.source, RIG_MSG) > 0)
        rig_complete(f.p.source, RIG_MSG);
    handed_at_last(&f);
    assert_came_whole(&f);
    assert_all_over(&f);
}

/* ---- any order, and ends at any moment ---- */

#define RACES 400

static void something_happens(struct followed *f, struct prng *r)
{
    struct rig *rig = prng_below(r, 2) ? f->p.source : f->p.dest;

    if (rig->njobs > 0)
        rig_complete(rig, rig->jobs[prng_below(r, rig->njobs)].kind);
}

/* The source computes step by step. One of the two sides ends the transfer, or neither does. */
static enum tern_err race(struct prng *r)
{
    struct followed f = begin_with(pair_limited(1024));
    uint32_t ends = prng_below(r, 4), at = prng_below(r, 60), written = 0, handed = 0;
    enum tern_err err;

    f.p.source->automatic = f.p.dest->automatic = 0;
    follow(f.d, f.t);
    for (uint32_t i = 0; i < 100; i++) {
        something_happens(&f, r);
        if (i == at && ends == 1)
            assert_ok(rig_fetch_cancel(f.d));
        if (i == at && ends == 2 && !handed)
            assert_ok(rig_close(f.s, 0));
        if (i == at && ends == 2)
            break;
        if (prng_below(r, 4) || handed)
            continue;
        written += prng_below(r, 12);
        written = written > LEN ? LEN : written;
        if (written > f.s->len.written)
            goes_on(f.s, 1, written, 0);
        if (written == LEN && prng_below(r, 2)) {
            write_last_page(f.s, 0, 0x5a);
            hand_over(f.s, 0, 7);
            handed = 1;
        }
    }
    f.p.source->automatic = f.p.dest->automatic = RIG_ALL;
    rig_runs_free(f.p.source);
    rig_runs_free(f.p.dest);
    if (!handed && ends != 2)
        handed_at_last(&f);
    err = rig_fetched(f.d, f.d->fetch);
    if (err == TERN_OK)
        assert_came_whole(&f);
    else
        assert_err(TERN_GONE, err);
    assert_int_equal(rig_wrong(f.d, f.d->len.committed), 0);
    assert_all_over(&f);
    assert_int_equal(source_group(&f).ticket, err != TERN_OK && (handed || ends != 2) ? 1 : 0);
    assert_ok(rig_close(f.d, 0));
    rig_destroy_all();
    return err;
}

/* Y6: one of the two wins, both sides agree which, and nothing is left. */
TEST(y6_end_of_either_side_races_the_completion_of_a_follower)
{
    struct prng r;
    uint32_t completed = 0;

    prng_init(&r, 11);
    for (uint32_t i = 0; i < RACES; i++)
        completed += race(&r) == TERN_OK;
    assert_true(completed > RACES / 10 && completed < RACES / 10 * 9);
    printf("races=%d completed=%u ended=%u\n", RACES, completed, RACES - completed);
}
