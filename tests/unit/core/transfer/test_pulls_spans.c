/* N3: transfers between pools of other page_tokens, token by token: whole prefixes, tickets with a
 * tail, followed sessions, and windows that begin within a larger page. A span that arrives wrong
 * is asked for again alone, pages taken for whole spans are returned, and a peer's invalid message
 * ends its link. */
#include "unit/rig/rig_follow.h"

#define L          16u
#define TOKEN      32u /* bytes of a token */
#define WINDOW     6u
#define TOKENS_MAX 96u

struct ends {
    uint32_t from, to; /* page_tokens */
};

static const struct ends all_ends[] = {{4, 16}, {16, 4}, {8, 16}, {16, 8},
                                       {2, 16}, {16, 2}, {2, 4}};
static const uint32_t lengths[] = {80, 16, 81, 83, 84, 87, 88, 95, 5, 1, 17, 30};

/* The groups: HISTORY alone; with a window; with a recurrent state as well. */
enum shape { HISTORY_ALONE = 1, WITH_WINDOW = 2, WITH_STATES = 3 };

static struct pool_id open_pool(struct rig *rig, const struct rig_engine *e, uint32_t page_tokens,
                                enum shape shape, uint32_t pages)
{
    const uint32_t history = shape == HISTORY_ALONE ? page_tokens : L;
    struct request r = {.op = OP_POOL_OPEN,
                        .pool_open = {.ngroups = (uint32_t)shape,
                                      .axes_hash = page_tokens,
                                      .fields_hash = 9,
                                      .align_tokens = L,
                                      .bytes = pages * page_tokens * TOKEN}};
    const struct reply *reply;

    r.pool_open.group[0] = rig_group(history, history * TOKEN);
    r.pool_open.group[1] = rig_window(page_tokens, WINDOW, page_tokens * TOKEN);
    r.pool_open.group[2] = rig_recurrent(page_tokens, L * TOKEN);
    reply = rig_request(rig, e->conn[0], &r);
    assert_ok(reply->err);
    assert_int_equal(reply->pool_open.align_tokens, L);
    return reply->pool_open.pool;
}

/* offer_pages: pages of one message; 0: as many as it may have. */
static struct pair between_with(struct ends ends, enum shape shape, uint32_t offer_pages)
{
    struct pair p = PAIR_LIMITED(limits.offer_pages = offer_pages, 4, 64, 64);

    p.sp = open_pool(p.source, &p.se, ends.from, shape, 2048 / ends.from);
    p.dp = open_pool(p.dest, &p.de, ends.to, shape, 2048 / ends.to);
    return p;
}

static struct pair between(struct ends ends, enum shape shape)
{
    return between_with(ends, shape, 0);
}

/* Writes or compares the tokens [from, to) in the pages of the session's table. Returns how many
 * are wrong. */
static uint32_t tokens_do(struct rig_session *s, uint32_t group, uint32_t from, uint32_t to,
                          bool write)
{
    uint32_t pt = rig_group_view(s->rig, s->pool, group).layout.page_tokens, wrong = 0;

    for (uint32_t t = from; t < to; t++) {
        struct page_ref ref = s->table[group][t / pt];
        uint8_t like[TOKEN], *at;
        uint64_t bytes;

        memset(like, (int)(1 + t + group * 100), TOKEN);
        if (ref.index == 0) {
            wrong++;
            continue;
        }
        at = rig_page(s->rig, s->pool.slot, group, ref.index, &bytes) + (uint64_t)(t % pt) * TOKEN;
        if (write)
            memcpy(at, like, TOKEN);
        else
            wrong += memcmp(at, like, TOKEN) != 0;
    }
    return wrong;
}

static uint32_t pages_taken(struct pair *p)
{
    struct pool_view v = rig_pool_view(p->dest, p->dp);
    uint32_t n = 0;

    for (uint32_t g = 0; g < v.ngroups; g++)
        n += v.group[g].transfer + v.group[g].quarantine;
    return n;
}

static struct rig_session *computed_to(struct pair *p, uint32_t n)
{
    struct rig_session *s = session_with(p->source, &p->se, p->sp, 1, n);

    assert_ok(rig_run_to(s, rig_tokens(1, n), n));
    tokens_do(s, 0, 0, n, true);
    if (n >= L)
        assert_ok(rig_commit(s, n / L * L, 0));
    return s;
}

