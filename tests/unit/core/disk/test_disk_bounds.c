/* No step of the core does more on the disk's index than it may: what takes longer goes on in the
 * next one, and what waits is not looked at meanwhile. */
#include "unit/rig/rig_disk_bench.h"

#include "core/disk/entries.h"
#include "core/disk/stores.h"

static struct disk_bench bench(uint64_t budget)
{
    return disk_bench((struct disk_shape){
        .page_tokens = 4, .pages = 512, .page_bytes = 512, .budget = budget, .interval = 4096});
}

static struct rig_session *computed(struct disk_bench *b, uint32_t seed, uint32_t n)
{
    return rig_committed(b->rig, &b->e, b->pool, seed, n);
}

/* What each step has done is seen before the next one. */
struct watch {
    struct disk_bench *b;
    uint32_t steps, most; /* visits of one */
    uint32_t tried;       /* stores, the most in one step */
    uint32_t tried_before;
};

static uint32_t tried_now(const struct core *c)
{
    uint32_t n = 0;

    for (uint32_t at = c->disk_stores.head; at != NONE; at = disk_store_list_next(c, at))
        n += disk_store_at(c, at)->tried == c->disk_let_go;
    return n;
}

static void look(void *ctx, const struct event *event)
{
    struct watch *w = ctx;
    const struct core *c = w->b->rig->core;
    uint32_t tried = tried_now(c);

    (void)event;
    w->steps++;
    w->most = c->visits > w->most ? c->visits : w->most;
    if (tried > w->tried_before && tried - w->tried_before > w->tried)
        w->tried = tried - w->tried_before;
    w->tried_before = tried;
}

static void watch(struct watch *w)
{
    w->steps = w->most = w->tried = 0;
    w->tried_before = tried_now(w->b->rig->core);
    w->b->rig->core->visits = 0;
    w->b->rig->on_event = look;
    w->b->rig->on_event_ctx = w;
}

/* As after a step that has looked at as much as it may. */
static void used_up(struct disk_bench *b)
{
    b->rig->core->visits = STEP_VISITS_MAX - STEP_PATH_MAX;
}

TEST(no_entry_makes_way_in_a_step_that_has_done_enough)
{
    struct disk_bench b = bench(1u << 22);

    assert_ok(disk_stored(computed(&b, 1, 32), 32));
    used_up(&b);
    assert_int_equal(disk_evict_one(b.rig->core, 0, NULL), DISK_ROOM_NEXT);
    assert_int_equal(disk_seen(&b).entries, 1);
    b.rig->core->visits = 0;
    assert_int_equal(disk_evict_one(b.rig->core, 0, NULL), DISK_ROOM);
    assert_int_equal(disk_seen(&b).entries, 0);
    assert_int_equal(disk_evict_one(b.rig->core, 0, NULL), DISK_ROOM_NEVER);
    disk_bench_end(&b);
}

/* Looking for it may have been enough. */
TEST(an_entry_makes_way_only_where_the_look_has_left_something)
{
    struct disk_bench b = bench(1u << 22);

    assert_ok(disk_stored(computed(&b, 1, 32), 32));
    assert_ok(disk_stored(computed(&b, 2, 32), 32));
    used_up(&b);
    b.rig->core->visits -= 2;
    assert_int_equal(disk_evict_one(b.rig->core, 0, NULL), DISK_ROOM_NEXT);
    assert_int_equal(disk_seen(&b).entries, 2);
    used_up(&b);
    b.rig->core->visits -= 3;
    assert_int_equal(disk_evict_one(b.rig->core, 0, NULL), DISK_ROOM);
    assert_int_equal(disk_seen(&b).entries, 1);
    disk_bench_end(&b);
}

