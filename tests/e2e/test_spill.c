/* The disk tier of a real daemon: stored prefixes are found again after an orderly end and after a
 * SIGKILL, byte for byte; acknowledged stores are never lost; a full or failing disk stops storing
 * and nothing else, is reported once, and is used again when it works. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/disk.h"
#include "engine/admin.h"
#include "engine/engine.h"
#include "engine/json.h"
#include "engine/proc.h"
#include "rig_daemon.h"
#include "seam/mem/checksum.h"
#include "testing/test.h"

#define L            64
#define PAGES        16 /* of a conversation */
#define TOKENS       (PAGES * L)
#define POOL_BYTES   (256 * RIG_PAGE)
#define STORE_MS     20000
#define PAUSES_MS    3000                 /* longer than the core's pause after a failed store */
#define FORMAT_AT    8                    /* in a file: after the magic number */
#define BODY_AT      (2 * DISK_BLOCK + 3) /* after the heads of the file and of an extent */
#define TMPFS_BYTES  "3m"
#define FILLER_BYTES (2800u << 10)

static struct daemon rig;
static struct engine e;
static struct tern *admin;
static char spill[RIG_DIR_BYTES];

/* ---- the daemon and its folder ---- */

static void connect_all(void)
{
    struct tern_group kv = {.name = "kv", .page_tokens = L, .page_bytes = RIG_PAGE};
    struct tern_layout layout = {.groups = &kv, .ngroups = 1, .bytes = POOL_BYTES};

    admin = rig_connected(rig.admin);
    assert_ok(e.tern, engine_open(&e, rig.socket, "e", &layout, RIG_WAIT_MS));
}

static void disconnect(void)
{
    engine_close(&e);
    e = (struct engine){0};
    tern_destroy(admin);
    admin = NULL;
}

/* `more`: further settings of `spill`; `extra`: YAML at the top level. */
static void start(const char *more, const char *extra)
{
    char yaml[512];

    snprintf(yaml, sizeof yaml, "spill: {dir: %s, bytes: 64M, headroom: 0, threads: 2%s}\n%s",
             spill, more, extra);
    rig_start(&rig, yaml, NULL);
    connect_all();
}

/* Runs on the same configuration, with a log of its own. */
static bool run_again(char why[SPAWN_WHY_BYTES])
{
    struct daemon_launch how = {.core = -1, .says_ready = true};

    unlink(rig.log);
    return daemon_launch(&rig, &how, why);
}

static void again(void)
{
    char why[SPAWN_WHY_BYTES] = "";

    if (!run_again(why))
        fail_msg("%s", why);
    connect_all();
}

static void end(void)
{
    disconnect();
    assert_int_equal(daemon_end(&rig, RIG_STOP_MS), 0);
}

static void kill_it(void)
{
    int status;

    assert_int_equal(kill(rig.pid, SIGKILL), 0);
    assert_true(proc_wait(&rig.pid, RIG_WAIT_MS, &status));
    disconnect();
}

FIXTURE(make_spill)
{
    assert_true(tempdir_make(spill, sizeof spill, "tern-spill"));
    return 0;
}

FIXTURE(remove_all)
{
    char command[256];

    disconnect();
    if (rig.pid > 0)
        daemon_end(&rig, 0);
    umount(spill); /* of a test that had its own */
    snprintf(command, sizeof command, "rm -rf '%s' '%s'", spill, rig.dir);
    return system(command) == 0 ? 0 : -1;
}

TEST_EACH(make_spill, remove_all);

/* The first file of the tenant; fails if there is none. */
static void first_file(char ret[512])
{
    char folder[128];
    struct dirent *entry;
    DIR *dir;

    snprintf(folder, sizeof folder, "%s/t0", spill);
    dir = opendir(folder);
    assert_non_null(dir);
    while ((entry = readdir(dir)) != NULL && !strstr(entry->d_name, ".tern"))
        ;
    assert_non_null(entry);
    snprintf(ret, 512, "%s/%.255s", folder, entry->d_name);
    closedir(dir);
}

static uint64_t figure(const char *path)
{
    return rig_figure(admin, "status", path);
}

