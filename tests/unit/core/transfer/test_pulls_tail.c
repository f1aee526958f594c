/* A fetch from what the session has (S11): its own pages behind the committed length stay until
 * something longer has arrived. Then they are returned at the step that the fetch named. */
#include "unit/rig/rig_pair.h"
#include "unit/rig/rig_state.h"

#define TOKENS 64   /* 16 pages of 4 tokens */
#define PIECE  1024 /* tokens that one step can commit */

/* p.d has committed `t` tokens of sequence 1 and computed `w`. The source has `n`. */
static struct pair with_tail(uint64_t peer_bytes, uint32_t t, uint32_t w, uint32_t n)
{
    struct pair p = pair_limited(peer_bytes);

    if (n > 0)
        source_has(&p, 1, n);
    p.d = asking(&p, 1, TOKENS + 3);
    run_and_commit(p.d, seq1, w, t, 0);
    p.d->fetch_step = 5;
    return p;
}

static uint32_t retiring(const struct pair *p)
{
    return rig_group_view(p->dest, p->dp, 0).retiring;
}

#define assert_untouched(p, t, w)                                                                  \
    do {                                                                                           \
        assert_lengths((p)->d, t, w, w);                                                           \
        assert_int_equal(rig_reply_to((p)->dest, (p)->d->fetch)->nruns, 0);                        \
        assert_int_equal(rig_wrong((p)->d, w), 0);                                                 \
        assert_int_equal(retiring(p), 0);                                                          \
        assert_ok(rig_run_to((p)->d, seq1, TOKENS + 3));                                           \
        assert_int_equal(rig_wrong((p)->d, TOKENS + 3), 0);                                        \
    } while (0)

TEST(s11_tail_gives_way_by_its_step_to_what_comes)
{
    struct pair p = with_tail(1 << 20, 8, 10, TOKENS);

    assert_leaves_whole(fetch_all(p.d), p.d, TOKENS);
    assert_int_equal(p.dest->pulled_pages, 14);
    assert_int_equal(retiring(&p), 1);
    rig_engine_done(p.dest, &p.de, 4);
    assert_int_equal(retiring(&p), 1);
    rig_engine_done(p.dest, &p.de, 5);
    assert_int_equal(retiring(&p), 0);
    assert_ok(rig_run_to(p.d, seq1, TOKENS + 3));
    assert_int_equal(rig_wrong(p.d, TOKENS + 3), 0);
    pair_ends_clean(&p, 16, 16);
}

/* Pages for tokens to come are part of the tail: the lengths of the answer show it. */
TEST(s11_pages_behind_what_is_written_are_of_the_tail)
{
    struct pair p = with_tail(1 << 20, 8, 10, TOKENS);

    assert_ok(rig_extend(p.d, TOKENS + 20, 0, NULL, 0));
    assert_leaves_whole(fetch_all(p.d), p.d, TOKENS);
    assert_int_equal(retiring(&p), 21 - 2);
}

TEST(s11_source_with_no_more_leaves_the_tail)
{
    for (uint32_t n = 0; n <= 8; n += 4) {
        struct pair p = with_tail(1 << 20, 4, 10, n);

        assert_ok(fetch_all(p.d));
        assert_untouched(&p, 4, 10);
    }
}

TEST(s11_no_more_asked_for_than_is_written_asks_nobody)
{
    struct pair p = with_tail(1 << 20, 4, 10, TOKENS);

    p.d->at_least = 10;
    assert_ok(fetch_to(p.d, 11));
    assert_untouched(&p, 4, 10);
    assert_int_equal(p.dest->pulled_pages, 0);
}

