/* Commits: their effect on the tree and on pages, and two engines at one prefix (T7, T8). */

#include "unit/rig/rig_test.h"

/* T6: a commit takes effect as a whole, and only at the depth that was asked for. */
TEST(commit_beyond_written_or_within_a_chunk_is_invalid)
{
    static const uint32_t beyond[] = {12, 16, 32, 4096}, within[] = {1, 3, 10, 11, 13};
    struct bench b = bench_start(4, 16);

    computes_up_to(b.s, seq1, 32, 10);
    for (uint32_t i = 0; i < 4; i++) {
        assert_err(TERN_INVALID, rig_commit(b.s, beyond[i], 0));
        assert_int_equal(b.rig->res.align, 0);
    }
    for (uint32_t i = 0; i < 5; i++) {
        assert_err(TERN_INVALID, rig_commit(b.s, within[i], 0));
        assert_int_equal(b.rig->res.align, 4);
    }
    assert_lengths(b.s, 0, 10, 10);
    assert_int_equal(rig_depth(b.s, seq1, 32), 0);
    commit_to(b.s, seq1, 16, 0);
    assert_lengths(b.s, 16, 16, 16);
}

/* T6 */
TEST(commit_repeated_changes_nothing)
{
    struct bench b = bench_start(4, 16);

    assert_ok(rig_match(b.s, seq1, 32));
    run_and_commit(b.s, seq1, 11, 0, 0);
    assert_lengths(b.s, 0, 11, 11);
    for (uint32_t i = 0; i < 3; i++)
        assert_leaves(rig_commit(b.s, i == 2 ? 4 : 8, 0), b.s, 8, 11, 11);
    assert_int_equal(rig_group_view(b.rig, b.pool, 0).snapshot, 2);
}

/* T7: the ids stay in the table as borrowed; a commit to an empty tree moves no page. */
TEST(commit_to_an_empty_tree_keeps_the_page_ids)
{
    struct bench b = bench_start(4, 16);
    struct page_ref before[4];

    computes(b.s, 1, 16);
    memcpy(before, b.s->table[0], sizeof before);
    assert_ok(rig_commit(b.s, 16, 0));
    assert_int_equal(b.rig->res.nruns, 0);
    assert_memory_equal(before, b.s->table[0], sizeof before);
    assert_int_equal(rig_group_view(b.rig, b.pool, 0).snapshot, 4);
    assert_int_equal(rig_group_view(b.rig, b.pool, 0).session, 0);
}

/* T8: the session adopts canonical pages, and the answer lists them. The duplicates retire, since
 * the next step may be queued on them. */
TEST(commit_of_a_known_chunk_adopts_and_retires_duplicates)
{
    struct bench b = bench_start(4, 16);
    struct rig_session *twin = rig_session(b.rig, &b.e, b.pool, 1);
    struct page_ref old[4];

    assert_ok(rig_match(b.s, seq1, 16));
    assert_ok(rig_match(twin, seq1, 16));
    assert_ok(rig_run_to(b.s, seq1, 16));
    assert_ok(rig_run_to(twin, seq1, 16));
    memcpy(old, twin->table[0], sizeof old);
    assert_ok(rig_commit(b.s, 16, 0));
    assert_leaves(rig_commit(twin, 16, 4), twin, 16, 16, 16);
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
    assert_ok(rig_match(t.sa, seq1, 16));
    assert_ok(rig_match(t.sb, seq1, 16));
    assert_ok(rig_run_to(t.sa, seq1, 16));
    assert_ok(rig_run_to(t.sb, seq1, 16));
    return t;
}

/* T8: before its step has passed, another engine keeps its own pages and gets the depth reached. */
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
    assert_leaves(rig_commit(t.sb, 16, 0), t.sb, 16, 16, 16); /* the step has passed: adopted */
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
    assert_int_equal(rig_depth(t.sb, seq1, 16), 0); /* the engine died first: the node is gone */
    assert_ok(rig_commit(t.sb, 16, 0));
    assert_int_equal(rig_depth(t.sb, seq1, 16), 16);
    assert_int_equal(rig_wrong(t.sb, 16), 0);
}

