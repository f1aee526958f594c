/* Messages of a peer, and the answers to them: bad offers, requests and directions; extra keys and
 * layouts on the way; fetches that meet another engine's pending chunk; more endings at once than
 * one step has room for. */
#include "unit/rig/rig_pair.h"

#define TOKENS 32 /* 8 pages of 4 tokens */

static struct pair start(void)
{
    return pair_with(rig_defaults(), 4, 64, 64);
}

/* The source has sequence 1, and p.d asks for it. */
static struct pair offered(void)
{
    struct pair p = start();

    pair_offer(&p, TOKENS);
    return p;
}

TEST(offer_that_does_not_fit_closes_the_link)
{
    for (uint32_t wrong = 0; wrong < 7; wrong++) {
        struct pair p = offered();
        struct table_run run;
        struct peer_msg msg;

        p.source->automatic = BY_HAND(RIG_MSG);
        rig_fetch(p.d, 0, 0);
        msg = rig_job(p.source, RIG_MSG, 0)->msg;
        run = msg.runs[0];
        msg.runs = &run;
        switch (wrong) {
        case 0: msg.from = 4; break;
        case 1: msg.to = TOKENS + 4; break;
        case 2: msg.to = TOKENS - 1; break;
        case 3: msg.nruns = 0; break;
        case 4: run.n--; break;
        case 5: run.group = 1; break;
        default: msg.serve = (struct serve_id){0, 0}; break;
        }
        source_says(&p, &msg); /* in place of the offer, which waits */
        assert_int_equal(p.dest->link_closes, 1);
        assert_err(TERN_PEER_LOST, rig_fetched(p.d, p.d->fetch));
        assert_lengths(p.d, 0, 0, 0);
        assert_int_equal(rig_group_view(p.dest, p.dp, 0).free, 64);
        assert_int_equal(p.dest->pulled_pages, 0);
    }
}

TEST(message_in_the_wrong_direction_closes_the_link)
{
    static const enum peer_msg_kind kinds[] = {PEER_PULL_OPEN, PEER_PULL_DONE, PEER_PULL_OFFER,
                                               PEER_PULL_ABORT, PEER_MSG_COUNT};
    struct pair p = start();
    uint32_t closes = 0;

    for (uint32_t i = 0; i < 5; i++) {
        struct peer_msg msg = {.kind = kinds[i]};

        closes++;
        if (i < 2)
            source_says(&p, &msg);
        else
            dest_says(&p, &msg);
        assert_int_equal(p.dest->link_closes + p.source->link_closes, closes);
    }
}

TEST(message_of_a_pull_on_another_link_closes_that_link)
{
    struct pair p = offered();
    struct rig *third = rig_create(NULL);
    struct peer_msg abort = {.kind = PEER_PULL_ABORT, .err = TERN_GONE};

    rig_link_up(p.dest, 1, third, 2);
    fetch_held(&p, RIG_PULL);
    abort.pull = rig_job(p.dest, RIG_PULL, 0)->pull;
    says(p.dest, 1, &abort);
    assert_int_equal(p.dest->link_closes, 1);
    rig_complete(p.dest, RIG_PULL); /* the fetch itself continues */
    assert_leaves_whole(rig_fetched(p.d, p.d->fetch), p.d, TOKENS);
}

/* Opens with fields out of range: the source refuses them, and nothing else happens. */
TEST(open_out_of_range_refused)
{
    struct extra_key down[2] = {{.position = 6}, {.position = 5}};
    struct pair p = start();

    source_has(&p, 1, TOKENS);
    p.source->automatic = BY_HAND(RIG_MSG);
    for (uint32_t wrong = 0; wrong < 5; wrong++) {
        struct rig_session *d = asking(&p, 1, TOKENS);
        struct peer_msg open;

        p.dest->automatic = BY_HAND(RIG_MSG);
        rig_fetch(d, 0, 0);
        open = rig_job(p.dest, RIG_MSG, 0)->msg;
        switch (wrong) {
        case 0: open.from = TOKENS + 4; break;
        case 1: open.from = 3; break;
        case 2:
            open.keys = down;
            open.nkeys = 2;
            break;
        case 3: open.to = UINT32_MAX; break;
        default: open.tenant = p.source->options.limits.tenants; break;
        }
        dest_says(&p, &open);
        open_is_refused(&p, d, wrong == 4 ? TERN_DENIED : TERN_INVALID);
    }
}