/* The first chunk that is published is one that covers the written length. */
TEST(s11_transfer_that_breaks_off_before_it_covers_the_tail_leaves_it)
{
    for (uint32_t pages = 0; pages < 3; pages++) {
        struct pair p = with_tail(512, 0, 10, TOKENS);

        fetch_held(&p, RIG_PULL);
        for (uint32_t i = 0; i < pages; i++)
            rig_complete(p.dest, RIG_PULL);
        assert_int_equal(rig_depth(p.d, seq1, TOKENS), 0);
        assert_ok(rig_fetch_cancel(p.d));
        assert_err(TERN_GONE, rig_fetched(p.d, p.d->fetch));
        assert_untouched(&p, 0, 10);
    }
}

TEST(s11_transfer_that_breaks_off_behind_the_tail_keeps_what_came)
{
    struct pair p = with_tail(512, 0, 10, TOKENS);

    fetch_held(&p, RIG_PULL);
    for (uint32_t i = 0; i < 3; i++)
        rig_complete(p.dest, RIG_PULL);
    assert_int_equal(rig_depth(p.d, seq1, TOKENS), 12);
    rig_link_down(p.dest, 0);
    assert_err(TERN_PEER_LOST, rig_fetched(p.d, p.d->fetch));
    assert_whole(p.d, 12);
    assert_int_equal(retiring(&p), 3);
}

/* T8 on arrival: of chunks that another engine is about to publish the session keeps the pages that
 * came, which may be as long as the tail that they replace. Then the lengths are equal and the
 * answer's pages differ. */
TEST(s11_tail_gives_way_to_pages_of_the_same_lengths)
{
    struct pair p = with_tail(512, 0, 8, TOKENS);
    struct rig_engine other = second_engine(p.dest, p.dp);
    struct rig_session *s = rig_session(p.dest, &other, p.dp, 1);
    struct page_ref had[2] = {p.d->table[0][0], p.d->table[0][1]};

    computes_and_commits(s, 1, 8, 8, 4);
    fetch_held(&p, RIG_PULL);
    rig_complete(p.dest, RIG_PULL);
    assert_int_equal(retiring(&p), 0);
    rig_complete(p.dest, RIG_PULL);
    assert_int_equal(retiring(&p), 2);
    assert_ok(rig_fetch_cancel(p.d));
    assert_err(TERN_GONE, rig_fetched(p.d, p.d->fetch));
    assert_lengths(p.d, 0, 8, 8);
    assert_int_equal(rig_reply_to(p.dest, p.d->fetch)->nruns, 1);
    for (uint32_t i = 0; i < 2; i++)
        assert_int_not_equal(p.d->table[0][i].index, had[i].index);
    assert_int_equal(rig_wrong(p.d, 8), 0);
    rig_engine_done(p.dest, &p.de, 5);
    assert_int_equal(retiring(&p), 0);
    assert_ok(rig_run_to(p.d, seq1, TOKENS + 3));
    assert_int_equal(rig_wrong(p.d, TOKENS + 3), 0);
}

TEST(s11_no_room_for_what_would_come_leaves_the_tail)
{
    struct pair p = with_tail(1 << 20, 8, 10, TOKENS);
    struct rig_session *hog = session_with(p.dest, &p.de, p.dp, 2, 220);

    assert_ok(rig_run_to(hog, rig_tokens(2, 220), 220));
    assert_err(TERN_POOL_EXHAUSTED, fetch_all(p.d));
    assert_ok(rig_close(hog, 0));
    assert_untouched(&p, 8, 10);
}

/* The release of the tail has to wait for its step, and no retire record is left for that. */
TEST(s11_no_record_for_the_release_leaves_the_tail)
{
    struct pair p = PAIR_LIMITED(limits.retires = 2, 4, 128, 64);
    struct rig_session *other;

    source_has(&p, 1, TOKENS);
    p.d = asking(&p, 1, TOKENS + 3);
    run_and_commit(p.d, seq1, 10, 8, 0);
    p.d->fetch_step = 5;
    other = asking(&p, 2, 8);
    assert_ok(rig_run_to(other, rig_tokens(2, 8), 8));
    assert_ok(rig_rewind(other, 4, 3));
    assert_ok(rig_rewind(other, 0, 3));
    assert_err(TERN_BUSY, fetch_all(p.d));
    rig_engine_done(p.dest, &p.de, 3);
    assert_untouched(&p, 8, 10);
}

