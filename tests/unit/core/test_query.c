/* The read-only views: ternctl shows what exists, empty slots are reported as empty, and a view
 * changes nothing. */
#include "unit/rig/rig_pair.h"

TEST(views_empty_slots_are_false)
{
    struct rig *rig = rig_create(NULL);
    struct pool_view pool;
    struct session_view session;
    struct engine_view engine;
    struct transfer_view transfer;
    struct node_view node;

    for (uint32_t i = 0; i < 3; i++) {
        uint32_t slot = i == 2 ? UINT32_MAX : i; /* one far beyond the last, too */

        assert_false(core_pool_view(rig->core, slot, &pool));
        assert_false(core_session_view(rig->core, slot, &session));
        assert_false(core_engine_view(rig->core, slot, &engine));
        assert_false(core_pull_view(rig->core, slot, &transfer));
        assert_false(core_serve_view(rig->core, slot, &transfer));
        assert_false(core_node_view(rig->core, slot, &node));
    }
    assert_int_equal(rig_view(rig).nodes, 0);
    assert_true(rig_view(rig).incarnation == 0x1001);
}

TEST(views_session_and_engine_say_what_they_are)
{
    struct rig *rig = rig_create(NULL);
    struct rig_engine e = rig_engine(rig, 0, "prefill-7", 2);
    struct pool_id pool = rig_pool_pages(rig, &e, 4, 16);
    struct rig_session *s = rig_session(rig, &e, pool, 9);
    struct session_view session;
    struct engine_view engine;

    assert_true(core_session_view(rig->core, s->id.slot, &session));
    assert_string_equal(session.state_word, "open");
    assert_ok(rig_match(s, seq1, 16));
    run_and_commit(s, seq1, 10, 8, 4);
    assert_ok(rig_rewind(s, 8, 6));
    rig_step_done(rig, e.id, 0, 3);
    assert_true(core_session_view(rig->core, s->id.slot, &session));
    assert_true(session_id_equal(session.id, s->id) && engine_id_equal(session.engine, e.id) &&
                pool_id_equal(session.pool, pool));
    assert_true(session.ns.lo == 9);
    assert_string_equal(session.state_word, "turn");
    assert_int_equal(session.lengths.committed, 8);
    assert_int_equal(session.tokens, 8);
    assert_true(session.last_use_ns == rig->now_ns);
    assert_true(core_engine_view(rig->core, e.id.slot, &engine));
    assert_string_equal(engine.name, "prefill-7");
    assert_string_equal(engine.state_word, "live");
    assert_int_equal(engine.world, 2);
    assert_int_equal(engine.procs_alive, 2);
    assert_true(engine.procs[0] != NONE && engine.procs[1] != NONE && engine.procs[2] == NONE);
    assert_int_equal(engine.sessions, 1);
    assert_true(engine.done_step[0] == 3 && engine.done_step[1] == 0);
    assert_true(engine.retiring_until == 6);
    assert_ok(rig_finish(s, 8, 6));
    assert_true(core_session_view(rig->core, s->id.slot, &session));
    assert_string_equal(session.state_word, "idle");
    rig_engine_kill(rig, &e, 1);
    assert_true(core_engine_view(rig->core, e.id.slot, &engine));
    assert_string_equal(engine.state_word, "dying");
    assert_true(engine.procs[0] != NONE && engine.procs[1] == NONE);
}

TEST(views_nodes_show_depth_refs_and_visibility)
{
    struct bench b = bench_start(4, 16);
    uint32_t seen = 0, pinned = 0, hidden = 0;

    b.rig->automatic = RIG_ALL & ~(uint32_t)RIG_SEAL;
    rig_put(b.rig, &b.e, b.pool, 1, 8);
    computes_and_commits(b.s, 1, 12, 12, 5);
    for (uint32_t i = 0; i < b.rig->options.limits.nodes; i++) {
        struct node_view v;

        if (!core_node_view(b.rig->core, i, &v))
            continue;
        seen++;
        assert_int_equal(v.slot, i);
        assert_int_equal(v.pages, v.depth ? 1 : 0);
        assert_int_equal(v.children, v.depth == 12 ? 0 : 1);
        assert_true(v.ns.lo == 1 && v.pool == b.pool.slot);
        assert_false(v.sealed);
        pinned += v.refs[REF_DEVICE];
        hidden += !v.visible;
        if (v.depth)
            assert_true(v.parent < b.rig->options.limits.nodes);
        if (v.depth == 12)
            assert_true(v.refs[REF_DEVICE] == 1 && !v.visible);
    }
    assert_int_equal(seen, 4); /* the root and three chunks */
    assert_int_equal(pinned, 1);
    assert_int_equal(hidden, 1);
    assert_int_equal(rig_view(b.rig).nodes, 4);
}

