/* Sessions that are retracted and recovered through ternd and libtern: to host memory and back with
 * the same bytes, dropped and recovered at once, a full host, failing copies, fetches from the host
 * tier, namespaces that are reset. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/admin.h"
#include "engine/engine.h"
#include "engine/json.h"
#include "rig_daemon.h"
#include "testing/test.h"

#define L      64 /* tokens of a page of either group, and of a chunk */
#define PAGE   4096
#define WINDOW 128
#define TOKENS 1000 /* of a session: its last page is not full */
#define CHUNKS (TOKENS / L)

static struct daemon rig;
static struct engine e = {.ns = {.model = "m", .revision = "1"}};
static struct tern *admin;

static void start_with(const char *extra, uint64_t host_bytes)
{
    struct tern_group groups[] = {
        {.name = "kv", .page_tokens = L, .page_bytes = PAGE},
        {.name = "swa",
         .family = TERN_WINDOW,
         .page_tokens = L,
         .page_bytes = PAGE,
         .window = WINDOW,
         .reserve = 1},
    };
    struct tern_layout layout = {
        .groups = groups, .ngroups = 2, .bytes = 4u << 20, .host_bytes = host_bytes};

    rig_start(&rig, extra, NULL);
    assert_err(TERN_OK, engine_open(&e, rig.socket, "e", &layout, RIG_WAIT_MS));
    assert_err(TERN_OK, tern_connect(rig.admin, 0, &admin));
}

static void stop_all(void)
{
    engine_close(&e);
    tern_destroy(admin);
    assert_int_equal(rig_stop(&rig), 0);
}

FIXTURE(start)
{
    start_with("    host_memory: 16M\n    host_write_through: true\n", 2u << 20);
    return 0;
}

FIXTURE(stop)
{
    stop_all();
    return 0;
}

/* ---- a session and its bytes ---- */

/* A session grows by at most two more pages. */
static const uint32_t *tokens_of(uint32_t seed)
{
    static uint32_t v[TOKENS + 2 * L];

    for (uint32_t i = 0; i < TOKENS + 2 * L; i++)
        v[i] = seed * 65536 + i;
    return v;
}

static void assert_bytes(const struct engine_session *s, uint32_t upto)
{
    assert_int_equal(engine_wrong(s, upto), 0);
}

static void open_session(struct engine_session *s, uint32_t seed)
{
    assert_ok(e.tern, engine_begin_with(s, &e, tokens_of(seed), TOKENS, 2 * L));
}

/* Runs a session to the end of its tokens, with all whole chunks committed. */
static void run_session(struct engine_session *s, uint32_t seed)
{
    open_session(s, seed);
    assert_ok(e.tern, engine_run(s));
    assert_int_equal(s->len.committed, CHUNKS * L);
    assert_int_equal(s->len.written, TOKENS);
}

static void close_session(struct engine_session *s)
{
    assert_ok(e.tern, engine_end(s));
}

static json_t *asked(const char *command, const char *arg)
{
    json_t *root = admin_ask(admin, command, arg);

    if (!root)
        fail_msg("%s: %s", command, tern_error_text(admin, NULL));
    return root;
}

static void evict(uint32_t nodes)
{
    char arg[32];

    snprintf(arg, sizeof arg, "nodes=%u", nodes);
    json_decref(asked("evict", arg));
}

/* Waits for the state of the one open session. */
static void wait_for_state(const char *want)
{
    uint64_t end = rig_now_ms() + RIG_WAIT_MS;
    char state[32] = "";

    while (strcmp(state, want) != 0) {
        json_t *root = asked("sessions", NULL);

        assert_int_equal(json_array_size(json_object_get(root, "sessions")), 1);
        snprintf(state, sizeof state, "%s", json_string_value(json_at(root, "sessions.0.state")));
        json_decref(root);
        if (rig_now_ms() > end)
            fail_msg("the session is %s", state);
        usleep(1000);
    }
}

/* Waits until every node of the tree is on both tiers. */
static void wait_for_copies(void)
{
    uint64_t end = rig_now_ms() + RIG_WAIT_MS;
    uint32_t missing = 1;

    while (missing > 0) {
        json_t *root = asked("tree", NULL), *rows = json_object_get(root, "tree"), *row;
        size_t i;

        missing = json_array_size(rows) < CHUNKS;
        json_array_foreach(rows, i, row) missing += !json_says(row, "tier", "both");
        json_decref(root);
        if (rig_now_ms() > end)
            fail_msg("%u nodes are not on both tiers", missing);
        usleep(1000);
    }
}

/* Closes the session; then everything must be free again on both tiers. */
static void end_session(struct engine_session *s)
{
    uint64_t end = rig_now_ms() + RIG_WAIT_MS;
    uint32_t nodes;

    close_session(s);
    assert_ok(e.tern, engine_publish(&e));
    do {
        json_t *root;

        evict(0);
        root = asked("tree", NULL);
        nodes = (uint32_t)json_array_size(json_object_get(root, "tree"));
        json_decref(root);
        if (rig_now_ms() > end)
            fail_msg("%u prefix nodes stay", nodes);
    } while (nodes > 0);
}