static bool state_is(const char *wanted)
{
    json_t *answer = admin_ask(admin, "status", NULL);
    bool is = json_says(json_at(answer, "spill"), "state", wanted);

    json_decref(answer);
    return is;
}

/* Returns true if that alarm of the daemon is on. */
static bool alarm_is(const char *name)
{
    json_t *answer = admin_ask(admin, "status", NULL);
    bool is = json_row(json_object_get(answer, "alarms"), "name", name) != NULL;

    json_decref(answer);
    return is;
}

/* ---- conversations ---- */

static void open_talk(struct engine_session *k, uint32_t id)
{
    uint32_t v[TOKENS];

    for (uint32_t i = 0; i < TOKENS; i++)
        v[i] = id * 10000 + i;
    assert_ok(e.tern, engine_begin(k, &e, v, TOKENS));
}

static void compute_talk(struct engine_session *k, uint32_t id)
{
    open_talk(k, id);
    assert_int_equal(k->matched, 0);
    assert_ok(e.tern, engine_run(k));
    assert_ok(e.tern, engine_publish(&e));
}

static void close_talk(struct engine_session *k)
{
    assert_ok(e.tern, engine_end(k));
}

static enum tern_err store(struct engine_session *k, struct tern_stored *ret)
{
    return tern_store(e.tern, k->id, 0, STORE_MS, ret);
}

static void compute_and_store(uint32_t id)
{
    struct engine_session k;
    struct tern_stored s;

    compute_talk(&k, id);
    assert_ok(e.tern, store(&k, &s));
    assert_int_equal(s.depth, TOKENS);
    close_talk(&k);
}

/* Returns how deep the disk has it; all of that must be fetched and right. */
static uint32_t comes_back(uint32_t id)
{
    struct engine_session k;
    uint32_t deep;

    open_talk(&k, id);
    assert_int_equal(k.matched, 0);
    deep = k.last.disk_depth;
    if (deep > 0) {
        assert_ok(e.tern, engine_fetch(&k, TERN_PEER_DISK, 0, RIG_WAIT_MS));
        assert_int_equal(k.len.committed, deep);
        assert_int_equal(engine_wrong(&k, deep), 0);
    }
    close_talk(&k);
    return deep;
}

/* ---- tests ---- */

TEST(spill_outlives_an_orderly_end)
{
    struct engine_session k;
    struct tern_stored s;

    start("", "");
    compute_talk(&k, 1);
    assert_ok(e.tern, store(&k, &s)); /* besides the daemon's own store, whichever comes first */
    assert_int_equal(s.depth, TOKENS);
    assert_true(figure("tenants.0.spill.written_bytes") >= PAGES * RIG_PAGE);
    assert_ok(e.tern, store(&k, &s));
    assert_int_equal(s.written, 0); /* all of it is stored */
    assert_int_equal(k.last.disk_depth, 0);
    close_talk(&k);
    end();
    assert_true(rig_log_has(&rig, "event=stored", 0));
    again();
    assert_true(rig_log_has(&rig, "event=spill_recovered entries=1 ", 0));
    assert_int_equal(figure("tenants.0.spill.entries"), 1);
    assert_int_equal(figure("spill.recovery.faults.checksum"), 0);
    assert_int_equal(comes_back(1), TOKENS);
    assert_int_equal(comes_back(2), 0);
    assert_int_equal(figure("tenants.0.spill.hits"), 1);
    assert_int_equal(figure("tenants.0.spill.fetched_pages"), PAGES);
    end();
}

/* A store submitted before its step has passed: nothing can be stored yet, and the session
 * continues. */
