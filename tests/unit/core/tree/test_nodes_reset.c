/* N1, NamespaceReset while transfers, commits, retractions and copies are under way, and an
 * operator's pins. Pages have 4 tokens, and L = 4. */
#include "unit/rig/rig_host.h"

static void reset(struct bench *b)
{
    assert_ok(rig_reset(b->rig, b->e.conn[0], 1, NULL));
}

/* --- resets --- */

/* N1 */
TEST(reset_only_that_namespace_and_that_tenant)
{
    struct bench b = host_bench(4, 64, 64);
    struct rig_engine two = rig_engine(b.rig, 1, "theirs", 1);
    struct rig_session *other = rig_session(b.rig, &b.e, b.pool, 2), *foreign;
    uint32_t nodes = 99;
    struct pool_id theirs = rig_pool_pages(b.rig, &two, 4, 64);

    put(&b, 1, 8);
    commits(other, 1, 8);
    foreign = rig_committed(b.rig, &two, theirs, 1, 8);
    assert_ok(rig_reset(b.rig, b.e.conn[0], 1, &nodes));
    assert_int_equal(nodes, 2);
    assert_int_equal(rig_depth(b.s, seq1, 8), 0);
    assert_int_equal(rig_depth(other, seq1, 8), 8);
    assert_int_equal(rig_depth(foreign, seq1, 8), 8);
    assert_ok(rig_reset(b.rig, b.e.conn[0], 1, &nodes)); /* repeated: a new one by now */
    assert_int_equal(nodes, 0);
    assert_ok(rig_reset(b.rig, b.e.conn[0], 55, &nodes)); /* unknown */
    assert_int_equal(nodes, 0);
    assert_int_not_equal(rig_reset(b.rig, b.admin, 1, &nodes), TERN_OK); /* not an engine */
    assert_ok(rig_close(other, 0));
    bench_ends_clean(&b);
}

/* N1: a session of the old revision matches nothing either, while another one still pins it. */
TEST(reset_an_old_session_matches_nothing_new)
{
    struct bench b = host_bench(4, 64, 16);
    struct rig_session *holder = rig_committed(b.rig, &b.e, b.pool, 1, 8);

    reset(&b);
    matches(b.s, seq1, 12, 0);
    assert_int_equal(b.rig->last->match.host_depth, 0);
    run_and_commit(b.s, seq1, 12, 8, 0); /* equal content may be shared */
    assert_int_equal(rig_wrong(b.s, 12), 0);
    assert_ok(rig_close(holder, 0));
    bench_ends_clean(&b);
}

/* N1: in every pool of the tenant. */
TEST(reset_in_every_pool)
{
    struct bench b = host_bench(4, 64, 16);
    struct pool_id second = rig_pool_pages(b.rig, &b.e, 4, 32);
    struct rig_session *s = rig_session(b.rig, &b.e, second, 1);
    uint32_t nodes = 0;

    put(&b, 1, 8);
    rig_put(b.rig, &b.e, second, 1, 12);
    assert_ok(rig_reset(b.rig, b.e.conn[0], 1, &nodes));
    assert_int_equal(nodes, 5);
    assert_int_equal(rig_depth(b.s, seq1, 8), 0);
    assert_int_equal(rig_depth(s, seq1, 12), 0);
    assert_int_equal(rig_free(b.rig, second), 32);
    assert_ok(rig_close(s, 0));
    bench_ends_clean(&b);
}

/* More nodes than one step frees. */
struct freed {
    struct rig *rig;
    uint32_t nodes;
};

/* Before each step: checks how many nodes the last step freed. */
static void frees_little(void *ctx, const struct event *event)
{
    struct freed *f = ctx;
    uint32_t nodes = rig_view(f->rig).nodes;

    (void)event;
    assert_true(f->nodes <= nodes + PIECE_VISITS_MAX / NODE_VISITS);
    f->nodes = nodes;
}

