/* A pool with the most groups that there may be does everything that a pool of one group does. A
 * loop that runs one group too far leaves the records of the pool or of a node; builds that check
 * bounds detect it. */
#include "unit/rig/rig_pair.h"
#include "unit/rig/rig_tiers.h"

#define TOKENS 320 /* 5 chunks of 64 */

static void all_groups(struct group_layout *ret)
{
    for (uint32_t g = 0; g < GROUPS_MAX; g++)
        ret[g] = rig_group(16, 64);
    ret[0] = rig_group(64, 256);
    ret[5] = rig_recurrent(64, 64);
    ret[6] = rig_window(16, 32, 64);
    ret[7] = rig_window(16, 80, 64);
    ret[9] = rig_window(16, 144, 64);
    ret[GROUPS_MAX - 2] = rig_recurrent(64, 64);
    ret[GROUPS_MAX - 1] = rig_window(32, 64, 64);
}

static struct pool_id opens_all(struct rig *rig, const struct rig_engine *e)
{
    struct group_layout groups[GROUPS_MAX];
    struct pool_id pool;

    all_groups(groups);
    assert_ok(rig_pool_open(rig, e->conn[0], groups, GROUPS_MAX, 256u << 10, &pool));
    return pool;
}

static struct stage stage_of_all_groups(uint64_t host_bytes)
{
    struct rig_options options = OPTIONS_WITH(limits.groups = GROUPS_MAX);
    struct stage st = {.rig = rig_create(&options)};

    st.rig->supersede = SUPERSEDE_LAZY;
    st.rig->host_bytes = host_bytes;
    st.e = rig_engine(st.rig, 0, "e", 1);
    st.pool = opens_all(st.rig, &st.e);
    return st;
}

TEST(pool_of_all_groups_commits_slides_and_goes_back)
{
    struct stage st = stage_of_all_groups(0);
    struct rig_session *s = stage_session(&st);
    uint32_t all;

    assert_int_equal(rig_pool_view(st.rig, st.pool).ngroups, GROUPS_MAX);
    commits_up_to(s, seq1, 1024, 128, 0);
    assert_ok(rig_run_to(s, seq1, 300));
    assert_ok(rig_rewind(s, 128, 0));
    assert_ok(rig_run_to(s, seq1, TOKENS));
    commit_to(s, seq1, TOKENS, 3);
    run_and_slide(s, seq1, 450, 450, 3);
    assert_int_equal(rig_wrong(s, 450), 0);
    assert_ok(rig_finish(s, 450, 3));
    rig_engine_done(st.rig, &st.e, 3);
    assert_int_equal(match_depth(&st, seq1, TOKENS), TOKENS);
    assert_ok(rig_snapshot_release(s));
    assert_ok(rig_match(s, seq1, 1024));
    all = rig_group_view(st.rig, st.pool, 1).total * 16;
    assert_err(TERN_QUOTA, rig_extend(s, all + 16, 0, NULL, 0));
    assert_ok(rig_close(s, 0));
    demote_pool(st.rig, st.pool);
    stage_ends(&st);
}

TEST(pool_of_all_groups_goes_to_the_host_and_back)
{
    struct stage st = stage_of_all_groups(64u << 10);
    struct rig_session *s = stage_session(&st), *d;

    commits_up_to(s, seq1, 1024, 192, 0);
    assert_ok(rig_run_to(s, seq1, 256));
    assert_ok(rig_retract(s, RETRACT_HOST, 0));
    demote_pool(st.rig, st.pool);
    assert_ok(rig_recover_now(s));
    assert_int_equal(rig_wrong(s, s->len.committed), 0);
    assert_ok(rig_retract(s, RETRACT_DROP, 0));
    assert_ok(rig_recover_now(s));
    assert_ok(rig_run_to(s, seq1, TOKENS));
    commit_to(s, seq1, TOKENS, 0);
    assert_ok(rig_close(s, 0));
    demote_pool(st.rig, st.pool);
    assert_false(seen(&st, 1, TOKENS).on_device);
    d = stage_session(&st);
    assert_ok(rig_match(d, seq1, TOKENS));
    assert_leaves_whole(fetch_back(d), d, TOKENS);
    stage_closes(&st, d);
}

TEST(pool_of_all_groups_is_fetched)
{
    struct rig_options options = OPTIONS_WITH(limits.groups = GROUPS_MAX);
    struct pair p = {.dest = rig_create(&options)};

    options.incarnation = 0x2002;
    p.source = rig_create(&options);
    p.se = rig_engine(p.source, 0, "prefill", 1);
    p.de = rig_engine(p.dest, 0, "decode", 1);
    p.sp = opens_all(p.source, &p.se);
    p.dp = opens_all(p.dest, &p.de);
    rig_link_up(p.dest, 0, p.source, options.limits.peers);
    pair_offer(&p, TOKENS);
    assert_leaves_whole(fetch_all(p.d), p.d, TOKENS);
    assert_ok(rig_close(p.d, 0));
    evict_all(p.dest, rig_connect_admin(p.dest), p.dp);
    assert_all_free(p.dest, p.dp);
}