/* Three chunks replace the tail of ten tokens: there are records for all, or the tail stays. */
static void nodes_left(uint32_t left)
{
    struct pair p = PAIR_LIMITED(limits.nodes = 40, 4, 128, 64);
    struct rig_session *hog;
    enum tern_err err;
    uint32_t n;

    source_has(&p, 1, TOKENS);
    p.d = asking(&p, 1, TOKENS + 3);
    run_and_commit(p.d, seq1, 10, 0, 0);
    p.d->fetch_step = 5;
    n = 4 * (p.dest->core->free_nodes.n - left);
    hog = rig_committed(p.dest, &p.de, p.dp, 7, n);
    assert_int_equal(p.dest->core->free_nodes.n, left);
    err = fetch_all(p.d);
    assert_err(TERN_BUSY, err);
    if (left < 3)
        assert_untouched(&p, 0, 10);
    else
        assert_whole(p.d, 4 * left);
    assert_ok(rig_close(hog, 0));
    assert_ok(fetch_all(p.d));
    rig_destroy_all();
}

TEST(s11_no_node_for_all_that_covers_the_tail_leaves_the_tail)
{
    for (uint32_t left = 0; left <= 6; left++)
        nodes_left(left);
}

/* Sessions whose pages wait for step 9 take all retire records but `left`. */
static void take_retires(const struct pair *p, uint32_t left)
{
    for (uint32_t n = 0; p->dest->core->free_retires.n > left; n++) {
        struct rig_session *s = session_with(p->dest, &p->de, p->dp, 9 + n, 2);

        assert_ok(rig_run_to(s, rig_tokens(9 + n, 2), 2));
        assert_ok(rig_close(s, 9));
    }
}

/* The chunks that arrive continue one that waits for step 9: they need a record, and so does the
 * tail. */
static void retires_left(uint32_t left)
{
    struct pair p = PAIR_LIMITED(limits.retires = 24, 4, 128, 64);

    source_has(&p, 1, TOKENS);
    p.d = asking(&p, 1, TOKENS + 3);
    run_and_commit(p.d, seq1, 14, 4, 9);
    p.d->fetch_step = 9;
    take_retires(&p, left);
    assert_err(TERN_BUSY, fetch_all(p.d));
    if (left < 2)
        assert_lengths(p.d, 4, 14, 14);
    else
        assert_true(p.d->len.committed >= 16);
    assert_int_equal(rig_wrong(p.d, p.d->len.written), 0);
    rig_engine_done(p.dest, &p.de, 9);
    assert_ok(fetch_all(p.d));
    assert_whole(p.d, TOKENS);
    rig_destroy_all();
}

TEST(s11_no_record_for_all_that_covers_the_tail_leaves_the_tail)
{
    for (uint32_t left = 1; left <= 5; left++)
        retires_left(left);
}

/* The longest tail that a fetch may replace, with the chunk in which it ends: two records suffice,
 * one for the chunks that cover it and one for the tail. */
