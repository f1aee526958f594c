/* Opening, mapping and naming pools: valid layouts, pools that do not fit, and who gets the pool of
 * an engine that is gone (T15). */
#include "unit/rig/rig_pair.h"
#include "unit/rig/rig_state.h"

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
    assert_non_null(strstr(b.rig->last->text, "limits.sums_per_page is #"));
    assert_int_equal(b.rig->last->number[0], 8);
    assert_int_equal(b.rig->last->number[1], b.rig->core->limits.sums_per_page);
    assert_refused(b.rig, TERN_INVALID, open_layout(&b, good, 512)); /* the reserved slab alone */
    assert_non_null(strstr(b.rig->last->text, "bytes is #"));
    assert_int_equal(b.rig->last->number[0], 512);
    assert_refused(b.rig, TERN_INVALID, open_layout(&b, good, 0));
    assert_refused(b.rig, TERN_QUOTA, open_layout(&b, good, UINT64_MAX));
    assert_true(core_changes(b.rig->core) == before);
}

/* T22: a tenant with pages below the configured minimum would use up the records of others. */
TEST(t22_pages_below_the_configured_minimum_are_refused)
{
    struct bench b = BENCH_LIMITED(limits.page_bytes_min = 512, 4, 16);
    struct group_layout g[2] = {rig_group(4, 512), rig_group(4, 504)};
    struct pool_id pool;

    assert_refused(b.rig, TERN_INVALID, rig_pool_open(b.rig, b.e.conn[0], g, 2, 1 << 20, &pool));
    assert_non_null(strstr(b.rig->last->text, "lower page_bytes_min"));
    assert_ok(rig_pool_open(b.rig, b.e.conn[0], g, 1, 1 << 16, &pool));
}

TEST(errors_groups_without_a_common_multiple)
{
    struct bench b = bench_start(4, 16);
    struct group_layout tokens[2] = {rig_group(4095, 512), rig_group(4096, 512)};
    struct group_layout bytes[2] = {rig_group(4, 8 * 65521), rig_group(4, 8 * 65519)};
    struct group_layout nine[GROUPS_DEFAULT + 1];
    struct pool_id pool;

    for (uint32_t i = 0; i <= GROUPS_DEFAULT; i++)
        nine[i] = rig_group(4, 512);
    assert_refused(b.rig, TERN_INVALID,
                   rig_pool_open(b.rig, b.e.conn[0], tokens, 2, 1 << 20, &pool));
    assert_refused(b.rig, TERN_INVALID,
                   rig_pool_open(b.rig, b.e.conn[0], bytes, 2, 1 << 20, &pool));
    assert_refused(b.rig, TERN_INVALID,
                   rig_pool_open(b.rig, b.e.conn[0], nine, GROUPS_DEFAULT + 1, 1 << 20, &pool));
    assert_non_null(strstr(b.rig->last->text, "limits.groups"));
    assert_refused(b.rig, TERN_INVALID, rig_pool_open(b.rig, b.e.conn[0], nine, 0, 1 << 20, &pool));
}

TEST(errors_pools_of_others_and_of_other_worlds)
{
    struct bench b = bench_start(4, 16);
    struct rig_engine wide = rig_engine(b.rig, 0, "wide", 2),
                      foreign = rig_engine(b.rig, 1, "f", 1),
                      unmapped = rig_engine(b.rig, 0, "u", 1);
    struct rig_session s;
    struct pool_id stale = {b.pool.slot, b.pool.gen + 1}, far = {NONE, 1};

    assert_refused(b.rig, TERN_INVALID, rig_map(b.rig, wide.conn[0], b.pool));
    assert_refused(b.rig, TERN_GONE, rig_map(b.rig, foreign.conn[0], b.pool));
    assert_refused(b.rig, TERN_GONE, rig_map(b.rig, b.e.conn[0], stale));
    assert_refused(b.rig, TERN_GONE, rig_map(b.rig, b.e.conn[0], far));
    assert_refused(b.rig, TERN_GONE, rig_pool_close(b.rig, foreign.conn[0], b.pool));
    assert_refused(b.rig, TERN_INVALID, rig_session_open(b.rig, unmapped.conn[0], b.pool, 1, &s));
    assert_ok(rig_map(b.rig, unmapped.conn[0], b.pool));
    assert_ok(rig_session_open(b.rig, unmapped.conn[0], b.pool, 1, &s));
    assert_ok(rig_close(b.s, 0));
    assert_ok(rig_close(&s, 0));
    assert_refused(b.rig, TERN_CONFLICT,
                   rig_pool_close(b.rig, b.e.conn[0], b.pool)); /* two have mapped it */
}

