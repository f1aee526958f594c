/* Faults of the fault table (docs/rules.md) that need real processes: clients killed before and
 * after their commit, a child that outlives its parent, a pool full of pinned pages, a tenant
 * beyond its quota, requests whose answers were lost. One daemon of two tenants; a survivor has the
 * pool open, and the dying processes have mapped it. Each case prints its line once all its checks
 * have passed. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/admin.h"
#include "engine/engine.h"
#include "engine/stats.h"
#include "rig_daemon.h"
#include "testing/test.h"

#define L         16u
#define PAGE      4096u
#define PAGES     64u /* of the pool, about */
#define TOKENS    (8 * L)
#define KILLS     12
#define MANY      400
#define LATE_STEP 1000000u /* never reached by a device */

static struct daemon rig;
static char neighbour_socket[SPAWN_PATH_BYTES];
static struct tern *admin;
static struct engine survivor;
static uint64_t free_at_rest;
static uint32_t tokens[64 * L];

static struct daemon_status pages(void)
{
    struct daemon_status s;

    assert_true(admin_status(admin, survivor.pool, &s));
    return s;
}

FIXTURE(start)
{
    rig_start_two(&rig, neighbour_socket, "    sessions_max: 1\n");
    admin = rig_connected(rig.admin);
    survivor = rig_engine(rig.socket, "survivor", L, PAGES * PAGE);
    free_at_rest = pages().pages.free;
    return 0;
}

FIXTURE(stop)
{
    engine_close(&survivor);
    tern_destroy(admin);
    assert_int_equal(rig_stop(&rig), 0);
    return 0;
}

/* A different sequence for each run. */
static void tokens_of(uint32_t run)
{
    for (uint32_t i = 0; i < sizeof tokens / sizeof tokens[0]; i++)
        tokens[i] = run * 100000 + i;
}

static uint32_t depth_of(uint32_t n)
{
    struct tern_tokens list = {.v = tokens, .n = n};
    struct tern_depths depths = {0};

    assert_ok(survivor.tern,
              tern_peek(survivor.tern, survivor.pool, &survivor.ns, &list, RIG_WAIT_MS, &depths));
    return depths.resumable;
}

/* ------------------------------------------------------------------ processes that die */

/* In the child: returns an engine of its own that has mapped the survivor's pool. */
static struct engine victim_engine(void)
{
    struct engine e = survivor;

    e.tern = NULL;
    e.batch = NULL;
    e.map = NULL;
    if (tern_connect(rig.socket, RIG_WAIT_MS, &e.tern) != TERN_OK ||
        tern_batch_create(e.tern, &e.batch) != TERN_OK ||
        tern_join(e.tern, "victim", TERN_BOTH, 0, 1, NULL, RIG_WAIT_MS) != TERN_OK ||
        tern_pool_map(e.tern, e.pool, RIG_WAIT_MS, &e.map) != TERN_OK)
        _exit(2);
    return e;
}

/* Writes everything, commits nothing. */
static struct engine_session victim_runs(struct engine *e)
{
    struct engine_session s;

    if (engine_begin(&s, e, tokens, TOKENS) != TERN_OK ||
        engine_extend(&s, TOKENS, TOKENS) != TERN_OK)
        _exit(3);
    engine_write(&s, 0, TOKENS);
    return s;
}

static pid_t forked(void)
{
    pid_t pid;

    fflush(stdout);
    pid = fork();
    assert_true(pid >= 0);
    return pid;
}

/* The process ended by SIGKILL, sent by itself. */
static void assert_killed(pid_t pid)
{
    int status;

    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
        fail_msg("the child ended with %x", (unsigned)status);
}

/* Waits until no page is a session's or retiring, and `kept` nodes keep theirs. Returns ms. */
static double reclaimed(uint64_t kept)
{
    uint64_t from = clock_ns(), end = rig_now_ms() + RIG_WAIT_MS;
    struct daemon_status s;

    for (s = pages(); s.pages.free + kept < free_at_rest; s = pages()) {
        if (rig_now_ms() > end)
            fail_msg("%lu of %lu pages are free, %lu are a session's, %lu retire",
                     (unsigned long)s.pages.free, (unsigned long)free_at_rest,
                     (unsigned long)s.pages.session, (unsigned long)s.pages.retiring);
        usleep(500);
    }
    return (double)(clock_ns() - from) / 1e6;
}

