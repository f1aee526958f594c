/* A Match in pieces finds what one large Match would find at the time of the last piece. On an
 * empty session the pieces walk down the tree; on one with a table they are compared with it. */
#include "unit/rig/rig_state.h"

#define L     4
#define DEPTH 48

static const struct reply *piece(struct rig_session *s, const uint32_t *tokens, uint32_t from,
                                 uint32_t to, uint32_t first, bool more)
{
    struct request r = {.op = OP_MATCH,
                        .match = {.session = s->id,
                                  .tokens = {.v = tokens + from, .base = from, .n = to - from},
                                  .earlier = from - first,
                                  .more = more}};

    return rig_request(s->rig, s->conn, &r);
}

/* Sends [first, n) in pieces of `size` tokens. Returns the last answer, or the first error. */
static const struct reply *in_pieces(struct rig_session *s, const uint32_t *tokens, uint32_t first,
                                     uint32_t n, uint32_t size)
{
    const struct reply *r;
    uint32_t at = first;

    for (; n - at > size; at += size) {
        r = piece(s, tokens, at, at + size, first, true);
        if (r->err != TERN_OK)
            return r;
        assert_int_equal(r->nruns, 0);
    }
    return piece(s, tokens, at, n, first, false);
}

static uint32_t pages_of(const struct reply *r, uint32_t group, uint32_t from)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < r->nruns; i++)
        if (r->runs[i].group == group) {
            assert_int_equal(r->runs[i].first, from);
            n += r->runs[i].n;
        }
    return n;
}

static void finds(const struct reply *r, uint32_t depth, uint32_t tokens)
{
    assert_ok(r->err);
    assert_int_equal(r->match.matched, depth);
    assert_int_equal(r->match.lengths.committed, depth);
    assert_int_equal(r->match.tokens, tokens);
}

static void finds_resumed(const struct reply *r, uint32_t committed, uint32_t written,
                          uint32_t tokens)
{
    assert_ok(r->err);
    assert_int_equal(r->match.matched, 0);
    assert_int_equal(r->match.lengths.committed, committed);
    assert_int_equal(r->match.lengths.written, written);
    assert_int_equal(r->match.tokens, tokens);
}

TEST(match_pieces_of_any_size_find_what_one_match_finds)
{
    struct bench b = bench_start(L, 64);

    commits(b.s, 1, DEPTH);
    for (uint32_t size = 1; size <= DEPTH; size++) {
        struct rig_session *s = rig_session(b.rig, &b.e, b.pool, 1);
        const struct reply *r = in_pieces(s, seq1, 0, DEPTH + 3, size);

        finds(r, DEPTH, DEPTH + 3);
        assert_int_equal(pages_of(r, 0, 0), DEPTH / L);
        assert_ok(rig_close(s, 0));
    }
}

/* The only resume point lies in the last piece, so no earlier piece ends at one; or the last piece
 * has no STATE, and the resume point lies far above the nodes that earlier pieces found. */
TEST(match_pieces_look_for_the_resume_point_in_all_of_the_path)
{
    struct stage st = stage_with(SUPERSEDE_LAZY, L, rig_window(L, 2 * L, 512));
    struct rig_session *s;

    stage_put(&st, 1, 2 * L);
    stage_put(&st, 1, DEPTH);
    s = stage_session(&st);
    finds(in_pieces(s, seq1, 0, DEPTH + 1, 10), DEPTH, DEPTH + 1);
    assert_ok(rig_close(s, 0));
    lose_state(&st, seq1, DEPTH);
    for (uint32_t size = 1; size <= DEPTH; size++) {
        struct rig_session *whole = stage_session(&st), *parts = stage_session(&st);
        const struct reply *r = piece(whole, seq1, 0, DEPTH + 1, 0, false);
        uint32_t depth = r->match.matched, window = pages_of(r, 1, depth / L - 2);

        assert_true(depth < DEPTH);
        r = in_pieces(parts, seq1, 0, DEPTH + 1, size);
        finds(r, depth, DEPTH + 1);
        assert_int_equal(pages_of(r, 1, depth / L - 2), window);
        assert_ok(rig_close(whole, 0));
        assert_ok(rig_close(parts, 0));
    }
}

