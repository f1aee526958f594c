/* Set-up of tests of the host tier, of retraction and of resets: pools with a host tier of an exact
 * number of pages, nodes by tokens on any tier, jobs completed by hand. Header only. */
#ifndef TEST_RIG_HOST_H
#define TEST_RIG_HOST_H

#include "unit/rig/rig_state.h"

static inline struct bench host_bench(uint32_t page_tokens, uint32_t usable, uint32_t host_pages)
{
    return host_bench_with(NULL, page_tokens, usable, host_pages);
}

/* A stage of a HISTORY group and one STATE group, with a host tier of `host_kib` KiB. */
static inline struct stage host_stage(enum supersede supersede, uint32_t align,
                                      struct group_layout state_group, uint32_t host_kib)
{
    return stage_of(supersede, align, state_group, 64u << 10, host_kib);
}

/* The node at `depth` of the path of these tokens in namespace 1, on any tier; or NONE. */
static inline uint32_t anywhere(struct rig *rig, struct pool_id pool, const uint32_t *tokens,
                                uint32_t depth)
{
    const struct core *c = rig->core;
    struct token_view w = tokens_in(c, pool, tokens, depth);
    uint32_t at = pool_at(c, pool.slot)->spaces.head;

    while (at != NONE && (space_at(c, at)->ns.lo != 1 || space_at(c, at)->reset))
        at = space_list_next(c, at);
    if (at == NONE)
        return NONE;
    at = space_at(c, at)->root;
    while (at != NONE && node_at(c, at)->depth < depth)
        at = node_child(c, at, &w);
    return at;
}

static inline struct node_view node_seen(struct rig *rig, struct pool_id pool,
                                         const uint32_t *tokens, uint32_t depth)
{
    struct node_view v = {0};
    uint32_t at = anywhere(rig, pool, tokens, depth);

    if (at == NONE || !core_node_view(rig->core, at, &v))
        rig_fail("there is no node at %u", depth);
    return v;
}

static inline struct session_view session_seen(const struct rig_session *s)
{
    struct session_view v;

    if (!core_session_view(s->rig->core, s->id.slot, &v) || v.id.gen != s->id.gen)
        rig_fail("that session is not there");
    return v;
}

static inline const char *state_of(const struct rig_session *s)
{
    return session_seen(s).state_word;
}

/* The Retract succeeds, and the session has that state then. */
#define retracts_to(state, s, mode, step)                                                          \
    do {                                                                                           \
        assert_ok(rig_retract((s), (mode), (step)));                                               \
        assert_string_equal(state_of(s), state);                                                   \
    } while (0)

static inline uint32_t host_free(struct rig *rig, struct pool_id pool, uint32_t group)
{
    return rig_host_view(rig, pool).group[group].free;
}

/* Commits tokens [0, depth) of sequence `seed`; the jobs decide on which tiers they are then. */
static inline void put(struct bench *b, uint32_t seed, uint32_t depth)
{
    rig_put(b->rig, &b->e, b->pool, seed, depth);
}

static inline bool on_device(struct bench *b, uint32_t seed, uint32_t depth)
{
    return node_seen(b->rig, b->pool, rig_tokens(seed, depth), depth).on_device;
}

static inline bool on_host(struct bench *b, uint32_t seed, uint32_t depth)
{
    return node_seen(b->rig, b->pool, rig_tokens(seed, depth), depth).on_host;
}

static inline bool is_there(struct bench *b, uint32_t seed, uint32_t depth)
{
    return anywhere(b->rig, b->pool, rig_tokens(seed, depth), depth) != NONE;
}

/* The depth on the host tier, by a Peek. */
static inline uint32_t host_depth(struct rig_session *like, const uint32_t *tokens, uint32_t n)
{
    rig_depth(like, tokens, n);
    return like->rig->last->peek.host_depth;
}

/* Every page of both tiers is free. */
static inline void assert_all_free(struct rig *rig, struct pool_id pool)
{
    struct pool_view v = rig_pool_view(rig, pool), h = v;

    if (v.other != NONE)
        h = rig_host_view(rig, pool);
    for (uint32_t g = 0; g < v.ngroups; g++) {
        assert_int_equal(v.group[g].free, v.group[g].total);
        assert_int_equal(h.group[g].free, h.group[g].total);
    }
}

/* Evicts everything that is not pinned, from both tiers. */
static inline void evict_all(struct rig *rig, uint32_t admin, struct pool_id pool)
{
    rig_evict(rig, admin, pool, 0);
}

/* Evicts everything that is not pinned, and asserts that this was all there was. */
static inline void nothing_stays(struct rig *rig, uint32_t admin, struct pool_id pool)
{
    evict_all(rig, admin, pool);
    assert_all_free(rig, pool);
}

/* Evicts every device page that can go, as if requests needed all of them. Copies on the host
 * stay. */
static inline void demote_pool(struct rig *rig, struct pool_id pool)
{
    while (evict_one(rig->core, pool_at(rig->core, pool.slot)))
        rig->core->visits = 0;
    rig->core->visits = 0;
    oracle_audit(rig->core);
}

/* Evicts at most `nodes` nodes, 0: all that can go. Returns their number. */
static inline uint32_t evicts(struct bench *b, uint32_t nodes)
{
    return rig_evict(b->rig, b->admin, b->pool, nodes);
}

/* Tokens [0, depth) of sequence `seed` are only on the host. */
static inline void put_away(struct bench *b, uint32_t seed, uint32_t depth)
{
    put(b, seed, depth);
    demote_pool(b->rig, b->pool);
}

/* Fetches all that the host tier has; the answer must be there at once. */
static inline enum tern_err fetch_back(struct rig_session *s)
{
    return rig_fetched(s, rig_fetch(s, PEER_HOST, 0));
}

/* The bench's session fetches from the host; copies wait for the test. Returns the request id. */
static inline uint64_t load_held(struct bench *b)
{
    b->rig->automatic = BY_HAND(RIG_COPY);
    return rig_fetch(b->s, PEER_HOST, 0);
}

/* Everything ends, and no page is lost. */
static inline void bench_ends_clean(struct bench *b)
{
    const struct session *s = session_at(b->rig->core, b->s->id.slot);

    rig_runs_free(b->rig);
    rig_engine_done(b->rig, &b->e, 100);
    if (s->gen == b->s->id.gen && s->state != SESSION_EMPTY)
        assert_ok(rig_close(b->s, 0));
    nothing_stays(b->rig, b->admin, b->pool);
}

/* Commits chunk by chunk, so that each has its copy queued before the next one is committed. */
static inline void put_slowly(struct bench *b, uint32_t seed, uint32_t depth)
{
    struct rig_session *s = session_with(b->rig, &b->e, b->pool, seed, depth);

    for (uint32_t at = s->matched + 4; at <= depth; at += 4) {
        commit_to(s, rig_tokens(seed, depth), at, 0);
    }
    assert_ok(rig_close(s, 0));
}

/* 16 pages on each tier; copies wait for the test, and at most `jobs` run at a time. */
static inline struct bench copies_held_at(uint32_t jobs)
{
    struct rig_options o = rig_defaults();
    struct bench b;

    o.limits.copy_jobs = jobs;
    b = host_bench_with(&o, 4, 16, 16);
    b.rig->automatic = BY_HAND(RIG_COPY);
    return b;
}

#endif
