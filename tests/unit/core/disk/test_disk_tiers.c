/* The disk below two tiers of memory: a prefix is stored from wherever it lies, before its last
 * copy in memory goes, and a store that had to wait is due until it is done (D2, D6). */
#include "core/busy.h"
#include "core/tree/state.h"
#include "unit/rig/rig_disk_bench.h"

#define L       4
#define TOKENS  24 /* of a prompt: one page a chunk, TOKENS / L */
#define PROMPTS 12
#define BURST   10

static struct disk_bench tiers_bench_of(struct group_layout state, uint32_t pages,
                                        uint32_t host_pages, enum host_write write)
{
    struct disk_bench b = {.disk = spill_make(), .options = rig_defaults()};

    spill_limits(&b.options, 1u << 22, 4096);
    b.groups[0] = rig_group(L, 512);
    b.groups[1] = state;
    b.ngroups = state.page_tokens ? 2 : 1;
    b.pool_bytes = 512 * (pages + 1);
    b.host_bytes = host_pages ? 512 * (host_pages + 1) : 0;
    b.options.tenant[0].memory_bytes = b.pool_bytes + (4u << 20);
    b.options.tenant[0].host_bytes = b.host_bytes + 512;
    b.options.tenant[0].host_write = write;
    b.options.limits.nodes = b.options.limits.pages = 4096;
    b.options.limits.token_blocks = b.options.limits.slabs = 4096;
    b.options.limits.peer_bytes_in_flight = b.options.limits.tenant_bytes_in_flight = 1u << 30;
    disk_bench_start(&b);
    return b;
}

static struct disk_bench tiers_bench(uint32_t pages, uint32_t host_pages, enum host_write write)
{
    return tiers_bench_of((struct group_layout){0}, pages, host_pages, write);
}

/* Computes a prompt of which nothing is stored when its session closes. */
static void put(struct disk_bench *b, uint32_t seed)
{
    struct rig_session *s = rig_session(b->rig, &b->e, b->pool, 1);
    enum tern_err err;

    assert_ok(rig_match(s, rig_tokens(seed, TOKENS), TOKENS));
    while ((err = rig_run_to(s, rig_tokens(seed, TOKENS), TOKENS)) == TERN_BUSY)
        rig_advance(b->rig, 1000000);
    assert_ok(err);
    assert_ok(rig_commit(s, TOKENS, 0));
    session_at(b->rig->core, s->id.slot)->disk_cold = 0;
    assert_ok(rig_close(s, 0));
    rig_session_free(s);
    rig_advance(b->rig, 1000000);
}

struct depths {
    uint32_t device, host, disk;
};

static struct depths depths_of(struct disk_bench *b, uint32_t seed)
{
    struct rig_session *like = rig_session(b->rig, &b->e, b->pool, 1);
    struct depths d = {.device = rig_depth(like, rig_tokens(seed, TOKENS), TOKENS)};

    d.host = b->rig->last->peek.host_depth;
    d.disk = b->rig->last->peek.disk_depth;
    assert_ok(rig_close(like, 0));
    rig_session_free(like);
    return d;
}

static uint32_t kept(struct disk_bench *b)
{
    uint32_t sum = 0;

    for (uint32_t seed = 1; seed <= PROMPTS; seed++) {
        struct depths d = depths_of(b, seed);
        uint32_t memory = d.device > d.host ? d.device : d.host;

        sum += memory > d.disk ? memory : d.disk;
    }
    return sum;
}

static void shut_down(struct disk_bench *b)
{
    struct event ev = {.kind = EV_SHUTDOWN, .shutdown.deadline_ns = b->rig->now_ns + 1000000000};

    rig_event(b->rig, &ev);
    rig_timers(b->rig);
    assert_true(core_disk_idle(b->rig->core));
}

