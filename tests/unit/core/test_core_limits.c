/* P6: every limit of the core, hit. The answer is a typed error, nothing is lost, and what was
 * given back can be had again. The audit, which runs after every event, sees to the rest. */
#include "testing/test.h"
#include "unit/rig/rig_pair.h"

/* One more session of the bench's engine in that namespace. */
static enum tern_err opens(struct bench *b, uint64_t ns)
{
    struct rig_session s;

    return rig_session_open(b->rig, b->e.conn[0], b->pool, ns, &s);
}

/* One more pool of `bytes` with one group. */
static enum tern_err opens_pool(struct bench *b, uint64_t page_bytes, uint64_t bytes)
{
    struct group_layout group = rig_group(4, page_bytes);
    struct pool_id pool;

    return rig_pool_open(b->rig, b->e.conn[0], &group, 1, bytes, &pool);
}

/* Has the tokens of sequence 1 up to n, and their pages written; nothing is committed. */
static void writes(struct rig_session *s, uint32_t n)
{
    assert_ok(rig_match(s, rig_tokens(1, n), n));
    assert_ok(rig_run_to(s, rig_tokens(1, n), n));
}

/* The bench's session closes, and every prefix goes; their number. */
static uint32_t lets_go(struct bench *b)
{
    assert_ok(rig_close(b->s, 0));
    return rig_evict(b->rig, b->admin, b->pool, 0);
}

TEST(limits_sessions_of_a_tenant_quota)
{
    struct rig_options options = rig_defaults();
    struct rig_session *held[3];
    struct bench b;

    options.tenant[0].sessions_max = 4;
    b = bench_with(&options, 4, 32);
    for (uint32_t i = 0; i < 3; i++)
        held[i] = rig_session(b.rig, &b.e, b.pool, 1);
    assert_err(TERN_QUOTA, opens(&b, 1));
    assert_int_equal(rig_view(b.rig).sessions, 4);
    assert_ok(rig_close(held[0], 0));
    assert_ok(opens(&b, 1));
}

/* Fault 37: one tenant's quota is nobody else's business. */
TEST(limits_quota_of_one_tenant_leaves_the_other_alone)
{
    struct rig_options options = rig_defaults();
    struct rig_session *mine;
    struct rig_engine other;
    struct pool_id pool;
    struct bench b;

    options.tenant[0].sessions_max = 1;
    b = bench_with(&options, 4, 32);
    other = rig_engine(b.rig, 1, "other", 1);
    pool = rig_pool_pages(b.rig, &other, 4, 32);
    assert_err(TERN_QUOTA, opens(&b, 1));
    mine = rig_session(b.rig, &other, pool, 1);
    assert_ok(rig_match(mine, rig_tokens(1, 8), 8));
}

TEST(limits_session_slots_full_busy)
{
    struct rig_options options = rig_defaults();
    struct bench b;

    options.limits.sessions = 1;
    b = bench_with(&options, 4, 32);
    assert_err(TERN_BUSY, opens(&b, 1));
    assert_ok(rig_close(b.s, 0));
    assert_ok(opens(&b, 1));
}

/* Node records: an unpinned prefix makes way; pinned ones end a commit early, with what was
 * reached. */
TEST(limits_nodes_full_evicts_then_busy_keeps_earlier_targets)
{
    struct rig_options options = rig_defaults();
    struct bench b;

    options.limits.nodes = 6; /* a root and five chunks */
    b = bench_with(&options, 4, 64);
    rig_put(b.rig, &b.e, b.pool, 9, 8);
    writes(b.s, 32);
    assert_err(TERN_BUSY, rig_commit(b.s, 32, 0));
    assert_lengths(b.s, 20, 32, 32);
    assert_int_equal(rig_depth(b.s, rig_tokens(9, 8), 8), 0);
    assert_int_equal(rig_depth(b.s, rig_tokens(1, 32), 32), 20);
    assert_int_equal(rig_wrong(b.s, 32), 0);
    assert_int_equal(rig_group_view(b.rig, b.pool, 0).snapshot, 5);
    assert_int_equal(rig_group_view(b.rig, b.pool, 0).session, 3);
    assert_int_equal(lets_go(&b), 5);
    assert_int_equal(rig_free(b.rig, b.pool), 64);
}

