/* Stores, resets and starts beside other work: a fetch reads, a file is being dropped, the chunk
 * above goes, and entries that a crash restored lie beside newer ones. */
#include "unit/rig/rig_disk_bench.h"

#include "core/disk/entries.h"
#include "core/disk/stores.h"

/* A chunk of 4 tokens takes 8,192 bytes of disk, and an entry 4,096. */
#define CHUNK    8192u
#define BYTES(n) (((n) / 4) * CHUNK + DISK_BLOCK)

static struct disk_bench bench(uint64_t budget)
{
    return disk_bench((struct disk_shape){
        .page_tokens = 4, .pages = 128, .page_bytes = 512, .budget = budget, .interval = 4096});
}

static struct rig_session *computed(struct disk_bench *b, uint32_t seed, uint32_t n)
{
    return rig_committed(b->rig, &b->e, b->pool, seed, n);
}

/* Begins a store that no request waits for. */
static void store_as(struct disk_bench *b, struct rig_session *s, enum disk_reason reason)
{
    struct session_view v;
    struct disk_wanted w = {.reason = reason};

    assert_true(core_session_view(b->rig->core, s->id.slot, &v));
    w.node = v.node;
    assert_true(disk_store_begin(b->rig->core, &w));
    rig_advance(b->rig, 1);
}

/* Asserts that there is no answer yet. */
#define assert_waits(b, request) assert_null(rig_reply_to((b)->rig, (request)))
#define assert_answered(b, request)                                                                \
    do {                                                                                           \
        assert_non_null(rig_reply_to((b)->rig, (request)));                                        \
        assert_ok(rig_reply_to((b)->rig, (request))->err);                                         \
    } while (0)

TEST(a_peek_after_a_restart_says_what_the_disk_has)
{
    struct disk_bench b = bench(1u << 22);
    struct request peek = {.op = OP_PEEK};
    const struct reply *r;

    assert_ok(disk_stored(computed(&b, 1, 32), 32));
    disk_bench_restart(&b);
    peek.peek = (struct req_peek){
        .pool = b.pool, .ns = {.hi = 1, .lo = 1}, .tokens = {.v = rig_tokens(1, 40), .n = 40}};
    r = rig_request(b.rig, b.e.conn[0], &peek);
    assert_ok(r->err);
    assert_int_equal(r->peek.depth, 0);
    assert_int_equal(r->peek.disk_depth, 32);
    disk_bench_end(&b);
}

TEST(a_session_of_a_namespace_that_was_reset_is_not_told_of_its_new_content)
{
    struct disk_bench b = bench(1u << 22);
    struct rig_session *old = rig_session(b.rig, &b.e, b.pool, 1);

    assert_ok(rig_reset(b.rig, b.e.conn[0], 1, NULL));
    assert_ok(disk_stored(computed(&b, 1, 32), 32));
    assert_int_equal(disk_depth_of(&b, rig_tokens(2, 4), 4), 0);
    assert_ok(rig_match(old, rig_tokens(1, 32), 32));
    assert_int_equal(b.rig->last->match.disk_depth, 0);
    disk_bench_end(&b);
}

TEST(a_store_that_waits_ends_with_its_namespace)
{
    struct disk_bench b = bench(1u << 22);
    struct rig_session *s;
    uint64_t store;

    b.rig->automatic = BY_HAND(RIG_SEAL);
    s = computed(&b, 1, 32);
    store = disk_store(s, 32);
    assert_ok(rig_reset(b.rig, b.e.conn[0], 1, NULL));
    assert_err(TERN_GONE, rig_reply_to(b.rig, store)->err);
    complete_all(b.rig, RIG_SEAL);
    assert_int_equal(b.disk->written_files, 0);
    disk_bench_end(&b);
}

TEST(a_reset_waits_for_what_was_leaving_before_it)
{
    struct disk_bench b = bench(BYTES(32) + BYTES(16));
    struct rig_session *s = computed(&b, 1, 32);
    struct request reset = {.op = OP_NAMESPACE_RESET, .namespace_reset.ns = s->ns};

    assert_ok(disk_stored(s, 32));
    b.rig->automatic = BY_HAND(RIG_DISK_DROP);
    s = rig_session(b.rig, &b.e, b.pool, 2);
    assert_ok(rig_match(s, rig_tokens(2, 32), 32));
    assert_ok(rig_run_to(s, rig_tokens(2, 32), 32));
    assert_ok(rig_commit(s, 32, 0));
    assert_ok(disk_stored(s, 32)); /* the first entry goes, but is not gone */
    assert_int_equal(rig_jobs(b.rig, RIG_DISK_DROP), 1);
    assert_null(rig_request(b.rig, b.e.conn[0], &reset));
    assert_waits(&b, reset.request_id);
    rig_complete(b.rig, RIG_DISK_DROP);
    assert_answered(&b, reset.request_id);
    disk_bench_end(&b);
}

