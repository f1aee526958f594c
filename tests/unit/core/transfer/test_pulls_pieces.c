/* A fetch that is longer than one message between daemons: its tokens go to the source in pieces,
 * the source pins the nodes that they lead to, and names its pages in pieces. The engine asks
 * once. */
#include "unit/rig/rig_pair.h"

#define TOKENS 64 /* 16 pages of 4 tokens */

/* A message has four chunks of tokens and names three pages. */
static struct pair pieces(void)
{
    struct rig_options o = rig_defaults();

    o.limits.open_tokens = 16;
    o.limits.offer_pages = 3;
    return pair_with(o, 4, 64, 64);
}

static struct pair pieces_offered(void)
{
    struct pair p = pieces();

    pair_offer(&p, TOKENS);
    return p;
}

/* Delivers messages between the two, one by one, `most` at most. `kinds` gets a letter for each. */
static void talk(struct pair *p, char *kinds, uint32_t most)
{
    static const char letter[PEER_MSG_COUNT] = {
        [PEER_PULL_OPEN] = 'o',  [PEER_PULL_MORE] = 'm', [PEER_PULL_TOKENS] = 't',
        [PEER_PULL_OFFER] = 'O', [PEER_PULL_NEXT] = 'n', [PEER_PULL_DONE] = 'd'};
    uint32_t n = 0;

    while (n < most && (rig_jobs(p->dest, RIG_MSG) > 0 || rig_jobs(p->source, RIG_MSG) > 0)) {
        struct rig *from = rig_jobs(p->dest, RIG_MSG) > 0 ? p->dest : p->source;

        kinds[n++] = letter[rig_job(from, RIG_MSG, 0)->msg.kind];
        rig_complete(from, RIG_MSG);
    }
    kinds[n] = 0;
}

static uint64_t fetch_by_hand(struct pair *p)
{
    p->source->automatic = BY_HAND(RIG_MSG);
    return fetch_held(p, RIG_MSG);
}

/* X9 */
TEST(pieces_one_fetch_brings_all)
{
    struct pair p = pieces_offered();
    uint64_t fetch = fetch_by_hand(&p);
    char kinds[32];

    talk(&p, kinds, 31);
    assert_string_equal(kinds, "omtmtmtOnOnOnOnOnOd"); /* 4 x 16 tokens, 5 x 3 pages and 1 */
    assert_leaves_whole(rig_fetched(p.d, fetch), p.d, TOKENS);
    assert_int_equal(p.dest->pulled_pages, 16);
    p.source->automatic = p.dest->automatic = RIG_ALL;
    rig_settle(p.source);
    rig_settle(p.dest);
    pair_ends_clean(&p, 16, 16);
}

/* Pages that are here already are neither named nor moved; their tokens are sent all the same. */
TEST(pieces_of_what_is_missing_alone)
{
    struct pair p = pieces();

    source_has(&p, 1, TOKENS);
    dest_has(&p, 1, 40);
    p.d = asking(&p, 1, TOKENS);
    assert_lengths(p.d, 40, 40, 40);
    assert_leaves_whole(fetch_all(p.d), p.d, TOKENS);
    assert_int_equal(p.dest->pulled_pages, 6);
}

/* The source has less than is asked for: it offers the nodes that the tokens led to. */
TEST(pieces_end_where_the_source_ends)
{
    struct pair p = pieces();
    char kinds[32];
    uint64_t fetch;

    source_has(&p, 1, 36);
    p.d = asking(&p, 1, TOKENS);
    fetch = fetch_by_hand(&p);
    talk(&p, kinds, 31);
    assert_string_equal(kinds, "omtmtOnOnOd");
    assert_leaves_whole(rig_fetched(p.d, fetch), p.d, 36);
}

/* X10: a source that has less than the fetch waits for offers nothing. */
TEST(pieces_that_lead_to_less_than_is_awaited_are_not_offered)
{
    struct pair p = pieces();
    char kinds[32];

    source_has(&p, 1, 20);
    p.d = asking(&p, 1, TOKENS);
    p.d->at_least = 40;
    fetch_by_hand(&p);
    talk(&p, kinds, 31);
    assert_string_equal(kinds, "omtO");
    assert_int_equal(rig_view(p.source).serves, 0);
    assert_int_equal(p.dest->pulled_pages, 0);
    assert_false(ended(p.d));
}

/* X4: between two pieces the source pins the nodes that were walked, and none beyond. */
TEST(pieces_hold_what_was_walked)
{
    struct pair p = pieces_offered();
    uint64_t fetch = fetch_by_hand(&p);
    char kinds[8];

    talk(&p, kinds, 4);
    assert_string_equal(kinds, "omtm"); /* 32 tokens walked */
    assert_int_equal(rig_evict(p.source, rig_connect_admin(p.source), p.sp, 0), 8);
    p.source->automatic = p.dest->automatic = RIG_ALL;
    rig_settle(p.dest);
    rig_settle(p.source);
    assert_leaves_whole(rig_fetched(p.d, fetch), p.d, 32);
}

