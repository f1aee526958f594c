/* Scenarios of pages and prefixes with HISTORY groups alone: A5, A7, A10 to A14, A19. Each keeps
 * its name and its numbers. */
#include "unit/rig/rig_test.h"

/* Sessions of their own commit sequence `seed` up to 256, 512 and 768. */
static void three_depths(struct rig *rig, const struct rig_engine *e, struct pool_id pool,
                         uint32_t seed)
{
    for (uint32_t depth = 256; depth <= 768; depth += 256)
        rig_put(rig, e, pool, seed, depth);
}

TEST(a5_history_alone_snapshot_removed_at_512_matches_256)
{
    struct bench b = bench_start(256, 64);
    struct rig_session *s;

    three_depths(b.rig, &b.e, b.pool, 1);
    s = rig_session(b.rig, &b.e, b.pool, 1);
    assert_int_equal(rig_depth(s, seq1, 768), 768);
    assert_int_equal(rig_evict(b.rig, b.admin, b.pool, 2), 2); /* 512 cannot go without 768 */
    assert_int_equal(rig_depth(s, seq1, 768), 256);
    matches(s, seq1, 768, 256);
    assert_int_equal(rig_wrong(s, 256), 0);
}

/* The same under pressure: a session short of pages evicts 768 before 512, and never 512 alone. */
TEST(a5_under_pressure_768_goes_with_512)
{
    struct bench b = bench_start(256, 4);
    struct rig_session *s, *other;

    three_depths(b.rig, &b.e, b.pool, 1);
    s = rig_session(b.rig, &b.e, b.pool, 1);
    other = rig_session(b.rig, &b.e, b.pool, 1);
    assert_int_equal(rig_free(b.rig, b.pool), 1);
    takes_pages(other, rig_tokens(2, 768), 768, 768); /* needs 3 pages: two come from the tree */
    assert_int_equal(rig_depth(s, seq1, 768), 256);
}

TEST(a7_no_snapshot_matches_0_with_snapshot_at_256_matches_256)
{
    struct bench b = bench_start(256, 16);
    struct rig_session *writer = rig_session(b.rig, &b.e, b.pool, 1),
                       *reader = rig_session(b.rig, &b.e, b.pool, 1);

    computes(writer, 1, 320);
    assert_int_equal(rig_depth(reader, seq1, 320), 0);
    assert_leaves(rig_commit(writer, 256, 0), writer, 256, 320, 320);
    assert_int_equal(rig_depth(reader, seq1, 320), 256);
    matches(reader, seq1, 320, 256);
    assert_whole(reader, 256);
}

TEST(a10_rewind_to_5_gives_one_page_back)
{
    struct bench b = bench_start(2, 7);
    struct group_view v;

    assert_int_equal(rig_free(b.rig, b.pool), 7);
    computes_and_commits(b.s, 1, 8, 4, 0);
    assert_lengths(b.s, 4, 8, 8);
    v = rig_group_view(b.rig, b.pool, 0);
    assert_int_equal(v.session + v.snapshot, 4);
    assert_int_equal(v.free, 3);
    assert_leaves(rig_rewind(b.s, 5, 0), b.s, 4, 5, 5);
    v = rig_group_view(b.rig, b.pool, 0);
    assert_int_equal(v.session + v.snapshot, 3);
    assert_int_equal(v.free, 4);
}

TEST(a11_speculation_accepted_in_part_commits_4)
{
    struct bench b = bench_start(2, 16);
    struct rig_session *s = rig_session(b.rig, &b.e, b.pool, 1),
                       *other = rig_session(b.rig, &b.e, b.pool, 1);

    assert_int_equal(rig_pool_view(b.rig, b.pool).align_tokens, 2);
    computes_tokens(s, seq1, 3);
    assert_leaves(rig_extend(s, 7, 0, NULL, 0), s, 0, 3, 7); /* four more, speculative */
    assert_ok(rig_extend(s, 0, 5, seq1 + 3, 2));             /* two are accepted */
    rig_write(s, 0, 5);
    assert_lengths(s, 0, 5, 7);
    assert_leaves(rig_commit(s, 4, 0), s, 4, 5, 7);
    assert_int_equal(rig_depth(other, seq1, 7), 4);
}

