/* Set-up of every cmocka test of the core: cmocka's headers in the order that it needs, failures of
 * the rig and of the core's checks as failures of the one test, and common assertions. */
#ifndef TEST_RIG_TEST_H
#define TEST_RIG_TEST_H

#include <string.h>

#include "base/check.h"
#include "base/err.h"
#include "testing/test.h"
#include "unit/rig/rig.h"

static inline void rig_test_failed(const char *text)
{
    fail_msg("%s", text);
}

/* Before each case: a failed check removes the hook. */
FIXTURE(rig_test_setup)
{
    oracle_fail_hook = rig_test_failed;
    check_set_hook(rig_test_failed);
    return 0;
}

FIXTURE(rig_test_teardown)
{
    rig_destroy_all();
    return 0;
}

TEST_EACH(rig_test_setup, rig_test_teardown);

/* For rig->automatic: all kinds of jobs except these complete by themselves. */
#define BY_HAND(kinds) (RIG_ALL & ~(uint32_t)(kinds))

/* The default options except for one, for instance limits.nodes = 6. */
#define OPTIONS_WITH(option)                                                                       \
    ({                                                                                             \
        struct rig_options options_with = rig_defaults();                                          \
                                                                                                   \
        options_with.option;                                                                       \
        options_with;                                                                              \
    })

/* The usual set-up: one engine of one process, one pool of one group, one session. */
struct bench {
    struct rig *rig;
    struct rig_engine e;
    struct pool_id pool;
    struct rig_session *s;
    uint32_t admin;
};

/* With 512-byte pages: `usable` on the device, `host_pages` on the host. */
static inline struct bench host_bench_with(const struct rig_options *options, uint32_t page_tokens,
                                           uint32_t usable, uint32_t host_pages)
{
    struct bench b;

    b.rig = rig_create(options);
    b.rig->host_bytes = host_pages ? 512u * (host_pages + 1) : 0;
    b.e = rig_engine(b.rig, 0, "e", 1);
    b.pool = rig_pool_pages(b.rig, &b.e, page_tokens, usable);
    b.s = rig_session(b.rig, &b.e, b.pool, 1);
    b.admin = rig_connect_admin(b.rig);
    return b;
}

static inline struct bench bench_with(const struct rig_options *options, uint32_t page_tokens,
                                      uint32_t usable)
{
    return host_bench_with(options, page_tokens, usable, 0);
}

/* With the default options except for one. */
#define HOST_BENCH_LIMITED(option, page_tokens, usable, host_pages)                                \
    ({                                                                                             \
        struct rig_options options_of_bench = OPTIONS_WITH(option);                                \
                                                                                                   \
        host_bench_with(&options_of_bench, page_tokens, usable, host_pages);                       \
    })
#define BENCH_LIMITED(option, page_tokens, usable)                                                 \
    HOST_BENCH_LIMITED(option, page_tokens, usable, 0)

static inline struct bench bench_start(uint32_t page_tokens, uint32_t usable)
{
    return bench_with(NULL, page_tokens, usable);
}

/* Two hosts: the destination's link 0 leads to the source. */
struct pair {
    struct rig *source, *dest;
    struct rig_engine se, de;
    struct pool_id sp, dp;
    struct rig_session *d; /* at the destination; opened by the test */
};

/* The pools have host tiers of so many bytes; 0: none. */
static inline struct pair pair_with_host(struct rig_options options, uint32_t page_tokens,
                                         uint32_t source_pages, uint32_t dest_pages,
                                         uint64_t source_host, uint64_t dest_host)
{
    struct pair p = {.dest = rig_create(&options)};

    options.incarnation = 0x2002;
    p.source = rig_create(&options);
    p.source->host_bytes = source_host;
    p.dest->host_bytes = dest_host;
    p.se = rig_engine(p.source, 0, "prefill", 1);
    p.de = rig_engine(p.dest, 0, "decode", 1);
    p.sp = rig_pool_pages(p.source, &p.se, page_tokens, source_pages);
    p.dp = rig_pool_pages(p.dest, &p.de, page_tokens, dest_pages);
    rig_link_up(p.dest, 0, p.source, options.limits.peers);
    return p;
}