/* A session of the same engine adopts the pending node; nobody sees either before the step. */
TEST(commit_onto_own_engines_pending_node_adopts)
{
    struct bench b = bench_start(4, 16);
    struct rig_session *twin = rig_session(b.rig, &b.e, b.pool, 1);

    assert_ok(rig_match(b.s, seq1, 16));
    assert_ok(rig_match(twin, seq1, 16));
    assert_ok(rig_run_to(b.s, seq1, 8));
    assert_ok(rig_run_to(twin, seq1, 16));
    assert_ok(rig_commit(b.s, 8, 5));
    assert_leaves(rig_commit(twin, 16, 3), twin, 16, 16,
                  16); /* its own chunk hangs below a node that is pending until step 5 */
    assert_memory_equal(twin->table[0], b.s->table[0], 2 * sizeof(struct page_ref));
    rig_engine_done(b.rig, &b.e, 4);
    assert_int_equal(rig_depth(b.s, seq1, 16), 0);
    rig_engine_done(b.rig, &b.e, 5);
    assert_int_equal(rig_depth(b.s, seq1, 16), 16);
}

#define TOKENS 1024 /* pages of one token: as many refs */
#define FIT    (TABLE_PAGES / TOKENS)

/* Sessions that computed the same tokens at the same time. The first one has committed them. */
static void compute_alike(struct rig *rig, const struct rig_engine *e, struct pool_id pool,
                          struct rig_session **s, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        s[i] = rig_session(rig, e, pool, 1);
        assert_ok(rig_match(s[i], seq1, TOKENS));
    }
    for (uint32_t i = 0; i < n; i++)
        assert_ok(rig_run_to(s[i], seq1, TOKENS));
    assert_ok(rig_commit(s[0], TOKENS, 0));
}

/* T20: one Step adopts more than one step may look at. Operations that do not fit are BUSY, those
 * before them stay, and the engine repeats the rest. The Step is not taken in pieces, so each of
 * its operations is answered. */
TEST(commits_that_adopt_more_than_a_step_does_are_busy)
{
    struct rig_options options = rig_defaults();
    struct group_layout group = rig_group(1, 512);
    struct rig_session *s[FIT + 2];
    struct pool_id pool;
    struct step_op ops[FIT + 1];
    struct request step = {.op = OP_STEP, .step = {.ops = ops, .n = FIT + 1}};
    const struct reply *reply;
    uint32_t before, got = 0, steps = 0;
    struct rig_engine e;
    struct rig *rig;

    options.limits.sessions = options.tenant[0].sessions_max = FIT + 2;
    options.limits.nodes = TOKENS + 64;
    options.limits.token_blocks = (FIT + 4) * TOKENS; /* a chunk is one token */
    options.limits.pages = (FIT + 4) * TOKENS;
    options.tenant[0].memory_bytes = (FIT + 4) * TOKENS * 512;
    rig = rig_create(&options);
    rig->no_audit = true; /* there are many pages: no audit before the commits under test */
    e = rig_engine(rig, 0, "e", 1);
    assert_ok(rig_pool_open(rig, e.conn[0], &group, 1, (FIT + 3) * TOKENS * 512, &pool));
    compute_alike(rig, &e, pool, s, FIT + 2);
    for (uint32_t i = 0; i <= FIT; i++)
        ops[i] = (struct step_op){.kind = STEP_COMMIT, .session = s[1 + i]->id, .length = TOKENS};
    do {
        before = got;
        got = 0;
        reply = rig_request(rig, e.conn[0], &step);
        for (uint32_t k = 0; k <= FIT; k++) {
            const struct op_result *r = &reply->step.results[k];

            got += r->lengths.committed;
            assert_err(r->lengths.committed == TOKENS ? TERN_OK : TERN_BUSY, r->err);
        }
        assert_true(got > before);
        steps++;
    } while (got < (FIT + 1) * TOKENS);
    assert_true(steps > 8);
    rig->no_audit = false;
    assert_ok(rig_commit(s[FIT + 1], TOKENS, 0));
    assert_int_equal(s[FIT + 1]->len.committed, TOKENS);
    rig->no_audit = true;
}
