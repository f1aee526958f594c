/* A prompt that is longer than a request: libtern sends it in pieces to a daemon that the test
 * scripts, and returns one answer. */
#include "unit/rig/rig_client.h"

/* Joins the pieces of a match, and checks that each begins where the one before ended. */
struct pieces {
    uint32_t tokens[20000], n, base, keys, pieces, refuse; /* refuse: the number of a piece */
    uint32_t takes, asked, sent; /* of a divisible piece; their number; all their tokens */
};

static void serve_pieces(struct fake *f)
{
    struct pieces *p = f->ctx;
    const Tern__Wire__Match *m;
    struct match_answer a;

    while ((m = (const void *)fake_read(f)) != NULL) {
        Tern__Wire__Status busy = fake_status(TERN_BUSY, "full", NULL);
        uint32_t n = (uint32_t)(m->tokens->tokens.len / sizeof(uint32_t));
        const uint32_t taken = m->pieces && p->takes && n > p->takes ? p->takes : 0;

        if (m->earlier == 0)
            p->base = m->tokens->kept, p->n = p->keys = p->pieces = 0;
        check(m->tokens->kept == p->base + m->earlier && m->earlier == p->n && m->step == 9);
        check(p->n + n <= 20000);
        memcpy(p->tokens + p->n, m->tokens->tokens.data, m->tokens->tokens.len);
        for (size_t at = 0; at < m->tokens->keys.len; at += sizeof(struct tern_extra_key)) {
            uint32_t position;

            memcpy(&position, m->tokens->keys.data + at, sizeof(position));
            check(position - m->tokens->kept < n);
            p->keys += taken == 0 || position - m->tokens->kept < taken;
        }
        p->asked += m->pieces ? 1 : 0;
        p->sent += n;
        p->n += taken > 0 ? taken : n;
        p->pieces++;
        make_match(&a, m->more || taken > 0 ? 77 : (uint32_t)f->h.session);
        a.m.has_taken = taken > 0;
        a.m.taken = taken;
        a.m.status = p->pieces == p->refuse ? &busy : NULL;
        fake_reply(f, &a.m);
    }
}

TEST(match_longer_than_a_request_goes_in_pieces)
{
    static uint32_t tokens[20000];
    static struct tern_extra_key keys[700];
    static struct pieces p;
    struct tern_tokens list = {.v = tokens, .n = 1000, .base = 50, .keys = keys, .nkeys = 700};
    struct tern_batch *b;
    struct tern_result r;

    for (uint32_t i = 0; i < 20000; i++)
        tokens[i] = i * 7 + 1;
    for (uint32_t i = 0; i < 700; i++)
        keys[i].position = 50 + i + (i > 600 ? 13000 : 0);
    fake.body_max = 4096;
    start(serve_pieces, &p);
    for (list.n = 14000; list.n <= 20000; list.n += 1333) {
        assert_ok(tern_match(t, 5, &list, 9, 10000, &r));
        assert_match(&r, 5);
        assert_int_equal(p.n, list.n);
        assert_int_equal(p.base, 50);
        assert_int_equal(p.keys, 700);
        assert_true(p.pieces > 25);
        assert_memory_equal(p.tokens, tokens, list.n * sizeof(*tokens));
    }
    list.nkeys = 0;
    list.n = 1000; /* fits in one request */
    assert_ok(tern_match(t, 6, &list, 9, 10000, &r));
    assert_int_equal(p.pieces, 1);
    list.n = 2000; /* operations are not divided */
    assert_err(TERN_INVALID, tern_extend(t, 6, &list, 0, 0, 1000, &r));
    assert_string_not_equal(tern_error_text(t, NULL), "");
    assert_ok(tern_batch_create(t, &b));
    assert_err(TERN_INVALID, tern_batch_extend(b, 6, &list, 0, 0));
    list.n = 300; /* three of them together are too large */
    for (uint32_t i = 0; i < 3; i++)
        assert_ok(tern_batch_extend(b, 6, &list, 0, 0));
    assert_err(TERN_INVALID, tern_batch_extend(b, 6, &list, 0, 0));
    assert_non_null(strstr(tern_error_text(t, NULL), "run it, then begin the next"));
    assert_int_equal(tern_batch_count(b), 3);
    tern_batch_destroy(b);
    list.n = 1000;
    assert_ok(tern_match(t, 6, &list, 9, 1000, &r)); /* the refusal changed nothing */
}

/* A tree of chunks of 64 tokens that is `depth` deep, and handles that become invalid now and
 * then. */
struct peeked {
    uint32_t depth, evictions, requests;
    uint32_t takes; /* of a divisible piece */
};