/* A namespace needs a node record for its root: an unpinned prefix makes way, a pinned one does
 * not. */
TEST(limits_nodes_full_new_namespace_busy_or_evicts)
{
    struct rig_options options = rig_defaults();
    struct rig_session *holder;
    struct bench b;

    options.limits.nodes = 4;
    b = bench_with(&options, 4, 64);
    holder = rig_committed(b.rig, &b.e, b.pool, 1, 12);
    assert_int_equal(rig_view(b.rig).nodes_free, 0);
    assert_err(TERN_BUSY, opens(&b, 2));
    assert_ok(rig_close(holder, 0));
    assert_ok(opens(&b, 2));
    assert_int_equal(rig_depth(b.s, rig_tokens(1, 12), 12), 8);
}

/* The token store counts whole blocks: with L = 4 a block holds four tokens. */
TEST(limits_token_store_full_busy_and_nothing_lost)
{
    struct rig_options options = rig_defaults();
    struct rig_session *other;
    struct bench b;
    uint32_t n;

    options.limits.token_blocks = 24;
    b = bench_with(&options, 4, 64);
    assert_err(TERN_BUSY, rig_match(b.s, rig_tokens(1, 400), 400));
    assert_int_equal(rig_view(b.rig).token_blocks_free, 24);
    writes(b.s, 40);
    other = rig_session(b.rig, &b.e, b.pool, 1);
    for (n = 4; rig_match(other, rig_tokens(2, n), n) == TERN_OK; n += 4) /* up to the brim */
        assert_true(n < 24 * 4);
    assert_err(TERN_BUSY, b.rig->last->err);
    assert_err(TERN_BUSY, rig_match(b.s, rig_tokens(1, 200), 200)); /* a resume */
    assert_lengths(b.s, 0, 40, 40);
    assert_err(TERN_BUSY, rig_extend(b.s, 0, 0, rig_tokens(3, 200), 200));
    assert_int_equal(b.s->ntokens, 40);
    assert_ok(rig_commit(b.s, 40, 0)); /* takes no new block */
    assert_lengths(b.s, 40, 40, 40);
    assert_ok(rig_close(other, 0));
    lets_go(&b);
    assert_int_equal(rig_view(b.rig).token_blocks_free, 24);
}

TEST(limits_extra_keys_full_busy_and_nothing_lost)
{
    struct rig_options options = rig_defaults();
    struct extra_key keys[4] = {
        {.position = 1}, {.position = 5}, {.position = 6}, {.position = 13}};
    struct req_tokens t = {.v = rig_tokens(1, 16), .n = 16, .keys = keys, .nkeys = 4};
    struct bench b;

    options.limits.extra_keys = 3;
    b = bench_with(&options, 4, 64);
    assert_err(TERN_BUSY, rig_match_full(b.s, &t, 0));
    assert_int_equal(b.s->ntokens, 0);
    t.nkeys = 3;
    assert_ok(rig_match_full(b.s, &t, 0));
    assert_ok(rig_run_to(b.s, rig_tokens(1, 16), 16));
    assert_ok(rig_commit(b.s, 16, 0));
    lets_go(&b);
}

/* Retire records: whoever needs one and finds none is told so before anything changes; steps bring
 * them back. */