TEST(a12_evict_brings_every_group_back_to_its_start)
{
    struct rig *rig = rig_create(NULL);
    struct rig_engine e = rig_engine(rig, 0, "e", 1);
    struct group_layout groups[2] = {rig_group(2, 512), rig_group(4, 1024)};
    uint32_t admin = rig_connect_admin(rig);
    struct pool_id pool;
    uint32_t start[2], spare = 0;

    groups[0].cap_pages = 24;
    groups[1].cap_pages = 16;
    assert_ok(rig_pool_open(rig, e.conn[0], groups, 2, 64 << 10, &pool));
    for (uint32_t g = 0; g < 2; g++)
        start[g] = rig_group_view(rig, pool, g).free;
    rig_put(rig, &e, pool, 1, 16);
    for (uint32_t g = 0; g < 2; g++)
        spare += rig_group_view(rig, pool, g).snapshot;
    assert_int_equal(spare, 8 + 4);
    assert_int_equal(rig_evict(rig, admin, pool, 0), 4);
    for (uint32_t g = 0; g < 2; g++) {
        assert_int_equal(rig_group_view(rig, pool, g).free, start[g]);
        assert_int_equal(rig_group_view(rig, pool, g).snapshot, 0);
    }
}

TEST(a13_pinned_oldest_leaf_is_skipped_and_evictable_after_unpin)
{
    struct bench b = bench_start(4, 32);
    struct rig_session *holder, *like = rig_session(b.rig, &b.e, b.pool, 1);

    holder = rig_committed(b.rig, &b.e, b.pool, 1, 4); /* the oldest, pinned by its session */
    rig_advance(b.rig, 1000);
    rig_put(b.rig, &b.e, b.pool, 2, 4);
    assert_int_equal(rig_evict(b.rig, b.admin, b.pool, 1), 1);
    assert_int_equal(rig_depth(like, seq1, 4), 4);
    assert_int_equal(rig_depth(like, rig_tokens(2, 4), 4), 0);
    assert_int_equal(rig_evict(b.rig, b.admin, b.pool, 0), 0); /* no other one may go */
    assert_int_equal(rig_depth(like, seq1, 4), 4);
    assert_ok(rig_close(holder, 0));
    assert_int_equal(rig_evict(b.rig, b.admin, b.pool, 1), 1);
    assert_int_equal(rig_depth(like, seq1, 4), 0);
}

/* Two sessions commit in one Step and close in one Step: their leaves have the same last use.
 * `reversed`: the second commits first; `shuffle` rotates the free slots, so that a slot number
 * cannot stand for the sequence. */
static void equal_last_use(bool reversed, uint32_t shuffle)
{
    struct rig *rig = rig_create(NULL);
    struct rig_engine e = rig_engine(rig, 0, "e", 1);
    struct pool_id pool = rig_pool_pages(rig, &e, 4, 32);
    uint32_t admin = rig_connect_admin(rig), first = reversed ? 1 : 0;
    struct rig_session *s[2], *like = rig_session(rig, &e, pool, 1);
    struct step_op commit[2], close[2];
    const struct reply *reply;

    for (uint32_t i = 0; i < shuffle; i++)
        rig_put(rig, &e, pool, 10 + i, 4);
    rig_evict(rig, admin, pool, 0);
    for (uint32_t i = 0; i < 2; i++) {
        s[i] = rig_session(rig, &e, pool, 1);
        computes(s[i], 1 + i, 4);
    }
    for (uint32_t i = 0; i < 2; i++) {
        struct rig_session *of = s[i ? !first : first];

        commit[i] = (struct step_op){.kind = STEP_COMMIT, .session = of->id, .length = 4};
        close[i] = (struct step_op){.kind = STEP_CLOSE, .session = s[i]->id};
    }
    reply = rig_step_ops(rig, e.conn[0], commit, 2);
    assert_ok(reply->step.results[0].err);
    assert_ok(reply->step.results[1].err);
    reply = rig_step_ops(rig, e.conn[0], close, 2);
    assert_ok(reply->step.results[0].err);
    assert_int_equal(rig_evict(rig, admin, pool, 1), 1);
    assert_int_equal(rig_depth(like, rig_tokens(1 + first, 4), 4), 0);
    assert_int_equal(rig_depth(like, rig_tokens(1 + !first, 4), 4), 4);
}

