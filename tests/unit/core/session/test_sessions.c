/* Sessions: what a Match finds on a fresh session and keeps on a running one (S2 to S8), whose
 * handles work, and which prefixes other namespaces and tenants find (N1). */

#include "unit/rig/rig_pair.h"

/* A draining daemon opens no new sessions. Open sessions continue and end. */
TEST(errors_draining_refuses_new_sessions_only)
{
    struct bench b = bench_start(4, 16);
    struct request drain = {.op = OP_DRAIN};
    struct rig_session next;

    drain.drain.on = true;
    assert_int_equal(rig_request(b.rig, b.admin, &drain)->drain.sessions, 1);
    assert_true(rig_view(b.rig).draining);
    assert_refused(b.rig, TERN_BUSY, rig_session_open(b.rig, b.e.conn[0], b.pool, 1, &next));
    commits(b.s, 1, 8);
    assert_ok(rig_close(b.s, 0));
    drain.drain.on = false;
    assert_int_equal(rig_request(b.rig, b.admin, &drain)->drain.sessions, 0);
    assert_ok(rig_session_open(b.rig, b.e.conn[0], b.pool, 1, &next));
}

TEST(errors_tokens_out_of_range_invalid)
{
    struct bench b = bench_start(4, 16);
    struct req_tokens t = {.v = seq1, .n = SESSION_TOKENS_MAX + 1};
    uint64_t before = core_changes(b.rig->core);
    uint32_t depth;

    assert_refused(b.rig, TERN_INVALID, rig_match_full(b.s, &t, 0));
    t.n = 8;
    t.base = UINT32_MAX;
    assert_refused(b.rig, TERN_INVALID, rig_match_full(b.s, &t, 0));
    t.base = 1;
    assert_refused(b.rig, TERN_CONFLICT, rig_match_full(b.s, &t, 0));
    assert_refused(b.rig, TERN_INVALID, rig_peek_keys(b.s, &t, &depth));
    assert_true(core_changes(b.rig->core) == before);
}

TEST(limits_sessions_of_a_tenant_quota)
{
    struct bench b = BENCH_LIMITED(tenant[0].sessions_max = 4, 4, 32);
    struct rig_session *held[3];

    for (uint32_t i = 0; i < 3; i++)
        held[i] = rig_session(b.rig, &b.e, b.pool, 1);
    assert_ok(
        rig_request(b.rig, b.e.conn[0],
                    &(struct request){.op = OP_TICKET_OPEN, .ticket_open.session = held[2]->id})
            ->err);
    assert_err(TERN_QUOTA, bench_opens(&b, 1));
    assert_non_null(strstr(b.rig->last->text, "drop tickets"));
    assert_int_equal(b.rig->last->number[0], 4);
    assert_int_equal(b.rig->last->number[1], 1); /* the tickets among them */
    assert_int_equal(rig_view(b.rig).sessions, 4);
    assert_ok(rig_close(held[0], 0));
    assert_ok(bench_opens(&b, 1));
}

/* Fault 37: a tenant over its quota does not affect others. */
TEST(limits_quota_of_one_tenant_leaves_the_other_alone)
{
    struct bench b = BENCH_LIMITED(tenant[0].sessions_max = 1, 4, 32);
    struct rig_engine other = rig_engine(b.rig, 1, "other", 1);
    struct pool_id pool = rig_pool_pages(b.rig, &other, 4, 32);

    assert_err(TERN_QUOTA, bench_opens(&b, 1));
    session_with(b.rig, &other, pool, 1, 8);
}

TEST(limits_session_slots_full_busy)
{
    struct bench b = BENCH_LIMITED(limits.sessions = 1, 4, 32);

    assert_err(TERN_BUSY, bench_opens(&b, 1));
    assert_ok(rig_close(b.s, 0));
    assert_ok(bench_opens(&b, 1));
}

/* A session belongs to the engine, not to a connection: a connection of another rank may use it,
 * one of another engine may not. */
TEST(session_of_another_engine_is_not_ours)
{
    struct rig *rig = rig_create(NULL);
    struct rig_engine e = rig_engine(rig, 0, "e", 1), other = rig_engine(rig, 0, "o", 1),
                      foreign = rig_engine(rig, 1, "f", 1);
    struct pool_id pool = rig_pool_pages(rig, &e, 4, 8);
    struct rig_session *s = rig_session(rig, &e, pool, 1), mine;

    s->conn = other.conn[0];
    assert_int_not_equal(rig_match(s, seq1, 8), TERN_OK);
    s->conn = foreign.conn[0];
    assert_int_not_equal(rig_match(s, seq1, 8), TERN_OK);
    assert_int_not_equal(rig_session_open(rig, foreign.conn[0], pool, 1, &mine), TERN_OK);
    s->conn = e.conn[0];
    assert_ok(rig_match(s, seq1, 8));
}

