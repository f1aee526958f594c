/* The scenarios of engines, steps and identity: E-a, E-b (the core's part), E-c, E-d, N-a. Each
 * keeps its name and its numbers. */
#include "unit/rig/rig_test.h"

/* Fills every page of the pool with one session of `pages` pages of 4 tokens. */
static struct rig_session *filled(struct rig *rig, const struct rig_engine *e, struct pool_id pool,
                                  uint32_t seed, uint32_t pages)
{
    struct rig_session *s = rig_session(rig, e, pool, 1);

    computes(s, seed, 4 * pages);
    return s;
}

TEST(e_a_freed_at_7_not_reused_until_both_ranks_are_at_7)
{
    struct rig *rig = rig_create(NULL);
    struct rig_engine e = rig_engine(rig, 0, "e", 2);
    struct pool_id pool = rig_pool_pages(rig, &e, 4, 4);
    struct rig_session *s = filled(rig, &e, pool, 1, 4), *next = rig_session(rig, &e, pool, 1);

    rig_step_done(rig, e.id, 0, 6);
    rig_step_done(rig, e.id, 1, 6);
    assert_ok(rig_close(s, 7));
    rig_step_done(rig, e.id, 0, 7);
    assert_int_equal(rig_free(rig, pool), 0);
    assert_int_equal(rig_retiring(rig, pool), 4);
    assert_true(core_waits_for_steps(rig->core));
    assert_ok(rig_match(next, rig_tokens(2, 16), 16));
    assert_err(TERN_POOL_EXHAUSTED, rig_extend(next, 4, 0, NULL, 0));
    rig_step_done(rig, e.id, 1, 7);
    assert_int_equal(rig_free(rig, pool), 4);
    assert_false(core_waits_for_steps(rig->core));
    assert_ok(rig_extend(next, 16, 0, NULL, 0));
}

/* Fault 3: the dead leader's pages stay the engine's while its other processes write. */
TEST(e_b_leader_killed_nothing_reused_before_the_last_exits)
{
    struct rig *rig = rig_create(NULL);
    struct rig_engine e = rig_engine(rig, 0, "e", 4), other = rig_engine(rig, 0, "other", 1);
    struct pool_id pool = rig_pool_pages(rig, &e, 4, 4);
    struct pool_view v;

    (void)other;
    filled(rig, &e, pool, 1, 4);
    rig_engine_kill(rig, &e, 0); /* the leader */
    for (uint32_t r = 1; r < 4; r++) {
        v = rig_pool_view(rig, pool);
        assert_int_equal(v.group[0].free, 0); /* the others still write */
        assert_int_equal(rig->engines_gone, 0);
        rig_advance(rig, 2000000000u);
        for (uint32_t k = r; k < 4; k++)
            rig_step_done(rig, e.id, k, 100 + r);
        assert_int_equal(rig_pool_view(rig, pool).group[0].free, 0);
        rig_engine_kill(rig, &e, r);
    }
    assert_int_equal(rig->engines_gone, 1);
    assert_true(engine_id_equal(rig->engine_gone, e.id));
    assert_true(rig->engines_stuck >=
                1); /* the alarm when the leader was gone and the others were not */
    if (core_pool_view(rig->core, pool.slot, &v) && v.id.gen == pool.gen)
        assert_int_equal(v.group[0].free, v.group[0].total);
}

TEST(e_c_all_retiring_exhausted_names_the_step_and_succeeds_after_it)
{
    struct bench b = bench_start(4, 4);
    struct rig_session *s[2], *next = rig_session(b.rig, &b.e, b.pool, 1);

    s[0] = filled(b.rig, &b.e, b.pool, 1, 3);
    s[1] = filled(b.rig, &b.e, b.pool, 2, 1);
    assert_ok(rig_close(s[0], 12));
    assert_ok(rig_close(s[1], 14));
    assert_ok(rig_match(next, rig_tokens(3, 16), 16));
    assert_err(TERN_POOL_EXHAUSTED, rig_extend(next, 16, 0, NULL, 0));
    assert_int_equal(b.rig->res.shortage.needed, 4);
    assert_int_equal(b.rig->res.shortage.free, 0);
    assert_int_equal(b.rig->res.shortage.retiring, 4);
    assert_true(b.rig->res.shortage.until_step == 14);
    rig_step_done(b.rig, b.e.id, 0, 13);
    assert_err(TERN_POOL_EXHAUSTED, rig_extend(next, 16, 0, NULL, 0));
    assert_int_equal(b.rig->res.shortage.free, 3);
    assert_int_equal(b.rig->res.shortage.retiring, 1);
    rig_step_done(b.rig, b.e.id, 0, 14);
    assert_ok(rig_extend(next, 16, 0, NULL, 0));
}

TEST(e_d_commit_at_9_not_found_at_8_found_at_9)
{
    struct bench b = bench_start(4, 16);
    struct rig_session *s = filled(b.rig, &b.e, b.pool, 1, 4),
                       *early = rig_session(b.rig, &b.e, b.pool, 1),
                       *late = rig_session(b.rig, &b.e, b.pool, 1);

    assert_leaves(rig_commit(s, 16, 9), s, 16, 16, 16); /* the session itself uses them at once */
    rig_step_done(b.rig, b.e.id, 0, 8);
    assert_int_equal(rig_depth(early, seq1, 16), 0);
    matches(early, seq1, 16, 0);
    rig_step_done(b.rig, b.e.id, 0, 9);
    assert_int_equal(rig_depth(late, seq1, 16), 16);
    matches(late, seq1, 16, 16);
    assert_int_equal(rig_wrong(late, 16), 0);
}

TEST(n_a_other_extra_key_at_600_matches_576)
{
    struct bench b = bench_start(64, 64);
    struct rig_session *s = rig_session(b.rig, &b.e, b.pool, 1),
                       *other = rig_session(b.rig, &b.e, b.pool, 1);
    struct extra_key cat = {.position = 600, .hi = 1, .lo = 2},
                     dog = {.position = 600, .hi = 1, .lo = 3};
    struct req_tokens with_cat = {.v = seq1, .n = 1024, .keys = &cat, .nkeys = 1};
    struct req_tokens with_dog = with_cat, plain = with_cat;

    with_dog.keys = &dog;
    plain.nkeys = 0;
    assert_ok(rig_match_full(s, &with_cat, 0));
    commit_to(s, seq1, 1024, 0);
    assert_int_equal(depth_with_keys(other, &with_cat), 1024);
    assert_int_equal(depth_with_keys(other, &with_dog), 576);
    assert_int_equal(depth_with_keys(other, &plain), 576);
    matches_full(other, &with_dog, 0, 576);
    assert_int_equal(rig_wrong(other, 576), 0);
}
