/* Which prefixes are evicted first, which stay, and which tier loses its copy (T11 to T13). */

#include "unit/rig/rig_host.h"

/* --- which copy goes first --- */

TEST(host_room_is_made_of_the_least_recently_used_leaves)
{
    struct bench b = host_bench(4, 16, 4);

    put(&b, 1, 8);
    put(&b, 2, 4);
    put(&b, 3, 4);
    assert_int_equal(host_free(b.rig, b.pool, 0), 0);
    put(&b, 1, 8); /* used again: now 2 is the oldest */
    put(&b, 4, 4);
    assert_false(on_host(&b, 2, 4));
    assert_true(on_device(&b, 2, 4)); /* the device keeps its copy */
    assert_true(on_host(&b, 4, 4) && on_host(&b, 3, 4) && on_host(&b, 1, 8));
    put(&b, 5, 4);
    assert_false(on_host(&b, 3, 4));
    put(&b, 6, 4); /* the leaf of 1 before its parent */
    assert_true(on_host(&b, 1, 4));
    assert_false(on_host(&b, 1, 8));
    put(&b, 7, 12); /* a path evicts none of its own nodes to make room for itself */
    assert_true(on_host(&b, 7, 12));
    put(&b, 7, 20);
    assert_true(on_host(&b, 7, 16));
    assert_false(on_host(&b, 7, 20));
    bench_ends_clean(&b);
}

TEST(what_is_on_the_host_alone_is_demoted_leaf_first_then_gone)
{
    struct bench b = host_bench(4, 64, 6);
    uint32_t nodes;

    put(&b, 1, 12);
    put(&b, 2, 8);
    nodes = rig_pool_view(b.rig, b.pool).nodes;
    assert_int_equal(rig_free(b.rig, b.pool), 64 - 5);
    assert_int_equal(evicts(&b, 1), 1);
    assert_false(on_device(&b, 1, 12)); /* the oldest one, leaf first */
    assert_true(on_device(&b, 1, 8));
    assert_int_equal(evicts(&b, 2), 2);
    assert_false(on_device(&b, 1, 4));
    assert_true(on_device(&b, 2, 8));
    assert_int_equal(evicts(&b, 2), 2);
    assert_false(on_device(&b, 2, 4));
    assert_int_equal(rig_free(b.rig, b.pool), 64);
    assert_int_equal(rig_pool_view(b.rig, b.pool).nodes, nodes); /* all are still in the tree */
    assert_int_equal(host_depth(b.s, seq1, 12), 12);
    assert_int_equal(host_depth(b.s, rig_tokens(2, 8), 8), 8);
    put(&b, 3, 8); /* one is free, two are needed: the leaf of 1 is destroyed */
    assert_false(is_there(&b, 1, 12));
    assert_true(is_there(&b, 1, 8));
    assert_int_equal(host_depth(b.s, seq1, 12), 8);
    bench_ends_clean(&b);
}

/* An operator's eviction: nodes that a session pins on the device also keep their copy on the host.
 * The answer has the pages that came free on each tier. */
TEST(evict_leaves_what_is_held_on_either_tier)
{
    struct bench b = host_bench(4, 64, 64);

    put(&b, 1, 12);
    put(&b, 2, 8);
    assert_ok(rig_match(b.s, seq1, 8)); /* its path is the oldest on the host */
    assert_int_equal(b.s->len.committed, 8);
    assert_int_equal(evicts(&b, 4), 4); /* 12, both of 2, and the first on the host */
    assert_int_equal(b.rig->last->evict.pages, 3);
    assert_int_equal(b.rig->last->evict.host_pages, 1);
    assert_int_equal(evicts(&b, 0), 2);
    assert_int_equal(b.rig->last->evict.pages, 0);
    assert_int_equal(b.rig->last->evict.host_pages, 2);
    assert_int_equal(host_free(b.rig, b.pool, 0), 64 - 2);
    assert_int_equal(rig_free(b.rig, b.pool), 64 - 2);
    assert_true(on_host(&b, 1, 4) && on_host(&b, 1, 8) && on_device(&b, 1, 8));
    assert_false(is_there(&b, 1, 12) || is_there(&b, 2, 4));
    assert_int_equal(evicts(&b, 0), 0);
    assert_ok(rig_abort(b.s, 0));
    assert_int_equal(evicts(&b, 0), 4); /* not pinned: evicted from both tiers */
    assert_int_equal(b.rig->last->evict.host_pages, 2);
    bench_ends_clean(&b);
}

/* The answer also counts host pages that a copy was about to write. */
TEST(evict_tells_the_pages_of_copies_that_it_gave_up)
{
    struct bench b = copies_held_at(2);

    put_slowly(&b, 1, 16);
    assert_int_equal(host_free(b.rig, b.pool, 0), 16 - 4);
    assert_int_equal(evicts(&b, 0), 2); /* 16 and 12 were queued */
    assert_int_equal(b.rig->last->evict.pages, 2);
    assert_int_equal(b.rig->last->evict.host_pages, 2);
    assert_int_equal(host_free(b.rig, b.pool, 0), 16 - 2);
    bench_ends_clean(&b);
}

