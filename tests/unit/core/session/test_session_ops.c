/* The operations of a Step: each takes effect as a whole or not at all and has its own result (E6),
 * lengths stay in order (S1), and Finish, Rewind and Abort follow S4 to S7. */
#include <stdlib.h>
#include <string.h>

#include "unit/rig/rig_test.h"

/* All operations are for the bench's session. */
static const struct reply *steps(struct bench *b, struct step_op *ops, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        ops[i].session = b->s->id;
    return rig_step_ops(b->rig, b->e.conn[0], ops, n);
}

/* E6: an operation that fails does not stop those behind it, unless it is a barrier. */
TEST(step_failed_operation_does_not_stop_the_rest)
{
    struct bench b = bench_start(4, 4);
    const struct reply *reply;
    struct step_op ops[3] = {{.kind = STEP_EXTEND, .length = 8},
                             {.kind = STEP_EXTEND, .length = 400},
                             {.kind = STEP_EXTEND, .length = 12}};

    assert_ok(rig_match(b.s, seq1, 4));
    reply = steps(&b, ops, 3);
    assert_ok(reply->err);
    assert_int_equal(reply->step.n, 3);
    assert_ok(reply->step.results[0].err);
    assert_err(TERN_QUOTA, reply->step.results[1].err);
    assert_int_equal(reply->step.results[1].lengths.allocated, 8);
    assert_ok(reply->step.results[2].err);
    assert_int_equal(reply->step.results[2].lengths.allocated, 12);
    assert_int_equal(rig_free(b.rig, b.pool), 1);
}

TEST(step_failed_barrier_stops_the_rest)
{
    struct bench b = bench_start(4, 4);
    const struct reply *reply;
    struct step_op ops[3] = {{.kind = STEP_EXTEND, .length = 8},
                             {.kind = STEP_EXTEND, .length = 400, .barrier = true},
                             {.kind = STEP_EXTEND, .length = 12}};

    assert_ok(rig_match(b.s, seq1, 4));
    reply = steps(&b, ops, 3);
    assert_ok(reply->err);
    assert_int_equal(reply->step.n, 2); /* n < ops: the barrier stopped it */
    assert_err(TERN_QUOTA, reply->step.results[1].err);
    assert_int_equal(rig_free(b.rig, b.pool), 2);
    ops[1].length = 8; /* a barrier that succeeds stops nothing */
    reply = rig_step_ops(b.rig, b.e.conn[0], ops, 3);
    assert_int_equal(reply->step.n, 3);
    assert_int_equal(rig_free(b.rig, b.pool), 1);
}