TEST(limits_retires_full_busy_until_a_step_passes)
{
    struct rig_options options = rig_defaults();
    struct req_tokens shorter = {.n = 20};
    struct bench b;

    options.limits.retires = 2;
    shorter.v = rig_tokens(1, 64);
    b = bench_with(&options, 4, 64);
    assert_ok(rig_match(b.s, rig_tokens(1, 64), 64));
    assert_ok(rig_run_to(b.s, rig_tokens(1, 64), 40));
    assert_ok(rig_rewind(b.s, 36, 1));
    assert_ok(rig_rewind(b.s, 32, 2));
    assert_err(TERN_BUSY, rig_rewind(b.s, 28, 3));
    assert_lengths(b.s, 0, 32, 32);
    assert_err(TERN_BUSY, rig_match_full(b.s, &shorter, 3));
    assert_err(TERN_BUSY, rig_finish(b.s, 0, 3));
    assert_err(TERN_BUSY, rig_commit(b.s, 16, 3));
    assert_err(TERN_BUSY, rig_abort(b.s, 3));
    assert_err(TERN_BUSY, rig_close(b.s, 3));
    assert_int_equal(rig_retiring(b.rig, b.pool), 2);
    rig_engine_done(b.rig, &b.e, 1);
    assert_ok(rig_rewind(b.s, 28, 2)); /* one record came back */
    assert_ok(rig_rewind(b.s, 24, 1)); /* and step 1 has passed: it needs none */
    rig_engine_done(b.rig, &b.e, 2);
    assert_int_equal(rig_retiring(b.rig, b.pool), 0);
    assert_int_equal(rig_view(b.rig).retires_free, 2);
    assert_ok(rig_close(b.s, 3));
    rig_engine_done(b.rig, &b.e, 3);
    assert_int_equal(rig_free(b.rig, b.pool), 64);
}

/* A commit at step 0 needs no record, until it adopts a node of its engine that is pending: what
 * follows waits with it. */
TEST(limits_retires_full_commit_below_a_pending_node_stops_there)
{
    struct rig_options options = rig_defaults();
    struct rig_session *twin;
    struct bench b;

    options.limits.retires = 2;
    b = bench_with(&options, 4, 64);
    twin = rig_session(b.rig, &b.e, b.pool, 1);
    writes(twin, 16);
    writes(b.s, 16);
    assert_ok(rig_commit(b.s, 8, 5));  /* one record */
    assert_ok(rig_rewind(b.s, 12, 6)); /* and the other */
    assert_err(TERN_BUSY, rig_commit(twin, 16, 0));
    assert_lengths(twin, 4, 16, 16); /* adopted, and not beyond */
    rig_engine_done(b.rig, &b.e, 6);
    assert_ok(rig_commit(twin, 16, 0));
    assert_lengths(twin, 16, 16, 16);
    assert_int_equal(rig_wrong(twin, 16), 0);
}

TEST(limits_namespaces_full_busy_until_one_is_empty)
{
    struct rig_options options = rig_defaults();
    struct bench b;

    options.limits.namespaces = 1;
    b = bench_with(&options, 4, 64);
    assert_err(TERN_BUSY, opens(&b, 2));
    assert_ok(rig_match(b.s, rig_tokens(1, 8), 8));
    assert_ok(rig_close(b.s, 0));
    assert_ok(opens(&b, 2));
}

/* A namespace of which only unpinned prefixes are left never keeps a new one out for good. */
TEST(limits_namespace_with_evictable_prefixes_makes_way)
{
    struct rig_options options = rig_defaults();
    struct bench b;

    options.limits.namespaces = 1;
    b = bench_with(&options, 4, 64);
    rig_put(b.rig, &b.e, b.pool, 1, 8);
    assert_ok(rig_close(b.s, 0));
    assert_int_equal(rig_view(b.rig).nodes, 3);
    if (opens(&b, 2) != TERN_OK) {
        assert_err(TERN_BUSY, b.rig->last->err);
        rig_evict(b.rig, b.admin, b.pool, 0);
        assert_ok(opens(&b, 2));
    }
    assert_int_equal(rig_view(b.rig).sessions, 1);
}

