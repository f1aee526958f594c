/* Provokes every error of the table through libtern and a real daemon. The last test fails when an
 * error of the table was provoked by none: who adds one adds the way to it here. MALFORMED as an
 * answer needs a raw socket, since libtern sends nothing malformed. INTERNAL as an answer is a bug
 * of the daemon and cannot be provoked; what can is its other meaning, the client's process out of
 * address space. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <jansson.h>

#include "base/err.h"
#include "engine/admin.h"
#include "engine/daemon.h"
#include "rig_daemon.h"
#include "tern.h"
#include "testing/test.h"

#define TOKENS   64
#define PAGE     4096
#define POOL     (2u << 20)
#define ROUND_MS RIG_WAIT_MS

static struct daemon source, rig; /* rig pulls from source */
static char dir[] = "/tmp/tern-errors-XXXXXX";
static struct tern *tern;
static struct tern_pool *pool_mapped;
static uint64_t pool;
static const struct tern_namespace ns = {.model = "m"};
static const char *how[TERN_ERR_COUNT];

/* The error came, and words with it that say what to do. */
static void provoked(struct tern *t, enum tern_err want, enum tern_err got, const char *by)
{
    assert_string_equal(err_name(got), err_name(want));
    if (t && want != TERN_OK)
        assert_string_not_equal(tern_error_text(t), "");
    how[want] = by;
}

static struct tern *joined(const struct daemon *d, const char *name, uint64_t *ret_pool,
                           struct tern_pool **ret_mapped)
{
    struct tern_group kv = {.name = "kv", .page_tokens = TOKENS, .page_bytes = PAGE};
    struct tern_layout layout = {.groups = &kv, .ngroups = 1, .bytes = POOL};
    struct tern *t;

    assert_int_equal(tern_connect(d->socket, ROUND_MS, &t), TERN_OK);
    assert_ok(t, tern_join(t, name, TERN_BOTH, 0, 1, 0));
    assert_ok(t, tern_pool_open(t, &layout, 0, ret_pool, NULL));
    assert_ok(t, tern_pool_map(t, *ret_pool, 0, ret_mapped));
    return t;
}

static void daemon_up(struct daemon *d, const char *node, uint16_t port, const char *peer,
                      uint16_t peer_port)
{
    const struct daemon_options options = {
        .node = node,
        .port = port,
        .peer = peer,
        .peer_port = peer_port,
        .memory_bytes = 8u << 20,
        .regions = 1,
        .page_bytes_min = PAGE,
        .core = -1,
    };
    char why[SPAWN_WHY_BYTES];

    if (!daemon_start(d, dir, &options, why))
        fail_msg("%s: %s", node, why);
}

FIXTURE(start)
{
    uint16_t ports[2] = {port_free(), port_free()};
    const char *bin = getenv("TERN_BIN");
    char ternd[4096];

    snprintf(ternd, sizeof(ternd), "%s/ternd", bin ? bin : "build/bin");
    setenv("TERND", ternd, 0);
    source.pid = rig.pid = -1;
    assert_non_null(mkdtemp(dir));
    daemon_up(&source, "source", ports[0], "rig", ports[1]);
    daemon_up(&rig, "rig", ports[1], "source", ports[0]);
    tern = joined(&rig, "engine", &pool, &pool_mapped);
    return 0;
}

FIXTURE(stop)
{
    char command[64];

    tern_destroy(tern);
    daemon_stop(&rig);
    daemon_stop(&source);
    snprintf(command, sizeof(command), "rm -rf '%s'", dir);
    return system(command);
}

static struct tern_tokens list_of(uint32_t *tokens, uint32_t salt, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = salt * 100000u + i;
    return (struct tern_tokens){.v = tokens, .n = n};
}

static tern_session session_with(struct tern *t, uint64_t in, uint32_t salt, uint32_t n)
{
    static uint32_t tokens[1u << 16];
    struct tern_tokens list = list_of(tokens, salt, n);
    struct tern_result r;
    tern_session s;

    assert_ok(t, tern_session_open(t, in, &ns, 0, &s));
    if (n)
        assert_ok(t, tern_match(t, s, &list, 0, 0, &r));
    return s;
}