TEST(views_transfers_show_both_ends)
{
    struct pair p = PAIR_LIMITED(limits.peer_bytes_in_flight = 3 * 512, 4, 64, 64);
    struct transfer_view in, out;
    struct pull_id pull;
    struct rig_session *d = rig_session(p.dest, &p.de, p.dp, 1);

    rig_put(p.source, &p.se, p.sp, 1, 32);
    assert_ok(rig_match(d, seq1, 32));
    p.dest->automatic = RIG_ALL & ~(uint32_t)(RIG_PULL | RIG_PULL_STOP);
    rig_fetch(d, 0, 0);
    pull = rig_job(p.dest, RIG_PULL, 0)->pull;
    assert_true(core_pull_view(p.dest->core, pull.slot, &in));
    assert_true(pull_id_equal(in.pull, pull));
    assert_string_equal(in.state_word, "running");
    assert_false(in.outgoing);
    assert_int_equal(in.from, 0);
    assert_int_equal(in.to, 32);
    assert_int_equal(in.pages, 8);
    assert_int_equal(in.pages_verified, 0);
    assert_true(in.deadline_ns == in.started_ns + p.dest->options.limits.transfer_deadline_ns);
    assert_true(core_serve_view(p.source->core, rig_job(p.dest, RIG_PULL, 0)->serve.slot, &out));
    assert_string_equal(out.state_word, "open");
    assert_true(out.outgoing);
    assert_int_equal(out.to, 32);
    assert_int_equal(out.pages, 8);
    assert_int_equal(rig_view(p.source).pages_served, 8);
    assert_int_equal(rig_group_view(p.dest, p.dp, 0).transfer, 8);
    assert_true(rig_view(p.dest).oldest_quarantine_ns == 0);
    rig_complete(p.dest, RIG_PULL);
    assert_true(core_pull_view(p.dest->core, pull.slot, &in));
    assert_int_equal(in.pages_verified, 3);
    assert_int_equal(in.published, 12);
    assert_ok(rig_fetch_cancel(d));
    assert_true(core_pull_view(p.dest->core, pull.slot, &in));
    assert_string_equal(in.state_word, "stopping");
    assert_true(rig_view(p.dest).oldest_quarantine_ns == p.dest->now_ns);
    assert_int_equal(rig_view(p.dest).links_up, 1);
    rig_complete(p.dest, RIG_PULL_STOP);
    assert_true(rig_view(p.dest).oldest_quarantine_ns == 0);
    assert_false(core_pull_view(p.dest->core, pull.slot, &in));
}

static void assert_oldest(struct pair *p, struct pull_id pull, uint64_t since_ns, uint32_t pages)
{
    struct core_view view = rig_view(p->dest);
    struct transfer_view t;

    assert_true(pull_id_equal(view.oldest_quarantine, pull));
    assert_true(view.oldest_quarantine_ns == since_ns);
    assert_true(core_pull_view(p->dest->core, pull.slot, &t));
    assert_true(t.quarantined_ns == since_ns);
    assert_int_equal(t.quarantined, pages);
}

/* The view names the pull that has waited longest, here neither the first that began nor the last.
 * When it is proved quiet, the view names the next one. */
