/* Y4, Y5 through two daemons: decode follows a session while prefill computes it. Every byte is
 * compared as soon as it is reported as arrived, and the depth must grow before the source has
 * finished. Also: the source or the follower ends early. */
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "engine/admin.h"
#include "engine/engine.h"
#include "engine/proc.h"
#include "rig_daemon.h"
#include "testing/test.h"

#define PAGE   4096u
#define CHUNK  64u
#define CHUNKS 12u
#define LENGTH (CHUNKS * CHUNK + 40)
#define ROUNDS 8u

#define CALL_WAITS_MS 4000u

static struct daemon_options options[2] = {
    {.node = "source", .memory_bytes = 16u << 20, .page_bytes_min = PAGE, .core = -1},
    {.node = "dest", .memory_bytes = 16u << 20, .page_bytes_min = PAGE, .core = -1}};

struct world {
    char dir[RIG_DIR_BYTES];
    struct daemon source, dest;
    struct engine a, b;
    struct engine_session from, to;
    struct tern_ticket ticket;
    uint32_t tokens[LENGTH];
};

static struct engine open_engine(const char *socket, const char *name)
{
    struct tern_group kv = {.name = "kv", .page_tokens = CHUNK, .page_bytes = PAGE};
    struct tern_layout layout = {.groups = &kv, .ngroups = 1, .bytes = 128 * PAGE};
    struct engine e = {0};

    assert_ok(e.tern, engine_open(&e, socket, name, &layout, RIG_WAIT_MS));
    return e;
}

static void world_start(struct world *w)
{
    rig_start_pair(&w->source, &w->dest, w->dir, options);
    w->a = open_engine(w->source.socket, "prefill");
    w->b = open_engine(w->dest.socket, "decode");
}

/* Both engines get the prompt, and the source makes the ticket. */
static void know_prompt(struct world *w, uint32_t seed)
{
    for (uint32_t i = 0; i < LENGTH; i++)
        w->tokens[i] = seed * 100000 + i + 1;
    assert_ok(w->a.tern, engine_begin(&w->from, &w->a, w->tokens, LENGTH));
    assert_ok(w->a.tern, tern_ticket_open(w->a.tern, w->from.id, 0, RIG_WAIT_MS, &w->ticket));
    assert_ok(w->b.tern, engine_begin(&w->to, &w->b, w->tokens, LENGTH));
}

/* The follower also begins to follow the ticket. */
static void begin(struct world *w, uint32_t seed)
{
    know_prompt(w, seed);
    assert_ok(w->b.tern, tern_submit_fetch(w->b.tern, w->to.id,
                                           &(struct tern_fetch){.ticket = w->ticket.text,
                                                                .follow = true,
                                                                .step = TERN_STEP_NONE},
                                           seed));
}

static void compute(struct world *w, uint32_t until)
{
    uint32_t at = w->from.len.written;

    assert_ok(w->a.tern, engine_extend(&w->from, until, until));
    engine_write(&w->from, at, until);
    w->a.step++;
    if (until % CHUNK == 0)
        assert_ok(w->a.tern, engine_commit(&w->from, until));
}

static struct tern_result wait_above(struct world *w, uint32_t above)
{
    struct tern_result r;

    assert_ok(w->b.tern, tern_fetch_wait(w->b.tern, w->to.id, above, RIG_WAIT_MS, &r));
    assert_int_equal(engine_take(&w->to, &r), TERN_OK);
    return r;
}

static struct tern_result answered(struct world *w, uint32_t seed)
{
    struct tern_answer answer = {.cookie = 0};

    while (tern_poll(w->b.tern, &answer) == TERN_BUSY)
        usleep(1000);
    assert_int_equal(answer.cookie, seed);
    return answer.results[0];
}

/* Computes the rest of the prompt and hands it over, with the round's number as the blob. Returns
 * the follower's answer. */
static struct tern_result handed_over(struct world *w, uint32_t round)
{
    struct tern_ticket handed;
    struct tern_result r;

    compute(w, LENGTH);
    assert_ok(w->a.tern, tern_handoff(w->a.tern, w->from.id, w->a.step, &round, sizeof round, 0,
                                      RIG_WAIT_MS, &handed));
    engine_free(&w->from);
    assert_ok(w->a.tern, tern_done_step(w->a.map, w->a.step));
    r = answered(w, round);
    assert_ok(w->b.tern, r.err);
    return r;
}

static void world_stop(struct world *w)
{
    engine_close(&w->b);
    engine_close(&w->a);
    assert_true(daemon_stop(&w->dest));
    assert_true(daemon_stop(&w->source));
    tempdir_remove(w->dir);
}

TEST(y4_decode_follows_prefill_chunk_by_chunk)
{
    struct world w;

    world_start(&w);
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        struct tern_result r;
        uint32_t pages;

        begin(&w, round);
        assert_ok(w.b.tern, tern_fetch_pages(w.b.tern, w.to.id, RIG_WAIT_MS, &r));
        for (pages = 0; r.nruns > 0; r.nruns--)
            pages += r.runs[r.nruns - 1].n;
        assert_int_equal(pages, CHUNKS + 1);
        assert_int_equal(r.arriving, LENGTH);
        for (uint32_t to = CHUNK; to <= CHUNKS * CHUNK; to += CHUNK) {
            compute(&w, to);
            assert_ok(w.a.tern, tern_done_step(w.a.map, w.a.step));
            r = wait_above(&w, to - CHUNK);
            assert_int_equal(r.lengths.committed, to);
            assert_int_equal(r.arriving, LENGTH);
            assert_int_equal(engine_wrong(&w.to, to), 0);
        }
        r = handed_over(&w, round);
        assert_int_equal(r.blob_bytes, sizeof round);
        assert_memory_equal(r.blob, &round, sizeof round);
        assert_int_equal(engine_take(&w.to, &r), TERN_OK);
        assert_int_equal(w.to.len.committed, CHUNKS * CHUNK);
        assert_int_equal(w.to.len.written, LENGTH);
        assert_int_equal(engine_wrong(&w.to, LENGTH), 0);
        assert_int_equal(wait_above(&w, LENGTH).arriving, 0);
        assert_ok(w.b.tern, engine_end(&w.to));
    }
    world_stop(&w);
}