static void close_session(struct tern *t, tern_session s)
{
    struct tern_op op = {.kind = TERN_CLOSE, .session = s};
    struct tern_result r;

    assert_ok(t, tern_do(t, &op, 0, &r));
}

TEST_GROUP(start, stop);

TEST(err_ok)
{
    provoked(tern, TERN_OK, tern_ping(tern, 0), "Ping");
}

TEST(err_invalid)
{
    tern_session s = session_with(tern, pool, 1, 2 * TOKENS);
    struct tern_op op = {.kind = TERN_COMMIT, .session = s, .length = TOKENS};
    struct tern_result r;

    provoked(tern, TERN_INVALID, tern_do(tern, &op, 0, &r), "a commit of what was not written");
    close_session(tern, s);
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
    struct tern *admin;
    const char *json;

    assert_int_equal(tern_connect(rig.admin, ROUND_MS, &admin), TERN_OK);
    provoked(admin, TERN_UNSUPPORTED, tern_admin(admin, "levitate", NULL, 0, 0, &json),
             "an admin command that does not exist");
    tern_destroy(admin);
}

TEST(err_conflict)
{
    struct tern *other;

    assert_int_equal(tern_connect(rig.socket, ROUND_MS, &other), TERN_OK);
    provoked(other, TERN_CONFLICT, tern_join(other, "engine", TERN_BOTH, 0, 1, 0),
             "joining as a rank that is taken");
    tern_destroy(other);
}

TEST(err_pool_exhausted)
{
    tern_session s = session_with(tern, pool, 2, 0);
    struct tern_op op = {
        .kind = TERN_EXTEND, .session = s, .length = POOL / PAGE * TOKENS + TOKENS};
    struct tern_result r;

    provoked(tern, TERN_POOL_EXHAUSTED, tern_do(tern, &op, 0, &r), "extending beyond the pool");
    assert_int_equal(r.err, TERN_POOL_EXHAUSTED);
    assert_int_equal(r.shortage.needed, POOL / PAGE + 1);
    assert_true(r.shortage.free > 0 && r.shortage.free < POOL / PAGE);
    assert_true(r.shortage.until_step == 0); /* nothing retires: waiting would not help */
    close_session(tern, s);
}

TEST(err_timed_out)
{
    kill(rig.pid, SIGSTOP);
    provoked(tern, TERN_TIMED_OUT, tern_ping(tern, 50), "a daemon that is stopped");
    kill(rig.pid, SIGCONT);
    assert_ok(tern, tern_ping(tern, ROUND_MS)); /* and the connection lives on */
}

TEST(err_busy)
{
    struct tern_group kv = {.name = "kv", .page_tokens = TOKENS, .page_bytes = PAGE};
    struct tern_layout layout = {.groups = &kv, .ngroups = 1, .bytes = POOL};
    struct tern *half;
    uint64_t handle;

    assert_int_equal(tern_connect(rig.socket, ROUND_MS, &half), TERN_OK);
    assert_ok(half, tern_join(half, "half", TERN_SCHEDULER, 0, 1, 0));
    provoked(half, TERN_BUSY, tern_pool_open(half, &layout, 0, &handle, NULL),
             "a pool before every rank has joined");
    tern_destroy(half);
}

TEST(err_gone)
{
    tern_session s = session_with(tern, pool, 4, 0);
    struct tern_tokens none = {0};
    struct tern_result r;

    close_session(tern, s);
    provoked(tern, TERN_GONE, tern_match(tern, s, &none, 0, 0, &r), "a session that was closed");
}

TEST(err_denied)
{
    const char *json;

    provoked(tern, TERN_DENIED, tern_admin(tern, "status", NULL, 0, 0, &json),
             "an admin request on a tenant's socket");
}