TEST(views_name_the_oldest_in_quarantine)
{
    static const uint32_t order[] = {1, 2, 0};
    struct pair p = pair_limited(1 << 20);
    struct rig_session *d[3];
    struct transfer_view t;
    uint64_t since_ns[3];
    struct pull_id pull[3];

    p.dest->automatic = BY_HAND(RIG_PULL | RIG_PULL_STOP);
    fetch_many(&p, 3, 16, d);
    for (uint32_t i = 0; i < 3; i++)
        pull[i] = rig_job(p.dest, RIG_PULL, i)->pull;
    assert_true(core_pull_view(p.dest->core, pull[1].slot, &t));
    assert_true(t.quarantined_ns == 0);
    assert_int_equal(t.quarantined, 0); /* arriving */
    assert_int_equal(rig_view(p.dest).oldest_quarantine.gen, 0);
    for (uint32_t i = 0; i < 3; i++) {
        rig_advance(p.dest, 1000000);
        assert_ok(rig_fetch_cancel(d[order[i]]));
        since_ns[i] = p.dest->now_ns;
        assert_oldest(&p, pull[1], since_ns[0], 4);
    }
    assert_int_equal(quarantined(&p), 12);
    for (uint32_t i = 0; i < 3; i++) {
        assert_oldest(&p, pull[order[i]], since_ns[i], 4);
        rig_complete(p.dest, RIG_PULL_STOP);
    }
    assert_true(rig_view(p.dest).oldest_quarantine_ns == 0);
    assert_int_equal(rig_view(p.dest).oldest_quarantine.gen, 0);
}

TEST(views_peaks_stay_when_pages_go)
{
    struct bench b = bench_start(4, 16);

    rig_put(b.rig, &b.e, b.pool, 1, 24);
    rig_evict(b.rig, b.admin, b.pool, 0);
    assert_int_equal(rig_group_view(b.rig, b.pool, 0).peak_session, 6);
    assert_int_equal(rig_group_view(b.rig, b.pool, 0).peak_snapshot, 6);
    assert_int_equal(rig_group_view(b.rig, b.pool, 0).snapshot, 0);
}

TEST(views_looking_changes_nothing)
{
    struct bench b = bench_start(4, 16);
    uint64_t hash;

    rig_put(b.rig, &b.e, b.pool, 1, 24);
    hash = core_hash(b.rig->core);
    rig_pool_view(b.rig, b.pool);
    rig_view(b.rig);
    for (uint32_t i = 0; i < 4; i++) {
        struct node_view node;
        struct session_view session;

        core_node_view(b.rig->core, i, &node);
        core_session_view(b.rig->core, i, &session);
    }
    oracle_audit(b.rig->core);
    assert_true(core_hash(b.rig->core) == hash);
}

/* The first slot behind the last one of each table. */
TEST(views_slots_behind_the_last_are_false)
{
    struct bench b = bench_start(4, 16);
    const struct core_limits *l = &b.rig->options.limits;
    const struct core *c = b.rig->core;
    struct session_view session;
    struct transfer_view transfer;
    struct engine_view engine;
    struct pool_view pool;
    struct node_view node;

    assert_false(core_pool_view(c, l->pools, &pool));
    assert_false(core_session_view(c, l->sessions, &session));
    assert_false(core_engine_view(c, l->engines, &engine));
    assert_false(core_pull_view(c, l->pulls, &transfer));
    assert_false(core_serve_view(c, l->serves, &transfer));
    assert_false(core_node_view(c, l->nodes, &node));
}

TEST(views_pool_says_how_it_supersedes)
{
    static const enum supersede all[] = {SUPERSEDE_LAZY, SUPERSEDE_EAGER, SUPERSEDE_OFF};

    for (uint32_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        struct group_layout groups[2] = {rig_group(4, 512), rig_window(4, 8, 512)};
        struct rig *rig = rig_create(NULL);
        struct rig_engine e = rig_engine(rig, 0, "e", 1);
        struct pool_id pool;

        rig->supersede = all[i];
        assert_ok(rig_pool_open(rig, e.conn[0], groups, 2, 64u << 10, &pool));
        assert_int_equal(rig_pool_view(rig, pool).supersede, all[i]);
    }
}

TEST(views_serve_says_since_when)
{
    struct pair p = pair_with(rig_defaults(), 4, 64, 64);
    struct transfer_view view = {0};

    rig_put(p.source, &p.se, p.sp, 1, 16);
    rig_advance(p.source, 5000000);
    p.d = asking(&p, 1, 16);
    p.dest->automatic = BY_HAND(RIG_PULL);
    rig_fetch(p.d, 0, 0);
    for (uint32_t i = 0; i < p.source->options.limits.serves; i++)
        if (core_serve_view(p.source->core, i, &view))
            break;
    assert_true(view.started_ns == p.source->now_ns);
}
