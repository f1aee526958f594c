/* Pools and what they are made of: slabs that groups take at run time, indices and generations
 * (T1), closing and the zeroing of a range before its next use (T15, P3). */
#include "core/memory/pages.h"
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
    assert_ok(rig_match(s, NULL, 0));
    assert_ok(rig_extend(s, n, 0, NULL, 0));
    assert_err(TERN_POOL_EXHAUSTED, rig_extend(s, n + 1, 0, NULL, 0));
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

    assert_ok(rig_match(b.s, rig_tokens(1, 8), 8));
    for (int i = 0; i < 5; i++) {
        assert_ok(rig_extend(b.s, 4, 0, NULL, 0));
        assert_int_not_equal(b.s->table[0][0].gen, 0);
        if (i)
            assert_true(b.s->table[0][0].gen > last.gen && b.s->table[0][0].index == last.index);
        last = b.s->table[0][0];
        assert_ok(rig_rewind(b.s, 0, 0));
    }
}

/* Groups of unlike page size trade slabs: what one gives up the other can have, and no byte is
 * shared meanwhile. */
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
        assert_int_equal(rig_wrong(s, round % 2 ? 64 : 100), 0);
        assert_ok(rig_close(s, 0));
        assert_int_equal(rig_wrong(t, t->len.written), 0);
        assert_ok(rig_close(t, 0));
        assert_int_equal(rig_group_view(b.rig, pool, 0).free, free0);
        assert_int_equal(rig_group_view(b.rig, pool, 1).free, free1);
    }
}

/* Both groups fit alone, but not together: slabs are one currency for all groups of a pool. */
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
    s = rig_session(b.rig, &b.e, pool, 1);
    assert_ok(rig_match(s, rig_tokens(1, 32), 32));
    assert_err(TERN_POOL_EXHAUSTED, rig_extend(s, 16, 0, NULL, 0)); /* 4 x 512 + 4 x 1024 */
    assert_lengths(s, 0, 0, 0);
    assert_int_equal(rig_pool_view(b.rig, pool).slabs_free, v.slabs_free);
    assert_ok(rig_extend(s, 8, 0, NULL, 0));
    assert_err(TERN_POOL_EXHAUSTED,
               rig_extend(s, 12, 0, NULL, 0)); /* 3 x 512 + 3 x 1024 is 4.5 slabs */
    assert_lengths(s, 0, 0, 8);
}

/* T15: the pool's snapshots go before the pool; its range is zeroed before it is used for anything
 * else, and not before everyone who mapped it is gone. */
TEST(pool_close_zeroes_before_reuse_of_its_range)
{
    struct rig_options options = rig_defaults();
    struct bench b;
    struct rig_engine other;
    struct group_layout group = rig_group(8, 1024);
    struct pool_id next;
    struct pool_view v;

    options.tenant[0].memory_bytes = 1u << 20; /* one pool fills the tenant */
    b = bench_with(&options, 4, 16);
    other = rig_engine(b.rig, 0, "o", 1);
    rig_put(b.rig, &b.e, b.pool, 1, 16);
    assert_ok(rig_close(b.s, 0));
    v = rig_pool_view(b.rig, b.pool);
    b.rig->automatic = RIG_ALL & ~(uint32_t)RIG_ZERO;
    assert_err(TERN_QUOTA, rig_pool_open(b.rig, other.conn[0], &group, 1, 1u << 20, &next));
    assert_ok(rig_pool_close(b.rig, b.e.conn[0], b.pool));
    assert_int_equal(rig_jobs(b.rig, RIG_ZERO), 0); /* the engine still maps it */
    assert_int_not_equal(rig_pool_open(b.rig, other.conn[0], &group, 1, 1u << 20, &next), TERN_OK);
    rig_engine_kill(b.rig, &b.e, 0);
    assert_int_equal(rig_jobs(b.rig, RIG_ZERO), 1);
    assert_int_not_equal(rig_pool_open(b.rig, other.conn[0], &group, 1, 1u << 20, &next), TERN_OK);
    rig_complete(b.rig, RIG_ZERO);
    for (uint64_t i = 0; i < v.bytes; i++)
        assert_int_equal(b.rig->bytes[0][v.offset + i], 0);
    assert_ok(rig_pool_open(b.rig, other.conn[0], &group, 1, 1u << 20, &next));
    assert_int_equal(rig_pool_view(b.rig, next).offset, v.offset);
    assert_false(pool_id_equal(next, b.pool));
}