/* An open that arrives twice makes no second owner: one PULL_DONE ends everything. */
TEST(open_replayed_one_done_ends_both)
{
    struct pair p = offered();
    uint32_t admin = rig_connect_admin(p.source);
    uint64_t fetch = fetch_held(&p, RIG_MSG);

    dest_says(&p, &rig_job(p.dest, RIG_MSG, 0)->msg);
    rig_runs_free(p.dest);
    assert_leaves_whole(rig_fetched(p.d, fetch), p.d, TOKENS);
    assert_int_equal(rig_view(p.source).serves, 0);
    assert_int_equal(rig_evict(p.source, admin, p.sp, 0), 8);
}

/* N2 between hosts: keys travel with the tokens and are compared. */
TEST(fetch_with_extra_keys_brings_the_right_branch)
{
    struct pair p = start();
    struct extra_key cat[2] = {{.position = 3, .lo = 1}, {.position = 18, .lo = 1}};
    struct extra_key dog[2] = {{.position = 3, .lo = 1}, {.position = 18, .lo = 2}};
    struct req_tokens with_cat = {.v = seq1, .n = TOKENS, .keys = cat, .nkeys = 2};
    struct req_tokens with_dog = with_cat;
    struct rig_session *s = rig_session(p.source, &p.se, p.sp, 1), *d[2];

    with_dog.keys = dog;
    assert_ok(rig_match_full(s, &with_cat, 0));
    commit_to(s, seq1, TOKENS, 0);
    d[0] = rig_session(p.dest, &p.de, p.dp, 1);
    assert_ok(rig_match_full(d[0], &with_dog, 0));
    assert_leaves_whole(fetch_all(d[0]), d[0], 16); /* up to the chunk where they differ */
    d[1] = rig_session(p.dest, &p.de, p.dp, 1);
    matches_full(d[1], &with_cat, 0, 16);
    assert_leaves_whole(fetch_all(d[1]), d[1], TOKENS); /* keys of committed tokens travel too */
}

TEST(fetch_from_a_pool_of_another_layout_unsupported)
{
    struct pair p = start();
    struct group_layout other = rig_group(8, 512);
    struct pool_id pool;

    assert_ok(rig_pool_open(p.source, p.se.conn[0], &other, 1, 1 << 16, &pool));
    rig_put(p.source, &p.se, pool, 1, TOKENS);
    p.d = asking(&p, 1, TOKENS);
    assert_err(TERN_UNSUPPORTED, fetch_all(p.d));
    assert_lengths(p.d, 0, 0, 0);
}

/* T8 on arrival: another engine is about to publish the same chunk. The pages that came stay the
 * session's, uncommitted. */
TEST(fetch_onto_another_engines_pending_chunk_keeps_its_own_pages)
{
    struct pair p = offered();
    struct rig_engine other = second_engine(p.dest, p.dp);
    struct rig_session *s = rig_session(p.dest, &other, p.dp, 1);

    computes_and_commits(s, 1, TOKENS, 8, 0);
    assert_ok(rig_commit(s, 16, 4)); /* [8, 16) is pending */
    assert_leaves(fetch_all(p.d), p.d, 8, TOKENS, TOKENS);
    assert_int_equal(rig_wrong(p.d, TOKENS), 0);
    rig_engine_kill(p.dest, &other, 0); /* the pending node goes, ours stays */
    assert_int_equal(rig_wrong(p.d, TOKENS), 0);
    assert_leaves_whole(rig_commit(p.d, TOKENS, 0), p.d, TOKENS);
    assert_int_equal(rig_depth(p.d, seq1, TOKENS), TOKENS);
}

/* The same chunk was committed here meanwhile. One copy stays; nobody has seen the other one. */
TEST(fetch_of_what_was_committed_meanwhile_adopts)
{
    struct pair p = offered();
    uint64_t fetch = fetch_held(&p, RIG_PULL);

    dest_has(&p, 1, 20);
    rig_complete(p.dest, RIG_PULL);
    assert_leaves_whole(rig_fetched(p.d, fetch), p.d, TOKENS);
    assert_int_equal(rig_group_view(p.dest, p.dp, 0).snapshot, 8);
    assert_int_equal(rig_free(p.dest, p.dp), 64 - 8);
    assert_int_equal(rig_view(p.dest).dup_chunks, 5);
}

/* The source's pool is closed during the transfer: the puller gets an error of the table at
 * once. */
TEST(serve_pool_closed_meanwhile_puller_told)
{
    struct pair p = offered();
    uint64_t fetch = fetch_held(&p, RIG_PULL);

    p.source->automatic = BY_HAND(RIG_SERVE_STOP | RIG_ZERO);
    assert_ok(rig_pool_close(p.source, p.se.conn[0], p.sp));
    assert_err(TERN_GONE, rig_fetched(p.d, fetch));
    rig_engine_kill(p.source, &p.se, 0);
    assert_int_equal(rig_jobs(p.source, RIG_ZERO), 0); /* not while a transfer may read it */
    rig_complete(p.source, RIG_SERVE_STOP);
    assert_int_equal(rig_jobs(p.source, RIG_ZERO), 1);
    assert_int_equal(quarantined(&p), 0);
}

