/* Wrong input of a client on a socket: the daemon returns a typed error or closes that connection,
 * its memory does not grow, and the others are served. Faults 16, 17, 22 to 26 and 40 of the fault
 * table. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/stats.h"
#include "rig_daemon.h"
#include "testing/test.h"

#define LOG_RESTS_MS   1000 /* until a line is logged again, whatever was logged before */
#define SLACK_MS       3500 /* over a deadline, on a busy machine; the daemon's own are longer */
#define RSS_SLACK      4096 /* KiB that the daemon may grow by */
#define WITNESS_MS     500  /* computed at most while the other client waits */
#define DEEP_LEVELS    100000
#define FLOOD_ROUNDS   20
#define PINGS          200 /* of the other client, alone */
#define PINGS_A_SECOND 100 /* beside a slow reader, at most */

static struct daemon rig;
static struct rig_answer answer;
static int witness;
static uint64_t witness_id = 1, computed; /* by the daemon, at the last check of the witness */

FIXTURE(start)
{
    rig_start(&rig, NULL, NULL);
    witness = rig_greeted(rig.socket);
    computed = rig_cpu_ms(&rig);
    return 0;
}

/* For tests that wait for a deadline to pass. */
FIXTURE(start_short)
{
    rig_deadlines.progress_ms = RIG_PARTIAL_MS;
    return start(state);
}

FIXTURE(stop)
{
    close(witness);
    assert_int_equal(rig_stop(&rig), 0);
    return 0;
}

static uint64_t most_rss_kib = UINT64_MAX; /* limit of the daemon's memory in this test */

/* The other client gets its answers at once, whatever happens: before its own deadlines, and with
 * little computing of the daemon since the last check, which shows on a slow machine, too. And the
 * daemon's memory is unchanged. */
static void others_are_served(void)
{
    uint64_t now;

    assert_true(rig_alive(&rig));
    assert_true(rig_rss_kib(&rig) <= most_rss_kib);
    assert_true(rig_ping(witness, ++witness_id, RIG_AT_ONCE_MS));
    now = rig_cpu_ms(&rig);
    assert_true(now - computed <= WITNESS_MS);
    computed = now;
}

/* Around tests that send no frame, or half of one. */
FIXTURE(memory_is_noted)
{
    most_rss_kib = rig_rss_kib(&rig) + RSS_SLACK;
    return 0;
}

FIXTURE(memory_is_flat)
{
    others_are_served();
    most_rss_kib = UINT64_MAX;
    return 0;
}

static void expect_status(int fd, uint16_t type, uint64_t id, enum tern_err err)
{
    assert_int_equal(rig_read(fd, RIG_WAIT_MS, &answer), RIG_FRAME);
    assert_int_equal(answer.h.type, type);
    assert_int_equal(answer.h.request_id, id);
    assert_int_equal(rig_status(&answer), err);
}

/* The request gets this answer. */
static void answered(int fd, uint16_t type, uint64_t id, const ProtobufCMessage *m,
                     enum tern_err err)
{
    assert_true(rig_message(fd, type, id, 0, m));
    expect_status(fd, (uint16_t)(type + 1), id, err);
}

TEST_GROUP(start, stop);

TEST(protocol_request_before_hello_is_closed)
{
    Tern__Wire__Empty m = TERN__WIRE__EMPTY__INIT;
    int fd = rig_connect(rig.socket);

    assert_true(rig_message(fd, FRAME_PING, 1, 0, &m.base));
    assert_closed_at_once(fd);
    others_are_served();
}

TEST(protocol_hello_without_common_version_is_unsupported)
{
    Tern__Wire__Hello hello = TERN__WIRE__HELLO__INIT;
    int fd = rig_connect(rig.socket);

    hello.has_version_min = hello.has_version_max = true;
    hello.version_min = WIRE_VERSION + 1;
    hello.version_max = WIRE_VERSION + 9;
    answered(fd, FRAME_HELLO, 7, &hello.base, TERN_UNSUPPORTED);
    assert_closed_at_once(fd);
}