TEST(n3_ticket_of_other_page_tokens_brings_each_token)
{
    for (size_t e = 0; e < sizeof all_ends / sizeof *all_ends; e++)
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
            struct pair p = between(all_ends[e], HISTORY_ALONE);
            uint32_t n = lengths[i];
            struct ticket t = hand_over(computed_to(&p, n), 0, 1);

            p.d = session_with(p.dest, &p.de, p.dp, 1, n);
            assert_ok(ticket_fetched(p.d, t));
            assert_lengths(p.d, n / L * L, n, n);
            assert_int_equal(tokens_do(p.d, 0, 0, n, false), 0);
            assert_int_equal(pages_taken(&p), 0);
            assert_true(blob_came(p.d, 1));
            rig_destroy_all();
        }
}

/* Chunks that are here do not move again, and what the source offers in pieces comes in pieces. */
TEST(n3_prefix_of_other_page_tokens_goes_on_from_what_is_here)
{
    for (size_t e = 0; e < sizeof all_ends / sizeof *all_ends; e++) {
        struct pair p = between_with(all_ends[e], HISTORY_ALONE, 1);
        struct rig_session *first;

        computed_to(&p, 80);
        first = session_with(p.dest, &p.de, p.dp, 1, 32);
        assert_ok(rig_fetched(first, rig_fetch(first, 0, 0)));
        assert_int_equal(p.dest->pulled_pages, 32 / all_ends[e].to);
        p.d = session_with(p.dest, &p.de, p.dp, 1, 80);
        assert_int_equal(p.d->len.committed, 32);
        assert_ok(fetch_all(p.d));
        assert_lengths(p.d, 80, 80, 80);
        assert_int_equal(p.dest->pulled_pages, 80 / all_ends[e].to);
        assert_int_equal(tokens_do(p.d, 0, 0, 80, false), 0);
        rig_destroy_all();
    }
}

/* Y4 */
TEST(y4_follow_of_other_page_tokens_brings_each_token)
{
    for (size_t e = 0; e < sizeof all_ends / sizeof *all_ends; e++)
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
            struct pair p = between(all_ends[e], HISTORY_ALONE);
            uint32_t n = lengths[i];
            struct rig_session *s = session_with(p.source, &p.se, p.sp, 1, n);

            p.d = session_with(p.dest, &p.de, p.dp, 1, n);
            follow(p.d, ticket_early(s));
            for (uint32_t to = L; to <= n; to += L) {
                assert_ok(rig_run_to(s, rig_tokens(1, n), to));
                tokens_do(s, 0, to - L, to, true);
                assert_ok(rig_commit(s, to, 0));
                if (to < n)
                    assert_int_equal(come_so_far(p.d), to);
            }
            assert_ok(rig_run_to(s, rig_tokens(1, n), n));
            tokens_do(s, 0, n / L * L, n, true);
            hand_over(s, 0, 0);
            assert_ok(rig_fetched(p.d, p.d->fetch));
            assert_lengths(p.d, n / L * L, n, n);
            assert_int_equal(tokens_do(p.d, 0, 0, n, false), 0);
            assert_int_equal(pages_taken(&p), 0);
            rig_destroy_all();
        }
}

/* Computes n tokens of the window's group, and commits whole chunks. */
static void window_computes(struct rig_session *s, uint32_t n)
{
    for (uint32_t to = L; to <= n; to += L) {
        assert_ok(rig_run_to(s, rig_tokens(1, n), to));
        tokens_do(s, 1, to - WINDOW, to, true);
        assert_ok(rig_commit(s, to, 0));
    }
    assert_ok(rig_run_to(s, rig_tokens(1, n), n));
    tokens_do(s, 1, n / L * L, n, true);
}

/* A window of six tokens begins within a page at either end. */
TEST(n3_window_of_other_page_tokens_brings_the_window)
{
    for (size_t e = 0; e < sizeof all_ends / sizeof *all_ends; e++)
        for (uint32_t n = L; n <= 4 * L; n++) {
            struct pair p = between(all_ends[e], WITH_STATES);
            struct rig_session *s = session_with(p.source, &p.se, p.sp, 1, n);
            struct ticket t;

            window_computes(s, n);
            t = hand_over(s, 0, 0);
            p.d = session_with(p.dest, &p.de, p.dp, 1, n);
            assert_ok(ticket_fetched(p.d, t));
            assert_lengths(p.d, n / L * L, n, n);
            assert_int_equal(tokens_do(p.d, 1, n - WINDOW, n, false), 0);
            for (uint32_t i = 0; i < (n - WINDOW) / all_ends[e].to; i++)
                assert_int_equal(p.d->table[1][i].index, 0); /* outside the window: free again */
            assert_int_equal(pages_taken(&p), 0);
            rig_destroy_all();
        }
}

