/* A prompt of 1,200,000 tokens, almost five frames: one tern_match, or tern_peek, finds everything
 * that another session committed, the session resumes with it, and a difference in the last piece
 * is detected. */
#include <stdlib.h>

#include "rig_daemon.h"
#include "testing/test.h"

#define TOKENS 1200000u
#define L      512u
#define WHOLE  (TOKENS / L * L)

static struct daemon rig;

TEST(match_of_1200000_tokens_is_one_call)
{
    uint32_t *tokens = malloc(TOKENS * sizeof(*tokens));
    struct engine_session first, second;
    struct tern_tokens list = {.v = tokens, .n = TOKENS};
    struct tern_result r;
    struct engine e;
    struct tern_depths depths;

    assert_non_null(tokens);
    for (uint32_t i = 0; i < TOKENS; i++)
        tokens[i] = i * 2654435761u;
    rig_start(&rig, NULL, NULL);
    e = rig_engine(rig.socket, "e", L, 12u << 20);
    assert_ok(e.tern, engine_begin(&first, &e, tokens, TOKENS));
    assert_int_equal(first.matched, 0);
    assert_ok(e.tern, engine_run(&first));
    assert_int_equal(first.len.committed, WHOLE);
    assert_ok(e.tern, engine_end(&first));
    assert_ok(e.tern, engine_begin(&second, &e, tokens, TOKENS));
    assert_int_equal(second.matched, WHOLE);
    assert_int_equal(engine_wrong(&second, WHOLE), 0);
    assert_ok(e.tern, tern_match(e.tern, second.id, &list, TERN_STEP_NONE, RIG_WAIT_MS,
                                 &r)); /* once more */
    assert_int_equal(r.lengths.committed, WHOLE);
    assert_int_equal(r.tokens, TOKENS);
    assert_ok(e.tern, engine_end(&second));
    assert_ok(e.tern, tern_peek(e.tern, e.pool, &e.ns, &list, RIG_WAIT_MS, &depths));
    assert_int_equal(depths.resumable, WHOLE);
    tokens[TOKENS - 2 * L]++;
    assert_ok(e.tern, tern_peek(e.tern, e.pool, &e.ns, &list, RIG_WAIT_MS, &depths));
    assert_int_equal(depths.resumable, (TOKENS - 2 * L) / L * L);
    assert_ok(e.tern, engine_begin(&second, &e, tokens, TOKENS));
    assert_int_equal(second.matched, (TOKENS - 2 * L) / L * L);
    assert_ok(e.tern, engine_end(&second));
    engine_close(&e);
    free(tokens);
    assert_int_equal(rig_stop(&rig), 0);
}