TEST(s11_longest_tail_gives_way_to_all_that_covers_it_at_once)
{
    const uint32_t written = 4 + 4 * TAIL_CHUNKS_MAX + 2, covered = written + 2;
    const struct group_layout group = rig_group(4, 512);
    struct rig_options o = rig_defaults();
    struct rig_session *s;
    struct pair p;

    o.limits.nodes = o.limits.slabs = o.limits.token_blocks = o.limits.pages = 8 * TAIL_CHUNKS_MAX;
    o.tenant[0].memory_bytes = 16u << 20;
    o.limits.retires = 24;
    p = pair_with(o, 4, 64, 64);
    assert_ok(rig_pool_open(p.source, p.se.conn[0], &group, 1, 3u << 20, &p.sp));
    assert_ok(rig_pool_open(p.dest, p.de.conn[0], &group, 1, 6u << 20, &p.dp));
    p.source->no_audit = p.dest->no_audit = true;
    s = session_with(p.source, &p.se, p.sp, 1, covered);
    assert_ok(rig_run_to(s, seq1, covered));
    for (uint32_t depth = covered % PIECE; depth <= covered; depth += PIECE)
        assert_ok(rig_commit(s, depth, 0));
    p.d = asking(&p, 1, covered);
    run_and_commit(p.d, seq1, written, 4, 9);
    p.d->fetch_step = 9;
    take_retires(&p, 2);
    assert_ok(fetch_all(p.d));
    assert_whole(p.d, covered);
}

TEST(s11_fetch_that_waits_leaves_the_tail)
{
    struct pair p = with_tail(1 << 20, 8, 10, 8);

    p.d->at_least = TOKENS;
    p.d->wait_ms = 5;
    rig_fetch(p.d, 0, 0);
    for (uint32_t ms = 0; ms < 5 + PULL_WAIT_MS_MAX; ms++)
        rig_advance(p.dest, NS_PER_MS);
    assert_err(TERN_TIMED_OUT, rig_fetched(p.d, p.d->fetch));
    assert_untouched(&p, 8, 10);
}

TEST(s11_abort_while_it_fetches_gives_the_tail_back_once)
{
    struct pair p = with_tail(512, 8, 10, TOKENS);

    fetch_held(&p, RIG_PULL);
    assert_ok(rig_abort(p.d, 7));
    assert_int_equal(retiring(&p), 1);
    p.dest->automatic = RIG_ALL;
    rig_settle(p.dest);
    rig_engine_done(p.dest, &p.de, 7);
    pair_ends_clean(&p, 16, 2);
}

/* --- with STATE --- */

/* Two hosts with chunks of 64 tokens and that STATE; one page at a time is on its way. The source
 * has 320 tokens; p.d may fetch 400, of which it has none yet. */
static struct pair with_state(struct group_layout state_group)
{
    struct rig_options o = rig_defaults();
    struct group_layout groups[2] = {rig_group(64, 512), state_group};
    struct pair p = {0};

    o.limits.peer_bytes_in_flight = 1;
    p.dest = rig_create(&o);
    o.incarnation++;
    p.source = rig_create(&o);
    p.se = rig_engine(p.source, 0, "e", 1);
    p.de = rig_engine(p.dest, 0, "e", 1);
    assert_ok(rig_pool_open(p.source, p.se.conn[0], groups, 2, 1u << 20, &p.sp));
    assert_ok(rig_pool_open(p.dest, p.de.conn[0], groups, 2, 1u << 20, &p.dp));
    rig_link_up(p.dest, 0, p.source, o.limits.peers);
    rig_put(p.source, &p.se, p.sp, 1, 320);
    p.d = session_with(p.dest, &p.de, p.dp, 1, 400);
    p.d->fetch_step = 5;
    return p;
}

/* The session has 150 tokens, 128 of them committed, and its fetch is cancelled after `pages`
 * pages. Returns its written length then. */
static uint32_t state_breaks_off(struct group_layout state_group, uint32_t pages)
{
    struct pair p = with_state(state_group);
    uint32_t w;

    commit_to(p.d, seq1, 128, 0);
    assert_ok(rig_run_to(p.d, seq1, 150));
    fetch_held(&p, RIG_PULL);
    for (uint32_t i = 0; i < pages && !ended(p.d); i++)
        rig_complete(p.dest, RIG_PULL);
    assert_ok(rig_fetch_cancel(p.d));
    if (rig_fetched(p.d, p.d->fetch) == TERN_OK)
        assert_whole(p.d, 320);
    w = p.d->len.written;
    assert_lengths(p.d, w == 150 ? 128 : w, w, w);
    assert_int_equal(rig_wrong(p.d, w), 0);
    runs_right(p.d, seq1, 390);
    return w;
}