/* A pool that nobody maps is zeroed and its memory is used for another layout. */
TEST(errors_orphan_pool_makes_way_busy_then_ok)
{
    struct bench b = BENCH_LIMITED(tenant[0].memory_bytes = 1 << 20, 4, 16);
    struct group_layout other = rig_group(8, 1024);
    struct rig_engine next;
    struct pool_id pool;

    rig_put(b.rig, &b.e, b.pool, 1, 16);
    rig_engine_kill(b.rig, &b.e, 0);
    next = rig_engine(b.rig, 0, "next", 1);
    assert_refused(b.rig, TERN_BUSY, rig_pool_open(b.rig, next.conn[0], &other, 1, 1 << 20, &pool));
    assert_ok(rig_pool_open(b.rig, next.conn[0], &other, 1, 1 << 20, &pool));
    assert_false(pool_id_equal(pool, b.pool));
}

/* A pool that another tenant closes makes no room for this one. */
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

/* Opens one more pool of `bytes` with one group. */
static enum tern_err opens_pool(struct bench *b, uint64_t page_bytes, uint64_t bytes)
{
    struct group_layout group = rig_group(4, page_bytes);
    struct pool_id pool;

    return rig_pool_open(b->rig, b->e.conn[0], &group, 1, bytes, &pool);
}

TEST(limits_pools_full_busy_and_memory_quota)
{
    struct bench b = BENCH_LIMITED(limits.pools = 2, 4, 16); /* 1 of 4 MiB */

    assert_err(TERN_QUOTA, opens_pool(&b, 512, 4 << 20));
    assert_ok(opens_pool(&b, 512, 1 << 16));
    assert_err(TERN_BUSY, opens_pool(&b, 512, 1 << 16));
}

TEST(limits_page_records_full_busy)
{
    struct bench b =
        BENCH_LIMITED(limits.pages = 3000, 4, 16); /* 1 MiB is 2,048 records of 512 bytes */

    assert_err(TERN_BUSY, opens_pool(&b, 512, 1 << 20));
    assert_ok(opens_pool(&b, 4096, 1 << 20));
}

/* A chunk with more pages than one checksum job can name is refused when the pool is opened. */
TEST(limits_chunk_of_more_pages_than_a_job_invalid)
{
    struct bench b = bench_start(4, 16);
    struct group_layout groups[2] = {rig_group(1, 64), rig_group(SEAL_PAGES_MAX * 2, 64)};
    struct pool_id pool;

    assert_err(TERN_INVALID, rig_pool_open(b.rig, b.e.conn[0], groups, 2, 1 << 16, &pool));
    groups[1] = rig_group(SEAL_PAGES_MAX / 2, 64);
    assert_ok(rig_pool_open(b.rig, b.e.conn[0], groups, 2, 1 << 16, &pool));
}

TEST(limits_slab_records_full_busy)
{
    struct bench b =
        BENCH_LIMITED(limits.slabs = 1500, 4, 16); /* 1 MiB is 1,024 slabs of 1,024 bytes */

    assert_err(TERN_BUSY, opens_pool(&b, 1024, 1 << 20));
    assert_ok(opens_pool(&b, 4096, 1 << 20));
}

/* The table would have more pages than an answer can name. */
TEST(limits_table_of_more_pages_than_an_answer_invalid)
{
    static uint32_t tokens[TABLE_PAGES + 1];
    struct bench b = BENCH_LIMITED(limits.token_blocks = 2 * (TABLE_PAGES / TOKEN_BLOCK), 1, 16);
    struct request match = {.op = OP_MATCH};
    struct step_op op = {.kind = STEP_EXTEND, .length = TABLE_PAGES + 1};

    match.match.session = b.s->id;
    match.match.tokens = (struct req_tokens){.v = tokens, .n = TABLE_PAGES + 1};
    assert_err(TERN_INVALID, rig_request(b.rig, b.s->conn, &match)->err);
    assert_true(b.rig->last->text[0] != 0);
    op.session = b.s->id;
    assert_err(TERN_INVALID, rig_step_ops(b.rig, b.s->conn, &op, 1)->step.results[0].err);
    op.length = TABLE_PAGES;
    assert_err(TERN_QUOTA, rig_step_ops(b.rig, b.s->conn, &op, 1)->step.results[0].err);
    op.length = 0; /* tokens alone: a Fetch or a Recover would have to answer with the table */
    op.tokens = match.match.tokens;
    assert_err(TERN_INVALID, rig_step_ops(b.rig, b.s->conn, &op, 1)->step.results[0].err);
    op.tokens.n--; /* as many as the token store allows */
    assert_err(TERN_QUOTA, rig_step_ops(b.rig, b.s->conn, &op, 1)->step.results[0].err);
    assert_ok(rig_match(b.s, seq1, 8));
    op.tokens.base = 8;
    assert_err(TERN_INVALID, rig_step_ops(b.rig, b.s->conn, &op, 1)->step.results[0].err);
    op.tokens.n -= 8;
    assert_err(TERN_QUOTA, rig_step_ops(b.rig, b.s->conn, &op, 1)->step.results[0].err);
}