/* Puts prompts until the first one is only on the host, and not on the disk. */
static void first_leaves_the_device(struct disk_bench *b)
{
    put(b, 1);
    for (uint32_t seed = 2; depths_of(b, 1).device > 0; seed++)
        put(b, seed);
    assert_int_equal(depths_of(b, 1).host, TOKENS);
    assert_int_equal(depths_of(b, 1).disk, 0);
}

TEST(d6_what_leaves_the_host_next_is_stored_from_there)
{
    struct disk_bench b = tiers_bench(24, 60, HOST_WRITE_BEHIND);

    first_leaves_the_device(&b);
    for (uint32_t seed = 100; depths_of(&b, 1).host > 0; seed++)
        put(&b, seed);
    assert_int_equal(depths_of(&b, 1).disk, TOKENS);
    disk_bench_end(&b);
}

TEST(d6_at_the_end_what_the_host_alone_has_is_stored)
{
    struct disk_bench b = tiers_bench(24, 600, HOST_WRITE_BEHIND);

    first_leaves_the_device(&b);
    shut_down(&b);
    disk_bench_restart(&b);
    assert_int_equal(depths_of(&b, 1).disk, TOKENS);
    disk_bench_end(&b);
}

/* The end of a path on the host is known to be corrupt: the part above it is stored
 * nevertheless. */
TEST(d6_at_the_end_what_is_above_a_corrupt_copy_is_stored)
{
    struct disk_bench b = tiers_bench(24, 60, HOST_WRITE_THROUGH);
    struct rig_session *s;

    put(&b, 1);
    for (uint32_t i = 0; i < 2; i++)
        assert_true(evict_one(b.rig->core, pool_at(b.rig->core, b.pool.slot)));
    s = rig_session(b.rig, &b.e, b.pool, 1);
    assert_ok(rig_match(s, rig_tokens(1, TOKENS), TOKENS));
    b.rig->copies_to_fail = 1;
    b.rig->copy_err = TERN_CORRUPT;
    assert_err(TERN_CORRUPT, rig_fetched(s, rig_fetch(s, PEER_HOST, 0)));
    assert_ok(rig_close(s, 0));
    assert_int_equal(depths_of(&b, 1).device, TOKENS - 2 * L);
    assert_int_equal(depths_of(&b, 1).host, TOKENS - 2 * L);
    shut_down(&b);
    disk_bench_restart(&b);
    assert_int_equal(depths_of(&b, 1).disk, TOKENS - 2 * L);
    disk_bench_end(&b);
}

/* A window begins on the host alone, and its end is not copied there yet. */
TEST(d6_at_the_end_a_window_that_lies_on_both_tiers_is_stored)
{
    struct disk_bench b = tiers_bench_of(rig_window(L, 2 * L, 512), 60, 60, HOST_WRITE_THROUGH);
    struct rig_session *s = rig_committed(b.rig, &b.e, b.pool, 1, TOKENS - L);
    struct session_view v;

    assert_true(core_session_view(b.rig->core, s->id.slot, &v));
    session_at(b.rig->core, s->id.slot)->disk_cold = 0;
    b.rig->automatic = BY_HAND(RIG_COPY);
    assert_ok(rig_run_to(s, rig_tokens(1, TOKENS), TOKENS));
    assert_ok(rig_commit(s, TOKENS, 0));
    assert_ok(rig_close(s, 0));
    rig_advance(b.rig, 1000000);
    assert_true(state_drop(b.rig->core, v.node) > 0);
    assert_int_equal(depths_of(&b, 1).device, TOKENS - 2 * L);
    assert_int_equal(depths_of(&b, 1).host, TOKENS);
    shut_down(&b);
    disk_bench_restart(&b);
    assert_int_equal(depths_of(&b, 1).disk, TOKENS);
    disk_bench_end(&b);
}

/* The pool needs the pages of a store that has not begun to write: its prefix goes to the host, and
 * the store continues from there. */
