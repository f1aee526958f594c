/* A storm of aborts on the prefill side, which nobody reports to the decode side: its requests wait
 * for KV that never comes and hold their blocks until a timer of 300 s (sglang 28651).
 * docs/museum.md has the story. */
#include "museum/museum.h"

#define WAITING 4 /* requests that hold all blocks */

/* Every request of the prefill side is aborted while its other half waits. */
static void storm(struct textbook *prefill, struct textbook *decode, bool fixed)
{
    uint32_t p[WAITING];

    textbook_init(prefill, (struct textbook_fixes){.abort_is_told = fixed}, 1);
    textbook_init(decode, (struct textbook_fixes){0}, 1);
    for (uint32_t i = 0; i < WAITING; i++) {
        p[i] = textbook_admit(prefill, i, TEXTBOOK_PROMPT);
        textbook_pair(prefill, p[i], decode, textbook_admit(decode, i, TEXTBOOK_PROMPT));
    }
    for (uint32_t i = 0; i < WAITING; i++)
        textbook_abort(prefill, p[i]);
}

TEST(textbook_blocks_are_stranded_by_an_abort_storm)
{
    struct textbook prefill, decode;

    assert_int_equal(WAITING * TEXTBOOK_PROMPT, TEXTBOOK_BLOCKS);
    storm(&prefill, &decode, false);
    textbook_clock(&decode, TEXTBOOK_WAIT_S - 1);
    assert_int_equal(prefill.nfree, TEXTBOOK_BLOCKS);
    assert_int_equal(textbook_admit(&decode, WAITING, 1), TEXTBOOK_NONE);
    textbook_clock(&decode, TEXTBOOK_WAIT_S);
    assert_int_not_equal(textbook_admit(&decode, WAITING, 1), TEXTBOOK_NONE);

    storm(&prefill, &decode, true);
    assert_int_equal(decode.nfree, TEXTBOOK_BLOCKS);
    assert_int_not_equal(textbook_admit(&decode, WAITING, TEXTBOOK_PROMPT), TEXTBOOK_NONE);
}

#define N      6  /* fetches */
#define TOKENS 16 /* per fetch: 4 pages */
#define PAGES  (N * TOKENS / 4)

/* N sessions of the destination whose transfers own all its pages. */
static struct pair transfers_fill_the_pool(struct rig_session **d)
{
    struct pair p = pair_with(rig_defaults(), 4, 128, PAGES);

    p.dest->automatic = BY_HAND(RIG_PULL);
    fetch_many(&p, N, TOKENS, d);
    assert_int_equal(rig_free(p.dest, p.dp), 0);
    assert_int_equal(rig_view(p.source).serves, N);
    return p;
}

static void next_one_has_all(struct pair *p)
{
    struct rig_session *next = rig_session(p->dest, &p->de, p->dp, 2);

    takes_what_is_free(next, 50);
    assert_int_equal(next->len.allocated, PAGES * 4);
    closes_whole(next, PAGES * 4);
}

static void assert_no_transfer(struct pair *p)
{
    assert_int_equal(quarantined(p), 0);
    assert_int_equal(rig_view(p->dest).pulls, 0);
    assert_int_equal(rig_view(p->source).serves, 0);
}

/* No time passes in any of these cases: each transfer is ended by a message.
 *
 * X2: the prefill side gives up its serves. Each fetch ends with the error. */
TEST(tern_the_source_gives_up_and_every_fetch_is_told)
{
    struct rig_session *d[N];
    struct pair p = transfers_fill_the_pool(d);

    assert_ok(rig_pool_close(p.source, p.se.conn[0], p.sp));
    for (uint32_t i = 0; i < N; i++)
        assert_err(TERN_GONE, rig_fetched(d[i], d[i]->fetch));
    assert_no_transfer(&p);
    next_one_has_all(&p);
}

/* X2, X4: the decode side gives up. The source's pins end with it. */
TEST(tern_the_destination_gives_up_and_the_source_lets_go)
{
    struct rig_session *d[N];
    struct pair p = transfers_fill_the_pool(d);
    uint32_t admin = rig_connect_admin(p.source);

    assert_int_equal(rig_evict(p.source, admin, p.sp, 0), 0);
    for (uint32_t i = 0; i < N; i++)
        assert_ok(rig_close(d[i], 0));
    assert_int_equal(rig_evict(p.source, admin, p.sp, 0), N * TOKENS / 4);
    assert_no_transfer(&p);
    next_one_has_all(&p);
}

/* X10: the prefix that the fetches wait for is aborted before its commit. Waiting fetches hold no
 * page. */
TEST(tern_who_waits_for_what_never_comes_holds_nothing)
{
    struct pair p = pair_with(rig_defaults(), 4, 128, PAGES);
    struct rig_session *at_source, *d[N];

    for (uint32_t i = 0; i < N; i++) {
        at_source = rig_session(p.source, &p.se, p.sp, 1);
        computes(at_source, 1 + i, TOKENS);
        d[i] = asking(&p, 1 + i, TOKENS);
        d[i]->at_least = TOKENS;
        rig_fetch(d[i], 0, 0);
        assert_ok(rig_abort(at_source, 0));
        assert_ok(rig_close(at_source, 0));
    }
    assert_int_equal(rig_free(p.source, p.sp), 128);
    next_one_has_all(&p);
    for (uint32_t i = 0; i < N; i++) {
        assert_false(ended(d[i]));
        assert_ok(rig_fetch_cancel(d[i]));
        assert_err(TERN_GONE, rig_fetched(d[i], d[i]->fetch));
    }
    assert_no_transfer(&p);
}
