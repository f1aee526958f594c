/* Causes that hold a fetch up: bytes in flight for each peer and tenant (X8), a busy source, a full
 * destination, a session in the wrong state, full stores. */
#include "unit/rig/rig_pair.h"

#define TOKENS 64 /* 16 pages of 4 tokens */

TEST(limits_transfers_in_full_busy)
{
    struct pair p = PAIR_LIMITED(limits.pulls = 1, 4, 64, 64);
    struct rig_session *d[2];

    p.dest->automatic = BY_HAND(RIG_PULL);
    fetch_many(&p, 2, 16, d);
    assert_err(TERN_BUSY, answered(&p, d[1]->fetch));
    last_batch_comes(d[0]);
    p.dest->automatic = RIG_ALL;
    assert_ok(fetch_all(d[1]));
}

/* A chunk of 2,048 tokens with 1,025 extra keys exceeds one message; up to that chunk all moves. */
TEST(limits_fetch_of_too_many_extra_keys_invalid)
{
    struct pair p = PAIR_LIMITED(limits.extra_keys = 2 * EXTRA_KEYS_MAX, 2048, 16, 16);
    struct extra_key keys[EXTRA_KEYS_MAX], last = {.position = 4000, .lo = 9};
    struct request match = {.op = OP_MATCH}, fetch = {.op = OP_FETCH};
    struct step_op op = {.kind = STEP_EXTEND};

    p.d = rig_session(p.dest, &p.de, p.dp, 1);
    for (uint32_t i = 0; i < EXTRA_KEYS_MAX; i++)
        keys[i] = (struct extra_key){.position = 2048 + i, .lo = i};
    match.match.session = p.d->id;
    match.match.tokens =
        (struct req_tokens){.v = seq1, .n = 4000, .keys = keys, .nkeys = EXTRA_KEYS_MAX};
    assert_ok(rig_request(p.dest, p.d->conn, &match)->err);
    op.session = p.d->id;
    op.tokens =
        (struct req_tokens){.v = seq1 + 4000, .n = 96, .base = 4000, .keys = &last, .nkeys = 1};
    assert_ok(rig_step_ops(p.dest, p.d->conn, &op, 1)->step.results[0].err);
    fetch.fetch.session = p.d->id;
    p.dest->automatic = BY_HAND(RIG_MSG);
    assert_err(TERN_INVALID, rig_request(p.dest, p.d->conn, &fetch)->err);
    assert_int_equal(rig_jobs(p.dest, RIG_MSG), 0); /* the source is not asked */
    p.dest->automatic = RIG_ALL;
    fetch.fetch.depth = 2048;
    assert_ok(rig_request(p.dest, p.d->conn, &fetch)->err); /* asked: the source has none of it */
}

/* X8: n fetches of 8 pages each. The bytes that are asked for and missing stay within `bytes`. */
static void fetches_stay_within(struct pair p, uint32_t n, uint64_t bytes)
{
    struct rig_session *d[3];

    p.dest->automatic = BY_HAND(RIG_PULL);
    fetch_many(&p, n, 32, d);
    complete_all(p.dest, RIG_PULL);
    assert_true(p.dest->max_pages_in_flight * 512 <= bytes);
    for (uint32_t i = 0; i < n; i++) {
        assert_leaves_whole(rig_fetched(d[i], d[i]->fetch), d[i], 32);
    }
}

/* The same with a limit that is no multiple of a page. */
TEST(fetch_bytes_in_flight_stay_within_the_peers_limit)
{
    fetches_stay_within(pair_limited(1300), 3, 1300);
}

TEST(fetch_bytes_in_flight_stay_within_the_tenants_limit)
{
    fetches_stay_within(PAIR_LIMITED(limits.tenant_bytes_in_flight = 2000, 4, 128, 64), 2, 2000);
}

/* A page that is larger than the limit moves alone. */
TEST(fetch_page_above_the_limit_goes_alone)
{
    struct pair p = pair_limited(100);

    pair_offer(&p, 16);
    assert_leaves_whole(fetch_all(p.d), p.d, 16);
    assert_int_equal(p.dest->max_pages_in_flight, 1);
}

