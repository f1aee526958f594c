/* The source of a transfer: what it offers, to whom, and when its pins end (X2, X6). */
#include "unit/rig/rig_pair.h"

#define TOKENS 64 /* 16 pages of 4 tokens */

/* X4: the pins of a dead peer end with the fence of its connection, not before. */
TEST(serve_puller_dies_pins_end_with_the_fence)
{
    struct pair p = pair_offered(1 << 20);
    uint32_t admin = rig_connect_admin(p.source);

    fetch_held(&p, RIG_PULL);
    p.source->automatic = BY_HAND(RIG_SERVE_STOP);
    rig_link_down(p.dest, 0);
    assert_int_equal(rig_evict(p.source, admin, p.sp, 0), 0);
    assert_int_equal(rig_jobs(p.source, RIG_SERVE_STOP), 1);
    rig_complete(p.source, RIG_SERVE_STOP);
    assert_int_equal(rig_view(p.source).serves, 0);
    assert_int_equal(rig_evict(p.source, admin, p.sp, 0), 16);
}

/* The data path asks before bytes leave: only pages of a live serve and of their generation do. */
TEST(serve_page_checks_serve_and_generation)
{
    struct pair p = pair_offered(1 << 20);
    struct rig_job *job;
    struct page_ref ref, stale, foreign;
    struct serve_id serve;
    uint32_t record;
    struct rig_session *other = rig_session(p.source, &p.se, p.sp, 2); /* in another namespace */

    commits(other, 1, 8);
    foreign = other->table[0][0];
    fetch_held(&p, RIG_PULL);
    job = rig_job(p.dest, RIG_PULL, 0);
    serve = job->serve;
    ref = stale = job->refs[0];
    stale.gen++;
    assert_ok(core_serve_page(p.source->core, serve, 0, ref, &record));
    assert_err(TERN_GONE, core_serve_page(p.source->core, serve, 0, stale, &record));
    assert_int_not_equal(core_serve_page(p.source->core, serve, 1, ref, &record), TERN_OK);
    assert_int_not_equal(
        core_serve_page(p.source->core, serve, 0, (struct page_ref){0, 1}, &record), TERN_OK);
    assert_int_not_equal(
        core_serve_page(p.source->core, serve, 0, (struct page_ref){UINT32_MAX, 1}, &record),
        TERN_OK);
    assert_int_not_equal(core_serve_page(p.source->core, serve, 0, foreign, &record), TERN_OK);
    serve.gen++;
    assert_err(TERN_GONE, core_serve_page(p.source->core, serve, 0, ref, &record));
    serve.gen--;
    assert_ok(rig_fetch_cancel(p.d));
    assert_err(TERN_GONE, core_serve_page(p.source->core, serve, 0, ref, &record));
}

/* E3: peers read a node when every rank has passed its step and its checksums are known. */
TEST(serve_pending_or_unsealed_is_not_offered)
{
    struct pair p = pair_limited(1 << 20);
    struct rig_session *s = rig_session(p.source, &p.se, p.sp, 1);

    p.d = asking(&p, 1, TOKENS);
    p.source->automatic = BY_HAND(RIG_SEAL);
    computes_and_commits(s, 1, TOKENS, TOKENS, 3);
    assert_leaves(fetch_all(p.d), p.d, 0, 0, 0); /* its step is pending: no offer */
    rig_engine_done(p.source, &p.se, 3);
    rig_fetch(p.d, 0, 0);
    assert_int_equal(p.dest->pulled_pages, 0); /* no checksums yet: no page leaves */
    complete_all(p.source, RIG_SEAL);
    assert_ok(rig_fetched(p.d, p.d->fetch));
    if (p.d->len.committed == 0) /* a source may also have answered that it has nothing yet */
        assert_ok(fetch_all(p.d));
    assert_whole(p.d, TOKENS);
}

/* A tenant that the peer's entry does not list, and another namespace. */
TEST(serve_tenant_not_allowed_denied_and_other_namespace_nothing)
{
    struct pair p = pair_limited(1 << 20);
    struct peer_msg open = {.kind = PEER_PULL_OPEN,
                            .pull = {0, 77},
                            .tenant = NONE,
                            .ns = {.hi = 1, .lo = 1},
                            .to = TOKENS,
                            .tokens = seq1};
    struct rig_job *job;

    source_has(&p, 1, TOKENS);
    p.source->automatic = BY_HAND(RIG_MSG);
    dest_says(&p, &open);
    job = rig_job(p.source, RIG_MSG, 0);
    assert_non_null(job);
    assert_int_equal(job->msg.kind, PEER_PULL_OFFER);
    assert_err(TERN_DENIED, job->msg.err);
    assert_int_equal(rig_view(p.source).serves, 0);
    rig_drop(p.source, RIG_MSG);
    p.source->automatic = RIG_ALL;
    p.d = rig_session(p.dest, &p.de, p.dp, 2);
    assert_ok(rig_match(p.d, seq1, TOKENS));
    assert_leaves(fetch_all(p.d), p.d, 0, 0, 0);
}

/* A peer that asks for tokens, or for history, from within a chunk gets an error. */
TEST(serve_asked_from_within_a_chunk_invalid)
{
    struct pair p = pair_limited(1 << 20);

    source_has(&p, 1, TOKENS);
    for (uint32_t wrong = 0; wrong < 2; wrong++) {
        struct rig_session *d = asking(&p, 1, TOKENS);
        struct peer_msg open;

        p.source->automatic = p.dest->automatic = BY_HAND(RIG_MSG);
        rig_fetch(d, 0, 0);
        open = rig_job(p.dest, RIG_MSG, 0)->msg;
        open.from = wrong ? 0 : 2;
        open.history = wrong ? 6 : 2;
        dest_says(&p, &open);
        open_is_refused(&p, d, TERN_INVALID);
    }
}

/* Many peers wait for one checksum, and a step has no room to answer them all: the rest is answered
 * at once. */
TEST(serve_offers_beyond_the_actions_of_a_step_follow_at_once)
{
    struct peer_msg open;
    struct pair p = PAIR_LIMITED(limits.serves = ACTIONS_MAX, 4, 128, 64);

    p.source->automatic = BY_HAND(RIG_SEAL | RIG_MSG);
    pair_offer(&p, 4);
    p.dest->automatic = BY_HAND(RIG_MSG);
    rig_fetch(p.d, 0, 0);
    open = rig_job(p.dest, RIG_MSG, 0)->msg;
    for (uint32_t i = 0; i < ACTIONS_MAX; i++) {
        open.pull.gen++;
        dest_says(&p, &open);
    }
    assert_int_equal(rig_view(p.source).serves, ACTIONS_MAX);
    assert_int_equal(rig_jobs(p.source, RIG_MSG), 0);
    complete_all(p.source, RIG_SEAL);
    assert_int_equal(rig_jobs(p.source, RIG_MSG), ACTIONS_MAX);
}
