/* Decode over a lease, through a real daemon: sessions take pages from a stock that the engine
 * leases ahead of need, and one Step that nobody waits for reports them all. Every byte of every
 * session is compared; an engine killed with a lease leaves nothing behind. */
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/admin.h"
#include "engine/engine.h"
#include "rig_daemon.h"
#include "testing/test.h"

#define L        16u
#define PAGE     4096u
#define PAGES    512u
#define SESSIONS 24u
#define PROMPT   40u
#define LONG     200u /* tokens of a session at the end */
#define DRAFT    4u   /* speculative tokens of a step */
#define AHEAD    3u   /* steps dispatched before the answer to a commit is applied */

static struct daemon rig;
static struct tern *admin;

FIXTURE(start)
{
    rig_start(&rig, "", NULL);
    admin = rig_connected(rig.admin);
    return 0;
}

FIXTURE(stop)
{
    tern_destroy(admin);
    assert_int_equal(rig_stop(&rig), 0);
    return 0;
}

TEST_EACH(start, stop);

struct decode {
    struct engine e;
    struct tern_lease *lease;
    struct engine_session s[SESSIONS];
    uint32_t at[SESSIONS]; /* its number in the lease */
    uint32_t waits, told;
};

static uint64_t leased(void)
{
    return rig_figure(admin, "status", "pools.0.leased");
}

static struct tern_layout layout_of(const struct engine *e)
{
    return (struct tern_layout){.groups = e->groups, .ngroups = e->ngroups, .bytes = PAGES * PAGE};
}

static struct tern_lease *lease_of(struct engine *e, uint32_t low, uint32_t high)
{
    const struct tern_layout layout = layout_of(e);
    const struct tern_lease_marks marks = {.low = low, .high = high};
    struct tern_lease *l;

    assert_ok(e->tern, tern_lease_begin(e->tern, e->pool, &layout, &marks, SESSIONS, &l));
    assert_ok(e->tern, tern_lease_wait(l, RIG_WAIT_MS));
    return l;
}

/* Pairs of sessions have the same tokens, so that one adopts the other's commits. */
static void begin(struct decode *d, uint32_t i)
{
    struct engine_session *s = &d->s[i];
    uint32_t tokens[LONG];

    for (uint32_t k = 0; k < LONG; k++)
        tokens[k] = (i / 2) * 1000 + k + 1;
    assert_ok(d->e.tern, engine_begin_with(s, &d->e, tokens, PROMPT, LONG - PROMPT));
    assert_ok(d->e.tern, engine_extend(s, PROMPT + 1 + DRAFT, PROMPT));
    engine_write(s, 0, PROMPT);
    assert_ok(d->e.tern, tern_lease_add(d->lease, s->id, &s->last, &d->at[i]));
}

static void apply_told(struct decode *d)
{
    struct tern_lease_told told;

    while (tern_lease_told(d->lease, &told) == TERN_OK) {
        uint32_t i = 0;

        while (d->s[i].id != told.session)
            i++;
        if (told.failed || told.result.err != TERN_OK)
            fail_msg("session %u: %s: %s", i, tern_strerror(told.result.err), told.text);
        told.result.lengths.written = d->s[i].len.written;
        told.result.lengths.allocated = d->s[i].len.allocated;
        assert_int_equal(engine_take(&d->s[i], &told.result), TERN_OK);
        d->told++;
    }
}

static enum tern_err submit(struct decode *d)
{
    enum tern_err err = tern_lease_submit(d->lease, d->e.step + 1);

    if (err == TERN_BUSY) {
        d->waits++;
        assert_ok(d->e.tern, tern_lease_wait(d->lease, RIG_WAIT_MS));
        apply_told(d);
        err = tern_lease_submit(d->lease, d->e.step + 1);
    }
    return err;
}

/* n of the drafted tokens were right, and one more was sampled. */
static void accepts(struct decode *d, uint32_t i, uint32_t n)
{
    struct engine_session *s = &d->s[i];
    uint32_t from = s->len.written, to = from + n < LONG ? from + n : LONG,
             room = to + 1 + DRAFT < LONG ? to + 1 + DRAFT : LONG;
    struct tern_result r = {.err = TERN_OK};
    enum tern_err err = TERN_BUSY;

    for (uint32_t tries = 0; err == TERN_BUSY && tries < 1000; tries++) {
        err =
            tern_lease_extend(d->lease, d->at[i], s->tokens + from, to - from, to,
                              room > s->len.allocated ? room : s->len.allocated, &r.runs, &r.nruns);
        if (err == TERN_BUSY) {
            assert_ok(d->e.tern, submit(d));
            assert_ok(d->e.tern, tern_lease_wait(d->lease, RIG_WAIT_MS));
            d->waits++;
        }
    }
    assert_ok(d->e.tern, err);
    r.lengths =
        (struct tern_lengths){.committed = s->len.committed,
                              .written = to,
                              .allocated = room > s->len.allocated ? room : s->len.allocated};
    r.tokens = to;
    assert_int_equal(engine_take(s, &r), TERN_OK);
    engine_write(s, from, to);
}

