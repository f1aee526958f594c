/* Valid contents of a peer's messages: errors of its end, and lengths that a session can have. */
#include "core/transfer/peer_words.h"
#include "testing/test.h"

TEST(peer_errors_beside_the_table_are_a_lost_peer)
{
    static const uint32_t never[] = {TERN_POOL_EXHAUSTED,
                                     TERN_QUOTA,
                                     TERN_CORRUPT,
                                     TERN_DISK,
                                     TERN_INTERNAL,
                                     TERN_DAEMON_LOST,
                                     TERN_ERR_COUNT,
                                     TERN_ERR_COUNT + 1,
                                     31,
                                     32,
                                     40,
                                     UINT32_MAX};
    static const enum peer_msg_kind to_engines[] = {PEER_PULL_OFFER, PEER_PULL_ABORT};

    for (uint32_t k = 0; k < 2; k++) {
        for (uint32_t i = 0; i < sizeof never / sizeof *never; i++)
            assert_int_equal(peer_err_heard(to_engines[k], never[i]), TERN_PEER_LOST);
        assert_int_equal(peer_err_heard(to_engines[k], TERN_GONE), TERN_GONE);
        assert_int_equal(peer_err_heard(to_engines[k], TERN_BUSY), TERN_BUSY);
        assert_int_equal(peer_err_heard(to_engines[k], TERN_DENIED), TERN_DENIED);
    }
    assert_int_equal(peer_err_heard(PEER_PULL_OFFER, TERN_OK), TERN_OK);
    assert_int_equal(peer_err_heard(PEER_PULL_ABORT, TERN_OK), TERN_PEER_LOST);
    assert_int_equal(peer_err_heard(PEER_RESET_DONE, TERN_INTERNAL), TERN_PEER_LOST);
    assert_int_equal(peer_err_heard(PEER_PULL_EARLY, TERN_GONE), TERN_PEER_LOST);
    assert_int_equal(peer_err_heard(PEER_MSG_COUNT, TERN_OK), TERN_PEER_LOST);
    assert_int_equal(peer_err_heard((enum peer_msg_kind)0, TERN_OK), TERN_PEER_LOST);
}

TEST(peer_messages_belong_to_one_side_each)
{
    for (uint32_t kind = PEER_PULL_OPEN; kind < PEER_MSG_COUNT; kind++)
        assert_true(peer_may_send((enum peer_msg_kind)kind, true) !=
                    peer_may_send((enum peer_msg_kind)kind, false));
    for (uint32_t side = 0; side < 2; side++) {
        assert_false(peer_may_send(PEER_MSG_COUNT, side));
        assert_false(peer_may_send((enum peer_msg_kind)0, side));
        assert_false(peer_may_send((enum peer_msg_kind)UINT32_MAX, side));
    }
}

TEST(peer_lengths_at_their_bounds_fit_and_beyond_do_not)
{
    struct table_run runs[GROUPS_MAX + 1] = {{.group = GROUPS_MAX - 1}};
    struct peer_msg m = {.kind = PEER_PULL_OFFER,
                         .to = SESSION_TOKENS_MAX,
                         .from = SESSION_TOKENS_MAX,
                         .handed = SESSION_TOKENS_MAX,
                         .blob_bytes = TICKET_BLOB_BYTES,
                         .page_tokens = {PAGE_TOKENS_MAX},
                         .runs = runs,
                         .nruns = 1},
                    n;

    assert_null(peer_msg_unfit(&m, 0));
#define BEYOND(member, value)                                                                      \
    n = m;                                                                                         \
    n.member = value;                                                                              \
    assert_non_null(peer_msg_unfit(&n, 0))
    BEYOND(to, SESSION_TOKENS_MAX + 1);
    BEYOND(from, SESSION_TOKENS_MAX + 1);
    BEYOND(handed, SESSION_TOKENS_MAX + 1);
    BEYOND(blob_bytes, TICKET_BLOB_BYTES + 1);
    BEYOND(page_tokens[0], PAGE_TOKENS_MAX + 1);
    BEYOND(nruns, GROUPS_MAX + 1);
    BEYOND(until, SESSION_TOKENS_MAX + 1);
    BEYOND(kind, PEER_MSG_COUNT);
    n = m;
    n.at = 2;
    n.until = 1;
    assert_non_null(peer_msg_unfit(&n, 0));
    runs[0].group = GROUPS_MAX;
    assert_non_null(peer_msg_unfit(&m, 0));
    n = (struct peer_msg){.kind = PEER_PULL_NEXT, .err = TERN_GONE};
    assert_non_null(peer_msg_unfit(&n, 0));
}

TEST(peer_tokens_are_as_many_as_are_said)
{
    static const uint32_t tokens[8];
    struct peer_msg m = {.kind = PEER_PULL_OPEN, .to = 8, .tokens = tokens}, n;

    assert_null(peer_msg_unfit(&m, 8));
    assert_non_null(peer_msg_unfit(&m, 7));
    assert_non_null(peer_msg_unfit(&m, 9));
    assert_true(peer_tokens_fit(&m));
#define UNFIT(member, value)                                                                       \
    n = m;                                                                                         \
    n.member = value;                                                                              \
    assert_false(peer_tokens_fit(&n))
    UNFIT(to, SESSION_TOKENS_MAX + 1);
    UNFIT(until, 9);
    UNFIT(history, 9);
    UNFIT(at_least, 9);
    UNFIT(at, 1);
    UNFIT(from, 9);
    UNFIT(nkeys, EXTRA_KEYS_MAX + 1);
    n = (struct peer_msg){.kind = PEER_PULL_TOKENS, .to = OPEN_TOKENS_MAX + 1, .tokens = tokens};
    assert_false(peer_tokens_fit(&n));
}
