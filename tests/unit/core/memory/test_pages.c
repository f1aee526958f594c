/* Pages and slabs: indices, generations, and slabs that groups take while they run (T1, T4). */
#include "unit/rig/rig_test.h"

/* Index 0 is never handed out, indices are unique within a group, and generations pass. */
TEST(page_every_index_unique_and_never_zero)
{
    struct bench b = bench_start(4, 4);
    struct pool_id pool;
    struct group_layout group = rig_group(1, 512);
    struct rig_session *s;
    uint32_t n;
    bool seen[64] = {false};

    assert_ok(rig_pool_open(b.rig, b.e.conn[0], &group, 1, 64 * 512, &pool));
    n = rig_free(b.rig, pool);
    assert_int_equal(n, 63); /* all but the reserved one */
    s = rig_session(b.rig, &b.e, pool, 1);
    takes_pages(s, NULL, 0, n);
    assert_err(TERN_QUOTA, rig_extend(s, n + 1, 0, NULL, 0));
    for (uint32_t i = 0; i < n; i++) {
        uint32_t index = s->table[0][i].index;

        assert_in_range(index, 1, 63);
        assert_false(seen[index]);
        seen[index] = true;
    }
}

TEST(page_handed_out_again_has_another_generation)
{
    struct bench b = bench_start(4, 1);
    struct page_ref last = {0, 0};

    assert_ok(rig_match(b.s, seq1, 8));
    for (int i = 0; i < 5; i++) {
        assert_ok(rig_extend(b.s, 4, 0, NULL, 0));
        assert_int_not_equal(b.s->table[0][0].gen, 0);
        if (i)
            assert_true(b.s->table[0][0].gen > last.gen && b.s->table[0][0].index == last.index);
        last = b.s->table[0][0];
        assert_ok(rig_rewind(b.s, 0, 0));
    }
}

/* Groups of different page size exchange slabs: what one returns the other can take, and no byte is
 * in both meanwhile. */
TEST(slab_moves_between_groups_of_unlike_page_size)
{
    struct bench b = bench_start(4, 4);
    struct group_layout small = rig_group(4, 512), large = rig_group(64, 4096);
    struct group_layout groups[2] = {small, large};
    struct pool_id pool;
    struct rig_session *s, *t;
    uint32_t free0, free1;

    assert_ok(rig_pool_open(b.rig, b.e.conn[0], groups, 2, 8 * 4096, &pool));
    free0 = rig_group_view(b.rig, pool, 0).free;
    free1 = rig_group_view(b.rig, pool, 1).free;
    assert_int_equal(free0, 56);
    assert_int_equal(free1, 7);
    for (uint32_t round = 0; round < 6; round++) {
        s = rig_session(b.rig, &b.e, pool, 1);
        t = rig_session(b.rig, &b.e, pool, 1);
        assert_ok(rig_match(s, rig_tokens(10 + round, 128), 128));
        assert_ok(rig_match(t, rig_tokens(20 + round, 128), 128));
        assert_ok(rig_run_to(s, rig_tokens(10 + round, 128), round % 2 ? 64 : 100));
        assert_int_equal(rig_group_view(b.rig, pool, 1).free, round % 2 ? 4 : 1);
        if (rig_run_to(t, rig_tokens(20 + round, 128), 32) == TERN_OK)
            assert_int_equal(rig_wrong(t, 32), 0);
        closes_whole(s, round % 2 ? 64 : 100);
        closes_whole(t, t->len.written);
        assert_int_equal(rig_group_view(b.rig, pool, 0).free, free0);
        assert_int_equal(rig_group_view(b.rig, pool, 1).free, free1);
    }
}

/* Each group fits alone, but not both: all groups of a pool take from the same slabs. */
TEST(extend_groups_fit_alone_not_together_takes_nothing)
{
    struct bench b = bench_start(4, 4);
    struct group_layout groups[2] = {rig_group(4, 512), rig_group(4, 1024)};
    struct pool_id pool;
    struct rig_session *s;
    struct pool_view v;

    assert_ok(rig_pool_open(b.rig, b.e.conn[0], groups, 2, 5 * 1024,
                            &pool)); /* 4 slabs of 1024 and the reserved one */
    v = rig_pool_view(b.rig, pool);
    assert_int_equal(v.slab_bytes, 1024);
    assert_int_equal(v.group[0].free, 8);
    assert_int_equal(v.group[1].free, 4);
    s = session_with(b.rig, &b.e, pool, 1, 32);
    assert_err(TERN_QUOTA, rig_extend(s, 16, 0, NULL, 0)); /* 4 x 512 + 4 x 1024 */
    assert_lengths(s, 0, 0, 0);
    assert_int_equal(rig_pool_view(b.rig, pool).slabs_free, v.slabs_free);
    assert_ok(rig_extend(s, 8, 0, NULL, 0));
    assert_err(TERN_QUOTA, rig_extend(s, 12, 0, NULL, 0)); /* 3 x 512 + 3 x 1024 is 4.5 slabs */
    assert_lengths(s, 0, 0, 8);
}
