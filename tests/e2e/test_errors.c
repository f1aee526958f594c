/* Provokes every error of the table through libtern and a real daemon. The last test fails if an
 * error of the table was never provoked: a new error needs its case here. MALFORMED as an answer
 * needs a raw socket, since libtern sends nothing malformed. INTERNAL as an answer is a bug of the
 * daemon and cannot be provoked; its other meaning can: the client's process is out of address
 * space. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/admin.h"
#include "engine/engine.h"
#include "engine/json.h"
#include "engine/proc.h"
#include "rig_daemon.h"
#include "testing/test.h"

#define TOKENS   64
#define PAGE     4096
#define POOL     (2u << 20)
#define ROUND_MS RIG_WAIT_MS

static struct daemon source, rig; /* rig pulls from source */
static char dir[RIG_DIR_BYTES];
static struct engine e; /* of rig */
static const char *how[TERN_ERR_COUNT];

/* Checks that the error came, with a text that says what to do. */
static void provoked(struct tern *t, enum tern_err want, enum tern_err got, const char *by)
{
    assert_string_equal(err_name(got), err_name(want));
    if (t && want != TERN_OK)
        assert_string_not_equal(tern_error_text(t, NULL), "");
    how[want] = by;
}

FIXTURE(start)
{
    struct daemon_options o[2] = {
        {.node = "source", .memory_bytes = 8u << 20, .page_bytes_min = PAGE, .core = -1}};

    o[1] = o[0];
    o[1].node = "rig";
    rig_start_pair(&source, &rig, dir, o);
    e = rig_engine(rig.socket, "engine", TOKENS, POOL);
    return 0;
}

FIXTURE(stop)
{
    engine_close(&e);
    daemon_stop(&rig);
    daemon_stop(&source);
    tempdir_remove(dir);
    return 0;
}

/* A session with n tokens of its own, which the engine has not written yet. */
static struct engine_session session_with(struct engine *of, uint32_t salt, uint32_t n)
{
    static uint32_t tokens[4 * TOKENS];
    struct engine_session s;

    for (uint32_t i = 0; i < n; i++)
        tokens[i] = salt * 100000u + i;
    assert_ok(of->tern, engine_begin(&s, of, tokens, n));
    return s;
}

static void close_session(struct engine_session *s)
{
    assert_ok(s->engine->tern, engine_end(s));
}

TEST_GROUP(start, stop);

TEST(err_ok)
{
    provoked(e.tern, TERN_OK, tern_ping(e.tern, 0), "Ping");
}

TEST(err_invalid)
{
    struct engine_session s = session_with(&e, 1, 2 * TOKENS);

    provoked(e.tern, TERN_INVALID, engine_commit(&s, TOKENS), "a commit of what was not written");
    assert_ok(e.tern, engine_extend(&s, 2 * TOKENS, 2 * TOKENS));
    provoked(e.tern, TERN_INVALID, engine_commit(&s, TOKENS + 3), "a commit within a chunk");
    assert_non_null(
        strstr(tern_error_text(e.tern, NULL), "depth 67 is not a multiple of 64: use 64 or 128"));
    close_session(&s);
}

TEST(err_malformed)
{
    static struct rig_answer answer;
    int fd = rig_greeted(rig.socket);

    assert_true(rig_frame(fd, FRAME_MATCH, 2, "\xff\xff\xff", 3));
    assert_int_equal(rig_read(fd, ROUND_MS, &answer), RIG_FRAME);
    provoked(NULL, TERN_MALFORMED, rig_status(&answer), "a body that is no message (raw socket)");
    close(fd);
}

TEST(err_unsupported)
{
    struct tern *admin = rig_connected(rig.admin);
    const char *json;

    provoked(admin, TERN_UNSUPPORTED, tern_admin(admin, "levitate", NULL, 0, 0, &json),
             "an admin command that does not exist");
    tern_destroy(admin);
}

TEST(err_conflict)
{
    struct tern *other = rig_connected(rig.socket);

    provoked(other, TERN_CONFLICT, tern_join(other, "engine", TERN_BOTH, 0, 1, NULL, 0),
             "joining as a rank that is taken");
    tern_destroy(other);
}