/* A Peek in pieces resumes at the node that it reached, and is BUSY when that node has gone. */
TEST(peek_pieces_find_what_one_peek_finds)
{
    struct stage st = stage_with(SUPERSEDE_LAZY, L, rig_window(L, 2 * L, 512));
    struct rig_session *s = stage_session(&st);
    struct request r = {.op = OP_PEEK, .peek = {.pool = st.pool, .ns = s->ns}};
    const struct reply *reply;
    struct node_id last = {0};

    stage_put(&st, 1, 2 * L);
    stage_put(&st, 1, DEPTH);
    lose_state(&st, seq1, DEPTH);
    for (uint32_t size = L; size <= DEPTH + 3; size++) {
        uint32_t at = 0, end;

        r.peek.from = (struct node_id){0};
        do {
            end = at + size < DEPTH + 3 ? at + size : DEPTH + 3;
            r.peek.tokens = (struct req_tokens){.v = seq1 + at, .base = at, .n = end - at};
            reply = rig_request(st.rig, s->conn, &r);
            assert_ok(reply->err);
            assert_int_equal(reply->peek.walked, end / L * L);
            at = reply->peek.walked;
            last = r.peek.from = reply->peek.reached;
        } while (end < DEPTH + 3);
        assert_int_equal(reply->peek.depth, match_depth(&st, seq1, DEPTH + 3));
        assert_int_equal(reply->peek.history_depth, DEPTH);
    }
    r.peek.tokens = (struct req_tokens){.v = rig_tokens(2, 80) + DEPTH, .base = DEPTH, .n = 9};
    assert_int_equal(rig_request(st.rig, s->conn, &r)->peek.reached.gen, 0);
    r.peek.tokens.base = DEPTH - L;
    assert_err(TERN_INVALID, rig_request(st.rig, s->conn, &r)->err);
    r.peek.from.gen++; /* the record is another node by now */
    r.peek.tokens.base = DEPTH;
    assert_err(TERN_BUSY, rig_request(st.rig, s->conn, &r)->err);
    r.peek.from.slot = UINT32_MAX;
    assert_err(TERN_BUSY, rig_request(st.rig, s->conn, &r)->err);
    r.peek.from = (struct node_id){0};
    assert_err(TERN_INVALID, rig_request(st.rig, s->conn, &r)->err);
    r.peek.from = last;
    r.peek.tokens.base = DEPTH;
    r.peek.ns.lo++; /* memory has none of it, as when everything that was found has gone */
    reply = rig_request(st.rig, s->conn, &r);
    assert_err(TERN_BUSY, reply->err);
    assert_int_equal(reply->peek.depth, 0);
    assert_ok(rig_close(s, 0));
    s = rig_session(st.rig, &st.e, st.pool, 2);
    r.peek.ns = s->ns;
    assert_err(TERN_BUSY, rig_request(st.rig, s->conn, &r)->err);
}

/* Until the last piece, the session accepts only the next piece, an Abort or a Close. The nodes
 * that its pieces found stay pinned. */
TEST(match_pieces_session_waits_for_the_rest)
{
    struct bench b = bench_start(L, 64);
    struct rig_session *s = rig_session(b.rig, &b.e, b.pool, 1);
    struct request fetch = {.op = OP_FETCH, .fetch = {.session = s->id, .peer = PEER_HOST}},
                   retract = {.op = OP_RETRACT,
                              .retract = {.session = s->id, .mode = RETRACT_DROP}},
                   recover = {.op = OP_RECOVER, .recover.session = s->id};
    struct step_op op = {.kind = STEP_EXTEND, .session = s->id, .length = 8};

    commits(b.s, 1, DEPTH);
    assert_ok(piece(s, seq1, 0, 30, 0, true)->err);
    assert_err(TERN_INVALID, rig_step_ops(b.rig, s->conn, &op, 1)->step.results[0].err);
    assert_err(TERN_INVALID, rig_request(b.rig, s->conn, &fetch)->err);
    assert_err(TERN_INVALID, rig_request(b.rig, s->conn, &retract)->err);
    assert_err(TERN_INVALID, rig_request(b.rig, s->conn, &recover)->err);
    assert_err(TERN_CONFLICT, piece(s, seq1, 31, 40, 31, true)->err);
    assert_err(TERN_INVALID, piece(s, seq1, 20, 40, 21, true)->err);
    (void)bench_lets_go(&b); /* all that is not pinned gets evicted */
    finds(piece(s, seq1, 30, DEPTH, 30, false), 28, DEPTH);
    op.kind = STEP_ABORT;
    assert_ok(rig_step_ops(b.rig, s->conn, &op, 1)->step.results[0].err);
    finds(piece(s, seq1, 0, 20, 0, true), 20, 20);
    assert_ok(rig_step_ops(b.rig, s->conn, &op, 1)->step.results[0].err);
    finds(piece(s, seq1, 0, DEPTH, 0, false), 28, DEPTH);
    assert_ok(rig_close(s, 0));
}

