/* Token lists and extra keys: the meaning of `base`, lists that end within chunks, the list that an
 * Abort keeps (S3, S7, N2), and token and key stores that are full. */
#include "core/tree/tokens.h"

#include "unit/rig/rig_pair.h"

/* The token store counts whole blocks: with L = 4 a block holds four tokens. */
/* E4: a list that the store could never have is QUOTA with both numbers: all blocks of the list. */
TEST(limits_token_store_full_busy_and_nothing_lost)
{
    struct bench b = BENCH_LIMITED(limits.token_blocks = 24, 4, 64);
    struct rig_session *other;
    uint32_t n;

    assert_err(TERN_QUOTA, rig_match(b.s, seq1, 400));
    assert_non_null(strstr(b.rig->last->text, "raise limits.token_blocks"));
    assert_int_equal(b.rig->last->number[0], 100);
    assert_int_equal(b.rig->last->number[1], 24);
    assert_int_equal(rig_view(b.rig).token_blocks_free, 24);
    computes(b.s, 1, 40);
    other = rig_session(b.rig, &b.e, b.pool, 1);
    for (n = 4; rig_match(other, rig_tokens(2, n), n) == TERN_OK; n += 4) /* until it is full */
        assert_true(n < 24 * 4);
    assert_err(TERN_BUSY, b.rig->last->err);
    assert_err(TERN_BUSY, rig_match(b.s, seq1, 96)); /* a resume: all blocks would not suffice */
    assert_err(TERN_QUOTA, rig_match(b.s, seq1, 100));
    assert_int_equal(b.rig->last->number[0], 25);
    assert_lengths(b.s, 0, 40, 40);
    assert_err(TERN_BUSY, rig_extend(b.s, 0, 0, rig_tokens(3, 56), 56));
    assert_err(TERN_QUOTA, rig_extend(b.s, 0, 0, rig_tokens(3, 200), 200));
    assert_int_equal(b.rig->res.number[0], 60); /* with the blocks that it has */
    assert_int_equal(b.rig->res.number[1], 24);
    assert_int_equal(b.s->ntokens, 40);
    assert_leaves(rig_commit(b.s, 40, 0), b.s, 40, 40, 40); /* takes no new block */
    assert_ok(rig_close(other, 0));
    bench_lets_go(&b);
    assert_int_equal(rig_view(b.rig).token_blocks_free, 24);
}

/* E4: the same for prefix nodes: a path with more nodes than there can be. */
TEST(e4_a_commit_of_more_nodes_than_there_can_be_is_quota)
{
    for (uint32_t never = 0; never < 2; never++) {
        struct bench b = BENCH_LIMITED(limits.nodes = never ? 8 : 14, 4, 64);
        struct rig_session *other = rig_session(b.rig, &b.e, b.pool, 1);

        commits(other, 2, 16);
        computes(b.s, 1, 40);
        assert_err(never ? TERN_QUOTA : TERN_BUSY, rig_commit(b.s, 40, 0));
        assert_non_null(strstr(b.rig->res.text, "raise limits.nodes"));
        assert_int_equal(b.rig->res.number[0], never ? 11 : 0); /* ten chunks and the root */
        assert_int_equal(b.rig->res.number[1], never ? 8 : 0);
        assert_int_equal(b.rig->res.lengths.committed, never ? 12 : 36);
        assert_ok(rig_close(other, 0));
        assert_err(never ? TERN_QUOTA : TERN_OK, rig_commit(b.s, 40, 0));
    }
}

/* A refusal of extra keys that are not in order, or at one position, names both positions. */
TEST(n2_extra_keys_that_are_refused_are_told_by_their_positions)
{
    struct bench b = bench_start(4, 64);
    struct extra_key keys[2] = {{.position = 5}, {.position = 5}};
    struct req_tokens t = {.v = seq1, .n = 16, .keys = keys, .nkeys = 2};

    assert_err(TERN_INVALID, rig_match_full(b.s, &t, 0));
    assert_non_null(strstr(b.rig->last->text, "at most one for each"));
    assert_true(b.rig->last->number[0] == 5 && b.rig->last->number[1] == 5);
    keys[1].position = 3;
    assert_err(TERN_INVALID, rig_match_full(b.s, &t, 0));
    assert_true(b.rig->last->number[0] == 3 && b.rig->last->number[1] == 5);
    keys[1].position = 16;
    assert_err(TERN_INVALID, rig_match_full(b.s, &t, 0));
    assert_non_null(strstr(b.rig->last->text, "outside of the request's own tokens"));
    assert_int_equal(b.rig->last->number[0], 16);
}