static void decode_step(struct decode *d, uint32_t step)
{
    apply_told(d);
    for (uint32_t i = 0; i < SESSIONS; i++)
        accepts(d, i, 1 + (step * 7 + i * 3) % 10 / 7); /* most are rejected */
    for (uint32_t i = step % 8; i < SESSIONS; i += 8) {
        uint32_t depth = d->s[i].len.written / L * L;

        if (depth > d->s[i].len.committed)
            (void)tern_lease_commit(d->lease, d->at[i], depth, d->e.step + AHEAD);
    }
    assert_ok(d->e.tern, submit(d));
    assert_ok(d->e.tern, engine_publish(&d->e));
}

/* E5, E6: sessions decode over a lease, and every byte is the one that was written, even in pages
 * that another session used before. Other sessions find the prefixes committed meanwhile, and no
 * page leaks. */
TEST(e5_sessions_decode_over_a_lease)
{
    struct decode d = {.e = rig_engine(rig.socket, "decode", L, PAGES * PAGE)};
    uint64_t free_at_rest = rig_figure(admin, "status", "pools.0.free");

    d.lease = lease_of(&d.e, 24, 64);
    assert_int_equal(leased(), 64);
    for (uint32_t i = 0; i < SESSIONS; i++)
        begin(&d, i);
    for (uint32_t step = 0; step < 160; step++)
        decode_step(&d, step);
    for (uint32_t i = 0; i < AHEAD; i++) /* nothing is in flight now */
        assert_ok(d.e.tern, engine_publish(&d.e));
    assert_ok(d.e.tern, tern_lease_wait(d.lease, RIG_WAIT_MS));
    apply_told(&d);
    for (uint32_t i = 0; i < SESSIONS; i++) {
        assert_int_equal(d.s[i].len.written, LONG);
        assert_int_equal(engine_wrong(&d.s[i], LONG), 0);
        assert_ok(d.e.tern, tern_lease_remove(d.lease, d.at[i], TERN_STEP_NONE));
    }
    assert_ok(d.e.tern, tern_lease_submit(d.lease, 0));
    for (uint32_t i = 0; i < SESSIONS; i++) { /* the daemon has the same lengths */
        assert_ok(d.e.tern, engine_extend(&d.s[i], 0, 0));
        assert_int_equal(d.s[i].len.written, LONG);
        assert_int_equal(d.s[i].last.tokens, LONG);
        assert_ok(d.e.tern, engine_commit(&d.s[i], LONG / L * L));
        assert_int_equal(engine_wrong(&d.s[i], LONG), 0);
    }
    for (uint32_t i = 0; i < SESSIONS; i += 2) {
        struct engine_session like;

        assert_ok(d.e.tern, engine_begin(&like, &d.e, d.s[i].tokens, LONG));
        assert_int_equal(like.matched, LONG / L * L);
        assert_int_equal(engine_wrong(&like, LONG / L * L), 0);
        assert_ok(d.e.tern, engine_end(&like));
    }
    for (uint32_t i = 0; i < SESSIONS; i++)
        assert_ok(d.e.tern, engine_end(&d.s[i]));
    assert_true(leased() > 0);
    assert_ok(d.e.tern, tern_lease_end(&d.lease, RIG_WAIT_MS));
    assert_int_equal(leased(), 0);
    assert_true(d.told >= SESSIONS);
    rig_no_leak(admin, d.e.pool, free_at_rest, RIG_WAIT_MS);
    engine_close(&d.e);
}