/* All batches that a transfer may have are on their way: the rest is asked for as they arrive, and
 * until then the core needs no event. */
TEST(fetch_with_all_batches_on_their_way_leaves_no_work_over)
{
    struct group_layout groups[4] = {rig_group(64, 512), rig_group(1, 64), rig_group(1, 64),
                                     rig_group(1, 64)};
    struct rig_options options = rig_defaults();
    struct pair p = {.dest = rig_create(&options)};

    options.incarnation = 0x2002;
    p.source = rig_create(&options);
    p.se = rig_engine(p.source, 0, "prefill", 1);
    p.de = rig_engine(p.dest, 0, "decode", 1);
    assert_ok(rig_pool_open(p.source, p.se.conn[0], groups, 4, 1 << 20, &p.sp));
    assert_ok(rig_pool_open(p.dest, p.de.conn[0], groups, 4, 1 << 20, &p.dp));
    rig_link_up(p.dest, 0, p.source, options.limits.peers);
    pair_offer(&p, 832);
    fetch_held(&p, RIG_PULL);
    assert_int_equal(rig_jobs(p.dest, RIG_PULL), PULL_BATCHES_MAX);
    assert_true(core_deadline(p.dest->core) > p.dest->now_ns);
    complete_all(p.dest, RIG_PULL);
    assert_leaves_whole(rig_fetched(p.d, p.d->fetch), p.d, 832);
}

/* X8: a busy source answers that it is, and when to come back. */
TEST(fetch_source_full_answers_busy)
{
    struct pair p = PAIR_LIMITED(limits.serves = 1, 4, 128, 64);
    struct rig_session *d[2];

    p.dest->automatic = BY_HAND(RIG_PULL);
    fetch_many(&p, 2, 16, d);
    assert_null(rig_reply_to(p.dest, d[1]->fetch)); /* the destination repeats it by itself */
    last_batch_comes(d[0]);
    p.dest->automatic = RIG_ALL;
    rig_advance(p.dest, p.dest->options.limits.busy_retry_ms * NS_PER_MS);
    assert_leaves_whole(rig_fetched(d[1], d[1]->fetch), d[0], 16);
    assert_whole(d[1], 16);
}

/* Y5: the destination's pages are admitted as those of an extend are. */
TEST(fetch_destination_full_pool_exhausted_and_the_source_lets_go)
{
    struct pair p = pair_limited(1 << 20);
    struct rig_session *greedy = rig_session(p.dest, &p.de, p.dp, 2);

    assert_ok(rig_match(greedy, rig_tokens(9, 256), 256));
    assert_ok(rig_run_to(greedy, rig_tokens(9, 256),
                         50 * 4)); /* 14 of 64 pages are left, 16 are needed */
    pair_offer(&p, TOKENS);
    rig_fetch(p.d, 0, 0);
    assert_err(TERN_POOL_EXHAUSTED, rig_fetched(p.d, p.d->fetch));
    assert_int_equal(rig_reply_to(p.dest, p.d->fetch)->shortage.needed, 16);
    assert_int_equal(rig_reply_to(p.dest, p.d->fetch)->shortage.free, 14);
    assert_int_equal(rig_view(p.source).serves, 0);
    assert_ok(rig_close(greedy, 0));
    assert_leaves_whole(fetch_all(p.d), p.d, TOKENS);
}

/* An engine whose fetch is refused (its peer is not connected) learns what its session has. */
TEST(fetch_refused_tells_what_the_session_has)
{
    static const struct {
        uint32_t peer;
        enum tern_err err;
    } refused[] = {{1, TERN_PEER_LOST}, {9, TERN_INVALID}, {NONE, TERN_INVALID}};
    struct pair p = pair_limited(1 << 20);

    pair_offer(&p, TOKENS);
    assert_ok(fetch_to(p.d, 16));
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        const struct reply *reply = rig_reply_to(p.dest, rig_fetch(p.d, refused[i].peer, 0));

        assert_err(refused[i].err, reply->err);
        assert_int_equal(reply->fetch.lengths.committed, 16);
        assert_int_equal(reply->fetch.lengths.written, 16);
        assert_int_equal(reply->fetch.lengths.allocated, 16);
    }
}