/* N1 */
TEST(reset_more_nodes_than_one_step_frees)
{
    struct rig_options o = rig_defaults();
    struct rig_session *old;
    struct freed freed;
    struct bench b;

    o.limits.nodes = 4096;
    o.limits.token_blocks = 4096;
    b = host_bench_with(&o, 4, 1800, 1200);
    b.rig->no_audit = true;
    put(&b, 1, 4 * 800);
    put(&b, 2, 4 * 800);
    old = session_with(b.rig, &b.e, b.pool, 1, 40);
    b.rig->no_audit = false;
    freed = (struct freed){.rig = b.rig, .nodes = rig_view(b.rig).nodes};
    b.rig->on_event = frees_little;
    b.rig->on_event_ctx = &freed;
    reset(&b);
    assert_int_equal(rig_depth(b.s, seq1, 40), 0);
    b.rig->on_event = NULL;
    assert_int_equal(rig_free(b.rig, b.pool), 1800 - 10);
    assert_int_equal(rig_pool_view(b.rig, b.pool).nodes, 10);
    assert_ok(rig_close(old, 0));
    assert_int_equal(rig_free(b.rig, b.pool), 1800);
    assert_int_equal(host_free(b.rig, b.pool, 0), 1200);
    bench_ends_clean(&b);
}

/* N1 */
TEST(reset_while_a_commit_is_pending)
{
    for (uint32_t dies = 0; dies < 2; dies++) {
        struct bench b = host_bench(4, 64, 16);

        assert_ok(rig_match(b.s, seq1, 30));
        run_and_commit(b.s, seq1, 12, 8, 9);
        reset(&b);
        assert_ok(rig_commit(b.s, 12, 9)); /* commits into the old revision */
        if (dies) {
            rig_engine_kill(b.rig, &b.e, 0);
            assert_int_equal(rig_view(b.rig).nodes, 0);
            assert_all_free(b.rig, b.pool);
            continue;
        }
        rig_engine_done(b.rig, &b.e, 9);
        assert_int_equal(rig_depth(b.s, seq1, 30), 0);
        assert_int_equal(rig_wrong(b.s, 12), 0);
        assert_int_equal(b.rig->copies_back, 0); /* the host copies none of them */
        assert_ok(rig_abort(b.s, 0));
        assert_int_equal(rig_free(b.rig, b.pool), 64);
        assert_ok(rig_match(b.s, seq1, 30)); /* the session has the old revision */
        assert_int_equal(b.s->matched, 0);
        commit_to(b.s, seq1, 12, 0);
        assert_int_equal(rig_depth(b.s, seq1, 30), 0);
        assert_int_equal(rig_wrong(b.s, 12), 0);
        bench_ends_clean(&b);
    }
}

/* N1 */
TEST(reset_while_sessions_are_away)
{
    struct bench b = host_bench(4, 64, 32);
    struct rig_session *s[3];

    for (uint32_t i = 0; i < 3; i++) {
        s[i] = session_with(b.rig, &b.e, b.pool, i + 1, 20);
        run_and_commit(s[i], rig_tokens(i + 1, 20), 10, 8, 0);
    }
    assert_ok(rig_retract(s[0], RETRACT_HOST, 0));
    rig_evict(b.rig, b.admin, b.pool, 0);
    assert_ok(rig_retract(s[1], RETRACT_DROP, 0));
    b.rig->automatic = BY_HAND(RIG_COPY);
    assert_ok(rig_retract(s[2], RETRACT_HOST, 5));
    reset(&b);
    rig_evict(b.rig, b.admin, b.pool, 0);
    rig_runs_free(b.rig);
    rig_engine_done(b.rig, &b.e, 5);
    for (uint32_t i = 0; i < 3; i++) { /* each recovers its own pages */
        assert_ok(rig_recover_now(s[i]));
        assert_int_equal(s[i]->len.committed, 8);
        assert_int_equal(rig_wrong(s[i], s[i]->len.written), 0);
        commit_to(s[i], rig_tokens(i + 1, 20), 16, 0);
        assert_int_equal(rig_wrong(s[i], 16), 0);
        assert_int_equal(rig_depth(b.s, rig_tokens(i + 1, 16), 16), 0);
        assert_ok(rig_retract(s[i], RETRACT_HOST, 0)); /* and can be retracted again */
        rig_evict(b.rig, b.admin, b.pool, 0);
        assert_ok(rig_recover_now(s[i]));
        closes_whole(s[i], 16);
    }
    assert_int_equal(rig_free(b.rig, b.pool), 64);
    assert_int_equal(host_free(b.rig, b.pool, 0), 32);
    bench_ends_clean(&b);
}

