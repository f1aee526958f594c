/* Rules T1 to T8, T11 to T13, T15 and T20 for HISTORY groups, and what slabs and generations must
 * keep true. */
#include "unit/rig/rig_test.h"

#include <stdlib.h>

TEST(match_partial_chunk_matches_whole_chunks_only)
{
    struct bench b = bench_start(4, 16);
    uint32_t tokens[16];

    rig_put(b.rig, &b.e, b.pool, 1, 16);
    memcpy(tokens, rig_tokens(1, 16), sizeof tokens);
    assert_int_equal(rig_depth(b.s, tokens, 15), 12);
    assert_int_equal(rig_depth(b.s, tokens, 3), 0);
    for (uint32_t i = 0; i < 16; i++) { /* whichever token of a chunk differs */
        tokens[i] ^= 1;
        assert_int_equal(rig_depth(b.s, tokens, 16), i / 4 * 4);
        tokens[i] ^= 1;
    }
}

/* T2: idempotent per session; a scheduler may retry. */
TEST(match_repeated_changes_nothing)
{
    struct bench b = bench_start(4, 16);
    struct page_ref first[4];

    rig_put(b.rig, &b.e, b.pool, 1, 16);
    assert_ok(rig_match(b.s, rig_tokens(1, 20), 20));
    memcpy(first, b.s->table[0], sizeof first);
    assert_ok(rig_match(b.s, rig_tokens(1, 20), 20));
    assert_lengths(b.s, 16, 16, 16);
    assert_memory_equal(first, b.s->table[0], sizeof first);
    assert_int_equal(rig_group_view(b.rig, b.pool, 0).snapshot, 4);
    assert_ok(rig_close(b.s, 0));
    assert_int_equal(rig_evict(b.rig, b.admin, b.pool, 0), 4); /* one pin, given up once */
}

/* T3: import is legal only on an empty table; with C > 0 a Match is a resume and never consults the
 * tree. */
TEST(match_after_allocation_never_imports)
{
    struct bench b = bench_start(4, 32);
    struct rig_session *late = rig_session(b.rig, &b.e, b.pool, 1);

    assert_ok(rig_match(late, rig_tokens(1, 32), 32));
    assert_ok(rig_run_to(late, rig_tokens(1, 32), 8)); /* C = 8 before anyone commits */
    rig_put(b.rig, &b.e, b.pool, 1, 32);
    assert_ok(rig_match(late, rig_tokens(1, 32), 32));
    assert_int_equal(late->matched, 0);
    assert_lengths(late, 0, 8, 8);
}

static struct pool_id two_groups(struct bench *b, uint32_t cap0, uint32_t cap1)
{
    struct group_layout groups[2] = {rig_group(4, 512), rig_group(8, 1024)};
    struct pool_id pool = {0, 0};

    groups[0].cap_pages = cap0;
    groups[1].cap_pages = cap1;
    assert_ok(rig_pool_open(b->rig, b->e.conn[0], groups, 2, 128 << 10, &pool));
    assert_int_equal(rig_pool_view(b->rig, pool).align_tokens, 8);
    return pool;
}

/* T4: all or nothing with two groups, whichever of them is short. */
TEST(extend_one_group_short_takes_nothing)
{
    for (uint32_t starved = 0; starved < 2; starved++) {
        struct bench b = bench_start(4, 4);
        struct pool_id pool = two_groups(&b, starved == 0 ? 3 : 0, starved == 1 ? 1 : 0);
        struct rig_session *s = rig_session(b.rig, &b.e, pool, 1);

        assert_ok(rig_match(s, rig_tokens(1, 16), 16));
        assert_err(TERN_POOL_EXHAUSTED, rig_extend(s, 16, 0, NULL, 0));
        assert_int_equal(b.rig->res.shortage.group, starved);
        assert_int_equal(b.rig->res.shortage.needed, starved == 0 ? 4 : 2);
        assert_lengths(s, 0, 0, 0);
        for (uint32_t g = 0; g < 2; g++)
            assert_int_equal(rig_group_view(b.rig, pool, g).session, 0);
        assert_ok(rig_extend(s, 8, 0, NULL, 0));
        assert_int_equal(rig_group_view(b.rig, pool, 0).session, 2);
        assert_int_equal(rig_group_view(b.rig, pool, 1).session, 1);
    }
}