/* Sends a header with that length and version alone: the connection ends before any body. */
static void closed_at_header(uint32_t length, uint16_t version, bool in_two)
{
    struct frame_header h = {
        .length = length, .version = version, .type = FRAME_PING, .request_id = 2};
    uint8_t head[FRAME_HEADER_BYTES];
    int fd = rig_greeted(rig.socket);
    uint32_t half = in_two ? 11 : FRAME_HEADER_BYTES;

    frame_encode(&h, head);
    assert_true(rig_write(fd, head, half));
    if (in_two) {
        usleep(20000);
        assert_true(rig_write(fd, head + half, FRAME_HEADER_BYTES - half));
    }
    assert_closed_at_once(fd);
}

TEST_WITH(protocol_impossible_header_is_closed_at_once, memory_is_noted, memory_is_flat)
{
    for (int in_two = 0; in_two < 2; in_two++) {
        closed_at_header(0, FRAME_VERSION, in_two);
        closed_at_header(RIG_BODY_MAX + 1, FRAME_VERSION, in_two);
        closed_at_header(UINT32_MAX, FRAME_VERSION, in_two);
        closed_at_header(8, FRAME_VERSION + 1, in_two);
        closed_at_header(8, 0, in_two);
    }
    others_are_served();
    /* test_noalloc.sh runs this and prints the number of allocations. */
    printf("fault=24 runs=2 injected=6 violations=0\n");
}

TEST_WITH(protocol_largest_frame_is_read, memory_is_noted, memory_is_flat)
{
    uint8_t *body = calloc(1, RIG_BODY_MAX);
    int fd = rig_greeted(rig.socket);
    /* Field 100, bytes, to the end of the body: every reader ignores it. */
    const uint8_t head[] = {0xa2, 0x06, 0xfb, 0xff, 0x3f};

    assert_non_null(body);
    memcpy(body, head, sizeof(head));
    assert_true(rig_frame(fd, FRAME_PING, 2, body, RIG_BODY_MAX));
    expect_status(fd, FRAME_PING_REPLY, 2, TERN_OK);
    assert_true(rig_ping(fd, 3, RIG_WAIT_MS));
    close(fd);
    free(body);
}

TEST_WITH(protocol_unknown_request_is_unsupported_and_lives, memory_is_noted, memory_is_flat)
{
    static const uint16_t types[] = {0, 2, 123, 125, 127, 131, 200, 65535};
    Tern__Wire__Empty m = TERN__WIRE__EMPTY__INIT;
    int fd = rig_greeted(rig.socket);
    uint64_t id = 1;

    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        assert_true(rig_message(fd, types[i], ++id, 0, &m.base));
        expect_status(fd, (uint16_t)(types[i] + 1), id, TERN_UNSUPPORTED);
    }
    assert_true(rig_message(fd, FRAME_ADMIN, ++id, 0, &m.base));
    expect_status(fd, FRAME_ADMIN_REPLY, id, TERN_DENIED);
    assert_true(rig_ping(fd, ++id, RIG_WAIT_MS));
    close(fd);
}

TEST(protocol_admin_socket_refuses_engines)
{
    Tern__Wire__EngineJoin join = TERN__WIRE__ENGINE_JOIN__INIT;
    int fd = rig_greeted(rig.admin);

    answered(fd, FRAME_ENGINE_JOIN, 2, &join.base, TERN_DENIED);
    assert_true(rig_ping(fd, 3, RIG_WAIT_MS));
    close(fd);
}

static void join(int fd, uint64_t id, const char *name)
{
    Tern__Wire__EngineJoin m = TERN__WIRE__ENGINE_JOIN__INIT;

    m.name = (char *)(uintptr_t)name;
    m.has_role = m.has_world = true;
    m.role = 2; /* rank and scheduler in one */
    m.world = 1;
    assert_true(rig_message(fd, FRAME_ENGINE_JOIN, id, 0, &m.base));
}