/* A fetch holds what was found bad, and nothing happens meanwhile: no step looks for it. */
TEST(what_is_bad_and_held_is_looked_for_once)
{
    struct disk_bench b = bench(1u << 22);
    struct watch w = {.b = &b};
    struct rig_session *reader;
    uint64_t fetch;

    for (uint32_t seed = 1; seed <= 8; seed++)
        assert_ok(disk_stored(computed(&b, seed, 32), 32));
    disk_bench_restart(&b);
    b.rig->automatic = BY_HAND(RIG_PULL);
    reader = rig_session(b.rig, &b.e, b.pool, 1);
    assert_ok(rig_match(reader, rig_tokens(1, 32), 32));
    fetch = rig_fetch(reader, PEER_DISK, 0);
    for (uint32_t i = 0; i < 1024; i++)
        if (disk_chunk_at(b.rig->core, i)->pins > 0)
            disk_chunk_bad(b.rig->core, i);
    watch(&w);
    for (uint32_t i = 0; i < 8; i++)
        rig_advance(b.rig, 1);
    assert_in_range(w.most, PIECE_VISITS_TIMER, 2 * PIECE_VISITS_TIMER);
    watch(&w);
    rig_advance(b.rig, 1);
    rig_advance(b.rig, 1);
    assert_in_range(w.most, 0, 8);
    assert_int_equal(disk_seen(&b).entries, 8);
    b.rig->automatic = RIG_ALL;
    rig_settle(b.rig);
    assert_ok(rig_fetched(reader, fetch));
    rig_timers(b.rig);
    assert_int_equal(disk_seen(&b).entries, 7); /* it went when it was let go */
    assert_int_equal(disk_depth_of(&b, rig_tokens(2, 40), 40), 32);
    disk_bench_end(&b);
}

/* A namespace is reset that has many entries: as much as a piece is looked at in each step, and
 * then it is over. */
TEST(a_reset_looks_at_a_piece_of_the_index_in_each_step)
{
    struct disk_bench b = bench(1u << 22);
    struct request reset = {.op = OP_NAMESPACE_RESET};
    struct watch w = {.b = &b};

    disk_bench_end(&b);
    b = (struct disk_bench){.disk = spill_make(), .options = b.options, .ngroups = 1};
    b.groups[0] = rig_group(4, 512);
    b.pool_bytes = 512 * 129;
    b.options.limits.disk_chunks = 3 * PIECE_VISITS_MAX;
    disk_bench_start(&b);
    reset.namespace_reset.ns = computed(&b, 1, 32)->ns;
    assert_ok(disk_stored(computed(&b, 1, 32), 32));
    assert_ok(disk_stored(computed(&b, 2, 32), 32));
    b.rig->core->disk_bad_at = tenant_at(b.rig->core, 0)->disk_entries.head + 1; /* it comes last */
    watch(&w);
    rig_request(b.rig, b.e.conn[0], &reset);
    rig_timers(b.rig);
    rig_advance(b.rig, 1);
    assert_in_range(w.most, PIECE_VISITS_MAX, 2 * PIECE_VISITS_MAX);
    assert_in_range(w.steps, 4, 3 * PIECE_VISITS_MAX / PIECE_VISITS_TIMER);
    assert_non_null(rig_reply_to(b.rig, reset.request_id));
    assert_int_equal(disk_seen(&b).entries, 0);
    assert_int_equal(spill_bytes(b.disk), 0);
    disk_bench_end(&b);
}

/* However many files there may be, one that has none costs no look at them: engines and peers reset
 * as often as they like. */
TEST(a_reset_looks_at_no_more_files_than_the_tenant_has)
{
    struct disk_bench b = bench(1u << 22);
    struct request reset = {.op = OP_NAMESPACE_RESET, .namespace_reset.ns = {.hi = 7, .lo = 7}};
    struct watch w = {.b = &b};

    disk_bench_end(&b);
    b = (struct disk_bench){.disk = spill_make(), .options = b.options, .ngroups = 1};
    b.groups[0] = rig_group(4, 512);
    b.pool_bytes = 512 * 129;
    b.options.limits.disk_files = 2 * PIECE_VISITS_MAX;
    disk_bench_start(&b);
    watch(&w);
    rig_request(b.rig, b.e.conn[0], &reset);
    assert_ok(rig_reply_to(b.rig, reset.request_id)->err);
    assert_in_range(w.most, 0, 64);
    disk_bench_end(&b);
}

/* What a crash has brought back is given up in the step that finds it anew; where that has done
 * enough, the rest goes when all was found. */