TEST(limits_engines_full_busy)
{
    struct rig_options options = rig_defaults();
    struct rig *rig;
    struct rig_engine e;
    uint32_t conn;

    options.limits.engines = 1;
    rig = rig_create(&options);
    e = rig_engine(rig, 0, "a", 1);
    conn = rig_connect(rig, 0, NULL);
    assert_err(TERN_BUSY, rig_join(rig, conn, "b", ROLE_BOTH, 0, 1));
    rig_engine_kill(rig, &e, 0);
    assert_ok(rig_join(rig, conn, "b", ROLE_BOTH, 0, 1));
}

TEST(limits_pools_full_busy_and_memory_quota)
{
    struct rig_options options = rig_defaults();
    struct bench b;

    options.limits.pools = 2;
    b = bench_with(&options, 4, 16); /* 1 of 4 MiB */
    assert_err(TERN_QUOTA, opens_pool(&b, 512, 4 << 20));
    assert_ok(opens_pool(&b, 512, 1 << 16));
    assert_err(TERN_BUSY, opens_pool(&b, 512, 1 << 16));
}

TEST(limits_page_records_full_busy)
{
    struct rig_options options = rig_defaults();
    struct bench b;

    options.limits.pages = 3000;
    b = bench_with(&options, 4, 16); /* 1 MiB is 2,048 records of 512 bytes */
    assert_err(TERN_BUSY, opens_pool(&b, 512, 1 << 20));
    assert_ok(opens_pool(&b, 4096, 1 << 20));
}

TEST(limits_transfers_in_full_busy)
{
    struct rig_options options = rig_defaults();
    struct rig_session *d[2];
    uint64_t fetch[2];
    struct pair p;

    options.limits.pulls = 1;
    p = pair_with(options, 4, 64, 64);
    p.dest->automatic = BY_HAND(RIG_PULL);
    fetch_many(&p, 2, 16, d, fetch);
    assert_err(TERN_BUSY, answered(&p, fetch[1]));
    rig_complete(p.dest, RIG_PULL);
    assert_ok(rig_fetched(d[0], fetch[0]));
    p.dest->automatic = RIG_ALL;
    assert_ok(fetch_all(d[1]));
}

/* Checksum jobs: as many at a time as the limit says, and all of them in the end. */
TEST(limits_seal_jobs_bounded_and_none_forgotten)
{
    struct rig_options options = rig_defaults();
    struct bench b;
    uint32_t jobs = 0;

    options.limits.seal_jobs = 3;
    b = bench_with(&options, 4, 64);
    b.rig->automatic = BY_HAND(RIG_SEAL);
    rig_put(b.rig, &b.e, b.pool, 1, 80);
    while (rig_jobs(b.rig, RIG_SEAL)) {
        assert_true(rig_jobs(b.rig, RIG_SEAL) <= 3);
        rig_complete(b.rig, RIG_SEAL);
        jobs++;
    }
    assert_int_equal(jobs, 20);
    for (uint32_t i = 0; i < options.limits.nodes; i++) {
        struct node_view v;

        if (core_node_view(b.rig->core, i, &v) && v.depth)
            assert_true(v.sealed);
    }
}

/* A chunk so large that one checksum job could not name its pages is refused when the pool is
 * opened. */
TEST(limits_chunk_of_more_pages_than_a_job_invalid)
{
    struct bench b = bench_start(4, 16);
    struct group_layout groups[2] = {rig_group(1, 64), rig_group(SEAL_PAGES_MAX * 2, 64)};
    struct pool_id pool;

    assert_err(TERN_INVALID, rig_pool_open(b.rig, b.e.conn[0], groups, 2, 1 << 16, &pool));
    groups[1] = rig_group(SEAL_PAGES_MAX / 2, 64);
    assert_ok(rig_pool_open(b.rig, b.e.conn[0], groups, 2, 1 << 16, &pool));
}