/* The limit is set to the number of pages that one answer names. */
TEST(limits_table_is_as_large_as_an_answer)
{
    static uint32_t tokens[TABLE_PAGES_MIN + 1];
    struct bench b = BENCH_LIMITED(limits.table_pages = TABLE_PAGES_MIN, 1, 16);
    struct request match = {.op = OP_MATCH};

    match.match.session = b.s->id;
    match.match.tokens = (struct req_tokens){.v = tokens, .n = TABLE_PAGES_MIN + 1};
    assert_err(TERN_INVALID, rig_request(b.rig, b.s->conn, &match)->err);
    match.match.tokens.n--;
    assert_err(TERN_QUOTA,
               rig_request(b.rig, b.s->conn, &match)->err); /* as many as the token store allows */
}

/* A page has one checksum for each unit of each rank. */
TEST(limits_checksums_of_a_page_invalid)
{
    struct rig *rig = rig_create(NULL); /* 4 of them */
    struct rig_engine wide = rig_engine(rig, 0, "wide", 4);
    struct group_layout group = rig_group(4, 512);
    struct pool_id pool;

    group.units = 2;
    assert_err(TERN_INVALID, rig_pool_open(rig, wide.conn[0], &group, 1, 1 << 16, &pool));
    group.units = 1;
    assert_ok(rig_pool_open(rig, wide.conn[0], &group, 1, 1 << 16, &pool));
}

/* The next engine of the tenant that opens the same layout gets the prefixes of an engine that died
 * (P4). */
TEST(pool_of_a_dead_engine_keeps_its_prefixes_for_the_next)
{
    struct bench b = bench_start(4, 16);
    struct rig_engine next;
    struct rig_session *s;
    struct pool_id pool;

    rig_put(b.rig, &b.e, b.pool, 1, 16);
    rig_engine_kill(b.rig, &b.e, 0);
    next = rig_engine(b.rig, 0, "next", 1);
    pool = rig_pool_pages(b.rig, &next, 4, 16);
    s = rig_session(b.rig, &next, pool, 1);
    matches(s, seq1, 16, 16);
    assert_int_equal(rig_wrong(s, 16), 0);
}

/* Opens a pool of two groups. Returns true if it is `pool`. */
static bool has_pool_again(struct rig *rig, const struct rig_engine *e,
                           const struct group_layout *groups, uint64_t bytes, struct pool_id pool)
{
    struct pool_id got = {0};

    assert_ok(rig_pool_open(rig, e->conn[0], groups, 2, bytes, &got));
    return pool_id_equal(got, pool);
}

/* A pool that differs from the request in any field is not reused. */
TEST(pool_of_a_dead_engine_is_had_again_only_as_it_was)
{
    struct rig *rig = rig_create(NULL);
    struct rig_engine first = rig_engine(rig, 0, "first", 1), next, wide;
    struct group_layout g[2] = {rig_group(4, 512), rig_window(4, 8, 512)};
    struct pool_id pool;

    g[0].cap_pages = 32;
    assert_ok(rig_pool_open(rig, first.conn[0], g, 2, 1u << 16, &pool));
    rig_engine_kill(rig, &first, 0);
    next = rig_engine(rig, 0, "next", 1);
    wide = rig_engine(rig, 0, "wide", 2);
    for (rig->supersede = SUPERSEDE_EAGER; rig->supersede <= SUPERSEDE_OFF; rig->supersede++)
        assert_false(has_pool_again(rig, &next, g, 1u << 16, pool));
    rig->supersede = SUPERSEDE_LAZY;
    assert_false(has_pool_again(rig, &next, g, 1u << 15, pool));
    g[0].cap_pages = 31;
    assert_false(has_pool_again(rig, &next, g, 1u << 16, pool));
    g[0].cap_pages = 32;
    g[1].window = 12;
    assert_false(has_pool_again(rig, &next, g, 1u << 16, pool));
    g[1].window = 8;
    assert_false(has_pool_again(rig, &wide, g, 1u << 16, pool));
    assert_true(has_pool_again(rig, &next, g, 1u << 16, pool));
}