/* Under pressure on the device a leaf with a host copy is demoted, and one without is destroyed. */
TEST(device_pressure_demotes_what_has_a_copy_and_destroys_the_rest)
{
    struct bench b = host_bench(4, 8, 2);

    put(&b, 1, 8);
    b.rig->automatic = BY_HAND(RIG_SEAL);
    put(&b, 2, 8);
    while (rig_jobs(b.rig, RIG_SEAL) > 0)
        rig_drop(b.rig, RIG_SEAL); /* its job never ends and holds it */
    b.rig->automatic = RIG_ALL;
    assert_ok(rig_match(b.s, rig_tokens(3, 64), 24));
    assert_err(TERN_BUSY, rig_extend(b.s, 28, 0, NULL, 0));
    assert_ok(rig_extend(b.s, 24, 0, NULL, 0));
    assert_true(is_there(&b, 1, 8) && is_there(&b, 2, 8));
    assert_false(on_device(&b, 1, 4));
    assert_true(on_device(&b, 2, 8));
}

/* T12, T13: oldest use first; among those of one path the deepest first. */
TEST(evict_oldest_use_first_and_deepest_of_a_path)
{
    struct bench b = bench_start(4, 32);

    rig_put(b.rig, &b.e, b.pool, 1, 8);
    rig_put(b.rig, &b.e, b.pool, 2, 8);
    rig_put(b.rig, &b.e, b.pool, 3, 8);
    assert_ok(rig_match(b.s, seq1, 8)); /* 1 is used again: now 2 is the oldest */
    assert_ok(rig_close(b.s, 0));
    assert_int_equal(rig_evict(b.rig, b.admin, b.pool, 1), 1);
    assert_int_equal(rig_depth(b.s, rig_tokens(2, 8), 8), 4);
    assert_int_equal(rig_depth(b.s, rig_tokens(3, 8), 8), 8);
    assert_int_equal(rig_evict(b.rig, b.admin, b.pool, 1), 1);
    assert_int_equal(rig_depth(b.s, rig_tokens(2, 8), 8), 0);
    assert_int_equal(rig_evict(b.rig, b.admin, b.pool, 2), 2);
    assert_int_equal(rig_depth(b.s, rig_tokens(3, 8), 8), 0);
    assert_int_equal(rig_depth(b.s, seq1, 8), 8);
}

/* A Peek does not count as a use. */
TEST(evict_peek_does_not_refresh)
{
    struct bench b = bench_start(4, 32);

    rig_put(b.rig, &b.e, b.pool, 1, 4);
    rig_put(b.rig, &b.e, b.pool, 2, 4);
    assert_int_equal(rig_depth(b.s, seq1, 4), 4);
    assert_int_equal(rig_evict(b.rig, b.admin, b.pool, 1), 1);
    assert_int_equal(rig_depth(b.s, seq1, 4), 0);
    assert_int_equal(rig_depth(b.s, rig_tokens(2, 4), 4), 4);
}

TEST(evict_inner_node_with_pinned_child_stays)
{
    struct bench b = bench_start(4, 32);
    struct rig_session *deep = rig_committed(b.rig, &b.e, b.pool, 1, 32);

    assert_int_equal(rig_evict(b.rig, b.admin, b.pool, 0), 0);
    closes_whole(deep, 32);
    assert_int_equal(rig_evict(b.rig, b.admin, b.pool, 0), 8);
    assert_int_equal(rig_view(b.rig).evicted_nodes, 8);
    assert_int_equal(rig_view(b.rig).evicted_pages, 8);
}

/* T13: every operation of a session is a use of the prefix that the session has then. */
TEST(evict_all_that_a_session_does_is_a_use)
{
    for (uint32_t what = 0; what < 6; what++) {
        struct bench b = bench_start(4, 32);
        struct rig_session *s = b.s;

        if (what == 0) {
            computes(s, 1, 12);
            rig_put(b.rig, &b.e, b.pool, 1, 8);
        } else {
            s = rig_committed(b.rig, &b.e, b.pool, 1, 8);
            assert_ok(rig_run_to(s, seq1, 12));
        }
        rig_put(b.rig, &b.e, b.pool, 2, 8);
        switch (what) {
        case 0: assert_ok(rig_commit(s, 8, 0)); break; /* adopts */
        case 1: assert_ok(rig_match(s, seq1, 12)); break;
        case 2: assert_ok(rig_extend(s, 16, 0, NULL, 0)); break;
        case 3: assert_ok(rig_rewind(s, 9, 0)); break;
        case 4: assert_ok(rig_finish(s, 12, 0)); break;
        default: break; /* neither a pin nor its end is a use */
        }
        assert_ok(rig_close(s, 0));
        assert_int_equal(rig_evict(b.rig, b.admin, b.pool, 1), 1);
        s = rig_session(b.rig, &b.e, b.pool, 1);
        assert_int_equal(rig_depth(s, seq1, 8), what < 5 ? 8 : 4);
        assert_int_equal(rig_depth(s, rig_tokens(2, 8), 8), what < 5 ? 4 : 8);
        b.s = what ? b.s : s;
        if (what)
            rig_session_free(s);
    }
}

/* An operator's eviction of one pool leaves the others alone. */
TEST(evict_of_one_pool_leaves_the_others)
{
    struct bench b = bench_start(4, 16);
    struct pool_id other = rig_pool_pages(b.rig, &b.e, 4, 16);
    struct rig_session *s = rig_session(b.rig, &b.e, other, 1);

    rig_put(b.rig, &b.e, b.pool, 1, 16);
    rig_put(b.rig, &b.e, other, 1, 16);
    assert_int_equal(rig_evict(b.rig, b.admin, other, 0), 4);
    assert_int_equal(rig_depth(b.s, seq1, 16), 16);
    assert_int_equal(rig_depth(s, seq1, 16), 0);
    rig_put(b.rig, &b.e, other, 1, 16);
    assert_int_equal(rig_evict(b.rig, b.admin, b.pool, 3), 3);
    assert_int_equal(rig_depth(b.s, seq1, 16), 4);
    assert_int_equal(rig_depth(s, seq1, 16), 16);
}
