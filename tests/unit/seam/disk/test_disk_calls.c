/* The disk tier's calls of the file system: their order (D3), what a write leaves when any of them
 * fails, the results of a read and a drop then, and how soon a stop ends them. */
#include "testing/test.h"
#include "unit/rig/rig_fds.h"
#include "unit/rig/rig_spill_dir.h"

#include <errno.h>
#include <semaphore.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "seam/disk/file_ops.h"

static struct rig_spill rig;
static struct rig_file file, other;

FIXTURE(drop_rig)
{
    rig_spill_finish(&rig);
    return 0;
}

#define ROOM_LOOK_US 1100000u /* the disk has looked once */
#define ROOM_LOOKS   20u

TEST_EACH(NULL, drop_rig);

TEST(a_full_disk_ends_writes_and_nothing_else)
{
    rig_spill_start(&rig, false);
    rig_file_usual(&rig, &file, 0, 0, 4);
    assert_int_equal(rig_spill_write(&rig, &file), TERN_OK);
    rig_spill_close(&rig);
    rig.config.fault_full_after = 1;
    assert_int_equal(rig_spill_open(&rig), TERN_OK);
    rig_file_usual(&rig, &other, 0, 0, 5);
    assert_int_equal(rig_spill_write(&rig, &other), TERN_OK);
    assert_false(rig_spill_stats(&rig).full);
    rig_file_usual(&rig, &other, 0, 0, 6);
    assert_int_equal(rig_spill_write(&rig, &other), TERN_POOL_EXHAUSTED);
    assert_true(rig_spill_stats(&rig).full);
    assert_false(rig_spill_stats(&rig).failing);
    assert_int_equal(rig_spill_files(&rig, 0), 2);
    assert_int_equal(rig_spill_read(&rig, &file, 0, 16), RIG_SPILL_ALL(16));
    rig_spill_close(&rig);
    rig.config.fault_full_after = 0;
    rig.config.headroom_bytes = 1ull << 60;
    assert_int_equal(rig_spill_open(&rig), TERN_OK);
    assert_int_equal(rig_spill_write(&rig, &other), TERN_POOL_EXHAUSTED);
    assert_true(rig_spill_stats(&rig).full && rig_spill_stats(&rig).free_bytes > 0);
    assert_int_equal(rig_spill_files(&rig, 0), 2);
}

TEST(a_write_that_fails_leaves_nothing)
{
    rig_spill_start(&rig, false);
    rig_spill_close(&rig);
    rig.config.fault_write_every = 2;
    assert_int_equal(rig_spill_open(&rig), TERN_OK);
    for (uint32_t i = 1; i <= 4; i++) {
        rig_file_usual(&rig, &file, 0, 0, i);
        assert_int_equal(rig_spill_write(&rig, &file), i % 2 ? TERN_OK : TERN_DISK);
        assert_int_equal(rig_spill_stats(&rig).failing, i % 2 == 0);
        assert_int_equal(rig_spill_files(&rig, 0), (i + 1) / 2);
    }
    assert_int_equal(rig_spill_stats(&rig).write_errors, 2);
}

/* ---- the calls, watched and failing ---- */

enum call { MAKE, WRITE_BODY, WRITE_HEADER, READ, SYNC, RENAME, SYNC_FOLDER, REMOVE, PUNCH, CALLS };

static struct {
    struct disk_files real, wrapped;
    enum call log[512];
    uint32_t n;
    enum call fail; /* CALLS: none */
    uint32_t fail_at, calls;
    int error;
    bool failed_piece;
    uint64_t failed_token;
    uint32_t reaps, hold_at; /* at piece hold_at's end `held` is posted; then `go` waited for */
    sem_t held, go;
    _Atomic uint64_t room;          /* room that the file system reports; 0: the real one */
    bool headers;                   /* bodies are durable */
    bool look;                      /* checks the memory of each piece */
    uint32_t looked, dumped;        /* looked: pieces; dumped: in memory of crash dumps */
    bool header[RIG_SPILL_EXTENTS]; /* was written */
} fs;

static bool fails(enum call call)
{
    assert_true(fs.n < sizeof fs.log / sizeof fs.log[0]);
    fs.log[fs.n++] = call;
    return call == fs.fail && fs.calls++ == fs.fail_at;
}

static int w_make(void *ctx, const char *name, int *ret)
{
    return fails(MAKE) ? fs.error : fs.real.make(fs.real.ctx, name, ret);
    (void)ctx;
}

