/* Long prefixes of a session and of the disk are compared in pieces, or by what nodes and sessions
 * remember: no step of the core looks at a whole path. The tests build their requests themselves,
 * since the rig's model of a session is for short ones. */
#include "unit/rig/rig_disk_bench.h"

#include "core/disk/entries.h"
#include "core/disk/stores.h"

#define CHUNKS (DISK_PATH_MAX / 2) /* of one token each */
/* Several pieces, and one walk over nodes without other work. */
#define BOUNDED (4 * PIECE_VISITS_MAX + DISK_PATH_MAX / NODES_A_VISIT)

struct paths {
    struct disk_bench b;
    uint32_t most; /* visits of a step */
    uint32_t steps;
};

static uint32_t tokens[DISK_PATH_MAX + 64];

static void look(void *ctx, const struct event *event)
{
    struct paths *p = ctx;
    struct core *c = p->b.rig->core;

    (void)event;
    p->steps++;
    p->most = c->visits > p->most ? c->visits : p->most;
    c->visits = 0; /* counted */
}

static void watch(struct paths *p)
{
    p->b.rig->on_event = look;
    p->b.rig->on_event_ctx = p;
    p->b.rig->core->visits = 0;
    p->steps = p->most = 0;
}

/* Asserts that the last step and those that followed from it kept the bound. */
static void assert_bounded(struct paths *p)
{
    look(p, NULL);
    assert_in_range(p->most, 1, BOUNDED);
    p->steps = p->most = 0;
}

static void paths_start(struct paths *p)
{
    disk_bench_restart(&p->b);
    watch(p);
}

static void paths_begin(struct paths *p)
{
    struct core_limits *l;

    *p = (struct paths){.b = disk_bench((struct disk_shape){.page_tokens = 4,
                                                            .pages = 512,
                                                            .page_bytes = 512,
                                                            .budget = 1u << 30,
                                                            .interval = SESSION_TOKENS_MAX})};
    l = &p->b.options.limits;
    p->b.no_audit = true;
    p->b.groups[0] = rig_group(1, 64);
    p->b.pool_bytes = 64ull * (DISK_PATH_MAX + 4096);
    p->b.options.tenant[0].memory_bytes = 2 * p->b.pool_bytes;
    l->nodes = 2 * DISK_PATH_MAX + 64;
    l->disk_chunks = DISK_PATH_MAX + 64;
    l->pages = l->table_pages = 4 * DISK_PATH_MAX;
    l->token_blocks = 4 * DISK_PATH_MAX;
    l->disk_blocks = DISK_PATH_MAX + 64;
    l->disk_files = SPILL_FILES_MAX;
    l->disk_align = l->disk_trim = l->disk_least = 1;
    paths_start(p);
}

static void paths_end(struct paths *p)
{
    p->b.rig->on_event = NULL;
    disk_bench_end(&p->b);
}

/* The list of that seed, in `tokens`. */
static const uint32_t *list(uint32_t seed)
{
    for (uint32_t i = 0; i < DISK_PATH_MAX + 64; i++)
        tokens[i] = seed * 0x1000000 + i;
    return tokens;
}

static const struct reply *match(struct rig_session *s, uint32_t base, uint32_t n, bool more)
{
    struct request r = {
        .op = OP_MATCH,
        .match = {.session = s->id, .tokens = {.base = base, .v = tokens + base, .n = n}}};
    const struct reply *reply;

    r.match.earlier = base;
    r.match.more = more;
    reply = rig_request(s->rig, s->conn, &r);
    assert_ok(reply->err);
    return reply;
}

static struct op_result op(struct rig_session *s, struct step_op o)
{
    o.session = s->id;
    return rig_step_ops(s->rig, s->conn, &o, 1)->step.results[0];
}

/* Repeats the operation as long as a Step does a part of it. */
static void op_all(struct rig_session *s, struct step_op o)
{
    for (uint32_t i = 0; i < 256; i++) {
        enum tern_err err = op(s, o).err;

        rig_timers(s->rig);
        if (err == TERN_BUSY)
            continue;
        assert_ok(err);
        return;
    }
    assert_true(false);
}

/* A session of the pool that has committed the first n of `tokens`. */
static struct rig_session *committed(struct paths *p, struct pool_id pool, uint32_t n)
{
    struct rig_session *s = rig_session(p->b.rig, &p->b.e, pool, 1);
    uint32_t have = match(s, 0, n, false)->match.matched;

