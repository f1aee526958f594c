/* README's order: commit, tern_done_step, hand over, fetch. A fetch that names the length it needs
 * (X10) must find it each time, although the source has not published it when the fetch arrives. */
#include <string.h>
#include <unistd.h>

#include "engine/engine.h"
#include "engine/proc.h"
#include "rig_daemon.h"
#include "testing/test.h"

#define PAGE   4096u
#define TOKENS 64u
#define ROUNDS 20u

static struct daemon_options options[2] = {
    {.node = "source", .memory_bytes = 16u << 20, .page_bytes_min = PAGE, .core = -1},
    {.node = "dest", .memory_bytes = 16u << 20, .page_bytes_min = PAGE, .core = -1}};

static void prefill(struct engine_session *s, struct engine *e, const uint32_t *tokens)
{
    assert_ok(e->tern, engine_begin(s, e, tokens, TOKENS));
    assert_ok(e->tern, engine_extend(s, TOKENS, TOKENS));
    engine_write(s, 0, TOKENS);
    e->step++;
    assert_ok(e->tern, engine_commit(s, TOKENS));
    assert_ok(e->tern, tern_done_step(e->map, e->step));
}

TEST(x10_fetch_right_behind_the_last_step_brings_all)
{
    char dir[RIG_DIR_BYTES];
    struct daemon source, dest;
    struct engine a, b;

    rig_start_pair(&source, &dest, dir, options);
    a = rig_engine(source.socket, "prefill", 64, 64 * PAGE);
    b = rig_engine(dest.socket, "decode", 64, 64 * PAGE);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        struct engine_session from, to;
        uint32_t tokens[TOKENS];
        struct tern_result r;

        for (uint32_t i = 0; i < TOKENS; i++)
            tokens[i] = round * 1000 + i + 1;
        assert_ok(b.tern, engine_begin(&to, &b, tokens, TOKENS));
        prefill(&from, &a, tokens);
        assert_ok(b.tern,
                  tern_fetch(b.tern, to.id,
                             &(struct tern_fetch){
                                 .peer = "source", .at_least = TOKENS, .step = TERN_STEP_NONE},
                             RIG_WAIT_MS, &r));
        assert_int_equal(r.tokens, TOKENS);
        assert_int_equal(engine_take(&to, &r), TERN_OK);
        assert_int_equal(to.len.committed, TOKENS);
        assert_int_equal(engine_wrong(&to, TOKENS), 0);
        assert_ok(b.tern, engine_end(&to));
        assert_ok(a.tern, engine_end(&from));
    }
    engine_close(&b);
    engine_close(&a);
    assert_true(daemon_stop(&dest));
    assert_true(daemon_stop(&source));
    tempdir_remove(dir);
}

#define LONG 160u /* two pages and a half */

/* Computes a session and commits its whole chunks; its last step is not done yet. */
static void computed(struct engine_session *s, struct engine *e, const uint32_t *tokens)
{
    assert_ok(e->tern, engine_begin(s, e, tokens, LONG));
    assert_ok(e->tern, engine_extend(s, LONG, LONG));
    engine_write(s, 0, LONG);
    e->step++;
    assert_ok(e->tern, engine_commit(s, LONG / 64 * 64));
}

static struct tern_ticket handed(struct engine_session *s, const char *blob)
{
    struct engine *e = s->engine;
    struct tern_ticket ticket;
    struct tern_result r;

    assert_ok(e->tern, tern_handoff(e->tern, s->id, e->step, blob, (uint32_t)strlen(blob), 0,
                                    RIG_WAIT_MS, &ticket));
    assert_int_equal(tern_session_close(e->tern, s->id, e->step, RIG_WAIT_MS, &r), TERN_GONE);
    return ticket;
}

/* Y-a through two daemons: a session handed over before its last step is done can be fetched to its
 * last token once that step is done, once, with the blob. */
