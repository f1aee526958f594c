/* Views and changes of STATE groups inside the core: nodes by depth, their pages and claims, and
 * the loss of a segment, which no request of an engine causes. Header only; used by the tests of
 * scenarios and rules about STATE. */
#ifndef TEST_RIG_STATE_H
#define TEST_RIG_STATE_H

#include "core/tree/state.h"
#include "unit/rig/rig_test.h"

struct stage {
    struct rig *rig;
    struct rig_engine e;
    struct pool_id pool;
};

/* One engine and a pool of one HISTORY group and one STATE group. A cap of 0 does not limit its
 * pages. */
static inline struct stage stage_of(enum supersede supersede, uint32_t align,
                                    struct group_layout state_group, uint64_t bytes,
                                    uint32_t host_kib)
{
    struct group_layout groups[2] = {rig_group(align, 512), state_group};
    struct stage st = {.rig = rig_create(NULL)};

    st.rig->supersede = supersede;
    st.rig->host_bytes = host_kib * 1024ull;
    st.e = rig_engine(st.rig, 0, "e", 1);
    if (rig_pool_open(st.rig, st.e.conn[0], groups, 2, bytes, &st.pool) != TERN_OK)
        rig_fail("no pool: %s", st.rig->last->text);
    return st;
}

static inline struct stage stage_with(enum supersede supersede, uint32_t align,
                                      struct group_layout state_group)
{
    return stage_of(supersede, align, state_group, 1u << 20, 0);
}

static inline struct rig_session *stage_session(struct stage *st)
{
    return rig_session(st->rig, &st->e, st->pool, 1);
}

static inline struct rig_session *stage_committed(struct stage *st, uint32_t seed, uint32_t depth)
{
    return rig_committed(st->rig, &st->e, st->pool, seed, depth);
}

static inline void stage_put(struct stage *st, uint32_t seed, uint32_t depth)
{
    rig_put(st->rig, &st->e, st->pool, seed, depth);
}

/* The tokens of a path, as the core views them. */
static inline struct token_view tokens_in(const struct core *c, struct pool_id pool,
                                          const uint32_t *tokens, uint32_t depth)
{
    return (struct token_view){.c = c,
                               .align = pool_at(c, pool.slot)->align,
                               .end = depth,
                               .v = tokens,
                               .cursor_block = NONE};
}

/* The node at `depth` of the path of these tokens; NONE if HISTORY does not reach it. */
static inline uint32_t node_of(struct rig *rig, struct pool_id pool, const uint32_t *tokens,
                               uint32_t depth)
{
    struct token_view w = tokens_in(rig->core, pool, tokens, depth);
    uint32_t root = space_root(rig->core, pool.slot, (struct namespace_id){.hi = 1, .lo = 1});
    uint32_t at = root == NONE ? NONE : node_walk(rig->core, root, &w);

    return at != NONE && node_at(rig->core, at)->depth == depth ? at : NONE;
}

static inline const struct node *node_in(struct stage *st, const uint32_t *tokens, uint32_t depth)
{
    uint32_t at = node_of(st->rig, st->pool, tokens, depth);

    if (at == NONE)
        rig_fail("there is no node at %u", depth);
    return node_at(st->rig->core, at);
}

static inline bool has_state(struct stage *st, const uint32_t *tokens, uint32_t depth)
{
    return state_has(st->rig->core, node_in(st, tokens, depth));
}

static inline bool is_reclaimable(struct stage *st, const uint32_t *tokens, uint32_t depth)
{
    return node_in(st, tokens, depth)->state.reclaim.prev != NONE;
}

static inline void lose_state(struct stage *st, const uint32_t *tokens, uint32_t depth)
{
    state_drop(st->rig->core, node_of(st->rig, st->pool, tokens, depth));
    oracle_audit(st->rig->core);
}

/* The depth that a session matches; its bytes are checked, and it is closed again. */
static inline uint32_t match_depth(struct stage *st, const uint32_t *tokens, uint32_t n)
{
    struct rig_session *s = stage_session(st);
    uint32_t depth;

    assert_ok(rig_match(s, tokens, n));
    depth = s->matched;
    assert_int_equal(rig_depth(s, tokens, n), depth);
    closes_whole(s, depth);
    return depth;
}

static inline struct group_view state_view(struct stage *st)
{
    return rig_group_view(st->rig, st->pool, 1);
}

/* A pool of L=64 with a WINDOW of `window` tokens, 16 a page, at most `cap` pages. */
static inline struct stage stage_capped(enum supersede supersede, uint32_t window, uint32_t cap)
{
    struct group_layout l = rig_window(16, window, 64);

    l.cap_pages = cap;
    return stage_with(supersede, 64, l);
}

#endif
