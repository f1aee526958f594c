/* A peer daemon dies, or hangs, in the middle of a transfer (faults 5 and 28). The destination's
 * Fetch ends with a typed error within its deadline, and the pages published before are right; the
 * source keeps its pages, unpins them, and continues to serve. Two real daemons; both engines live
 * in this process. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/admin.h"
#include "engine/bytes.h"
#include "engine/engine.h"
#include "engine/proc.h"
#include "engine/profile.h"
#include "engine/stats.h"
#include "rig_daemon.h"
#include "testing/test.h"

#define PAGE_TOKENS 64
#define PAGE_BYTES  65536
#define PAGES       2048
#define TOKENS      (PAGES * PAGE_TOKENS)
#define ALL_BYTES   ((uint64_t)PAGES * PAGE_BYTES)
#define CALL_MS     20000
#define TRANSFER_MS 8000 /* an undisturbed fetch ends within it, in an emulated machine, too */
#define FLOOD       24
#define MEMFDS_MAX  256  /* mappings of a daemon */
#define SPARE_MS    8000 /* over the deadline, for a busy machine */
#define STARTED     (ALL_BYTES / 16)

struct side {
    struct daemon daemon;
    struct tern *admin;
    struct engine engine;
};

struct pair {
    char dir[RIG_DIR_BYTES];
    struct side source, dest;
    uint32_t tokens[TOKENS];
    struct engine_session held; /* at the source, closed by the test */
};

static void side_open(struct side *s, const char *name)
{
    struct geometry g;

    geometry_plain(&g, PAGE_TOKENS, PAGE_BYTES, PAGES);
    assert_int_equal(tern_connect(s->daemon.admin, CALL_MS, &s->admin), TERN_OK);
    assert_int_equal(engine_open(&s->engine, s->daemon.socket, name, &g.layout, CALL_MS), TERN_OK);
}

/* Begins a session that has matched all tokens. */
static struct engine_session match_all(struct side *s, struct pair *p)
{
    struct engine_session session;

    assert_int_equal(engine_begin(&session, &s->engine, p->tokens, TOKENS), TERN_OK);
    assert_true(table_covers(&session.table, session.matched));
    return session;
}

static void close_session(struct engine_session *session)
{
    assert_int_equal(engine_end(session), TERN_OK);
}

static void fill_source(struct pair *p)
{
    block_tokens(5, 0, TOKENS, p->tokens);
    p->held = match_all(&p->source, p);
    assert_int_equal(p->held.matched, 0);
    assert_int_equal(engine_run(&p->held), TERN_OK);
    assert_int_equal(p->held.len.committed, TOKENS);
}

static int set_up(void **state)
{
    struct pair *p = calloc(1, sizeof *p);
    struct daemon_options o[2] = {{
        .node = "source",
        .memory_bytes = pool_bytes_for(PAGES, PAGE_BYTES) + (2u << 20),
        .page_bytes_min = PAGE_BYTES,
        .bytes_in_flight = 1 << 20, /* slow enough to be caught in the middle */
        .transfer_ms = TRANSFER_MS,
        .core = proc_core(0),
    }};

    assert_non_null(p);
    *state = p;
    setenv("TERND_LOG_LEVEL", "debug", 1);
    /* All three on one core, so that each gets its turn: on a busy machine, or one whose cores
     * stall in turn, a transfer could otherwise be over before this process looks. */
    assert_true(proc_pin(o[0].core));
    o[1] = o[0];
    o[1].node = "dest";
    rig_start_pair(&p->source.daemon, &p->dest.daemon, p->dir, o);
    side_open(&p->source, "source-engine");
    side_open(&p->dest, "dest-engine");
    fill_source(p);
    assert_true(admin_wait_peer(p->dest.admin, "source", CALL_MS));
    return 0;
}

static int tear_down(void **state)
{
    struct pair *p = *state;

    engine_close(&p->source.engine);
    tern_destroy(p->source.admin);
    engine_close(&p->dest.engine);
    tern_destroy(p->dest.admin);
    proc_end(&p->source.daemon.pid);
    proc_end(&p->dest.daemon.pid);
    tempdir_remove(p->dir);
    free(p);
    return 0;
}

/* Submits a Fetch of everything and stops `victim` while part of it has arrived. */
static struct engine_session stop_in_the_middle(struct pair *p, pid_t victim)
{
    struct engine_session session = match_all(&p->dest, p);
    uint64_t until = clock_ns() + CALL_MS * UINT64_C(1000000);
    struct daemon_status s = {0};
    struct tern_answer a;

    assert_int_equal(session.matched, 0);
    assert_int_equal(
        tern_submit_fetch(p->dest.engine.tern, session.id,
                          &(struct tern_fetch){.peer = "source", .step = TERN_STEP_NONE}, 77),
        TERN_OK);
    while (s.transfers.payload_bytes_in < STARTED) {
        assert_true(clock_ns() < until);
        assert_true(admin_status(p->dest.admin, 0, &s));
    }
    assert_int_equal(kill(victim, SIGSTOP), 0);
    assert_true(s.transfers.payload_bytes_in < ALL_BYTES);
    sleep_ms(50);
    assert_int_equal(tern_poll(p->dest.engine.tern, &a),
                     TERN_BUSY); /* else the transfer was over */
    return session;
}

