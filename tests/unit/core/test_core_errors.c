/* Every way in which a request can be refused that no rule test has met already, and that a refusal
 * changes nothing. The texts say what to do next, so none may be empty. */
#include "unit/rig/rig_test.h"

static void assert_refused(struct rig *rig, enum tern_err want, enum tern_err got)
{
    assert_err(want, got);
    assert_true(rig->last->text[0] != 0);
}

static enum tern_err open_layout(struct bench *b, struct group_layout group, uint64_t bytes)
{
    struct pool_id pool;

    return rig_pool_open(b->rig, b->e.conn[0], &group, 1, bytes, &pool);
}

TEST(errors_layouts_out_of_range)
{
    struct bench b = bench_start(4, 16);
    uint64_t before = core_changes(b.rig->core);
    struct group_layout good = rig_group(4, 512), g;

    g = good;
    g.family = (enum family)77;
    assert_refused(b.rig, TERN_UNSUPPORTED, open_layout(&b, g, 1 << 16));
    g = good;
    g.page_tokens = 0;
    assert_refused(b.rig, TERN_INVALID, open_layout(&b, g, 1 << 16));
    g.page_tokens = PAGE_TOKENS_MAX + 1;
    assert_refused(b.rig, TERN_INVALID, open_layout(&b, g, 1 << 16));
    g = good;
    g.page_bytes = 0;
    assert_refused(b.rig, TERN_INVALID, open_layout(&b, g, 1 << 16));
    g.page_bytes = 508; /* no multiple of 8 */
    assert_refused(b.rig, TERN_INVALID, open_layout(&b, g, 1 << 16));
    g.page_bytes = UINT64_MAX - 7;
    assert_refused(b.rig, TERN_INVALID, open_layout(&b, g, 1 << 16));
    g = good;
    g.units = 0;
    assert_refused(b.rig, TERN_INVALID, open_layout(&b, g, 1 << 16));
    g.units = 3; /* does not divide 512 */
    assert_refused(b.rig, TERN_INVALID, open_layout(&b, g, 1 << 16));
    g.units = 8; /* above limits.sums_per_page */
    assert_refused(b.rig, TERN_INVALID, open_layout(&b, g, 1 << 16));
    assert_refused(b.rig, TERN_INVALID, open_layout(&b, good, 512)); /* the reserved slab alone */
    assert_refused(b.rig, TERN_INVALID, open_layout(&b, good, 0));
    assert_refused(b.rig, TERN_QUOTA, open_layout(&b, good, UINT64_MAX));
    assert_true(core_changes(b.rig->core) == before);
}

TEST(errors_groups_without_a_common_multiple)
{
    struct bench b = bench_start(4, 16);
    struct group_layout tokens[2] = {rig_group(4095, 512), rig_group(4096, 512)};
    struct group_layout bytes[2] = {rig_group(4, 8 * 65521), rig_group(4, 8 * 65519)};
    struct group_layout nine[GROUPS_MAX + 1];
    struct pool_id pool;

    for (uint32_t i = 0; i <= GROUPS_MAX; i++)
        nine[i] = rig_group(4, 512);
    assert_refused(b.rig, TERN_INVALID,
                   rig_pool_open(b.rig, b.e.conn[0], tokens, 2, 1 << 20, &pool));
    assert_refused(b.rig, TERN_INVALID,
                   rig_pool_open(b.rig, b.e.conn[0], bytes, 2, 1 << 20, &pool));
    assert_refused(b.rig, TERN_INVALID,
                   rig_pool_open(b.rig, b.e.conn[0], nine, GROUPS_MAX + 1, 1 << 20, &pool));
    assert_refused(b.rig, TERN_INVALID, rig_pool_open(b.rig, b.e.conn[0], nine, 0, 1 << 20, &pool));
}

static enum tern_err map(struct rig *rig, uint32_t conn, struct pool_id pool)
{
    struct request request = {.op = OP_POOL_MAP};

    request.pool_map.pool = pool;
    return rig_request(rig, conn, &request)->err;
}

