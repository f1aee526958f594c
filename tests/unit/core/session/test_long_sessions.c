/* Sessions of a million tokens: which parts of their tables stay small. The tests build their
 * requests themselves, since the rig's model of a session is for short ones. */
#include "unit/rig/rig_test.h"

#define LONG  (1u << 20) /* tokens, output included */
#define PIECE 4096       /* tokens that a Step extends, writes and commits */

static uint32_t tokens[LONG];

/* The shape of DeepSeek-V4: L = 256. */
static const struct group_layout shape[] = {
    {.family = FAMILY_HISTORY, .page_tokens = 256, .page_bytes = 64, .units = 1},
    {.family = FAMILY_HISTORY, .page_tokens = 256, .page_bytes = 64, .units = 1},
    {.family = FAMILY_WINDOW,
     .page_tokens = 4,
     .window = 8,
     .reserve = 1,
     .page_bytes = 64,
     .units = 1},
    {.family = FAMILY_WINDOW,
     .page_tokens = 8,
     .window = 128,
     .reserve = 1,
     .page_bytes = 64,
     .units = 1},
};

static struct bench bench_for(const struct group_layout *groups, uint32_t n)
{
    struct rig_options o = rig_defaults();
    struct bench b;

    o.limits.nodes = o.limits.token_blocks = 80000;
    o.limits.pages = 160000;
    o.tenant[0].memory_bytes = 16u << 20;
    b.rig = rig_create(&o);
    b.rig->no_audit = true; /* there are many pages */
    b.e = rig_engine(b.rig, 0, "e", 1);
    assert_ok(rig_pool_open(b.rig, b.e.conn[0], groups, n, 8u << 20, &b.pool));
    b.s = rig_session(b.rig, &b.e, b.pool, 1);
    for (uint32_t i = 0; i < LONG; i++)
        tokens[i] = i * 2654435761u;
    return b;
}

static const struct reply *matches_all(const struct bench *b, const struct rig_session *s)
{
    struct request r = {.op = OP_MATCH};

    r.match.session = s->id;
    r.match.tokens = (struct req_tokens){.v = tokens, .n = LONG};
    return rig_request(b->rig, s->conn, &r);
}

/* One Step: tokens, pages, written, committed. */
static const struct op_result *grows(const struct bench *b, uint32_t from)
{
    struct step_op ops[2] = {{.kind = STEP_EXTEND,
                              .session = b->s->id,
                              .length = from + PIECE,
                              .written = from + PIECE,
                              .tokens = {.base = from, .n = PIECE, .v = tokens + from}},
                             {.kind = STEP_COMMIT, .session = b->s->id, .length = from + PIECE}};
    const struct reply *r = rig_step_ops(b->rig, b->s->conn, ops, 2);

    assert_ok(r->step.results[0].err);
    return &r->step.results[1];
}

static uint32_t pages_named(const struct reply *r, uint32_t group)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < r->nruns; i++)
        n += r->runs[i].group == group ? r->runs[i].n : 0;
    return n;
}

/* In WINDOW groups the session, and each answer, has the pages of the window and reserve only. */
TEST(long_sessions_windows_are_counted_by_their_window)
{
    struct bench b = bench_for(shape, 4);
    struct rig_session *s = rig_session(b.rig, &b.e, b.pool, 1);
    const struct reply *r;

    for (uint32_t at = 0; at < LONG; at += PIECE) {
        const struct op_result *done = grows(&b, at);

        assert_ok(done->err);
        assert_int_equal(done->lengths.committed, at + PIECE);
        assert_true(rig_group_view(b.rig, b.pool, 2).session <= 3);
        assert_true(rig_group_view(b.rig, b.pool, 3).session <= 17);
    }
    assert_int_equal(rig_group_view(b.rig, b.pool, 0).snapshot, LONG / 256);
    r = matches_all(&b, s);
    assert_ok(r->err);
    assert_int_equal(r->match.matched, LONG);
    assert_int_equal(pages_named(r, 1), LONG / 256);
    assert_int_equal(pages_named(r, 2), 2);
    assert_int_equal(pages_named(r, 3), 16);
}

/* 16 tokens a page: 65,536 pages of one group in one answer. */
TEST(long_sessions_of_small_pages_have_a_table)
{
    const struct group_layout small = {.page_tokens = 16, .page_bytes = 64, .units = 1};
    struct bench b = bench_for(&small, 1);
    struct rig_session *s = rig_session(b.rig, &b.e, b.pool, 1);
    const struct reply *r;

    for (uint32_t at = 0; at < LONG; at += PIECE)
        assert_ok(grows(&b, at)->err);
    r = matches_all(&b, s);
    assert_ok(r->err);
    assert_int_equal(pages_named(r, 0), LONG / 16);
}

/* One Fetch transfers the whole session, pinned and moved as if it had gone in one message. */
static const struct reply *fetches_all(const struct group_layout *groups, uint32_t n)
{
    struct bench from = bench_for(groups, n), to = bench_for(groups, n);
    struct request r = {.op = OP_FETCH};
    const struct reply *reply;

    rig_link_up(to.rig, 0, from.rig, from.rig->options.limits.peers);
    for (uint32_t at = 0; at < LONG; at += PIECE)
        assert_ok(grows(&from, at)->err);
    assert_int_equal(matches_all(&to, to.s)->match.matched, 0);
    r.fetch.session = to.s->id;
    r.fetch.peer = 0;
    rig_request(to.rig, to.s->conn, &r);
    reply = rig_reply_to(to.rig, r.request_id);
    assert_non_null(reply);
    assert_ok(reply->err);
    assert_int_equal(reply->fetch.lengths.committed, LONG);
    assert_int_equal(rig_view(from.rig).serves, 0);
    return reply;
}

TEST(long_sessions_are_fetched_whole)
{
    const struct group_layout small = {.page_tokens = 16, .page_bytes = 64, .units = 1};
    const struct reply *r = fetches_all(&small, 1);

    assert_int_equal(pages_named(r, 0), LONG / 16);
    r = fetches_all(shape, 4);
    assert_int_equal(pages_named(r, 1), LONG / 256);
    assert_int_equal(pages_named(r, 2), 2);
    assert_int_equal(pages_named(r, 3), 16);
}
