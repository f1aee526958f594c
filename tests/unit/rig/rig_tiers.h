/* Set-up and end of tests of STATE on two tiers: L = 64, pages of 16 tokens. Header only. */
#ifndef TEST_RIG_TIERS_H
#define TEST_RIG_TIERS_H

#include "unit/rig/rig_host.h"

static inline struct stage stage_64(uint32_t window, uint32_t host_kib)
{
    return host_stage(SUPERSEDE_LAZY, 64, rig_window(16, window, 64), host_kib);
}

/* Commits chunk by chunk, so that each depth is a resume point. */
static inline void put_all(struct stage *st, uint32_t seed, uint32_t depth)
{
    for (uint32_t d = 64; d <= depth; d += 64)
        stage_put(st, seed, d);
}

static inline void stage_ends(struct stage *st)
{
    uint32_t admin = rig_connect_admin(st->rig);

    rig_runs_free(st->rig);
    rig_engine_done(st->rig, &st->e, 1000);
    nothing_stays(st->rig, admin, st->pool);
}

static inline void stage_closes(struct stage *st, struct rig_session *s)
{
    assert_ok(rig_close(s, 0));
    stage_ends(st);
}

static inline struct node_view seen(struct stage *st, uint32_t seed, uint32_t depth)
{
    return node_seen(st->rig, st->pool, rig_tokens(seed, depth), depth);
}

#endif