/* Fault 26, under the same id; test_faults.c has it under a new one. */
TEST(protocol_duplicate_id_has_one_effect)
{
    int fd = rig_greeted(rig.socket);

    join(fd, 5, "twice");
    expect_status(fd, FRAME_ENGINE_JOIN_REPLY, 5, TERN_OK);
    for (uint64_t id = 0; id <= 5; id++) {
        join(fd, id, "twice-again");
        expect_status(fd, FRAME_ENGINE_JOIN_REPLY, id, TERN_CONFLICT);
    }
    assert_true(rig_ping(fd, 6, RIG_WAIT_MS));
    close(fd);
}

static void malformed(uint16_t type, const void *body, size_t n)
{
    int fd = rig_greeted(rig.socket);

    assert_true(rig_frame(fd, type, 2, body, n));
    expect_status(fd, (uint16_t)(type + 1), 2, TERN_MALFORMED);
    assert_closed_at_once(fd);
    others_are_served();
}

TEST_WITH(protocol_malformed_body_is_answered_and_closed, memory_is_noted, memory_is_flat)
{
    static const uint8_t cut[] = {0x0a, 0x7f, 0x01}, group[] = {0x0b, 0x0c},
                         tag[] = {0xff, 0xff, 0xff};
    static const uint8_t tokens[] = {0x0a, 0x05, 0x12, 0x03, 1, 2, 3}; /* not a multiple of 4 */

    malformed(FRAME_STEP, cut, sizeof(cut));
    malformed(FRAME_ENGINE_JOIN, group, sizeof(group));
    malformed(FRAME_PING, tag, sizeof(tag));
    malformed(FRAME_MATCH, tokens, sizeof(tokens));
}

TEST_WITH(protocol_empty_submessages_keep_memory_flat, memory_is_noted, memory_is_flat)
{
    uint8_t *body = malloc(RIG_BODY_MAX);
    uint64_t rss = 0;

    assert_non_null(body);
    for (size_t i = 0; i < RIG_BODY_MAX; i += 2) {
        body[i] = 0x0a; /* field 1: a StepOp, a Group */
        body[i + 1] = 0;
    }
    for (int i = 0; i < 6; i++) {
        malformed(FRAME_STEP, body, RIG_BODY_MAX);
        malformed(FRAME_POOL_OPEN, body, RIG_BODY_MAX);
        if (i == 0)
            rss = rig_rss_kib(&rig);
    }
    assert_true(rig_rss_kib(&rig) <= rss + RSS_SLACK);
    free(body);
}

TEST_WITH(protocol_deep_nesting_does_not_recurse, memory_is_noted, memory_is_flat)
{
    static const uint16_t types[] = {FRAME_STEP, FRAME_POOL_OPEN, FRAME_MATCH, FRAME_PEEK,
                                     FRAME_PING};
    uint8_t *body = malloc(RIG_BODY_MAX), *end = body + RIG_BODY_MAX;

    assert_non_null(body);
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        for (uint32_t field = 1; field <= 7; field += 6) {
            size_t n = rig_nest(end, field, DEEP_LEVELS);
            int fd = rig_greeted(rig.socket);

            assert_true(rig_frame(fd, types[i], 2, end - n, n));
            assert_int_equal(rig_read(fd, RIG_WAIT_MS, &answer), RIG_FRAME);
            assert_int_equal(answer.h.type, types[i] + 1);
            close(fd);
            others_are_served();
        }
    }
    free(body);
}

/* A silent connection is closed at its deadline, and not before. */
static void silent_is_closed_at_deadline(void)
{
    uint64_t start_ms = rig_now_ms();
    int fd = rig_connect(rig.socket);

    assert_true(rig_until_closed(fd, RIG_PARTIAL_MS + SLACK_MS) != UINT32_MAX);
    assert_true(rig_now_ms() - start_ms >= RIG_PARTIAL_MS / 2);
    close(fd);
}

