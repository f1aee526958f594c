/* Scenario A28: two tiers add up (T13, T16): prefixes without room on the device are on the host,
 * and few are on both. The host tier is written behind the device. */
#include "unit/rig/rig_host.h"

static struct bench behind(uint32_t device_pages, uint32_t host_pages)
{
    struct rig_options o = rig_defaults();

    o.tenant[0].host_write = HOST_WRITE_BEHIND;
    return host_bench_with(&o, 4, device_pages, host_pages);
}

/* Commits prefixes of one chunk, one after another. Returns how many are still there. */
static uint32_t reachable_of(struct bench *b, uint32_t prefixes)
{
    uint32_t n = 0;

    for (uint32_t seed = 1; seed <= prefixes; seed++)
        put(b, seed, 4);
    for (uint32_t seed = 1; seed <= prefixes; seed++)
        if (is_there(b, seed, 4))
            n += host_depth(b->s, rig_tokens(seed, 4), 4) == 4;
    return n;
}

TEST(a28_tiers_of_64_and_48_chunks_hold_96_of_96)
{
    struct bench b = behind(64, 48);

    assert_int_equal(reachable_of(&b, 96), 96);
    bench_ends_clean(&b);
}

TEST(a28_tiers_of_64_and_48_chunks_hold_106_of_128)
{
    struct bench b = behind(64, 48);
    uint32_t n = reachable_of(&b, 128);

    assert_true(n >= 106);
    assert_true(is_there(&b, 128, 4)); /* the least recently used ones went */
    assert_false(is_there(&b, 1, 4));
    bench_ends_clean(&b);
}

/* T13: a long prefix leaves the device from its end, and is restored as a whole. */
TEST(tiers_a_long_prefix_comes_back_whole_from_both)
{
    struct bench b = behind(32, 32);

    put(&b, 1, 80);
    for (uint32_t seed = 2; seed <= 29; seed++)
        put(&b, seed, 4);
    assert_true(on_device(&b, 1, 4) && !on_host(&b, 1, 4)); /* an ancestor only on the device */
    assert_true(on_host(&b, 1, 80) && !on_device(&b, 1, 80));
    assert_ok(rig_match(b.s, seq1, 80));
    assert_int_equal(fetch_back(b.s), TERN_BUSY); /* leaves that go are copied first */
    assert_leaves_whole(fetch_back(b.s), b.s, 80);
    assert_int_equal(rig_wrong(b.s, 80), 0);
    bench_ends_clean(&b);
}

/* T14: the path of a HOST ref stays on the host, whatever the reserve needs. An ancestor that is
 * only on the device stays there. */
TEST(tiers_what_a_host_ref_needs_stays)
{
    struct bench b = behind(16, 16);

    commits(b.s, 1, 16);
    retracts_to("retracted", b.s, RETRACT_HOST, 0);
    for (uint32_t seed = 2; seed <= 80; seed++)
        put(&b, seed, 4);
    for (uint32_t depth = 4; depth <= 16; depth += 4)
        assert_true(on_host(&b, 1, depth));
    assert_int_equal(rig_recover_now(b.s), TERN_BUSY); /* leaves that go are copied first */
    assert_ok(rig_recover_now(b.s));
    assert_int_equal(rig_wrong(b.s, 16), 0);
    bench_ends_clean(&b);
}

/* T13: a node that is used leaves the reserve, and its host copy goes before others. */
TEST(tiers_what_is_used_again_is_not_held_twice)
{
    struct bench b = behind(16, 16);

    for (uint32_t seed = 1; seed <= 16; seed++)
        put(&b, seed, 4);
    assert_true(on_host(&b, 1, 4) && on_device(&b, 1, 4)); /* the reserve of 16 nodes is one */
    put(&b, 1, 4);
    assert_true(on_host(&b, 2, 4));
    for (uint32_t seed = 17; seed <= 30; seed++)
        put(&b, seed, 4);
    assert_true(on_device(&b, 1, 4));
    assert_true(is_there(&b, 2, 4));
    bench_ends_clean(&b);
}

/* T13: a node that gets a child leaves the reserve, since its eviction would take the child. */
TEST(tiers_what_is_continued_leaves_the_reserve)
{
    struct bench b = behind(16, 16);

    assert_ok(rig_match(b.s, seq1, 8)); /* no match, so the Commit finds the node */
    put(&b, 1, 4);
    assert_true(on_host(&b, 1, 4) && on_device(&b, 1, 4)); /* the reserve of one node */
    runs_right(b.s, seq1, 8);
    assert_ok(rig_commit(b.s, 8, 0));
    assert_int_equal(node_at(b.rig->core, anywhere(b.rig, b.pool, seq1, 4))->reserved, 0);
    bench_ends_clean(&b);
}

/* T16: a request for more room than is ready waits for more copies, and no prefix is lost. */
TEST(tiers_what_makes_way_for_a_long_extend_is_copied_first)
{
    struct bench b = behind(16, 16);
    uint32_t there = 0;

    for (uint32_t seed = 1; seed <= 16; seed++)
        put(&b, seed, 4);
    b.rig->automatic = BY_HAND(RIG_COPY);
    assert_int_equal(rig_extend(b.s, 48, 0, NULL, 0), TERN_BUSY);
    assert_int_equal(rig_extend(b.s, 48, 0, NULL, 0), TERN_BUSY); /* they have not ended */
    rig_runs_free(b.rig);
    assert_ok(rig_extend(b.s, 48, 0, NULL, 0));
    for (uint32_t seed = 1; seed <= 16; seed++)
        there += is_there(&b, seed, 4);
    assert_int_equal(there, 16);
    assert_int_equal(rig_view(b.rig).host_uncopied, 0);
    bench_ends_clean(&b);
}

/* T16: copies that do not end are not waited for without end. */
TEST(tiers_copies_that_do_not_end_are_not_waited_for)
{
    struct bench b = behind(16, 16);

    for (uint32_t seed = 1; seed <= 16; seed++)
        put(&b, seed, 4);
    b.rig->automatic = BY_HAND(RIG_COPY);
    assert_int_equal(rig_extend(b.s, 8, 0, NULL, 0), TERN_BUSY);
    b.rig->now_ns += (COPY_WAIT_MS_MAX - 1) * NS_PER_MS;
    assert_int_equal(rig_extend(b.s, 8, 0, NULL, 0), TERN_BUSY);
    assert_int_equal(rig_view(b.rig).host_uncopied, 0);
    b.rig->now_ns += NS_PER_MS;
    assert_ok(rig_extend(b.s, 8, 0, NULL, 0));
    assert_int_equal(rig_view(b.rig).host_uncopied, 1);
    bench_ends_clean(&b);
}

/* T11: an evicted node without a host copy takes along what is below it on the host alone. */
TEST(tiers_a_node_without_a_copy_takes_what_hangs_on_it)
{
    struct bench b = behind(4, 4);

    put(&b, 1, 8);
    put(&b, 2, 4);
    b.rig->copies_to_fail = 1000; /* no copy succeeds from now on */
    b.rig->copy_err = TERN_CORRUPT;
    put(&b, 3, 4);
    put(&b, 4, 4);
    assert_true(on_device(&b, 1, 4) && !on_host(&b, 1, 4) && !on_device(&b, 1, 8));
    for (uint32_t seed = 5; seed <= 8; seed++)
        put(&b, seed, 4);
    assert_false(is_there(&b, 1, 4));
    assert_true(is_there(&b, 8, 4));
    bench_ends_clean(&b);
}