static struct tern_answer wait_fetch(struct pair *p, uint32_t ms)
{
    struct tern_answer a;

    assert_int_equal(answer_wait(p->dest.engine.tern, ms, &a), TERN_OK);
    assert_int_equal(a.cookie, 77);
    return a;
}

static void assert_settled(struct side *s, uint64_t snapshot_pages)
{
    struct daemon_status st = {0};

    for (uint32_t i = 0; i < (TRANSFER_MS + SPARE_MS) / 20; i++, sleep_ms(20)) {
        assert_true(admin_status(s->admin, 0, &st));
        if (st.transfers_active == 0 && st.pages.quarantine == 0 && st.pages.transfer == 0)
            break;
    }
    assert_int_equal(st.transfers_active, 0);
    assert_int_equal(st.pages.quarantine, 0);
    assert_int_equal(st.pages.transfer, 0);
    assert_int_equal(st.pages.snapshot, snapshot_pages);
}

/* After a broken Fetch the destination has the published chunks, all right, and the rest is
 * free. */
static void check_destination(struct pair *p, struct engine_session *session,
                              const struct tern_answer *a)
{
    struct engine_session other;
    uint32_t before;

    assert_int_equal(a->n, 1);
    before = a->results[0].lengths.committed;
    assert_true(before < TOKENS);
    assert_settled(&p->dest, before / PAGE_TOKENS);
    other = match_all(&p->dest, p);
    assert_int_equal(other.matched, before);
    assert_int_equal(engine_wrong(&other, before), 0);
    close_session(&other);
    close_session(session);
    rig_no_leak(p->dest.admin, p->dest.engine.pool, PAGES, CALL_MS);
    printf("fault=5 runs=1 injected=1 violations=0 published_pages=%u\n", before / PAGE_TOKENS);
}

/* The two daemons reach each other again: the links come up, and then everything can be fetched. */
static void heals(struct pair *p)
{
    struct engine_session session = match_all(&p->dest, p);
    uint64_t start = clock_ns(), until = start + CALL_MS * UINT64_C(1000000);
    enum tern_err err;

    while ((err = engine_fetch(&session, "source", 0, CALL_MS)) != TERN_OK ||
           session.len.committed < TOKENS) {
        assert_true(clock_ns() < until);
        assert_true(err == TERN_OK || err == TERN_PEER_LOST || err == TERN_BUSY ||
                    err == TERN_TIMED_OUT);
        sleep_ms(5);
    }
    printf("fault=28 runs=1 injected=1 violations=0 dual_owner=0 heal_ms=%.0f\n",
           (double)(clock_ns() - start) / 1e6);
    assert_int_equal(engine_wrong(&session, TOKENS), 0);
    close_session(&session);
}

TEST_WITH(source_killed_fetch_ends_typed, set_up, tear_down)
{
    struct pair *p = *state;
    struct tern_answer a;
    struct engine_session session = stop_in_the_middle(p, p->source.daemon.pid);
    uint64_t start = clock_ns();

    proc_end(&p->source.daemon.pid);
    a = wait_fetch(p, TRANSFER_MS + SPARE_MS);
    assert_int_equal(a.err, TERN_PEER_LOST);
    printf("the fetch ended after %.0f ms\n", (double)(clock_ns() - start) / 1e6);
    check_destination(p, &session, &a);
}

TEST_WITH(source_hangs_fetch_ends_at_deadline, set_up, tear_down)
{
    struct pair *p = *state;
    struct engine_session session = stop_in_the_middle(p, p->source.daemon.pid);
    struct tern_answer a = wait_fetch(p, TRANSFER_MS + SPARE_MS);

    assert_true(a.err == TERN_TIMED_OUT || a.err == TERN_PEER_LOST);
    check_destination(p, &session, &a);
    assert_int_equal(kill(p->source.daemon.pid, SIGCONT), 0);
    heals(p);
    assert_settled(&p->source, PAGES);
}

TEST_WITH(destination_killed_source_keeps_pages, set_up, tear_down)
{
    struct pair *p = *state;
    struct daemon_status st;
    struct tern_answer a;
    struct engine_session session = stop_in_the_middle(p, p->dest.daemon.pid);

    assert_true(admin_status(p->source.admin, 0, &st));
    assert_int_equal(st.transfers_active, 1);
    proc_end(&p->dest.daemon.pid);
    a = wait_fetch(p, SPARE_MS);
    assert_int_equal(a.err, TERN_DAEMON_LOST);
    assert_settled(&p->source, PAGES);
    engine_free(&session);
    session = match_all(&p->source, p);
    assert_int_equal(session.matched, TOKENS);
    assert_int_equal(engine_wrong(&session, TOKENS), 0);
    close_session(&session);
    close_session(&p->held);
    rig_no_leak(p->source.admin, p->source.engine.pool, PAGES,
                CALL_MS); /* so nothing is pinned any more */
}