TEST(match_partial_chunk_matches_whole_chunks_only)
{
    struct bench b = bench_start(4, 16);
    uint32_t tokens[16];

    rig_put(b.rig, &b.e, b.pool, 1, 16);
    memcpy(tokens, seq1, sizeof tokens);
    assert_int_equal(rig_depth(b.s, tokens, 15), 12);
    assert_int_equal(rig_depth(b.s, tokens, 3), 0);
    for (uint32_t i = 0; i < 16; i++) { /* whichever token of a chunk differs */
        tokens[i] ^= 1;
        assert_int_equal(rig_depth(b.s, tokens, 16), i / 4 * 4);
        tokens[i] ^= 1;
    }
}

/* T2: a repeated Match changes nothing; a scheduler may retry. */
TEST(match_repeated_changes_nothing)
{
    struct bench b = bench_start(4, 16);
    struct page_ref first[4];

    rig_put(b.rig, &b.e, b.pool, 1, 16);
    assert_ok(rig_match(b.s, seq1, 20));
    memcpy(first, b.s->table[0], sizeof first);
    assert_leaves(rig_match(b.s, seq1, 20), b.s, 16, 16, 16);
    assert_memory_equal(first, b.s->table[0], sizeof first);
    assert_int_equal(rig_group_view(b.rig, b.pool, 0).snapshot, 4);
    assert_ok(rig_close(b.s, 0));
    assert_int_equal(rig_evict(b.rig, b.admin, b.pool, 0), 4); /* there was one pin */
}

/* T3: import is legal only on an empty table; with C > 0 a Match is a resume and never looks into
 * the tree. */
TEST(match_after_allocation_never_imports)
{
    struct bench b = bench_start(4, 32);
    struct rig_session *late = session_with(b.rig, &b.e, b.pool, 1, 32);

    assert_ok(rig_run_to(late, seq1, 8)); /* C = 8 before anyone commits */
    rig_put(b.rig, &b.e, b.pool, 1, 32);
    matches(late, seq1, 32, 0);
    assert_lengths(late, 0, 8, 8);
}

enum { FORKS = 36 };

/* Two chunks: the first is this fork's own, the second one of three that all forks share. */
static const uint32_t *fork_tokens(uint32_t fork, uint32_t which)
{
    static uint32_t v[8];

    for (uint32_t i = 0; i < 8; i++)
        v[i] = i < 4 ? 1000 + fork : which;
    return v;
}

/* T2: the same chunk under another parent is another prefix. There are so many that some share a
 * bucket of the index. */
TEST(match_same_chunk_under_another_parent_is_another_prefix)
{
    struct bench b = BENCH_LIMITED(limits.nodes = 3 * FORKS + 1, 4, 4 * FORKS);

    for (uint32_t fork = 0; fork < FORKS; fork++)
        for (uint32_t which = 0; which < 2; which++) {
            struct rig_session *s = rig_session(b.rig, &b.e, b.pool, 1);
            const uint32_t *v = fork_tokens(fork, fork % 2 + which); /* 0 and 1, or 1 and 2 */

            commits_tokens(s, v, 8);
            assert_ok(rig_close(s, 0));
        }
    assert_int_equal(rig_view(b.rig).evicted_nodes, 0);
    for (uint32_t fork = 0; fork < FORKS; fork++)
        for (uint32_t which = 0; which < 3; which++)
            assert_int_equal(rig_depth(b.s, fork_tokens(fork, which), 8),
                             which == fork % 2 || which == fork % 2 + 1 ? 8 : 4);
}

/* S3: sessions are append-only below T. */
TEST(resume_below_committed_invalid_and_nothing_changes)
{
    struct bench b = bench_running();
    uint32_t tokens[14];
    uint64_t changes = core_changes(b.rig->core);

    assert_err(TERN_INVALID, rig_match(b.s, seq1, 7));
    assert_int_equal(b.rig->last->number[0], 8); /* committed tokens, tokens that agree */
    assert_int_equal(b.rig->last->number[1], 7);
    for (uint32_t at = 0; at < 8; at++) { /* differs inside [0, T) */
        memcpy(tokens, seq1, sizeof tokens);
        tokens[7] ^= 1; /* the answer names the first of two that differ */
        tokens[at] ^= 2;
        assert_err(TERN_INVALID, rig_match(b.s, tokens, 14));
        assert_int_equal(b.rig->last->number[1], at);
    }
    assert_lengths(b.s, 8, 14, 20);
    assert_true(core_changes(b.rig->core) == changes);
    assert_leaves(rig_match(b.s, seq1, 8), b.s, 8, 8, 8); /* exactly T is fine */
}

