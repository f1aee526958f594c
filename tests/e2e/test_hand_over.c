/* README's order: commit, tern_done_step, hand over, fetch. A fetch that says what has to be there
 * (X10) finds it, each time, though the source has not published it yet when it is asked. */
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
                  tern_fetch(b.tern, to.id, "source", TOKENS, 0, TERN_STEP_NONE, RIG_WAIT_MS, &r));
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