/* T4: no other session notices; nor do prefixes that are pinned. Fault 36: nothing waits for ever.
 */
TEST(extend_exhausted_others_go_on)
{
    struct bench b = bench_start(4, 8);
    struct rig_session *pinned = rig_committed(b.rig, &b.e, b.pool, 1, 16);

    assert_ok(rig_match(b.s, rig_tokens(2, 64), 64));
    assert_err(TERN_POOL_EXHAUSTED, rig_extend(b.s, 20, 0, NULL, 0));
    assert_int_equal(b.rig->res.shortage.needed, 5);
    assert_int_equal(b.rig->res.shortage.free, 4);
    assert_int_equal(b.rig->res.shortage.reclaimable, 0);
    assert_int_equal(rig_depth(b.s, rig_tokens(1, 16), 16), 16);
    assert_int_equal(rig_wrong(pinned, 16), 0);
    assert_ok(rig_run_to(b.s, rig_tokens(2, 64), 16));
    assert_int_equal(rig_wrong(pinned, 16), 0);
}

TEST(extend_only_what_is_missing)
{
    struct bench b = bench_start(4, 8);
    struct page_ref first;

    assert_ok(rig_match(b.s, rig_tokens(1, 32), 32));
    assert_ok(rig_extend(b.s, 1, 0, NULL, 0));
    assert_int_equal(rig_free(b.rig, b.pool), 7);
    first = b.s->table[0][0];
    assert_ok(rig_extend(b.s, 4, 0, NULL, 0)); /* fits the page that is there */
    assert_int_equal(rig_free(b.rig, b.pool), 7);
    assert_ok(rig_extend(b.s, 5, 0, NULL, 0));
    assert_int_equal(rig_free(b.rig, b.pool), 6);
    assert_memory_equal(&first, &b.s->table[0][0], sizeof first);
}

/* T6: a failed check keeps all earlier targets. */
TEST(commit_beyond_written_keeps_earlier_targets)
{
    struct bench b = bench_start(4, 16);

    assert_ok(rig_match(b.s, rig_tokens(1, 32), 32));
    assert_ok(rig_run_to(b.s, rig_tokens(1, 32), 10));
    assert_err(TERN_INVALID, rig_commit(b.s, 16, 0)); /* target 12 is beyond C = 10 */
    assert_lengths(b.s, 8, 10, 10);
    assert_int_equal(rig_depth(b.s, rig_tokens(1, 32), 32), 8);
    assert_ok(rig_run_to(b.s, rig_tokens(1, 32), 16));
    assert_ok(rig_commit(b.s, 16, 0));
    assert_lengths(b.s, 16, 16, 16);
}

TEST(commit_repeated_or_short_of_a_chunk_changes_nothing)
{
    struct bench b = bench_start(4, 16);

    assert_ok(rig_match(b.s, rig_tokens(1, 32), 32));
    assert_ok(rig_run_to(b.s, rig_tokens(1, 32), 11));
    assert_ok(rig_commit(b.s, 3, 0));
    assert_lengths(b.s, 0, 11, 11);
    assert_ok(rig_commit(b.s, 11, 0));
    assert_lengths(b.s, 8, 11, 11);
    assert_ok(rig_commit(b.s, 11, 0));
    assert_lengths(b.s, 8, 11, 11);
    assert_int_equal(rig_group_view(b.rig, b.pool, 0).snapshot, 2);
}

/* T7: the ids stay in the table as borrowed: a commit that finds nothing there moves no page. */
TEST(commit_to_an_empty_tree_keeps_the_page_ids)
{
    struct bench b = bench_start(4, 16);
    struct page_ref before[4];

    assert_ok(rig_match(b.s, rig_tokens(1, 16), 16));
    assert_ok(rig_run_to(b.s, rig_tokens(1, 16), 16));
    memcpy(before, b.s->table[0], sizeof before);
    assert_ok(rig_commit(b.s, 16, 0));
    assert_int_equal(b.rig->res.nruns, 0);
    assert_memory_equal(before, b.s->table[0], sizeof before);
    assert_int_equal(rig_group_view(b.rig, b.pool, 0).snapshot, 4);
    assert_int_equal(rig_group_view(b.rig, b.pool, 0).session, 0);
}

/* T8: canonical pages are adopted, the answer lists them, the duplicates retire: the next step may
 * be queued on them. */