/* N1 */
TEST(reset_while_a_load_runs)
{
    struct bench b = host_bench(4, 64, 32);
    uint64_t request;

    put(&b, 1, 20);
    assert_int_equal(rig_evict(b.rig, b.admin, b.pool, 5), 5);
    assert_ok(rig_match(b.s, seq1, 30));
    request = load_held(&b);
    rig_complete(b.rig, RIG_COPY);
    reset(&b);
    rig_runs_free(b.rig);
    assert_non_null(rig_reply_to(b.rig, request));
    rig_fetched(b.s, request);
    assert_int_equal(rig_wrong(b.s, b.s->len.written), 0);
    assert_int_equal(rig_depth(b.s, seq1, 30), 0);
    if (b.s->len.committed < 20)
        assert_ok(rig_abort(b.s, 0));
    assert_ok(rig_close(b.s, 0));
    assert_int_equal(rig_free(b.rig, b.pool), 64);
    assert_int_equal(host_free(b.rig, b.pool, 0), 32);
    b.s = rig_session(b.rig, &b.e, b.pool, 1);
    bench_ends_clean(&b);
}

/* N1, a transfer in: the pages that arrive belong to the old revision. */
TEST(reset_while_a_pull_runs)
{
    for (uint32_t jobs = 0; jobs < 3; jobs++) {
        struct pair p = pair_with(rig_defaults(), 4, 64, 64);
        struct rig_session *s = rig_session(p.dest, &p.de, p.dp, 1);
        struct request reset = {.op = OP_NAMESPACE_RESET};
        uint64_t request;

        rig_put(p.source, &p.se, p.sp, 1, 40);
        rig_put(p.dest, &p.de, p.dp, 1, 8);
        assert_ok(rig_match(s, seq1, 40));
        p.dest->automatic = BY_HAND(RIG_PULL | (jobs == 0 ? RIG_MSG : 0));
        request = rig_fetch(s, 0, 0);
        if (jobs == 2 && rig_jobs(p.dest, RIG_PULL) > 0)
            rig_complete(p.dest, RIG_PULL);
        reset.namespace_reset.ns = (struct namespace_id){.hi = 1, .lo = 1};
        rig_request(p.dest, p.de.conn[0], &reset);
        rig_runs_free(p.dest);
        assert_ok(rig_reply_to(p.dest, reset.request_id)->err);
        assert_non_null(rig_reply_to(p.dest, request));
        rig_fetched(s, request);
        assert_int_equal(rig_wrong(s, s->len.written), 0);
        assert_int_equal(rig_depth(s, seq1, 40), 0);
        assert_ok(rig_close(s, 0));
        assert_int_equal(rig_free(p.dest, p.dp), 64);
        s = session_with(p.dest, &p.de, p.dp, 1, 40); /* the new content can be fetched */
        rig_put(p.source, &p.se, p.sp, 1, 40);
        assert_leaves_whole(rig_fetched(s, rig_fetch(s, 0, 0)), s, 40);
    }
}

/* N1, a transfer out: pages that a peer reads stay until the transfer has ended. */
TEST(reset_while_a_serve_runs)
{
    for (uint32_t seals = 0; seals < 2; seals++) {
        struct pair p = pair_with(rig_defaults(), 4, 64, 64);
        struct rig_session *s = rig_session(p.dest, &p.de, p.dp, 1);
        uint64_t request;

        if (seals)
            p.source->automatic = BY_HAND(RIG_SEAL);
        rig_put(p.source, &p.se, p.sp, 1, 40);
        assert_ok(rig_match(s, seq1, 40));
        p.dest->automatic = BY_HAND(RIG_PULL);
        request = rig_fetch(s, 0, 0);
        assert_ok(rig_reset(p.source, p.se.conn[0], 1, NULL));
        rig_runs_free(p.source);
        rig_runs_free(p.dest);
        assert_leaves_whole(rig_fetched(s, request), s, 40);
        assert_int_equal(rig_free(p.source, p.sp), 64); /* then they go */
        s = session_with(p.dest, &p.de, p.dp, 2, 40);
        rig_fetched(s, rig_fetch(s, 0, 0));
        assert_lengths(s, 0, 0, 0);
    }
}

/* N1, STATE and borrowers: pages that a running session needs stay. */
TEST(reset_with_state)
{
    for (uint32_t supersede = SUPERSEDE_LAZY; supersede <= SUPERSEDE_OFF; supersede++) {
        struct stage st = host_stage(supersede, 64, rig_window(16, 128, 64), 64);
        struct rig_session *s = stage_committed(&st, 1, 192);
        uint32_t nodes;

        stage_put(&st, 2, 128);
        assert_ok(rig_reset(st.rig, st.e.conn[0], 1, &nodes));
        assert_int_equal(nodes, 5);
        assert_int_equal(match_depth(&st, seq1, 192), 0);
        assert_int_equal(rig_wrong(s, 192), 0);
        commit_to(s, seq1, 320, 0);
        closes_whole(s, 320);
        assert_all_free(st.rig, st.pool);
    }
}