/* ---- the tests ---- */

TEST_WITH(retract_host_comes_back_with_the_same_bytes, start, stop)
{
    struct tern_retracted gone;
    struct engine_session s;

    run_session(&s, 1);
    assert_ok(e.tern, engine_extend(&s, TOKENS + 2 * L, 0));
    e.step += 2;
    assert_ok(e.tern, tern_retract(e.tern, s.id, TERN_RETRACT_HOST, e.step, 0, &gone));
    assert_int_equal(gone.lengths.committed, CHUNKS * L);
    assert_int_equal(gone.lengths.written, TOKENS);
    assert_int_equal(gone.free_now, 0);
    assert_in_range(gone.free_at_step, 2, 6); /* beyond the written tokens, both groups */
    wait_for_state("retracting");
    assert_ok(e.tern, tern_done_step(e.map, e.step));
    wait_for_state("retracted");
    evict(0); /* its prefix leaves the device; its copy on the host is pinned */
    assert_ok(e.tern, engine_recover(&s, RIG_WAIT_MS));
    assert_true(s.last.fetched_kib >= CHUNKS * PAGE / 1024);
    assert_int_equal(s.len.committed, CHUNKS * L);
    assert_int_equal(s.len.written, TOKENS);
    assert_int_equal(s.last.tokens, TOKENS);
    assert_bytes(&s, TOKENS);
    assert_ok(e.tern, engine_extend(&s, TOKENS + L, 0));
    end_session(&s);
}

TEST_WITH(retract_drop_comes_back_at_once, start, stop)
{
    struct tern_retracted gone;
    struct engine_session s;

    run_session(&s, 2);
    assert_ok(e.tern, tern_retract(e.tern, s.id, TERN_RETRACT_DROP, TERN_STEP_NONE, 0, &gone));
    assert_int_equal(gone.lengths.allocated, CHUNKS * L);
    assert_true(gone.free_now >= 1);
    assert_int_equal(gone.free_at_step, 0);
    evict(0);
    assert_ok(e.tern, engine_recover(&s, RIG_WAIT_MS));
    assert_int_equal(s.last.fetched_kib, 0);
    assert_int_equal(s.len.written, CHUNKS * L);
    assert_bytes(&s, CHUNKS * L);
    end_session(&s);
}

TEST_WITH(a_session_that_is_away_takes_few_requests, start, stop)
{
    struct tern_tokens list = {.v = tokens_of(3), .n = TOKENS};
    struct tern_retracted gone;
    struct tern_result r;
    struct engine_session s;

    run_session(&s, 3);
    assert_ok(e.tern, tern_retract(e.tern, s.id, TERN_RETRACT_HOST, TERN_STEP_NONE, 0, &gone));
    wait_for_state("retracted");
    assert_err(TERN_INVALID, engine_extend(&s, 2 * TOKENS, 0));
    assert_err(TERN_INVALID, tern_match(e.tern, s.id, &list, TERN_STEP_NONE, 0, &r));
    assert_string_not_equal(engine_why(&e), "");
    assert_err(TERN_INVALID, engine_fetch(&s, NULL, 0, RIG_WAIT_MS));
    assert_ok(e.tern,
              tern_retract(e.tern, s.id, TERN_RETRACT_DROP, TERN_STEP_NONE, 0, &gone)); /* S8 */
    assert_int_equal(gone.free_now, 0);
    wait_for_state("retracted");
    assert_ok(e.tern, tern_fetch_cancel(e.tern, s.id, 0));
    assert_ok(e.tern, engine_recover(&s, RIG_WAIT_MS));
    assert_ok(e.tern, engine_recover(&s, RIG_WAIT_MS)); /* repeated: returns the table once more */
    assert_bytes(&s, TOKENS);
    end_session(&s);
}

/* Whichever wins, the session is complete afterwards. */
TEST_WITH(recover_and_cancel_race_and_one_wins, start, stop)
{
    struct tern_retracted gone;
    struct engine_session s;
    uint32_t won = 0;

    run_session(&s, 4);
    for (uint32_t i = 0; i < 20; i++) {
        struct tern_answer answer;
        enum tern_err err;

        assert_ok(e.tern, tern_retract(e.tern, s.id, TERN_RETRACT_HOST, TERN_STEP_NONE, 0, &gone));
        wait_for_state("retracted");
        evict(0);
        assert_ok(e.tern, tern_submit_recover(e.tern, s.id, i));
        assert_ok(e.tern, tern_fetch_cancel(e.tern, s.id, 0));
        while ((err = tern_poll(e.tern, &answer)) == TERN_BUSY)
            usleep(100);
        assert_ok(e.tern, err);
        assert_int_equal(answer.cookie, i);
        assert_true(answer.err == TERN_OK || answer.err == TERN_GONE);
        won += answer.err == TERN_OK;
        while ((err = engine_recover(&s, RIG_WAIT_MS)) == TERN_BUSY)
            usleep(100); /* a cancelled copy is still running */
        assert_ok(e.tern, err);
        assert_bytes(&s, TOKENS);
    }
    assert_true(won <= 20);
    end_session(&s);
}