TEST(err_pool_exhausted)
{
    struct engine_session s = session_with(&e, 2, 0), other = session_with(&e, 3, 0);
    const struct tern_shortage *shortage = &s.last.shortage;
    struct tern_result r;

    assert_int_equal(engine_extend(&s, POOL / PAGE * TOKENS + TOKENS, 0), TERN_QUOTA);
    assert_int_equal(shortage->needed, POOL / PAGE + 1); /* never */
    assert_true(shortage->free > 0 && shortage->free < POOL / PAGE);
    assert_ok(e.tern, tern_extend(e.tern, s.id, NULL, 0, shortage->free * TOKENS, 0, &r));
    shortage = &r.shortage;
    provoked(e.tern, TERN_POOL_EXHAUSTED, tern_extend(e.tern, other.id, NULL, 0, TOKENS, 0, &r),
             "extending beyond what the others leave of the pool");
    assert_int_equal(shortage->needed, 1);
    assert_true(shortage->until_step == 0); /* no page retires: waiting would not help */
    close_session(&other);
    close_session(&s);
}

TEST(err_timed_out)
{
    kill(rig.pid, SIGSTOP);
    provoked(e.tern, TERN_TIMED_OUT, tern_ping(e.tern, 50), "a daemon that is stopped");
    kill(rig.pid, SIGCONT);
    assert_ok(e.tern, tern_ping(e.tern, ROUND_MS)); /* the connection stays open */
}

TEST(err_busy)
{
    struct tern_group kv = {.name = "kv", .page_tokens = TOKENS, .page_bytes = PAGE};
    struct tern_layout layout = {.groups = &kv, .ngroups = 1, .bytes = POOL};
    struct tern *half = rig_connected(rig.socket);
    uint64_t handle;

    assert_ok(half, tern_join(half, "half", TERN_SCHEDULER, 0, 1, NULL, 0));
    provoked(half, TERN_BUSY, tern_pool_open(half, &layout, 0, &handle, NULL),
             "a pool before every rank has joined");
    tern_destroy(half);
}

TEST(err_gone)
{
    struct engine_session s = session_with(&e, 4, 0);
    struct tern_tokens none = {0};
    struct tern_result r;

    close_session(&s);
    provoked(e.tern, TERN_GONE, tern_match(e.tern, s.id, &none, TERN_STEP_NONE, 0, &r),
             "a session that was closed");
}

TEST(err_denied)
{
    const char *json;

    provoked(e.tern, TERN_DENIED, tern_admin(e.tern, "status", NULL, 0, 0, &json),
             "an admin request on a tenant's socket");
}

TEST(err_quota)
{
    struct tern_group kv = {.name = "kv", .page_tokens = TOKENS, .page_bytes = PAGE};
    struct tern_layout layout = {.groups = &kv, .ngroups = 1, .bytes = 1u << 30};
    uint64_t handle;

    provoked(e.tern, TERN_QUOTA, tern_pool_open(e.tern, &layout, 0, &handle, NULL),
             "a pool larger than the tenant's memory");
}

/* Returns true once peers may fetch all pages of the daemon. */
static bool is_sealed(struct tern *admin)
{
    json_t *root = admin_ask(admin, "tree", NULL), *rows = json_object_get(root, "tree"), *row;
    bool all = json_array_size(rows) > 0;
    size_t i;

    json_array_foreach(rows, i, row)
    {
        all = all && (json_get_u64(row, "depth") == 0 || json_is_true(json_at(row, "sealed")));
    }
    json_decref(root);
    return all;
}

/* The source's own engine writes into a page after its commit and seal: each try of the puller sees
 * bytes that do not match their checksum. */