TEST(errors_pools_of_others_and_of_other_worlds)
{
    struct bench b = bench_start(4, 16);
    struct rig_engine wide = rig_engine(b.rig, 0, "wide", 2),
                      foreign = rig_engine(b.rig, 1, "f", 1),
                      unmapped = rig_engine(b.rig, 0, "u", 1);
    struct rig_session s;
    struct pool_id stale = {b.pool.slot, b.pool.gen + 1}, far = {NONE, 1};

    assert_refused(b.rig, TERN_INVALID, map(b.rig, wide.conn[0], b.pool));
    assert_refused(b.rig, TERN_GONE, map(b.rig, foreign.conn[0], b.pool));
    assert_refused(b.rig, TERN_GONE, map(b.rig, b.e.conn[0], stale));
    assert_refused(b.rig, TERN_GONE, map(b.rig, b.e.conn[0], far));
    assert_refused(b.rig, TERN_GONE, rig_pool_close(b.rig, foreign.conn[0], b.pool));
    assert_refused(b.rig, TERN_INVALID, rig_session_open(b.rig, unmapped.conn[0], b.pool, 1, &s));
    assert_ok(map(b.rig, unmapped.conn[0], b.pool));
    assert_ok(rig_session_open(b.rig, unmapped.conn[0], b.pool, 1, &s));
    assert_ok(rig_close(b.s, 0));
    assert_ok(rig_close(&s, 0));
    assert_refused(b.rig, TERN_CONFLICT,
                   rig_pool_close(b.rig, b.e.conn[0], b.pool)); /* two have mapped it */
}

/* From the first death on, an engine gets nothing more done, and its name is free when the last
 * process is gone. */
TEST(errors_dying_engine_gone_and_its_name_busy)
{
    struct rig *rig = rig_create(NULL);
    struct rig_engine e = rig_engine(rig, 0, "e", 2), again;
    struct pool_id pool = rig_pool_pages(rig, &e, 4, 16);
    struct rig_session *s = rig_session(rig, &e, pool, 1);
    uint32_t late = rig_connect(rig, 0, NULL);

    rig_engine_kill(rig, &e, 1);
    assert_refused(rig, TERN_GONE, rig_match(s, rig_tokens(1, 8), 8));
    assert_refused(rig, TERN_GONE, rig_pool_close(rig, e.conn[0], pool));
    assert_refused(rig, TERN_BUSY, rig_join(rig, late, "e", ROLE_WORKER, 1, 2));
    rig_engine_kill(rig, &e, 0);
    again = rig_engine(rig, 0, "e", 2);
    assert_false(engine_id_equal(e.id, again.id));
}

TEST(errors_engine_incomplete_busy)
{
    struct rig *rig = rig_create(NULL);
    uint32_t a = rig_connect(rig, 0, NULL), b = rig_connect(rig, 0, NULL);
    struct group_layout group = rig_group(4, 512);
    struct pool_id pool;

    assert_ok(rig_join(rig, a, "e", ROLE_BOTH, 0, 2));
    assert_refused(rig, TERN_BUSY, rig_pool_open(rig, a, &group, 1, 1 << 16, &pool));
    assert_ok(rig_join(rig, b, "e", ROLE_WORKER, 1, 2));
    assert_ok(rig_pool_open(rig, a, &group, 1, 1 << 16, &pool));
}

/* A scheduler that is no rank has a process of its own: the engine ends with it or after it, never
 * before. */
TEST(errors_scheduler_of_its_own_counts_as_a_process)
{
    struct rig *rig = rig_create(NULL);
    uint32_t sched_proc, rank_proc;
    uint32_t sched = rig_connect(rig, 0, &sched_proc), rank = rig_connect(rig, 0, &rank_proc);
    struct group_layout group = rig_group(4, 512);
    struct rig_session s;
    struct pool_id pool;

    assert_ok(rig_join(rig, sched, "e", ROLE_SCHEDULER, 0, 1));
    assert_ok(rig_join(rig, rank, "e", ROLE_WORKER, 0, 1));
    assert_ok(rig_pool_open(rig, sched, &group, 1, 1 << 16, &pool));
    assert_ok(rig_session_open(rig, sched, pool, 1, &s));
    assert_ok(map(rig, rank, pool));
    rig_disconnect(rig, rank);
    rig_proc_gone(rig, rank_proc);
    assert_int_equal(rig->engines_gone, 0);
    rig_disconnect(rig, sched);
    rig_proc_gone(rig, sched_proc);
    assert_int_equal(rig->engines_gone, 1);
    assert_int_equal(rig_view(rig).sessions, 0);
}

