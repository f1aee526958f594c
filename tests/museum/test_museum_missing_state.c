/* A hybrid model's cache returns the KV of a prefix without the recurrent state behind it. The
 * engine continues from a state that is not the one behind the prefix: every block of KV is right,
 * and the output is fluent (LMCache 4247, sglang 39830). docs/museum.md has the stories. */
#include "museum/museum.h"
#include "unit/rig/rig_tiers.h"

#define PROMPT  1
#define ANOTHER 2

/* A request of the prompt resumes from what is stored, computes the rest and is answered. */
static struct textbook_answer goes_on(struct textbook *t, uint32_t *ret_hit, uint32_t *ret_request)
{
    *ret_request = textbook_admit(t, PROMPT, 4);
    *ret_hit = textbook_resume(t, *ret_request);
    textbook_compute(t, *ret_request, *ret_hit, 4);
    return textbook_answer(t, *ret_request);
}

static void another_runs(struct textbook *t)
{
    uint32_t r = textbook_admit(t, ANOTHER, 4);

    textbook_compute(t, r, 0, 4);
    textbook_end(t, r);
}

#define assert_fluent_and_wrong(a)                                                                 \
    do {                                                                                           \
        assert_int_equal((a).status, 200);                                                         \
        assert_int_equal((a).wrong_blocks, 0);                                                     \
        assert_true((a).wrong_state);                                                              \
    } while (0)

#define assert_right(a)                                                                            \
    do {                                                                                           \
        assert_int_equal((a).status, 200);                                                         \
        assert_int_equal((a).wrong_blocks, 0);                                                     \
        assert_false((a).wrong_state);                                                             \
    } while (0)

/* The engine's own cache has 2 blocks and their state; another program has the KV of all but the
 * last one, without a state. */
static struct textbook_answer mixed_sources(bool fixed, uint32_t *ret_hit)
{
    struct textbook t;
    uint32_t r;

    textbook_init(&t, (struct textbook_fixes){.hit_ends_at_state = fixed}, 2);
    r = textbook_admit(&t, PROMPT, 4);
    textbook_compute(&t, r, 0, 2);
    textbook_store(&t, r, TEXTBOOK_NEAR, (struct textbook_stored){.kv = 2, .state_at = 2});
    textbook_compute(&t, r, 2, 4);
    textbook_store(&t, r, TEXTBOOK_FAR, (struct textbook_stored){.kv = 3});
    textbook_end(&t, r);
    another_runs(&t);
    return goes_on(&t, ret_hit, &r);
}

TEST(textbook_mixes_a_state_with_a_longer_prefix)
{
    uint32_t hit;

    assert_fluent_and_wrong(mixed_sources(false, &hit));
    assert_int_equal(hit, 3);
    assert_right(mixed_sources(true, &hit));
    assert_int_equal(hit, 2);
}

/* The host has the KV of the whole prompt and no state. KV loaded from the host is a device hit for
 * the next request. */
static void back_from_the_host(bool fixed, struct textbook_answer ret[2], uint32_t *ret_hit)
{
    struct textbook t;
    uint32_t r, hit;

    textbook_init(&t, (struct textbook_fixes){.hit_ends_at_state = fixed}, 2);
    r = textbook_admit(&t, PROMPT, 4);
    textbook_compute(&t, r, 0, 4);
    textbook_store(&t, r, TEXTBOOK_FAR, (struct textbook_stored){.kv = 4});
    textbook_end(&t, r);
    another_runs(&t);
    ret[0] = goes_on(&t, ret_hit, &r);
    textbook_store(&t, r, TEXTBOOK_NEAR, (struct textbook_stored){.kv = 4, .state_at = 4});
    textbook_end(&t, r);
    another_runs(&t);
    ret[1] = goes_on(&t, &hit, &r);
    assert_int_equal(hit, 4);
}

TEST(textbook_loads_a_prefix_without_its_state)
{
    struct textbook_answer a[2];
    uint32_t hit;

    back_from_the_host(false, a, &hit);
    assert_int_equal(hit, 4);
    assert_fluent_and_wrong(a[0]);
    assert_fluent_and_wrong(a[1]);
    back_from_the_host(true, a, &hit);
    assert_int_equal(hit, 0);
    assert_right(a[0]);
    assert_right(a[1]);
}

/* The session takes a page of its own for its state, which must hold the state at its written
 * length; then it computes the rest. */