/* S4: a resume returns the free tail before it allocates: after speculation (A > C), and for a
 * retry that is one token short. */
TEST(resume_gives_back_the_speculative_tail)
{
    struct bench b = bench_running();

    assert_int_equal(rig_free(b.rig, b.pool), 32 - 5);
    assert_leaves(rig_match(b.s, seq1, 16), b.s, 8, 14, 14); /* p = min(C, supplied), no extra -1 */
    assert_int_equal(rig_free(b.rig, b.pool), 32 - 4);
    assert_leaves(rig_match(b.s, seq1, 13), b.s, 8, 13, 13); /* one short */
    assert_int_equal(rig_free(b.rig, b.pool), 32 - 4);       /* S5: the partial page stays */
    assert_int_equal(rig_wrong(b.s, 12), 0);
}

/* Tokens that differ above T make the common part shorter than what was supplied. */
TEST(resume_with_other_tokens_above_committed_keeps_what_agrees)
{
    struct bench b = bench_running();
    uint32_t tokens[20];

    memcpy(tokens, seq1, sizeof tokens);
    tokens[10] ^= 1;
    assert_leaves(rig_match(b.s, tokens, 20), b.s, 8, 10, 10);
    assert_int_equal(b.s->ntokens, 20);
    commit_to(b.s, tokens, 16, 0);
    assert_int_equal(rig_depth(b.s, tokens, 20), 16);
    assert_int_equal(rig_depth(b.s, seq1, 20), 8);
}

/* S8: a repeated restore changes nothing. */
TEST(resume_repeated_changes_nothing)
{
    struct bench b = bench_running();
    struct page_ref table[4];

    assert_ok(rig_match(b.s, seq1, 20));
    memcpy(table, b.s->table[0], sizeof table);
    for (int i = 0; i < 3; i++) {
        assert_leaves(rig_match(b.s, seq1, 20), b.s, 8, 14, 14);
        assert_memory_equal(table, b.s->table[0], sizeof table);
        assert_int_equal(rig_free(b.rig, b.pool), 32 - 4);
    }
}

/* The base form: only new tokens travel. */
TEST(match_with_base_appends_to_what_is_there)
{
    struct bench b = bench_running();
    struct req_tokens more = {.v = seq1 + 14, .n = 6, .base = 14};
    struct req_tokens bad = {.v = seq1, .n = 1, .base = 15};

    assert_int_not_equal(rig_match_full(b.s, &bad, 0), TERN_OK);
    assert_ok(rig_match_full(b.s, &more, 0));
    assert_int_equal(b.s->ntokens, 20);
    assert_lengths(b.s, 8, 14, 14);
    commit_to(b.s, seq1, 20, 0);
    assert_int_equal(rig_depth(b.s, seq1, 20), 20);
}

/* S6: later use is GONE. */
TEST(close_later_use_gone)
{
    struct bench b = bench_running();

    assert_ok(rig_close(b.s, 0));
    assert_int_equal(rig_free(b.rig, b.pool), 32 - 2);
    assert_err(TERN_GONE, rig_close(b.s, 0));
    assert_err(TERN_GONE, rig_match(b.s, seq1, 8));
    assert_err(TERN_GONE, rig_extend(b.s, 4, 0, NULL, 0));
    assert_err(TERN_GONE, rig_commit(b.s, 4, 0));
    assert_err(TERN_GONE, rig_finish(b.s, 0, 0));
    assert_err(TERN_GONE, rig_abort(b.s, 0));
    assert_err(TERN_GONE, rig_rewind(b.s, 0, 0));
    assert_err(TERN_GONE, rig_fetch_cancel(b.s));
}

/* A handle of a slot's former life is GONE after the slot was used again. */
TEST(close_handle_of_a_reused_slot_gone)
{
    struct bench b = bench_start(4, 8);
    struct rig_session *next;
    struct session_id old = b.s->id;

    assert_ok(rig_close(b.s, 0));
    next = rig_session(b.rig, &b.e, b.pool, 1);
    assert_false(session_id_equal(old, next->id));
    assert_err(TERN_GONE, rig_match(b.s, seq1, 8));
    assert_ok(rig_match(next, seq1, 8));
}

/* S7: the list is the last good one, and the next Match may build on it with base. */
TEST(abort_keeps_the_last_good_list_for_the_next_match)
{
    struct bench b = bench_running();
    struct req_tokens more = {.base = 14};
    uint32_t tail[4] = {7, 7, 7, 7};

    assert_ok(rig_finish(b.s, 14, 0));
    computes(b.s, 1, 24);
    assert_leaves(rig_abort(b.s, 0), b.s, 0, 0, 0);
    assert_int_equal(b.s->ntokens, 14);
    assert_int_equal(rig_free(b.rig, b.pool), 32 - 2);
    more.v = tail;
    more.n = 4;
    matches_full(b.s, &more, 0, 8);
    assert_lengths(b.s, 8, 8, 8);
    assert_int_equal(b.s->ntokens, 18);
    assert_int_equal(rig_wrong(b.s, 8), 0);
}

