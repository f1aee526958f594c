/* Helpers for tests of transfers: a prefix at the source, sessions at the destination that ask for
 * it, fetches that run through or are held up, and checks that nothing is left. Header only. */
#ifndef TEST_RIG_PAIR_H
#define TEST_RIG_PAIR_H

#include "unit/rig/rig_test.h"

/* Pages of 4 tokens and 512 bytes; at most peer_bytes bytes are in flight. */
static inline struct pair pair_limited(uint64_t peer_bytes)
{
    return PAIR_LIMITED(limits.peer_bytes_in_flight = peer_bytes, 4, 128, 64);
}

/* Commits tokens [0, n) of sequence `seed` at the source. */
static inline void source_has(struct pair *p, uint32_t seed, uint32_t n)
{
    rig_put(p->source, &p->se, p->sp, seed, n);
}

static inline void dest_has(struct pair *p, uint32_t seed, uint32_t n)
{
    rig_put(p->dest, &p->de, p->dp, seed, n);
}

/* A session of the destination with the tokens of sequence `seed`, without a fetch. */
static inline struct rig_session *asking(struct pair *p, uint32_t seed, uint32_t n)
{
    return session_with(p->dest, &p->de, p->dp, seed, n);
}

/* The same for another tenant on both hosts, whose source has them. */
static inline struct rig_session *another_tenant_asking(struct pair *p, uint32_t seed, uint32_t n)
{
    struct rig_engine se = rig_engine(p->source, 1, "theirs", 1),
                      de = rig_engine(p->dest, 1, "theirs", 1);

    rig_put(p->source, &se, rig_pool_pages(p->source, &se, 4, 64), seed, n);
    return session_with(p->dest, &de, rig_pool_pages(p->dest, &de, 4, 64), seed, n);
}

/* The same, with the tokens committed at the source. */
static inline struct rig_session *asking_source(struct pair *p, uint32_t seed, uint32_t n)
{
    source_has(p, seed, n);
    return asking(p, seed, n);
}

/* Commits sequence 1 up to n at the source, and opens p->d for it. */
static inline void pair_offer(struct pair *p, uint32_t n)
{
    p->d = asking_source(p, 1, n);
}

/* Fetches all that the source has, or up to `depth`; the answer must be there at once. */
static inline enum tern_err fetch_to(struct rig_session *d, uint32_t depth)
{
    return rig_fetched(d, rig_fetch(d, 0, depth));
}

static inline enum tern_err fetch_all(struct rig_session *d)
{
    return fetch_to(d, 0);
}

/* Completes the next batch, which is the last one that this fetch waits for. */
#define last_batch_comes(d)                                                                        \
    do {                                                                                           \
        rig_complete((d)->rig, RIG_PULL);                                                          \
        assert_ok(rig_fetched((d), (d)->fetch));                                                   \
    } while (0)

/* Begins p->d's fetch; jobs of these kinds at the destination wait for the test. Returns its id. */
static inline uint64_t fetch_held(struct pair *p, uint32_t kinds)
{
    p->dest->automatic = BY_HAND(kinds);
    return rig_fetch(p->d, 0, 0);
}

/* Sessions d[i] begin to fetch [0, tokens) of sequences 1 + i, which the source has. */
static inline void fetch_many(struct pair *p, uint32_t n, uint32_t tokens, struct rig_session **d)
{
    for (uint32_t i = 0; i < n; i++) {
        d[i] = asking_source(p, 1 + i, tokens);
        rig_fetch(d[i], 0, 0);
    }
}

/* Returns true if the session's fetch is answered. */
static inline bool ended(const struct rig_session *d)
{
    return rig_reply_to(d->rig, d->fetch) != NULL;
}

/* The error of an answer that must be there. */
static inline enum tern_err answered(struct pair *p, uint64_t fetch)
{
    return rig_reply_to(p->dest, fetch)->err;
}

static inline uint32_t quarantined(const struct pair *p)
{
    return rig_group_view(p->dest, p->dp, 0).quarantine;
}

/* No transfer, page of one, or pin is left: so many nodes on each side can be evicted. */
static inline void assert_nothing_left(struct pair *p, uint32_t source_nodes, uint32_t dest_nodes)
{
    uint32_t admin = rig_connect_admin(p->source);

    assert_int_equal(rig_view(p->dest).pulls, 0);
    assert_int_equal(rig_view(p->source).serves, 0);
    assert_int_equal(quarantined(p), 0);
    assert_int_equal(rig_group_view(p->dest, p->dp, 0).transfer, 0);
    assert_int_equal(rig_evict(p->source, admin, p->sp, 0), source_nodes);
    admin = rig_connect_admin(p->dest);
    assert_int_equal(rig_evict(p->dest, admin, p->dp, 0), dest_nodes);
}

/* Closes p->d, and asserts that nothing is left of its fetch. */
static inline void pair_ends_clean(struct pair *p, uint32_t source_nodes, uint32_t dest_nodes)
{
    assert_ok(rig_close(p->d, 0));
    assert_nothing_left(p, source_nodes, dest_nodes);
}

/* Delivers a message as if the other side had sent it. */
static inline void says(struct rig *to, uint32_t link, const struct peer_msg *msg)
{
    struct event event = {.kind = EV_PEER_MSG};

    event.peer.link = link;
    event.peer.msg = *msg;
    rig_event(to, &event);
}

static inline void source_says(struct pair *p, const struct peer_msg *msg)
{
    says(p->dest, 0, msg);
}

static inline void dest_says(struct pair *p, const struct peer_msg *msg)
{
    says(p->source, p->source->options.limits.peers, msg);
}

/* The source answers an open with that error and begins no serve; the fetch that sent it ends. */
static inline void open_is_refused(struct pair *p, struct rig_session *d, enum tern_err err)
{
    assert_int_equal(rig_jobs(p->source, RIG_MSG), 1);
    assert_err(err, rig_job(p->source, RIG_MSG, 0)->msg.err);
    assert_int_equal(rig_view(p->source).serves, 0);
    rig_drop(p->source, RIG_MSG);
    rig_drop(p->dest, RIG_MSG);
    rig_fetch_cancel(d);
    while (rig_jobs(p->dest, RIG_MSG))
        rig_drop(p->dest, RIG_MSG);
}

/* p.d asks for the first 64 tokens of sequence 1, which the source has. */
static inline struct pair pair_offered(uint64_t peer_bytes)
{
    struct pair p = pair_limited(peer_bytes);

    pair_offer(&p, 64);
    return p;
}

#endif