TEST(protocol_frames_in_every_split_are_whole)
{
    Tern__Wire__Empty m = TERN__WIRE__EMPTY__INIT;
    int fd = rig_greeted(rig.socket);
    uint8_t frame[2 * (FRAME_HEADER_BYTES + 16)];
    size_t n = 0;
    uint64_t id = 1;

    m.has_trace_id = true;
    m.trace_id = 12345;
    for (size_t cut = 1; cut < 2 * (FRAME_HEADER_BYTES + 3); cut++) {
        struct frame_header h = {.version = FRAME_VERSION, .type = FRAME_PING};

        n = 0;
        for (int i = 0; i < 2; i++) {
            size_t one;

            h.request_id = ++id;
            assert_int_equal(wire_encode(&h, &m.base, 64, frame + n, sizeof(frame) - n, &one),
                             TERN_OK);
            n += one;
        }
        assert_true(cut < n);
        assert_true(rig_write(fd, frame, cut));
        usleep(1000);
        assert_true(rig_write(fd, frame + cut, n - cut));
        expect_status(fd, FRAME_PING_REPLY, id - 1, TERN_OK);
        expect_status(fd, FRAME_PING_REPLY, id, TERN_OK);
    }
    close(fd);
}

/* Measures how long the others wait for an answer, in microseconds. */
static void others_are_served_in(struct series *took)
{
    uint64_t from = clock_ns();

    assert_true(rig_ping(witness, ++witness_id, RIG_AT_ONCE_MS));
    series_add(took, (double)(clock_ns() - from) / 1e3);
}

/* Sends requests and reads a byte now and then: the daemon's socket fills, then its queue. */
TEST(protocol_slow_reader_is_closed_and_others_are_served)
{
    static uint8_t frames[512 * RIG_STATS_BYTES];
    int fd = rig_greeted(rig.socket);
    uint64_t rss, id = 2, end_ms = rig_now_ms() + RIG_WAIT_MS;
    bool open = true, full = false;
    struct series alone, beside;
    uint32_t pings = 0;
    uint8_t byte;

    series_init(&alone, PINGS);
    series_init(&beside, PINGS);
    for (uint32_t i = 0; i < PINGS; i++)
        others_are_served_in(&alone);
    usleep(LOG_RESTS_MS *
           1000); /* many connections have ended: lines of that event were suppressed */
    fcntl(fd, F_SETFL, O_NONBLOCK);
    rss = rig_rss_kib(&rig);
    while (open && rig_now_ms() < end_ms) {
        rig_stats_frames(frames, 512, id);
        id += 512;
        errno = 0;
        if (send(fd, frames, sizeof(frames), MSG_NOSIGNAL) < (ssize_t)sizeof(frames)) {
            open = errno == EAGAIN || errno == 0;
            if (!full) /* from now on the daemon has more than it can send */
                end_ms = rig_now_ms() + RIG_AT_ONCE_MS;
            full = true;
        }
        others_are_served();
        others_are_served_in(&beside);
        if (pings++ % PINGS_A_SECOND == 0)
            (void)!read(fd, &byte, 1);
        usleep(10000);
    }
    assert_false(open);
    close(fd);
    /* The connection's queue was full, or with it its tenant's share: the log says which. */
    wait_until(daemon_log_count(&rig, "reads too slowly", 1, 0) > 0 ||
               daemon_log_count(&rig, "limits.send_buffers, or read faster", 1, 0) > 0);
    assert_true(rig_rss_kib(&rig) <= rss + RSS_SLACK + 16384); /* the queues, which are bounded */
    others_are_served();
    printf("fault=22 runs=1 injected=1 violations=0 others_failed=0 others_pings=%u "
           "others_p99=%.2f\n",
           pings, series_quantile(&beside, 0.99) / series_quantile(&alone, 0.99));
    series_finish(&alone);
    series_finish(&beside);
}