TEST_WITH(fault_1_killed_before_its_commit_leaves_nothing, start, stop)
{
    struct series took;

    series_init(&took, KILLS);
    for (uint32_t run = 0; run < KILLS; run++) {
        pid_t pid;

        tokens_of(run);
        pid = forked();
        if (pid == 0) {
            struct engine e = victim_engine();

            victim_runs(&e);
            kill(getpid(), SIGKILL);
        }
        assert_killed(pid);
        assert_int_equal(depth_of(TOKENS), 0);
        series_add(&took, reclaimed(0));
        assert_int_equal(depth_of(TOKENS), 0);
    }
    printf("fault=1 runs=%d injected=%d violations=0 leaked_pages=%ld reclaim_p99_ms=%.1f\n", KILLS,
           KILLS, (long)(free_at_rest - pages().pages.free), series_quantile(&took, 0.99));
    series_finish(&took);
}

/* In every second run the step that writes the pages is never done: then nobody may find the
 * prefix, and it goes with its engine. */
static void commits_and_dies(uint32_t run)
{
    struct engine e = victim_engine();
    struct engine_session s = victim_runs(&e);
    struct engine_op op = {
        .kind = ENGINE_COMMIT, .step = TERN_STEP_NONE, .session = s.id, .length = TOKENS};

    op.step = run % 2 ? LATE_STEP : TERN_STEP_NONE;
    if (op_add(e.batch, &op) != TERN_OK || tern_batch_submit(e.batch, run) != TERN_OK)
        _exit(4);
    kill(getpid(), SIGKILL);
}

TEST_WITH(fault_2_killed_behind_its_commit_leaves_all_or_nothing, start, stop)
{
    uint32_t torn = 0, committed = 0, absent = 0;

    for (uint32_t run = 0; run < KILLS; run++) {
        struct engine_session s;
        uint32_t depth;
        pid_t pid;

        tokens_of(run);
        pid = forked();
        if (pid == 0)
            commits_and_dies(run);
        assert_killed(pid);
        while ((depth = (uint32_t)pages().sessions) > 0) /* until the daemon has noticed */
            usleep(500);
        depth = depth_of(TOKENS);
        committed += depth == TOKENS;
        absent += depth == 0;
        torn += depth != 0 && depth != TOKENS;
        if (depth > 0) {
            assert_ok(survivor.tern, engine_begin(&s, &survivor, tokens, TOKENS));
            torn += engine_wrong(&s, depth) > 0;
            assert_ok(survivor.tern, engine_end(&s));
        }
        assert_true(admin_empty(admin, survivor.pool, RIG_WAIT_MS, &(struct daemon_status){0}));
        reclaimed(0);
    }
    assert_int_equal(torn, 0);
    assert_true(committed > 0 && absent > 0);
    printf("fault=2 runs=%d injected=%d violations=0 torn=0 committed=%u absent=%u\n", KILLS, KILLS,
           committed, absent);
}

/* Tests whether this process can change the byte: the kernel returns EFAULT if not. */
static bool can_touch(void *at)
{
    int ends[2];
    bool can;

    if (pipe(ends) != 0)
        _exit(5);
    can = write(ends[1], "x", 1) == 1 && read(ends[0], at, 1) == 1;
    close(ends[0]);
    close(ends[1]);
    return can;
}

/* Forks a child that lives on and tries every page repeatedly until its pipe ends; it then writes
 * to `touched` how many it could change. The parent dies by SIGKILL. */
static void dies_before_its_child(int until, int touched)
{
    struct engine e = victim_engine();
    struct engine_session s = victim_runs(&e);
    uint32_t n = 0;
    char byte;

    if (fork() != 0) {
        (void)s;
        kill(getpid(), SIGKILL);
    }
    while (read(until, &byte, 1) < 0) { /* without blocking */
        for (uint32_t i = 1; i < PAGES; i++)
            n += can_touch(engine_page(&e, 0, i));
        usleep(1000);
    }
    if (write(touched, &n, sizeof n) != sizeof n)
        _exit(6);
    _exit(0);
}