/* Nobody maps either pool: the older one is closed first. */
TEST(pool_opened_first_makes_way_first)
{
    struct rig_options options = rig_defaults();
    struct group_layout other = rig_group(8, 1024);
    struct rig_engine first, next;
    struct pool_id older, younger, pool;
    struct rig *rig;

    options.tenant[0].memory_bytes = 2u << 20;
    rig = rig_create(&options);
    first = rig_engine(rig, 0, "first", 1);
    older = rig_pool_pages(rig, &first, 4, 16);
    younger = rig_pool_pages(rig, &first, 4, 17);
    rig_engine_kill(rig, &first, 0);
    next = rig_engine(rig, 0, "next", 1);
    assert_err(TERN_BUSY, rig_pool_open(rig, next.conn[0], &other, 1, 1u << 20, &pool));
    assert_ok(rig_pool_open(rig, next.conn[0], &other, 1, 1u << 20, &pool));
    assert_int_equal(pool.slot, older.slot);
    assert_true(pool_id_equal(rig_pool_pages(rig, &next, 4, 17), younger));
}

/* T11 for pools: a request that can never fit closes no pool. */
TEST(pool_that_can_never_fit_takes_no_other)
{
    struct bench b = BENCH_LIMITED(limits.pages = 8192, 4, 16);
    struct group_layout group = rig_group(4, 512), small = rig_group(4, 64);
    struct rig_engine next;
    struct pool_id pool;

    rig_put(b.rig, &b.e, b.pool, 1, 16);
    rig_engine_kill(b.rig, &b.e, 0);
    next = rig_engine(b.rig, 0, "next", 1);
    for (uint32_t i = 0; i < 3; i++) {
        assert_err(TERN_QUOTA, rig_pool_open(b.rig, next.conn[0], &group, 1, 8u << 20, &pool));
        assert_err(TERN_QUOTA, rig_pool_open(b.rig, next.conn[0], &small, 1, 1u << 20, &pool));
        b.rig->host_bytes = 2u << 20;
        assert_err(TERN_QUOTA, rig_pool_open(b.rig, next.conn[0], &group, 1, 1u << 20, &pool));
        b.rig->host_bytes = 0;
    }
    assert_true(pool_id_equal(rig_pool_pages(b.rig, &next, 4, 16), b.pool));
}

/* N3: only pools of one geometry exchange pages unchanged. Each field of the layout counts. */
TEST(layouts_differ_in_each_word)
{
    struct req_pool_open a = {.ngroups = 2, .axes_hash = 7}, b;
    uint64_t same;

    a.group[0] = rig_group(4, 512);
    a.group[1] = rig_window(4, 8, 64);
    same = layout_hash(&a, 2);
    assert_true(layout_hash(&a, 2) == same);
    assert_true(layout_hash(&a, 3) != same);
#define DIFFERS(change)                                                                            \
    b = a;                                                                                         \
    b.change;                                                                                      \
    assert_true(layout_hash(&b, 2) != same)
    DIFFERS(ngroups--);
    DIFFERS(shard++);
    DIFFERS(axes_hash++);
    DIFFERS(group[0].page_tokens *= 2);
    DIFFERS(group[0].page_bytes *= 2);
    DIFFERS(group[1].units *= 2);
    DIFFERS(group[1].family = FAMILY_RECURRENT);
    DIFFERS(group[1].window *= 2);
    DIFFERS(group[1].reserve *= 2);
    DIFFERS(group[0] = a.group[1]; b.group[1] = a.group[0]);
    DIFFERS(align_tokens = 8);
#undef DIFFERS
    a.bytes = 1;
    a.host_bytes = 1;
    a.group[0].cap_pages = 1;
    a.supersede = SUPERSEDE_OFF;
    a.align_tokens = 4;                      /* the value that it has anyway */
    assert_true(layout_hash(&a, 2) == same); /* not part of the layout's identity */
}

static enum tern_err open_with(struct rig *rig, const struct rig_engine *e, struct group_layout a,
                               struct group_layout b)
{
    struct group_layout groups[2] = {a, b};
    struct pool_id pool;
    enum tern_err err = rig_pool_open(rig, e->conn[0], groups, 2, 1u << 18, &pool);