TEST(commit_of_a_known_chunk_adopts_and_retires_duplicates)
{
    struct bench b = bench_start(4, 16);
    struct rig_session *twin = rig_session(b.rig, &b.e, b.pool, 1);
    struct page_ref old[4];

    assert_ok(rig_match(b.s, rig_tokens(1, 16), 16));
    assert_ok(rig_match(twin, rig_tokens(1, 16), 16));
    assert_ok(rig_run_to(b.s, rig_tokens(1, 16), 16));
    assert_ok(rig_run_to(twin, rig_tokens(1, 16), 16));
    memcpy(old, twin->table[0], sizeof old);
    assert_ok(rig_commit(b.s, 16, 0));
    assert_ok(rig_commit(twin, 16, 4));
    assert_lengths(twin, 16, 16, 16);
    assert_int_equal(b.rig->res.nruns, 1); /* four chunks, one run */
    assert_memory_equal(twin->table[0], b.s->table[0], sizeof old);
    assert_memory_not_equal(twin->table[0], old, sizeof old);
    assert_int_equal(rig_wrong(twin, 16), 0);
    assert_int_equal(rig_group_view(b.rig, b.pool, 0).snapshot, 4);
    assert_int_equal(rig_retiring(b.rig, b.pool), 4);
    assert_int_equal(rig_free(b.rig, b.pool), 8);
    rig_engine_done(b.rig, &b.e, 4);
    assert_int_equal(rig_free(b.rig, b.pool), 12);
}

struct two_engines {
    struct rig *rig;
    struct rig_engine a, b;
    struct pool_id pool;
    struct rig_session *sa, *sb;
};

static struct two_engines two_engines_start(void)
{
    struct two_engines t;

    t.rig = rig_create(NULL);
    t.a = rig_engine(t.rig, 0, "a", 1);
    t.pool = rig_pool_pages(t.rig, &t.a, 4, 16);
    t.b = second_engine(t.rig, t.pool);
    t.sa = rig_session(t.rig, &t.a, t.pool, 1);
    t.sb = rig_session(t.rig, &t.b, t.pool, 1);
    assert_ok(rig_match(t.sa, rig_tokens(1, 16), 16));
    assert_ok(rig_match(t.sb, rig_tokens(1, 16), 16));
    assert_ok(rig_run_to(t.sa, rig_tokens(1, 16), 16));
    assert_ok(rig_run_to(t.sb, rig_tokens(1, 16), 16));
    return t;
}

/* T8: before its step has passed, another engine keeps its own pages and is told the depth reached.
 */
TEST(commit_onto_anothers_pending_node_keeps_own_pages)
{
    struct two_engines t = two_engines_start();
    struct page_ref own[4];

    memcpy(own, t.sb->table[0], sizeof own);
    assert_ok(rig_commit(t.sa, 8, 0));
    assert_ok(rig_commit(t.sa, 16, 5));
    rig_commit(t.sb, 16, 0);
    assert_int_equal(t.sb->len.committed, 8);
    assert_int_equal(t.sb->len.written, 16);
    assert_memory_equal(own + 2, t.sb->table[0] + 2, 2 * sizeof own[0]);
    assert_int_equal(rig_wrong(t.sb, 16), 0);
    rig_engine_done(t.rig, &t.a, 5);
    assert_ok(rig_commit(t.sb, 16, 0)); /* now it may */
    assert_lengths(t.sb, 16, 16, 16);
    assert_memory_equal(t.sb->table[0], t.sa->table[0], 4 * sizeof own[0]);
    assert_int_equal(rig_wrong(t.sb, 16), 0);
}

TEST(commit_engine_dies_before_its_step_other_engine_commits_its_own)
{
    struct two_engines t = two_engines_start();

    assert_ok(rig_commit(t.sa, 16, 5));
    rig_commit(t.sb, 16, 0);
    assert_int_equal(t.sb->len.committed, 0);
    rig_engine_kill(t.rig, &t.a, 0);
    assert_int_equal(rig_depth(t.sb, rig_tokens(1, 16), 16),
                     0); /* if it dies first, the node goes */
    assert_ok(rig_commit(t.sb, 16, 0));
    assert_int_equal(rig_depth(t.sb, rig_tokens(1, 16), 16), 16);
    assert_int_equal(rig_wrong(t.sb, 16), 0);
}