static void runs_on(struct rig_session *s, const uint32_t *tokens, uint32_t to)
{
    uint32_t from = s->len.written;

    assert_ok(rig_extend(s, from + 1, 0, NULL, 0));
    assert_int_equal(rig_wrong(s, from), 0);
    runs_right(s, tokens, to);
}

/* T2, T21: the destination has a resume point at 64. The source has KV up to 256 and no state from
 * `lost` on. The fetch must end at the last state, and computing on from there must be right. */
static void fetches_what_has_a_state(uint32_t lost)
{
    struct pair p = hybrid_pair(1 << 20);
    struct stage source = {.rig = p.source, .e = p.se, .pool = p.sp};

    dest_has(&p, PROMPT, 64);
    for (uint32_t depth = 64; depth <= 256; depth += 64)
        source_has(&p, PROMPT, depth);
    for (uint32_t depth = lost; depth <= 256; depth += 64)
        lose_state(&source, seq1, depth);
    p.d = asking(&p, PROMPT, 300);
    assert_int_equal(p.d->matched, 64);
    assert_ok(fetch_all(p.d));
    assert_whole(p.d, lost - 64);
    runs_on(p.d, seq1, 300);
    assert_ok(rig_close(p.d, 0));
}

TEST(tern_a_fetch_is_as_deep_as_there_is_a_state)
{
    for (uint32_t lost = 128; lost <= 256 + 64; lost += 64)
        fetches_what_has_a_state(lost);
}

static struct stage hybrid_stage(void)
{
    return host_stage(SUPERSEDE_LAZY, HYBRID_ALIGN, rig_recurrent(HYBRID_ALIGN, 128), 64);
}

/* T2, T19: KV up to 256, a state at 256 alone. A prompt that differs after 200 tokens finds KV of
 * 192 and no state to resume from. */
TEST(tern_a_match_is_as_deep_as_there_is_a_state)
{
    struct stage st = hybrid_stage();
    struct rig_session *s = stage_session(&st);
    uint32_t tokens[300];

    stage_put(&st, PROMPT, 256);
    memcpy(tokens, rig_tokens(ANOTHER, 300), sizeof tokens);
    memcpy(tokens, seq1, 200 * sizeof tokens[0]);
    matches(s, tokens, 300, 0);
    assert_int_equal(rig_depth(s, tokens, 300), 0);
    assert_int_equal(st.rig->last->peek.history_depth, 192);
    runs_on(s, tokens, 300);
    assert_int_equal(match_depth(&st, seq1, 300), 256);
    stage_closes(&st, s);
}

/* The prefix lies on the host alone, and its device pages have been used by another prompt. */
static struct stage on_the_host_alone(bool with_state)
{
    struct stage st = hybrid_stage();
    struct rig_session *first = stage_committed(&st, PROMPT, 256);

    if (!with_state)
        assert_ok(rig_snapshot_release(first));
    assert_ok(rig_close(first, 0));
    if (!with_state) { /* no session claims it any more, so it leaves both tiers */
        state_drop(st.rig->core, anywhere(st.rig, st.pool, seq1, 256));
        oracle_audit(st.rig->core);
    }
    demote_pool(st.rig, st.pool);
    stage_put(&st, ANOTHER, 256);
    assert_int_equal(match_depth(&st, seq1, 300), 0);
    assert_int_equal(seen(&st, PROMPT, 256).host_pages, with_state ? 2 : 1);
    return st;
}

/* T2, T16: KV and state come from the host, and the next session finds both. */
TEST(tern_what_comes_from_the_host_has_its_state)
{
    struct stage st = on_the_host_alone(true);

    for (uint32_t i = 0; i < 2; i++) {
        struct rig_session *s = stage_session(&st);

        matches(s, seq1, 300, i == 0 ? 0 : 256);
        if (i == 0)
            assert_leaves_whole(fetch_back(s), s, 256);
        runs_on(s, seq1, 300);
        assert_ok(rig_close(s, 0));
    }
    stage_ends(&st);
}

/* T19: without the state the KV on the host is no hit, and none of it is copied up. */
TEST(tern_kv_on_the_host_without_its_state_is_no_hit)
{
    struct stage st = on_the_host_alone(false);
    struct rig_session *s = stage_session(&st);

    assert_int_equal(host_depth(s, seq1, 300), 0);
    matches(s, seq1, 300, 0);
    assert_leaves(fetch_back(s), s, 0, 0, 0);
    assert_int_equal(st.rig->copies_up, 0);
    runs_on(s, seq1, 300);
    stage_closes(&st, s);
}