TEST(protocol_connections_above_the_limit_are_refused)
{
    int fds[RIG_CONNS_MAX];
    struct tern *t = NULL;
    uint64_t rss = 0;

    for (int round = 0; round < FLOOD_ROUNDS; round++) {
        int n = 0, extra;

        while (n < RIG_CONNS_MAX - 1) /* the witness has one; the last round's may still end */
            fds[n++] = rig_greeted_in_time(rig.socket);
        extra = rig_connect(rig.socket); /* has no slot, so the answer comes before any request */
        assert_int_equal(rig_read(extra, RIG_AT_ONCE_MS, &answer), RIG_FRAME);
        assert_int_equal(rig_status(&answer), TERN_QUOTA);
        assert_closed_at_once(extra);
        assert_int_equal(tern_connect(rig.socket, RIG_WAIT_MS, &t), TERN_QUOTA);
        assert_string_equal(tern_error_text(NULL, NULL),
                            "tenant t0 has 24 connections, and may have no "
                            "more: close one, or raise its conns_max");
        for (int i = 0; i < n; i++)
            assert_true(rig_ping(fds[i], 2, RIG_WAIT_MS));
        others_are_served();
        while (n > 0)
            close(fds[--n]);
        if (round == 0)
            rss = rig_rss_kib(&rig);
    }
    assert_true(rig_rss_kib(&rig) <= rss + RSS_SLACK);
    assert_true(rig_log_has(&rig, "event=conn_limit tenant=t0 err=QUOTA reason=", RIG_WAIT_MS));
    close(rig_greeted_in_time(rig.socket));
}

TEST(protocol_operators_above_the_limit_are_told_and_counted)
{
    struct tern *admin[17] = {0};
    uint64_t before;

    assert_int_equal(tern_connect(rig.admin, RIG_WAIT_MS, &admin[0]), TERN_OK);
    before = rig_figure(admin[0], "status", "conns_refused");
    for (int i = 1; i < 16; i++)
        assert_int_equal(tern_connect(rig.admin, RIG_WAIT_MS, &admin[i]), TERN_OK);
    for (unsigned i = 1; i <= 3; i++) {
        assert_int_equal(tern_connect(rig.admin, RIG_WAIT_MS, &admin[16]), TERN_BUSY);
        assert_non_null(
            strstr(tern_error_text(NULL, NULL), "operators are connected, the maximum"));
        assert_int_equal(rig_figure(admin[0], "status", "conns_refused"), before + i);
    }
    for (int i = 0; i < 16; i++)
        tern_destroy(admin[i]);
    others_are_served();
}

/* The answer that a process of its own gets. */
static enum tern_err connect_elsewhere(const char *path)
{
    struct tern *t = NULL;
    pid_t pid = fork();
    int status;

    assert_true(pid >= 0);
    if (pid == 0)
        _exit((int)tern_connect(path, 0, &t));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return (enum tern_err)WEXITSTATUS(status);
}

/* Another process is refused in its Hello; the watched one may connect again, and its exit frees a
 * place. */
TEST(protocol_processes_above_the_limit_are_busy)
{
    char small[sizeof rig.socket + 8], extra[sizeof small + 128];
    struct daemon d;
    int fd;

    snprintf(small, sizeof small, "%s.small", rig.socket);
    snprintf(extra, sizeof extra, "  - {name: small, socket: %s, memory: 1M, conns_max: 1}\n",
             small);
    rig_start(&d, extra, NULL);
    assert_err(TERN_OK, connect_elsewhere(small));
    close(rig_greeted_in_time(small));                 /* once the daemon has seen that exit */
    wait_until(connect_elsewhere(small) == TERN_BUSY); /* once it has seen this end */
    assert_true(rig_log_has(&d, "as its conns_max", RIG_WAIT_MS));
    fd = rig_greeted(small);
    assert_true(rig_ping(fd, 2, RIG_WAIT_MS));
    close(fd);
    assert_int_equal(rig_stop(&d), 0);
}

