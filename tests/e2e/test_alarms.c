/* Reports of a real daemon to its operator: in the log, connections and engines that come and go,
 * the author of each operation, and tenants that peers refuse; and alarms, from their beginning to
 * their end, in the log and in the status. (Alarms of the disk are in test_spill.c, those of steps
 * in test_steps_overdue.c.) */
#include <glob.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/admin.h"
#include "engine/json.h"
#include "rig_daemon.h"
#include "testing/test.h"

#define L      64
#define PAGES  64
#define TOKENS (4 * L)

static struct daemon rig;
static struct tern *admin;

/* The alarm of that name and subject that `ternctl status` shows, owned; NULL: it is off. */
static json_t *alarm_of(const char *name, const char *subject)
{
    json_t *status = admin_ask(admin, "status", NULL), *row, *found = NULL;
    const json_t *alarms = json_object_get(status, "alarms");
    size_t i;

    assert_int_equal(json_get_u64(status, "alarms_on"), json_array_size(alarms));
    json_array_foreach((json_t *)(uintptr_t)alarms, i, row)
    {
        if (json_says(row, "name", name) && json_says(row, "subject", subject))
            found = json_incref(row);
    }
    json_decref(status);
    return found;
}

static bool is_on(const char *name, const char *subject)
{
    json_t *row = alarm_of(name, subject);

    json_decref(row);
    return row != NULL;
}

static void assert_shown(const char *name, const char *subject, const char *text)
{
    json_t *row = alarm_of(name, subject);

    assert_non_null(row);
    assert_true(json_says(row, "severity", "warn"));
    assert_true(json_real_value(json_object_get(row, "since_s")) >= 0);
    if (!strstr(json_string_value(json_object_get(row, "text")), text))
        fail_msg("no \"%s\" in: %s", text, json_string_value(json_object_get(row, "text")));
    assert_true(strlen(json_string_value(json_object_get(row, "action"))) > 0);
    json_decref(row);
}

static void starts(const char *extra)
{
    rig_start(&rig, extra, NULL);
    admin = rig_connected(rig.admin);
}

FIXTURE(stop)
{
    tern_destroy(admin);
    admin = NULL;
    assert_int_equal(rig_stop(&rig), 0);
    return 0;
}

static const uint32_t tokens[2 * PAGES * L];

/* Begins a session with pages of its own. */
static void begins(struct engine_session *s, struct engine *e)
{
    assert_ok(e->tern, engine_begin_with(s, e, tokens, 0, TOKENS));
    assert_ok(e->tern, engine_extend(s, TOKENS, 0));
}

/* ---- connections and engines that come and go ---- */

TEST_WITH(log_tells_an_engines_life, NULL, stop)
{
    struct engine_session s;
    char line[256];
    struct engine e;
    pid_t pid;

    starts("");
    pid = fork();
    if (pid == 0) {
        e = rig_engine(rig.socket, "short", L, PAGES * RIG_PAGE);
        begins(&s, &e);
        raise(SIGKILL);
    }
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    snprintf(line, sizeof line,
             "level=info event=engine_joined engine=short tenant=t0 world=1 pid=%d alive=1 pids=%d",
             (int)pid, (int)pid);
    assert_true(rig_log_has(&rig, line, RIG_WAIT_MS));
    snprintf(line, sizeof line,
             "level=info event=engine_process_exited engine=short tenant=t0 pid=%d sessions=1 "
             "pages=4 ",
             (int)pid);
    assert_true(rig_log_has(&rig, line, RIG_WAIT_MS));
    assert_int_equal(rig_figure(admin, "status", "engine_processes_exited"), 1);
    assert_true(
        rig_log_has(&rig, "event=engine_gone engine=short tenant=t0 lived_ms=", RIG_WAIT_MS));

    e = rig_engine(rig.socket, "leaves", L, PAGES * RIG_PAGE);
    begins(&s, &e);
    assert_ok(e.tern, engine_end(&s));
    engine_close(&e);
    snprintf(line, sizeof line,
             "event=engine_process_left engine=leaves tenant=t0 pid=%d sessions=0 pages=",
             (int)getpid());
    assert_true(rig_log_has(&rig, line, RIG_WAIT_MS));
    assert_true(rig_log_has(&rig, "event=engine_gone engine=leaves", RIG_WAIT_MS));
    assert_int_equal(rig_figure(admin, "status", "engine_processes_exited"), 1);
}

/* ---- the author of each operation ---- */

static uint64_t nodes_evicted(const char *arguments)
{
    json_t *told = rig_ctl(arguments);
    uint64_t nodes = json_get_u64(told, "nodes");

    json_decref(told);
    return nodes;
}