static int w_submit(void *ctx, uint32_t lane, int at, bool write, const struct disk_piece *piece)
{
    const uint8_t *bytes = piece->memory;

    (void)ctx;
    fs.looked += fs.look;
    fs.dumped += fs.look && !strstr(flags_of(piece->memory), " dd");
    for (uint32_t i = 0; write && i < file.write.nextents; i++) {
        uint64_t header = file.extent[i].place.offset;

        if (header < piece->offset || header >= piece->offset + piece->bytes)
            continue;
        for (uint32_t b = 0; !fs.headers && b < DISK_BLOCK; b++) /* it is still empty */
            assert_int_equal(bytes[header - piece->offset + b], 0);
        assert_false(fs.headers && fs.header[i]); /* nor a second time: its nonce is used */
        fs.header[i] = fs.headers;
    }
    if (fails(!write ? READ : fs.headers ? WRITE_HEADER : WRITE_BODY)) {
        fs.failed_piece = true;
        fs.failed_token = piece->token;
    }
    return fs.real.submit(fs.real.ctx, lane, at, write, piece);
}

static int w_reap(void *ctx, uint32_t lane, uint64_t *ret_token)
{
    int r = fs.real.reap(fs.real.ctx, lane, ret_token);

    (void)ctx;
    if (++fs.reaps == fs.hold_at) {
        sem_post(&fs.held);
        sem_wait(&fs.go);
    }
    if (fs.failed_piece && *ret_token == fs.failed_token) {
        fs.failed_piece = false;
        return fs.error;
    }
    return r;
}

static int w_sync(void *ctx, int at)
{
    (void)ctx;
    fs.headers = true;
    return fails(SYNC) ? fs.error : fs.real.sync(fs.real.ctx, at);
}

static int w_rename(void *ctx, const char *from, const char *to)
{
    (void)ctx;
    return fails(RENAME) ? fs.error : fs.real.rename(fs.real.ctx, from, to);
}

static int w_sync_folder(void *ctx, const char *name)
{
    (void)ctx;
    return fails(SYNC_FOLDER) ? fs.error : fs.real.sync_folder(fs.real.ctx, name);
}

static int w_remove(void *ctx, const char *name)
{
    (void)ctx;
    return fails(REMOVE) ? fs.error : fs.real.remove(fs.real.ctx, name);
}

static int w_punch(void *ctx, int at, uint64_t offset, uint64_t bytes)
{
    (void)ctx;
    return fails(PUNCH) ? fs.error : fs.real.punch(fs.real.ctx, at, offset, bytes);
}

static int w_room(void *ctx, uint64_t *ret_bytes)
{
    int r = fs.real.room(fs.real.ctx, ret_bytes);

    (void)ctx;
    if (fs.room)
        *ret_bytes = fs.room;
    return r;
}

/* One thread, whose calls go through these functions; `ops` is the file system. */
static struct disk_files *watch(enum call fail, uint32_t at, int error)
{
    struct file_ops_config c = {.dir = rig.dir, .lanes = 2, .lock = true};
    struct disk_files *ops;
    const char *why;

    rig_spill_close(&rig);
    assert_int_equal(file_ops_create(&c, &ops, &why), TERN_OK);
    memset(&fs, 0, sizeof fs);
    fs.real = fs.wrapped = *ops;
    fs.wrapped.make = w_make;
    fs.wrapped.submit = w_submit;
    fs.wrapped.reap = w_reap;
    fs.wrapped.sync = w_sync;
    fs.wrapped.rename = w_rename;
    fs.wrapped.sync_folder = w_sync_folder;
    fs.wrapped.remove = w_remove;
    fs.wrapped.punch = w_punch;
    fs.wrapped.room = w_room;
    fs.fail = fail;
    fs.fail_at = at;
    fs.error = error;
    assert_int_equal(sem_init(&fs.held, 0, 0), 0);
    assert_int_equal(sem_init(&fs.go, 0, 0), 0);
    rig.config.files = &fs.wrapped;
    rig.config.threads = 1;
    assert_int_equal(rig_spill_open(&rig), TERN_OK);
    return ops;
}

static void unwatch(struct disk_files *ops)
{
    rig_spill_close(&rig);
    file_ops_destroy(ops);
    rig.config.files = NULL;
}