TEST_WITH(fault_41_a_child_that_outlives_its_parent_reaches_no_page, start, stop)
{
    uint32_t touched = UINT32_MAX, wrong = 0, rounds = 4;
    int until[2], told[2];
    pid_t pid;

    assert_int_equal(pipe2(until, O_NONBLOCK), 0);
    assert_int_equal(pipe(told), 0);
    tokens_of(1);
    pid = forked();
    if (pid == 0) {
        close(until[1]);
        dies_before_its_child(until[0], told[1]);
    }
    assert_killed(pid);
    reclaimed(0); /* the parent's exit is the proof: its child has no mapping */
    for (uint32_t round = 0; round < rounds; round++) {
        struct engine_session s;

        tokens_of(10 + round);
        assert_ok(survivor.tern, engine_begin(&s, &survivor, tokens, 32 * L));
        assert_ok(survivor.tern, engine_run(&s));
        usleep(50000);
        wrong += engine_wrong(&s, 32 * L) > 0;
        assert_ok(survivor.tern, engine_end(&s));
    }
    close(until[1]);
    assert_int_equal(read(told[0], &touched, sizeof touched), sizeof touched);
    close(until[0]);
    close(told[0]);
    close(told[1]);
    assert_int_equal(touched, 0);
    assert_int_equal(wrong, 0);
    printf("fault=41 runs=%u injected=1 violations=0 reused_before_proof=%u\n", rounds, wrong);
}

/* ------------------------------------------------------------------ full pools and quotas */

TEST_WITH(fault_36_exhausted_and_pinned_waits_for_nothing, start, stop)
{
    struct engine_session pinned, running, s;
    double most = 0;
    uint32_t room;

    tokens_of(1);
    assert_ok(survivor.tern, engine_begin(&pinned, &survivor, tokens, TOKENS));
    assert_ok(survivor.tern, engine_run(&pinned));
    room = (uint32_t)pages().pages.free * L;
    tokens_of(2);
    assert_ok(survivor.tern, engine_begin_with(&running, &survivor, tokens, 0, room));
    assert_ok(survivor.tern, engine_extend(&running, room, 0));
    tokens_of(3);
    assert_ok(survivor.tern, engine_begin_with(&s, &survivor, tokens, 0, TOKENS));
    for (uint32_t i = 0; i < MANY; i++) {
        uint64_t from = clock_ns();
        double ms;

        assert_int_equal(engine_extend(&s, TOKENS, 0), TERN_POOL_EXHAUSTED);
        ms = (double)(clock_ns() - from) / 1e6;
        most = ms > most ? ms : most;
    }
    assert_int_equal(engine_wrong(&pinned, TOKENS), 0);
    assert_ok(survivor.tern, engine_end(&running));
    assert_ok(survivor.tern, engine_extend(&s, TOKENS, 0)); /* no deadlock */
    assert_true(most < RIG_AT_ONCE_MS);
    printf("fault=36 runs=1 injected=%d violations=0 max_wait_ms=%.1f\n", MANY, most);
    assert_ok(survivor.tern, engine_end(&s));
    assert_ok(survivor.tern, engine_end(&pinned));
}

/* The 99th percentile of the survivor's matches beside the other tenant's work. */
static double p99_beside(struct engine *other, bool beyond)
{
    struct tern_tokens list = {.v = tokens, .n = TOKENS};
    struct tern_depths depths;
    struct series took;
    double p99;

    series_init(&took, MANY);
    for (uint32_t i = 0; i < MANY; i++) {
        tern_session s;
        uint64_t from;

        if (beyond)
            assert_int_equal(
                tern_session_open(other->tern, other->pool, &other->ns, NULL, RIG_WAIT_MS, &s),
                TERN_QUOTA);
        else
            assert_ok(other->tern,
                      tern_peek(other->tern, other->pool, &other->ns, &list, RIG_WAIT_MS, &depths));
        from = clock_ns();
        assert_int_equal(depth_of(TOKENS), TOKENS);
        series_add(&took, (double)(clock_ns() - from));
    }
    p99 = series_quantile(&took, 0.99);
    series_finish(&took);
    return p99;
}

TEST_WITH(fault_37_a_tenant_beyond_its_quota_leaves_the_other_alone, start, stop)
{
    struct engine other = rig_engine(neighbour_socket, "other", L, PAGES * PAGE);
    struct engine_session s;
    double within, beyond;
    tern_session only;

    tokens_of(1);
    assert_ok(survivor.tern, engine_begin(&s, &survivor, tokens, TOKENS));
    assert_ok(survivor.tern, engine_run(&s));
    assert_ok(other.tern,
              tern_session_open(other.tern, other.pool, &other.ns, NULL, RIG_WAIT_MS, &only));
    within = p99_beside(&other, false);
    beyond = p99_beside(&other, true);
    assert_ok(survivor.tern, engine_end(&s));
    engine_close(&other);
    printf("fault=37 runs=%d injected=%d violations=0 neighbour_failed=0 neighbour_p99=%.2f\n",
           MANY, MANY, beyond / within);
}

/* ------------------------------------------------------------------ lost answers */