TEST(pool_close_with_open_sessions_conflicts_then_everything_of_it_is_gone)
{
    struct bench b = bench_start(4, 16);
    struct rig_session other;

    rig_put(b.rig, &b.e, b.pool, 2, 16);
    assert_err(TERN_CONFLICT, rig_pool_close(b.rig, b.e.conn[0], b.pool));
    assert_ok(rig_match(b.s, rig_tokens(1, 16), 16)); /* and nothing has changed */
    assert_ok(rig_close(b.s, 0));
    assert_err(TERN_GONE,
               rig_pool_close(b.rig, b.e.conn[0], (struct pool_id){b.pool.slot, b.pool.gen + 1}));
    assert_ok(rig_pool_close(b.rig, b.e.conn[0], b.pool));
    assert_err(TERN_GONE, rig_pool_close(b.rig, b.e.conn[0], b.pool));
    assert_err(TERN_GONE, rig_session_open(b.rig, b.e.conn[0], b.pool, 1, &other));
    assert_int_equal(rig_view(b.rig).nodes, 0);
    rig_engine_kill(b.rig, &b.e, 0);
    assert_int_equal(rig_view(b.rig).pools, 0);
}

/* The prefixes of an engine that died serve the next one of its tenant that asks for the same
 * layout (P4). */
TEST(pool_of_a_dead_engine_keeps_its_prefixes_for_the_next)
{
    struct bench b = bench_start(4, 16);
    struct rig_engine next;
    struct rig_session *s;
    struct pool_id pool;

    rig_put(b.rig, &b.e, b.pool, 1, 16);
    rig_engine_kill(b.rig, &b.e, 0);
    next = rig_engine(b.rig, 0, "next", 1);
    pool = rig_pool_pages(b.rig, &next, 4, 16);
    s = rig_session(b.rig, &next, pool, 1);
    assert_ok(rig_match(s, rig_tokens(1, 16), 16));
    assert_int_equal(s->matched, 16);
    assert_int_equal(rig_wrong(s, 16), 0);
}

/* Every word of the request counts: a pool that would behave otherwise is not handed out for it. */
TEST(pool_of_a_dead_engine_is_had_again_only_as_it_was)
{
    struct rig *rig = rig_create(NULL);
    struct rig_engine first = rig_engine(rig, 0, "first", 1), next, wide;
    struct group_layout g[2] = {rig_group(4, 512), rig_window(4, 8, 512)}, other;
    struct pool_id pool, got;

    g[0].cap_pages = 32;
    assert_ok(rig_pool_open(rig, first.conn[0], g, 2, 1u << 16, &pool));
    rig_engine_kill(rig, &first, 0);
    next = rig_engine(rig, 0, "next", 1);
    wide = rig_engine(rig, 0, "wide", 2);
    for (rig->supersede = SUPERSEDE_EAGER; rig->supersede <= SUPERSEDE_OFF; rig->supersede++) {
        assert_ok(rig_pool_open(rig, next.conn[0], g, 2, 1u << 16, &got));
        assert_false(pool_id_equal(got, pool));
    }
    rig->supersede = SUPERSEDE_LAZY;
    assert_ok(rig_pool_open(rig, next.conn[0], g, 2, 1u << 15, &got));
    assert_false(pool_id_equal(got, pool));
    other = g[0];
    g[0].cap_pages = 31;
    assert_ok(rig_pool_open(rig, next.conn[0], g, 2, 1u << 16, &got));
    assert_false(pool_id_equal(got, pool));
    g[0] = other;
    g[1].window = 12;
    assert_ok(rig_pool_open(rig, next.conn[0], g, 2, 1u << 16, &got));
    assert_false(pool_id_equal(got, pool));
    g[1].window = 8;
    assert_ok(rig_pool_open(rig, wide.conn[0], g, 2, 1u << 16, &got));
    assert_false(pool_id_equal(got, pool));
    assert_ok(rig_pool_open(rig, next.conn[0], g, 2, 1u << 16, &got));
    assert_true(pool_id_equal(got, pool));
}

