/* Set-up of tests of libtern's calls: cmocka, a daemon that the test scripts, and a connected
 * client. */
#ifndef TEST_RIG_CLIENT_H
#define TEST_RIG_CLIENT_H

#include "base/err.h"
#include "tern.h"
#include "testing/test.h"
#include "unit/rig/fake_daemon.h"

#define assert_err(want, expr) assert_string_equal(err_name(expr), err_name(want))
#define assert_ok(expr)        assert_err(TERN_OK, expr)

#define assert_told_lengths(told, T, C, A)                                                         \
    do {                                                                                           \
        assert_int_equal((told)->lengths.committed, (T));                                          \
        assert_int_equal((told)->lengths.written, (C));                                            \
        assert_int_equal((told)->lengths.allocated, (A));                                          \
    } while (0)

#define assert_run(run, of_group, at, pages_n)                                                     \
    do {                                                                                           \
        assert_int_equal((run)->group, (of_group));                                                \
        assert_int_equal((run)->first, (at));                                                      \
        assert_int_equal((run)->n, (pages_n));                                                     \
    } while (0)

#define assert_shortage_told(s)                                                                    \
    do {                                                                                           \
        assert_int_equal((s)->group, 1);                                                           \
        assert_int_equal((s)->needed, 2);                                                          \
        assert_int_equal((s)->free, 3);                                                            \
        assert_int_equal((s)->evictable, 4);                                                       \
        assert_int_equal((s)->retiring, 5);                                                        \
        assert_true((s)->until_step == UINT64_MAX);                                                \
    } while (0)

/* Both belong to the case; its teardown ends them. */
static struct fake fake;
static struct tern *t;

static const uint32_t zero_tokens[64];
static const struct tern_tokens some_tokens = {.v = zero_tokens, .n = 64};

FIXTURE(client_setup)
{
    fake.version = fake.body_max = fake.hello_err = 0;
    fake.hello_text = NULL;
    fake.unasked = fake.unread = false;
    return 0;
}

FIXTURE(client_stop)
{
    tern_destroy(t);
    t = NULL;
    if (fake.listener > 0)
        fake_stop(&fake);
    return 0;
}

TEST_EACH(client_setup, client_stop);

static inline void start(void (*serve)(struct fake *f), void *ctx)
{
    fake_start(&fake, serve, ctx);
    assert_ok(tern_connect(fake.path, 2000, &t));
}

/* Ends both before the case's end, so that it can start others. */
static inline void stop(void)
{
    client_stop(NULL);
}

/* The next answer, within about half a minute. */
static inline struct tern_answer polled(void)
{
    struct tern_answer answer = {0};
    enum tern_err err = TERN_BUSY;

    for (int i = 0; i < 200000 && err == TERN_BUSY; i++) {
        err = tern_poll(t, &answer);
        if (err == TERN_BUSY)
            usleep(100);
    }
    assert_ok(err);
    return answer;
}

/* A Match answer that is a function of `tag`, so that a wrong one is detected. */
struct match_answer {
    Tern__Wire__MatchReply m;
    Tern__Wire__Lengths lengths;
    Tern__Wire__Run run[2], *runs[2];
    struct tern_page pages[5];
};

static inline const Tern__Wire__MatchReply *make_match(struct match_answer *a, uint32_t tag)
{
    tern__wire__match_reply__init(&a->m);
    a->lengths = fake_lengths(tag, tag + 1, tag + 2);
    a->m.lengths = &a->lengths;
    a->m.has_matched = a->m.has_tokens = 1;
    a->m.matched = tag * 64;
    a->m.tokens = tag + 3;
    for (uint32_t i = 0; i < 5; i++)
        a->pages[i] = (struct tern_page){.index = tag + i, .generation = 7};
    for (uint32_t i = 0; i < 2; i++) {
        a->run[i] = fake_run(i, 10 * i, &a->pages[i * 3], i ? 2 : 3);
        a->runs[i] = &a->run[i];
    }
    a->m.n_runs = 2;
    a->m.runs = a->runs;
    return &a->m;
}

static inline void assert_match(const struct tern_result *r, uint32_t tag)
{
    assert_ok(r->err);
    assert_told_lengths(r, tag, tag + 1, tag + 2);
    assert_int_equal(r->tokens, tag + 3);
    assert_int_equal(r->matched, tag * 64);
    assert_int_equal(r->nruns, 2);
    assert_int_equal(r->runs[0].n, 3);
    assert_run(&r->runs[1], 1, 10, 2);
    assert_int_equal(r->runs[1].pages[1].index, tag + 4);
    assert_int_equal(r->runs[1].pages[1].generation, 7);
}

#endif