    op_all(s, (struct step_op){.kind = STEP_EXTEND,
                               .length = n,
                               .written = n,
                               .tokens = {.base = n, .v = tokens + n}});
    if (have < n)
        op_all(s, (struct step_op){.kind = STEP_COMMIT, .length = n});
    return s;
}

static void fetch_all(struct rig_session *s)
{
    struct request r = {.op = OP_FETCH, .fetch = {.session = s->id, .peer = PEER_DISK}};

    rig_request(s->rig, s->conn, &r);
    rig_timers(s->rig);
}

/* T20: the longest prefix that the disk may have, with chunks of one token. One chunk more is
 * refused. */
TEST(a_prefix_of_as_many_chunks_as_there_may_be_is_stored_and_no_longer_one)
{
    struct rig_session *s;
    struct paths p;

    paths_begin(&p);
    list(1);
    s = committed(&p, p.b.pool, DISK_PATH_MAX + 1);
    watch(&p);
    assert_int_equal(disk_stored(s, DISK_PATH_MAX + 1), TERN_UNSUPPORTED);
    assert_int_equal(disk_seen(&p.b).counts.written_bytes, 0);
    assert_ok(disk_stored(s, DISK_PATH_MAX));
    rig_timers(p.b.rig);
    assert_bounded(&p);
    assert_int_equal(disk_seen(&p.b).chunks, DISK_PATH_MAX);
    p.b.rig->on_event = NULL;
    p.b.rig->no_audit = false;
    oracle_audit(p.b.rig->core);
    paths_end(&p);
}

/* Nodes remember their chunks: no part of a deep session's path is compared twice. */
TEST(a_deep_session_on_the_disk_matches_finishes_and_closes_in_few_visits)
{
    struct rig_session *s;
    struct paths p;

    paths_begin(&p);
    list(1);
    s = committed(&p, p.b.pool, CHUNKS);
    assert_ok(disk_stored(s, CHUNKS));
    rig_timers(p.b.rig);
    s = rig_session(p.b.rig, &p.b.e, p.b.pool, 1);
    watch(&p);
    assert_int_equal(match(s, 0, CHUNKS + 8, false)->match.matched, CHUNKS);
    look(&p, NULL);
    assert_in_range(p.most, 1, CHUNKS / NODES_A_VISIT + 64); /* its tokens */
    op_all(s, (struct step_op){.kind = STEP_EXTEND, .length = CHUNKS + 8, .written = CHUNKS + 8});
    op_all(s, (struct step_op){.kind = STEP_COMMIT, .length = CHUNKS + 8});
    watch(&p);
    op_all(s, (struct step_op){.kind = STEP_FINISH, .length = CHUNKS + 8});
    rig_timers(p.b.rig);
    look(&p, NULL);
    assert_in_range(p.most, 1, CHUNKS / NODES_A_VISIT + 64); /* D5 looks up the whole path */
    assert_int_equal(disk_seen(&p.b).chunks, CHUNKS + 7);
    watch(&p);
    assert_ok(rig_close(s, 0));
    look(&p, NULL);
    assert_in_range(p.most, 1, 64);
    paths_end(&p);
}

/* After a start memory is empty. The last piece of a Match walks along the disk, and so does the
 * Fetch; the fetched chunks are not compared again. */
TEST(a_match_in_pieces_walks_along_the_disk_once)
{
    const uint32_t piece = CHUNKS / 4;
    struct rig_session *s;
    struct paths p;

    paths_begin(&p);
    list(1);
    assert_ok(disk_stored(committed(&p, p.b.pool, CHUNKS), CHUNKS));
    paths_start(&p);
    s = rig_session(p.b.rig, &p.b.e, p.b.pool, 1);
    watch(&p);
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(match(s, i * piece, piece, i < 3)->match.disk_depth, i < 3 ? 0 : CHUNKS);
    look(&p, NULL);
    assert_in_range(p.most, 1, (CHUNKS + piece) / NODES_A_VISIT + 64);
    watch(&p);
    fetch_all(s);
    look(&p, NULL);
    assert_in_range(p.most, 1, CHUNKS + CHUNKS / NODES_A_VISIT + 64); /* with its pages, at once */
    assert_int_equal(session_at(p.b.rig->core, s->id.slot)->committed, CHUNKS);
    watch(&p);
    match(rig_session(p.b.rig, &p.b.e, p.b.pool, 1), 0, CHUNKS, false);
    look(&p, NULL);
    /* The tokens alone: nodes that were fetched know their chunks. */
    assert_in_range(p.most, 1, CHUNKS / NODES_A_VISIT + 64);
    paths_end(&p);
}

