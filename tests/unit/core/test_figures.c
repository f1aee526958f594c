/* Figures: what happened to prompts and pages, counted alike for the tenant, the pool and the
 * namespace; and how long things took. */
#include "core/figures.h"
#include "unit/rig/rig_host.h"
#include "unit/rig/rig_state.h"
#include "unit/rig/rig_ticket.h"

/* A figure of tenant 0; its one device pool and that pool's one namespace must have the same. */
static uint64_t counted(struct rig *rig, struct pool_id pool, enum figure f)
{
    uint64_t n = core_tenant_view(rig->core, 0).figures->v[f];
    struct space_view v;
    uint32_t seen = 0;

    assert_int_equal(core_pool_figures(rig->core, pool.slot)->v[f], n);
    for (uint32_t i = 0; i < rig->options.limits.namespaces; i++)
        if (core_space_view(rig->core, i, &v) && v.pool == pool.slot) {
            assert_int_equal(v.figures.v[f], n);
            seen++;
        }
    assert_int_equal(seen, 1);
    return n;
}

#define assert_counted(rig, pool, figure, n)                                                       \
    assert_int_equal(counted((rig), (pool), FIGURE_##figure), (n))

static const struct histogram *took(struct rig *rig, enum latency l)
{
    return core_latency(rig->core, l);
}

TEST(figures_a_prompt_is_counted_once_with_what_was_found)
{
    struct bench b = bench_start(4, 64);
    struct rig_session *s = b.s, *other = rig_session(b.rig, &b.e, b.pool, 1);

    assert_ok(rig_match(s, seq1, 22));
    assert_counted(b.rig, b.pool, PROMPTS, 1);
    assert_counted(b.rig, b.pool, PROMPT_TOKENS, 22);
    assert_counted(b.rig, b.pool, DEVICE, 0);
    assert_ok(rig_match(s, seq1, 22)); /* a repetition */
    assert_counted(b.rig, b.pool, PROMPT_TOKENS, 22);
    run_and_commit(s, seq1, 22, 20, 0);
    assert_counted(b.rig, b.pool, COMMITTED, 20);
    assert_int_equal(rig_depth(other, seq1, 22), 20); /* a Peek is not a prompt */
    assert_counted(b.rig, b.pool, PROMPTS, 1);
    assert_ok(rig_match(other, seq1, 30));
    assert_counted(b.rig, b.pool, PROMPTS, 2);
    assert_counted(b.rig, b.pool, PROMPT_TOKENS, 22 + 30);
    assert_counted(b.rig, b.pool, DEVICE, 20);
    assert_ok(rig_match(s, seq1, 27)); /* the next turn: five new tokens */
    assert_counted(b.rig, b.pool, PROMPTS, 3);
    assert_counted(b.rig, b.pool, PROMPT_TOKENS, 22 + 30 + 5);
    assert_counted(b.rig, b.pool, DEVICE, 20);
}

TEST(figures_what_the_host_brings_back)
{
    struct bench b = host_bench(4, 64, 16);

    put_away(&b, 1, 12);
    assert_counted(b.rig, b.pool, EVICTED_NODES, 3);
    assert_counted(b.rig, b.pool, EVICTED_PAGES, 3);
    assert_int_equal(took(b.rig, LATENCY_EVICTED_AGE)->n, 3);
    matches(b.s, seq1, 24, 0);
    assert_ok(fetch_back(b.s));
    assert_counted(b.rig, b.pool, HOST, 12);
    assert_counted(b.rig, b.pool, PEER, 0);
    assert_ok(rig_close(b.s, 0));
    bench_ends_clean(&b);
}

TEST(figures_what_a_peer_brings_and_how_long_it_took)
{
    struct pair p = pair_limited(1 << 20);

    pair_offer(&p, 24);
    assert_ok(fetch_all(p.d));
    assert_counted(p.dest, p.dp, PROMPT_TOKENS, 24);
    assert_counted(p.dest, p.dp, PEER, 24);
    assert_counted(p.dest, p.dp, COMMITTED, 0); /* that daemon computed nothing */
    assert_counted(p.source, p.sp, COMMITTED, 24);
    assert_int_equal(took(p.dest, LATENCY_FETCH)->n, 1);
    assert_int_equal(took(p.dest, LATENCY_FETCH_WIRE)->n, 1);
    assert_int_equal(took(p.dest, LATENCY_PUBLISH)->n, 0);
    assert_int_equal(took(p.source, LATENCY_PUBLISH)->n, 6);
    assert_int_equal(took(p.source, LATENCY_SEAL)->n, 6);
    assert_int_equal(took(p.source, LATENCY_SERVE)->n, 1);
    pair_ends_clean(&p, 6, 6);
}

TEST(figures_a_publish_takes_until_its_step_has_passed)
{
    struct bench b = bench_start(4, 64);

    assert_ok(rig_match(b.s, seq1, 8));
    run_and_commit(b.s, seq1, 8, 4, 3);
    assert_int_equal(took(b.rig, LATENCY_PUBLISH)->n, 0);
    b.rig->now_ns += 5000000;
    rig_engine_done(b.rig, &b.e, 3);
    assert_int_equal(took(b.rig, LATENCY_PUBLISH)->n, 1);
    assert_true(took(b.rig, LATENCY_PUBLISH)->sum_ns >= 5000000);
}

TEST(figures_a_ticket_of_this_daemon)
{
    struct pair p = pair_limited(1 << 20);
    struct rig_engine e = rig_engine(p.source, 0, "decode", 1);
    struct rig_session *s = session_with(p.source, &p.se, p.sp, 1, 42), *d;

    assert_ok(rig_map(p.source, e.conn[0], p.sp));
    d = session_with(p.source, &e, p.sp, 1, 42);
    run_and_commit(s, rig_tokens(1, 42), 42, 40, 0);
    assert_ok(ticket_fetched(d, hand_over(s, 0, 0)));
    assert_counted(p.source, p.sp, HANDED, 42);
    assert_counted(p.source, p.sp, PEER, 0);
}

TEST(figures_superseded_state_is_told_from_what_was_evicted)
{
    struct stage st = stage_with(SUPERSEDE_EAGER, 64, rig_window(64, 64, 512));

    for (uint32_t depth = 64; depth <= 192; depth += 64)
        stage_put(&st, 1, depth);
    assert_true(counted(st.rig, st.pool, FIGURE_SUPERSEDED_PAGES) > 0);
    assert_counted(st.rig, st.pool, EVICTED_PAGES, 0);
    assert_counted(st.rig, st.pool, EVICTED_NODES, 0);
}

/* The figures of the whole daemon are the sum of its tenants', whatever was freed since. */
TEST(figures_of_the_daemon_are_those_of_its_tenants)
{
    struct group_layout groups[2] = {rig_group(64, 512), rig_window(64, 64, 512)};
    struct stage st = {.rig = rig_create(NULL)};
    struct rig_engine theirs = rig_engine(st.rig, 1, "theirs", 1);
    struct pool_id pool = rig_pool_pages(st.rig, &theirs, 4, 8);

    st.e = rig_engine(st.rig, 0, "e", 1);
    assert_ok(rig_pool_open(st.rig, st.e.conn[0], groups, 2, 8 * 512, &st.pool));
    for (uint32_t depth = 64; depth <= 192; depth += 64)
        stage_put(&st, 1, depth);
    takes_pages(stage_session(&st), rig_tokens(2, 128), 128, 128);
    for (uint32_t seed = 1; seed <= 3; seed++)
        rig_put(st.rig, &theirs, pool, seed, 16);
    for (enum figure f = FIGURE_EVICTED_NODES; f <= FIGURE_EVICTED_PAGES; f++) {
        const uint64_t a = core_tenant_view(st.rig->core, 0).figures->v[f],
                       b = core_tenant_view(st.rig->core, 1).figures->v[f];
        const struct core_view v = rig_view(st.rig);

        assert_true(b > 0);
        assert_int_equal(f == FIGURE_EVICTED_NODES ? v.evicted_nodes : v.evicted_pages, a + b);
    }
    assert_true(core_tenant_view(st.rig->core, 0).figures->v[FIGURE_SUPERSEDED_PAGES] > 0);
}

/* A namespace that was given up and opened again begins at zero; its pool's figures continue. */
TEST(figures_of_a_namespace_end_with_it)
{
    struct bench b = bench_start(4, 64);
    struct space_view v;

    assert_ok(rig_match(b.s, seq1, 8));
    assert_true(core_space_view(b.rig->core, 0, &v));
    assert_int_equal(v.figures.v[FIGURE_PROMPT_TOKENS], 8);
    assert_ok(rig_close(b.s, 0));
    assert_ok(rig_reset(b.rig, b.e.conn[0], 1, NULL));
    assert_ok(rig_match(rig_session(b.rig, &b.e, b.pool, 1), seq1, 5));
    assert_true(core_space_view(b.rig->core, 0, &v) || core_space_view(b.rig->core, 1, &v));
    assert_int_equal(v.figures.v[FIGURE_PROMPT_TOKENS], 5);
    assert_int_equal(core_pool_figures(b.rig->core, b.pool.slot)->v[FIGURE_PROMPT_TOKENS], 13);
}