TEST(spill_store_is_submitted_and_the_session_runs_on)
{
    struct engine_session k;
    struct tern_answer answer;
    struct tern_stored s;

    start("", "");
    open_talk(&k, 1);
    assert_ok(e.tern, engine_extend(&k, TOKENS, TOKENS));
    engine_write(&k, 0, TOKENS);
    assert_ok(e.tern, tern_commit(e.tern, k.id, TOKENS, e.step + 1, RIG_WAIT_MS, &k.last));
    assert_ok(e.tern, tern_submit_store(e.tern, k.id, TOKENS / 2 + 1, 77));
    assert_ok(e.tern, tern_extend(e.tern, k.id, NULL, 0, TOKENS + L, RIG_WAIT_MS, &k.last));
    assert_int_equal(tern_poll(e.tern, &answer), TERN_BUSY);
    assert_ok(e.tern, engine_publish(&e));
    assert_ok(e.tern, answer_wait(e.tern, STORE_MS, &answer));
    assert_int_equal(answer.cookie, 77);
    assert_ok(e.tern, answer.err);
    assert_int_equal(answer.stored.depth, TOKENS / 2);
    assert_true(answer.stored.written >= PAGES / 2 * RIG_PAGE);
    assert_ok(e.tern, tern_store(e.tern, k.id, TOKENS / 2, STORE_MS, &s));
    assert_int_equal(s.written, 0);
    close_talk(&k);
    kill_it();
    again();
    assert_int_equal(comes_back(1), TOKENS / 2);
    end();
}

/* Without any call of the engine the daemon stores cached prefixes before it ends. While it runs it
 * stores half of such a prompt. */
TEST(spill_of_what_is_cached_at_the_end)
{
    struct engine_session k;

    start(", align: 512", "");
    compute_talk(&k, 3);
    close_talk(&k);
    wait_until(figure("tenants.0.spill.stored.cold") == 1);
    end();
    again();
    assert_true(rig_log_has(&rig, "event=spill_recovered entries=2 ", 0));
    assert_int_equal(comes_back(3), TOKENS);
    end();
}

/* An acknowledged tern_store survives, whatever the daemon was doing when it was killed. */
TEST(spill_acknowledged_outlives_a_kill)
{
    uint32_t lost = 0, rounds = 4;

    start("", "");
    for (uint32_t round = 0; round < rounds; round++) {
        struct engine_session k;
        struct tern_stored s;

        compute_and_store(10 + round);
        compute_talk(&k, 100 + round);
        (void)tern_store(e.tern, k.id, 0, 1 + round, &s); /* killed in the middle of the store */
        engine_free(&k);
        kill_it();
        again();
        for (uint32_t i = 0; i <= round; i++)
            lost += comes_back(10 + i) != TOKENS;
        for (uint32_t i = 0; i <= round; i++)
            comes_back(100 + i); /* stored or not, and right */
    }
    printf("fault=30 runs=%u injected=%u violations=%u lost=%u\n", rounds, rounds, lost, lost);
    assert_int_equal(lost, 0);
    end();
}

TEST(spill_of_a_newer_format_is_refused)
{
    char why[SPAWN_WHY_BYTES] = "", path[512];
    uint8_t block[DISK_BLOCK];
    uint64_t sum;
    int fd;

    start("", "");
    compute_and_store(1);
    end();
    first_file(path);
    fd = open(path, O_RDWR | O_CLOEXEC);
    assert_int_equal(pread(fd, block, sizeof block, 0), sizeof block);
    block[FORMAT_AT] = 99;
    sum = checksum_unit(block, sizeof block - sizeof sum);
    memcpy(block + sizeof block - sizeof sum, &sum, sizeof sum);
    assert_int_equal(pwrite(fd, block, sizeof block, 0), sizeof block);
    close(fd);
    assert_false(run_again(why));
    assert_non_null(strstr(why, "is of a newer format"));
    assert_non_null(strstr(why, "spill.dir"));
    assert_int_equal(access(path, F_OK), 0); /* and nothing was removed */
}

TEST(spill_belongs_to_one_daemon)
{
    start("", "");
    assert_int_equal(daemon_run_twin(&rig), 1);
    assert_true(rig_log_has(&rig, "err=CONFLICT", 0));
    assert_true(rig_log_has(&rig, "spill.dir", 0));
    compute_and_store(1); /* the first daemon is not disturbed */
    end();
}

static void put_key(const char *path, char digit)
{
    char text[64];
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    memset(text, digit, sizeof text);
    assert_int_equal(write(fd, text, sizeof text), sizeof text);
    close(fd);
}