/* The session is as it was, or it ends at the deepest resume point that came (its committed length
 * if HISTORY came without STATE), or it has everything. */
TEST(s11_tail_with_state)
{
    const struct group_layout kinds[] = {rig_window(16, 40, 64), rig_window(16, 64, 64),
                                         rig_window(16, 150, 64), rig_recurrent(64, 128)};

    for (uint32_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        uint32_t pages = 0;

        for (; state_breaks_off(kinds[i], pages) == 150; pages++)
            assert_true(pages < 16);
        assert_true(pages > 1);
        assert_int_equal(state_breaks_off(kinds[i], pages), i == 2 ? 192 : 128);
        assert_int_equal(state_breaks_off(kinds[i], 16), 320);
    }
}

/* A RECURRENT page of the committed length would be stale; the snapshot behind it is borrowed. */
TEST(s11_recurrent_page_of_the_committed_length)
{
    struct pair p = with_state(rig_recurrent(64, 128));

    commit_to(p.d, seq1, 128, 0);
    assert_leaves_whole(fetch_all(p.d), p.d, 320);
    runs_right(p.d, seq1, 390);
}

/* T8 on arrival: of a chunk that another engine is about to publish the session keeps the pages
 * that came, and of a prefix that ends in such chunks the state, too. So it can run on. */
TEST(s11_recurrent_page_comes_where_chunks_are_another_engines)
{
    for (uint32_t pending = 192; pending <= 320; pending += 64) {
        struct pair p = with_state(rig_recurrent(64, 128));
        struct rig_engine other = second_engine(p.dest, p.dp);
        struct rig_session *s = rig_session(p.dest, &other, p.dp, 1);

        assert_ok(rig_match(s, seq1, 400));
        commit_to(s, seq1, pending - 64, 0);
        commit_to(s, seq1, pending, 3);
        rig_fetch(p.d, 0, 0);
        assert_true(ended(p.d));
        assert_lengths(p.d, pending - 64, 320, 320);
        assert_int_not_equal(p.d->table[1][0].index, 0);
        assert_int_equal(rig_wrong(p.d, 320), 0);
        rig_engine_done(p.dest, &other, 3);
        commit_to(p.d, seq1, 384, 0);
        runs_right(p.d, seq1, 390);
        assert_int_equal(rig_depth(p.d, seq1, 400), 384);
    }
}

/* A chunk that came waits for a step, its checksums known; a commit adds STATE without any. */
TEST(s11_state_added_to_a_chunk_that_came_gets_its_checksum)
{
    struct pair p = with_state(rig_window(16, 40, 64));
    struct rig_session *s = rig_session(p.dest, &p.de, p.dp, 1);
    struct node_view v;

    assert_ok(rig_match(s, seq1, 400));
    commit_to(s, seq1, 64, 3);
    assert_leaves_whole(fetch_all(p.d), p.d, 320);
    commit_to(s, seq1, 128, 3);
    rig_engine_done(p.dest, &p.de, 3);
    assert_int_equal(rig_depth(p.d, seq1, 400), 320);
    for (uint32_t i = 0; i < p.dest->options.limits.nodes; i++)
        assert_true(!core_node_view(p.dest->core, i, &v) || v.depth == 0 || v.sealed);
}

/* A session that could not go back to its committed length does not fetch. */
TEST(s11_window_that_was_left_refuses_a_fetch)
{
    struct pair p = with_state(rig_window(16, 40, 64));

    run_and_commit(p.d, seq1, 150, 128, 0);
    assert_err(TERN_INVALID, rig_rewind(p.d, 128, 0));
    assert_err(TERN_INVALID, fetch_all(p.d));
    assert_lengths(p.d, 128, 150, 150);
}