TEST(err_quota)
{
    struct tern_group kv = {.name = "kv", .page_tokens = TOKENS, .page_bytes = PAGE};
    struct tern_layout layout = {.groups = &kv, .ngroups = 1, .bytes = 1u << 30};
    uint64_t handle;

    provoked(tern, TERN_QUOTA, tern_pool_open(tern, &layout, 0, &handle, NULL),
             "a pool larger than the tenant's memory");
}

/* Until peers may fetch all that the source has. */
static void wait_sealed(void)
{
    uint64_t end = rig_now_ms() + ROUND_MS;
    uint32_t missing = 1;
    struct tern *admin;

    assert_int_equal(tern_connect(source.admin, ROUND_MS, &admin), TERN_OK);
    while (missing > 0) {
        json_t *root = admin_ask(admin, "tree", NULL), *rows = json_object_get(root, "tree"), *row;
        size_t i;

        missing = json_array_size(rows) == 0;
        json_array_foreach(rows, i, row) missing +=
            json_integer_value(json_object_get(row, "depth")) > 0 &&
            !json_is_true(json_object_get(row, "sealed"));
        json_decref(root);
        assert_true(rig_now_ms() < end);
    }
    tern_destroy(admin);
}

/* The source's own engine writes into a page after it was committed and sealed: each try of the
 * puller sees bytes that do not agree with their checksum. */
TEST(err_corrupt)
{
    static uint32_t tokens[4 * TOKENS];
    struct tern_tokens list = list_of(tokens, 5, 4 * TOKENS);
    struct tern_pool *mapped;
    uint64_t there;
    struct tern *t = joined(&source, "prefill", &there, &mapped);
    tern_session from = session_with(t, there, 5, 4 * TOKENS), to;
    struct tern_op op = {
        .kind = TERN_EXTEND, .session = from, .length = 4 * TOKENS, .written = 4 * TOKENS};
    struct tern_result r;
    enum tern_err err = TERN_BUSY;

    assert_ok(t, tern_do(t, &op, 0, &r));
    for (uint32_t i = 0; i < r.runs[0].n; i++)
        memset(tern_pool_base(mapped) + (size_t)r.runs[0].pages[i].index * PAGE, 7, PAGE);
    {
        uint32_t second = r.runs[0].pages[1].index;

        op = (struct tern_op){.kind = TERN_COMMIT, .session = from, .length = 4 * TOKENS};
        assert_ok(t, tern_do(t, &op, 0, &r));
        wait_sealed(); /* checksums are the daemon's, made in the background */
        tern_pool_base(mapped)[(size_t)second * PAGE + 100] ^= 1;
    }
    to = session_with(tern, pool, 5, 4 * TOKENS);
    for (uint64_t end = rig_now_ms() + ROUND_MS;
         rig_now_ms() < end && (err == TERN_BUSY || err == TERN_PEER_LOST);) {
        err = tern_fetch(tern, to, "source", 0, ROUND_MS, &r); /* the link may still be coming up */
        usleep(20000);
    }
    provoked(tern, TERN_CORRUPT, err, "fetching a page whose bytes changed after its checksum");
    close_session(tern, to);
    assert_int_equal(list.n, 4 * TOKENS);
    tern_destroy(t);
}

/* Behind all that fetch: the source is gone then. */
TEST(err_peer_lost)
{
    tern_session s = session_with(tern, pool, 3, 2 * TOKENS);
    struct tern_result r;

    daemon_stop(&source); /* whether or not the end of the connection is seen by now */
    provoked(tern, TERN_PEER_LOST, tern_fetch(tern, s, "source", 0, ROUND_MS, &r),
             "fetching from a peer that is down");
    close_session(tern, s);
}

TEST(err_disk)
{
    const char *json, *args[] = {"path=/nowhere/at/all.tape"};
    struct tern *admin;

    assert_int_equal(tern_connect(rig.admin, ROUND_MS, &admin), TERN_OK);
    provoked(admin, TERN_DISK, tern_admin(admin, "tape", args, 1, 0, &json),
             "a tape where no file can be (there is no disk tier in this build)");
    tern_destroy(admin);
}

