/* Checksum jobs: as many at a time as there are slots, and none forgotten. */
#include "unit/rig/rig_pair.h"

/* Checksum jobs: as many at a time as the limit says, and all of them in the end. */
TEST(limits_seal_jobs_bounded_and_none_forgotten)
{
    struct rig_options options = rig_defaults();
    struct bench b;
    uint32_t jobs = 0;

    options.limits.seal_jobs = 3;
    b = bench_with(&options, 4, 64);
    b.rig->automatic = BY_HAND(RIG_SEAL);
    rig_put(b.rig, &b.e, b.pool, 1, 80);
    while (rig_jobs(b.rig, RIG_SEAL)) {
        assert_true(rig_jobs(b.rig, RIG_SEAL) <= 3);
        rig_complete(b.rig, RIG_SEAL);
        jobs++;
    }
    assert_int_equal(jobs, 20);
    for (uint32_t i = 0; i < options.limits.nodes; i++) {
        struct node_view v;

        if (core_node_view(b.rig->core, i, &v) && v.depth)
            assert_true(v.sealed);
    }
}

/* More checksums than one step can ask for: the rest is asked for at once, not with the next event
 * that happens to come. */
TEST(seals_beyond_the_actions_of_a_step_follow_at_once)
{
    struct bench b = BENCH_LIMITED(limits.seal_jobs = 2 * ACTIONS_MAX, 4, 2 * ACTIONS_MAX);

    b.rig->automatic = BY_HAND(RIG_SEAL);
    commits(b.s, 1, 4 * (ACTIONS_MAX + 8));
    assert_int_equal(rig_jobs(b.rig, RIG_SEAL), ACTIONS_MAX + 8);
    complete_all(b.rig, RIG_SEAL);
}