TEST_WITH(fetch_from_the_host_tier_brings_the_same_bytes, start, stop)
{
    struct tern_depths depths;
    struct tern_tokens list;
    struct engine_session s;

    run_session(&s, 5);
    close_session(&s);
    wait_for_copies();
    list = (struct tern_tokens){.v = tokens_of(5), .n = TOKENS};
    assert_ok(e.tern, tern_peek(e.tern, e.pool, &e.ns, &list, 0, &depths));
    assert_int_equal(depths.resumable, CHUNKS * L);
    evict(CHUNKS); /* every node, from the device */
    assert_ok(e.tern, tern_peek(e.tern, e.pool, &e.ns, &list, 0, &depths));
    assert_int_equal(depths.resumable, 0);
    assert_int_equal(depths.host, CHUNKS * L);
    open_session(&s, 5);
    assert_int_equal(s.matched, 0);
    assert_int_equal(s.host_depth, CHUNKS * L);
    assert_ok(e.tern, engine_fetch(&s, NULL, 5 * L, RIG_WAIT_MS));
    assert_int_equal(s.len.committed, 5 * L);
    assert_bytes(&s, 5 * L);
    assert_ok(e.tern, engine_fetch(&s, NULL, 0, RIG_WAIT_MS));
    assert_int_equal(s.len.committed, CHUNKS * L);
    assert_bytes(&s, CHUNKS * L);
    end_session(&s);
}

TEST_WITH(namespace_reset_hides_everything_at_once, start, stop)
{
    struct tern_namespace others = {.model = "m", .revision = "2"};
    struct tern_tokens list = {.v = tokens_of(6), .n = TOKENS};
    struct tern_depths depths;
    struct engine_session s, again;
    uint32_t nodes = 0;

    run_session(&s, 6);
    assert_ok(e.tern, tern_namespace_reset(e.tern, &others, 0, &nodes, NULL));
    assert_int_equal(nodes, 0);
    assert_ok(e.tern, tern_peek(e.tern, e.pool, &e.ns, &list, 0, &depths));
    assert_int_equal(depths.resumable, CHUNKS * L);
    assert_ok(e.tern, tern_namespace_reset(e.tern, &e.ns, 0, &nodes, NULL));
    assert_true(nodes > 0); /* the session pins them */
    assert_ok(e.tern, tern_peek(e.tern, e.pool, &e.ns, &list, 0, &depths));
    assert_int_equal(depths.history, 0);
    assert_int_equal(depths.host, 0);
    open_session(&again, 6);
    assert_int_equal(again.matched, 0);
    close_session(&again);
    assert_bytes(&s, TOKENS);
    end_session(&s);
}

TEST(no_host_tier_or_too_small_a_one)
{
    struct tern_retracted gone;
    struct engine_session s;

    start_with("", 0);
    run_session(&s, 1);
    assert_err(TERN_UNSUPPORTED,
               tern_retract(e.tern, s.id, TERN_RETRACT_HOST, TERN_STEP_NONE, 0, &gone));
    assert_string_not_equal(engine_why(&e), "");
    stop_all();

    start_with("    host_memory: 16M\n", 8 * PAGE);
    run_session(&s, 2);
    assert_err(TERN_QUOTA, tern_retract(e.tern, s.id, TERN_RETRACT_HOST, TERN_STEP_NONE, 0, &gone));
    assert_true(gone.shortage.needed > gone.shortage.free);
    assert_int_equal(gone.lengths.written, TOKENS);
    assert_ok(e.tern, engine_extend(&s, TOKENS + L, 0)); /* it continues */
    assert_bytes(&s, TOKENS);
    stop_all();
}

/* As an engine sees it on its own connection. */
static json_int_t undone(void)
{
    const char *text;
    json_t *root;
    json_int_t n;

    assert_ok(e.tern, tern_stats(e.tern, 0, &text));
    root = json_loads(text, 0, NULL);
    assert_non_null(root);
    n = json_integer_value(json_at(root, "host_tier.retracts_undone"));
    json_decref(root);
    return n;
}

/* Every copy is corrupted: the session continues, and Stats and Recover report it. */
TEST(copies_that_fail_leave_the_session_running)
{
    struct tern_retracted gone;
    struct engine_session s;

    start_with("    host_memory: 16M\nfaults:\n  copy_corrupt_every: 1\n", 2u << 20);
    run_session(&s, 1);
    assert_ok(e.tern, tern_retract(e.tern, s.id, TERN_RETRACT_HOST, TERN_STEP_NONE, 0, &gone));
    wait_for_state("turn");
    assert_int_equal(undone(), 1);
    assert_ok(e.tern, tern_retract(e.tern, s.id, TERN_RETRACT_HOST, TERN_STEP_NONE, 0,
                                   &gone)); /* tries once more */
    wait_for_state("turn");
    assert_int_equal(undone(), 2);
    assert_ok(e.tern, engine_recover(&s, RIG_WAIT_MS));
    assert_int_equal(s.len.written, TOKENS);
    assert_bytes(&s, TOKENS);
    stop_all();
}