/* The client's connection closes: the fetch ends without an answer and without a leak. */
TEST(fetch_connection_closed_meanwhile_nobody_is_answered)
{
    struct pair p = offered();
    uint64_t fetch = fetch_held(&p, RIG_PULL);

    rig_disconnect(p.dest, p.de.conn[0]);
    rig_complete(p.dest, RIG_PULL);
    assert_null(rig_reply_to(p.dest, fetch));
    assert_int_equal(rig_view(p.dest).pulls, 0);
    assert_int_equal(rig_view(p.source).serves, 0);
    rig_proc_gone(p.dest, p.de.proc[0]);
    assert_int_equal(rig_free(p.dest, p.dp), 64 - 8); /* the published prefix stays */
}

/* More endings in one event than struct actions has room for: the rest follows in the next steps,
 * and none is lost. */
TEST(link_lost_under_many_fetches_every_one_is_answered)
{
    enum { N = 70 };
    struct rig_options options = rig_defaults();
    struct rig_session *d[N];
    struct pair p;

    options.limits.pulls = options.limits.serves = N;
    options.limits.sessions = 2 * N;
    options.tenant[0].sessions_max = 2 * N;
    p = pair_with(options, 4, 256, 256);
    p.dest->automatic = BY_HAND(RIG_PULL);
    fetch_many(&p, N, 8, d);
    assert_int_equal(rig_jobs(p.dest, RIG_PULL), N);
    p.dest->automatic = p.source->automatic = 0; /* no other event carries the rest along */
    rig_link_down(p.dest, 0);
    for (uint32_t i = 0; i < N; i++)
        assert_err(TERN_PEER_LOST, rig_fetched(d[i], d[i]->fetch));
    assert_int_equal(rig_jobs(p.dest, RIG_PULL_STOP), N);
    assert_int_equal(rig_jobs(p.source, RIG_SERVE_STOP), N);
    p.dest->automatic = p.source->automatic = RIG_ALL;
    rig_settle(p.dest);
    rig_settle(p.source);
    assert_int_equal(rig_view(p.dest).pulls, 0);
    assert_int_equal(rig_view(p.source).serves, 0);
    assert_int_equal(rig_free(p.dest, p.dp), 256);
}

/* More pages than one batch names: each batch has a number, and batches end in any order. */
TEST(fetch_of_many_batches_completes_in_any_order)
{
    for (uint32_t order = 0; order < 3; order++) {
        struct rig_options options = rig_defaults();
        struct pair p;

        options.limits.nodes = 1024;
        options.limits.token_blocks = 2048;
        p = pair_with(options, 1, 700, 700);
        p.source->no_audit = p.dest->no_audit = true;
        pair_offer(&p, 600);
        fetch_held(&p, RIG_PULL);
        assert_int_equal(rig_jobs(p.dest, RIG_PULL), 3);
        p.dest->corrupt_pages = 5;
        while (rig_jobs(p.dest, RIG_PULL))
            rig_complete_nth(p.dest, RIG_PULL, order % rig_jobs(p.dest, RIG_PULL));
        p.source->no_audit = p.dest->no_audit = false;
        assert_leaves_whole(rig_fetched(p.d, p.d->fetch), p.d, 600);
        assert_int_equal(p.dest->pulled_pages, 605);
        oracle_audit(p.dest->core);
    }
}

/* Chunks of more than one token block, the last block partly filled, over a link that is not the
 * first. */
TEST(fetch_of_long_chunks_over_another_link_brings_the_delta)
{
    struct pair p = pair_with(rig_defaults(), 100, 16, 16);

    rig_link_down(p.dest, 0);
    rig_link_up(p.dest, 1, p.source, p.source->options.limits.peers + 1);
    source_has(&p, 1, 500);
    dest_has(&p, 1, 200);
    p.d = asking(&p, 1, 570);
    assert_int_equal(p.d->matched, 200);
    assert_leaves_whole(rig_fetched(p.d, rig_fetch(p.d, 1, 0)), p.d, 500);
    assert_int_equal(p.dest->pulled_pages, 3);
    assert_int_equal(rig_depth(p.d, seq1, 570), 500);
}

