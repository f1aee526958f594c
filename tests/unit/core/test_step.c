/* The core as a function over its arena: a snapshot is a memcpy, equal histories give equal hashes,
 * core_changes counts changes only; and requests that are refused before any operation runs. */
#include <stdio.h>
#include <stdlib.h>

#include "unit/rig/rig_state.h"

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

/* An operator's connection has no tenant. The shell refuses such requests, but a tape may have
 * it. */
TEST(errors_join_of_an_operator_denied)
{
    struct bench b = bench_start(4, 16);
    uint64_t before = core_changes(b.rig->core);

    assert_refused(b.rig, TERN_DENIED, rig_join(b.rig, b.admin, "e", ROLE_BOTH, 0, 1));
    assert_true(core_changes(b.rig->core) == before);
}

TEST(errors_step_of_too_many_operations_invalid)
{
    static struct step_op ops[STEP_OPS_MAX + 1];
    struct bench b = bench_start(4, 16);
    const struct reply *reply;

    assert_ok(rig_match(b.s, seq1, 8));
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

/* Every number of the table has a name and a text. */
TEST(errors_have_names_and_texts)
{
    for (int err = 0; err < TERN_ERR_COUNT; err++) {
        assert_string_not_equal(err_name((enum tern_err)err), "UNKNOWN");
        assert_true(err_text((enum tern_err)err)[0] != 0);
    }
    assert_string_equal(err_name(TERN_ERR_COUNT), "UNKNOWN");
}

/* Some requests of every kind, the same calls every time. */
static void history(struct bench *b, uint32_t salt)
{
    struct rig_session *twin = rig_session(b->rig, &b->e, b->pool, 1);

    assert_ok(rig_match(b->s, seq1, 64));
    run_and_commit(b->s, seq1, 30, 16, 3);
    commits_up_to(twin, seq1, 64, 16, 4);
    assert_ok(rig_rewind(b->s, 20, 5));
    rig_engine_done(b->rig, &b->e, 4);
    rig_put(b->rig, &b->e, b->pool, 2 + salt, 12);
    assert_ok(rig_finish(twin, 16, 6));
    rig_evict(b->rig, b->admin, b->pool, 1);
    assert_ok(rig_close(twin, 6));
}

TEST(core_same_events_same_hash)
{
    struct bench a = bench_start(4, 32), b = bench_start(4, 32), c = bench_start(4, 32);

    assert_true(core_hash(a.rig->core) == core_hash(b.rig->core));
    history(&a, 0);
    history(&b, 0);
    history(&c, 1);
    assert_true(core_hash(a.rig->core) == core_hash(b.rig->core));
    assert_true(core_hash(a.rig->core) != core_hash(c.rig->core)); /* the tokens count */
}

/* The arena has no pointers: a copy at another address continues as the original does. */
TEST(core_snapshot_by_memcpy_goes_on_as_the_original)
{
    struct bench b = bench_start(4, 32);
    void *copy = aligned_alloc(64, b.rig->mem_bytes), *original = b.rig->mem;
    uint64_t at_copy, at_end;

    assert_non_null(copy);
    history(&b, 0);
    memcpy(copy, b.rig->mem, b.rig->mem_bytes);
    at_copy = core_hash(b.rig->core);
    assert_true(core_hash((struct core *)copy) == at_copy);
    rig_put(b.rig, &b.e, b.pool, 9, 16);
    rig_engine_done(b.rig, &b.e, 9);
    at_end = core_hash(b.rig->core);
    assert_true(at_end != at_copy);

    memset(original, 0xab, b.rig->mem_bytes); /* any use of the original would fail */
    b.rig->core = copy;
    b.rig->next_request -= 5; /* repeats the requests of rig_put */
    for (uint32_t i = 0; i < RIG_REPLIES_MAX; i++)
        b.rig->replies[i].reply.request_id = 0;
    rig_put(b.rig, &b.e, b.pool, 9, 16);
    rig_engine_done(b.rig, &b.e, 9);
    assert_true(core_hash(b.rig->core) == at_end);
    free(copy);
}

TEST(core_changes_counts_every_change_once)
{
    struct bench b = bench_start(4, 32);
    uint64_t before = core_changes(b.rig->core);

    assert_ok(rig_match(b.s, seq1, 64));
    assert_true(core_changes(b.rig->core) == before + 1);
    assert_ok(rig_extend(b.s, 16, 16, NULL, 0));
    assert_true(core_changes(b.rig->core) == before + 2);
    rig_step_done(b.rig, b.e.id, 0, 1);
    assert_true(core_changes(b.rig->core) == before + 3);
    before = core_changes(b.rig->core) - 3;
    rig_disconnect(b.rig, b.admin);
    assert_true(core_changes(b.rig->core) == before + 4);
    before++;
    b.rig->automatic = 0;
    assert_ok(rig_commit(b.s, 16, 0));
    assert_true(core_changes(b.rig->core) == before + 4);
}

TEST(core_changes_peeks_timers_and_failures_do_not_count)
{
    struct bench b = bench_start(4, 32);
    struct pool_id pool;
    struct group_layout group = rig_group(4, 512);
    struct rig_session ignored;
    struct request unknown = {.op = OP_COUNT};
    uint64_t before, step = 0;

    history(&b, 0);
    before = core_changes(b.rig->core);
    assert_int_equal(rig_depth(b.s, seq1, 64), 16);
    assert_int_equal(rig_depth(b.s, rig_tokens(7, 64), 64), 0);
    rig_advance(b.rig, 12345);
    assert_err(TERN_INVALID, rig_extend(b.s, 1, 0, NULL, 0));
    assert_err(TERN_INVALID, rig_rewind(b.s, 1, 0));
    assert_err(TERN_INVALID, rig_match(b.s, seq1, 4));
    assert_err(TERN_INVALID, rig_pool_open(b.rig, b.e.conn[0], &group, 0, 1 << 16, &pool));
    assert_err(TERN_GONE,
               rig_session_open(b.rig, b.e.conn[0], (struct pool_id){5, 5}, 1, &ignored));
    assert_err(TERN_UNSUPPORTED, rig_request(b.rig, b.e.conn[0], &unknown)->err);
    rig_step_done(b.rig, b.e.id, 0, step); /* below the last one: refused */
    rig_step_done(b.rig, b.e.id, 7, 99);   /* no such rank */
    rig_step_done(b.rig, (struct engine_id){3, 3}, 0, 99);
    assert_true(core_changes(b.rig->core) == before);
}

/* Fault 14: an event that names a dead slot has no effect and no answer. */
TEST(core_stale_completions_change_nothing)
{
    static const enum event_kind kinds[] = {EV_SEALED,      EV_ZEROED,     EV_PULLED,
                                            EV_PULL_BROKEN, EV_PULL_QUIET, EV_SERVE_QUIET};
    const struct pull_id stale[] = {
        {0, 0}, {0, 77}, {1, 1}, {NONE, 1}, {UINT32_MAX - 1, UINT32_MAX}};
    struct bench b = bench_start(4, 32);
    uint32_t injected = 0, rejected = 0;
    uint64_t before;

    history(&b, 0);
    before = core_changes(b.rig->core);
    for (uint32_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++)
        for (uint32_t i = 0; i < sizeof stale / sizeof stale[0]; i++) {
            struct event event = {.kind = kinds[k]};

            if (event.kind == EV_SEALED)
                event.sealed.n = 1;
            event.pulled.pull = stale[i]; /* the id is the first member of each event */
            rig_event(b.rig, &event);
            rejected += core_changes(b.rig->core) == before;
            injected++;
        }
    assert_int_equal(rejected, injected);
    rig_disconnect(b.rig, b.admin);
    before = core_changes(b.rig->core);
    for (uint32_t conn = b.admin; conn < 12345; conn += 6000) { /* closed, and unknown */
        struct request drain = {.op = OP_DRAIN, .drain = {.on = true}};

        assert_null(rig_request(b.rig, conn, &drain));
    }
    rig_proc_gone(b.rig, 12345);
    rig_disconnect(b.rig, 31);
    rig_disconnect(b.rig, 12345);
    assert_true(core_changes(b.rig->core) == before);
    printf("fault=14 runs=1 injected=%u violations=0 rejected=%u\n", injected, rejected);
}

TEST(core_size_absurd_limits_invalid)
{
    struct core_limits l = rig_defaults().limits;
    size_t bytes = 0;

    assert_ok(core_size(&l, &bytes));
    assert_true(bytes > 0);
    l.pages = 0;
    assert_err(TERN_INVALID, core_size(&l, &bytes));
    l = rig_defaults().limits;
    l.nodes = UINT32_MAX;
    assert_err(TERN_INVALID, core_size(&l, &bytes));
    l = rig_defaults().limits;
    l.peers = l.links + 1;
    assert_err(TERN_INVALID, core_size(&l, &bytes));
    l = rig_defaults().limits;
    l.transfer_deadline_ns = 0;
    assert_err(TERN_INVALID, core_size(&l, &bytes));
}

/* X6: no handle of one incarnation is valid in another one, whatever its slot. */
TEST(core_generations_start_elsewhere_in_every_incarnation)
{
    struct rig_options o = rig_defaults();
    struct rig *a = rig_create(&o), *b;

    o.incarnation++;
    b = rig_create(&o);
#define ELSEWHERE(kind, n)                                                                         \
    for (uint32_t i = 0; i < (n); i++)                                                             \
    assert_int_not_equal(kind##_at(a->core, i)->gen, kind##_at(b->core, i)->gen)
    ELSEWHERE(engine, o.limits.engines);
    ELSEWHERE(pool, o.limits.pools);
    ELSEWHERE(session, o.limits.sessions);
    ELSEWHERE(node, o.limits.nodes);
    ELSEWHERE(pull, o.limits.pulls);
    ELSEWHERE(serve, o.limits.serves);
#undef ELSEWHERE
}

/* The first slot behind each table, with the generation that the bytes there may have: an index
 * must be checked before it is used. */
TEST(core_ids_behind_the_last_record_are_nobodys)
{
    struct bench b = bench_start(4, 32);
    const struct core_limits *l = &b.rig->options.limits;
    struct request pin = {.op = OP_PIN, .pin = {.node = {l->nodes, 0}, .on = true}},
                   map = {.op = OP_POOL_MAP, .pool_map = {.pool = {l->pools, 0}}},
                   fetch = {.op = OP_FETCH, .fetch = {.session = {l->sessions, 0}}};
    const struct event events[] = {
        {.kind = EV_SEALED, .sealed = {.job = {{l->nodes, 0}}, .n = 1}},
        {.kind = EV_COPIED, .copied.job = {l->nodes, 0}},
        {.kind = EV_ZEROED, .zeroed.pool = {l->pools, 0}},
        {.kind = EV_PULLED, .pulled.pull = {l->pulls, 0}},
        {.kind = EV_PULL_BROKEN, .broken = {.pull = {l->pulls, 0}, .err = TERN_PEER_LOST}},
        {.kind = EV_PULL_QUIET, .pull_quiet.pull = {l->pulls, 0}},
        {.kind = EV_SERVE_QUIET, .serve_quiet.serve = {l->serves, 0}},
        {.kind = EV_STEP_DONE, .step_done = {.engine = {l->engines, 0}, .step = 1}},
        {.kind = EV_CONN_OPENED, .conn = {.conn = l->conns}}};
    uint64_t before;

    history(&b, 0);
    before = core_changes(b.rig->core);
    for (uint32_t i = 0; i < sizeof events / sizeof events[0]; i++)
        rig_event(b.rig, &events[i]);
    assert_err(TERN_GONE, rig_request(b.rig, b.e.conn[0], &map)->err);
    assert_err(TERN_GONE, rig_request(b.rig, b.e.conn[0], &fetch)->err);
    assert_int_not_equal(rig_request(b.rig, b.admin, &pin)->err, TERN_OK);
    assert_true(core_changes(b.rig->core) == before);
}

/* Messages that a link had in its queue when it ended belong to no link. */
TEST(core_messages_of_a_link_that_is_down_or_none_are_ignored)
{
    struct bench b = bench_start(4, 32);
    const struct core_limits *l = &b.rig->options.limits;
    const uint32_t links[] = {0, l->links - 1, l->links};

    for (uint32_t i = 0; i < 3; i++)
        for (enum peer_msg_kind kind = PEER_PULL_OPEN; kind <= PEER_PULL_ABORT; kind++) {
            struct event event = {.kind = EV_PEER_MSG, .peer = {.link = links[i]}};

            event.peer.msg = (struct peer_msg){.kind = kind};
            rig_event(b.rig, &event);
        }
    assert_int_equal(b.rig->link_closes, 0);
    assert_int_equal(rig_view(b.rig).serves, 0);
}

TEST(core_reply_has_the_trace_id_of_its_request)
{
    struct bench b = bench_start(4, 32);
    struct request match = {.op = OP_MATCH, .trace_id = 0x7ace, .match.session = b.s->id};

    match.match.tokens = (struct req_tokens){.v = seq1, .n = 8};
    assert_true(rig_request(b.rig, b.e.conn[0], &match)->trace_id == 0x7ace);
}

/* A change of the order of eviction alone, or of where a session is, counts as a change. */
TEST(core_changes_counts_a_snapshot_release_and_a_retract)
{
    struct stage st = stage_with(SUPERSEDE_LAZY, 4, rig_window(4, 8, 512));
    struct rig_session *s = stage_committed(&st, 1, 16), *fresh = stage_session(&st);
    uint64_t before = core_changes(st.rig->core);

    assert_ok(rig_snapshot_release(s));
    assert_true(core_changes(st.rig->core) > before);
    before = core_changes(st.rig->core);
    assert_ok(rig_retract(fresh, RETRACT_DROP, 0));
    assert_true(core_changes(st.rig->core) > before);
}