TEST(fetch_wrong_state_refused)
{
    struct pair p = pair_limited(1 << 20);

    source_has(&p, 1, TOKENS);
    p.d = rig_session(p.dest, &p.de, p.dp, 1);
    assert_err(TERN_INVALID, answered(&p, rig_fetch(p.d, 0, 0))); /* no tokens yet */
    assert_ok(rig_match(p.d, seq1, TOKENS));
    assert_err(TERN_INVALID, answered(&p, rig_fetch(p.d, 9, 0)));
    assert_err(TERN_INVALID, answered(&p, rig_fetch(p.d, NONE, 0)));
    assert_err(TERN_PEER_LOST, answered(&p, rig_fetch(p.d, 1, 0))); /* configured, not connected */
    fetch_held(&p, RIG_PULL);
    assert_err(TERN_BUSY, answered(&p, rig_fetch(p.d, 0, 0)));
    assert_err(TERN_BUSY, rig_extend(p.d, 128, 0, NULL, 0));
    assert_err(TERN_BUSY, rig_match(p.d, seq1, TOKENS));
}

/* X8: at most two batches at a time; the next one follows when one of them has ended. */
TEST(fetch_batches_stay_within_the_tenants_limit)
{
    struct pair p = PAIR_LIMITED(limits.tenant_batches = 2, 4, 128, 64);
    struct rig_session *d[3];

    p.dest->automatic = BY_HAND(RIG_PULL);
    fetch_many(&p, 3, 32, d);
    assert_int_equal(rig_jobs(p.dest, RIG_PULL), 2);
    complete_all(p.dest, RIG_PULL);
    for (uint32_t i = 0; i < 3; i++)
        assert_leaves_whole(rig_fetched(d[i], d[i]->fetch), d[i], 32);
}

/* The bytes in flight of one tenant do not count against another. */
TEST(fetch_bytes_in_flight_are_each_tenants_own)
{
    struct pair p = PAIR_LIMITED(limits.tenant_bytes_in_flight = 512, 4, 64, 64);
    struct rig_session *d = another_tenant_asking(&p, 2, 8);

    pair_offer(&p, 8);
    fetch_held(&p, RIG_PULL);
    assert_int_equal(rig_jobs(p.dest, RIG_PULL), 1); /* one page: the limit */
    rig_fetch(d, 0, 0);
    assert_int_equal(rig_jobs(p.dest, RIG_PULL), 2);
    complete_all(p.dest, RIG_PULL);
    assert_ok(rig_fetched(p.d, p.d->fetch));
    assert_leaves_whole(rig_fetched(d, d->fetch), d, 8);
}

/* T20: a fetch has at most STEP_TABLE_MAX chunks. A longer one is refused and changes nothing. */
TEST(limits_fetch_of_a_table_that_is_too_long_unsupported)
{
    static uint32_t tokens[STEP_TABLE_MAX + 1];
    struct rig_options o = rig_defaults();
    struct request match = {.op = OP_MATCH}, fetch = {.op = OP_FETCH};
    uint64_t changes;
    struct pair p;

    o.limits.token_blocks = o.limits.table_pages = 2 * STEP_TABLE_MAX;
    p = pair_with(o, 1, 64, 64);
    p.d = rig_session(p.dest, &p.de, p.dp, 1);
    match.match.session = fetch.fetch.session = p.d->id;
    match.match.tokens = (struct req_tokens){.v = tokens, .n = STEP_TABLE_MAX + 1};
    assert_ok(rig_request(p.dest, p.d->conn, &match)->err);
    changes = core_changes(p.dest->core);
    assert_err(TERN_UNSUPPORTED, rig_request(p.dest, p.d->conn, &fetch)->err);
    assert_int_equal(p.dest->last->number[0], STEP_TABLE_MAX + 1);
    assert_int_equal(core_changes(p.dest->core), changes);
}