/* N1: many resets, one after another, with few namespace records. */
TEST(reset_again_and_again)
{
    struct bench b = HOST_BENCH_LIMITED(limits.namespaces = 3, 4, 64, 8);

    for (uint32_t i = 0; i < 30; i++) {
        struct rig_session *s = rig_session(b.rig, &b.e, b.pool, 1);

        matches(s, seq1, 12, 0);
        commit_to(s, seq1, 12, 0);
        if (i % 2)
            reset(&b);
        assert_ok(rig_close(s, 0));
        if (i % 2 == 0)
            reset(&b);
        assert_int_equal(rig_free(b.rig, b.pool), 64);
    }
    bench_ends_clean(&b);
}

/* --- pins --- */

static struct node_id id_at(struct bench *b, uint32_t seed, uint32_t depth)
{
    return node_seen(b->rig, b->pool, rig_tokens(seed, depth), depth).id;
}

TEST(a_pin_keeps_its_path_on_the_device)
{
    struct bench b = host_bench(4, 16, 16);
    struct node_view v;
    struct node_id id;

    put(&b, 1, 12);
    put(&b, 2, 8);
    id = id_at(&b, 1, 8);
    b.rig->now_ns += 77;
    assert_ok(rig_pin(b.rig, b.admin, id, true));
    assert_int_equal(b.rig->last->pin.refs, 1);
    v = node_seen(b.rig, b.pool, seq1, 8);
    assert_int_equal(v.refs[REF_ADMIN], 1);
    assert_true(v.admin_since_ns == b.rig->now_ns);
    b.rig->now_ns += 1000;
    assert_ok(rig_pin(b.rig, b.admin, id, true));
    assert_int_equal(b.rig->last->pin.refs, 2);
    v = node_seen(b.rig, b.pool, seq1, 8);
    assert_true(v.admin_since_ns == b.rig->now_ns - 1000); /* since the first pin */
    rig_evict(b.rig, b.admin, b.pool, 0);
    assert_int_equal(rig_depth(b.s, seq1, 12), 8); /* 12 was evicted, 4 and 8 were not */
    assert_int_equal(rig_free(b.rig, b.pool), 14);
    assert_ok(rig_pin(b.rig, b.admin, id, false));
    assert_int_equal(b.rig->last->pin.refs, 1);
    rig_evict(b.rig, b.admin, b.pool, 0);
    assert_int_equal(rig_depth(b.s, seq1, 12), 8);
    assert_ok(rig_pin(b.rig, b.admin, id, false));
    assert_int_equal(b.rig->last->pin.refs, 0);
    rig_evict(b.rig, b.admin, b.pool, 0);
    assert_int_equal(rig_free(b.rig, b.pool), 16);
    bench_ends_clean(&b);
}

TEST(pins_that_cannot_be)
{
    struct bench b = host_bench(4, 16, 16);
    struct node_id id, root, stale;
    uint64_t changes;

    put(&b, 1, 8);
    id = id_at(&b, 1, 8);
    root.slot = node_at(b.rig->core, node_at(b.rig->core, id.slot)->parent)->parent;
    root.gen = node_at(b.rig->core, root.slot)->gen;
    stale = (struct node_id){.slot = id.slot, .gen = id.gen + 1};
    changes = core_changes(b.rig->core);
    assert_err(TERN_DENIED, rig_pin(b.rig, b.e.conn[0], id, true));
    assert_err(TERN_GONE, rig_pin(b.rig, b.admin, stale, true));
    assert_err(TERN_GONE, rig_pin(b.rig, b.admin, stale, false));
    assert_err(TERN_GONE, rig_pin(b.rig, b.admin, root, true));
    stale.slot = 1u << 30;
    assert_err(TERN_GONE, rig_pin(b.rig, b.admin, stale, true));
    assert_err(TERN_CONFLICT, rig_pin(b.rig, b.admin, id, false));
    assert_true(core_changes(b.rig->core) == changes);
    assert_int_equal(rig_evict(b.rig, b.admin, b.pool, 1), 1); /* 8 is only on the host */
    assert_err(TERN_INVALID, rig_pin(b.rig, b.admin, id, true));
    assert_err(TERN_CONFLICT, rig_pin(b.rig, b.admin, id, false));
    assert_ok(rig_pin(b.rig, b.admin, id_at(&b, 1, 4), true));
    assert_ok(rig_pin(b.rig, b.admin, id_at(&b, 1, 4), false));
    rig_evict(b.rig, b.admin, b.pool, 0);
    assert_err(TERN_GONE, rig_pin(b.rig, b.admin, id, true)); /* on neither tier */
    bench_ends_clean(&b);
}