TEST(err_corrupt)
{
    struct tern *admin = rig_connected(source.admin);
    struct engine prefill = {0};
    struct engine_session from, to;
    enum tern_err err = TERN_BUSY;

    prefill = rig_engine(source.socket, "prefill", TOKENS, POOL);
    from = session_with(&prefill, 5, 4 * TOKENS);
    assert_ok(prefill.tern, engine_run(&from));
    wait_until(is_sealed(admin)); /* the daemon computes checksums in the background */
    tern_destroy(admin);
    engine_page(&prefill, 0, from.table.group[0].index[1])[100] ^= 1;
    to = session_with(&e, 5, 4 * TOKENS);
    for (uint64_t end = rig_now_ms() + ROUND_MS;
         rig_now_ms() < end && (err == TERN_BUSY || err == TERN_PEER_LOST);) {
        err = engine_fetch(&to, "source", 0, ROUND_MS); /* the link may not be up yet */
        usleep(20000);
    }
    provoked(e.tern, TERN_CORRUPT, err, "fetching a page whose bytes changed after its checksum");
    close_session(&to);
    engine_free(&from);
    engine_close(&prefill);
}

/* Runs after all tests that fetch: it ends the source. */
TEST(err_peer_lost)
{
    struct engine_session s = session_with(&e, 3, 2 * TOKENS);

    daemon_stop(&source); /* whether or not the end of the connection has been seen */
    provoked(e.tern, TERN_PEER_LOST, engine_fetch(&s, "source", 0, ROUND_MS),
             "fetching from a peer that is down");
    close_session(&s);
}

TEST(err_daemon_lost)
{
    struct tern *t = NULL;

    provoked(NULL, TERN_DAEMON_LOST, tern_connect("/nowhere/at/all.sock", ROUND_MS, &t),
             "connecting where no daemon listens");
    assert_null(t);
}

TEST(err_disk)
{
    const char *json, *args[] = {"path=/nowhere/at/all.tape"};
    struct tern *admin = rig_connected(rig.admin);

    provoked(admin, TERN_DISK, tern_admin(admin, "tape", args, 1, 0, &json),
             "a tape where no file can be (there is no disk tier in this build)");
    tern_destroy(admin);
}

/* A mistyped argument is refused by its name, and nothing happens. */
TEST(an_admin_argument_that_is_wrong_is_named)
{
    static const struct {
        const char *command, *arg, *named;
    } wrong[] = {{"evict", "nodez=1", "'nodez'"},
                 {"evict", "node=1", "'node'"},
                 {"evict", "nodes", "'nodes'"},
                 {"evict", "nodes=", "nodes="},
                 {"evict", "nodes=1x", "1x"},
                 {"evict", "pool=-1", "pool=-1"},
                 {"evict", "", "''"},
                 {"evict", "pool=4294967295", "pool=4294967295"},
                 {"tape", "pat=/tmp/x", "'pat'"},
                 {"tape", "tokens=yes", "yes"},
                 {"pin", "on=2", "on=2"},
                 {"drain", "now=1", "'now'"},
                 {"reload", "all=1", "'all'"},
                 {"status", "hsah=1", "'hsah'"}};
    struct engine_session s = session_with(&e, 8, 2 * TOKENS);
    struct daemon_status before, after;
    struct tern *admin = rig_connected(rig.admin);
    const char *json;

    assert_ok(e.tern, engine_run(&s));
    close_session(&s);
    assert_true(admin_status(admin, e.pool, &before) && before.pages.snapshot >= 2);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        const char *arg = wrong[i].arg;

        assert_int_equal(tern_admin(admin, wrong[i].command, &arg, 1, 0, &json), TERN_INVALID);
        if (!strstr(tern_error_text(admin, NULL), wrong[i].named))
            fail_msg("%s %s: %s", wrong[i].command, arg, tern_error_text(admin, NULL));
    }
    assert_true(admin_status(admin, e.pool, &after));
    assert_int_equal(after.pages.snapshot, before.pages.snapshot);
    s = session_with(&e, 9, TOKENS); /* the daemon does not drain */
    close_session(&s);
    tern_destroy(admin);
}

/* Runs in a child, whose address space may be limited: the pool cannot be mapped. */
TEST(err_internal)
{
    int status;
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        struct rlimit none = {.rlim_cur = 0, .rlim_max = 0};
        struct engine small = {0};

        small = rig_engine(rig.socket, "small", TOKENS, POOL);
        setrlimit(RLIMIT_AS, &none);
        _exit((int)tern_pool_map(small.tern, small.pool, 0, &small.map));
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    provoked(NULL, TERN_INTERNAL, (enum tern_err)WEXITSTATUS(status),
             "a client without address space");
}