static inline struct pair pair_with(struct rig_options options, uint32_t page_tokens,
                                    uint32_t source_pages, uint32_t dest_pages)
{
    return pair_with_host(options, page_tokens, source_pages, dest_pages, 0, 0);
}

/* With the default options except for one, on both hosts. */
#define PAIR_LIMITED(option, page_tokens, source_pages, dest_pages)                                \
    pair_with(OPTIONS_WITH(option), page_tokens, source_pages, dest_pages)

#define assert_err(want, expr) assert_string_equal(err_name(expr), err_name(want))
#define assert_ok(expr)        assert_err(TERN_OK, expr)

#define assert_lengths(s, T, C, A)                                                                 \
    do {                                                                                           \
        assert_int_equal((s)->len.committed, (T));                                                 \
        assert_int_equal((s)->len.written, (C));                                                   \
        assert_int_equal((s)->len.allocated, (A));                                                 \
    } while (0)

/* T = C = A = n, and every byte is right. */
#define assert_whole(s, n)                                                                         \
    do {                                                                                           \
        assert_lengths(s, n, n, n);                                                                \
        assert_int_equal(rig_wrong((s), (n)), 0);                                                  \
    } while (0)

/* Macros for common sequences, so that a failure names the line of the test. */

/* The request succeeds, and then the session has these lengths. */
#define assert_leaves(request, s, T, C, A)                                                         \
    do {                                                                                           \
        assert_ok(request);                                                                        \
        assert_lengths(s, T, C, A);                                                                \
    } while (0)

/* The same with T = C = A = n, and every byte is right. */
#define assert_leaves_whole(request, s, n)                                                         \
    do {                                                                                           \
        assert_ok(request);                                                                        \
        assert_whole(s, n);                                                                        \
    } while (0)

/* So many pages came free at once, and so many will at the step that the request named. */
#define assert_given_back(rig, now, at_step)                                                       \
    do {                                                                                           \
        assert_int_equal((rig)->free_now, (now));                                                  \
        assert_int_equal((rig)->free_at_step, (at_step));                                          \
    } while (0)

/* Match finds `depth` tokens. */
#define matches(s, tokens, n, depth)                                                               \
    do {                                                                                           \
        assert_ok(rig_match((s), (tokens), (n)));                                                  \
        assert_int_equal((s)->matched, (depth));                                                   \
    } while (0)

/* The session has n tokens; their pages up to `to` are written. */
#define computes_up_to(s, tokens, n, to)                                                           \
    do {                                                                                           \
        assert_ok(rig_match((s), (tokens), (n)));                                                  \
        assert_ok(rig_run_to((s), (tokens), (to)));                                                \
    } while (0)

#define computes_tokens(s, tokens, n) computes_up_to(s, tokens, n, n)

/* The same with sequence `seed`. */
#define computes(s, seed, n) computes_tokens(s, rig_tokens(seed, n), n)

/* The session, which has matched the tokens, writes n of them and slides. */
#define run_and_slide(s, tokens, n, next, step)                                                    \
    do {                                                                                           \
        assert_ok(rig_run_to((s), (tokens), (n)));                                                 \
        assert_ok(rig_slide((s), (next), (step)));                                                 \
    } while (0)

/* A Match with all its options finds `depth` tokens. */
#define matches_full(s, request, step, depth)                                                      \
    do {                                                                                           \
        assert_ok(rig_match_full((s), (request), (step)));                                         \
        assert_int_equal((s)->matched, (depth));                                                   \
    } while (0)

/* The session matches the tokens, and allocates pages for `to` of them. */
#define takes_pages(s, tokens, n, to)                                                              \
    do {                                                                                           \
        assert_ok(rig_match((s), (tokens), (n)));                                                  \
        assert_ok(rig_extend((s), (to), 0, NULL, 0));                                              \
    } while (0)

/* The session, which has matched the tokens, writes n of them, and every byte up to n is right. */
#define runs_right(s, tokens, n)                                                                   \
    do {                                                                                           \
        assert_ok(rig_run_to((s), (tokens), (n)));                                                 \
        assert_int_equal(rig_wrong((s), (n)), 0);                                                  \
    } while (0)

/* The session, which has matched the tokens, writes n of them and commits at most `depth`. */
#define run_and_commit(s, tokens, n, depth, step)                                                  \
    do {                                                                                           \
        assert_ok(rig_run_to((s), (tokens), (n)));                                                 \
        assert_ok(rig_commit((s), (depth), (step)));                                               \
    } while (0)