/* The destination has fetched a ticket of n tokens. */
static struct pair window_fetched(struct ends ends, uint32_t n)
{
    struct pair p = between(ends, WITH_WINDOW);
    struct rig_session *s = session_with(p.source, &p.se, p.sp, 1, n);

    window_computes(s, n);
    p.d = session_with(p.dest, &p.de, p.dp, 1, n);
    assert_ok(ticket_fetched(p.d, hand_over(s, 0, 0)));
    return p;
}

/* If the window begins within a larger page, the source sends only the part that the window needs.
 * So no prefix that needs more of the page resumes by it, the session does not go back to a length
 * that would, and it is not handed over while it needs such a page. */
TEST(n3_window_that_begins_within_a_page_is_no_other_window)
{
    uint32_t resumed = 0, returned = 0, lacking = 0;

    for (size_t e = 0; e < sizeof all_ends / sizeof *all_ends; e++)
        for (uint32_t n = L + 1; n < 4 * L; n++) {
            const uint32_t from = n - WINDOW, pt = all_ends[e].to,
                           came = from / all_ends[e].from * all_ends[e].from;
            const bool lacks = n % L != 0 && from / pt * pt < came;
            struct pair p = window_fetched(all_ends[e], n);
            struct rig_session *other = session_with(p.dest, &p.de, p.dp, 1, n);
            struct req_handoff handoff = {.key = {1, 1}};
            uint32_t depth = other->len.committed;

            if (depth > 0)
                assert_int_equal(tokens_do(other, 1, depth - WINDOW, depth, false), 0);
            resumed += depth > 0;
            assert_err(lacks ? TERN_INVALID : TERN_OK, hand_over_full(p.d, handoff)->err);
            rig_destroy_all();

            p = window_fetched(all_ends[e], n);
            if (n > p.d->len.committed && rig_rewind(p.d, n - 1, 0) == TERN_OK) {
                assert_int_equal(tokens_do(p.d, 1, n - 1 - WINDOW, n - 1, false), 0);
                returned++;
            }
            lacking += lacks;
            rig_destroy_all();
        }
    assert_true(resumed > 0 && returned > 0 && lacking > 0);
}

/* Later, when the window has left that page, the session is like any other. */
TEST(n3_window_that_began_within_a_page_is_whole_later)
{
    struct pair p = window_fetched((struct ends){4, 16}, 21);
    struct req_handoff handoff = {.key = {1, 1}};

    assert_err(TERN_INVALID, rig_rewind(p.d, 17, 0));
    assert_ok(rig_run_to(p.d, rig_tokens(1, 30), 30));
    assert_err(TERN_INVALID, rig_rewind(p.d, 17, 0));
    assert_ok(rig_rewind(p.d, 21, 0));
    assert_ok(rig_run_to(p.d, rig_tokens(1, 30), 30));
    assert_ok(hand_over_full(p.d, handoff)->err);
}

/* T8: chunks that another engine is about to publish stay the session's tail. Their first page of
 * the window has only the part that the window needs. */
TEST(n3_tail_of_whole_chunks_is_whole_where_its_window_began)
{
    struct pair p = between((struct ends){4, 16}, WITH_WINDOW);
    struct rig_session *s = session_with(p.source, &p.se, p.sp, 1, 32), *pending;
    struct req_handoff handoff = {.key = {1, 1}};
    struct rig_engine other = second_engine(p.dest, p.dp);

    window_computes(s, 31);
    assert_ok(rig_run_to(s, rig_tokens(1, 32), 32));
    tokens_do(s, 1, 16, 32, true);
    assert_ok(rig_commit(s, 32, 0));
    p.d = session_with(p.dest, &p.de, p.dp, 1, 32);
    pending = session_with(p.dest, &other, p.dp, 1, 32);
    assert_ok(rig_run_to(pending, rig_tokens(1, 32), 32));
    assert_ok(rig_commit(pending, 32, 3));
    assert_ok(ticket_fetched(p.d, hand_over(s, 0, 0)));
    assert_lengths(p.d, 0, 32, 32);
    assert_err(TERN_INVALID, rig_rewind(p.d, 29, 0)); /* only [24, 32) of page [16, 32) came */
    assert_ok(rig_rewind(p.d, 30, 0));
    assert_int_equal(tokens_do(p.d, 1, 30 - WINDOW, 30, false), 0);
    assert_err(TERN_INVALID, hand_over_full(p.d, handoff)->err); /* the session needs that page */
    rig_destroy_all();
}

