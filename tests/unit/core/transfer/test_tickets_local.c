/* Y2: tickets that are fetched at the daemon that made them: no byte moves. */
#include <stdio.h>

#include "unit/rig/rig_ticket.h"

/* Opens another engine of the source, which maps the pool. */
static struct rig_engine decoder(struct pair *p)
{
    struct rig_engine e = rig_engine(p->source, 0, "decode", 1);

    assert_ok(rig_map(p->source, e.conn[0], p->sp));
    return e;
}

TEST(y2_ticket_is_fetched_where_it_was_given_and_no_byte_moves)
{
    struct pair p = pair_limited(1 << 20);
    struct rig_engine e = decoder(&p);
    struct rig_session *s = computed(&p), *d = session_with(p.source, &e, p.sp, 1, LEN);
    struct page_ref tail = s->table[0][FULL / 4];
    uint32_t free = rig_free(p.source, p.sp);
    struct ticket t = hand_over(s, 0, 5);

    assert_ok(ticket_fetched(d, t));
    assert_lengths(d, FULL, LEN, LEN);
    assert_int_equal(rig_wrong(d, FULL), 0);
    assert_true(last_page_is(d, 0, 0x5a));
    assert_true(blob_came(d, 5));
    assert_int_equal(d->table[0][FULL / 4].index, tail.index); /* the same page */
    assert_int_equal(d->table[0][FULL / 4].gen, tail.gen);
    assert_int_equal(p.source->pulled_pages, 0);
    assert_int_equal(rig_free(p.source, p.sp), free); /* no page was taken or returned */
    assert_int_equal(source_pages(&p).ticket, 0);
    assert_int_equal(source_pages(&p).session, 1);
    /* One fetch took it. */
    assert_err(TERN_GONE, ticket_fetched(session_with(p.source, &e, p.sp, 1, LEN), t));
    assert_err(TERN_GONE, ticket_fetched(asking(&p, 1, LEN), t));
    /* Pages that are written behind it have checksums of their own, and peers get those. */
    assert_ok(rig_run_to(d, rig_tokens(1, LEN + 2), LEN + 2));
    assert_ok(rig_commit(d, LEN + 2, 0));
    assert_ok(rig_close(d, 0));
    p.d = asking(&p, 1, LEN + 2);
    assert_ok(fetch_all(p.d));
    assert_lengths(p.d, LEN + 2, LEN + 2, LEN + 2);
}

TEST(y2_local_fetch_goes_on_from_what_the_session_has_and_its_tail_waits_for_the_step)
{
    struct pair p = pair_limited(1 << 20);
    struct rig_engine e = decoder(&p);
    struct rig_session *s = computed(&p), *d = session_with(p.source, &e, p.sp, 1, LEN);
    struct ticket t;

    assert_lengths(d, FULL, FULL, FULL);
    assert_ok(rig_run_to(d, rig_tokens(1, LEN), LEN - 1));
    t = hand_over(s, 0, 0);
    ticket_fetch_at(d, t, 7);
    assert_ok(rig_fetched(d, d->fetch));
    assert_lengths(d, FULL, LEN, LEN);
    assert_true(last_page_is(d, 0, 0x5a));
    assert_int_equal(source_pages(&p).retiring, 1);
    rig_engine_done(p.source, &e, 7);
    assert_int_equal(source_pages(&p).retiring, 0);
    assert_ok(rig_close(d, 0));
    assert_int_equal(rig_evict(p.source, rig_connect_admin(p.source), p.sp, 0), FULL / 4);
}

TEST(y2_local_fetch_that_cannot_be_is_refused_and_the_ticket_stands)
{
    struct pair p = pair_limited(1 << 20);
    struct rig_engine e = decoder(&p);
    struct rig_session *s = computed(&p), *d = session_with(p.source, &e, p.sp, 1, LEN), *other;
    struct pool_id apart = rig_pool_pages(p.source, &e, 8, 64);
    struct ticket t = hand_over(s, 9, 0), forged = t;
    uint32_t tokens[LEN];

    assert_err(TERN_BUSY, ticket_fetched(d, t));
    assert_non_null(strstr(p.source->last->text, "the step that writes"));
    assert_true(rig_reply_to(p.source, d->fetch)->fetch.retry_ms > 0);
    rig_engine_done(p.source, &p.se, 9);
    forged.key[0] ^= 1;
    assert_err(TERN_DENIED, ticket_fetched(d, forged));
    other = session_with(p.source, &e, apart, 1, LEN);
    assert_err(TERN_UNSUPPORTED, ticket_fetched(other, t));
    for (uint32_t at = FULL - 1; at < LEN; at += 2) { /* in a whole chunk, and in the tail */
        memcpy(tokens, rig_tokens(1, LEN), sizeof tokens);
        tokens[at] ^= 1;
        other = rig_session(p.source, &e, p.sp, 1);
        assert_ok(rig_match(other, tokens, LEN));
        assert_err(TERN_INVALID, ticket_fetched(other, t));
        assert_non_null(strstr(p.source->last->text, "at position #"));
        assert_int_equal(p.source->last->number[0], at);
    }
    other = rig_session(p.source, &e, p.sp, 2); /* equal tokens in another namespace */
    assert_ok(rig_match(other, rig_tokens(1, LEN), LEN));
    assert_err(TERN_INVALID, ticket_fetched(other, t));
    t.length = 0; /* the text from before the hand-over */
    other = session_with(p.source, &e, p.sp, 1, LEN + 1);
    assert_err(TERN_INVALID, ticket_fetched(other, t));
    assert_int_equal(rig_reply_to(p.source, other->fetch)->fetch.handed, LEN);
    t.length = LEN;
    assert_int_equal(source_pages(&p).ticket, 1);
    assert_ok(ticket_fetched(d, t));
    assert_true(last_page_is(d, 0, 0x5a));
}

