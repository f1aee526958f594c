/* Rules S1 to S9 and the identity rules N1 and N2. */
#include "unit/rig/rig_test.h"

/* A session with T = 8, C = 14, A = 20, pages of 4 tokens, L = 4. */
static struct bench running(void)
{
    struct bench b = bench_start(4, 32);

    assert_ok(rig_match(b.s, rig_tokens(1, 32), 14));
    assert_ok(rig_run_to(b.s, rig_tokens(1, 32), 14));
    assert_ok(rig_commit(b.s, 8, 0));
    assert_ok(rig_extend(b.s, 20, 0, NULL, 0));
    assert_lengths(b.s, 8, 14, 20);
    return b;
}

/* Every request here is wrong; none may change anything, S1 included. */
TEST(session_lengths_out_of_order_invalid_and_unchanged)
{
    struct bench b = running();
    uint64_t changes = core_changes(b.rig->core);

    assert_err(TERN_INVALID, rig_extend(b.s, 0, 21, NULL, 0)); /* C > A */
    assert_err(TERN_INVALID, rig_extend(b.s, 0, 7, NULL, 0));  /* C < T */
    assert_err(TERN_INVALID, rig_extend(b.s, 19, 0, NULL, 0)); /* A does not shrink by Extend */
    assert_err(TERN_INVALID, rig_extend(b.s, SESSION_TOKENS_MAX + 1, 0, NULL, 0));
    assert_err(TERN_INVALID, rig_rewind(b.s, 7, 0));  /* below T */
    assert_err(TERN_INVALID, rig_rewind(b.s, 21, 0)); /* above A */
    assert_lengths(b.s, 8, 14, 20);
    assert_true(core_changes(b.rig->core) == changes);
}

TEST(session_tokens_at_another_base_conflict)
{
    struct bench b = running();
    uint32_t more[2] = {1, 2};
    struct step_op op = {.kind = STEP_EXTEND,
                         .tokens = {.v = more, .n = 2, .base = b.s->ntokens + 1}};

    assert_err(TERN_CONFLICT, rig_op(b.s, op));
    op.tokens.base = b.s->ntokens - 1;
    assert_err(TERN_CONFLICT, rig_op(b.s, op));
    assert_int_equal(b.s->ntokens, 14);
    op.tokens.base = b.s->ntokens;
    assert_ok(rig_op(b.s, op));
    assert_int_equal(b.s->ntokens, 16);
}

/* S3: sessions are append-only below T. */
TEST(resume_below_committed_invalid_and_nothing_changes)
{
    struct bench b = running();
    uint32_t tokens[14];
    uint64_t changes = core_changes(b.rig->core);

    assert_err(TERN_INVALID, rig_match(b.s, rig_tokens(1, 14), 7));
    memcpy(tokens, rig_tokens(1, 14), sizeof tokens);
    tokens[7] ^= 1;
    assert_err(TERN_INVALID, rig_match(b.s, tokens, 14)); /* differs inside [0, T) */
    assert_lengths(b.s, 8, 14, 20);
    assert_true(core_changes(b.rig->core) == changes);
    assert_ok(rig_match(b.s, rig_tokens(1, 14), 8)); /* exactly T is fine */
    assert_lengths(b.s, 8, 8, 8);
}

/* S4: the free tail goes back before anything is allocated: speculation (A > C) and the retry one
 * token short. */
TEST(resume_gives_back_the_speculative_tail)
{
    struct bench b = running();

    assert_int_equal(rig_free(b.rig, b.pool), 32 - 5);
    assert_ok(rig_match(b.s, rig_tokens(1, 16), 16));
    assert_lengths(b.s, 8, 14, 14); /* p = min(C, supplied), no extra -1 */
    assert_int_equal(rig_free(b.rig, b.pool), 32 - 4);
    assert_ok(rig_match(b.s, rig_tokens(1, 13), 13)); /* one short */
    assert_lengths(b.s, 8, 13, 13);
    assert_int_equal(rig_free(b.rig, b.pool), 32 - 4); /* S5: the partial page stays */
    assert_int_equal(rig_wrong(b.s, 12), 0);
}

/* Tokens that differ above T make the common part shorter than what was supplied. */
TEST(resume_with_other_tokens_above_committed_keeps_what_agrees)
{
    struct bench b = running();
    uint32_t tokens[20];

    memcpy(tokens, rig_tokens(1, 20), sizeof tokens);
    tokens[10] ^= 1;
    assert_ok(rig_match(b.s, tokens, 20));
    assert_lengths(b.s, 8, 10, 10);
    assert_int_equal(b.s->ntokens, 20);
    assert_ok(rig_run_to(b.s, tokens, 16));
    assert_ok(rig_commit(b.s, 16, 0));
    assert_int_equal(rig_depth(b.s, tokens, 20), 16);
    assert_int_equal(rig_depth(b.s, rig_tokens(1, 20), 20), 8);
}

