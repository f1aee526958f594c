/* Prefix nodes: what happens when no record is free, and what a pin costs (P6, T20). */
#include <stdlib.h>

#include "unit/rig/rig_host.h"
#include "unit/rig/rig_pair.h"

/* Node records: an unpinned prefix is evicted for them. A commit that needs more than there are
 * ends early and keeps the depth that it reached. */
TEST(limits_nodes_full_evicts_then_quota_keeps_earlier_targets)
{
    struct bench b = BENCH_LIMITED(limits.nodes = 6, 4, 64); /* a root and five chunks */

    rig_put(b.rig, &b.e, b.pool, 9, 8);
    computes(b.s, 1, 32);
    assert_err(TERN_QUOTA, rig_commit(b.s, 32, 0)); /* eight chunks */
    assert_lengths(b.s, 20, 32, 32);
    assert_int_equal(rig_depth(b.s, rig_tokens(9, 8), 8), 0);
    assert_int_equal(rig_depth(b.s, seq1, 32), 20);
    assert_int_equal(rig_wrong(b.s, 32), 0);
    assert_int_equal(rig_group_view(b.rig, b.pool, 0).snapshot, 5);
    assert_int_equal(rig_group_view(b.rig, b.pool, 0).session, 3);
    assert_int_equal(bench_lets_go(&b), 5);
    assert_int_equal(rig_free(b.rig, b.pool), 64);
}

/* A namespace needs a node record for its root: an unpinned prefix is evicted for it, a pinned one
 * is not. */
TEST(limits_nodes_full_new_namespace_busy_or_evicts)
{
    struct bench b = BENCH_LIMITED(limits.nodes = 4, 4, 64);
    struct rig_session *holder = rig_committed(b.rig, &b.e, b.pool, 1, 12);

    assert_int_equal(rig_view(b.rig).nodes_free, 0);
    assert_err(TERN_BUSY, bench_opens(&b, 2));
    assert_ok(rig_close(holder, 0));
    assert_ok(bench_opens(&b, 2));
    assert_int_equal(rig_depth(b.s, seq1, 12), 8);
}

TEST(limits_namespaces_full_busy_until_one_is_empty)
{
    struct bench b = BENCH_LIMITED(limits.namespaces = 1, 4, 64);

    assert_err(TERN_BUSY, bench_opens(&b, 2));
    assert_ok(rig_match(b.s, seq1, 8));
    assert_ok(rig_close(b.s, 0));
    assert_ok(bench_opens(&b, 2));
}

/* T22: a namespace with cached prefixes only is evicted by itself. One with a session is not, and
 * neither are its prefixes. */
TEST(t22_namespace_of_cached_prefixes_makes_way)
{
    struct bench b = BENCH_LIMITED(limits.namespaces = 2, 4, 64);

    rig_put(b.rig, &b.e, b.pool, 1, 8);
    assert_ok(bench_opens(&b, 2));
    assert_refused(b.rig, TERN_BUSY, bench_opens(&b, 3));
    assert_non_null(strstr(b.rig->last->text, "raise limits.namespaces"));
    assert_int_equal(rig_depth(b.s, seq1, 8), 8); /* nobody lost a prefix */
    assert_ok(rig_close(b.s, 0));
    assert_ok(bench_opens(&b, 3));
    assert_int_equal(rig_view(b.rig).nodes, 2);
    assert_int_equal(rig_view(b.rig).evicted_nodes, 2);
}

/* Commits tokens [0, depth) in namespace `ns`; no session pins them then. */
static void put_in(struct bench *b, uint64_t ns, const uint32_t *tokens, uint32_t depth)
{
    struct rig_session *s = rig_session(b->rig, &b->e, b->pool, ns);

    assert_ok(rig_match(s, tokens, depth));
    assert_ok(rig_run_to(s, tokens, depth));
    assert_ok(rig_commit(s, depth, 0));
    assert_ok(rig_close(s, 0));
    rig_session_free(s);
}

/* T22: a cache full of salts keeps no new one out: the namespace that was left first is evicted
 * first, with all its branches and on both tiers. */
TEST(t22_namespaces_make_way_in_the_order_in_which_they_were_given_up)
{
    struct bench b = HOST_BENCH_LIMITED(limits.namespaces = 3, 4, 16, 64);
    uint32_t tokens[24];

    assert_ok(rig_close(b.s, 0));
    for (uint64_t ns = 1; ns <= 12; ns++) {
        memcpy(tokens, seq1, sizeof tokens);
        put_in(&b, ns, tokens, 24);
        memcpy(tokens + 8, rig_tokens(2, 16), 16 * sizeof *tokens);
        put_in(&b, ns, tokens, 24);
        assert_true(rig_view(b.rig).nodes <= 3 * 11);
    }
    b.s = rig_session(b.rig, &b.e, b.pool, 12);
    assert_int_equal(rig_depth(b.s, tokens, 24), 24);
    bench_ends_clean(&b);
}

