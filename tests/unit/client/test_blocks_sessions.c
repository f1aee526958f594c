/* The state that a set of blocks assumes of its sessions after a request that was not answered, or
 * only in part. The daemon is scripted: it has sessions, knows which are closed, and has all blocks
 * on its host tier. */
#include <stdatomic.h>
#include <string.h>

#include "client/libtern/blocks.h"
#include "unit/rig/rig_client.h"

#define SESSIONS_MAX 1024u
#define CLOSE        6u /* the kind of an operation */
#define WAIT_MS      20000u
#define LATE_MS      60u

static struct {
    uint32_t opened;
    _Atomic uint32_t open;
    bool is_open[SESSIONS_MAX + 1];
    struct frame_header load[SESSIONS_MAX + 1]; /* request_id 0: no load */
    _Atomic uint32_t loads;                     /* loads that are answered; the next ones wait */
    _Atomic uint32_t closes; /* closes of a Step that are carried out; the others are BUSY */
    _Atomic bool silent;     /* Steps are carried out without an answer */
    _Atomic uint32_t steps;
} daemon_has;

static void answer_load(struct fake *f, struct frame_header h, enum tern_err err)
{
    Tern__Wire__FetchReply m = TERN__WIRE__FETCH_REPLY__INIT;
    Tern__Wire__Status status = fake_status(err, NULL, NULL);
    Tern__Wire__Lengths lengths = fake_lengths(BLOCK_TOKENS, BLOCK_TOKENS, BLOCK_TOKENS);
    struct tern_page page = {.index = (uint32_t)h.session, .generation = 1};
    Tern__Wire__Run run = fake_run(0, 0, &page, 1), *runs[] = {&run};

    if (err != TERN_OK)
        m.status = &status;
    m.lengths = &lengths;
    m.n_runs = err == TERN_OK;
    m.runs = runs;
    f->h = h;
    fake_reply(f, &m);
}

static void close_one(struct fake *f, uint64_t session)
{
    check(session > 0 && session <= daemon_has.opened);
    if (!daemon_has.is_open[session])
        return;
    if (daemon_has.load[session].request_id != 0)
        answer_load(f, daemon_has.load[session], TERN_GONE);
    daemon_has.is_open[session] = false;
    daemon_has.open--;
}

static void answer_step(struct fake *f, const Tern__Wire__Step *s)
{
    static Tern__Wire__OpResult result[64], *results[64];
    Tern__Wire__Status busy = fake_status(TERN_BUSY, "not now", NULL);
    Tern__Wire__StepReply r = TERN__WIRE__STEP_REPLY__INIT;
    struct frame_header h = f->h;

    check(s->n_ops <= 64);
    for (uint32_t i = 0; i < s->n_ops; i++) {
        tern__wire__op_result__init(&result[i]);
        results[i] = &result[i];
        if (s->ops[i]->kind == CLOSE && i >= daemon_has.closes)
            result[i].status = &busy;
        else if (s->ops[i]->kind == CLOSE)
            close_one(f, s->ops[i]->session);
    }
    r.n_results = s->n_ops;
    r.results = results;
    f->h = h;
    daemon_has.steps++;
    if (!daemon_has.silent)
        fake_reply(f, &r);
}

static void serve(struct fake *f)
{
    const ProtobufCMessage *m;

    while ((m = fake_read(f)) != NULL) {
        Tern__Wire__SessionOpenReply opened = TERN__WIRE__SESSION_OPEN_REPLY__INIT;
        Tern__Wire__MatchReply match = TERN__WIRE__MATCH_REPLY__INIT;

        if (f->h.type == FRAME_SESSION_OPEN) {
            check(daemon_has.opened < SESSIONS_MAX);
            opened.has_session = 1;
            opened.session = ++daemon_has.opened;
            daemon_has.is_open[opened.session] = true;
            daemon_has.open++;
            fake_reply(f, &opened);
        } else if (f->h.type == FRAME_MATCH) {
            match.has_host_depth = 1;
            match.host_depth = BLOCK_TOKENS;
            fake_reply(f, &match);
        } else if (f->h.type == FRAME_FETCH && daemon_has.loads > 0) {
            daemon_has.loads--;
            answer_load(f, f->h, TERN_OK);
        } else if (f->h.type == FRAME_FETCH) {
            daemon_has.load[f->h.session] = f->h;
        } else if (f->h.type == FRAME_STEP) {
            answer_step(f, (const Tern__Wire__Step *)m);
        } else {
            fake_reply_empty(f);
        }
    }
}

static struct tern_block_set *set;
static struct tern_block_key keys[3 * BLOCKS_SESSIONS];

FIXTURE(set_begin)
{
    client_setup(state);
    memset(&daemon_has, 0, sizeof daemon_has);
    daemon_has.closes = SESSIONS_MAX;
    daemon_has.loads = SESSIONS_MAX;
    start(serve, NULL);
    set = calloc(1, sizeof *set);
    assert_true(set);
    set->t = t;
    set->ns = (struct tern_namespace){"m", "", "", "", ""};
    assert_ok(tern_batch_create(t, &set->batch));
    for (uint32_t i = 0; i < 3 * BLOCKS_SESSIONS; i++)
        keys[i] = (struct tern_block_key){&keys[i], 8};
    return 0;
}