/* Nothing is stored meanwhile. */
TEST(a_disk_that_has_room_again_is_full_no_more)
{
    struct disk_files *ops;

    rig_spill_start(&rig, false);
    ops = watch(CALLS, 0, 0);
    rig_file_usual(&rig, &file, 0, 0, 4);
    fs.room = 1;
    assert_int_equal(rig_spill_write(&rig, &file), TERN_POOL_EXHAUSTED);
    usleep(ROOM_LOOK_US);
    assert_true(rig_spill_stats(&rig).full);
    fs.room = UINT64_C(1) << 60;
    for (uint32_t i = 0; i < ROOM_LOOKS && rig_spill_stats(&rig).full; i++)
        usleep(ROOM_LOOK_US);
    assert_false(rig_spill_stats(&rig).full);
    assert_true(rig_spill_stats(&rig).free_bytes == UINT64_C(1) << 60);
    unwatch(ops);
}

/* Only a write shows a quota; the amount of free room does not. */
TEST(a_write_that_found_no_room_is_believed_until_the_next)
{
    struct disk_files *ops;

    rig_spill_start(&rig, false);
    ops = watch(WRITE_BODY, 0, -EDQUOT);
    rig_file_usual(&rig, &file, 0, 0, 4);
    assert_int_equal(rig_spill_write(&rig, &file), TERN_POOL_EXHAUSTED);
    usleep(2 * ROOM_LOOK_US);
    assert_true(rig_spill_stats(&rig).full);
    unwatch(ops);
}

/* D3: a file gets its name after all its contents are durable. */
TEST(a_name_comes_behind_all_that_it_stands_for)
{
    static const enum call order[] = {MAKE, WRITE_BODY, SYNC,       WRITE_HEADER,
                                      SYNC, RENAME,     SYNC_FOLDER};
    struct disk_files *ops;
    uint32_t at = 0;

    rig_spill_start(&rig, false);
    ops = watch(CALLS, 0, 0);
    rig_file_usual(&rig, &file, 0, 0, 4);
    assert_int_equal(rig_spill_write(&rig, &file), TERN_OK);
    for (uint32_t i = 0; i < fs.n; i++) {
        if (i > 0 && fs.log[i] == fs.log[i - 1])
            continue;
        assert_true(at < sizeof order / sizeof order[0]);
        assert_int_equal(fs.log[i], order[at++]);
    }
    assert_int_equal(at, sizeof order / sizeof order[0]);
    unwatch(ops);
}

static void on_event(void *ctx, struct event *event)
{
    (void)ctx, (void)event;
}

static void on_verified(void *ctx, const struct disk_verified *v)
{
    uint32_t *n = ctx;

    assert_int_equal(v->fault, DISK_FAULT_NONE);
    (*n)++;
}

/* Written, read, found at a start and verified: no byte of a page passes through memory that a
 * crash dump includes. */
TEST(pages_pass_through_no_memory_that_a_crash_dump_holds)
{
    struct disk_recovery r;
    struct disk_files *ops;
    const char *why;
    uint32_t n = 0;

    rig_spill_start(&rig, false);
    ops = watch(CALLS, 0, 0);
    fs.look = true;
    rig_file_usual(&rig, &file, 0, 0, 4);
    assert_int_equal(rig_spill_write(&rig, &file), TERN_OK);
    assert_int_equal(rig_spill_read(&rig, &file, 0, 16), RIG_SPILL_ALL(16));
    assert_int_equal(disk_recover(rig.disk, on_event, NULL, NULL, &r, &why), TERN_OK);
    assert_int_equal(disk_verify(&rig.config, on_verified, &n, &why), TERN_OK);
    assert_int_equal(n, file.write.nextents);
    printf("pieces=%u dumped=%u\n", fs.looked, fs.dumped);
    assert_true(fs.looked > 50);
    assert_int_equal(fs.dumped, 0);
    unwatch(ops);
}

/* Fails each call of a write in turn. */
TEST(whatever_fails_in_a_write_it_leaves_nothing_and_says_so)
{
    static const enum call calls[] = {MAKE, WRITE_BODY, WRITE_HEADER, SYNC, RENAME, SYNC_FOLDER};
    uint32_t failed = 0;

    rig_spill_start(&rig, false);
    rig_file_usual(&rig, &file, 0, 0, 4);
    for (uint32_t i = 0; i < 2 * sizeof calls / sizeof calls[0]; i++) {
        enum call call = calls[i / 2];
        int error = i % 2 ? -EIO : -ENOSPC;

        for (uint32_t at = 0; at < 4; at++) {
            struct disk_files *ops = watch(call, at, error);
            enum tern_err err = rig_spill_write(&rig, &file);
            char path[RIG_SPILL_PATH];

            if (err == TERN_OK) { /* there are fewer such calls */
                assert_true(at > 0);
                rig_spill_path(&rig, &file, false, path, sizeof path);
                assert_int_equal(unlink(path), 0);
                unwatch(ops);
                break;
            }
            failed++;
            assert_int_equal(err, error == -EIO ? TERN_DISK : TERN_POOL_EXHAUSTED);
            assert_int_equal(rig_spill_stats(&rig).full, error == -ENOSPC);
            assert_int_equal(rig_spill_stats(&rig).failing, error == -EIO);
            assert_int_equal(rig_spill_files(&rig, 0), 0);
            assert_true(disk_idle(rig.disk));
            unwatch(ops);
        }
    }
    printf("a write was made to fail at %u places\n", failed);
    assert_true(failed >= 24);
}