/* The same for a session that first matches the first n tokens of sequence `seed`. */
#define computes_and_commits(s, seed, n, depth, step)                                              \
    do {                                                                                           \
        assert_ok(rig_match((s), rig_tokens((seed), (n)), (n)));                                   \
        run_and_commit(s, rig_tokens(seed, n), n, depth, step);                                    \
    } while (0)

/* The session, which has matched the tokens, writes and commits them up to `depth`. */
#define commit_to(s, tokens, depth, step)                                                          \
    do {                                                                                           \
        run_and_commit(s, tokens, depth, depth, step);                                             \
        assert_int_equal((s)->len.committed, (depth));                                             \
    } while (0)

/* The session matches n tokens, and writes and commits them up to `depth`. */
#define commits_up_to(s, tokens, n, depth, step)                                                   \
    do {                                                                                           \
        assert_ok(rig_match((s), (tokens), (n)));                                                  \
        commit_to(s, tokens, depth, step);                                                         \
    } while (0)

/* A fresh session matches, computes and commits all of them. */
#define commits_tokens(s, tokens, n) commits_up_to(s, tokens, n, n, 0)
#define commits(s, seed, n)          commits_tokens(s, rig_tokens(seed, n), n)

/* The session had the right bytes up to n, and closes. */
#define closes_whole(s, n)                                                                         \
    do {                                                                                           \
        assert_int_equal(rig_wrong((s), (n)), 0);                                                  \
        assert_ok(rig_close((s), 0));                                                              \
    } while (0)

/* From now on every job completes by itself, and so do those that wait. */
static inline void rig_runs_free(struct rig *rig)
{
    rig->automatic = RIG_ALL;
    rig_settle(rig);
}

/* The depth that a Peek finds for tokens with extra keys. */
static inline uint32_t depth_with_keys(struct rig_session *like, const struct req_tokens *tokens)
{
    uint32_t depth;

    assert_ok(rig_peek_keys(like, tokens, &depth));
    return depth;
}

/* Opens a session in namespace 1 and matches the first n tokens of sequence `seed`. */
static inline struct rig_session *session_with(struct rig *rig, const struct rig_engine *e,
                                               struct pool_id pool, uint32_t seed, uint32_t n)
{
    struct rig_session *s = rig_session(rig, e, pool, 1);

    assert_ok(rig_match(s, rig_tokens(seed, n), n));
    return s;
}

/* Another engine that maps the pool, too. */
static inline struct rig_engine second_engine(struct rig *rig, struct pool_id pool)
{
    struct rig_engine two = rig_engine(rig, 0, "two", 1);

    assert_ok(rig_map(rig, two.conn[0], pool));
    return two;
}

static inline void complete_all(struct rig *rig, enum rig_job_kind kind)
{
    while (rig_jobs(rig, kind) > 0)
        rig_complete(rig, kind);
}

/* The refusal has a text. */
static inline void assert_refused(struct rig *rig, enum tern_err want, enum tern_err got)
{
    assert_err(want, got);
    assert_true(rig->last->text[0] != 0);
}

/* Opens another session of the bench's engine in that namespace. */
static inline enum tern_err bench_opens(struct bench *b, uint64_t ns)
{
    struct rig_session s;

    return rig_session_open(b->rig, b->e.conn[0], b->pool, ns, &s);
}

/* Closes the bench's session and evicts every prefix. Returns their number. */
static inline uint32_t bench_lets_go(struct bench *b)
{
    assert_ok(rig_close(b->s, 0));
    return rig_evict(b->rig, b->admin, b->pool, 0);
}

/* A session with T = 8, C = 14, A = 20, pages of 4 tokens, L = 4. */
static inline struct bench bench_running(void)
{
    struct bench b = bench_start(4, 32);

    assert_ok(rig_match(b.s, seq1, 14));
    assert_ok(rig_run_to(b.s, seq1, 14));
    assert_ok(rig_commit(b.s, 8, 0));
    assert_ok(rig_extend(b.s, 20, 0, NULL, 0));
    assert_lengths(b.s, 8, 14, 20);
    return b;
}

#endif