TEST(limits_extra_keys_full_busy_and_nothing_lost)
{
    struct bench b = BENCH_LIMITED(limits.extra_keys = 3, 4, 64);
    struct extra_key keys[4] = {
        {.position = 1}, {.position = 5}, {.position = 6}, {.position = 13}};
    struct req_tokens t = {.v = seq1, .n = 16, .keys = keys, .nkeys = 4};

    assert_err(TERN_QUOTA, rig_match_full(b.s, &t, 0));
    assert_int_equal(b.rig->last->number[0], 4);
    assert_int_equal(b.rig->last->number[1], 3);
    assert_int_equal(b.s->ntokens, 0);
    t.nkeys = 3;
    assert_ok(rig_match_full(b.s, &t, 0));
    commit_to(b.s, seq1, 16, 0);
    bench_lets_go(&b);
}

/* S7 without room to copy the keys of the good list out of the tree: the list is dropped, which the
 * answer shows. */
TEST(limits_extra_keys_full_abort_gives_the_list_up)
{
    struct extra_key keys[2] = {{.position = 1}, {.position = 5}};
    struct req_tokens t = {.n = 16, .keys = keys, .nkeys = 2};

    for (uint32_t spare = 1; spare <= 2; spare++) { /* two keys have to be copied */
        struct rig_session *other;
        struct bench b = BENCH_LIMITED(limits.extra_keys = 4 + spare, 4, 64);

        other = rig_session(b.rig, &b.e, b.pool, 1);
        t.v = seq1;
        assert_ok(rig_match_full(b.s, &t, 0));
        run_and_commit(b.s, seq1, 16, 8, 0);
        assert_ok(rig_finish(b.s, 16, 0));
        assert_ok(rig_match_full(b.s, &t, 0));
        t.v = rig_tokens(2, 16);
        assert_ok(rig_match_full(other, &t, 0));
        assert_ok(rig_abort(b.s, 0));
        assert_int_equal(b.s->ntokens, spare < 2 ? 0 : 16);
    }
}

/* N2: extra keys are part of the prefix from their position on, and are compared as tokens are. */
TEST(extra_keys_split_the_tree_at_their_position)
{
    struct bench b = bench_start(4, 32);
    struct extra_key keys[2] = {{.position = 5, .lo = 1}, {.position = 9, .lo = 2}};
    struct req_tokens both = {.v = seq1, .n = 16, .keys = keys, .nkeys = 2};
    struct req_tokens one = both, moved;
    struct extra_key at6 = {.position = 6, .lo = 1};

    assert_ok(rig_match_full(b.s, &both, 0));
    commit_to(b.s, seq1, 16, 0);
    assert_int_equal(depth_with_keys(b.s, &both), 16);
    one.nkeys = 1;
    assert_int_equal(depth_with_keys(b.s, &one), 8);
    moved = one;
    moved.keys = &at6;
    assert_int_equal(depth_with_keys(b.s, &moved), 4);
}

TEST(extra_keys_out_of_order_invalid)
{
    struct bench b = bench_start(4, 32);
    struct extra_key twice[2] = {{.position = 5, .lo = 1}, {.position = 5, .lo = 2}};
    struct extra_key down[2] = {{.position = 6, .lo = 1}, {.position = 5, .lo = 2}};
    struct extra_key beyond = {.position = 16, .lo = 1};
    struct req_tokens t = {.v = seq1, .n = 16, .keys = twice, .nkeys = 2};
    uint32_t depth;

    assert_err(TERN_INVALID, rig_match_full(b.s, &t, 0));
    assert_err(TERN_INVALID, rig_peek_keys(b.s, &t, &depth));
    t.keys = down;
    assert_err(TERN_INVALID, rig_match_full(b.s, &t, 0));
    t.keys = &beyond;
    t.nkeys = 1;
    assert_err(TERN_INVALID, rig_match_full(b.s, &t, 0));
    assert_int_equal(b.s->ntokens, 0);
}