TEST(errors_one_connection_one_engine)
{
    struct rig *rig = rig_create(NULL);
    struct rig_engine e = rig_engine(rig, 0, "e", 1);
    uint32_t stranger = rig_connect(rig, 0, NULL);

    assert_refused(rig, TERN_CONFLICT, rig_join(rig, e.conn[0], "other", ROLE_BOTH, 0, 1));
    assert_refused(rig, TERN_INVALID, rig_leave(rig, stranger));
    assert_ok(rig_leave(rig, e.conn[0]));
    assert_int_equal(rig->engines_gone, 1);
    assert_refused(rig, TERN_INVALID, rig_leave(rig, e.conn[0]));
    assert_ok(rig_join(rig, e.conn[0], "other", ROLE_BOTH, 0, 1)); /* and may begin anew */
}

TEST(errors_admin_requests_from_a_tenant_denied)
{
    struct bench b = bench_start(4, 16);
    struct request evict = {.op = OP_EVICT}, drain = {.op = OP_DRAIN};
    uint64_t before;

    rig_committed(b.rig, &b.e, b.pool, 1, 8);
    before = core_changes(b.rig->core);
    evict.evict.pool = b.pool;
    drain.drain.on = true;
    assert_refused(b.rig, TERN_DENIED, rig_request(b.rig, b.e.conn[0], &evict)->err);
    assert_refused(b.rig, TERN_DENIED, rig_request(b.rig, b.e.conn[0], &drain)->err);
    evict.evict.pool.gen++;
    assert_refused(b.rig, TERN_GONE, rig_request(b.rig, b.admin, &evict)->err);
    assert_true(core_changes(b.rig->core) == before);
}

/* Draining takes no new sessions; those that are open go on and end. */
TEST(errors_draining_refuses_new_sessions_only)
{
    struct bench b = bench_start(4, 16);
    struct request drain = {.op = OP_DRAIN};
    struct rig_session next;

    drain.drain.on = true;
    assert_int_equal(rig_request(b.rig, b.admin, &drain)->drain.sessions, 1);
    assert_true(rig_view(b.rig).draining);
    assert_refused(b.rig, TERN_BUSY, rig_session_open(b.rig, b.e.conn[0], b.pool, 1, &next));
    assert_ok(rig_match(b.s, rig_tokens(1, 8), 8));
    assert_ok(rig_run_to(b.s, rig_tokens(1, 8), 8));
    assert_ok(rig_commit(b.s, 8, 0));
    assert_ok(rig_close(b.s, 0));
    drain.drain.on = false;
    assert_int_equal(rig_request(b.rig, b.admin, &drain)->drain.sessions, 0);
    assert_ok(rig_session_open(b.rig, b.e.conn[0], b.pool, 1, &next));
}

TEST(errors_step_of_too_many_operations_invalid)
{
    static struct step_op ops[STEP_OPS_MAX + 1];
    struct bench b = bench_start(4, 16);
    const struct reply *reply;

    assert_ok(rig_match(b.s, rig_tokens(1, 8), 8));
    for (uint32_t i = 0; i <= STEP_OPS_MAX; i++)
        ops[i] = (struct step_op){.kind = STEP_REWIND, .session = b.s->id};
    assert_refused(b.rig, TERN_INVALID,
                   rig_step_ops(b.rig, b.e.conn[0], ops, STEP_OPS_MAX + 1)->err);
    reply = rig_step_ops(b.rig, b.e.conn[0], ops, STEP_OPS_MAX);
    assert_ok(reply->err);
    assert_int_equal(reply->step.n, STEP_OPS_MAX);
    reply = rig_step_ops(b.rig, b.e.conn[0], ops, 0);
    assert_ok(reply->err);
    assert_int_equal(reply->step.n, 0);
    ops[0].kind = (enum step_op_kind)99;
    assert_err(TERN_UNSUPPORTED, rig_step_ops(b.rig, b.e.conn[0], ops, 1)->step.results[0].err);
}