TEST(y_a_session_that_was_handed_over_is_fetched_to_its_last_token)
{
    char dir[RIG_DIR_BYTES];
    struct daemon source, dest;
    struct engine a, b;

    rig_start_pair(&source, &dest, dir, options);
    a = rig_engine(source.socket, "prefill", 64, 64 * PAGE);
    b = rig_engine(dest.socket, "decode", 64, 64 * PAGE);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        struct engine_session from, to, late;
        uint32_t tokens[LONG], stands_ms;
        struct tern_ticket ticket;
        struct tern_answer answer = {.cookie = 0};
        struct tern_result r;
        char blob[32];

        for (uint32_t i = 0; i < LONG; i++)
            tokens[i] = 50000 + round * 1000 + i;
        snprintf(blob, sizeof blob, "first token %u", round);
        computed(&from, &a, tokens);
        ticket = handed(&from, blob);
        engine_free(&from);
        assert_ok(b.tern, engine_begin(&to, &b, tokens, LONG));
        if (round % 2)
            assert_ok(a.tern, tern_done_step(a.map, a.step));
        assert_ok(b.tern,
                  tern_submit_fetch(
                      b.tern, to.id,
                      &(struct tern_fetch){.ticket = ticket.text, .step = TERN_STEP_NONE}, 7));
        assert_ok(a.tern, tern_done_step(a.map, a.step));
        while (tern_poll(b.tern, &answer) == TERN_BUSY)
            usleep(1000);
        assert_int_equal(answer.cookie, 7);
        r = answer.results[0];
        assert_ok(b.tern, r.err);
        assert_int_equal(r.blob_bytes, strlen(blob));
        assert_memory_equal(r.blob, blob, r.blob_bytes);
        assert_int_equal(engine_take(&to, &r), TERN_OK);
        assert_int_equal(to.len.committed, LONG / 64 * 64);
        assert_int_equal(to.len.written, LONG);
        assert_int_equal(engine_wrong(&to, LONG), 0);
        assert_ok(b.tern, engine_begin(&late, &b, tokens, LONG));
        assert_int_equal(
            tern_fetch(b.tern, late.id,
                       &(struct tern_fetch){.ticket = ticket.text, .step = TERN_STEP_NONE},
                       RIG_WAIT_MS, &r),
            TERN_GONE);
        assert_int_equal(tern_ticket_renew(a.tern, ticket.text, 0, RIG_WAIT_MS, &stands_ms),
                         TERN_GONE);
        assert_ok(b.tern, engine_end(&late));
        assert_ok(b.tern, engine_end(&to));
    }
    engine_close(&b);
    engine_close(&a);
    assert_true(daemon_stop(&dest));
    assert_true(daemon_stop(&source));
    tempdir_remove(dir);
}

TEST(y3_ticket_stands_as_long_as_was_said_or_until_it_is_dropped)
{
    char dir[RIG_DIR_BYTES];
    struct daemon source, dest;
    struct tern_ticket ticket;
    struct engine_session s;
    struct engine a;
    uint32_t tokens[LONG], stands_ms = 0;
    char forged[TERN_TICKET_BYTES], *digit;

    rig_start_pair(&source, &dest, dir, options);
    a = rig_engine(source.socket, "prefill", 64, 64 * PAGE);
    for (uint32_t i = 0; i < LONG; i++)
        tokens[i] = i;
    computed(&s, &a, tokens);
    ticket = handed(&s, "");
    engine_free(&s);
    assert_int_equal(ticket.stands_ms, 60000);
    assert_ok(a.tern, tern_ticket_renew(a.tern, ticket.text, 5000, RIG_WAIT_MS, &stands_ms));
    assert_int_equal(stands_ms, 5000);
    snprintf(forged, sizeof forged, "%s", ticket.text);
    digit = &forged[strlen("tern1-0123456789abcdef-0123456789abcdef-")];
    *digit = *digit == '0' ? '1' : '0';
    assert_int_equal(tern_ticket_drop(a.tern, forged, RIG_WAIT_MS), TERN_DENIED);
    assert_int_equal(tern_ticket_drop(a.tern, "prefill-0", RIG_WAIT_MS), TERN_INVALID);
    assert_int_equal(tern_ticket_drop(a.tern, "", RIG_WAIT_MS), TERN_INVALID);
    assert_ok(a.tern, tern_ticket_drop(a.tern, ticket.text, RIG_WAIT_MS));
    assert_int_equal(tern_ticket_drop(a.tern, ticket.text, RIG_WAIT_MS), TERN_GONE);
    engine_close(&a);
    assert_true(daemon_stop(&dest));
    assert_true(daemon_stop(&source));
    tempdir_remove(dir);
}