/* The same where a transfer would hang its chunks below a node that waits for its step. */
TEST(limits_retires_full_fetch_below_a_pending_node_busy)
{
    struct rig_options options = rig_defaults();
    struct pair p;

    options.limits.retires = 2;
    p = pair_with(options, 4, 64, 64);
    pair_offer(&p, 32);
    assert_ok(rig_run_to(p.d, rig_tokens(1, 32), 9));
    assert_ok(rig_commit(p.d, 8, 5));
    assert_ok(rig_rewind(p.d, 8, 5));
    assert_int_equal(rig_view(p.dest).retires_free, 0);
    assert_ok(rig_match(p.d, rig_tokens(1, 32), 32));
    assert_err(TERN_BUSY, fetch_all(p.d));
    assert_lengths(p.d, 8, 8, 8);
    rig_engine_done(p.dest, &p.de, 5);
    assert_ok(fetch_all(p.d));
    assert_whole(p.d, 32);
}

TEST(limits_slab_records_full_busy)
{
    struct rig_options options = rig_defaults();
    struct bench b;

    options.limits.slabs = 1500;
    b = bench_with(&options, 4, 16); /* 1 MiB is 1,024 slabs of 1,024 bytes */
    assert_err(TERN_BUSY, opens_pool(&b, 1024, 1 << 20));
    assert_ok(opens_pool(&b, 4096, 1 << 20));
}

/* Extra keys of one message between daemons: 1,024 go, one more does not, and a depth below it
 * helps. */
TEST(limits_fetch_of_too_many_extra_keys_invalid)
{
    struct rig_options options = rig_defaults();
    struct extra_key keys[EXTRA_KEYS_MAX], last = {.position = 1100, .lo = 9};
    struct request match = {.op = OP_MATCH}, fetch = {.op = OP_FETCH};
    struct step_op op = {.kind = STEP_EXTEND};
    struct pair p;

    options.limits.extra_keys = 2 * EXTRA_KEYS_MAX;
    p = pair_with(options, 4, 64, 64);
    p.d = rig_session(p.dest, &p.de, p.dp, 1);
    for (uint32_t i = 0; i < EXTRA_KEYS_MAX; i++)
        keys[i] = (struct extra_key){.position = i, .lo = i};
    match.match.session = p.d->id;
    match.match.tokens = (struct req_tokens){
        .v = rig_tokens(1, 1100), .n = 1100, .keys = keys, .nkeys = EXTRA_KEYS_MAX};
    assert_ok(rig_request(p.dest, p.d->conn, &match)->err);
    op.session = p.d->id;
    op.tokens = (struct req_tokens){
        .v = rig_tokens(1, 1108) + 1100, .n = 8, .base = 1100, .keys = &last, .nkeys = 1};
    assert_ok(rig_step_ops(p.dest, p.d->conn, &op, 1)->step.results[0].err);
    fetch.fetch.session = p.d->id;
    p.dest->automatic = BY_HAND(RIG_MSG);
    assert_err(TERN_INVALID, rig_request(p.dest, p.d->conn, &fetch)->err);
    assert_int_equal(rig_jobs(p.dest, RIG_MSG), 0); /* without asking the source */
    p.dest->automatic = RIG_ALL;
    fetch.fetch.depth = 1100;
    assert_ok(rig_request(p.dest, p.d->conn, &fetch)->err); /* asked; it has nothing of it */
}