/* Mistyped, an argument is refused by its name, and nothing is done without it. */
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
    tern_session s = session_with(tern, pool, 8, 2 * TOKENS);
    struct tern_op op = {
        .kind = TERN_EXTEND, .session = s, .length = 2 * TOKENS, .written = 2 * TOKENS};
    struct daemon_status before, after;
    struct tern_result r;
    struct tern *admin;
    const char *json;

    assert_ok(tern, tern_do(tern, &op, 0, &r));
    op = (struct tern_op){.kind = TERN_COMMIT, .session = s, .length = 2 * TOKENS};
    assert_ok(tern, tern_do(tern, &op, 0, &r));
    close_session(tern, s);
    assert_int_equal(tern_connect(rig.admin, ROUND_MS, &admin), TERN_OK);
    assert_true(admin_status(admin, pool, &before) && before.pages.snapshot >= 2);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        const char *arg = wrong[i].arg;

        assert_int_equal(tern_admin(admin, wrong[i].command, &arg, 1, 0, &json), TERN_INVALID);
        if (!strstr(tern_error_text(admin), wrong[i].named))
            fail_msg("%s %s: %s", wrong[i].command, arg, tern_error_text(admin));
    }
    assert_true(admin_status(admin, pool, &after));
    assert_int_equal(after.pages.snapshot, before.pages.snapshot);
    s = session_with(tern, pool, 9, TOKENS); /* it does not drain */
    close_session(tern, s);
    tern_destroy(admin);
}

/* In a child, whose address space may be limited: the pool cannot be mapped. */
TEST(err_internal)
{
    int status;
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        struct rlimit none = {.rlim_cur = 0, .rlim_max = 0};
        struct tern_pool *mapped;
        uint64_t handle;
        struct tern *t = joined(&rig, "small", &handle, &mapped);

        setrlimit(RLIMIT_AS, &none);
        _exit((int)tern_pool_map(t, handle, 0, &mapped));
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    provoked(NULL, TERN_INTERNAL, (enum tern_err)WEXITSTATUS(status),
             "a client without address space");
}

/* What the caller got wrong is in the text, and the connection lives on. */
static void refused(const char *word, enum tern_err got)
{
    assert_string_equal(err_name(got), err_name(TERN_INVALID));
    if (!strstr(tern_error_text(tern), word))
        fail_msg("no '%s' in: %s", word, tern_error_text(tern));
    assert_ok(tern, tern_ping(tern, 0));
}

TEST(a_refusal_names_what_is_wrong)
{
    char name[300];
    struct tern_axis axis = {.name = name, .length = 1, .stride_bytes = 1};
    struct tern_group kv = {.name = "kv", .page_tokens = TOKENS, .page_bytes = 100};
    struct tern_layout layout = {.groups = &kv, .ngroups = 1, .bytes = POOL};
    struct tern_op op = {.kind = (enum tern_op_kind)99};
    uint32_t tokens[TOKENS], depth;
    struct tern_tokens list = list_of(tokens, 1, TOKENS);
    struct tern_result r;
    uint64_t other;

    memset(name, 'x', sizeof(name));
    name[sizeof(name) - 1] = '\0';
    refused("multiple of 8", tern_pool_open(tern, &layout, 0, &other, NULL));
    kv.page_bytes = PAGE;
    kv.name = name;
    refused("255 bytes", tern_pool_open(tern, &layout, 0, &other, NULL));
    kv.name = "kv";
    kv.axes = &axis;
    kv.naxes = 1;
    refused("255 bytes", tern_pool_open(tern, &layout, 0, &other, NULL));
    refused("kind of operation", tern_do(tern, &op, 0, &r));
    list.base = 1;
    refused("whole token list", tern_peek(tern, pool, &ns, &list, 0, &depth));
}

/* It is told to the daemon for its log, and may be of any length. */
TEST(a_program_with_a_long_name_connects)
{
    char name[300], *before = program_invocation_short_name;
    struct tern *t = NULL;

    memset(name, 'x', sizeof(name));
    name[sizeof(name) - 1] = '\0';
    program_invocation_short_name = name;
    assert_int_equal(tern_connect(rig.socket, ROUND_MS, &t), TERN_OK);
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