TEST(errors_tokens_out_of_range_invalid)
{
    struct bench b = bench_start(4, 16);
    struct req_tokens t = {.v = rig_tokens(1, 8), .n = SESSION_TOKENS_MAX + 1};
    uint64_t before = core_changes(b.rig->core);
    uint32_t depth;

    assert_refused(b.rig, TERN_INVALID, rig_match_full(b.s, &t, 0));
    t.n = 8;
    t.base = UINT32_MAX;
    assert_refused(b.rig, TERN_INVALID, rig_match_full(b.s, &t, 0));
    t.base = 1;
    assert_refused(b.rig, TERN_CONFLICT, rig_match_full(b.s, &t, 0));
    assert_refused(b.rig, TERN_INVALID, rig_peek_keys(b.s, &t, &depth));
    assert_true(core_changes(b.rig->core) == before);
}

/* A pool that nobody maps makes way for another layout, after it was zeroed. */
TEST(errors_orphan_pool_makes_way_busy_then_ok)
{
    struct rig_options options = rig_defaults();
    struct group_layout other = rig_group(8, 1024);
    struct rig_engine next;
    struct bench b;
    struct pool_id pool;

    options.tenant[0].memory_bytes = 1 << 20;
    b = bench_with(&options, 4, 16);
    rig_put(b.rig, &b.e, b.pool, 1, 16);
    rig_engine_kill(b.rig, &b.e, 0);
    next = rig_engine(b.rig, 0, "next", 1);
    assert_refused(b.rig, TERN_BUSY, rig_pool_open(b.rig, next.conn[0], &other, 1, 1 << 20, &pool));
    assert_ok(rig_pool_open(b.rig, next.conn[0], &other, 1, 1 << 20, &pool));
    assert_false(pool_id_equal(pool, b.pool));
}

/* What another tenant closes is no room for this one. */
TEST(errors_quota_is_not_eased_by_another_tenants_closing_pool)
{
    struct bench b = bench_start(4, 16);
    struct group_layout group = rig_group(4, 512);
    struct rig_engine other = rig_engine(b.rig, 1, "other", 1);
    struct pool_id pool;

    b.rig->automatic = RIG_ALL & ~(uint32_t)RIG_ZERO;
    assert_ok(rig_close(b.s, 0));
    assert_ok(rig_pool_close(b.rig, b.e.conn[0], b.pool));
    rig_engine_kill(b.rig, &b.e, 0);
    assert_int_equal(rig_jobs(b.rig, RIG_ZERO), 1);
    assert_refused(b.rig, TERN_QUOTA,
                   rig_pool_open(b.rig, other.conn[0], &group, 1, 5 << 20, &pool));
    assert_ok(rig_pool_open(b.rig, other.conn[0], &group, 1, 1 << 20, &pool));
}

/* Every error that the core has answered is counted by kind; every number of the table has a name
 * and a text. */
TEST(errors_are_counted_by_kind)
{
    struct bench b = bench_start(4, 2);

    assert_ok(rig_match(b.s, rig_tokens(1, 64), 64));
    rig_extend(b.s, 64, 0, NULL, 0);
    rig_extend(b.s, 64, 0, NULL, 0);
    rig_rewind(b.s, 9, 0);
    assert_int_equal(rig_view(b.rig).errors[TERN_POOL_EXHAUSTED], 2);
    assert_int_equal(rig_view(b.rig).errors[TERN_INVALID], 1);
    for (int err = 0; err < TERN_ERR_COUNT; err++) {
        assert_string_not_equal(err_name((enum tern_err)err), "UNKNOWN");
        assert_true(err_text((enum tern_err)err)[0] != 0);
    }
    assert_string_equal(err_name(TERN_ERR_COUNT), "UNKNOWN");
}