/* A peer fetches it at the same time: one of the two gets it. */
TEST(y2_local_fetch_and_one_of_a_peer_take_a_ticket_once)
{
    struct pair p = pair_limited(512);
    struct rig_engine e = decoder(&p);
    struct rig_session *s = computed(&p), *d = session_with(p.source, &e, p.sp, 1, LEN);
    struct ticket t = hand_over(s, 0, 0);

    p.d = asking(&p, 1, LEN);
    p.dest->automatic = BY_HAND(RIG_PULL);
    ticket_fetch(p.d, t);
    rig_complete(p.dest, RIG_PULL);
    assert_err(TERN_BUSY, ticket_fetched(d, t));
    assert_non_null(strstr(p.source->last->text, "another fetch is using"));
    assert_ok(rig_fetch_cancel(p.d));
    rig_runs_free(p.dest);
    assert_ok(ticket_fetched(d, t));
    assert_true(last_page_is(d, 0, 0x5a));
    assert_ok(rig_close(p.d, 0));
    p.d = asking(&p, 1, LEN);
    assert_err(TERN_GONE, ticket_fetched(p.d, t));
}

/* ---- with STATE ---- */

static void state_stays(struct state_shape shape, uint32_t n, uint32_t there)
{
    struct pair p = state_pair(shape);
    struct rig_engine e = decoder(&p);
    struct rig_session *d, *s;
    uint32_t next = n + 2 * shape.align + 1;
    struct ticket t;

    d = rig_session(p.source, &e, p.sp, 1);
    if (there > 0) {
        assert_ok(rig_close(rig_committed(p.source, &e, p.sp, 1, there), 0));
        assert_ok(rig_match(d, rig_tokens(1, n), n));
        assert_int_equal(d->matched, there);
    }
    s = state_computed(&p, shape.align, n);
    t = hand_over(s, 0, 3);
    if (there == 0)
        assert_ok(rig_match(d, rig_tokens(1, n), n));
    assert_ok(ticket_fetched(d, t)); /* also if it has all of it */
    assert_lengths(d, n / shape.align * shape.align, n, n);
    assert_true(blob_came(d, 3));
    assert_int_equal(rig_group_view(p.source, p.sp, 2).ticket, 0);
    assert_int_equal(rig_wrong(d, n), 0);
    assert_ok(rig_extend(d, next, 0, rig_tokens(1, next) + n, next - n));
    rig_write(d, n, next);
    assert_ok(rig_extend(d, next, next, NULL, 0));
    assert_ok(rig_commit(d, next / shape.align * shape.align, 0));
    assert_int_equal(rig_wrong(d, next), 0);
    assert_ok(rig_close(d, 0));
    rig_destroy_all();
}

TEST(y2_state_at_the_exact_length_is_there_after_a_local_fetch)
{
    static const struct state_shape shapes[] = {
        {8, 4, 4}, {8, 4, 8}, {8, 4, 12}, {8, 2, 20}, {16, 4, 40}};

    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (uint32_t n = 1; n <= 5 * shapes[i].align; n++)
            for (uint32_t there = 0; there <= n; there += 2 * shapes[i].align)
                state_stays(shapes[i], n, there);
}

/* The session keeps its own pages and STATE, whether it has committed all of them or a part. */
TEST(y2_session_that_has_computed_its_state_gets_the_blob_of_a_local_ticket)
{
    for (uint32_t n = 37; n <= 40; n += 3) {
        for (uint32_t committed = 16; committed <= n; committed += 8) {
            struct pair p = state_pair((struct state_shape){8, 4, 12});
            struct rig_engine e = decoder(&p);
            struct rig_session *d = rig_session(p.source, &e, p.sp, 1);
            struct ticket t;

            assert_ok(rig_match(d, rig_tokens(1, n), n));
            for (uint32_t at = 8; at <= committed; at += 8) {
                assert_ok(rig_run_to(d, rig_tokens(1, n), at));
                assert_ok(rig_commit(d, at, 0));
            }
            t = hand_over(state_computed(&p, 8, n), 0, 5);
            assert_ok(rig_run_to(d, rig_tokens(1, n), n));
            assert_ok(ticket_fetched(d, t));
            assert_lengths(d, committed, n, n);
            assert_int_equal(rig_wrong(d, n), 0);
            assert_true(blob_came(d, 5));
            assert_err(TERN_GONE, ticket_fetched(session_with(p.source, &e, p.sp, 1, n), t));
            assert_int_equal(rig_group_view(p.source, p.sp, 2).ticket, 0);
            assert_ok(rig_close(d, 0));
            rig_destroy_all();
        }
    }
}