TEST(what_a_store_prunes_is_waited_for_and_nothing_makes_way_meanwhile)
{
    struct disk_bench b = bench(BYTES(16) + BYTES(32) + 1024);
    struct rig_session *s, *other = computed(&b, 2, 16);
    struct disk_entry_view v;

    store_as(&b, other, DISK_EVICT);
    s = rig_session(b.rig, &b.e, b.pool, 1);
    assert_ok(rig_match(s, rig_tokens(1, 32), 32));
    assert_ok(rig_run_to(s, rig_tokens(1, 32), 28));
    assert_ok(rig_commit(s, 28, 0));
    store_as(&b, s, DISK_CONTINUED);
    assert_ok(rig_run_to(s, rig_tokens(1, 32), 32));
    assert_ok(rig_commit(s, 32, 0));
    b.rig->automatic = BY_HAND(RIG_DISK_WRITE);
    store_as(&b, s, DISK_CONTINUED);
    rig_advance(b.rig, 1000);
    assert_int_equal(rig_jobs(b.rig, RIG_DISK_WRITE), 1);
    rig_complete(b.rig, RIG_DISK_WRITE);
    rig_advance(b.rig, 1000);
    assert_int_equal(disk_seen(&b).counts.evicted, 0);
    assert_int_equal(disk_seen(&b).counts.pruned, 1);
    assert_true(disk_entry(&b, 16, &v));
    assert_true(disk_entry(&b, 32, &v));
    disk_bench_end(&b);
}

TEST(what_is_read_is_pruned_when_it_was_read)
{
    struct disk_bench b = bench(1u << 22);
    struct rig_session *s = computed(&b, 1, 16), *reader;
    struct disk_entry_view v;
    uint64_t fetch;

    store_as(&b, s, DISK_CONTINUED);
    disk_bench_restart(&b);
    b.rig->automatic = BY_HAND(RIG_PULL);
    reader = rig_session(b.rig, &b.e, b.pool, 1);
    matches(reader, rig_tokens(1, 16), 16, 0);
    fetch = rig_fetch(reader, PEER_DISK, 0);
    store_as(&b, computed(&b, 1, 32), DISK_CONTINUED);
    assert_true(disk_entry(&b, 32, &v));
    assert_true(disk_entry(&b, 16, &v));
    complete_all(b.rig, RIG_PULL);
    assert_ok(rig_fetched(reader, fetch));
    assert_false(disk_entry(&b, 16, &v));
    assert_int_equal(disk_seen(&b).counts.pruned, 1);
    disk_bench_end(&b);
}

TEST(a_store_of_the_daemons_own_that_fails_is_counted)
{
    struct disk_bench b = bench(1u << 22);
    struct rig_session *s = computed(&b, 1, 16);

    b.disk->writes_to_fail = 1;
    b.disk->err = TERN_DISK;
    store_as(&b, s, DISK_CONTINUED);
    assert_int_equal(disk_seen(&b).counts.failed, 1);
    rig_advance(b.rig, DISK_PAUSE_MS * NS_PER_MS);
    b.disk->writes_to_fail = 1;
    assert_err(TERN_DISK, disk_stored(s, 16));
    assert_int_equal(disk_seen(&b).counts.failed, 2);
    disk_bench_end(&b);
}

TEST(nothing_makes_way_for_what_can_never_fit)
{
    struct disk_shape shape = {
        .page_tokens = 4, .pages = 128, .page_bytes = 512, .budget = 1u << 22, .interval = 4096};
    struct disk_bench b = disk_bench(shape);
    struct rig_session *s;

    disk_bench_end(&b);
    b = (struct disk_bench){.disk = spill_make(), .options = b.options, .ngroups = 1};
    b.groups[0] = rig_group(4, 512);
    b.pool_bytes = 512 * 129;
    b.options.limits.disk_chunks = 12;
    disk_bench_start(&b);
    assert_ok(disk_stored(computed(&b, 1, 16), 16));
    s = computed(&b, 2, 48); /* plus the root of its tree */
    assert_err(TERN_QUOTA, disk_stored(s, 48));
    assert_int_equal(disk_seen(&b).counts.evicted, 0);
    assert_ok(disk_stored(s, 44));
    assert_int_equal(disk_seen(&b).counts.evicted, 1);
    disk_bench_end(&b);
}

TEST(who_needs_a_file_waits_until_one_is_gone)
{
    struct disk_bench b = bench(1u << 22);
    uint64_t store;

    disk_bench_end(&b);
    b = (struct disk_bench){.disk = spill_make(), .options = b.options, .ngroups = 1};
    b.groups[0] = rig_group(4, 512);
    b.pool_bytes = 512 * 129;
    b.options.limits.disk_files = 3;
    disk_bench_start(&b);
    for (uint32_t seed = 1; seed <= 3; seed++)
        assert_ok(disk_stored(computed(&b, seed, 16), 16));
    b.rig->automatic = BY_HAND(RIG_DISK_DROP);
    store = disk_store(computed(&b, 4, 16), 16);
    rig_advance(b.rig, 1000);
    assert_waits(&b, store);
    assert_int_equal(disk_seen(&b).counts.evicted, 1);
    rig_complete(b.rig, RIG_DISK_DROP);
    assert_answered(&b, store);
    assert_int_equal(disk_seen(&b).counts.evicted, 1);
    disk_bench_end(&b);
}