/* N1: prefixes are shared only within one (tenant, namespace). */
TEST(namespace_other_namespace_sees_nothing)
{
    struct bench b = bench_start(4, 32);
    struct rig_session *other = rig_session(b.rig, &b.e, b.pool, 2);

    rig_put(b.rig, &b.e, b.pool, 1, 16);
    assert_int_equal(rig_depth(b.s, seq1, 16), 16);
    assert_int_equal(rig_depth(other, seq1, 16), 0);
    matches(other, seq1, 16, 0);
    commit_to(other, seq1, 16, 0);
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
    assert_int_equal(rig_depth(b.s, seq1, 16), 0);
    b.s->ns.hi ^= 1;
    b.s->ns.lo ^= (uint64_t)1 << 63;
    assert_int_equal(rig_depth(b.s, seq1, 16), 0);
}

TEST(namespace_of_another_tenant_sees_nothing)
{
    struct bench b = bench_start(4, 32);
    struct rig_engine foreign = rig_engine(b.rig, 1, "e", 1);
    struct pool_id pool = rig_pool_pages(b.rig, &foreign, 4, 32);
    struct rig_session *s = rig_session(b.rig, &foreign, pool, 1);
    uint32_t depth;

    rig_put(b.rig, &b.e, b.pool, 1, 16);
    assert_int_equal(rig_depth(s, seq1, 16), 0);
    s->pool = b.pool; /* the Peek names a pool that is not its tenant's */
    assert_int_not_equal(rig_peek(s, seq1, 16, &depth), TERN_OK);
}

/* A resume compares keys too: the common prefix ends where they differ. */
TEST(extra_keys_differ_on_resume_shortens_the_prefix)
{
    struct bench b = bench_start(4, 32);
    struct extra_key cat = {.position = 10, .lo = 1}, dog = {.position = 10, .lo = 2};
    struct req_tokens t = {.v = seq1, .n = 16, .keys = &cat, .nkeys = 1};

    assert_ok(rig_match_full(b.s, &t, 0));
    assert_ok(rig_run_to(b.s, seq1, 16));
    assert_leaves(rig_match_full(b.s, &t, 0), b.s, 0, 16, 16);
    t.keys = &dog;
    assert_leaves(rig_match_full(b.s, &t, 0), b.s, 0, 10, 10);
}

/* A Peek's tokens are checked as a Match's are. */
TEST(session_peek_of_keys_out_of_order_invalid)
{
    struct extra_key down[2] = {{.position = 6}, {.position = 5}};
    struct bench b = bench_start(4, 16);
    struct req_tokens t = {.v = seq1, .n = 8, .keys = down, .nkeys = 2};
    uint32_t depth;

    assert_err(TERN_INVALID, rig_peek_keys(b.s, &t, &depth));
}

/* A Match pins what it finds, so extra keys that it finds must need no records of their own, or the
 * prefix would never match again. */
TEST(match_takes_no_record_for_an_extra_key_that_it_finds)
{
    struct bench b = BENCH_LIMITED(limits.extra_keys = 1, 4, 16);
    struct extra_key key = {.position = 2, .lo = 1};
    struct req_tokens t = {.v = seq1, .n = 8, .keys = &key, .nkeys = 1};
    struct rig_session *next = rig_session(b.rig, &b.e, b.pool, 1);

    matches_full(b.s, &t, 0, 0);
    assert_ok(rig_run_to(b.s, seq1, 8));
    assert_ok(rig_commit(b.s, 8, 0));
    assert_ok(rig_close(b.s, 0));
    matches_full(next, &t, 0, 8);
    assert_whole(next, 8);
}

/* An extra key that the session has from its last Match needs no further record either. */
TEST(resume_takes_no_record_for_an_extra_key_that_it_has)
{
    struct bench b = BENCH_LIMITED(limits.extra_keys = 1, 4, 16);
    struct extra_key keys[2] = {{.position = 2, .lo = 1}, {.position = 9, .lo = 1}};
    struct req_tokens t = {.v = seq1, .n = 8, .keys = keys, .nkeys = 1};

    matches_full(b.s, &t, 0, 0);
    assert_ok(rig_run_to(b.s, seq1, 8));
    t.n = 12;
    assert_leaves(rig_match_full(b.s, &t, 0), b.s, 0, 8, 8);
    t.nkeys = 2;
    assert_refused(b.rig, TERN_BUSY, rig_match_full(b.s, &t, 0));
}