TEST_WITH(log_tells_what_operators_do, NULL, stop)
{
    struct engine_session s;
    char line[256], arguments[256];
    uint64_t nodes;
    struct engine e;

    starts("");
    e = rig_engine(rig.socket, "one", L, PAGES * RIG_PAGE);
    assert_ok(e.tern, engine_begin(&s, &e, tokens, TOKENS));
    assert_ok(e.tern, engine_run(&s));
    assert_ok(e.tern, engine_publish(&e));
    assert_ok(e.tern, engine_end(&s));
    snprintf(arguments, sizeof arguments, "--socket %s evict --nodes 3", rig.admin);
    rig_wait_let_go(&rig);
    wait_until((nodes = nodes_evicted(arguments)) > 0); /* pages without a checksum stay */
    assert_int_equal(nodes, 3);
    snprintf(line, sizeof line, " uid=%u conn=", (unsigned)getuid());
    assert_true(rig_log_has(&rig, "level=info event=operator_asks act=evict pid=", 0));
    assert_true(rig_log_has(&rig, line, 0));
    assert_true(rig_log_has(&rig, " args=\"nodes=3\"", 0));
    assert_true(rig_log_has(&rig, "level=info event=operator_done act=evict pid=", 0));
    assert_true(rig_log_has(&rig, " err=OK result=\"3 nodes, 3 pages, 0 host pages\"", 0));

    json_decref(admin_ask(admin, "reload", NULL)); /* without changes */
    snprintf(line, sizeof line, "event=operator_done act=reload pid=%d ", (int)getpid());
    assert_true(rig_log_has(&rig, line, 0));
    assert_true(rig_log_has(&rig, " err=OK result=\"0 done, 0 need a restart, 0 failed\"", 0));
    json_decref(admin_ask(admin, "status", NULL)); /* queries are not logged */
    assert_false(rig_log_has(&rig, "act=status", 0));
    engine_close(&e);
}

/* ---- alarms ---- */

TEST_WITH(alarm_of_a_share_that_is_used_up, NULL, stop)
{
    struct engine_session s[3];
    struct engine e;

    starts("limits: {sessions: 2}\n");
    e = rig_engine(rig.socket, "one", L, PAGES * RIG_PAGE);
    for (uint32_t i = 0; i < 2; i++)
        begins(&s[i], &e);
    usleep(600000); /* the limit alone is no alarm: nobody is refused */
    assert_false(is_on("share_exhausted", "t0/limits.sessions"));
    assert_int_equal(engine_begin(&s[2], &e, tokens, L), TERN_BUSY);
    assert_true(rig_log_has(&rig, "level=warn event=share_exhausted subject=t0/limits.sessions ",
                            RIG_WAIT_MS));
    assert_shown("share_exhausted", "t0/limits.sessions", "2 sessions; ");
    assert_true(rig_ctl_says(&rig, "status", "alarm: share_exhausted of t0/limits.sessions, for "));
    for (uint32_t i = 0; i < 2; i++)
        assert_ok(e.tern, engine_end(&s[i]));
    assert_true(rig_log_has(
        &rig, "event=share_exhausted_ended subject=t0/limits.sessions lasted_ms", RIG_WAIT_MS));
    assert_false(is_on("share_exhausted", "t0/limits.sessions"));
    assert_int_equal(daemon_log_count(&rig, "event=share_exhausted ", 2, 0), 1);
    engine_close(&e);
}

TEST_WITH(alarm_of_memory_that_is_used_up, NULL, stop)
{
    struct engine_session s, other;
    struct engine e;

    starts("");
    e = rig_engine(rig.socket, "one", L, PAGES * RIG_PAGE);
    assert_ok(e.tern, engine_begin_with(&s, &e, tokens, 0, 2 * PAGES * L));
    assert_int_equal(engine_extend(&s, 2 * PAGES * L, 0), TERN_QUOTA);
    assert_ok(e.tern, engine_extend(&s, s.last.shortage.free * L, 0));
    assert_ok(e.tern, engine_begin_with(&other, &e, tokens, 0, L));
    assert_int_equal(engine_extend(&other, L, 0), TERN_POOL_EXHAUSTED);
    assert_true(rig_log_has(&rig, "level=warn event=memory_exhausted subject=t0 ", RIG_WAIT_MS));
    assert_shown("memory_exhausted", "t0", "pages");
    assert_true(rig_log_has(&rig, "event=memory_exhausted_ended subject=t0 ", RIG_WAIT_MS));
    engine_free(&other);
    engine_free(&s);
    engine_close(&e);
}

