/* Each step of the core does a bounded amount of work on the disk's index: longer work continues in
 * the next step, and work that waits is not looked at meanwhile. */
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

/* Measures each step before the next one begins. */
struct watch {
    struct disk_bench *b;
    uint32_t steps, most; /* visits of one step */
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

/* As if the step had used up its visits. */
static void used_up(struct disk_bench *b)
{
    b->rig->core->visits = STEP_VISITS_MAX - STEP_PATH_MAX;
}

/* Each step makes some room: the first entry goes, however many visits the search has taken. */
TEST(one_entry_makes_way_in_a_step_that_has_done_enough_and_no_other)
{
    struct disk_room any = {.for_it = {.chunk = NONE, .reason = DISK_EVICT}};
    struct disk_bench b = bench(1u << 22);

    for (uint32_t seed = 1; seed <= 3; seed++)
        assert_ok(disk_stored(computed(&b, seed, 32), 32));
    b.rig->core->visits = b.rig->core->piece_end;
    assert_int_equal(disk_room_more(b.rig->core, 0, &any), DISK_ROOM);
    assert_true(disk_bare_flush(b.rig->core));
    assert_int_equal(disk_seen(&b).entries, 2);
    b.rig->core->visits = b.rig->core->piece_end;
    assert_int_equal(disk_room_more(b.rig->core, 0, &any), DISK_ROOM_NEXT);
    assert_int_equal(disk_seen(&b).entries, 2);
    b.rig->core->visits = 0;
    assert_int_equal(disk_room_more(b.rig->core, 0, &any), DISK_ROOM);
    assert_int_equal(disk_evict(&b), DISK_ROOM);
    assert_int_equal(disk_evict(&b), DISK_ROOM_NEVER);
    disk_bench_end(&b);
}

/* A fetch pins a chunk that was found bad, and nothing else happens: no step looks for it again. */
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
    assert_int_equal(disk_seen(&b).entries, 7); /* it went when the fetch unpinned it */
    assert_int_equal(disk_depth_of(&b, rig_tokens(2, 40), 40), 32);
    disk_bench_end(&b);
}

/* A namespace with many entries is reset: each step looks at one piece of them, and then all are
 * gone. */
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
    b.rig->core->disk_bad_at = tenant_at(b.rig->core, 0)->disk_entries.head + 1; /* the last */
    watch(&w);
    rig_request(b.rig, b.e.conn[0], &reset);
    rig_timers(b.rig);
    rig_advance(b.rig, 1);
    assert_in_range(w.most, PIECE_VISITS_MAX, 2 * PIECE_VISITS_MAX);
    assert_in_range(w.steps, 4, 16 + 3 * PIECE_VISITS_MAX / PIECE_VISITS_TIMER);
    assert_non_null(rig_reply_to(b.rig, reset.request_id));
    assert_int_equal(disk_seen(&b).entries, 0);
    assert_int_equal(spill_bytes(b.disk), 0);
    disk_bench_end(&b);
}

/* A namespace without files costs no look at any, however many there are: engines and peers may
 * reset as often as they like. */
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

/* An entry that a crash restored goes in the step that finds the same chunks again. If that step
 * has used up its visits, the rest goes when all files were found. */
TEST(what_is_found_twice_goes_later_where_a_step_has_done_enough)
{
    struct disk_bench b = bench(1u << 22);
    struct event ready = {.kind = EV_DISK_READY, .ready.next_file = 10};

    assert_ok(disk_stored(computed(&b, 1, 32), 32));
    b.rig->automatic = BY_HAND(RIG_DISK_DROP);
    assert_int_equal(disk_evict(&b), DISK_ROOM);
    rig_timers(b.rig);
    assert_ok(disk_stored(computed(&b, 1, 16), 16));
    assert_int_equal(b.disk->nfiles, 2); /* the drop is still waiting */
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

/* The store's path is not looked at again before the checksums are known. */
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

/* More stores than a timer's step has visits: it ends all the same and asks for no other timer. */
TEST(stores_whose_step_has_not_passed_stop_no_step)
{
    struct disk_bench b = bench(1u << 22);
    const uint32_t n = PIECE_VISITS_TIMER + 8;
    struct rig_session *s;

    b.options.limits.disk_stores = n;
    disk_bench_restart(&b);
    b.rig->no_audit = true;
    s = rig_session(b.rig, &b.e, b.pool, 1);
    assert_ok(rig_match(s, rig_tokens(1, 32), 32));
    assert_ok(rig_run_to(s, rig_tokens(1, 32), 32));
    assert_ok(rig_commit(s, 32, 1));
    for (uint32_t i = 0; i < n; i++)
        disk_store(s, 32);
    rig_advance(b.rig, 1);
    assert_int_equal(disk_seen(&b).stores, n);
    assert_int_not_equal(core_deadline(b.rig->core), 0);
    b.rig->no_audit = false;
    rig_step_done(b.rig, b.e.id, 0, 1);
    assert_int_equal(disk_seen(&b).stores, 0);
    assert_int_equal(disk_seen(&b).entries, 1);
    disk_bench_end(&b);
}

/* Twelve stores wait for room that a fetch pins. When something is unpinned, a step tries
 * DISK_TRIES_MAX of them, and the next step the others. */
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

/* Dropped extents are reported in pieces: a step without visits left leaves them to the next. */
TEST(what_is_given_back_is_said_in_pieces)
{
    struct disk_bench b = bench(1u << 22);
    struct event timer = {.kind = EV_TIMER};

    assert_ok(disk_stored(computed(&b, 1, 32), 32));
    assert_ok(disk_stored(computed(&b, 1, 64), 64));
    assert_int_equal(disk_evict(&b), DISK_ROOM);
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

/* A window may be longer than the prefix that was stored: only the stored chunks are looked at. */
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