static void serve_peek(struct fake *f)
{
    struct peeked *p = f->ctx;
    const Tern__Wire__Peek *m;

    while ((m = (const void *)fake_read(f)) != NULL) {
        const uint32_t n = (uint32_t)(m->tokens->tokens.len / sizeof(uint32_t)),
                       taken = m->pieces && p->takes && n > p->takes ? p->takes : 0,
                       end = m->tokens->kept + (taken > 0 ? taken : n),
                       at = end < p->depth ? end / 64 * 64 : p->depth;
        Tern__Wire__PeekReply r = TERN__WIRE__PEEK_REPLY__INIT;
        Tern__Wire__Status busy = fake_status(TERN_BUSY, "evicted", NULL);

        check(m->from == (m->tokens->kept ? 1000 + m->tokens->kept : 0));
        p->requests++;
        if (m->from && p->evictions > 0) {
            p->evictions--;
            r.status = &busy;
        }
        r.has_depth = r.has_history_depth = r.has_host_depth = r.has_disk_depth = 1;
        r.disk_depth = at + 2;
        r.depth = r.history_depth = at;
        r.host_depth = at + 1;
        r.has_reached = r.has_walked = end - at < 64;
        r.reached = r.has_reached ? 1000 + at : 0;
        r.walked = r.has_walked ? at : 0;
        r.has_taken = taken > 0;
        r.taken = taken;
        fake_reply(f, &r);
    }
}

TEST(peek_longer_than_a_request_goes_in_pieces_and_begins_anew)
{
    static uint32_t tokens[20000];
    struct peeked p = {.depth = 64 * 150};
    struct tern_namespace ns = {.model = "m"};
    struct tern_tokens list = {.v = tokens, .n = 20000};
    struct tern_depths d;

    fake.body_max = 4096;
    start(serve_peek, &p);
    assert_ok(tern_peek(t, 1, &ns, &list, 10000, &d));
    assert_int_equal(d.resumable, p.depth);
    assert_int_equal(d.host, p.depth + 1);
    assert_int_equal(d.disk, p.depth + 2);
    assert_true(p.requests > 15 && p.requests < 25); /* pieces behind the end are not sent */
    p.evictions = 3;
    p.depth = 64 * 312;
    assert_ok(tern_peek(t, 1, &ns, &list, 10000, &d));
    assert_int_equal(d.history, p.depth);
    p.evictions = 4;
    assert_err(TERN_BUSY, tern_peek(t, 1, &ns, &list, 10000, &d));
    assert_int_equal(p.evictions, 0);
    list.base = 1;
    assert_err(TERN_INVALID, tern_peek(t, 1, &ns, &list, 10000, &d));
}

/* The error of a piece is the answer to the match: no further piece is sent. */
TEST(match_piece_that_fails_ends_the_match)
{
    static uint32_t tokens[20000];
    static struct pieces p = {.refuse = 3};
    struct tern_tokens list = {.v = tokens, .n = 20000};
    struct tern_result r;

    fake.body_max = 4096;
    start(serve_pieces, &p);
    assert_err(TERN_BUSY, tern_match(t, 5, &list, 9, 10000, &r));
    assert_string_equal(tern_error_text(t, NULL), "full");
    assert_told_lengths(&r, 77, 78, 79);
    assert_int_equal(p.pieces, 3);
    p.refuse = 0;
    assert_ok(tern_match(t, 5, &list, 9, 10000, &r));
    assert_match(&r, 5);
}

/* The daemon takes some tokens of a long list at a time: libtern sends the rest again, and few
 * tokens in vain. A list of 16,384 tokens may not be divided. */
TEST(match_of_many_tokens_goes_on_where_the_daemon_stopped)
{
    static uint32_t tokens[20000];
    static struct tern_extra_key keys[100];
    static struct pieces p;
    struct tern_tokens list = {.v = tokens, .n = 20000, .keys = keys, .nkeys = 100};
    struct tern_result r;

    for (uint32_t i = 0; i < 20000; i++)
        tokens[i] = i * 7 + 1;
    for (uint32_t i = 0; i < 100; i++)
        keys[i].position = i * 200;
    start(serve_pieces, &p);
    for (p.takes = 1000; p.takes < 40000; p.takes *= 3) {
        p.asked = p.sent = 0;
        assert_ok(tern_match(t, 5, &list, 9, 10000, &r));
        assert_match(&r, 5);
        assert_int_equal(p.n, list.n);
        assert_int_equal(p.keys, 100);
        assert_memory_equal(p.tokens, tokens, sizeof tokens);
        assert_int_equal(p.asked, p.pieces);
        assert_true(p.sent <= 3 * list.n);
    }
    p.asked = 0;
    list.n = 16384;
    list.nkeys = 10;
    assert_ok(tern_match(t, 6, &list, 9, 10000, &r));
    assert_int_equal(p.pieces, 1);
    assert_int_equal(p.asked, 0);
}

TEST(peek_of_many_tokens_goes_on_where_the_daemon_stopped)
{
    static uint32_t tokens[20000];
    struct peeked p = {.depth = 64 * 300, .takes = 64 * 50};
    struct tern_namespace ns = {.model = "m"};
    struct tern_tokens list = {.v = tokens, .n = 20000};
    struct tern_depths d;

    start(serve_peek, &p);
    assert_ok(tern_peek(t, 1, &ns, &list, 10000, &d));
    assert_int_equal(d.resumable, p.depth);
    assert_true(p.requests > 6);
    p.requests = 0;
    list.n = 16384;
    assert_ok(tern_peek(t, 1, &ns, &list, 10000, &d));
    assert_int_equal(d.resumable, 16384);
    assert_int_equal(p.requests, 1);
}