TEST(what_is_found_twice_goes_later_where_a_step_has_done_enough)
{
    struct disk_bench b = bench(1u << 22);
    struct event ready = {.kind = EV_DISK_READY, .ready.next_file = 10};

    assert_ok(disk_stored(computed(&b, 1, 32), 32));
    b.rig->automatic = BY_HAND(RIG_DISK_DROP);
    assert_int_equal(disk_evict_one(b.rig->core, 0, NULL), DISK_ROOM);
    rig_timers(b.rig);
    assert_ok(disk_stored(computed(&b, 1, 16), 16));
    assert_int_equal(b.disk->nfiles, 2); /* the drop was not carried out */
    rig_destroy(b.rig);
    b.options.incarnation++;
    b.rig = rig_create(&b.options);
    b.rig->spill = b.disk;
    for (uint32_t i = 0; i < 2; i++)
        for (uint32_t k = 0; k < b.disk->file[i].n; k++) {
            struct event found = {.kind = EV_DISK_FOUND};

            found.found.extent = b.disk->file[i].v[k].e;
            found.found.tokens = b.disk->file[i].v[k].tokens;
            found.found.keys = b.disk->file[i].v[k].keys;
            b.rig->core->visits = i == 1 && k == 0 ? STEP_VISITS_MAX - STEP_PATH_MAX : 0;
            disk_found(b.rig->core, &found);
            assert_int_equal(disk_seen(&b).entries, i == 1 && k == 4 ? 2 : i == 1 || k == 8);
        }
    rig_event(b.rig, &ready);
    rig_timers(b.rig);
    assert_int_equal(disk_seen(&b).entries, 1);
    assert_int_equal(disk_seen(&b).chunks, 4);
    assert_int_equal(disk_seen(&b).used, spill_bytes(b.disk));
    b.e = rig_engine(b.rig, 0, "e", 1);
    assert_ok(rig_pool_open(b.rig, b.e.conn[0], b.groups, b.ngroups, b.pool_bytes, &b.pool));
    assert_ok(rig_map(b.rig, b.e.conn[0], b.pool));
    assert_int_equal(disk_depth_of(&b, rig_tokens(1, 40), 40), 16);
    disk_bench_end(&b);
}

/* Its path is not looked at again before they are known. */
TEST(a_store_that_waits_for_checksums_is_not_tried_in_every_step)
{
    struct disk_bench b = bench(1u << 22);
    struct rig_session *s;
    uint64_t store, changes;

    b.rig->automatic = BY_HAND(RIG_SEAL);
    s = computed(&b, 1, 32);
    store = disk_store(s, 32);
    rig_advance(b.rig, 1);
    changes = core_changes(b.rig->core);
    for (uint32_t i = 0; i < 4; i++)
        rig_advance(b.rig, 1);
    assert_int_equal(core_changes(b.rig->core), changes);
    b.rig->automatic = RIG_ALL;
    rig_settle(b.rig);
    assert_ok(rig_reply_to(b.rig, store)->err);
    disk_bench_end(&b);
}

/* Twelve stores wait for room that a fetch holds; when something is let go, so many are tried in a
 * step, and the others in the next. */
TEST(of_the_stores_that_wait_for_room_some_are_tried_in_a_step)
{
    struct disk_bench b = bench(9 * 8192 + 4096);
    struct rig_session *reader;
    struct watch w = {.b = &b};

    b.options.limits.disk_stores = 16;
    disk_bench_restart(&b);
    assert_ok(disk_stored(computed(&b, 1, 32), 32));
    disk_bench_restart(&b);
    b.rig->automatic = BY_HAND(RIG_PULL);
    reader = rig_session(b.rig, &b.e, b.pool, 1);
    assert_ok(rig_match(reader, rig_tokens(1, 32), 32));
    rig_fetch(reader, PEER_DISK, 0);
    for (uint32_t seed = 2; seed < 14; seed++)
        disk_store(computed(&b, seed, 32), 32);
    rig_timers(b.rig);
    assert_int_equal(disk_seen(&b).stores, 12);
    assert_int_equal(tried_now(b.rig->core), 12);
    disk_let_go(b.rig->core);
    assert_int_equal(tried_now(b.rig->core), 0);
    watch(&w);
    rig_advance(b.rig, 1);
    rig_advance(b.rig, 1);
    assert_int_equal(w.tried, DISK_TRIES_MAX);
    assert_int_equal(tried_now(b.rig->core), 12);
    disk_bench_end(&b);
}

/* A longer file than that many of its extents are given back one by one before it goes. */
TEST(what_is_given_back_is_said_in_pieces)
{
    struct disk_bench b = bench(1u << 22);
    struct event timer = {.kind = EV_TIMER};

    assert_ok(disk_stored(computed(&b, 1, 32), 32));
    assert_ok(disk_stored(computed(&b, 1, 64), 64));
    assert_int_equal(disk_evict_one(b.rig->core, 0, NULL), DISK_ROOM);
    assert_int_not_equal(b.rig->core->disk_gone_first, NONE);
    used_up(&b);
    assert_false(disk_gone_flush(b.rig->core, b.rig->out));
    assert_int_not_equal(b.rig->core->disk_gone_first, NONE);
    timer.now_ns = ++b.rig->now_ns;
    rig_event(b.rig, &timer);
    assert_int_equal(b.rig->core->disk_gone_first, NONE);
    assert_int_equal(disk_seen(&b).used, spill_bytes(b.disk));
    disk_bench_end(&b);
}