/* The text names the caller's mistake, and the connection stays open. */
static void refused(const char *word, enum tern_err got)
{
    assert_string_equal(err_name(got), err_name(TERN_INVALID));
    if (!strstr(engine_why(&e), word))
        fail_msg("no '%s' in: %s", word, engine_why(&e));
    assert_ok(e.tern, tern_ping(e.tern, 0));
}

TEST(a_refusal_names_what_is_wrong)
{
    static const uint32_t tokens[TOKENS] = {1};
    const struct tern_tokens list = {.v = tokens, .n = TOKENS, .base = 1};
    const struct tern_group kv = {.name = "kv", .page_tokens = TOKENS, .page_bytes = PAGE};
    const struct tern_layout layout = {
        .groups = &kv, .ngroups = 1, .align_tokens = TOKENS + 1, .bytes = POOL};
    struct tern_depths depths;
    uint64_t other;

    refused("align_tokens is 65, and must be at most 16384 and a multiple of 64,",
            tern_pool_open(e.tern, &layout, 0, &other, NULL));
    refused("whole token list", tern_peek(e.tern, e.pool, &e.ns, &list, 0, &depths));
    assert_err(TERN_TIMED_OUT, tern_wait_published(e.tern, 123456, 10));
    assert_non_null(
        strstr(tern_error_text(e.tern, NULL), "not every rank has published step 123456"));
}

/* Whatever is wrong with the second group, the text has its name, or its number if it has no
 * name. */
TEST(a_refused_layout_names_the_group)
{
    char name[300];
    const struct tern_axis axis = {.name = name, .length = 1, .stride_bytes = 1};
    const struct tern_group good = {.name = "kv", .page_tokens = TOKENS, .page_bytes = PAGE};
    struct tern_group wrong[8], groups[2] = {good};
    const struct tern_layout layout = {.groups = groups, .ngroups = 2, .bytes = POOL};
    static const char *const words[8] = {"multiple of 8", "1 to 4096",      "multiple of units",
                                         "a window and",  "at most 8 axes", "axis has at most 255",
                                         "name has at",   "two groups have"};
    uint64_t other;

    memset(name, 'x', sizeof(name));
    name[sizeof(name) - 1] = '\0';
    for (uint32_t i = 0; i < 8; i++) {
        wrong[i] = good;
        wrong[i].name = "second";
    }
    wrong[0].page_bytes = 100;
    wrong[1].page_tokens = 4097;
    wrong[2].units = 3;
    wrong[3].family = TERN_WINDOW;
    wrong[4].naxes = 9;
    wrong[5].axes = &axis;
    wrong[5].naxes = 1;
    wrong[6].name = name;
    wrong[7].name = "kv";
    for (uint32_t i = 0; i < 8; i++) {
        groups[1] = wrong[i];
        refused(words[i], tern_pool_open(e.tern, &layout, 0, &other, NULL));
        refused(i < 6    ? "group 'second'"
                : i == 6 ? "group 'xxxx"
                         : "group 'kv'",
                tern_pool_open(e.tern, &layout, 0, &other, NULL));
    }
    groups[1] = wrong[0];
    groups[1].name = NULL;
    refused("group 1, which has no name", tern_pool_open(e.tern, &layout, 0, &other, NULL));
}

/* The daemon gets the name for its log; it may have any length. */
TEST(a_program_with_a_long_name_connects)
{
    char name[300], *before = program_invocation_short_name;
    struct tern *t;

    memset(name, 'x', sizeof(name));
    name[sizeof(name) - 1] = '\0';
    program_invocation_short_name = name;
    t = rig_connected(rig.socket);
    program_invocation_short_name = before;
    tern_destroy(t);
}

TEST(every_error_was_provoked)
{
    for (uint32_t i = 0; i < TERN_ERR_COUNT; i++) {
        print_message("%-15s %s\n", err_name((enum tern_err)i), how[i] ? how[i] : "NOT PROVOKED");
        assert_non_null(how[i]);
        assert_string_not_equal(tern_strerror((enum tern_err)i), "");
    }
}