/* Another pool of the same layout has stored the prefix: nodes look it up once, and nothing is
 * written anew. */
TEST(what_another_pool_has_stored_is_compared_once)
{
    struct rig_session *one, *two;
    struct pool_id other;
    uint64_t written;
    struct paths p;

    paths_begin(&p);
    p.b.options.tenant[0].memory_bytes = 4 * p.b.pool_bytes;
    paths_start(&p);
    assert_ok(rig_pool_open(p.b.rig, p.b.e.conn[0], p.b.groups, 1, p.b.pool_bytes, &other));
    assert_ok(rig_map(p.b.rig, p.b.e.conn[0], other));
    list(1);
    one = committed(&p, p.b.pool, CHUNKS);
    two = committed(&p, other, CHUNKS);
    assert_ok(disk_stored(one, CHUNKS));
    written = disk_seen(&p.b).counts.written_bytes;
    watch(&p);
    assert_ok(disk_stored(two, CHUNKS));
    look(&p, NULL);
    assert_in_range(p.most, CHUNKS / NODES_A_VISIT, CHUNKS / NODES_A_VISIT + 64);
    watch(&p);
    assert_ok(disk_stored(two, CHUNKS));
    look(&p, NULL);
    assert_in_range(p.most, 1, 64);
    assert_int_equal(disk_seen(&p.b).counts.written_bytes, written);
    assert_int_equal(disk_seen(&p.b).chunks, CHUNKS);
    paths_end(&p);
}

/* A chunk was read wrong: no node trusts any more what it remembers of the chunks below it. */
TEST(what_nodes_remember_is_forgotten_where_a_chunk_is_bad)
{
    struct rig_session *s;
    struct paths p;
    uint64_t written;

    paths_begin(&p);
    list(1);
    s = committed(&p, p.b.pool, 64);
    assert_ok(disk_stored(s, 64));
    written = disk_seen(&p.b).counts.written_bytes;
    disk_pin(p.b.rig->core, tenant_at(p.b.rig->core, 0)->disk_entries.head); /* a fetch reads it */
    for (uint32_t at = 0; at < p.b.options.limits.disk_chunks; at++)
        if (disk_chunk_at(p.b.rig->core, at)->depth == 16)
            disk_chunk_bad(p.b.rig->core, at);
    assert_ok(disk_stored(s, 64));
    assert_int_equal(disk_seen(&p.b).chunks, 64 + 49);
    assert_in_range(disk_seen(&p.b).counts.written_bytes - written, written / 2, written);
    disk_unpin(p.b.rig->core, tenant_at(p.b.rig->core, 0)->disk_entries.head);
    rig_timers(p.b.rig);
    assert_int_equal(disk_seen(&p.b).chunks, 64);
    assert_int_equal(disk_seen(&p.b).entries, 1);
    paths_start(&p);
    s = rig_session(p.b.rig, &p.b.e, p.b.pool, 1);
    assert_int_equal(match(s, 0, 64, false)->match.disk_depth, 64);
    paths_end(&p);
}

/* --- something happens in the middle --- */

enum middle { CLOSED, KILLED, RESET, FAILED, MIDDLES };

static void middle(enum middle what)
{
    struct request reset = {.op = OP_NAMESPACE_RESET};
    struct rig_session *s;
    struct paths p;
    uint64_t store;

    paths_begin(&p);
    list(1);
    s = committed(&p, p.b.pool, CHUNKS);
    p.b.rig->automatic = BY_HAND(RIG_DISK_WRITE);
    store = disk_store(s, CHUNKS);
    for (uint32_t i = 0; i < 20; i++) {
        assert_int_equal(rig_jobs(p.b.rig, RIG_DISK_WRITE), 1);
        rig_complete(p.b.rig, RIG_DISK_WRITE);
    }
    watch(&p);
    switch (what) {
    case CLOSED: assert_ok(rig_close(s, 0)); break;
    case KILLED: rig_engine_kill(p.b.rig, &p.b.e, 0); break;
    case RESET:
        reset.namespace_reset.ns = s->ns;
        rig_request(p.b.rig, s->conn, &reset);
        break;
    case FAILED:
    case MIDDLES:
        p.b.disk->err = TERN_POOL_EXHAUSTED;
        p.b.disk->writes_to_fail = 1;
        break;
    }
    p.b.rig->automatic = RIG_ALL;
    rig_settle(p.b.rig);
    rig_timers(p.b.rig);
    assert_bounded(&p);
    if (what == CLOSED)
        assert_ok(rig_reply_to(p.b.rig, store)->err);
    assert_int_equal(disk_seen(&p.b).chunks, what == CLOSED || what == KILLED ? CHUNKS : 0);
    assert_int_equal(disk_seen(&p.b).used, spill_bytes(p.b.disk));
    p.b.rig->on_event = NULL;
    p.b.rig->no_audit = false;
    oracle_audit(p.b.rig->core);
    paths_end(&p);
}