TEST(d6_a_store_that_gave_way_goes_on_from_the_host)
{
    struct disk_bench b = tiers_bench(24, 600, HOST_WRITE_BEHIND);
    struct rig_session *s, *other;

    put(&b, 1); /* what follows waits for the pause to be over */
    b.disk->writes_to_fail = 1;
    b.disk->err = TERN_DISK;
    s = rig_committed(b.rig, &b.e, b.pool, 1, TOKENS);
    assert_err(TERN_DISK, disk_stored(s, 8));
    assert_ok(rig_close(s, 0));
    assert_ok(rig_close(rig_committed(b.rig, &b.e, b.pool, 2, TOKENS), 0)); /* its cold store */
    assert_int_equal(disk_seen(&b).stores, 1);
    other = rig_session(b.rig, &b.e, b.pool, 1);
    assert_ok(rig_match(other, rig_tokens(9, 24 * L), 24 * L));
    while (rig_run_to(other, rig_tokens(9, 24 * L), 24 * L) != TERN_OK)
        rig_advance(b.rig, 1000000);
    assert_int_equal(depths_of(&b, 2).device, 0);
    assert_int_equal(depths_of(&b, 2).disk, 0);
    assert_true(disk_seen(&b).stores > 0);
    rig_advance(b.rig, DISK_PAUSE_MS * 1000000ull);
    assert_int_equal(depths_of(&b, 2).disk, TOKENS);
    disk_bench_end(&b);
}

/* More turns end at once than there are store records. */
TEST(d2_a_cold_store_without_a_record_waits_for_one)
{
    struct disk_bench b = tiers_bench(200, 0, HOST_WRITE_THROUGH);
    struct rig_session *s[10];
    uint32_t i;

    b.rig->automatic = BY_HAND(RIG_DISK_WRITE);
    for (i = 0; i < 10; i++)
        s[i] = rig_committed(b.rig, &b.e, b.pool, i + 1, TOKENS);
    for (i = 0; i < 10; i++)
        assert_ok(rig_close(s[i], 0));
    assert_int_equal(disk_seen(&b).stores, 10);
    while (rig_jobs(b.rig, RIG_DISK_WRITE) > 0)
        rig_complete(b.rig, RIG_DISK_WRITE);
    assert_int_equal(disk_seen(&b).stores, 0);
    disk_bench_restart(&b);
    for (i = 0; i < 10; i++)
        assert_int_equal(depths_of(&b, i + 1).disk, TOKENS);
    disk_bench_end(&b);
}

/* A session that needs `pages` pages of the device. */
static struct rig_session *one_behind(struct disk_bench *b, uint32_t pages)
{
    struct rig_session *s = rig_session(b->rig, &b->e, b->pool, 1);

    assert_ok(rig_match(s, rig_tokens(99, pages * L), pages * L));
    return s;
}

static enum tern_err needs_all(struct disk_bench *b, struct rig_session *s, uint32_t pages)
{
    enum tern_err err = rig_run_to(s, rig_tokens(99, pages * L), pages * L);

    if (err == TERN_BUSY)
        assert_string_equal(b->rig->res.text, STORED_FIRST);
    return err;
}

/* A bench of which BURST sessions have closed at once, with nothing else on the device. */
static struct disk_bench burst_bench(void)
{
    struct disk_bench b = tiers_bench(60, 0, HOST_WRITE_THROUGH);
    struct rig_session *s[BURST];

    b.rig->automatic = BY_HAND(RIG_DISK_WRITE);
    for (uint32_t i = 0; i < BURST; i++)
        s[i] = rig_committed(b.rig, &b.e, b.pool, i + 1, TOKENS);
    for (uint32_t i = 0; i < BURST; i++)
        assert_ok(rig_close(s[i], 0));
    return b;
}