/* Y6: a cancel between two pieces ends the fetch on both sides. */
TEST(pieces_cancelled_between_two)
{
    for (uint32_t after = 1; after < 9; after++) {
        struct pair p = pieces_offered();
        uint64_t fetch = fetch_by_hand(&p);
        char kinds[16];

        talk(&p, kinds, after);
        assert_ok(rig_fetch_cancel(p.d));
        p.source->automatic = p.dest->automatic = RIG_ALL;
        rig_settle(p.dest);
        rig_settle(p.source);
        rig_settle(p.dest);
        assert_err(TERN_GONE, rig_fetched(p.d, fetch));
        assert_int_equal(rig_wrong(p.d, p.d->len.committed), 0);
        pair_ends_clean(&p, 16, p.d->len.committed / 4);
    }
}

/* All pages are taken before the first one is asked for: a fetch that does not fit moves none. */
TEST(pieces_that_do_not_fit_move_nothing)
{
    struct pair p = pair_with(OPTIONS_WITH(limits.offer_pages = 3), 4, 64, 12);

    pair_offer(&p, TOKENS);
    assert_err(TERN_QUOTA, fetch_all(p.d));
    assert_int_equal(p.dest->pulled_pages, 0);
    assert_int_equal(rig_free(p.dest, p.dp), 12);
}

/* N2: keys travel with their tokens. */
TEST(pieces_carry_their_keys)
{
    struct pair p = pieces();
    struct extra_key keys[3] = {
        {.position = 2, .lo = 1}, {.position = 18, .lo = 2}, {.position = 50, .lo = 3}};
    struct req_tokens t = {.v = seq1, .n = TOKENS, .keys = keys, .nkeys = 3};
    struct rig_session *s = rig_session(p.source, &p.se, p.sp, 1),
                       *other = rig_session(p.dest, &p.de, p.dp, 1);

    assert_ok(rig_match_full(s, &t, 0));
    assert_ok(rig_run_to(s, seq1, TOKENS));
    assert_ok(rig_commit(s, TOKENS, 0));
    p.d = rig_session(p.dest, &p.de, p.dp, 1);
    keys[2].lo = 4;
    assert_ok(rig_match_full(other, &t, 0));
    assert_leaves_whole(fetch_all(other), other, 48);
    keys[2].lo = 3;
    assert_ok(rig_match_full(p.d, &t, 0));
    assert_leaves_whole(fetch_all(p.d), p.d, TOKENS);
}

/* The source names pages, or asks for tokens, that are not the next ones. */
TEST(pieces_out_of_order_close_the_link)
{
    for (uint32_t wrong = 0; wrong < 7; wrong++) {
        struct pair p = pieces_offered();
        uint64_t fetch = fetch_by_hand(&p);
        struct table_run run;
        struct page_ref refs[3];
        struct peer_msg msg;
        char kinds[16];

        talk(&p, kinds, wrong < 2 ? 1 : 9);
        msg = rig_job(p.source, RIG_MSG, 0)->msg; /* the first MORE; the second OFFER */
        if (wrong >= 2) {
            run = msg.runs[0];
            memcpy(refs, run.refs, sizeof refs);
            run.refs = refs;
            msg.runs = &run;
        }
        switch (wrong) {
        case 0: msg.at = 12; break;
        case 1: msg.serve.gen = 0; break;
        case 2: msg.at = 0; break;
        case 3: msg.until += 4; break;
        case 4: msg.until = 0; break; /* it claims: all tokens */
        case 5: refs[1].gen = 0; break;
        default: msg.to -= 4; break;
        }
        source_says(&p, &msg);
        assert_int_equal(p.dest->link_closes, 1);
        assert_err(TERN_PEER_LOST, rig_fetched(p.d, fetch));
        assert_int_equal(rig_wrong(p.d, p.d->len.committed), 0);
    }
}

/* A puller that sends tokens that are not the next ones gets an error, and no pin is left. */
TEST(pieces_of_other_tokens_invalid)
{
    for (uint32_t wrong = 0; wrong < 3; wrong++) {
        struct pair p = pieces_offered();
        struct peer_msg msg;
        char kinds[16];

        fetch_by_hand(&p);
        talk(&p, kinds, 2);
        msg = rig_job(p.dest, RIG_MSG, 0)->msg;
        switch (wrong) {
        case 0: msg.at -= 4; break;
        case 1: msg.until = msg.to + 4; break;
        default: msg.to += 4; break;
        }
        dest_says(&p, &msg);
        assert_int_equal(rig_jobs(p.source, RIG_MSG), 1);
        assert_err(TERN_INVALID, rig_job(p.source, RIG_MSG, 0)->msg.err);
        assert_int_equal(rig_view(p.source).serves, 0);
    }
}

/* N1: the namespace is reset while tokens come: they lead to nothing. */
TEST(pieces_of_what_was_reset_meanwhile_lead_to_nothing)
{
    struct pair p = pieces_offered();
    uint64_t fetch = fetch_by_hand(&p);
    uint32_t nodes;
    char kinds[8];

    talk(&p, kinds, 3);
    assert_ok(rig_reset(p.source, p.se.conn[0], 1, &nodes));
    p.source->automatic = p.dest->automatic = RIG_ALL;
    rig_settle(p.source);
    rig_settle(p.dest);
    assert_leaves(rig_fetched(p.d, fetch), p.d, 0, 0, 0);
    assert_int_equal(rig_view(p.source).serves, 0);
}