FIXTURE(set_end)
{
    tern_batch_destroy(set->batch);
    client_stop(state);
    pins_free(set);
    free(set);
    return 0;
}

TEST_EACH(set_begin, set_end);

/* Loads n blocks. Returns how many have the right page. */
static uint32_t load(uint32_t n, uint32_t deadline_ms, enum tern_err want)
{
    const uint64_t until_ns = deadline_at(deadline_ms);
    uint32_t at[BLOCKS_SESSIONS], pages[BLOCKS_SESSIONS] = {0}, came = 0;

    for (uint32_t i = 0; i < n; i++)
        at[i] = i;
    assert_ok(sessions_ready(set, &set->loads, n, until_ns));
    assert_err(want, sessions_load(set, at, n, until_ns, pages));
    for (uint32_t i = 0; i < n && want == TERN_OK; i++)
        came += pages[i] == set->loads.v[i]; /* the daemon's choice */
    return came;
}

/* Loads that timed out stay among the requests under way until they are answered. Later loads wait
 * for them, however many they are. */
TEST(blocks_load_behind_loads_that_timed_out)
{
    for (uint32_t n = 1; n <= BLOCKS_SESSIONS; n *= 8) {
        daemon_has.loads = n / 2;
        load(n, LATE_MS, TERN_TIMED_OUT);
        daemon_has.loads = SESSIONS_MAX;
        assert_int_equal(load(BLOCKS_SESSIONS, WAIT_MS, TERN_OK), BLOCKS_SESSIONS);
        assert_int_equal(daemon_has.open, BLOCKS_SESSIONS);
        sessions_rest(set, BLOCKS_SESSIONS, deadline_at(WAIT_MS));
    }
}

/* The daemon carries out so many closes in one step, and answers the others BUSY. */
TEST(blocks_close_sessions_that_were_busy)
{
    daemon_has.loads = 0;
    load(BLOCKS_SESSIONS, LATE_MS, TERN_TIMED_OUT);
    daemon_has.loads = SESSIONS_MAX;
    daemon_has.closes = 40;
    assert_int_equal(load(BLOCKS_SESSIONS, WAIT_MS, TERN_OK), BLOCKS_SESSIONS);
    assert_int_equal(daemon_has.open, BLOCKS_SESSIONS);
    daemon_has.closes = 0;
    set->loads.dirty = 7;
    assert_err(TERN_BUSY, sessions_ready(set, &set->loads, 3, deadline_at(LATE_MS)));
    daemon_has.closes = SESSIONS_MAX;
    assert_ok(sessions_ready(set, &set->loads, 3, deadline_at(WAIT_MS)));
    assert_int_equal(daemon_has.open, BLOCKS_SESSIONS);
}

/* A pin whose last blocks are not loaded, and whose first ones cannot be released then. */
TEST(blocks_pin_that_failed_holds_nothing)
{
    struct tern_block_pin *pin = NULL;

    daemon_has.loads = BLOCKS_SESSIONS + 5;
    daemon_has.silent = true;
    assert_err(TERN_TIMED_OUT,
               tern_blocks_pin(set, keys, 2 * BLOCKS_SESSIONS, 2 * LATE_MS, NULL, &pin));
    assert_non_null(strstr(tern_error_text(t, NULL), "the request timed out"));
    assert_int_equal(daemon_has.open, BLOCKS_SESSIONS); /* the first ones went unanswered */
    assert_int_equal(set->pinned, BLOCKS_SESSIONS);
    assert_null(set->pins);
    daemon_has.silent = false;
    daemon_has.loads = SESSIONS_MAX;
    assert_ok(tern_blocks_pin(set, keys, 2 * BLOCKS_SESSIONS, WAIT_MS, NULL, &pin));
    assert_int_equal(daemon_has.open, 2 * BLOCKS_SESSIONS);
    assert_int_equal(set->pinned, 2 * BLOCKS_SESSIONS);
    daemon_has.closes = 20; /* in each request */
    assert_ok(tern_blocks_unpin(&pin, WAIT_MS));
    assert_int_equal(set->pinned, 0);
    assert_int_equal(daemon_has.open, 0);

    daemon_has.closes = 0;
    daemon_has.loads = BLOCKS_SESSIONS;
    assert_err(TERN_TIMED_OUT,
               tern_blocks_pin(set, keys, 2 * BLOCKS_SESSIONS, 2 * LATE_MS, NULL, &pin));
    assert_int_equal(daemon_has.open, 2 * BLOCKS_SESSIONS);
    daemon_has.closes = SESSIONS_MAX;
    daemon_has.loads = SESSIONS_MAX;
    load(1, WAIT_MS, TERN_OK);
    assert_int_equal(set->pinned, 0);
    assert_int_equal(daemon_has.open, 1);
}
