/* D4: a file that does not exist any more is lost for good: its chunks are not found again, and may
 * be stored anew. Any other failure leaves the entry as it is (D7). */
#include "unit/rig/rig_disk_bench.h"

#define L 4
#define N 24

#define ROOMY                                                                                      \
    ((struct disk_shape){                                                                          \
        .page_tokens = L, .pages = 64, .page_bytes = 512, .budget = 1u << 22, .interval = 4096})

static struct disk_bench stored(uint32_t prompts)
{
    struct disk_bench b = disk_bench(ROOMY);

    for (uint32_t seed = 1; seed <= prompts; seed++) {
        struct rig_session *s = rig_committed(b.rig, &b.e, b.pool, seed, N);

        assert_ok(disk_stored(s, N));
        assert_ok(rig_close(s, 0));
    }
    disk_bench_restart(&b);
    return b;
}

static void lose(struct disk_bench *b, uint64_t file)
{
    struct event ev = {.kind = EV_DISK_DROPPED, .dropped.file = file};

    rig_event(b->rig, &ev);
    rig_timers(b->rig);
}

/* The result of a Fetch of the prompt from the disk. */
static enum tern_err fetched(struct disk_bench *b, uint32_t seed)
{
    struct rig_session *s = rig_session(b->rig, &b->e, b->pool, 1);
    enum tern_err err;

    assert_ok(rig_match(s, rig_tokens(seed, N), N));
    err = rig_fetched(s, rig_fetch(s, PEER_DISK, 0));
    assert_ok(rig_close(s, 0));
    rig_session_free(s);
    return err;
}

TEST(d4_a_file_that_is_gone_is_not_offered_again_and_stored_anew)
{
    struct disk_bench b = stored(2);
    struct rig_session *s;

    assert_int_equal(disk_depth_of(&b, rig_tokens(1, N), N), N);
    lose(&b, 1);
    assert_int_equal(disk_depth_of(&b, rig_tokens(1, N), N), 0);
    assert_int_equal(disk_depth_of(&b, rig_tokens(2, N), N), N);
    assert_int_equal(disk_seen(&b).entries, 1);
    assert_int_equal(disk_seen(&b).files, 1);
    s = rig_committed(b.rig, &b.e, b.pool, 1, N);
    assert_ok(disk_stored(s, N));
    assert_ok(rig_close(s, 0));
    disk_bench_restart(&b);
    assert_int_equal(disk_depth_of(&b, rig_tokens(1, N), N), N);
    disk_bench_end(&b);
}

TEST(d4_all_files_are_gone_with_their_folder)
{
    struct disk_bench b = stored(3);

    lose(&b, 0);
    for (uint32_t seed = 1; seed <= 3; seed++)
        assert_int_equal(disk_depth_of(&b, rig_tokens(seed, N), N), 0);
    assert_int_equal(disk_seen(&b).entries, 0);
    assert_int_equal(disk_seen(&b).files, 0);
    assert_int_equal(disk_seen(&b).used, 0);
    disk_bench_end(&b);
}

/* A file is lost while a fetch reads it: it goes when the fetch has ended. */
TEST(d4_a_file_that_is_gone_while_it_is_read)
{
    struct disk_bench b = stored(1);
    struct rig_session *s = rig_session(b.rig, &b.e, b.pool, 1);
    uint64_t request;

    b.rig->automatic = BY_HAND(RIG_PULL);
    assert_ok(rig_match(s, rig_tokens(1, N), N));
    request = rig_fetch(s, PEER_DISK, 0);
    lose(&b, 1);
    assert_int_equal(disk_depth_of(&b, rig_tokens(1, N), N), 0);
    assert_int_equal(disk_seen(&b).files, 1);
    b.disk->reads_to_spoil = 1000;
    while (rig_jobs(b.rig, RIG_PULL) > 0)
        rig_complete(b.rig, RIG_PULL);
    assert_err(TERN_CORRUPT, rig_fetched(s, request));
    rig_timers(b.rig);
    assert_int_equal(disk_seen(&b).files, 0);
    disk_bench_end(&b);
}

TEST(d7_a_use_counts_when_it_succeeds)
{
    struct disk_bench b = stored(1);
    struct disk_entry_view v;
    struct event broken = {.kind = EV_PULL_BROKEN, .broken.err = TERN_DISK};
    struct rig_session *s = rig_session(b.rig, &b.e, b.pool, 1);
    uint64_t request;

    b.rig->automatic = BY_HAND(RIG_PULL);
    assert_ok(rig_match(s, rig_tokens(1, N), N));
    request = rig_fetch(s, PEER_DISK, 0);
    broken.broken.pull = rig_job(b.rig, RIG_PULL, 0)->pull;
    rig_event(b.rig, &broken);
    assert_err(TERN_DISK, rig_fetched(s, request));
    assert_true(disk_entry(&b, N, &v));
    assert_int_equal(v.hits, 0);
    assert_int_equal(disk_seen(&b).counts.hits, 0);
    assert_int_equal(disk_depth_of(&b, rig_tokens(1, N), N), N); /* offered as before */
    rig_destroy(b.rig);
    disk_bench_start(&b);
    assert_ok(fetched(&b, 1));
    assert_true(disk_entry(&b, N, &v));
    assert_int_equal(v.hits, 1);
    assert_int_equal(disk_seen(&b).counts.hits, 1);
    disk_bench_end(&b);
}