/* A session of the same engine adopts the pending node; nobody sees either before the step. */
TEST(commit_onto_own_engines_pending_node_adopts)
{
    struct bench b = bench_start(4, 16);
    struct rig_session *twin = rig_session(b.rig, &b.e, b.pool, 1);

    assert_ok(rig_match(b.s, rig_tokens(1, 16), 16));
    assert_ok(rig_match(twin, rig_tokens(1, 16), 16));
    assert_ok(rig_run_to(b.s, rig_tokens(1, 16), 8));
    assert_ok(rig_run_to(twin, rig_tokens(1, 16), 16));
    assert_ok(rig_commit(b.s, 8, 5));
    assert_ok(rig_commit(twin, 16, 3)); /* its own chunk hangs below one that is pending until 5 */
    assert_lengths(twin, 16, 16, 16);
    assert_memory_equal(twin->table[0], b.s->table[0], 2 * sizeof(struct page_ref));
    rig_engine_done(b.rig, &b.e, 4);
    assert_int_equal(rig_depth(b.s, rig_tokens(1, 16), 16), 0);
    rig_engine_done(b.rig, &b.e, 5);
    assert_int_equal(rig_depth(b.s, rig_tokens(1, 16), 16), 16);
}

/* T12, T13: oldest use first; among those of one path the deepest first. */
TEST(evict_oldest_use_first_and_deepest_of_a_path)
{
    struct bench b = bench_start(4, 32);

    rig_put(b.rig, &b.e, b.pool, 1, 8);
    rig_put(b.rig, &b.e, b.pool, 2, 8);
    rig_put(b.rig, &b.e, b.pool, 3, 8);
    assert_ok(rig_match(b.s, rig_tokens(1, 8), 8)); /* 1 is used again: 2 is the oldest now */
    assert_ok(rig_close(b.s, 0));
    assert_int_equal(rig_evict(b.rig, b.admin, b.pool, 1), 1);
    assert_int_equal(rig_depth(b.s, rig_tokens(2, 8), 8), 4);
    assert_int_equal(rig_depth(b.s, rig_tokens(3, 8), 8), 8);
    assert_int_equal(rig_evict(b.rig, b.admin, b.pool, 1), 1);
    assert_int_equal(rig_depth(b.s, rig_tokens(2, 8), 8), 0);
    assert_int_equal(rig_evict(b.rig, b.admin, b.pool, 2), 2);
    assert_int_equal(rig_depth(b.s, rig_tokens(3, 8), 8), 0);
    assert_int_equal(rig_depth(b.s, rig_tokens(1, 8), 8), 8);
}

/* A Peek is no use. */
TEST(evict_peek_does_not_refresh)
{
    struct bench b = bench_start(4, 32);

    rig_put(b.rig, &b.e, b.pool, 1, 4);
    rig_put(b.rig, &b.e, b.pool, 2, 4);
    assert_int_equal(rig_depth(b.s, rig_tokens(1, 4), 4), 4);
    assert_int_equal(rig_evict(b.rig, b.admin, b.pool, 1), 1);
    assert_int_equal(rig_depth(b.s, rig_tokens(1, 4), 4), 0);
    assert_int_equal(rig_depth(b.s, rig_tokens(2, 4), 4), 4);
}

TEST(evict_inner_node_with_pinned_child_stays)
{
    struct bench b = bench_start(4, 32);
    struct rig_session *deep = rig_committed(b.rig, &b.e, b.pool, 1, 32);

    assert_int_equal(rig_evict(b.rig, b.admin, b.pool, 0), 0);
    assert_int_equal(rig_wrong(deep, 32), 0);
    assert_ok(rig_close(deep, 0));
    assert_int_equal(rig_evict(b.rig, b.admin, b.pool, 0), 8);
    assert_int_equal(rig_view(b.rig).evicted_nodes, 8);
    assert_int_equal(rig_view(b.rig).evicted_pages, 8);
}

/* T20: giving up a pin deep in the tree touches what it touches near the root: so many words of the
 * core as differ afterwards. What it takes in time, `tern-bench index` tells. */
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