/* Fault 17: no descriptor is left. Open connections live on; accepting resumes by itself. */
TEST(protocol_lack_of_descriptors_pauses_accept_only)
{
    static const char extra[] = "limits:\n  engines: 4\n";
    struct daemon d;
    char env[64];
    int fds[6], late[10];

    rig_start(&d, extra, NULL);
    snprintf(env, sizeof(env), RIG_NOFILE "%u", rig_fds(&d) + 10);
    assert_int_equal(rig_stop(&d), 0);
    rig_start(&d, extra, env);
    for (int i = 0; i < 6; i++)
        fds[i] = rig_greeted(d.socket);
    for (int i = 0; i < 10; i++)
        late[i] = rig_connect(d.socket);
    assert_true(rig_log_has(&d, "event=accept_paused", RIG_WAIT_MS));
    for (int i = 0; i < 6; i++)
        assert_true(rig_ping(fds[i], 2, RIG_WAIT_MS));
    for (int i = 0; i < 10; i++)
        close(late[i]);
    /* Closed connections are still in the backlog, and use up free descriptors when accepted. */
    close(rig_greeted_in_time(d.socket));
    for (int i = 0; i < 6; i++) {
        assert_true(rig_ping(fds[i], 3, RIG_WAIT_MS));
        close(fds[i]);
    }
    assert_int_equal(rig_stop(&d), 0);
    printf("fault=17 runs=1 injected=10 violations=0 lost_clients=0\n");
}

/* Large half frames: those above the tenant's share of buffers are answered BUSY, and the
 * connection continues after their bodies. */
TEST_WITH(protocol_large_frames_above_the_share_are_busy, memory_is_noted, memory_is_flat)
{
    struct frame_header h = {
        .length = 100000, .version = FRAME_VERSION, .type = FRAME_PING, .request_id = 2};
    uint8_t *frame = calloc(1, FRAME_HEADER_BYTES + 100000);
    int fds[8], fd;

    assert_non_null(frame);
    frame_encode(&h, frame);
    for (int i = 0; i < 8; i++) {
        fds[i] = rig_greeted(rig.socket);
        assert_true(rig_write(fds[i], frame, 5000));
        others_are_served();
    }
    fd = rig_greeted(rig.socket);
    assert_true(rig_write(fd, frame, 50000));
    expect_status(fd, FRAME_PING_REPLY, 2, TERN_BUSY);
    assert_true(rig_write(fd, frame + 50000, FRAME_HEADER_BYTES + 50000));
    assert_true(rig_ping(fd, 3, RIG_WAIT_MS));
    for (int i = 0; i < 8; i++)
        close(fds[i]);
    close(fd);
    free(frame);
    others_are_served();
}

/* Joins as that engine and opens a pool, with the requests 2 and 3. */
static uint64_t joined_with_pool(int fd, const char *name)
{
    Tern__Wire__Group group = TERN__WIRE__GROUP__INIT, *list[1] = {&group};
    Tern__Wire__PoolOpen m = TERN__WIRE__POOL_OPEN__INIT;
    const Tern__Wire__PoolOpenReply *reply;

    group.name = (char *)(uintptr_t) "kv";
    group.has_page_tokens = group.has_page_bytes = true;
    group.page_tokens = 64;
    group.page_bytes = 4096;
    m.n_groups = 1;
    m.groups = list;
    m.has_bytes = true;
    m.bytes = 4 << 20;
    join(fd, 2, name);
    expect_status(fd, FRAME_ENGINE_JOIN_REPLY, 2, TERN_OK);
    answered(fd, FRAME_POOL_OPEN, 3, &m.base, TERN_OK);
    reply = rig_decoded(&answer, FRAME_POOL_OPEN_REPLY);
    return reply->pool;
}