/* Tokens [from, from + n) of sequence 1, with the keys between them. */
static struct req_tokens piece(uint32_t from, uint32_t n, const struct extra_key *keys,
                               uint32_t nkeys)
{
    struct req_tokens t = {.v = seq1 + from, .n = n, .base = from};

    while (nkeys > 0 && keys->position < from) {
        keys++;
        nkeys--;
    }
    while (nkeys > 0 && keys[nkeys - 1].position >= from + n)
        nkeys--;
    t.keys = keys;
    t.nkeys = nkeys;
    return t;
}

/* The first list ends within a chunk, the rest comes by `base`: the tree is searched for both
 * together. */
TEST(tokens_straddling_buffer_and_request_match_as_one)
{
    for (uint32_t base = 0; base <= 16; base++) {
        struct bench b = bench_start(4, 32);
        struct req_tokens head = piece(0, base, NULL, 0), rest = piece(base, 20 - base, NULL, 0);

        assert_ok(rig_match_full(b.s, &head, 0)); /* nothing is committed yet */
        rig_put(b.rig, &b.e, b.pool, 1, 16);
        matches_full(b.s, &rest, 0, 16);
        assert_lengths(b.s, 16, 16, 16);
        assert_int_equal(b.s->ntokens, 20);
        assert_int_equal(rig_wrong(b.s, 16), 0);
        run_and_commit(b.s, seq1, 20, 20, 0); /* the kept tokens are those that were sent */
        assert_int_equal(rig_depth(b.s, seq1, 20), 20);
    }
}

/* S7 for each length of the good list and each committed depth: the list is kept as it was. */
TEST(abort_good_list_comes_back_from_the_tree_and_the_tail)
{
    for (uint32_t good = 1; good <= 14; good++)
        for (uint32_t committed = 0; committed <= 16; committed += 4) {
            struct bench b = bench_start(4, 32);
            struct req_tokens more;
            uint32_t other[4] = {9, 9, 9, 9};

            computes(b.s, 1, good);
            assert_ok(rig_finish(b.s, good, 0));
            computes_and_commits(b.s, 1, 18, committed, 0);
            assert_ok(rig_abort(b.s, 0));
            assert_int_equal(b.s->ntokens, good);
            more = (struct req_tokens){.v = other, .n = 4, .base = good};
            matches_full(b.s, &more, 0,
                         good / 4 * 4 < committed
                             ? good / 4 * 4
                             : committed); /* the kept tokens, and others behind them */
            assert_int_equal(b.s->ntokens, good + 4);
            rig_destroy(b.rig); /* there are many */
        }
}

/* The same with chunks of more than one token block, the last block partly filled. */
TEST(abort_good_list_of_long_chunks_comes_back)
{
    static const uint32_t lengths[] = {1, 63, 64, 65, 99, 100, 101, 163, 164, 165, 199, 200, 250};

    for (uint32_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        struct bench b = bench_start(100, 16);
        const uint32_t good = lengths[i];
        struct req_tokens more = {.v = seq1 + good, .n = 400 - good, .base = good};

        computes(b.s, 1, good);
        assert_ok(rig_finish(b.s, good, 0));
        computes_and_commits(b.s, 1, 330, 300, 0);
        assert_ok(rig_abort(b.s, 0));
        assert_int_equal(b.s->ntokens, good);
        matches_full(b.s, &more, 0, 300);
        commit_to(b.s, seq1, 400, 0);
        assert_int_equal(rig_depth(b.s, seq1, 400), 400);
    }
}