    if (err == TERN_OK)
        assert_ok(rig_pool_close(rig, e->conn[0], pool));
    return err;
}

TEST(layouts_that_make_no_sense_are_refused)
{
    struct rig *rig = rig_create(NULL);
    struct rig_engine e = rig_engine(rig, 0, "e", 1);
    struct group_layout history = rig_group(64, 512), window = rig_window(16, 128, 64), bad;

    assert_ok(open_with(rig, &e, history, window));
    assert_ok(open_with(rig, &e, history, rig_recurrent(64, 128)));
    bad = window;
    bad.window = 0;
    assert_err(TERN_INVALID, open_with(rig, &e, history, bad));
    bad.window = bad.reserve = SESSION_TOKENS_MAX;
    assert_ok(open_with(rig, &e, history, bad));
    bad.window++;
    assert_err(TERN_INVALID, open_with(rig, &e, history, bad));
    bad.window--;
    bad.reserve++;
    assert_err(TERN_INVALID, open_with(rig, &e, history, bad));
    bad = window;
    bad.reserve = 0;
    assert_err(TERN_INVALID, open_with(rig, &e, history, bad));
    bad = window;
    bad.page_tokens = 24; /* does not divide L */
    assert_err(TERN_INVALID, open_with(rig, &e, history, bad));
    bad = history;
    bad.window = 64;
    assert_err(TERN_INVALID, open_with(rig, &e, bad, window));
    bad = rig_recurrent(64, 128);
    bad.window = 64;
    assert_err(TERN_INVALID, open_with(rig, &e, history, bad));
    assert_err(TERN_INVALID, open_with(rig, &e, window, window)); /* no HISTORY: no L */
    bad = window;
    bad.family = (enum family)3;
    assert_err(TERN_UNSUPPORTED, open_with(rig, &e, history, bad));
    rig->supersede = (enum supersede)3;
    assert_err(TERN_INVALID, open_with(rig, &e, history, window));
}

/* L may exceed what the HISTORY groups need; then the other groups' page_tokens may, too. */
TEST(pool_may_declare_a_larger_l)
{
    struct rig *rig = rig_create(NULL);
    struct rig_engine e = rig_engine(rig, 0, "e", 1);
    static const uint32_t cases[][2] = {{0, 4},
                                        {4, 4},
                                        {16, 16},
                                        {ALIGN_TOKENS_MAX, 0},
                                        {6, 0},
                                        {2, 0},
                                        {2 * ALIGN_TOKENS_MAX, 0},
                                        {256, 256}};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (uint32_t window = 0; window < 2; window++) {
            struct request r = {.op = OP_POOL_OPEN,
                                .pool_open = {.ngroups = 1 + window,
                                              .axes_hash = (uint32_t)(2 * i + window),
                                              .align_tokens = cases[i][0],
                                              .bytes = 1 << 16}};
            const struct reply *reply;
            uint32_t want = window && cases[i][1] < 16 ? 0 : cases[i][1];

            r.pool_open.group[0] = rig_group(4, 512);
            r.pool_open.group[1] = rig_window(16, 8, 512);
            reply = rig_request(rig, e.conn[0], &r);
            assert_err(want ? TERN_OK : TERN_INVALID, reply->err);
            if (want)
                assert_int_equal(reply->pool_open.align_tokens, want);
            else
                assert_true(strstr(reply->text, "align_tokens") || cases[i][0] == ALIGN_TOKENS_MAX);
        }
}

/* The refusal names the memory that is too small: the tenant's, or its host memory. */
TEST(pool_whose_host_tier_does_not_fit_is_told_so)
{
    struct rig *rig = rig_create(NULL);
    struct rig_engine e = rig_engine(rig, 0, "e", 1);
    struct group_layout group = rig_group(4, 512);
    struct pool_id pool;

    rig->host_bytes = rig->options.tenant[0].host_bytes + (1u << 20);
    assert_err(TERN_QUOTA, rig_pool_open(rig, e.conn[0], &group, 1, 64u << 10, &pool));
    assert_non_null(strstr(rig->last->text, "host_memory"));
    rig->host_bytes = 0;
    assert_err(TERN_QUOTA, rig_pool_open(rig, e.conn[0], &group, 1, 1ull << 30, &pool));
    assert_null(strstr(rig->last->text, "host_memory"));
}