TEST(spill_that_is_encrypted_needs_its_key)
{
    char key[128], more[160], why[SPAWN_WHY_BYTES] = "";

    snprintf(key, sizeof key, "%s/key", spill);
    snprintf(more, sizeof more, ", encrypt_key_file: %s", key);
    put_key(key, 'a');
    start(more, "");
    compute_and_store(1);
    end();
    again();
    assert_int_equal(comes_back(1), TOKENS);
    end();
    put_key(key, 'b');
    assert_false(run_again(why)); /* and nothing is removed */
    assert_non_null(strstr(why, "spill.dir"));
    why[0] = '\0';
    put_key(key, 'a');
    again();
    assert_int_equal(comes_back(1), TOKENS);
    end();
    assert_int_equal(chmod(key, 0644), 0);
    assert_false(run_again(why));
    assert_non_null(strstr(why, "chmod 600"));
}

/* fault 33, 35: served on, reported once, and tried again. */
TEST(spill_to_a_failing_disk_is_told_once)
{
    struct engine_session k;
    struct tern_stored s;

    start("", "faults: {disk_write_every: 1}\n");
    for (uint32_t id = 1; id <= 4; id++) {
        compute_talk(&k, id);
        assert_err(TERN_DISK, store(&k, &s));
        close_talk(&k);
    }
    assert_true(state_is("failing"));
    assert_int_equal(daemon_log_count(&rig, "event=spill_failing ", 1, RIG_WAIT_MS), 1);
    assert_true(rig_log_has(&rig, "the last error: Input/output error\" action=", 0));
    assert_true(figure("spill.write_errors") >= 1);
    disconnect();
    assert_int_equal(daemon_end(&rig, RIG_STOP_MS), 0);
    assert_true(rig_log_has(&rig, "event=stored entries=0 failed=", 0));
    assert_false(rig_log_has(&rig, "event=stored entries=0 failed=0", 0));
}

/* The log names the file that a fetch finds damaged or missing. */
TEST(spill_that_is_bad_is_told_by_its_file)
{
    struct engine_session k;
    char path[512], line[576];
    const char *name;
    int fd;

    start("", "");
    compute_and_store(1);
    end();
    first_file(path);
    fd = open(path, O_WRONLY | O_CLOEXEC);
    assert_int_equal(pwrite(fd, "x", 1, BODY_AT), 1);
    close(fd);
    again();
    name = strrchr(path, '/') + 1;
    open_talk(&k, 1);
    assert_err(TERN_CORRUPT, engine_fetch(&k, TERN_PEER_DISK, 0, RIG_WAIT_MS));
    engine_free(&k);
    snprintf(line, sizeof line, "event=spill_bad file=t0/%s offset=", name);
    assert_true(rig_log_has(&rig, line, RIG_WAIT_MS));
    disconnect();
    assert_int_equal(daemon_end(&rig, RIG_STOP_MS), 0);
}

/* A fetch whose file is missing. */
static void comes_back_lost(uint32_t id)
{
    struct engine_session k;

    open_talk(&k, id);
    assert_int_equal(k.last.disk_depth, TOKENS);
    assert_err(TERN_CORRUPT, engine_fetch(&k, TERN_PEER_DISK, 0, RIG_WAIT_MS));
    close_talk(&k);
}

/* D4: a missing file is offered once, counts as no use, and is stored anew. */
TEST(spill_d4_of_which_a_file_is_gone)
{
    char path[512];

    start("", "");
    compute_and_store(1);
    end();
    first_file(path);
    again();
    assert_int_equal(unlink(path), 0);
    comes_back_lost(1);
    assert_int_equal(comes_back(1), 0);
    assert_int_equal(figure("tenants.0.spill.hits"), 0);
    assert_int_equal(figure("tenants.0.spill.entries"), 0);
    assert_true(state_is("ok"));
    compute_and_store(1);
    end();
    again();
    assert_int_equal(comes_back(1), TOKENS);
    end();
}

/* D4: the folder itself is missing. The operator gets the reason, and the folder is made anew. */
TEST(spill_d4_of_which_the_folder_is_gone)
{
    struct engine_session k;
    struct tern_stored s;
    char command[256];

    start("", "");
    compute_and_store(1);
    compute_and_store(2);
    end();
    again();
    snprintf(command, sizeof command, "rm -r %s", spill);
    assert_int_equal(system(command), 0);
    comes_back_lost(1);
    assert_true(state_is("gone"));
    wait_until(alarm_is("spill_failing"));
    assert_true(rig_log_has(&rig, "the folder is missing", RIG_WAIT_MS));
    assert_int_equal(comes_back(2), 0); /* not offered even once */
    compute_talk(&k, 1);
    assert_err(TERN_DISK, store(&k, &s));
    wait_until(store(&k, &s) == TERN_OK);
    close_talk(&k);
    assert_true(state_is("ok"));
    end();
    again();
    assert_int_equal(comes_back(1), TOKENS);
    end();
}