/* No store of a burst is lost: a session that needs the pages waits until the disk has them. */
TEST(d2_a_burst_of_cold_stores_is_stored_before_its_pages_go)
{
    struct disk_bench b = burst_bench();
    struct rig_session *next;
    uint32_t waits = 0;

    next = one_behind(&b, 60);
    for (; needs_all(&b, next, 60) == TERN_BUSY; waits++) {
        assert_true(waits < 100);
        if (rig_jobs(b.rig, RIG_DISK_WRITE) > 0)
            rig_complete(b.rig, RIG_DISK_WRITE);
    }
    assert_true(waits >= BURST);
    assert_int_equal(disk_seen(&b).counts.failed, 0);
    for (uint32_t i = 0; i < BURST; i++)
        assert_int_equal(depths_of(&b, i + 1).disk, TOKENS);
    disk_bench_end(&b);
}

/* A disk that hangs keeps a pool's pages for DISK_KEEP_MS_MAX at most; lost stores are counted. */
TEST(d2_a_disk_that_hangs_keeps_a_pool_for_a_while)
{
    struct disk_bench b = burst_bench();
    struct rig_session *next;

    next = one_behind(&b, 54); /* the prefix being written stays */
    assert_err(TERN_BUSY, needs_all(&b, next, 54));
    rig_advance(b.rig, DISK_KEEP_MS_MAX * NS_PER_MS / 2);
    assert_err(TERN_BUSY, needs_all(&b, next, 54));
    rig_advance(b.rig, DISK_KEEP_MS_MAX * NS_PER_MS / 2);
    for (uint32_t i = 0; i < 3 && needs_all(&b, next, 54) != TERN_OK; i++)
        assert_true(i < 2);
    assert_int_equal(session_at(b.rig->core, next->id.slot)->written, 54 * L);
    while (rig_jobs(b.rig, RIG_DISK_WRITE) > 0)
        rig_complete(b.rig, RIG_DISK_WRITE);
    rig_advance(b.rig, DISK_PUT_OFF_MS * NS_PER_MS);
    assert_int_equal(disk_seen(&b).counts.failed, BURST - 1);
    assert_int_equal(disk_seen(&b).stores, 0);
    disk_bench_end(&b);
}

/* A disk that fails keeps no pages in memory. */
TEST(d2_a_disk_that_fails_keeps_nothing_in_memory)
{
    struct disk_bench b = burst_bench();
    struct rig_session *next;

    next = one_behind(&b, 60);
    assert_err(TERN_BUSY, needs_all(&b, next, 60));
    b.disk->writes_to_fail = 1;
    b.disk->err = TERN_DISK;
    rig_complete(b.rig, RIG_DISK_WRITE);
    (void)needs_all(&b, next, 60); /* stores give up their pages */
    assert_ok(needs_all(&b, next, 60));
    disk_bench_end(&b);
}

/* One history over tiers of many sizes: with a disk below them no prefix is lost, so more memory
 * never keeps less. */
TEST(d6_more_tiers_never_keep_less)
{
    static const uint32_t device[] = {24, 36, 60}, host[] = {0, 12, 24, 48, 96};

    for (uint32_t i = 0; i < 3; i++)
        for (uint32_t k = 0; k < 10; k++) {
            struct disk_bench b =
                tiers_bench(device[i], host[k / 2], k % 2 ? HOST_WRITE_BEHIND : HOST_WRITE_THROUGH);

            for (uint32_t seed = 1; seed <= PROMPTS; seed++)
                put(&b, seed);
            for (uint32_t seed = 2; seed <= PROMPTS; seed += 3)
                put(&b, seed); /* repeated, in another order */
            if (kept(&b) != PROMPTS * TOKENS)
                fail_msg("device %u host %u behind %u: %u of %u tokens are kept", device[i],
                         host[k / 2], k % 2, kept(&b), PROMPTS * TOKENS);
            shut_down(&b);
            disk_bench_restart(&b);
            assert_int_equal(kept(&b), PROMPTS * TOKENS);
            disk_bench_end(&b);
        }
}