static bool alike(const struct tern_result *a, const struct tern_result *b)
{
    return a->err == b->err && a->tokens == b->tokens &&
           memcmp(&a->lengths, &b->lengths, sizeof a->lengths) == 0;
}

/* Runs the operation twice, as after a lost answer. Returns 1 if the second one had an effect or a
 * different answer. */
static uint32_t twice(struct engine_session *s, struct engine_op op)
{
    struct daemon_status before, after;
    struct tern_result first, second;

    op.session = s->id;
    assert_ok(survivor.tern, op_do(survivor.tern, &op, RIG_WAIT_MS, &first));
    before = pages();
    assert_ok(survivor.tern, op_do(survivor.tern, &op, RIG_WAIT_MS, &second));
    after = pages();
    return !alike(&first, &second) ||
           memcmp(&before.pages, &after.pages, sizeof before.pages) != 0 ||
           before.sessions != after.sessions;
}

TEST_WITH(fault_26_a_request_repeated_after_a_lost_answer_has_one_effect, start, stop)
{
    struct tern_tokens list = {.v = tokens, .n = TOKENS};
    struct tern *t = survivor.tern;
    uint32_t effects = 0, injected = 0, nodes[2];
    struct tern_retracted away[2];
    struct tern_result r[2];
    struct engine_session s;

    tokens_of(1);
    assert_ok(t, engine_begin(&s, &survivor, tokens, TOKENS));
    for (uint32_t i = 0; i < 2; i++)
        assert_ok(t, tern_match(t, s.id, &list, TERN_STEP_NONE, RIG_WAIT_MS, &r[i]));
    effects += !alike(&r[0], &r[1]);
    effects += twice(&s, (struct engine_op){.kind = ENGINE_EXTEND, .length = TOKENS});
    effects += twice(&s, (struct engine_op){.kind = ENGINE_EXTEND, .written = TOKENS});
    effects += twice(
        &s, (struct engine_op){.kind = ENGINE_COMMIT, .step = TERN_STEP_NONE, .length = 4 * L});
    effects += twice(
        &s, (struct engine_op){.kind = ENGINE_REWIND, .step = TERN_STEP_NONE, .length = 6 * L});
    effects += twice(
        &s, (struct engine_op){.kind = ENGINE_SLIDE, .step = TERN_STEP_NONE, .length = 6 * L});
    effects += twice(&s, (struct engine_op){.kind = ENGINE_SNAPSHOT_RELEASE});
    effects += twice(
        &s, (struct engine_op){.kind = ENGINE_FINISH, .step = TERN_STEP_NONE, .length = 6 * L});
    injected += 8;
    for (uint32_t i = 0; i < 2; i++)
        assert_ok(t,
                  tern_retract(t, s.id, TERN_RETRACT_DROP, TERN_STEP_NONE, RIG_WAIT_MS, &away[i]));
    effects += memcmp(&away[0].lengths, &away[1].lengths, sizeof away[0].lengths) != 0;
    for (uint32_t i = 0; i < 2; i++)
        assert_ok(t, tern_recover(t, s.id, RIG_WAIT_MS, &r[i]));
    effects += !alike(&r[0], &r[1]);
    effects += twice(&s, (struct engine_op){.kind = ENGINE_ABORT, .step = TERN_STEP_NONE});
    for (uint32_t i = 0; i < 2; i++)
        assert_ok(t, tern_namespace_reset(t, &survivor.ns, RIG_WAIT_MS, &nodes[i], NULL));
    effects += nodes[1] > nodes[0]; /* it returns how many are still held, which must not grow */
    for (uint32_t i = 0; i < 2; i++)
        assert_ok(t, tern_join(t, "survivor", TERN_BOTH, 0, 1, NULL, RIG_WAIT_MS));
    injected += 5;
    assert_ok(
        t,
        op_do(t, &(struct engine_op){.kind = ENGINE_CLOSE, .step = TERN_STEP_NONE, .session = s.id},
              RIG_WAIT_MS, r));
    assert_int_equal(
        op_do(t, &(struct engine_op){.kind = ENGINE_CLOSE, .step = TERN_STEP_NONE, .session = s.id},
              RIG_WAIT_MS, r),
        TERN_GONE);
    engine_free(&s);
    assert_int_equal(pages().sessions, 0);
    reclaimed(0); /* a worker that reads a page for its checksum keeps it so long */
    assert_int_equal(pages().pages.free, free_at_rest);
    assert_int_equal(effects, 0);
    printf("fault=26 runs=1 injected=%u violations=0 double_effects=%u\n", injected, effects);
}