/* The list also survives a second aborted turn, whether its Match sent all tokens or some. */
TEST(abort_twice_keeps_the_list_of_the_last_finish)
{
    for (uint32_t whole = 0; whole < 2; whole++) {
        struct bench b = bench_start(4, 32);
        struct req_tokens again = piece(whole ? 0 : 10, whole ? 18 : 8, NULL, 0);

        computes_and_commits(b.s, 1, 10, 8, 0);
        assert_ok(rig_finish(b.s, 10, 0));
        for (uint32_t turn = 0; turn < 3; turn++) {
            assert_ok(rig_match_full(b.s, &again, 0));
            assert_int_equal(b.s->ntokens, 18);
            assert_ok(rig_run_to(b.s, seq1, 18));
            assert_ok(rig_abort(b.s, 0));
            assert_int_equal(b.s->ntokens, 10);
        }
    }
}

/* Tokens that a later turn replaced are no longer part of the good list: an Abort must not restore
 * other tokens in their place. */
TEST(abort_after_replaced_tokens_keeps_what_agreed)
{
    struct bench b = bench_start(4, 32);
    uint32_t tokens[20];
    struct req_tokens t;

    computes_and_commits(b.s, 1, 14, 8, 0);
    assert_ok(rig_finish(b.s, 14, 0));
    memcpy(tokens, seq1, sizeof tokens);
    tokens[11] ^= 1;
    assert_leaves(rig_match(b.s, tokens, 20), b.s, 8, 11, 11);
    assert_ok(rig_abort(b.s, 0));
    assert_int_equal(b.s->ntokens, 11);
    t = (struct req_tokens){.v = tokens + 11, .n = 9, .base = 11};
    assert_ok(rig_match_full(b.s, &t, 0));
    commit_to(b.s, tokens, 20, 0);
    assert_int_equal(rig_depth(b.s, tokens, 20), 20);
    assert_int_equal(rig_depth(b.s, seq1, 20), 8);
}

static const struct extra_key keys[4] = {{.position = 2, .lo = 1},
                                         {.position = 9, .lo = 2},
                                         {.position = 13, .lo = 3},
                                         {.position = 21, .lo = 4}};

/* Resumes at every base, with the keys repeated or not: the sequence continues, and its commits
 * carry every key. */
TEST(keys_over_resumes_at_every_base)
{
    for (uint32_t base = 0; base <= 15; base++) {
        struct bench b = bench_start(4, 32);
        struct req_tokens first = piece(0, 15, keys, 4), next = piece(base, 24 - base, keys, 4);
        struct req_tokens all = piece(0, 24, keys, 4), fewer = piece(0, 24, keys, 3);

        assert_ok(rig_match_full(b.s, &first, 0));
        run_and_commit(b.s, seq1, 15, 8, 0);
        assert_leaves(rig_match_full(b.s, &next, 0), b.s, 8, 15, 15);
        commit_to(b.s, seq1, 24, 0);
        assert_int_equal(depth_with_keys(b.s, &all), 24);
        assert_int_equal(depth_with_keys(b.s, &fewer), 20);
    }
}

/* A committed key that the request leaves out, adds or changes is a difference below T (S3). */
TEST(keys_that_differ_below_committed_invalid)
{
    struct extra_key changed[2] = {keys[0], keys[1]};
    struct extra_key added[3] = {keys[0], {.position = 5, .lo = 7}, keys[1]};
    struct bench b = bench_start(4, 32);
    struct req_tokens first = piece(0, 16, keys, 2), t = first;

    assert_ok(rig_match_full(b.s, &first, 0));
    run_and_commit(b.s, seq1, 16, 12, 0);
    t.nkeys = 1;
    assert_err(TERN_INVALID, rig_match_full(b.s, &t, 0));
    t.nkeys = 0;
    assert_err(TERN_INVALID, rig_match_full(b.s, &t, 0));
    t = first;
    t.keys = changed;
    for (uint32_t i = 0; i < 3; i++) { /* each field counts */
        changed[1] = keys[1];
        changed[1].position += i == 0;
        changed[1].hi += i == 1;
        changed[1].lo += i == 2;
        assert_err(TERN_INVALID, rig_match_full(b.s, &t, 0));
    }
    t.keys = added;
    t.nkeys = 3;
    assert_err(TERN_INVALID, rig_match_full(b.s, &t, 0));
    t = piece(6, 10, keys, 2); /* from within a committed chunk */
    assert_ok(rig_match_full(b.s, &t, 0));
    t.nkeys = 0;
    assert_err(TERN_INVALID, rig_match_full(b.s, &t, 0));
    assert_leaves(rig_match_full(b.s, &first, 0), b.s, 12, 16, 16);
}