/* S8: restoring is idempotent. */
TEST(resume_repeated_changes_nothing)
{
    struct bench b = running();
    struct page_ref table[4];

    assert_ok(rig_match(b.s, rig_tokens(1, 20), 20));
    memcpy(table, b.s->table[0], sizeof table);
    for (int i = 0; i < 3; i++) {
        assert_ok(rig_match(b.s, rig_tokens(1, 20), 20));
        assert_lengths(b.s, 8, 14, 14);
        assert_memory_equal(table, b.s->table[0], sizeof table);
        assert_int_equal(rig_free(b.rig, b.pool), 32 - 4);
    }
}

/* The base form: only new tokens travel. */
TEST(match_with_base_appends_to_what_is_there)
{
    struct bench b = running();
    struct req_tokens more = {.v = rig_tokens(1, 32) + 14, .n = 6, .base = 14};
    struct req_tokens bad = {.v = rig_tokens(1, 32), .n = 1, .base = 15};

    assert_int_not_equal(rig_match_full(b.s, &bad, 0), TERN_OK);
    assert_ok(rig_match_full(b.s, &more, 0));
    assert_int_equal(b.s->ntokens, 20);
    assert_lengths(b.s, 8, 14, 14);
    assert_ok(rig_run_to(b.s, rig_tokens(1, 32), 20));
    assert_ok(rig_commit(b.s, 20, 0));
    assert_int_equal(rig_depth(b.s, rig_tokens(1, 20), 20), 20);
}

/* S5 and P2 together: the tail retires at its step, the partial page is still ours. */
TEST(rewind_within_a_page_frees_nothing)
{
    struct bench b = running();

    assert_ok(rig_rewind(b.s, 17, 0));
    assert_lengths(b.s, 8, 14, 17);
    assert_int_equal(rig_free(b.rig, b.pool), 32 - 5);
    assert_ok(rig_rewind(b.s, 13, 9));
    assert_lengths(b.s, 8, 13, 13);
    assert_int_equal(rig_free(b.rig, b.pool), 32 - 5);
    assert_int_equal(rig_retiring(b.rig, b.pool), 1);
    rig_engine_done(b.rig, &b.e, 9);
    assert_int_equal(rig_free(b.rig, b.pool), 32 - 4);
}

/* S6: later use is GONE. */
TEST(close_later_use_gone)
{
    struct bench b = running();

    assert_ok(rig_close(b.s, 0));
    assert_int_equal(rig_free(b.rig, b.pool), 32 - 2);
    assert_err(TERN_GONE, rig_close(b.s, 0));
    assert_err(TERN_GONE, rig_match(b.s, rig_tokens(1, 8), 8));
    assert_err(TERN_GONE, rig_extend(b.s, 4, 0, NULL, 0));
    assert_err(TERN_GONE, rig_commit(b.s, 4, 0));
    assert_err(TERN_GONE, rig_finish(b.s, 0, 0));
    assert_err(TERN_GONE, rig_abort(b.s, 0));
    assert_err(TERN_GONE, rig_rewind(b.s, 0, 0));
    assert_err(TERN_GONE, rig_fetch_cancel(b.s));
}

/* A slot that was used again answers GONE to the handle of its former life. */
TEST(close_handle_of_a_reused_slot_gone)
{
    struct bench b = bench_start(4, 8);
    struct rig_session *next;
    struct session_id old = b.s->id;

    assert_ok(rig_close(b.s, 0));
    next = rig_session(b.rig, &b.e, b.pool, 1);
    assert_false(session_id_equal(old, next->id));
    assert_err(TERN_GONE, rig_match(b.s, rig_tokens(1, 8), 8));
    assert_ok(rig_match(next, rig_tokens(1, 8), 8));
}

/* S6: table, pins and tokens stay for the next turn. */
TEST(finish_keeps_table_pins_and_tokens)
{
    struct bench b = running();

    assert_ok(rig_finish(b.s, 0, 0)); /* the turn's prompt was 14 */
    assert_lengths(b.s, 8, 14, 14);
    assert_int_equal(b.s->ntokens, 14);
    assert_int_equal(rig_evict(b.rig, b.admin, b.pool, 0), 0);
    assert_int_equal(rig_wrong(b.s, 12), 0);
    assert_int_equal(rig_free(b.rig, b.pool), 32 - 4);
}

