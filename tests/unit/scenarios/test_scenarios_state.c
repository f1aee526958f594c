/* Scenarios of STATE groups: resume points, the pages that a commit attaches, and recurrent states.
 * A3, A4, A5, A6, A8, A26, A27, each with its name and numbers. */
#include "unit/rig/rig_state.h"

/* L=256; sessions of their own commit the depths 256, 512, 768. */
static struct stage three_depths(uint32_t window)
{
    struct stage st = stage_with(SUPERSEDE_LAZY, 256, rig_window(8, window, 64));

    for (uint32_t depth = 256; depth <= 768; depth += 256)
        stage_put(&st, 1, depth);
    assert_int_equal(match_depth(&st, seq1, 768), 768);
    return st;
}

TEST(a3_state_removed_at_768_matches_512)
{
    struct stage st = three_depths(128);

    lose_state(&st, seq1, 768);
    assert_int_equal(match_depth(&st, seq1, 768), 512);
}

TEST(a4_state_removed_at_512_matches_768)
{
    struct stage st = three_depths(128);

    lose_state(&st, seq1, 512);
    assert_int_equal(match_depth(&st, seq1, 768), 768);
    assert_int_equal(match_depth(&st, seq1, 512), 256);
}

TEST(a5_whole_snapshot_removed_at_512_matches_256)
{
    struct stage st = three_depths(128);
    uint32_t admin = rig_connect_admin(st.rig);

    assert_int_equal(rig_evict(st.rig, admin, st.pool, 2), 2); /* 768 goes with it */
    assert_int_equal(match_depth(&st, seq1, 768), 256);
    assert_int_equal(rig_evict(st.rig, admin, st.pool, 0), 1);
    for (uint32_t g = 0; g < 2; g++)
        assert_int_equal(rig_group_view(st.rig, st.pool, g).free,
                         rig_group_view(st.rig, st.pool, g).total);
}

TEST(a6_window_512_state_removed_at_512_matches_256)
{
    struct stage st = three_depths(512);

    lose_state(&st, seq1, 512);
    assert_int_equal(match_depth(&st, seq1, 768), 256);
}

TEST(a8_a_hit_of_256_then_commit_512)
{
    struct stage st = stage_with(SUPERSEDE_LAZY, 256, rig_window(8, 512, 64));
    struct rig_session *s, *reader;
    uint32_t pages = 0;

    stage_put(&st, 1, 256);
    s = stage_session(&st);
    matches(s, seq1, 512, 256);
    commit_to(s, seq1, 512, 0);
    assert_lengths(s, 512, 512, 512);
    reader = stage_session(&st);
    matches(reader, seq1, 512, 512);
    for (uint32_t p = 0; p < RIG_TABLE_MAX; p++)
        pages += reader->table[1][p].index != 0;
    assert_int_equal(pages, 512 / 8);
    assert_int_equal(rig_wrong(reader, 512), 0);
}

TEST(a26_prefill_of_20_chunks_then_resume_one_token_short)
{
    struct stage st = stage_with(SUPERSEDE_LAZY, 4, rig_window(4, 8, 64));
    struct rig_session *s = stage_session(&st);

    computes_tokens(s, seq1, 81);
    assert_leaves(rig_commit(s, 80, 0), s, 80, 81, 81);
    for (uint32_t depth = 4; depth <= 80; depth += 4)
        assert_true(has_state(&st, seq1, depth));
    assert_leaves_whole(rig_match(s, seq1, 80), s, 80);
    assert_ok(rig_run_to(s, seq1, 80));
    assert_ok(rig_extend(s, 88, 0, seq1 + 80, 8));
    rig_write(s, 80, 88);
    assert_ok(rig_extend(s, 0, 88, NULL, 0));
    assert_ok(rig_commit(s, 88, 0));
    assert_int_equal(rig_wrong(s, 88), 0);
    assert_int_equal(match_depth(&st, seq1, 88), 88);
}

/* T21: the answer that named what to copy into the fresh page may have been lost. */
TEST(t21_a_recover_says_again_what_a_fresh_state_page_begins_with)
{
    struct stage st = stage_with(SUPERSEDE_LAZY, 256, rig_recurrent(256, 128));
    struct rig_session *s = stage_session(&st);

    for (uint32_t written = 512; written <= 513; written++) {
        struct request recover = {.op = OP_RECOVER};
        const struct reply *r;
        uint32_t runs = 0;

        if (written == 512)
            commits_up_to(s, seq1, 512, 512, 0);
        else
            assert_ok(rig_extend(s, 513, 513, seq1 + 512, 1));
        recover.recover.session = s->id;
        r = rig_request(st.rig, s->conn, &recover);
        assert_ok(r->err);
        for (uint32_t i = 0; i < r->nruns; i++)
            if (r->runs[i].group == 1) {
                assert_int_equal(r->runs[i].refs->index, s->table[1][0].index);
                assert_int_equal(r->runs[i].from.index != 0, written == 512);
                runs++;
            }
        assert_int_equal(runs, 1);
    }
}

TEST(a27_recurrent_state_of_512_while_the_runner_is_at_600)
{
    struct stage st = stage_with(SUPERSEDE_LAZY, 256, rig_recurrent(256, 128));
    struct rig_session *s = stage_session(&st), *other = stage_session(&st);
    uint8_t at_600[128];
    uint64_t bytes;

    commits_up_to(s, seq1, 700, 512, 0);
    assert_int_equal(rig_wrong(s, 512), 0); /* its fresh page has a copy */
    runs_right(s, seq1, 600);
    memcpy(at_600, rig_page(st.rig, st.pool.slot, 1, s->table[1][0].index, &bytes), sizeof at_600);

    matches(other, seq1, 600, 512);
    assert_ok(rig_extend(other, 513, 0, NULL, 0));
    assert_int_not_equal(other->table[1][0].index, s->table[1][0].index);
    assert_int_equal(rig_wrong(other, 512), 0); /* byte for byte the state of 512 */
    runs_right(other, seq1, 513);

    assert_memory_equal(at_600, rig_page(st.rig, st.pool.slot, 1, s->table[1][0].index, &bytes),
                        sizeof at_600);
    assert_int_equal(rig_wrong(s, 600), 0);
    assert_int_equal(match_depth(&st, seq1, 600), 512);
}