/* Two that nobody maps: the older one makes way. */
TEST(pool_opened_first_makes_way_first)
{
    struct rig_options options = rig_defaults();
    struct group_layout other = rig_group(8, 1024);
    struct rig_engine first, next;
    struct pool_id older, younger, pool;
    struct rig *rig;

    options.tenant[0].memory_bytes = 2u << 20;
    rig = rig_create(&options);
    first = rig_engine(rig, 0, "first", 1);
    older = rig_pool_pages(rig, &first, 4, 16);
    younger = rig_pool_pages(rig, &first, 4, 17);
    rig_engine_kill(rig, &first, 0);
    next = rig_engine(rig, 0, "next", 1);
    assert_err(TERN_BUSY, rig_pool_open(rig, next.conn[0], &other, 1, 1u << 20, &pool));
    assert_ok(rig_pool_open(rig, next.conn[0], &other, 1, 1u << 20, &pool));
    assert_int_equal(pool.slot, older.slot);
    assert_true(pool_id_equal(rig_pool_pages(rig, &next, 4, 17), younger));
}

/* T11 for pools: what can never fit costs nobody a pool. */
TEST(pool_that_can_never_fit_takes_no_other)
{
    struct rig_options options = rig_defaults();
    struct group_layout group = rig_group(4, 512), small = rig_group(4, 64);
    struct rig_engine next;
    struct bench b;
    struct pool_id pool;

    options.limits.pages = 8192;
    b = bench_with(&options, 4, 16);
    rig_put(b.rig, &b.e, b.pool, 1, 16);
    rig_engine_kill(b.rig, &b.e, 0);
    next = rig_engine(b.rig, 0, "next", 1);
    for (uint32_t i = 0; i < 3; i++) {
        assert_err(TERN_QUOTA, rig_pool_open(b.rig, next.conn[0], &group, 1, 8u << 20, &pool));
        assert_err(TERN_BUSY, rig_pool_open(b.rig, next.conn[0], &small, 1, 1u << 20, &pool));
        b.rig->host_bytes = 2u << 20;
        assert_err(TERN_QUOTA, rig_pool_open(b.rig, next.conn[0], &group, 1, 1u << 20, &pool));
        b.rig->host_bytes = 0;
    }
    assert_true(pool_id_equal(rig_pool_pages(b.rig, &next, 4, 16), b.pool));
}

/* N3: only pools of one geometry exchange pages as they are. Each word of it counts. */
TEST(layouts_differ_in_each_word)
{
    struct req_pool_open a = {.ngroups = 2, .axes_hash = 7}, b;
    uint64_t same;

    a.group[0] = rig_group(4, 512);
    a.group[1] = rig_window(4, 8, 64);
    same = layout_hash(&a, 2);
    assert_true(layout_hash(&a, 2) == same);
    assert_true(layout_hash(&a, 3) != same);
#define DIFFERS(change)                                                                            \
    b = a;                                                                                         \
    b.change;                                                                                      \
    assert_true(layout_hash(&b, 2) != same)
    DIFFERS(ngroups--);
    DIFFERS(shard++);
    DIFFERS(axes_hash++);
    DIFFERS(group[0].page_tokens *= 2);
    DIFFERS(group[0].page_bytes *= 2);
    DIFFERS(group[1].units *= 2);
    DIFFERS(group[1].family = FAMILY_RECURRENT);
    DIFFERS(group[1].window *= 2);
    DIFFERS(group[1].reserve *= 2);
    DIFFERS(group[0] = a.group[1]; b.group[1] = a.group[0]);
#undef DIFFERS
    a.bytes = 1;
    a.host_bytes = 1;
    a.group[0].cap_pages = 1;
    a.supersede = SUPERSEDE_OFF;
    assert_true(layout_hash(&a, 2) == same); /* each host's own business */
}