/* Fault 40. */
TEST_WITH(protocol_pool_cannot_be_truncated, memory_is_noted, memory_is_flat)
{
    Tern__Wire__PoolRef m = TERN__WIRE__POOL_REF__INIT;
    int fd = rig_greeted(rig.socket);
    struct stat st;

    m.has_pool = true;
    m.pool = joined_with_pool(fd, "truncator");
    answered(fd, FRAME_POOL_MAP, 4, &m.base, TERN_OK);
    assert_int_equal(answer.nfds, 3);
    assert_int_not_equal(ftruncate(answer.fds[2], 0), 0); /* the bell has no memory */
    close(answer.fds[2]);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(fstat(answer.fds[i], &st), 0);
        assert_int_not_equal(ftruncate(answer.fds[i], 0), 0);
        assert_int_equal(errno, EPERM);
        assert_int_not_equal(ftruncate(answer.fds[i], st.st_size * 2), 0);
        assert_int_equal(fcntl(answer.fds[i], F_ADD_SEALS, F_SEAL_WRITE), -1);
        close(answer.fds[i]);
    }
    assert_true(rig_ping(fd, 5, RIG_WAIT_MS));
    close(fd);
    others_are_served();
}

TEST(protocol_second_daemon_leaves_the_first_alone)
{
    assert_int_equal(daemon_run_twin(&rig), 1);
    others_are_served();
    close(rig_greeted(rig.socket));
}

/* Fault 38: clients connected when the daemon begins to drain are served until it is done. */
TEST(drain_serves_sessions_until_its_deadline)
{
    Tern__Wire__SessionOpen m = TERN__WIRE__SESSION_OPEN__INIT;
    uint32_t tokens[64] = {1}, served = 0;
    const Tern__Wire__SessionOpenReply *opened;
    Tern__Wire__Tokens list = TERN__WIRE__TOKENS__INIT;
    Tern__Wire__Match match = TERN__WIRE__MATCH__INIT;
    uint64_t start_ms, session, id = 5;
    struct daemon d;
    int fd, late;

    rig_start(&d, NULL, NULL);
    fd = rig_greeted(d.socket);
    m.has_pool = true;
    m.pool = joined_with_pool(fd, "drained");
    answered(fd, FRAME_SESSION_OPEN, 4, &m.base, TERN_OK);
    opened = rig_decoded(&answer, FRAME_SESSION_OPEN_REPLY);
    session = opened->session;
    start_ms = rig_now_ms();
    kill(d.pid, SIGTERM);
    assert_true(rig_log_has(&d, "event=draining", RIG_WAIT_MS));
    answered(fd, FRAME_SESSION_OPEN, id, &m.base, TERN_BUSY);
    late = rig_connect(d.socket);
    close(late);
    list.has_tokens = true;
    list.tokens = (ProtobufCBinaryData){sizeof tokens, (uint8_t *)tokens};
    match.tokens = &list;
    for (;; served++) { /* a turn, repeatedly: each is answered until the daemon ends */
        if (!rig_message(fd, FRAME_MATCH, ++id, session, &match.base) ||
            rig_read(fd, RIG_WAIT_MS, &answer) != RIG_FRAME)
            break;
        assert_int_equal(answer.h.request_id, id);
        assert_int_equal(rig_status(&answer), TERN_OK);
        usleep(10000);
    }
    assert_true(served > 0);
    assert_true(rig_now_ms() - start_ms >= RIG_DRAIN_MS * 2 / 3);
    printf("fault=38 runs=1 injected=1 violations=0 failed=0 served=%u drain_s=%.1f\n", served,
           (double)(rig_now_ms() - start_ms) / 1000);
    close(fd);
    assert_int_equal(rig_stop(&d), 0);
}

/* Signals that arrive together wake the daemon once. */
TEST(signals_that_come_together_are_all_taken)
{
    struct daemon d;
    int status;

    rig_start(&d, NULL, NULL);
    kill(d.pid, SIGSTOP);
    assert_int_equal(waitpid(d.pid, &status, WUNTRACED), d.pid);
    assert_true(WIFSTOPPED(status));
    kill(d.pid, SIGHUP);
    kill(d.pid, SIGTERM);
    kill(d.pid, SIGCONT);
    assert_true(rig_log_has(&d, "event=signal signal=1 ", RIG_WAIT_MS));
    assert_true(rig_log_has(&d, "event=draining", RIG_WAIT_MS));
    assert_int_equal(rig_stop(&d), 0);
}