TEST(step_operations_apply_in_order)
{
    struct bench b = bench_start(4, 4);
    const struct reply *reply;
    struct step_op ops[4] = {
        {.kind = STEP_EXTEND, .length = 16, .written = 16, .tokens = {.v = seq1, .n = 16}},
        {.kind = STEP_COMMIT, .length = 8},
        {.kind = STEP_REWIND, .length = 12},
        {.kind = STEP_CLOSE}};

    assert_ok(rig_match(b.s, NULL, 0));
    reply = steps(&b, ops, 4);
    for (int i = 0; i < 4; i++)
        assert_ok(reply->step.results[i].err);
    assert_int_equal(reply->step.results[1].lengths.committed, 8);
    assert_int_equal(reply->step.results[2].lengths.allocated, 12);
    assert_int_equal(rig_free(b.rig, b.pool), 2);
    assert_int_equal(rig_group_view(b.rig, b.pool, 0).snapshot, 2);
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
        struct rig_session *s = session_with(b.rig, &b.e, pool, 1, 16);

        assert_err(TERN_QUOTA, rig_extend(s, 16, 0, NULL, 0));
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

/* T4: other sessions do not notice, and pinned prefixes stay. Fault 36: nothing waits for ever. */
TEST(extend_exhausted_others_go_on)
{
    struct bench b = bench_start(4, 8);
    struct rig_session *pinned = rig_committed(b.rig, &b.e, b.pool, 1, 16);

    assert_ok(rig_match(b.s, rig_tokens(2, 64), 64));
    assert_err(TERN_POOL_EXHAUSTED, rig_extend(b.s, 20, 0, NULL, 0));
    assert_int_equal(b.rig->res.shortage.needed, 5);
    assert_int_equal(b.rig->res.shortage.free, 4);
    assert_int_equal(b.rig->res.shortage.evictable, 0);
    assert_int_equal(rig_depth(b.s, seq1, 16), 16);
    assert_int_equal(rig_wrong(pinned, 16), 0);
    assert_ok(rig_run_to(b.s, rig_tokens(2, 64), 16));
    assert_int_equal(rig_wrong(pinned, 16), 0);
}

TEST(extend_only_what_is_missing)
{
    struct bench b = bench_start(4, 8);
    struct page_ref first;

    takes_pages(b.s, seq1, 32, 1);
    assert_int_equal(rig_free(b.rig, b.pool), 7);
    first = b.s->table[0][0];
    assert_ok(rig_extend(b.s, 4, 0, NULL, 0)); /* fits the page that it has */
    assert_int_equal(rig_free(b.rig, b.pool), 7);
    assert_ok(rig_extend(b.s, 5, 0, NULL, 0));
    assert_int_equal(rig_free(b.rig, b.pool), 6);
    assert_memory_equal(&first, &b.s->table[0][0], sizeof first);
}

/* Every request here is wrong: none changes anything, S1 included. */
TEST(session_lengths_out_of_order_invalid_and_unchanged)
{
    struct bench b = bench_running();
    uint64_t changes = core_changes(b.rig->core);

    assert_err(TERN_INVALID, rig_extend(b.s, 0, 21, NULL, 0)); /* C > A */
    assert_err(TERN_INVALID, rig_extend(b.s, 0, 7, NULL, 0));  /* C < T */
    assert_err(TERN_INVALID, rig_extend(b.s, 19, 0, NULL, 0)); /* A does not shrink by Extend */
    assert_err(TERN_INVALID, rig_extend(b.s, SESSION_TOKENS_MAX + 1, 0, NULL, 0));
    assert_err(TERN_INVALID, rig_rewind(b.s, 7, 0));  /* below T */
    assert_err(TERN_INVALID, rig_rewind(b.s, 21, 0)); /* above A */
    assert_lengths(b.s, 8, 14, 20);
    assert_true(core_changes(b.rig->core) == changes);
}

TEST(session_tokens_at_another_base_conflict)
{
    struct bench b = bench_running();
    uint32_t more[2] = {1, 2};
    struct step_op op = {.kind = STEP_EXTEND,
                         .tokens = {.v = more, .n = 2, .base = b.s->ntokens + 1}};

    assert_err(TERN_CONFLICT, rig_op(b.s, op));
    assert_non_null(strstr(b.rig->last->step.results[0].text, "and the session has # tokens"));
    op.tokens.base = b.s->ntokens - 1;
    assert_err(TERN_CONFLICT, rig_op(b.s, op));
    assert_int_equal(b.s->ntokens, 14);
    op.tokens.base = b.s->ntokens;
    assert_ok(rig_op(b.s, op));
    assert_int_equal(b.s->ntokens, 16);
}

/* S5 and P2: the tail retires at its step, and the partial page stays the session's. */
TEST(rewind_within_a_page_frees_nothing)
{
    struct bench b = bench_running();

    assert_leaves(rig_rewind(b.s, 17, 0), b.s, 8, 14, 17);
    assert_int_equal(rig_free(b.rig, b.pool), 32 - 5);
    assert_leaves(rig_rewind(b.s, 13, 9), b.s, 8, 13, 13);
    assert_int_equal(rig_free(b.rig, b.pool), 32 - 5);
    assert_int_equal(rig_retiring(b.rig, b.pool), 1);
    rig_engine_done(b.rig, &b.e, 9);
    assert_int_equal(rig_free(b.rig, b.pool), 32 - 4);
}

/* S6: table, pins and tokens stay for the next turn. */
TEST(finish_keeps_table_pins_and_tokens)
{
    struct bench b = bench_running();

    assert_leaves(rig_finish(b.s, 14, 0), b.s, 8, 14, 14);
    assert_int_equal(b.s->ntokens, 14);
    assert_int_equal(rig_evict(b.rig, b.admin, b.pool, 0), 0);
    assert_int_equal(rig_wrong(b.s, 12), 0);
    assert_int_equal(rig_free(b.rig, b.pool), 32 - 4);
}

/* S6: a length lies within the tokens, and what was not reported as written stays unwritten. */
TEST(finish_keeps_a_length_between_committed_and_allocated)
{
    struct bench b = bench_running();
    const struct lengths before = b.s->len;

    assert_err(TERN_INVALID, rig_finish(b.s, 7, 0));
    assert_err(TERN_INVALID, rig_finish(b.s, before.allocated + 1, 0));
    assert_lengths(b.s, before.committed, before.written, before.allocated);
    assert_leaves(rig_finish(b.s, before.allocated - 1, 0), b.s, 8, 14, before.allocated - 1);
    assert_leaves(rig_match(b.s, seq1, 24), b.s, 8, 14, 14);
    assert_leaves(rig_finish(b.s, 8, 0), b.s, 8, 8, 8);
    assert_int_equal(b.s->ntokens, 8);
}

/* A commit before the abort is in the tree and stays there (S7, P4). */
TEST(abort_after_a_commit_the_tree_keeps_it)
{
    struct bench b = bench_start(4, 32);

    computes_and_commits(b.s, 1, 16, 12, 0);
    assert_leaves(rig_abort(b.s, 3), b.s, 0, 0, 0);
    assert_int_equal(rig_retiring(b.rig, b.pool), 1);
    assert_int_equal(rig_depth(b.s, seq1, 16), 12);
    assert_int_equal(rig_evict(b.rig, b.admin, b.pool, 0), 0); /* the pin ends with step 3 */
    rig_engine_done(b.rig, &b.e, 3);
    assert_int_equal(rig_evict(b.rig, b.admin, b.pool, 0), 3);
    assert_int_equal(rig_free(b.rig, b.pool), 32);
}

TEST(abort_repeated_is_harmless)
{
    struct bench b = bench_running();

    assert_ok(rig_abort(b.s, 0));
    rig_abort(b.s, 0);
    assert_lengths(b.s, 0, 0, 0);
    assert_int_equal(rig_free(b.rig, b.pool), 32 - 2);
    assert_leaves(rig_match(b.s, seq1, 8), b.s, 8, 8, 8);
}

/* S9: borrowed pages count once, however many sessions use them. */
TEST(accounting_shared_pages_count_once)
{
    struct bench b = bench_running();
    struct rig_session *more[3];
    struct group_view v;

    for (int i = 0; i < 3; i++) {
        more[i] = rig_session(b.rig, &b.e, b.pool, 1);
        takes_pages(more[i], seq1, 8, 12);
    }
    v = rig_group_view(b.rig, b.pool, 0);
    assert_int_equal(v.snapshot, 2);
    assert_int_equal(v.session, 3 + 3);
    assert_int_equal(v.free, 32 - 8);
}

/* Libraries of an older version name units of pages ahead of their commit. */
TEST(written_of_an_older_library_is_refused_and_changes_nothing)
{
    struct bench b = bench_running();
    uint64_t changes = core_changes(b.rig->core);

    assert_err(TERN_UNSUPPORTED, rig_op(b.s, (struct step_op){.kind = STEP_WRITTEN, .length = 16}));
    assert_non_null(strstr(b.rig->res.text, "tern_written was retired"));
    assert_true(core_changes(b.rig->core) == changes);
    assert_leaves(rig_finish(b.s, 14, 0), b.s, 8, 14, 14);
}

/* S8: the answer was lost, and the scheduler repeats the request. */
TEST(finish_and_rewind_repeated_change_nothing)
{
    struct bench b = bench_running();
    uint32_t free;

    assert_ok(rig_run_to(b.s, seq1, 20));
    for (uint32_t i = 0; i < 3; i++) {
        assert_leaves(rig_rewind(b.s, 17, 0), b.s, 8, 17, 17);
        assert_int_equal(b.s->ntokens, 17);
    }
    assert_ok(rig_finish(b.s, 16, 0));
    free = rig_free(b.rig, b.pool);
    for (uint32_t i = 0; i < 3; i++) {
        assert_lengths(b.s, 8, 16, 16);
        assert_int_equal(b.s->ntokens, 16);
        assert_int_equal(rig_free(b.rig, b.pool), free);
        assert_ok(rig_finish(b.s, 16, 0));
    }
    assert_leaves(rig_match(b.s, seq1, 24), b.s, 8, 16, 16);
}