/* A trace id travels to the peer, back, and into the answer. */
TEST(fetch_trace_id_goes_through_both_daemons)
{
    struct pair p = offered();
    struct request request = {.op = OP_FETCH, .trace_id = 0x7ace};

    p.dest->automatic = p.source->automatic = BY_HAND(RIG_MSG);
    request.fetch.session = p.d->id;
    assert_null(rig_request(p.dest, p.d->conn, &request));
    assert_true(rig_job(p.dest, RIG_MSG, 0)->msg.trace_id == 0x7ace);
    rig_complete(p.dest, RIG_MSG);
    assert_true(rig_job(p.source, RIG_MSG, 0)->msg.trace_id == 0x7ace);
    rig_complete(p.source, RIG_MSG);
    assert_ok(rig_fetched(p.d, request.request_id));
    assert_true(rig_reply_to(p.dest, request.request_id)->trace_id == 0x7ace);
    assert_true(rig_job(p.dest, RIG_MSG, 0)->msg.trace_id == 0x7ace);
}

/* The same for a transfer that has published a chunk before. */
TEST(fetch_overtaken_by_another_engine_keeps_its_own_pages)
{
    struct pair p = pair_limited(512);
    struct rig_engine other = second_engine(p.dest, p.dp);
    struct rig_session *s = rig_session(p.dest, &other, p.dp, 1);

    pair_offer(&p, TOKENS);
    fetch_held(&p, RIG_PULL);
    rig_complete(p.dest, RIG_PULL); /* [0, 4) */
    matches(s, seq1, TOKENS, 4);
    run_and_commit(s, seq1, TOKENS, 12, 4); /* [4, 12) is pending */
    complete_all(p.dest, RIG_PULL);
    assert_leaves(rig_fetched(p.d, p.d->fetch), p.d, 4, TOKENS, TOKENS);
    assert_int_equal(rig_wrong(p.d, TOKENS), 0);
    rig_engine_kill(p.dest, &other, 0);
    assert_leaves_whole(rig_commit(p.d, TOKENS, 0), p.d, TOKENS);
    rig_runs_free(p.dest);
}

/* A session fetches on from a commit whose step has not passed: the chunks that arrive become
 * visible with that commit, not before. */
TEST(fetch_beyond_a_pending_commit_is_seen_with_it)
{
    struct pair p = start();
    struct rig_engine other = second_engine(p.dest, p.dp);
    struct rig_session *like = rig_session(p.dest, &other, p.dp, 1);

    pair_offer(&p, TOKENS);
    commit_to(p.d, seq1, 8, 5);
    assert_leaves_whole(fetch_all(p.d), p.d, TOKENS);
    assert_int_equal(rig_depth(like, seq1, TOKENS), 0);
    rig_engine_done(p.dest, &p.de, 5);
    assert_int_equal(rig_depth(like, seq1, TOKENS), TOKENS);
}

/* All of it was committed here between the Match and the Fetch: no page moves and nobody waits. */
TEST(fetch_of_what_was_committed_before_moves_nothing)
{
    struct pair p = offered();

    dest_has(&p, 1, TOKENS);
    assert_leaves_whole(fetch_all(p.d), p.d, TOKENS);
    assert_int_equal(p.dest->pulled_pages, 0);
    pair_ends_clean(&p, 8, 8);
}

/* An offer for a pull that has ended: it is declined over the link by which it came. */
TEST(offer_that_comes_too_late_is_declined_where_it_came_from)
{
    struct pair p = start();
    struct peer_msg offer = {.kind = PEER_PULL_OFFER, .pull = {3, 3}, .serve = {5, 5}, .to = 4};
    const struct rig_job *job;

    rig_link_up(p.dest, 1, p.source, p.source->options.limits.peers + 1);
    p.dest->automatic = BY_HAND(RIG_MSG);
    says(p.dest, 1, &offer);
    assert_int_equal(rig_jobs(p.dest, RIG_MSG), 1);
    job = rig_job(p.dest, RIG_MSG, 0);
    assert_int_equal(job->link, 1);
    assert_int_equal(job->msg.kind, PEER_PULL_DONE);
    assert_true(pull_id_equal(job->msg.pull, offer.pull) &&
                serve_id_equal(job->msg.serve, offer.serve));
}

/* An offer that arrives twice starts nothing anew. */
TEST(offer_repeated_while_the_transfer_runs_changes_nothing)
{
    struct pair p = start();
    struct event event = {.kind = EV_PEER_MSG, .peer.link = 0};
    uint64_t before;

    pair_offer(&p, TOKENS);
    p.source->automatic = BY_HAND(RIG_MSG);
    p.dest->automatic = BY_HAND(RIG_PULL);
    rig_fetch(p.d, 0, 0);
    event.peer.msg = rig_job(p.source, RIG_MSG, 0)->msg;
    rig_event(p.dest, &event);
    assert_int_equal(rig_jobs(p.dest, RIG_PULL), 1);
    before = core_changes(p.dest->core);
    rig_event(p.dest, &event);
    assert_int_equal(rig_jobs(p.dest, RIG_PULL), 1);
    assert_true(core_changes(p.dest->core) == before);
}