TEST_GROUP(start_short, stop);

TEST_WITH(protocol_half_frame_is_closed_at_its_deadline, memory_is_noted, memory_is_flat)
{
    static const uint32_t cuts[] = {1, FRAME_HEADER_BYTES - 1, FRAME_HEADER_BYTES, 200, 100000};
    struct frame_header h = {
        .length = 200000, .version = FRAME_VERSION, .type = FRAME_PING, .request_id = 2};
    uint8_t *frame = calloc(1, 200000);
    uint64_t start_ms = rig_now_ms();
    int fds[5];

    assert_non_null(frame);
    frame_encode(&h, frame);
    for (int i = 0; i < 5; i++) {
        fds[i] = rig_greeted(rig.socket);
        assert_true(rig_write(fds[i], frame, cuts[i]));
    }
    others_are_served();
    for (int i = 0; i < 5; i++) {
        assert_true(rig_until_closed(fds[i], RIG_PARTIAL_MS + SLACK_MS) != UINT32_MAX);
        assert_true(rig_now_ms() - start_ms >= RIG_PARTIAL_MS / 2);
        close(fds[i]);
    }
    silent_is_closed_at_deadline();
    free(frame);
    others_are_served();
}

TEST(protocol_idle_client_stays)
{
    int fd = rig_greeted(rig.socket);

    usleep(3 * RIG_PARTIAL_MS * 1000);
    assert_true(rig_ping(fd, 2, RIG_WAIT_MS));
    close(fd);
}

TEST_WITH(protocol_one_byte_at_a_time_is_closed_at_its_deadline, memory_is_noted, memory_is_flat)
{
    Tern__Wire__Empty m = TERN__WIRE__EMPTY__INIT;
    int fd = rig_greeted(rig.socket);
    uint64_t start_ms = rig_now_ms();
    uint8_t zero[FRAME_HEADER_BYTES] = {8, 0, 0, 0, 1};
    bool open = true;

    answered(fd, FRAME_PING, 2, &m.base, TERN_OK);
    for (uint32_t i = 0; open && rig_now_ms() < start_ms + 2 * RIG_PARTIAL_MS + SLACK_MS; i++) {
        open = rig_write(fd, &zero[i % sizeof(zero)], 1);
        usleep(100000);
    }
    assert_false(open);
    assert_true(rig_now_ms() - start_ms >= RIG_PARTIAL_MS / 2);
    close(fd);
    others_are_served();
}

/* The default level logs connections that the daemon ended, with the reason, and no others. */
TEST(log_says_why_the_daemon_ended_a_connection)
{
    static const uint8_t half[5] = {0};
    struct daemon d;
    int fd;

    rig_start(&d, NULL, NULL);
    close(rig_greeted(d.socket));
    assert_true(rig_log_has(&d, "level=debug event=conn_closed", RIG_WAIT_MS));
    fd = rig_greeted(d.socket);
    assert_true(rig_write(fd, half, sizeof(half)));
    assert_closed(fd, RIG_PARTIAL_MS + SLACK_MS);
    assert_true(rig_log_has(&d, "reason=\"no whole frame within the deadline\"", RIG_WAIT_MS));
    fd = rig_greeted(d.socket);
    assert_true(rig_frame(fd, FRAME_PING, 2, "\xff\xff\xff\xff", 4));
    assert_closed(fd, RIG_AT_ONCE_MS);
    assert_true(rig_log_has(&d, "reason=\"malformed body\"", RIG_WAIT_MS));
    assert_true(rig_log_has_times(&d, "level=info event=conn_closed", 2, RIG_WAIT_MS));
    assert_false(rig_log_has_times(&d, "level=info event=conn_closed", 3, 0));
    assert_int_equal(rig_stop(&d), 0);
}