/* T13: whatever a session does is a use of the prefix that it holds by then. */
TEST(evict_all_that_a_session_does_is_a_use)
{
    for (uint32_t what = 0; what < 6; what++) {
        struct bench b = bench_start(4, 32);
        struct rig_session *s = b.s;

        if (what == 0) {
            assert_ok(rig_match(s, rig_tokens(1, 12), 12));
            assert_ok(rig_run_to(s, rig_tokens(1, 12), 12));
            rig_put(b.rig, &b.e, b.pool, 1, 8);
        } else {
            s = rig_committed(b.rig, &b.e, b.pool, 1, 8);
            assert_ok(rig_run_to(s, rig_tokens(1, 12), 12));
        }
        rig_put(b.rig, &b.e, b.pool, 2, 8);
        switch (what) {
        case 0: assert_ok(rig_commit(s, 8, 0)); break; /* adopts */
        case 1: assert_ok(rig_match(s, rig_tokens(1, 12), 12)); break;
        case 2: assert_ok(rig_extend(s, 16, 0, NULL, 0)); break;
        case 3: assert_ok(rig_rewind(s, 9, 0)); break;
        case 4: assert_ok(rig_finish(s, 4, 0)); break;
        default: break; /* a pin is none, nor is its end */
        }
        assert_ok(rig_close(s, 0));
        assert_int_equal(rig_evict(b.rig, b.admin, b.pool, 1), 1);
        s = rig_session(b.rig, &b.e, b.pool, 1);
        assert_int_equal(rig_depth(s, rig_tokens(1, 8), 8), what < 5 ? 8 : 4);
        assert_int_equal(rig_depth(s, rig_tokens(2, 8), 8), what < 5 ? 4 : 8);
        b.s = what ? b.s : s;
        if (what)
            rig_session_free(s);
    }
}

/* An operator who names a pool empties that one. */
TEST(evict_of_one_pool_leaves_the_others)
{
    struct bench b = bench_start(4, 16);
    struct pool_id other = rig_pool_pages(b.rig, &b.e, 4, 16);
    struct rig_session *s = rig_session(b.rig, &b.e, other, 1);

    rig_put(b.rig, &b.e, b.pool, 1, 16);
    rig_put(b.rig, &b.e, other, 1, 16);
    assert_int_equal(rig_evict(b.rig, b.admin, other, 0), 4);
    assert_int_equal(rig_depth(b.s, rig_tokens(1, 16), 16), 16);
    assert_int_equal(rig_depth(s, rig_tokens(1, 16), 16), 0);
    rig_put(b.rig, &b.e, other, 1, 16);
    assert_int_equal(rig_evict(b.rig, b.admin, b.pool, 3), 3);
    assert_int_equal(rig_depth(b.s, rig_tokens(1, 16), 16), 4);
    assert_int_equal(rig_depth(s, rig_tokens(1, 16), 16), 16);
}

enum { FORKS = 36 };

/* A chunk of its own, then one of three that all forks share. */
static const uint32_t *fork_tokens(uint32_t fork, uint32_t which)
{
    static uint32_t v[8];

    for (uint32_t i = 0; i < 8; i++)
        v[i] = i < 4 ? 1000 + fork : which;
    return v;
}

/* T2: the same chunk under another parent is another prefix. So many of them that some share a
 * bucket of the index. */
TEST(match_same_chunk_under_another_parent_is_another_prefix)
{
    struct rig_options o = rig_defaults();
    struct bench b;

    o.limits.nodes = 3 * FORKS + 1;
    b = bench_with(&o, 4, 4 * FORKS);
    for (uint32_t fork = 0; fork < FORKS; fork++)
        for (uint32_t which = 0; which < 2; which++) {
            struct rig_session *s = rig_session(b.rig, &b.e, b.pool, 1);
            const uint32_t *v = fork_tokens(fork, fork % 2 + which); /* 0 and 1, or 1 and 2 */

            assert_ok(rig_match(s, v, 8));
            assert_ok(rig_run_to(s, v, 8));
            assert_ok(rig_commit(s, 8, 0));
            assert_ok(rig_close(s, 0));
        }
    assert_int_equal(rig_view(b.rig).evicted_nodes, 0);
    for (uint32_t fork = 0; fork < FORKS; fork++)
        for (uint32_t which = 0; which < 3; which++)
            assert_int_equal(rig_depth(b.s, fork_tokens(fork, which), 8),
                             which == fork % 2 || which == fork % 2 + 1 ? 8 : 4);
}