TEST(a_read_that_fails_breaks_its_pull_once)
{
    struct disk_files *ops;
    struct pull_id pull = {0, 5};
    uint32_t asked;

    rig_spill_start(&rig, false);
    rig_file_usual(&rig, &file, 0, 0, 4);
    assert_int_equal(rig_spill_write(&rig, &file), TERN_OK);
    ops = watch(READ, 2, -EIO);
    for (uint32_t i = 0; i < 8; i++)
        rig_spill_ask(&rig, &file, pull, i, 0, 16);
    rig_spill_events(&rig, 1);
    assert_int_equal(rig.got[0].kind, EV_PULL_BROKEN);
    assert_int_equal(rig.got[0].broken.err, TERN_DISK);
    assert_true(rig_spill_stats(&rig).failing);
    rig.ngot = 0;
    rig_spill_quiet_ms(&rig, 50);
    asked = fs.n;
    rig_spill_ask(&rig, &file, pull, 8, 0, 16);
    rig_spill_quiet_ms(&rig, 50);
    assert_int_equal(rig.ngot, 0);
    assert_int_equal(fs.n, asked);
    disk_read_stop(rig.disk, pull);
    rig_spill_events(&rig, 1);
    assert_int_equal(rig.got[0].kind, EV_PULL_QUIET);
    assert_int_equal(rig_spill_read(&rig, &file, 0, 16), RIG_SPILL_ALL(16)); /* another one */
    assert_false(rig_spill_stats(&rig).failing);
    unwatch(ops);
}

/* A running read ends, a waiting one is removed, and after the proof nothing is reported or
 * done. */
TEST(a_stop_ends_in_quiet)
{
    struct disk_files *ops;

    rig_spill_start(&rig, false);
    rig_file_usual(&rig, &file, 0, 0, 4);
    assert_int_equal(rig_spill_write(&rig, &file), TERN_OK);
    ops = watch(CALLS, 0, 0);
    for (uint32_t round = 0; round < 20; round++) {
        struct pull_id pull = {round % 3, 100 + round};

        fs.n = fs.reaps = 0;
        fs.hold_at = round + 1;
        rig_spill_clear(&rig, 1);
        for (uint32_t i = 0; i < 12; i++)
            rig_spill_ask(&rig, &file, pull, i, 0, 16);
        sem_wait(&fs.held);
        disk_read_stop(rig.disk, pull);
        disk_read_stop(rig.disk, pull);
        sem_post(&fs.go);
        rig_spill_events(&rig, 1);
        assert_int_equal(rig.got[0].kind, EV_PULL_QUIET);
        assert_true(pull_id_equal(rig.got[0].pull_quiet.pull, pull));
        rig_spill_clear(&rig, 1);
        rig.ngot = 0;
        rig_spill_quiet_ms(&rig, 5);
        assert_int_equal(rig.ngot, 0);
        for (uint32_t i = 0; i < 16; i++) {
            const uint8_t *at = mem_page(rig.mem, 1, 0, file.page[i].group, file.page[i].index);

            for (uint32_t b = 0; b < 20000; b += 500)
                assert_int_equal(at[b], 0);
        }
    }
    disk_read_stop(rig.disk, (struct pull_id){3, 9}); /* for a pull without reads */
    rig_spill_events(&rig, 1);
    assert_int_equal(rig.got[0].kind, EV_PULL_QUIET);
    unwatch(ops);
}