/* Commits and stores 16 tokens with two extra keys. */
static enum tern_err store_with_keys(struct disk_bench *b, uint32_t seed)
{
    const struct extra_key keys[] = {{.position = 0, .hi = seed}, {.position = 4, .hi = seed}};
    const struct req_tokens tokens = {.v = rig_tokens(seed, 16), .n = 16, .keys = keys, .nkeys = 2};
    struct rig_session *s = rig_session(b->rig, &b->e, b->pool, 1);

    assert_ok(rig_match_full(s, &tokens, 0));
    assert_ok(rig_run_to(s, tokens.v, 16));
    assert_ok(rig_commit(s, 16, 0));
    return disk_stored(s, 16);
}

/* Two tenants share an index of so many blocks and keys. The first one fills it. */
static void fill_index(uint32_t blocks, uint32_t keys)
{
    struct disk_bench b = bench(1u << 22), other;

    b.options.tenant[1].disk_bytes = b.options.tenant[0].disk_bytes;
    b.options.limits.disk_blocks = blocks;
    b.options.limits.disk_keys = keys;
    b.options.limits.reserved_percent = 100;
    disk_bench_restart(&b);
    other = b;
    other.e = rig_engine(b.rig, 1, "other", 1);
    assert_ok(
        rig_pool_open(b.rig, other.e.conn[0], b.groups, b.ngroups, b.pool_bytes, &other.pool));
    assert_ok(rig_map(b.rig, other.e.conn[0], other.pool));
    for (uint32_t seed = 1; seed <= 8; seed++)
        assert_ok(store_with_keys(&b, seed));
    assert_true(disk_seen(&b).counts.evicted > 0);
    assert_ok(store_with_keys(&other, 9));
    disk_bench_end(&b);
}

/* T22: the stores of one tenant leave the others their part of the token blocks and extra keys. */
TEST(no_tenant_uses_up_the_index_of_another)
{
    fill_index(16, 64);
    fill_index(2048, 8);
}

/* A Store that was answered OK can be found. */
TEST(what_hangs_on_what_was_found_bad_is_written_anew)
{
    struct disk_bench b = bench(1u << 22);
    struct rig_session *s, *reader;
    uint64_t store, fetch;

    assert_ok(disk_stored(computed(&b, 1, 16), 16));
    disk_bench_restart(&b);
    reader = rig_session(b.rig, &b.e, b.pool, 1);
    matches(reader, rig_tokens(1, 16), 16, 0);
    b.rig->automatic = BY_HAND(RIG_DISK_WRITE | RIG_PULL);
    fetch = rig_fetch(reader, PEER_DISK, 0);
    s = computed(&b, 1, 32);
    store = disk_store(s, 32);
    assert_int_equal(rig_jobs(b.rig, RIG_DISK_WRITE), 1);
    b.disk->reads_to_spoil = 64;
    complete_all(b.rig, RIG_PULL);
    assert_err(TERN_CORRUPT, rig_fetched(reader, fetch));
    rig_complete(b.rig, RIG_DISK_WRITE);
    assert_waits(&b, store);
    complete_all(b.rig, RIG_DISK_WRITE);
    assert_answered(&b, store);
    b.disk->reads_to_spoil = 0;
    disk_bench_restart(&b);
    assert_int_equal(disk_depth_of(&b, rig_tokens(1, 40), 40), 32);
    disk_bench_end(&b);
}

/* A crash restored a dropped entry beside newer ones: a start finds it once, and the next start
 * finds the same. */
TEST(what_is_found_twice_is_found_again_by_the_next_start)
{
    struct disk_bench b = bench(BYTES(64) + 2 * CHUNK);
    uint32_t first;

    assert_ok(disk_stored(computed(&b, 1, 16), 16));
    assert_ok(disk_stored(computed(&b, 1, 32), 32));
    b.rig->automatic = BY_HAND(RIG_DISK_DROP);
    assert_ok(disk_stored(computed(&b, 2, 64), 64));
    assert_int_equal(disk_seen(&b).entries, 1);
    assert_ok(disk_stored(computed(&b, 1, 16), 16)); /* no drop has been carried out */
    b.options.tenant[0].disk_bytes = 1u << 22;
    disk_bench_restart(&b);
    first = disk_depth_of(&b, rig_tokens(1, 40), 40);
    assert_int_equal(first, 16);
    disk_bench_restart(&b);
    assert_int_equal(disk_depth_of(&b, rig_tokens(1, 40), 40), first);
    disk_bench_end(&b);
}