TEST(a_long_store_goes_on_when_its_session_is_closed)
{
    middle(CLOSED);
}

TEST(a_long_store_goes_on_when_its_engine_dies)
{
    middle(KILLED);
}

TEST(a_long_store_ends_with_its_namespace)
{
    middle(RESET);
}

TEST(a_long_store_that_fails_gives_up_its_chunks_in_pieces)
{
    middle(FAILED);
}

/* An entry goes; its chunks go in pieces, and are stored anew meanwhile. */
TEST(a_long_entry_goes_in_pieces_and_is_stored_anew_meanwhile)
{
    struct rig_session *s;
    struct paths p;
    uint32_t chunks;

    paths_begin(&p);
    list(1);
    s = committed(&p, p.b.pool, CHUNKS);
    assert_ok(disk_stored(s, CHUNKS));
    watch(&p);
    p.b.rig->core->piece_end = PIECE_VISITS_MAX;
    assert_int_equal(disk_evict(&p.b), DISK_ROOM);
    chunks = disk_seen(&p.b).chunks;
    assert_in_range(chunks, 1, CHUNKS - 1);
    assert_int_equal(disk_evict(&p.b), DISK_ROOM_NEXT);
    look(&p, NULL);
    assert_ok(disk_stored(s, CHUNKS));
    rig_timers(p.b.rig);
    assert_bounded(&p);
    assert_int_equal(disk_seen(&p.b).chunks, CHUNKS);
    assert_int_equal(disk_seen(&p.b).used, spill_bytes(p.b.disk));
    p.b.rig->on_event = NULL;
    p.b.rig->no_audit = false;
    oracle_audit(p.b.rig->core);
    paths_end(&p);
}

/* A store looks along its whole path for entries that it makes needless, which takes more than a
 * piece: an entry goes for it nevertheless. */
TEST(an_entry_makes_way_however_long_the_path_of_a_store_is)
{
    struct rig_session *s;
    struct paths p;

    paths_begin(&p);
    list(2);
    assert_ok(disk_stored(committed(&p, p.b.pool, 2048), 2048));
    list(1);
    assert_ok(disk_stored(committed(&p, p.b.pool, CHUNKS), CHUNKS));
    s = committed(&p, p.b.pool, CHUNKS + 8);
    tenant_at(p.b.rig->core, 0)->config.disk_bytes = disk_seen(&p.b).used + 1;
    watch(&p);
    assert_ok(disk_stored(s, CHUNKS + 8));
    assert_bounded(&p);
    assert_int_equal(disk_seen(&p.b).counts.evicted, 1);
    assert_int_equal(disk_seen(&p.b).chunks, CHUNKS + 8);
    paths_end(&p);
}

/* --- windows --- */

static void window_begin(struct paths *p)
{
    paths_begin(p);
    p->b.groups[1] = rig_window(1, 2 * DISK_WINDOW_MAX, 64);
    p->b.ngroups = 2;
    p->b.pool_bytes *= 2;
    p->b.options.tenant[0].memory_bytes = 2 * p->b.pool_bytes;
    paths_start(p);
}

TEST(a_prefix_whose_windows_have_too_many_chunks_is_refused)
{
    struct rig_session *s;
    struct paths p;

    window_begin(&p);
    list(1);
    s = committed(&p, p.b.pool, DISK_WINDOW_MAX + 2);
    assert_int_equal(disk_stored(s, DISK_WINDOW_MAX + 2), TERN_UNSUPPORTED);
    assert_int_equal(disk_seen(&p.b).counts.refused, 0);
    op_all(s, (struct step_op){.kind = STEP_FINISH, .length = DISK_WINDOW_MAX + 2});
    rig_timers(p.b.rig);
    assert_int_equal(disk_seen(&p.b).counts.refused, 1); /* nobody asked for it */
    assert_int_equal(disk_seen(&p.b).chunks, 0);
    paths_end(&p);
}
