/* Scenarios S-a to S-e and S-h of streaming sessions, with their names and numbers. */
#include "unit/rig/rig_test.h"

TEST(s_a_finish_at_38_frees_38_to_43)
{
    struct bench b = bench_start(1, 64);
    struct page_ref before[44];

    assert_ok(rig_match(b.s, seq1, 26));
    assert_leaves(rig_extend(b.s, 44, 40, seq1 + 26, 14), b.s, 0, 40, 44);
    memcpy(before, b.s->table[0], sizeof before);
    assert_int_equal(rig_free(b.rig, b.pool), 20);
    assert_err(TERN_INVALID, rig_finish(b.s, 5000, 0));
    assert_err(TERN_INVALID, rig_finish(b.s, 45, 0));
    assert_lengths(b.s, 0, 40, 44);
    assert_leaves(rig_finish(b.s, 38, 0), b.s, 0, 38, 38);
    assert_int_equal(rig_free(b.rig, b.pool), 26);
    assert_int_equal(rig_group_view(b.rig, b.pool, 0).session, 38);
    assert_memory_equal(before, b.s->table[0], 38 * sizeof before[0]);
    assert_ok(
        rig_extend(b.s, 44, 0, NULL, 0)); /* freed pages are handed out with other generations */
    for (uint32_t i = 38; i < 44; i++)
        for (uint32_t k = 0; k < 44; k++)
            assert_false(before[k].index == b.s->table[0][i].index &&
                         before[k].gen == b.s->table[0][i].gen);
}

TEST(s_b_abort_on_the_first_turn_frees_0_to_19)
{
    struct bench b = bench_start(1, 32);

    assert_ok(rig_match(b.s, seq1, 16));
    assert_ok(rig_extend(b.s, 20, 16, NULL, 0));
    assert_int_equal(rig_free(b.rig, b.pool), 12);
    assert_leaves(rig_abort(b.s, 0), b.s, 0, 0, 0);
    assert_int_equal(rig_free(b.rig, b.pool), 32);
    assert_int_equal(b.s->ntokens, 0);   /* there has been no good list */
    assert_ok(rig_match(b.s, seq1, 16)); /* open and empty: it looks into the tree again */
    assert_int_equal(b.s->matched, 0);
    assert_ok(rig_extend(b.s, 20, 0, NULL, 0));
}

TEST(s_c_abort_on_a_later_turn_frees_16_to_64)
{
    struct bench b = bench_start(1, 80);
    struct req_tokens again = {.base = 50};

    assert_ok(rig_match(b.s, seq1, 40));
    run_and_commit(b.s, seq1, 50, 16, 0);
    assert_leaves(rig_finish(b.s, 50, 0), b.s, 16, 50, 50);
    takes_pages(b.s, seq1, 60, 65);
    assert_int_equal(rig_free(b.rig, b.pool), 80 - 65);
    assert_leaves(rig_abort(b.s, 0), b.s, 0, 0, 0);
    assert_int_equal(rig_free(b.rig, b.pool), 80 - 16); /* the tree keeps its own */
    assert_int_equal(rig_group_view(b.rig, b.pool, 0).session, 0);
    assert_int_equal(rig_group_view(b.rig, b.pool, 0).snapshot, 16);
    assert_int_equal(b.s->ntokens, 50); /* S7: the last good list */
    matches_full(b.s, &again, 0, 16);
    assert_lengths(b.s, 16, 16, 16);
    assert_int_equal(b.s->ntokens, 50);
}

TEST(s_d_rejected_before_admission_leaves_the_session_untouched)
{
    struct bench b = bench_start(1, 48);
    struct page_ref before[48];
    struct req_tokens bad_base = {.v = seq1, .n = 1, .base = 49};
    uint64_t changes;

    computes_tokens(b.s, seq1, 48);
    assert_leaves(rig_commit(b.s, 16, 0), b.s, 16, 48, 48);
    memcpy(before, b.s->table[0], sizeof before);
    changes = core_changes(b.rig->core);
    assert_err(TERN_INVALID, rig_match(b.s, seq1, 15)); /* S3: less than T */
    assert_err(TERN_QUOTA, rig_extend(b.s, 49, 0, NULL, 0));
    assert_int_not_equal(rig_match_full(b.s, &bad_base, 0), TERN_OK);
    assert_lengths(b.s, 16, 48, 48);
    assert_int_equal(b.s->ntokens, 48);
    assert_memory_equal(before, b.s->table[0], sizeof before);
    assert_int_equal(rig_group_view(b.rig, b.pool, 0).session, 32);
    assert_int_equal(rig_wrong(b.s, 48), 0);
    assert_true(core_changes(b.rig->core) == changes);
    assert_ok(rig_finish(b.s, 48, 0)); /* the same for an Abort of a turn that was never admitted */
    assert_int_not_equal(rig_match(b.s, seq1, 15), TERN_OK);
    assert_leaves(rig_abort(b.s, 0), b.s, 16, 48, 48);
    assert_int_equal(rig_wrong(b.s, 48), 0);
}

TEST(s_e_three_turns_the_next_match_gives_exactly_what_finish_kept)
{
    struct bench b = bench_start(1, 128);
    uint32_t have = 0;

    for (uint32_t turn = 0; turn < 3; turn++) {
        uint32_t prompt = have + 7, end = prompt + 5; /* 12 tokens a turn */

        assert_ok(rig_match(b.s, seq1, prompt));
        assert_int_equal(b.s->len.written, have);
        assert_int_equal(b.s->len.allocated, have);
        assert_ok(rig_run_to(b.s, seq1, end));
        assert_ok(rig_extend(b.s, end + 4, 0, NULL, 0)); /* rejected speculation */
        assert_leaves(rig_finish(b.s, end, 0), b.s, 0, end, end);
        assert_int_equal(rig_wrong(b.s, end), 0);
        have = end;
    }
    assert_int_equal(have, 36);
    assert_leaves(rig_match(b.s, seq1, 40), b.s, 0, 36, 36);
}

TEST(s_h_resume_at_100_gives_back_112_to_130_only)
{
    struct bench b = bench_start(16, 16);
    struct page_ref before[9];

    computes_tokens(b.s, seq1, 120);
    assert_ok(rig_extend(b.s, 130, 0, NULL, 0));
    assert_int_equal(rig_free(b.rig, b.pool), 16 - 9);
    memcpy(before, b.s->table[0], sizeof before);
    assert_leaves(rig_match(b.s, seq1, 100), b.s, 0, 100, 100);
    assert_int_equal(rig_free(b.rig, b.pool), 16 - 7);
    assert_memory_equal(before, b.s->table[0], 7 * sizeof before[0]);
    assert_int_equal(rig_wrong(b.s, 96), 0);
}

/* The same by Rewind, with pages in flight: they retire and are free after their step. */
TEST(s_h_by_rewind_at_a_step_retires_112_to_130)
{
    struct bench b = bench_start(16, 16);

    computes_tokens(b.s, seq1, 130);
    assert_leaves(rig_rewind(b.s, 100, 5), b.s, 0, 100, 100);
    assert_int_equal(rig_free(b.rig, b.pool), 7);
    assert_int_equal(rig_retiring(b.rig, b.pool), 2);
    rig_engine_done(b.rig, &b.e, 5);
    assert_int_equal(rig_free(b.rig, b.pool), 9);
    assert_int_equal(rig_retiring(b.rig, b.pool), 0);
}