/* Makes a file system for this process and its children. Returns false if not allowed. */
static bool own_file_system(void)
{
    return unshare(CLONE_NEWNS) == 0 && mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount("none", spill, "tmpfs", 0, "size=" TMPFS_BYTES) == 0;
}

static void fill(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

    assert_true(fd >= 0);
    while (write(fd, spill, 1) == 1 && lseek(fd, 4095, SEEK_CUR) >= 0)
        ;
    close(fd);
}

/* Makes a conversation that has left memory. */
static void leaves_memory(void)
{
    struct daemon_status st;

    assert_true(admin_empty(admin, e.pool, RIG_WAIT_MS, &st));
}

/* fault 33, if a file system of its own is not allowed: writes fail as on a full disk. */
TEST(spill_that_is_told_that_it_is_full)
{
    struct engine_session k;
    struct tern_stored s;

    start("", "faults: {disk_full_after: 1}\n");
    compute_and_store(1);
    for (uint32_t id = 2; id <= 4; id++) {
        compute_talk(&k, id);
        assert_err(TERN_POOL_EXHAUSTED, store(&k, &s));
        close_talk(&k);
    }
    assert_true(state_is("full"));
    assert_int_equal(daemon_log_count(&rig, "event=spill_full ", 1, RIG_WAIT_MS), 1);
    assert_true(alarm_is("spill_full"));
    leaves_memory();
    assert_int_equal(comes_back(1), TOKENS); /* stored prefixes are still served */
    assert_int_equal(comes_back(2), 0);
    disconnect();
    assert_int_equal(daemon_end(&rig, RIG_STOP_MS), 0);
}

/* fault 33: a full disk stops storing alone, and is used again when it has room. */
TEST(spill_to_a_full_disk_goes_on_when_there_is_room)
{
    uint32_t failed = 0, refused = 0;
    struct engine_session k;
    struct tern_stored s;
    char filler[128];

    if (!own_file_system()) {
        printf("not done: a file system of a test's own needs the right to mount\n");
        return;
    }
    start("", "");
    compute_and_store(1);
    snprintf(filler, sizeof filler, "%s/filler", spill);
    fill(filler);
    for (uint32_t id = 2; id <= 9; id++) {
        compute_talk(&k, id); /* served as before */
        refused += store(&k, &s) != TERN_OK;
        close_talk(&k);
        open_talk(&k, id);
        failed += k.matched != TOKENS;
        close_talk(&k);
    }
    assert_int_equal(refused, 8);
    assert_true(state_is("full"));
    assert_int_equal(daemon_log_count(&rig, "event=spill_full ", 1, RIG_WAIT_MS), 1);
    assert_true(alarm_is("spill_full"));
    leaves_memory();
    failed += comes_back(1) != TOKENS; /* stored prefixes are fetched as before */
    compute_talk(&k, 9);
    close_talk(&k);
    assert_int_equal(unlink(filler), 0);
    open_talk(&k, 9);
    wait_until(store(&k, &s) == TERN_OK);
    close_talk(&k);
    assert_true(state_is("ok"));
    assert_int_equal(daemon_log_count(&rig, "event=spill_full ", 2, 0), 1);
    assert_int_equal(daemon_log_count(&rig, "event=spill_full_ended", 1, RIG_WAIT_MS), 1);
    assert_false(alarm_is("spill_full"));
    printf("fault=33 runs=1 injected=%u violations=%u failed=%u\n", refused, failed, failed);
    assert_int_equal(failed, 0);
    end();
    again();
    assert_int_equal(comes_back(1), TOKENS);
    assert_int_equal(comes_back(9), TOKENS);
    end();
    assert_int_equal(umount(spill), 0);
}