/* The answer to a piece was lost, or the caller begins anew, possibly with other tokens. */
TEST(match_pieces_may_be_given_again)
{
    struct bench b = bench_start(L, 64);

    commits(b.s, 1, DEPTH);
    for (uint32_t back = 0; back <= 22; back++) {
        struct rig_session *s = rig_session(b.rig, &b.e, b.pool, 1);

        assert_ok(piece(s, seq1, 0, 10, 0, true)->err);
        assert_ok(piece(s, seq1, 10, 22, 0, true)->err);
        finds(in_pieces(s, seq1, back, DEPTH, 9), DEPTH, DEPTH);
        assert_ok(rig_close(s, 0));
        s = rig_session(b.rig, &b.e, b.pool, 1);
        assert_ok(piece(s, seq1, 0, 22, 0, true)->err);
        finds(piece(s, rig_tokens(2, DEPTH), back, DEPTH, back, false), back / L * L, DEPTH);
        assert_ok(rig_close(s, 0));
    }
}

/* The repetition goes back to before an extra key of a chunk, and the key needs no record then. */
TEST(match_pieces_given_again_take_no_record_for_an_extra_key_behind_them)
{
    struct bench b = BENCH_LIMITED(limits.extra_keys = 1, L, 64);
    struct extra_key key = {.position = 3, .lo = 1};
    struct req_tokens t = {.v = seq1, .n = L, .keys = &key, .nkeys = 1};
    struct rig_session *s = rig_session(b.rig, &b.e, b.pool, 1);
    struct request r = {.op = OP_MATCH, .match = {.session = s->id, .tokens = t, .more = true}};

    matches_full(b.s, &t, 0, 0);
    assert_ok(rig_run_to(b.s, seq1, L));
    assert_ok(rig_commit(b.s, L, 0));
    finds(rig_request(b.rig, s->conn, &r), L, L);
    r.match.tokens.v = seq1 + 2;
    r.match.tokens.base = r.match.tokens.n = 2;
    r.match.more = false;
    finds(rig_request(b.rig, s->conn, &r), L, L);
}

/* A session with a table: pieces that agree with it change nothing, even if one has fewer tokens
 * than are committed. The first that differs cuts the list, as one large Match does. */
TEST(match_pieces_resume_a_session)
{
    static uint32_t other[64];
    struct bench b = bench_start(L, 64);
    const struct reply *r;

    commits(b.s, 1, 40);
    assert_ok(rig_run_to(b.s, seq1, 50));
    finds_resumed(in_pieces(b.s, seq1, 0, 50, 7), 40, 50, 50);
    finds_resumed(in_pieces(b.s, seq1, 30, 60, 7), 40, 50, 60);
    memcpy(other, seq1, sizeof other);
    other[45]++;
    finds_resumed(in_pieces(b.s, other, 3, 60, 6), 40, 45, 60);
    other[38]++;
    assert_err(TERN_INVALID, in_pieces(b.s, other, 0, 60, 6)->err);
    finds_resumed(piece(b.s, seq1, 20, 45, 20, false), 40, 45, 45);
    /* If the session has only its committed part, every piece is answered with its pages, from the
     * first on. */
    r = in_pieces(b.s, seq1, 8, 40, 10);
    finds_resumed(r, 40, 40, 40);
    assert_int_equal(pages_of(r, 0, 2), 8);
}