/* A table that no answer could tell. */
TEST(limits_table_of_more_pages_than_an_answer_invalid)
{
    static uint32_t tokens[REPLY_REFS_MAX + 1];
    struct rig_options options = rig_defaults();
    struct request match = {.op = OP_MATCH};
    struct step_op op = {.kind = STEP_EXTEND, .length = REPLY_REFS_MAX + 1};
    struct bench b;

    options.limits.token_blocks = 2 * (REPLY_REFS_MAX / TOKEN_BLOCK);
    b = bench_with(&options, 1, 16);
    match.match.session = b.s->id;
    match.match.tokens = (struct req_tokens){.v = tokens, .n = REPLY_REFS_MAX + 1};
    assert_err(TERN_INVALID, rig_request(b.rig, b.s->conn, &match)->err);
    assert_true(b.rig->last->text[0] != 0);
    op.session = b.s->id;
    assert_err(TERN_INVALID, rig_step_ops(b.rig, b.s->conn, &op, 1)->step.results[0].err);
    op.length = REPLY_REFS_MAX;
    assert_err(TERN_POOL_EXHAUSTED, rig_step_ops(b.rig, b.s->conn, &op, 1)->step.results[0].err);
    op.length = 0; /* tokens alone, whose table a Fetch or a Recover would have to tell */
    op.tokens = match.match.tokens;
    assert_err(TERN_INVALID, rig_step_ops(b.rig, b.s->conn, &op, 1)->step.results[0].err);
    op.tokens.n--; /* as far as the store goes */
    assert_err(TERN_BUSY, rig_step_ops(b.rig, b.s->conn, &op, 1)->step.results[0].err);
    assert_ok(rig_match(b.s, rig_tokens(1, 8), 8));
    op.tokens.base = 8;
    assert_err(TERN_INVALID, rig_step_ops(b.rig, b.s->conn, &op, 1)->step.results[0].err);
    op.tokens.n -= 8;
    assert_err(TERN_BUSY, rig_step_ops(b.rig, b.s->conn, &op, 1)->step.results[0].err);
}

/* A page's checksums are one for each unit of each rank. */
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

/* S7 where there is no room to copy the keys of the good list out of the tree: the list is given
 * up, and the answer says so. */
TEST(limits_extra_keys_full_abort_gives_the_list_up)
{
    struct extra_key keys[2] = {{.position = 1}, {.position = 5}};
    struct req_tokens t = {.n = 16, .keys = keys, .nkeys = 2};

    for (uint32_t spare = 1; spare <= 2; spare++) { /* two are to be copied */
        struct rig_options options = rig_defaults();
        struct rig_session *other;
        struct bench b;

        options.limits.extra_keys = 4 + spare;
        b = bench_with(&options, 4, 64);
        other = rig_session(b.rig, &b.e, b.pool, 1);
        t.v = rig_tokens(1, 16);
        assert_ok(rig_match_full(b.s, &t, 0));
        assert_ok(rig_run_to(b.s, rig_tokens(1, 16), 16));
        assert_ok(rig_commit(b.s, 8, 0));
        assert_ok(rig_finish(b.s, 0, 0));
        assert_ok(rig_match_full(b.s, &t, 0));
        t.v = rig_tokens(2, 16);
        assert_ok(rig_match_full(other, &t, 0));
        assert_ok(rig_abort(b.s, 0));
        assert_int_equal(b.s->ntokens, spare < 2 ? 0 : 16);
    }
}

/* Node records are everyone's: the prefixes of another pool make way too. */
TEST(limits_nodes_full_evicts_from_another_pool)
{
    struct rig_options options = rig_defaults();
    struct rig_session *s;
    struct bench b;
    struct pool_id other;

    options.limits.nodes = 8;
    b = bench_with(&options, 4, 64);
    other = rig_pool_pages(b.rig, &b.e, 4, 64);
    rig_put(b.rig, &b.e, other, 1, 24); /* six and two roots */
    assert_int_equal(rig_view(b.rig).nodes_free, 0);
    s = rig_session(b.rig, &b.e, other, 1);
    assert_ok(rig_match(s, rig_tokens(1, 8), 8)); /* two are held */
    writes(b.s, 20);
    assert_err(TERN_BUSY, rig_commit(b.s, 20, 0));
    assert_lengths(b.s, 16, 20, 20);
    assert_int_equal(rig_depth(s, rig_tokens(1, 24), 24), 8);
}