/* An Abort keeps the keys of the good list, both those in the tree and those of the tail. */
TEST(keys_come_back_with_an_aborted_list)
{
    struct bench b = bench_start(4, 32);
    struct req_tokens first = piece(0, 15, keys, 4), more = piece(15, 9, keys, 4),
                      all = piece(0, 24, keys, 4);

    assert_ok(rig_match_full(b.s, &first, 0));
    run_and_commit(b.s, seq1, 15, 8, 0);
    assert_ok(rig_finish(b.s, 15, 0));
    assert_ok(rig_match_full(b.s, &more, 0));
    assert_ok(rig_abort(b.s, 0));
    assert_int_equal(b.s->ntokens, 15);
    matches_full(b.s, &more, 0, 8);
    commit_to(b.s, seq1, 24, 0);
    assert_int_equal(depth_with_keys(b.s, &all), 24);
}

/* Keys appended by an Extend count from there on. */
TEST(keys_of_an_extend_are_part_of_the_prefix)
{
    struct bench b = bench_start(4, 32);
    struct req_tokens head = piece(0, 4, NULL, 0), all = piece(0, 12, keys + 1, 1),
                      none = piece(0, 12, NULL, 0);
    struct step_op op = {.kind = STEP_EXTEND, .length = 12, .written = 12};

    assert_ok(rig_match_full(b.s, &head, 0));
    op.tokens = piece(4, 8, keys + 1, 1);
    assert_ok(rig_op(b.s, op));
    rig_write(b.s, 0, 12);
    assert_ok(rig_commit(b.s, 12, 0));
    assert_int_equal(depth_with_keys(b.s, &all), 12);
    assert_int_equal(depth_with_keys(b.s, &none), 8);
}

/* T20: a list of keys is not walked for a place behind its last key. */
TEST(t20_a_rewind_behind_the_last_key_looks_at_no_key)
{
    struct bench b = BENCH_LIMITED(limits.extra_keys = 2 * EXTRA_KEYS_MAX, 4, 64);
    struct core *c = b.rig->core;
    static struct extra_key many[EXTRA_KEYS_MAX];
    struct token_buf buf = {.align = EXTRA_KEYS_MAX};

    tokens_init(&buf, 0);
    for (uint32_t from = 0; from < 2 * EXTRA_KEYS_MAX; from += EXTRA_KEYS_MAX) {
        for (uint32_t i = 0; i < EXTRA_KEYS_MAX; i++)
            many[i].position = from + i;
        assert_ok(tokens_append(c, &buf, rig_tokens(1, EXTRA_KEYS_MAX), EXTRA_KEYS_MAX, many,
                                EXTRA_KEYS_MAX));
    }
    assert_ok(tokens_append(c, &buf, seq1, 8, NULL, 0));
    c->visits = 0;
    tokens_truncate(c, &buf, buf.end - 1);
    assert_true(c->visits <= 2 * EXTRA_KEYS_MAX / TOKEN_BLOCK / RECORDS_A_VISIT + 1);
    tokens_truncate(c, &buf, 2 * EXTRA_KEYS_MAX - 1); /* removes the last key */
    assert_true(c->visits >= 2 * EXTRA_KEYS_MAX / RECORDS_A_VISIT - 1);
    assert_int_equal(key_at(c, buf.keys_tail)->position, 2 * EXTRA_KEYS_MAX - 2);
    tokens_truncate(c, &buf, 0);
    assert_int_equal(rig_view(b.rig).token_blocks_free, c->limits.token_blocks);
}