/* The proof does not wait for all requested reads. */
TEST(a_stop_ends_what_runs)
{
    struct disk_files *ops;

    rig_spill_start(&rig, false);
    rig_file_usual(&rig, &file, 0, 0, 4);
    assert_int_equal(rig_spill_write(&rig, &file), TERN_OK);
    ops = watch(CALLS, 0, 0);
    fs.hold_at = 1;
    rig_spill_ask(&rig, &file, (struct pull_id){0, 1}, 0, 0, 16); /* of 23 MB */
    sem_wait(&fs.held);
    disk_read_stop(rig.disk, (struct pull_id){0, 1});
    sem_post(&fs.go);
    rig_spill_events(&rig, 1);
    assert_int_equal(rig.got[0].kind, EV_PULL_QUIET);
    assert_true(fs.n <= rig.config.depth + 1);
    unwatch(ops);
}

/* A drop is durable before it is reported; a failed one is never reported. */
TEST(a_drop_that_fails_is_not_told)
{
    struct disk_drop drop = {0, 0, {4, 0}};
    struct disk_files *ops;

    rig_spill_start(&rig, false);
    rig_file_usual(&rig, &file, 0, 0, 4);
    assert_int_equal(rig_spill_write(&rig, &file), TERN_OK);
    ops = watch(SYNC_FOLDER, 0, -EIO);
    disk_drop(rig.disk, &drop);
    for (uint32_t i = 0; i < 5000 && !disk_idle(rig.disk); i++)
        rig_spill_quiet_ms(&rig, 1);
    assert_int_equal(rig.ngot, 0);
    assert_true(disk_idle(rig.disk) && rig_spill_stats(&rig).failing);
    assert_int_equal(fs.log[0], REMOVE);
    assert_int_equal(fs.log[1], SYNC_FOLDER);
    unwatch(ops);
}

/* Extents that wait together are punched with one sync after them. */
TEST(a_hole_is_durable_before_the_disk_is_idle)
{
    struct disk_drop drop = {0, DISK_BLOCK, {4, 0}};
    struct disk_files *ops;

    rig_spill_start(&rig, false);
    rig_file_usual(&rig, &file, 0, 0, 4);
    assert_int_equal(rig_spill_write(&rig, &file), TERN_OK);
    ops = watch(CALLS, 0, 0);
    fs.hold_at = 1;
    rig_spill_ask(&rig, &file, (struct pull_id){0, 1}, 0, 0, 16); /* the thread has work */
    sem_wait(&fs.held);
    for (uint32_t i = 0; i < 3; i++) {
        drop.place.offset = file.extent[i].place.offset;
        disk_drop(rig.disk, &drop);
    }
    sem_post(&fs.go);
    for (uint32_t i = 0; i < 5000 && !disk_idle(rig.disk); i++)
        rig_spill_quiet_ms(&rig, 1);
    assert_true(disk_idle(rig.disk) && fs.n >= 4);
    assert_int_equal(fs.log[fs.n - 1], SYNC);
    for (uint32_t i = 2; i <= 4; i++)
        assert_int_equal(fs.log[fs.n - i], PUNCH);
    unwatch(ops);
}

static uint32_t punches(void)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < fs.n; i++)
        n += fs.log[i] == PUNCH;
    return n;
}

/* D7: a fetch reads an extent that a store has rewritten elsewhere; its old place goes after
 * that. */
TEST(d7_what_a_read_asked_for_is_given_back_behind_it)
{
    struct disk_drop drop;
    struct disk_files *ops;
    uint32_t early;

    rig_spill_start(&rig, false);
    ops = watch(CALLS, 0, 0);
    rig_spill_close(&rig);
    rig.config.threads = 2;
    assert_int_equal(rig_spill_open(&rig), TERN_OK);
    rig_file_usual(&rig, &file, 0, 0, 4);
    assert_int_equal(rig_spill_write(&rig, &file), TERN_OK);
    fs.hold_at = fs.reaps + 1;
    rig_spill_ask(&rig, &file, (struct pull_id){1, 1}, 0, 0, 16);
    sem_wait(&fs.held);
    drop = (struct disk_drop){0, disk_extent_bytes(&file.extent[1]), file.extent[1].place};
    disk_drop(rig.disk, &drop);
    usleep(50000);
    early = punches();
    sem_post(&fs.go);
    assert_int_equal(early, 0);
    rig_spill_events(&rig, 1);
    assert_int_equal(rig.got[0].kind, EV_PULLED);
    assert_int_equal(rig.got[0].pulled.ok[0], RIG_SPILL_ALL(16));
    for (uint32_t i = 0; i < 5000 && !disk_idle(rig.disk); i++)
        rig_spill_quiet_ms(&rig, 1);
    assert_int_equal(punches(), 1);
    unwatch(ops);
}