/* E1: the daemon frees the pages that a killed engine had leased, in sessions and in its stock. */
TEST(e1_engine_killed_with_a_lease)
{
    struct engine survivor = rig_engine(rig.socket, "survivor", L, PAGES * PAGE);
    uint64_t free_at_rest = rig_figure(admin, "status", "pools.0.free");
    pid_t pid = fork();
    int status;

    assert_true(pid >= 0);
    if (pid == 0) {
        struct decode d = {.e = survivor};

        d.e.tern = NULL;
        d.e.map = NULL;
        if (tern_connect(rig.socket, RIG_WAIT_MS, &d.e.tern) != TERN_OK ||
            tern_join(d.e.tern, "victim", TERN_BOTH, 0, 1, NULL, RIG_WAIT_MS) != TERN_OK ||
            tern_pool_map(d.e.tern, d.e.pool, RIG_WAIT_MS, &d.e.map) != TERN_OK)
            _exit(2);
        d.lease = lease_of(&d.e, 24, 64);
        for (uint32_t i = 0; i < SESSIONS; i++)
            begin(&d, i);
        for (uint32_t step = 0; step < 40; step++)
            decode_step(&d, step);
        if (tern_lease_stock(d.lease, 0) == 0)
            _exit(3);
        raise(SIGKILL);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    wait_until(leased() == 0);
    rig_no_leak(admin, survivor.pool, free_at_rest, RIG_WAIT_MS);
    engine_close(&survivor);
}

/* A refusal after the call has returned is reported once, with its error. Every further call on
 * that session returns the same error. Its pages are freed when it is removed, and the other
 * sessions continue. */
TEST(e6_refusal_that_comes_late_is_told_and_nothing_is_lost)
{
    struct decode d = {.e = rig_engine(rig.socket, "decode", L, PAGES * PAGE)};
    uint64_t free_at_rest = rig_figure(admin, "status", "pools.0.free");
    struct tern_lease_told told;
    const struct tern_run *runs;
    struct tern_result now;
    tern_session id;
    uint32_t nruns;
    char why[80];

    d.lease = lease_of(&d.e, 8, 32);
    begin(&d, 0);
    begin(&d, 2);
    id = d.s[0].id;
    now = d.s[0].last;
    assert_int_equal(tern_session_close(d.e.tern, id, TERN_STEP_NONE, RIG_WAIT_MS, &now),
                     TERN_CONFLICT); /* it is in the lease */
    assert_ok(d.e.tern, tern_lease_remove(d.lease, d.at[0], TERN_STEP_NONE));
    assert_ok(d.e.tern, tern_lease_submit(d.lease, 0));
    assert_ok(d.e.tern, engine_end(&d.s[0]));
    assert_ok(d.e.tern, tern_lease_add(d.lease, id, &now, &d.at[0])); /* the daemon has closed it */
    assert_ok(d.e.tern, tern_lease_extend(d.lease, d.at[0], d.s[2].tokens, 1, PROMPT + 1,
                                          PROMPT + 40, &runs, &nruns));
    assert_int_equal(nruns, 1);
    assert_int_equal(runs[0].n, 2);
    accepts(&d, 2, 5);
    assert_ok(d.e.tern, tern_lease_submit(d.lease, 1));
    assert_ok(d.e.tern, tern_lease_wait(d.lease, RIG_WAIT_MS));
    assert_ok(d.e.tern, tern_lease_told(d.lease, &told));
    assert_true(told.failed);
    assert_int_equal(told.slot, d.at[0]);
    assert_int_equal(told.result.err, TERN_GONE);
    assert_non_null(strstr(told.text, "of the lease: its extend to written"));
    assert_int_equal(tern_lease_told(d.lease, &told), TERN_BUSY);
    assert_int_equal(tern_lease_extend(d.lease, d.at[0], d.s[2].tokens, 0, PROMPT + 1, PROMPT + 41,
                                       &runs, &nruns),
                     TERN_GONE);
    assert_true(strlen(tern_error_text(d.e.tern, NULL)) > 0);
    assert_ok(d.e.tern,
              tern_lease_commit(d.lease, d.at[2], L + 1, TERN_STEP_NONE)); /* it continues */
    assert_ok(d.e.tern, tern_lease_submit(d.lease, 0));
    assert_ok(d.e.tern, tern_lease_wait(d.lease, RIG_WAIT_MS));
    assert_ok(d.e.tern, tern_lease_told(d.lease, &told));
    assert_false(told.failed);
    snprintf(why, sizeof why, "Why: depth %u is not a multiple of %u: use %u or %u", L + 1, L, L,
             2 * L);
    assert_non_null(strstr(told.text, why));
    accepts(&d, 2, 5);
    assert_int_equal(tern_lease_end(&d.lease, RIG_WAIT_MS), TERN_CONFLICT);
    d.e.step = 5;
    assert_ok(d.e.tern, tern_lease_remove(d.lease, d.at[0], d.e.step));
    assert_ok(d.e.tern, tern_lease_remove(d.lease, d.at[2], d.e.step));
    assert_ok(d.e.tern, tern_lease_submit(d.lease, 0));
    assert_ok(d.e.tern, tern_lease_wait(d.lease, RIG_WAIT_MS));
    assert_int_equal(rig_figure(admin, "status", "pools.0.retiring"), 2); /* E2 */
    assert_ok(d.e.tern, tern_lease_end(&d.lease, RIG_WAIT_MS));
    assert_int_equal(leased(), 0);
    assert_int_equal(engine_wrong(&d.s[2], PROMPT + 10), 0);
    assert_ok(d.e.tern, engine_end(&d.s[2]));
    assert_ok(d.e.tern, tern_done_step(d.e.map, d.e.step));
    rig_no_leak(admin, d.e.pool, free_at_rest, RIG_WAIT_MS);
    engine_close(&d.e);
}