/* S7: the list is the last good one, and the next Match may build on it with base. */
TEST(abort_keeps_the_last_good_list_for_the_next_match)
{
    struct bench b = running();
    struct req_tokens more = {.base = 14};
    uint32_t tail[4] = {7, 7, 7, 7};

    assert_ok(rig_finish(b.s, 0, 0));
    assert_ok(rig_match(b.s, rig_tokens(1, 24), 24));
    assert_ok(rig_run_to(b.s, rig_tokens(1, 24), 24));
    assert_ok(rig_abort(b.s, 0));
    assert_lengths(b.s, 0, 0, 0);
    assert_int_equal(b.s->ntokens, 14);
    assert_int_equal(rig_free(b.rig, b.pool), 32 - 2);
    more.v = tail;
    more.n = 4;
    assert_ok(rig_match_full(b.s, &more, 0));
    assert_int_equal(b.s->matched, 8);
    assert_lengths(b.s, 8, 8, 8);
    assert_int_equal(b.s->ntokens, 18);
    assert_int_equal(rig_wrong(b.s, 8), 0);
}

/* What a turn committed before its abort is in the tree, and the tree keeps it (S7, P4). */
TEST(abort_after_a_commit_the_tree_keeps_it)
{
    struct bench b = bench_start(4, 32);

    assert_ok(rig_match(b.s, rig_tokens(1, 16), 16));
    assert_ok(rig_run_to(b.s, rig_tokens(1, 16), 16));
    assert_ok(rig_commit(b.s, 12, 0));
    assert_ok(rig_abort(b.s, 3));
    assert_lengths(b.s, 0, 0, 0);
    assert_int_equal(rig_retiring(b.rig, b.pool), 1);
    assert_int_equal(rig_depth(b.s, rig_tokens(1, 16), 16), 12);
    assert_int_equal(rig_evict(b.rig, b.admin, b.pool, 0), 0); /* the pin ends with step 3 */
    rig_engine_done(b.rig, &b.e, 3);
    assert_int_equal(rig_evict(b.rig, b.admin, b.pool, 0), 3);
    assert_int_equal(rig_free(b.rig, b.pool), 32);
}

TEST(abort_repeated_is_harmless)
{
    struct bench b = running();

    assert_ok(rig_abort(b.s, 0));
    rig_abort(b.s, 0);
    assert_lengths(b.s, 0, 0, 0);
    assert_int_equal(rig_free(b.rig, b.pool), 32 - 2);
    assert_ok(rig_match(b.s, rig_tokens(1, 8), 8));
    assert_lengths(b.s, 8, 8, 8);
}

/* S9: borrowed pages count once, however many sessions use them. */
TEST(accounting_shared_pages_count_once)
{
    struct bench b = running();
    struct rig_session *more[3];
    struct group_view v;

    for (int i = 0; i < 3; i++) {
        more[i] = rig_session(b.rig, &b.e, b.pool, 1);
        assert_ok(rig_match(more[i], rig_tokens(1, 8), 8));
        assert_ok(rig_extend(more[i], 12, 0, NULL, 0));
    }
    v = rig_group_view(b.rig, b.pool, 0);
    assert_int_equal(v.snapshot, 2);
    assert_int_equal(v.session, 3 + 3);
    assert_int_equal(v.free, 32 - 8);
}

/* N1: prefixes are shared only within one (tenant, namespace). */
TEST(namespace_other_namespace_sees_nothing)
{
    struct bench b = bench_start(4, 32);
    struct rig_session *other = rig_session(b.rig, &b.e, b.pool, 2);

    rig_put(b.rig, &b.e, b.pool, 1, 16);
    assert_int_equal(rig_depth(b.s, rig_tokens(1, 16), 16), 16);
    assert_int_equal(rig_depth(other, rig_tokens(1, 16), 16), 0);
    assert_ok(rig_match(other, rig_tokens(1, 16), 16));
    assert_int_equal(other->matched, 0);
    assert_ok(rig_run_to(other, rig_tokens(1, 16), 16));
    assert_ok(rig_commit(other, 16, 0));
    assert_int_equal(rig_group_view(b.rig, b.pool, 0).snapshot,
                     8); /* its own pages, not adopted ones */
    assert_int_equal(rig_wrong(other, 16), 0);
}

/* The two halves of a namespace id both count. */
TEST(namespace_compares_all_bits)
{
    struct bench b = bench_start(4, 32);

    rig_put(b.rig, &b.e, b.pool, 1, 16);
    b.s->ns.hi ^= 1;
    assert_int_equal(rig_depth(b.s, rig_tokens(1, 16), 16), 0);
    b.s->ns.hi ^= 1;
    b.s->ns.lo ^= (uint64_t)1 << 63;
    assert_int_equal(rig_depth(b.s, rig_tokens(1, 16), 16), 0);
}