/* T22: each new namespace costs only the oldest one. */
TEST(t22_namespaces_that_make_way_cost_no_other_a_prefix)
{
    struct bench b = BENCH_LIMITED(limits.namespaces = 4, 4, 200);

    for (uint64_t ns = 2; ns <= 9; ns++)
        put_in(&b, ns, seq1, 160);
    assert_int_equal(rig_view(b.rig).nodes, 4 + 3 * 40); /* one has the bench's session */
    assert_int_equal(rig_view(b.rig).evicted_nodes, 5 * 40);
}

/* All pools share the node records: prefixes of another pool are evicted, too. */
TEST(limits_nodes_full_evicts_from_another_pool)
{
    struct bench b = BENCH_LIMITED(limits.nodes = 8, 4, 64);
    struct rig_session *s;
    struct pool_id other = rig_pool_pages(b.rig, &b.e, 4, 64);

    rig_put(b.rig, &b.e, other, 1, 24); /* six chunks and two roots */
    assert_int_equal(rig_view(b.rig).nodes_free, 0);
    s = session_with(b.rig, &b.e, other, 1, 8); /* two are pinned */
    computes(b.s, 1, 20);
    assert_err(TERN_BUSY, rig_commit(b.s, 20, 0));
    assert_lengths(b.s, 16, 20, 20);
    assert_int_equal(rig_depth(s, seq1, 24), 8);
}

/* T20: ending a pin deep in the tree changes as many words of the core as near the root.
 * `tern-bench index` measures the time. Returns how many words differ. */
static uint32_t words_of_close(struct bench *b, uint32_t seed, uint32_t depth)
{
    struct rig_session *s = rig_session(b->rig, &b->e, b->pool, 1);
    const uint64_t *now = b->rig->mem;
    uint64_t *before = malloc(b->rig->mem_bytes);
    uint32_t differ = 0;

    rig_put(b->rig, &b->e, b->pool, seed, depth);
    assert_ok(rig_match(s, rig_tokens(seed, depth), depth));
    assert_non_null(before);
    memcpy(before, now, b->rig->mem_bytes);
    assert_ok(rig_close(s, 0));
    for (size_t i = 0; i < b->rig->mem_bytes / sizeof *now; i++)
        differ += before[i] != now[i];
    free(before);
    return differ;
}

TEST(pin_given_up_deep_in_the_tree_costs_as_near_the_root)
{
    struct rig_options options = rig_defaults();
    struct bench b;
    uint32_t shallow, deep;

    options.limits.nodes = 4096;
    options.limits.token_blocks = 8192;
    b = bench_with(&options, 4, 2000);
    shallow = words_of_close(&b, 1, 40);
    deep = words_of_close(&b, 2, 4000);
    assert_true(shallow > 0);
    assert_true(deep <= shallow + 8);
}

/* A session matches tokens [0, depth) of sequence `seed`, which counts as a use. */
static void used(struct bench *b, uint32_t seed, uint32_t depth)
{
    struct rig_session *s = rig_session(b->rig, &b->e, b->pool, 1);

    matches(s, rig_tokens(seed, depth), depth, depth);
    assert_ok(rig_close(s, 0));
}

/* A use marks the deepest node alone. When that node goes, its parent inherits the last use, so an
 * older prefix goes first. */
TEST(nodes_a_parent_inherits_the_last_use_of_a_child_that_goes)
{
    struct bench b = bench_start(4, 32);
    struct node_id other;
    uint64_t used_ns;

    put(&b, 1, 8);
    put(&b, 2, 4);
    rig_advance(b.rig, 1000);
    used(&b, 1, 8);
    used_ns = node_seen(b.rig, b.pool, seq1, 8).last_use_ns;
    assert_true(used_ns > node_seen(b.rig, b.pool, seq1, 4).last_use_ns);
    other = node_seen(b.rig, b.pool, rig_tokens(2, 4), 4).id;
    assert_ok(rig_pin(b.rig, b.admin, other, true));
    assert_int_equal(evicts(&b, 1), 1); /* [4, 8) of sequence 1: the only evictable node */
    assert_ok(rig_pin(b.rig, b.admin, other, false));
    assert_int_equal(evicts(&b, 1), 1);
    assert_false(is_there(&b, 2, 4));
    assert_true(is_there(&b, 1, 4));
    assert_true(node_seen(b.rig, b.pool, seq1, 4).last_use_ns == used_ns);
}

/* X6: the handle of a node that went is GONE, whatever node has its record now. */
TEST(nodes_handle_of_a_node_that_went_is_nobodys)
{
    struct bench b = bench_start(4, 32);
    struct node_id old;

    put(&b, 1, 4);
    old = node_seen(b.rig, b.pool, seq1, 4).id;
    assert_int_equal(evicts(&b, 0), 1);
    put(&b, 2, 4);
    assert_int_equal(node_seen(b.rig, b.pool, rig_tokens(2, 4), 4).id.slot, old.slot);
    assert_int_not_equal(rig_pin(b.rig, b.admin, old, true), TERN_OK);
    assert_int_equal(evicts(&b, 0), 1);
}