/* A call reaches its deadline: its answer has the pages that arrived, since no later one names
 * them. The ticket stands, and is followed again. */
TEST(y4_deadline_of_a_call_passes_and_the_table_has_what_came)
{
    struct world w;
    struct tern_result r = {0};

    world_start(&w);
    know_prompt(&w, 1);
    compute(&w, 3 * CHUNK);
    assert_ok(w.a.tern, tern_done_step(w.a.map, w.a.step));
    assert_int_equal(
        tern_fetch(
            w.b.tern, w.to.id,
            &(struct tern_fetch){.ticket = w.ticket.text, .follow = true, .step = TERN_STEP_NONE},
            CALL_WAITS_MS, &r),
        TERN_TIMED_OUT);
    assert_int_equal(engine_take(&w.to, &r), TERN_OK);
    assert_int_equal(w.to.len.written, 3 * CHUNK);
    assert_int_equal(engine_wrong(&w.to, 3 * CHUNK), 0);
    assert_ok(w.b.tern, tern_submit_fetch(w.b.tern, w.to.id,
                                          &(struct tern_fetch){.ticket = w.ticket.text,
                                                               .follow = true,
                                                               .step = TERN_STEP_NONE},
                                          2));
    compute(&w, CHUNKS * CHUNK);
    r = handed_over(&w, 2);
    assert_int_equal(engine_take(&w.to, &r), TERN_OK);
    assert_int_equal(engine_wrong(&w.to, LENGTH), 0);
    world_stop(&w);
}

enum end { SOURCE_CLOSES, SOURCE_HANDS_LESS, ENGINE_GONE, CANCELLED, DAEMON_KILLED, ENDS };

static void it_ends(struct world *w, enum end how)
{
    struct tern_ticket handed;
    uint32_t ms;

    switch (how) {
    case SOURCE_CLOSES: assert_ok(w->a.tern, engine_end(&w->from)); return;
    case SOURCE_HANDS_LESS:
        compute(w, 3 * CHUNK + 1);
        assert_ok(w->a.tern,
                  tern_handoff(w->a.tern, w->from.id, w->a.step, NULL, 0, 0, RIG_WAIT_MS, &handed));
        assert_ok(w->a.tern, tern_done_step(w->a.map, w->a.step));
        return;
    case ENGINE_GONE: engine_close(&w->a); return;
    case CANCELLED:
        assert_ok(w->b.tern, tern_fetch_cancel(w->b.tern, w->to.id, RIG_WAIT_MS));
        assert_ok(w->a.tern, tern_ticket_renew(w->a.tern, w->ticket.text, 0, RIG_WAIT_MS, &ms));
        return;
    case DAEMON_KILLED: kill(w->source.pid, SIGKILL); return;
    case ENDS: return;
    }
}

TEST(y4_whatever_ends_it_what_has_come_stays_and_the_rest_is_free)
{
    static const enum tern_err errs[ENDS] = {TERN_GONE, TERN_INVALID, TERN_GONE, TERN_GONE,
                                             TERN_PEER_LOST};

    for (enum end how = SOURCE_CLOSES; how < ENDS; how++) {
        struct world w;
        struct tern *admin;
        struct tern_result r;
        char why[256];

        world_start(&w);
        begin(&w, 1);
        for (uint32_t to = CHUNK; to <= 3 * CHUNK; to += CHUNK)
            compute(&w, to);
        assert_ok(w.a.tern, tern_done_step(w.a.map, w.a.step));
        while (w.to.len.written < 3 * CHUNK)
            wait_above(&w, w.to.len.written);
        it_ends(&w, how);
        r = answered(&w, 1);
        snprintf(why, sizeof why, "%s", tern_error_text(w.b.tern, NULL));
        assert_string_equal(tern_strerror(r.err), tern_strerror(errs[how]));
        assert_int_equal(r.lengths.committed, 3 * CHUNK);
        assert_int_equal(engine_wrong(&w.to, 3 * CHUNK), 0);
        if (how == SOURCE_HANDS_LESS) {
            assert_int_equal(r.handed, 3 * CHUNK + 1);
            assert_non_null(strstr(why, "handed over with 193 tokens"));
        }
        assert_ok(w.b.tern, engine_end(&w.to));
        admin = rig_connected(w.dest.admin);
        rig_no_leak(admin, w.b.pool, 127, RIG_WAIT_MS); /* index 0 is never allocated */
        tern_destroy(admin);
        if (how != DAEMON_KILLED) {
            if (how == CANCELLED)
                assert_ok(w.a.tern, engine_end(&w.from));
            if (how == SOURCE_HANDS_LESS || how == ENGINE_GONE)
                engine_free(&w.from);
            engine_close(&w.b);
            if (how != ENGINE_GONE)
                engine_close(&w.a);
            assert_true(daemon_stop(&w.source));
        } else {
            engine_free(&w.from);
            engine_close(&w.b);
            engine_close(&w.a);
            daemon_stop(&w.source);
        }
        assert_true(daemon_stop(&w.dest));
        tempdir_remove(w.dir);
    }
}