/* A request can be followed from the engine's daemon to the source of its fetch. */
TEST_WITH(trace_id_is_in_the_logs_of_both_daemons, set_up, tear_down)
{
    struct pair *p = *state;
    struct engine_session session = match_all(&p->dest, p);
    tern_session gone;

    assert_int_equal(session.matched, 0);
    tern_trace(p->dest.engine.tern, 0xfedcba9876543210);
    assert_int_equal(engine_fetch(&session, "source", TOKENS / 16, TRANSFER_MS), TERN_OK);
    assert_int_equal(daemon_log_lines(&p->dest.daemon, "event=pull_open peer=source dir=out ",
                                      "trace=fedcba9876543210"),
                     1);
    assert_int_equal(daemon_log_lines(&p->source.daemon, "event=pull_open peer=dest dir=in ",
                                      "trace=fedcba9876543210"),
                     1);
    tern_trace(p->dest.engine.tern, 0xabc);
    assert_int_equal(tern_session_open(p->dest.engine.tern, p->dest.engine.pool + 1,
                                       &p->dest.engine.ns, NULL, CALL_MS, &gone),
                     TERN_GONE);
    assert_int_equal(
        daemon_log_lines(&p->dest.daemon, "op=session_open err=GONE", "trace=0000000000000abc"), 1);
}

/* Collects the inodes of the page memory and control pages that a daemon has mapped. */
static uint32_t mapped_memory(pid_t pid, uint64_t ret[MEMFDS_MAX])
{
    char path[64], line[512];
    uint64_t inode;
    uint32_t n = 0;
    FILE *f;

    snprintf(path, sizeof path, "/proc/%d/maps", (int)pid);
    f = fopen(path, "r");
    assert_non_null(f);
    while (n < MEMFDS_MAX && fgets(line, sizeof line, f))
        if (strstr(line, "memfd:tern-") && sscanf(line, "%*s %*s %*s %*s %" SCNu64, &inode) == 1)
            ret[n++] = inode;
    fclose(f);
    return n;
}

TEST_WITH(daemons_share_no_memory, set_up, tear_down)
{
    struct pair *p = *state;
    uint64_t a[MEMFDS_MAX], b[MEMFDS_MAX];
    uint32_t n = mapped_memory(p->source.daemon.pid, a), m = mapped_memory(p->dest.daemon.pid, b);

    assert_true(n > 1 && m > 1 && n < MEMFDS_MAX && m < MEMFDS_MAX);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < m; k++)
            assert_int_not_equal(a[i], b[k]);
}

/* The source reads nothing for a moment while more requests with tokens arrive than its link's
 * queue holds: requests without room are put off and are BUSY in the end, the link stays up, and
 * the others end as usual. */
TEST_WITH(source_pauses_fetches_beyond_the_queue_are_busy, set_up, tear_down)
{
    struct pair *p = *state;
    struct engine_session session[FLOOD];
    uint32_t count[TERN_ERR_COUNT] = {0};

    for (uint32_t i = 0; i < FLOOD; i++)
        session[i] = match_all(&p->dest, p);
    assert_int_equal(kill(p->source.daemon.pid, SIGSTOP), 0);
    for (uint32_t i = 0; i < FLOOD; i++)
        assert_int_equal(
            tern_submit_fetch(p->dest.engine.tern, session[i].id,
                              &(struct tern_fetch){.peer = "source", .step = TERN_STEP_NONE}, 77),
            TERN_OK);
    for (uint32_t i = 0; i < FLOOD; i++) {
        struct tern_answer a = wait_fetch(p, TRANSFER_MS + SPARE_MS);

        count[a.err]++;
        if (i > 0)
            continue;
        assert_int_equal(a.err,
                         TERN_BUSY); /* the first to answer, while the source is still stopped */
        assert_int_equal(kill(p->source.daemon.pid, SIGCONT), 0);
    }
    printf("%u fetches:", FLOOD);
    for (uint32_t e = 0; e < TERN_ERR_COUNT; e++)
        if (count[e])
            printf(" %s=%u", tern_strerror((enum tern_err)e), count[e]);
    printf("\n");
    /* Even on a busy machine each accepted fetch meets its deadline. */
    assert_int_equal(count[TERN_OK] + count[TERN_BUSY] + count[TERN_POOL_EXHAUSTED] +
                         count[TERN_TIMED_OUT],
                     FLOOD);
    for (uint32_t i = 0; i < FLOOD; i++)
        close_session(&session[i]);
    if (count[TERN_OK] == 0)
        heals(p);
    assert_settled(&p->dest, PAGES);
    rig_no_leak(p->dest.admin, p->dest.engine.pool, PAGES, CALL_MS);
}