TEST_WITH(alarm_of_a_peer_that_is_down, NULL, stop)
{
    uint16_t port = 0;
    int listener = rig_listen(&port), fd;
    char extra[256];

    snprintf(extra, sizeof extra,
             "insecure_peers: true\npeers:\n"
             "  - {name: other, address: \"127.0.0.1:%u\", tenants: [t0]}\n",
             port);
    close(listener);
    starts(extra);
    assert_true(rig_log_has(&rig, "level=warn event=peer_down subject=other ", RIG_WAIT_MS));
    assert_shown("peer_down", "other", "Connection refused (");
    listener = rig_listen(&port);
    fd = rig_accept_fresh(listener);
    rig_answer_hello(fd, "other", port, false);
    wait_until(admin_peer_up(admin, "other"));
    for (uint64_t end = rig_now_ms() + RIG_WAIT_MS; is_on("peer_down", "other"); usleep(100000)) {
        static struct rig_answer ping;

        assert_true(rig_now_ms() < end);
        while (rig_read(fd, 1, &ping) == RIG_FRAME) {
            Tern__Wire__Empty m = TERN__WIRE__EMPTY__INIT;

            assert_true(rig_message(fd, FRAME_PING_REPLY, ping.h.request_id, 0, &m.base));
        }
    }
    assert_true(rig_log_has(&rig, "event=peer_down_ended subject=other lasted_ms=", RIG_WAIT_MS));
    close(fd);
    close(listener);
}

/* The daemon continues; it keeps the tape of the first such step, and logs at most one line in 10
 * s. */
TEST_WITH(alarm_of_a_step_that_takes_too_long, NULL, stop)
{
    struct engine_session s;
    struct engine e;
    char pattern[256];
    glob_t tapes;

    starts("faults: {step_visits: 2}\n");
    e = rig_engine(rig.socket, "one", L, PAGES * RIG_PAGE);
    for (uint32_t i = 0; i < 3; i++) {
        assert_ok(e.tern, engine_begin(&s, &e, tokens + i * L, TOKENS));
        assert_ok(e.tern, engine_run(&s));
        assert_ok(e.tern, engine_publish(&e));
        assert_ok(e.tern, engine_end(&s));
    }
    assert_true(rig_log_has(&rig, "level=error event=step_over by=", RIG_WAIT_MS));
    assert_true(rig_log_has(&rig, " bound=2 steps=1 tape=", 0));
    assert_true(rig_log_has(&rig, "level=error event=step_over_bound subject=", RIG_WAIT_MS));
    assert_int_equal(daemon_log_count(&rig, "event=step_over ", 1, 0), 1);
    assert_true(is_on("step_over_bound", ""));
    assert_true(rig_figure(admin, "status", "steps_over.steps") > 1);
    assert_int_equal(rig_figure(admin, "status", "steps_over.bound"), 2);
    assert_true(rig_ctl_says(&rig, "status", " steps of the core took longer than allowed"));
    snprintf(pattern, sizeof pattern, "%s.tape.*", rig.admin);
    assert_int_equal(glob(pattern, 0, NULL, &tapes), 0);
    assert_int_equal(tapes.gl_pathc, 1);
    globfree(&tapes);
    engine_close(&e);
}

/* ---- tenants that peers refuse ---- */

TEST_WITH(log_tells_on_both_sides_which_tenant_a_peer_is_refused, NULL, stop)
{
    uint16_t port = port_free(), source_port = port_free();
    char extra[512], other_socket[SPAWN_PATH_BYTES];
    struct engine_session s;
    struct daemon source;
    struct engine e;

    snprintf(extra, sizeof extra,
             "listen: 127.0.0.1:%u\ninsecure_peers: true\npeers:\n"
             "  - {name: asks, address: \"127.0.0.1:%u\", tenants: [t1]}\n",
             source_port, port);
    rig_start_two(&source, other_socket, extra);
    snprintf(extra, sizeof extra,
             "listen: 127.0.0.1:%u\ninsecure_peers: true\npeers:\n"
             "  - {name: e2e, address: \"127.0.0.1:%u\", tenants: [t0]}\n",
             port, source_port);
    rig_start_node(&rig, "asks", extra, NULL);
    admin = rig_connected(rig.admin);
    assert_true(admin_wait_peer(admin, "e2e", RIG_WAIT_MS));
    e = rig_engine(rig.socket, "one", L, PAGES * RIG_PAGE);
    assert_ok(e.tern, engine_begin(&s, &e, tokens, TOKENS));
    assert_int_equal(engine_fetch(&s, "e2e", 0, RIG_WAIT_MS), TERN_DENIED);
    assert_true(
        rig_log_has(&source,
                    "level=warn event=tenant_refused peer=asks tenant=t0 dir=in "
                    "reason=\"the peer may not ask for this tenant: on this host, add the tenant",
                    RIG_WAIT_MS));
    assert_true(rig_log_has(&rig,
                            "level=warn event=tenant_refused peer=e2e tenant=t0 dir=out "
                            "reason=\"the peer denies this node the tenant: on the peer's host",
                            RIG_WAIT_MS));
    engine_free(&s);
    engine_close(&e);
    assert_int_equal(rig_stop(&source), 0);
}