/* A node whose step has not passed is not pinned: the pin would outlive it if its engine died. */
TEST(a_node_that_waits_for_its_step_is_not_pinned)
{
    struct bench b = host_bench(4, 16, 16);
    struct node_id id;

    computes_and_commits(b.s, 1, 12, 8, 5);
    id = id_at(&b, 1, 8);
    assert_err(TERN_INVALID, rig_pin(b.rig, b.admin, id, true));
    rig_engine_done(b.rig, &b.e, 5);
    assert_ok(rig_pin(b.rig, b.admin, id, true));
    assert_ok(rig_pin(b.rig, b.admin, id, false));
    bench_ends_clean(&b);
}

TEST(a_pin_and_a_reset)
{
    struct bench b = host_bench(4, 16, 16);
    struct node_id id;

    put(&b, 1, 8);
    put(&b, 2, 8);
    id = id_at(&b, 1, 4);
    assert_ok(rig_pin(b.rig, b.admin, id, true));
    reset(&b);
    assert_int_equal(rig_free(b.rig, b.pool), 15);
    assert_int_equal(rig_depth(b.s, seq1, 8), 0);
    assert_ok(rig_pin(b.rig, b.admin, id, false));
    assert_int_equal(rig_free(b.rig, b.pool), 16);
    assert_int_equal(host_free(b.rig, b.pool, 0), 16);
    bench_ends_clean(&b);
}

/* X6: the id of a node from before a restart; its slot has another node now. */
TEST(a_pin_from_before_a_restart_is_gone)
{
    struct rig_options o = rig_defaults();
    struct bench old, now;
    struct node_id was, is;

    old = bench_with(&o, 4, 16);
    o.incarnation++;
    now = bench_with(&o, 4, 16);
    rig_put(old.rig, &old.e, old.pool, 1, 8);
    rig_put(now.rig, &now.e, now.pool, 2, 8);
    was = id_at(&old, 1, 8);
    is = id_at(&now, 2, 8);
    assert_int_equal(was.slot, is.slot);
    assert_err(TERN_GONE, rig_pin(now.rig, now.admin, was, true));
    assert_ok(rig_pin(now.rig, now.admin, is, true));
}

/* Within one incarnation the slot's next node has another generation. */
TEST(a_pin_of_what_the_slot_had_before_is_gone)
{
    struct bench b = bench_start(4, 16);
    struct node_id was, is;

    rig_put(b.rig, &b.e, b.pool, 1, 4);
    was = id_at(&b, 1, 4);
    assert_int_equal(rig_evict(b.rig, b.admin, b.pool, 0), 1);
    rig_put(b.rig, &b.e, b.pool, 2, 4);
    is = id_at(&b, 2, 4);
    assert_int_equal(was.slot, is.slot);
    assert_err(TERN_GONE, rig_pin(b.rig, b.admin, was, true));
    assert_ok(rig_pin(b.rig, b.admin, is, true));
}

/* An operator's pins end with the pool, or its range would never be free. */
TEST(a_pin_and_a_pool_that_closes)
{
    struct bench b = bench_start(4, 16);
    struct node_id id;

    rig_put(b.rig, &b.e, b.pool, 1, 8);
    id = id_at(&b, 1, 8);
    assert_ok(rig_pin(b.rig, b.admin, id, true));
    assert_ok(rig_pin(b.rig, b.admin, id, true));
    assert_ok(rig_close(b.s, 0));
    assert_ok(rig_pool_close(b.rig, b.e.conn[0], b.pool));
    assert_int_equal(rig_view(b.rig).nodes, 0);
    assert_err(TERN_GONE, rig_pin(b.rig, b.admin, id, false));
    rig_engine_kill(b.rig, &b.e, 0);
    assert_int_equal(rig_view(b.rig).pools, 0);
}