/* T18: no window behind the end of its chunk needs the missing part of the page, so others
 * resume. */
TEST(t18_page_that_came_in_part_is_the_nodes_where_its_window_is_whole)
{
    struct pair p = window_fetched((struct ends){4, 16}, 27); /* of page [16, 32) only [20, 32) */
    struct rig_session *other;

    assert_ok(rig_run_to(p.d, rig_tokens(1, 32), 32));
    tokens_do(p.d, 1, 20, 32, true); /* running writes the whole page */
    assert_ok(rig_commit(p.d, 32, 0));
    other = session_with(p.dest, &p.de, p.dp, 1, 40);
    assert_int_equal(other->len.committed, 32);
    assert_int_equal(tokens_do(other, 1, 32 - WINDOW, 32, false), 0);
    rig_destroy_all();
}

TEST(x3_span_that_came_wrong_comes_once_more)
{
    for (size_t e = 0; e < sizeof all_ends / sizeof *all_ends; e++)
        for (uint32_t wrong = 1; wrong <= 3; wrong++) {
            struct pair p = between(all_ends[e], HISTORY_ALONE);

            computed_to(&p, 83);
            p.d = session_with(p.dest, &p.de, p.dp, 1, 80);
            p.dest->corrupt_pages = wrong;
            assert_ok(fetch_all(p.d));
            assert_int_equal(rig_view(p.dest).corrupt_detected, wrong);
            assert_int_equal(tokens_do(p.d, 0, 0, 80, false), 0);
            assert_int_equal(pages_taken(&p), 0);
            rig_destroy_all();
        }
}

/* There are pages for whole spans, or the fetch fails with the shortage. */
TEST(n3_room_is_needed_for_whole_spans)
{
    struct pair p = between((struct ends){16, 2}, HISTORY_ALONE);
    struct rig_session *s = computed_to(&p, 81);
    struct ticket t = hand_over(s, 0, 0);

    /* 41 pages would suffice without the seven that the source's last page has beside them. */
    p.dp = open_pool(p.dest, &p.de, 2, HISTORY_ALONE, 46);
    p.d = session_with(p.dest, &p.de, p.dp, 1, 81);
    assert_err(TERN_QUOTA, ticket_fetched(p.d, t));
    assert_int_equal(rig_reply_to(p.dest, p.d->fetch)->shortage.free, 45);
    p.dp = open_pool(p.dest, &p.de, 2, HISTORY_ALONE, 49);
    p.d = session_with(p.dest, &p.de, p.dp, 1, 81);
    assert_ok(ticket_fetched(p.d, t));
    assert_int_equal(tokens_do(p.d, 0, 0, 81, false), 0);
}

/* Pools without common spans, or with another L, and invalid messages of a source. */
TEST(n3_page_tokens_without_spans_are_refused)
{
    static const uint32_t bad[] = {3, 5, 6, 32, 48, 1024};

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct pair p = between((struct ends){4, 16}, HISTORY_ALONE);
        struct peer_msg msg;

        computed_to(&p, 80);
        p.d = session_with(p.dest, &p.de, p.dp, 1, 80);
        p.source->automatic = BY_HAND(RIG_MSG);
        rig_fetch(p.d, 0, 0);
        msg = rig_job(p.source, RIG_MSG, 0)->msg;
        assert_ok(msg.err);
        assert_int_equal(msg.page_tokens[0], 4);
        assert_int_equal(msg.runs[0].n, 5);
        rig_job(p.source, RIG_MSG, 0)->msg.page_tokens[0] = bad[i];
        if (bad[i] > 16) /* as many spans as such pages would have */
            ((struct table_run *)(uintptr_t)rig_job(p.source, RIG_MSG, 0)->msg.runs)->n =
                (80 + bad[i] - 1) / bad[i];
        rig_complete(p.source, RIG_MSG);
        assert_err(TERN_PEER_LOST, rig_reply_to(p.dest, p.d->fetch)->err);
        rig_destroy_all();
    }
}