/* A window may be longer than what was stored: what is looked at is what is there. */
TEST(a_window_that_is_longer_than_its_prefix_costs_no_more_than_that)
{
    struct disk_bench b = bench(1u << 20);
    struct watch w = {.b = &b};

    b.groups[0] = rig_group(16, 512);
    b.groups[1] = rig_window(16, SESSION_TOKENS_MAX, 256);
    b.ngroups = 2;
    disk_bench_restart(&b);
    watch(&w);
    for (uint32_t life = 0; life < 2; life++) {
        for (uint32_t seed = 1; seed <= 24; seed++) {
            struct rig_session *s = computed(&b, 24 * life + seed, 128);

            assert_ok(disk_stored(s, 128));
            assert_ok(rig_close(s, 0));
            rig_session_free(s);
        }
        assert_in_range(disk_seen(&b).entries, 1, 8);
        assert_true(disk_seen(&b).counts.evicted > 0);
        disk_bench_restart(&b);
        b.rig->on_event = look;
        b.rig->on_event_ctx = &w;
    }
    rig_timers(b.rig);
    assert_in_range(w.most, 100, 2048); /* not 262,144 an entry */
    disk_bench_end(&b);
}

/* The requests are sent as they are; the rig's own model of a session is for short ones. */
static struct rig_session *computed_long(struct disk_bench *b, uint32_t n)
{
    static uint32_t tokens[DISK_PATH_MAX + 1];
    struct rig_session *s = rig_session(b->rig, &b->e, b->pool, 1);
    struct request match = {.op = OP_MATCH, .match.session = s->id};
    struct step_op ops[] = {
        {.kind = STEP_EXTEND, .session = s->id, .length = n, .written = n, .tokens = {.v = tokens}},
        {.kind = STEP_COMMIT, .session = s->id, .length = n}};
    const struct reply *r;

    for (uint32_t i = 0; i < n; i++)
        tokens[i] = i;
    match.match.tokens = (struct req_tokens){.v = tokens, .n = 1};
    assert_ok(rig_request(b->rig, s->conn, &match)->err);
    ops[0].tokens = (struct req_tokens){.base = 1, .v = tokens + 1, .n = n - 1};
    assert_ok(rig_step_ops(b->rig, s->conn, &ops[0], 1)->step.results[0].err);
    for (uint32_t before = 0;; before = r->step.results[0].lengths.committed) {
        r = rig_step_ops(b->rig, s->conn, &ops[1], 1);
        if (r->step.results[0].err != TERN_BUSY)
            break;
        assert_true(r->step.results[0].lengths.committed > before); /* a Step takes a part of it */
    }
    assert_ok(r->step.results[0].err);
    assert_int_equal(r->step.results[0].lengths.committed, n);
    return s;
}

/* T20: the longest prefix that may lie there, at one token a chunk; and one chunk more is
 * refused. */
TEST(a_prefix_of_as_many_chunks_as_there_may_be_is_stored_and_no_longer_one)
{
    struct disk_bench b = bench(1u << 30);
    struct watch w = {.b = &b};
    struct rig_session *s;

    b.groups[0] = rig_group(1, 64);
    b.pool_bytes = 64ull * (DISK_PATH_MAX + 4096);
    b.options.tenant[0].memory_bytes = b.pool_bytes;
    b.options.limits.nodes = b.options.limits.disk_chunks = DISK_PATH_MAX + 8;
    b.options.limits.pages = b.options.limits.table_pages = 4 * DISK_PATH_MAX;
    b.options.limits.token_blocks = 2 * DISK_PATH_MAX;
    b.options.limits.disk_blocks = DISK_PATH_MAX + 8;
    b.options.limits.disk_files = SPILL_FILES_MAX;
    b.options.limits.disk_interval =
        SESSION_TOKENS_MAX; /* nothing is stored that nobody asks for */
    disk_bench_restart(&b);
    b.rig->no_audit = true;
    s = computed_long(&b, DISK_PATH_MAX + 1);
    watch(&w);
    assert_int_equal(disk_stored(s, DISK_PATH_MAX + 1), TERN_UNSUPPORTED);
    assert_int_equal(disk_seen(&b).counts.written_bytes, 0);
    assert_ok(disk_stored(s, DISK_PATH_MAX));
    rig_timers(b.rig);
    assert_in_range(w.most, DISK_PATH_MAX, STEP_VISITS_MAX);
    assert_int_equal(disk_seen(&b).chunks, DISK_PATH_MAX);
    disk_bench_end(&b);
}