TEST(namespace_of_another_tenant_sees_nothing)
{
    struct bench b = bench_start(4, 32);
    struct rig_engine foreign = rig_engine(b.rig, 1, "e", 1);
    struct pool_id pool = rig_pool_pages(b.rig, &foreign, 4, 32);
    struct rig_session *s = rig_session(b.rig, &foreign, pool, 1);
    uint32_t depth;

    rig_put(b.rig, &b.e, b.pool, 1, 16);
    assert_int_equal(rig_depth(s, rig_tokens(1, 16), 16), 0);
    s->pool = b.pool; /* asks about a pool that is not its own */
    assert_int_not_equal(rig_peek(s, rig_tokens(1, 16), 16, &depth), TERN_OK);
}

/* N2: extra keys are part of the prefix, compared like tokens, from their position on. */
TEST(extra_keys_split_the_tree_at_their_position)
{
    struct bench b = bench_start(4, 32);
    struct extra_key keys[2] = {{.position = 5, .lo = 1}, {.position = 9, .lo = 2}};
    struct req_tokens both = {.v = rig_tokens(1, 16), .n = 16, .keys = keys, .nkeys = 2};
    struct req_tokens one = both, moved;
    struct extra_key at6 = {.position = 6, .lo = 1};
    uint32_t depth;

    assert_ok(rig_match_full(b.s, &both, 0));
    assert_ok(rig_run_to(b.s, rig_tokens(1, 16), 16));
    assert_ok(rig_commit(b.s, 16, 0));
    assert_ok(rig_peek_keys(b.s, &both, &depth));
    assert_int_equal(depth, 16);
    one.nkeys = 1;
    assert_ok(rig_peek_keys(b.s, &one, &depth));
    assert_int_equal(depth, 8);
    moved = one;
    moved.keys = &at6;
    assert_ok(rig_peek_keys(b.s, &moved, &depth));
    assert_int_equal(depth, 4);
}

TEST(extra_keys_out_of_order_invalid)
{
    struct bench b = bench_start(4, 32);
    struct extra_key twice[2] = {{.position = 5, .lo = 1}, {.position = 5, .lo = 2}};
    struct extra_key down[2] = {{.position = 6, .lo = 1}, {.position = 5, .lo = 2}};
    struct extra_key beyond = {.position = 16, .lo = 1};
    struct req_tokens t = {.v = rig_tokens(1, 16), .n = 16, .keys = twice, .nkeys = 2};
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

/* A resume compares keys too: the common prefix ends where they differ. */
TEST(extra_keys_differ_on_resume_shortens_the_prefix)
{
    struct bench b = bench_start(4, 32);
    struct extra_key cat = {.position = 10, .lo = 1}, dog = {.position = 10, .lo = 2};
    struct req_tokens t = {.v = rig_tokens(1, 16), .n = 16, .keys = &cat, .nkeys = 1};

    assert_ok(rig_match_full(b.s, &t, 0));
    assert_ok(rig_run_to(b.s, rig_tokens(1, 16), 16));
    assert_ok(rig_match_full(b.s, &t, 0));
    assert_lengths(b.s, 0, 16, 16);
    t.keys = &dog;
    assert_ok(rig_match_full(b.s, &t, 0));
    assert_lengths(b.s, 0, 10, 10);
}

/* S8: the answer was lost, and the scheduler says it once more. */
TEST(finish_and_rewind_repeated_change_nothing)
{
    struct bench b = running();
    uint32_t free;

    assert_ok(rig_run_to(b.s, rig_tokens(1, 32), 20));
    for (uint32_t i = 0; i < 3; i++) {
        assert_ok(rig_rewind(b.s, 17, 0));
        assert_lengths(b.s, 8, 17, 17);
        assert_int_equal(b.s->ntokens, 17);
    }
    assert_ok(rig_finish(b.s, 2, 0)); /* 14 and 2 */
    free = rig_free(b.rig, b.pool);
    for (uint32_t i = 0; i < 3; i++) {
        assert_lengths(b.s, 8, 16, 16);
        assert_int_equal(b.s->ntokens, 16);
        assert_int_equal(rig_free(b.rig, b.pool), free);
        assert_ok(rig_finish(b.s, 2, 0));
    }
    assert_ok(rig_match(b.s, rig_tokens(1, 24), 24));
    assert_lengths(b.s, 8, 16, 16);
}