/* One Step uses both again, the first committed one last: all uses of a Step are equally old. */
TEST(a14_used_again_in_one_step_the_smaller_sequence_number_goes_first)
{
    struct bench b = bench_start(4, 32);
    struct rig_session *s[2];
    struct step_op ops[2];

    for (uint32_t i = 0; i < 2; i++)
        s[i] = rig_committed(b.rig, &b.e, b.pool, 1 + i, 4);
    for (uint32_t i = 0; i < 2; i++)
        ops[i] = (struct step_op){.kind = STEP_REWIND, .session = s[!i]->id, .length = 4};
    assert_ok(rig_step_ops(b.rig, b.e.conn[0], ops, 2)->step.results[1].err);
    for (uint32_t i = 0; i < 2; i++) {
        assert_ok(rig_close(s[!i], 0));
    }
    assert_int_equal(rig_evict(b.rig, b.admin, b.pool, 1), 1);
    assert_int_equal(rig_depth(b.s, seq1, 4), 0);
    assert_int_equal(rig_depth(b.s, rig_tokens(2, 4), 4), 4);
}

TEST(a14_equal_last_use_the_smaller_sequence_number_goes_first)
{
    for (uint32_t shuffle = 0; shuffle < 4; shuffle++) {
        equal_last_use(false, shuffle);
        equal_last_use(true, shuffle);
    }
}

/* Returns the hash at the end: one history must lead to one choice and one hash. */
static uint64_t two_exhaust_the_pool(void)
{
    struct rig *rig = rig_create(NULL);
    struct rig_engine e = rig_engine(rig, 0, "e", 1);
    struct pool_id pool = rig_pool_pages(rig, &e, 4, 6);
    struct rig_session *first = rig_session(rig, &e, pool, 1),
                       *later = rig_session(rig, &e, pool, 1);
    uint64_t hash;

    assert_ok(rig_match(first, seq1, 32));
    assert_ok(rig_match(later, rig_tokens(2, 32), 32));
    assert_ok(rig_run_to(first, seq1, 12));
    assert_ok(rig_run_to(later, rig_tokens(2, 32), 8));
    assert_ok(rig_extend(first, 16, 0, NULL, 0)); /* the last page */
    assert_err(TERN_POOL_EXHAUSTED, rig_extend(later, 12, 0, NULL, 0));
    assert_lengths(later, 0, 8, 8);
    assert_int_equal(rig->res.shortage.group, 0);
    assert_int_equal(rig->res.shortage.needed, 1);
    assert_int_equal(rig->res.shortage.free, 0);
    assert_int_equal(rig->res.shortage.evictable, 0);
    assert_int_equal(rig->res.shortage.retiring, 0);
    assert_int_equal(rig->res.shortage.until_step, 0);
    rig_write(first, 12, 16);
    assert_ok(rig_extend(first, 0, 16, NULL, 0)); /* the other session continues */
    assert_ok(rig_commit(first, 16, 0));
    assert_int_equal(rig_wrong(first, 16), 0);
    assert_int_equal(rig_wrong(later, 8), 0);
    hash = core_hash(rig->core);
    return hash;
}

TEST(a19_later_extend_is_refused_always_the_same_one)
{
    assert_true(two_exhaust_the_pool() == two_exhaust_the_pool());
}
