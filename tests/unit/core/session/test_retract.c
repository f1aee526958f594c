/* T14, retract and recover, with S8 and S10: both modes, which pages are returned and when, which
 * lengths come back, which requests a session that is away accepts, and every way out of that
 * state. Pages have 4 tokens and L = 4 unless a test sets others. */
#include "core/busy.h"
#include "core/session/call.h"
#include "unit/rig/rig_host.h"

/* T = 8, C = 14, A = 20: two pages in the tree, two of the session's own, one speculative. */
static struct bench running_with(struct bench b)
{
    computes_and_commits(b.s, 1, 14, 8, 0);
    assert_leaves(rig_extend(b.s, 20, 0, NULL, 0), b.s, 8, 14, 20);
    return b;
}

static struct bench running(uint32_t host_pages)
{
    return running_with(host_bench(4, 32, host_pages));
}

static void goes_on(struct bench *b)
{
    assert_int_equal(rig_wrong(b->s, b->s->len.written), 0);
    runs_right(b->s, seq1, 24);
    assert_ok(rig_commit(b->s, 24, 0));
    assert_int_equal(rig_depth(b->s, seq1, 24), 24);
}

#define goes_on_to_the_end(b)                                                                      \
    do {                                                                                           \
        goes_on(b);                                                                                \
        bench_ends_clean(b);                                                                       \
    } while (0)

/* The copies end before the step passes, or after it. */
static void retract_host_waits_for(bool copies_first)
{
    struct bench b = running(32);

    b.rig->automatic = BY_HAND(RIG_COPY);
    rig_close(b.s, 0);
    evict_all(b.rig, b.admin, b.pool);
    b.s = rig_session(b.rig, &b.e, b.pool, 1);
    b = running_with(b);
    assert_int_equal(rig_jobs(b.rig, RIG_COPY), 2);
    assert_ok(rig_retract(b.s, RETRACT_HOST, 5));
    assert_int_equal(rig_jobs(b.rig, RIG_COPY), 2);
    assert_lengths(b.s, 8, 14, 14);
    assert_given_back(b.rig, 0, 1);
    assert_string_equal(state_of(b.s), "retracting");
    assert_int_equal(rig_retiring(b.rig, b.pool), 1);
    assert_int_equal(session_seen(b.s).ref, REF_DEVICE);
    if (!copies_first)
        rig_engine_done(b.rig, &b.e, 5);
    rig_complete(b.rig, RIG_COPY);
    assert_string_equal(state_of(b.s), "retracting");
    rig_complete(b.rig, RIG_COPY);
    if (copies_first) {
        assert_string_equal(state_of(b.s), "retracting");
        rig_engine_done(b.rig, &b.e, 4);
        assert_string_equal(state_of(b.s), "retracting");
        assert_int_equal(rig_evict(b.rig, b.admin, b.pool, 0), 0);
        rig_engine_done(b.rig, &b.e, 5);
    }
    assert_string_equal(state_of(b.s), "retracted");
    assert_int_equal(session_seen(b.s).ref, REF_HOST);
    assert_int_equal(node_seen(b.rig, b.pool, seq1, 8).refs[REF_HOST], 1);
    assert_int_equal(node_seen(b.rig, b.pool, seq1, 8).refs[REF_DEVICE], 0);
    assert_int_equal(rig_free(b.rig, b.pool), 32 - 4);
    assert_int_equal(rig_evict(b.rig, b.admin, b.pool, 0), 2);
    assert_int_equal(rig_free(b.rig, b.pool), 32 - 2); /* [T, C) stays */
    assert_int_equal(rig_depth(b.s, seq1, 8), 0);
    assert_int_equal(host_depth(b.s, seq1, 8), 8);
    b.rig->automatic = RIG_ALL;
    assert_leaves(rig_recover_now(b.s), b.s, 8, 14,
                  14); /* S10: T has not moved, although 12 could be committed */
    assert_int_equal(b.s->ntokens, 14);
    assert_int_equal(b.rig->copies_up, 2);
    assert_int_equal(b.rig->last->recover.kib, 1);
    assert_string_equal(state_of(b.s), "turn");
    goes_on_to_the_end(&b);
}

/* T14 */
TEST(retract_host_waits_for_its_copies_and_for_its_step)
{
    retract_host_waits_for(true);
    retract_host_waits_for(false);
}

/* T14: the host has all copies already, nothing was evicted: retract and recover end at once. */
TEST(retract_host_with_the_copies_there_already_is_away_at_once)
{
    struct bench b = running(32);

    assert_int_equal(b.rig->copies_back, 2);
    assert_leaves(rig_retract(b.s, RETRACT_HOST, 0), b.s, 8, 14, 14);
    assert_given_back(b.rig, 1, 0);
    assert_string_equal(state_of(b.s), "retracted");
    assert_leaves(rig_recover_now(b.s), b.s, 8, 14, 14);
    assert_int_equal(b.rig->copies_back, 2);
    assert_int_equal(b.rig->copies_up, 0);
    assert_int_equal(session_seen(b.s).ref, REF_DEVICE);
    goes_on_to_the_end(&b);
}

/* T14 */
TEST(retract_drop_gives_back_what_was_not_committed)
{
    struct bench b = running(0);

    assert_leaves(rig_retract(b.s, RETRACT_DROP, 5), b.s, 8, 8, 8);
    assert_given_back(b.rig, 0, 3);
    assert_int_equal(rig_retiring(b.rig, b.pool), 3);
    assert_int_equal(rig_evict(b.rig, b.admin, b.pool, 0), 0);
    rig_engine_done(b.rig, &b.e, 5);
    assert_string_equal(state_of(b.s), "retracted");
    assert_int_equal(session_seen(b.s).ref, REF_RETRACTED);
    assert_int_equal(node_seen(b.rig, b.pool, seq1, 8).refs[REF_RETRACTED], 1);
    assert_int_equal(node_seen(b.rig, b.pool, seq1, 8).refs[REF_DEVICE], 0);
    assert_int_equal(rig_evict(b.rig, b.admin, b.pool, 0), 0); /* the pin holds its prefix */
    assert_int_equal(rig_free(b.rig, b.pool), 32 - 2);
    assert_leaves(rig_recover_now(b.s), b.s, 8, 8, 8);
    assert_int_equal(b.s->ntokens, 14); /* the tokens are kept */
    goes_on_to_the_end(&b);
}

/* T14 */
TEST(retract_drop_at_step_0_frees_now)
{
    struct bench b = running(32);

    assert_ok(rig_retract(b.s, RETRACT_DROP, 0));
    assert_given_back(b.rig, 3, 0);
    assert_int_equal(rig_free(b.rig, b.pool), 32 - 2);
    assert_string_equal(state_of(b.s), "retracted");
    assert_ok(rig_recover_now(b.s));
    goes_on_to_the_end(&b);
}

/* T14 */
TEST(retract_host_without_a_host_tier_is_unsupported_and_the_session_runs_on)
{
    struct bench b = running(0);
    uint64_t changes = core_changes(b.rig->core);

    assert_err(TERN_UNSUPPORTED, rig_retract(b.s, RETRACT_HOST, 0));
    assert_true(core_changes(b.rig->core) == changes);
    assert_lengths(b.s, 8, 14, 20);
    goes_on_to_the_end(&b);
}

/* T14 */
TEST(retract_too_little_host_room_fails_cleanly_and_the_session_runs_on)
{
    struct bench b = running(1);
    const struct shortage *sh;
    uint32_t copies = b.rig->copies_back;

    assert_err(TERN_POOL_EXHAUSTED, rig_retract(b.s, RETRACT_HOST, 7));
    sh = &b.rig->last->shortage;
    assert_int_equal(sh->group, 0);
    assert_true(sh->needed > sh->free + sh->evictable);
    assert_int_equal(b.rig->copies_back, copies);
    assert_string_equal(state_of(b.s), "turn");
    assert_int_equal(session_seen(b.s).lengths.allocated, 20);
    assert_int_equal(rig_retiring(b.rig, b.pool), 0);
    assert_int_equal(rig_jobs(b.rig, RIG_COPY), 0);
    goes_on_to_the_end(&b);
}

/* T11, T14: the host has enough to evict, but the step may look at no more records. */
TEST(retract_that_evicts_more_than_a_step_may_is_busy_and_goes_on_when_repeated)
{
    struct bench b = host_bench(4, 32, 2);
    struct request r = {.op = OP_RETRACT, .retract.mode = RETRACT_HOST};
    struct reply reply = {0};
    struct call call = {.req = &r};

    put_away(&b, 1, 8);
    b.rig->automatic = BY_HAND(RIG_SEAL);
    commits(b.s, 2, 8);
    call.session = session_at(b.rig->core, b.s->id.slot);
    call.engine = engine_at(b.rig->core, call.session->engine);
    b.rig->core->visits = STEP_VISITS_MAX;
    assert_int_equal(session_retract(b.rig->core, &call, &reply), TERN_BUSY);
    b.rig->core->visits = 0;
    assert_string_equal(reply.text, MAKING_ROOM);
    assert_string_equal(state_of(b.s), "turn");
    b.rig->automatic = RIG_ALL;
    rig_runs_free(b.rig);
    retracts_to("retracted", b.s, RETRACT_HOST, 0);
    bench_ends_clean(&b);
}

/* T14: the room for the whole path is promised at once; nobody can take it while the copies run. */
TEST(retract_host_room_is_taken_at_once)
{
    struct bench b = host_bench(4, 32, 3);
    struct rig_session *other;

    b.rig->automatic = BY_HAND(RIG_COPY | RIG_SEAL);
    b = running_with(b);
    assert_int_equal(host_free(b.rig, b.pool, 0), 3); /* no checksums yet */
    assert_ok(rig_retract(b.s, RETRACT_HOST, 0));
    assert_int_equal(host_free(b.rig, b.pool, 0), 1);
    assert_int_equal(rig_jobs(b.rig, RIG_COPY), 0); /* no checksum, no copy */
    assert_string_equal(state_of(b.s), "retracting");
    other = rig_session(b.rig, &b.e, b.pool, 1);
    commits_tokens(other, rig_tokens(2, 16), 8);
    assert_err(TERN_POOL_EXHAUSTED, rig_retract(other, RETRACT_HOST, 0));
    assert_string_equal(state_of(other), "turn");
    rig_runs_free(b.rig);
    assert_string_equal(state_of(b.s), "retracted");
    assert_ok(rig_recover_now(b.s));
    assert_ok(rig_close(other, 0));
    goes_on_to_the_end(&b);
}

/* T14 */
TEST(retract_repeated_retract_changes_nothing)
{
    for (uint32_t mode = RETRACT_HOST; mode <= RETRACT_DROP; mode++)
        for (uint32_t again = RETRACT_HOST; again <= RETRACT_DROP; again++) {
            struct bench b = running(32);
            uint64_t changes;

            assert_ok(rig_retract(b.s, mode, 5));
            changes = core_changes(b.rig->core);
            assert_ok(rig_retract(b.s, again, 9)); /* still waits for step 5 */
            assert_true(core_changes(b.rig->core) == changes);
            rig_engine_done(b.rig, &b.e, 5);
            assert_string_equal(state_of(b.s), "retracted");
            changes = core_changes(b.rig->core);
            assert_ok(rig_retract(b.s, again, 9));
            assert_true(core_changes(b.rig->core) == changes);
            assert_given_back(b.rig, 0, 0);
            assert_ok(rig_recover_now(b.s));
            goes_on_to_the_end(&b);
        }
}

/* T14 */
TEST(retract_recover_of_a_running_session_changes_nothing_of_it)
{
    struct bench b = running(32);
    struct lengths before = b.s->len;

    if (rig_recover_now(b.s) == TERN_OK) {
        assert_memory_equal(&before, &b.s->len, sizeof before);
        assert_int_equal(rig_wrong(b.s, 12), 0);
    }
    assert_string_equal(state_of(b.s), "turn");
    assert_int_equal(session_seen(b.s).lengths.allocated, 20);
    bench_ends_clean(&b);
}

/* T14: a recover before the copies have ended, or before the step has passed, runs at once. */
TEST(retract_recover_cancels_a_retract_that_is_not_through)
{
    for (uint32_t done = 0; done <= 2; done++) {
        struct bench b = host_bench(4, 32, 32);

        b.rig->automatic = BY_HAND(RIG_COPY);
        b = running_with(b);
        assert_ok(rig_retract(b.s, RETRACT_HOST, 5));
        for (uint32_t i = 0; i < done; i++)
            rig_complete(b.rig, RIG_COPY);
        assert_string_equal(state_of(b.s), "retracting");
        assert_leaves(rig_recover_now(b.s), b.s, 8, 14, 14);
        assert_string_equal(state_of(b.s), "turn");
        assert_int_equal(session_seen(b.s).ref, REF_DEVICE);
        goes_on(&b);
        rig_engine_done(b.rig, &b.e, 5);
        rig_runs_free(b.rig);
        assert_string_equal(state_of(b.s), "turn"); /* the retract does not resume */
        assert_int_equal(rig_wrong(b.s, 24), 0);
        bench_ends_clean(&b);
    }
}

/* T14: a copy fails while a session waits for it. */
TEST(retract_a_failed_copy_leaves_the_prefix_where_it_is)
{
    for (uint32_t fails = 1; fails <= 2; fails++) {
        struct bench b = host_bench(4, 32, 32);

        b.rig->automatic = BY_HAND(RIG_COPY);
        b = running_with(b);
        assert_ok(rig_retract(b.s, RETRACT_HOST, 0));
        b.rig->copies_to_fail = fails;
        b.rig->copy_err = TERN_CORRUPT;
        rig_runs_free(b.rig);
        assert_int_equal(b.rig->copies_to_fail, 0);
        assert_int_equal(rig_depth(b.s, seq1, 8), 8); /* the device still has it */
        assert_int_equal(rig_evict(b.rig, b.admin, b.pool, 0) > 0 && host_depth(b.s, seq1, 8) < 8,
                         0); /* no page is lost */
        assert_leaves(rig_recover_now(b.s), b.s, 8, 14, 14);
        goes_on_to_the_end(&b);
    }
}

/* T14: a copy that is tried again undoes nothing. One that is given up undoes the retract, which is
 * counted: an engine that still needs the memory repeats the Retract and gets the present state. */
TEST(retract_a_retract_that_is_undone_is_counted_and_may_be_repeated)
{
    for (uint32_t fails = COPY_TRIES_MAX - 1; fails <= COPY_TRIES_MAX; fails++) {
        bool undone = fails == COPY_TRIES_MAX;
        struct bench b = host_bench(4, 32, 32);

        b.rig->automatic = BY_HAND(RIG_COPY);
        b = running_with(b);
        assert_ok(rig_retract(b.s, RETRACT_HOST, 0));
        rig_complete_nth(b.rig, RIG_COPY, 1);
        b.rig->copies_to_fail = fails;
        b.rig->copy_err = TERN_CORRUPT;
        for (uint32_t i = 0; i < fails; i++) {
            assert_string_equal(state_of(b.s), "retracting");
            rig_complete(b.rig, RIG_COPY);
        }
        rig_runs_free(b.rig);
        assert_string_equal(state_of(b.s), undone ? "turn" : "retracted");
        assert_int_equal(rig_view(b.rig).retracts_undone, undone);
        retracts_to("retracted", b.s, RETRACT_HOST, 0);
        assert_int_equal(rig_view(b.rig).retracts, 1 + undone);
        assert_int_equal(rig_view(b.rig).retracts_undone, undone);
        assert_ok(rig_recover_now(b.s)); /* a Recover does not count */
        assert_int_equal(rig_view(b.rig).retracts_undone, undone);
        goes_on_to_the_end(&b);
    }
}

/* A refusal carries the session's lengths, too. */
static void assert_told(const struct rig_session *s, const struct lengths *told)
{
    assert_memory_equal(&s->len, told, sizeof *told);
    assert_true(told->allocated > 0);
}

static void away_is_refused(struct rig_session *s, enum tern_err err)
{
    struct request fetch = {.op = OP_FETCH};
    struct lengths before = s->len;
    uint64_t changes = core_changes(s->rig->core);

    assert_err(err, rig_extend(s, 28, 0, NULL, 0));
    assert_err(err, rig_rewind(s, 8, 0));
    assert_err(err, rig_commit(s, 12, 0));
    assert_err(err, rig_finish(s, 0, 0));
    assert_err(err, rig_slide(s, 0, 0));
    assert_err(err, rig_snapshot_release(s));
    assert_err(err, rig_match(s, seq1, 14));
    assert_true(s->rig->last->text[0] != 0);
    assert_told(s, &s->rig->last->match.lengths);
    assert_int_equal(s->rig->last->match.tokens, s->ntokens);
    fetch.fetch.session = s->id;
    fetch.fetch.peer = PEER_HOST;
    assert_err(err, rig_request(s->rig, s->conn, &fetch)->err);
    assert_true(s->rig->last->text[0] != 0);
    assert_told(s, &s->rig->last->fetch.lengths);
    fetch.fetch.peer = 0;
    assert_err(err, rig_request(s->rig, s->conn, &fetch)->err);
    assert_told(s, &s->rig->last->fetch.lengths);
    assert_true(core_changes(s->rig->core) == changes);
    assert_memory_equal(&before, &s->len, sizeof before);
}

/* T14 */
TEST(retract_a_session_that_is_away_may_only_come_back_or_end)
{
    struct bench b = running(32);
    uint64_t recover;

    retracts_to("retracting", b.s, RETRACT_HOST, 5);
    away_is_refused(b.s, TERN_INVALID);
    rig_engine_done(b.rig, &b.e, 5);
    assert_string_equal(state_of(b.s), "retracted");
    away_is_refused(b.s, TERN_INVALID);
    rig_evict(b.rig, b.admin, b.pool, 0);
    b.rig->automatic = BY_HAND(RIG_COPY);
    recover = rig_recover(b.s);
    assert_err(TERN_BUSY, rig_recovered(b.s, recover));
    assert_string_equal(state_of(b.s), "loading");
    away_is_refused(b.s, TERN_BUSY);
    assert_err(TERN_BUSY, rig_retract(b.s, RETRACT_HOST, 0));
    assert_err(TERN_BUSY, rig_retract(b.s, RETRACT_DROP, 0));
    assert_told(b.s, &b.rig->last->retract.lengths);
    assert_err(TERN_BUSY, rig_reply_to(b.rig, rig_recover(b.s))->err);
    assert_told(b.s, &b.rig->last->recover.lengths);
    assert_int_equal(b.rig->last->recover.tokens, b.s->ntokens);
    assert_string_equal(state_of(b.s), "loading");
    rig_runs_free(b.rig);
    assert_ok(rig_recovered(b.s, recover));
    goes_on_to_the_end(&b);
}

/* T14 */
TEST(retract_stale_and_foreign_sessions)
{
    struct bench b = running(32);
    struct rig_engine other = rig_engine(b.rig, 0, "other", 1);
    struct rig_session stale = *b.s, foreign = *b.s;

    stale.id.gen++;
    foreign.conn = other.conn[0];
    assert_err(TERN_GONE, rig_retract(&stale, RETRACT_DROP, 0));
    assert_err(TERN_GONE, rig_recover_now(&stale));
    assert_int_not_equal(rig_retract(&foreign, RETRACT_DROP, 0), TERN_OK);
    assert_int_not_equal(rig_recover_now(&foreign), TERN_OK);
    assert_string_equal(state_of(b.s), "turn");
    bench_ends_clean(&b);
}

/* Every state in which a session can be away. */
enum away { AWAY_RETRACTING, AWAY_HOST, AWAY_HOST_ONLY, AWAY_LOADING, AWAY_DROP, AWAYS };

static struct bench away(enum away how)
{
    struct bench b = host_bench(4, 32, 32);

    if (how == AWAY_RETRACTING)
        b.rig->automatic = BY_HAND(RIG_COPY);
    b = running_with(b);
    assert_ok(rig_retract(b.s, how == AWAY_DROP ? RETRACT_DROP : RETRACT_HOST, 0));
    if (how == AWAY_HOST_ONLY || how == AWAY_LOADING)
        assert_int_equal(rig_evict(b.rig, b.admin, b.pool, 0), 2);
    if (how == AWAY_LOADING) {
        b.rig->automatic = BY_HAND(RIG_COPY);
        rig_recover(b.s);
        assert_string_equal(state_of(b.s), "loading");
        assert_int_equal(rig_jobs(b.rig, RIG_COPY), 2);
    }
    return b;
}

/* T14 */
TEST(retract_abort_of_a_session_that_is_away)
{
    for (uint32_t how = 0; how < AWAYS; how++) {
        struct bench b = away(how);

        assert_leaves(rig_abort(b.s, 0), b.s, 0, 0, 0);
        assert_string_equal(state_of(b.s), "open");
        assert_int_equal(session_seen(b.s).ref, REF_DEVICE);
        assert_int_equal(rig_group_view(b.rig, b.pool, 0).session, 0);
        rig_runs_free(b.rig);
        computes_up_to(b.s, seq1, 14, 14); /* continues like a new session */
        assert_int_equal(rig_wrong(b.s, 12), 0);
        goes_on_to_the_end(&b);
    }
}

/* T14 */
TEST(retract_close_of_a_session_that_is_away)
{
    for (uint32_t how = 0; how < AWAYS; how++) {
        struct bench b = away(how);

        assert_ok(rig_close(b.s, 3));
        assert_err(TERN_GONE, rig_recover_now(b.s));
        rig_engine_done(b.rig, &b.e, 3);
        assert_int_equal(rig_group_view(b.rig, b.pool, 0).session, 0);
        bench_ends_clean(&b);
    }
}

/* T14 */
TEST(retract_the_engine_dies_while_its_session_is_away)
{
    for (uint32_t how = 0; how < AWAYS; how++) {
        struct bench b = away(how);
        struct core_view v;

        rig_engine_kill(b.rig, &b.e, 0);
        rig_runs_free(b.rig);
        v = rig_view(b.rig);
        assert_int_equal(v.sessions, 0);
        assert_int_equal(v.copies, 0);
        nothing_stays(b.rig, b.admin, b.pool);
    }
}

/* T14: the connection that waited for a Recover is gone: no answer is sent, and no page is lost. */
TEST(retract_the_connection_closes_while_a_recover_waits)
{
    struct bench b = away(AWAY_LOADING);
    uint32_t replies;

    rig_disconnect(b.rig, b.e.conn[0]);
    replies = b.rig->replies_seen;
    rig_runs_free(b.rig);
    assert_int_equal(b.rig->replies_seen, replies);
    rig_proc_gone(b.rig, b.e.proc[0]);
    nothing_stays(b.rig, b.admin, b.pool);
}

/* T14 */
TEST(retract_load_back_without_device_room_leaves_it_retracted)
{
    struct bench b = host_bench(4, 8, 32);
    struct rig_session *hog;
    const struct reply *reply;

    b = running_with(b);
    assert_ok(rig_retract(b.s, RETRACT_HOST, 0));
    assert_int_equal(rig_evict(b.rig, b.admin, b.pool, 0), 2);
    hog = rig_session(b.rig, &b.e, b.pool, 1);
    takes_pages(hog, rig_tokens(2, 64), 24, 24); /* 6 of 8; the other 2 are [T, C) */
    assert_err(TERN_POOL_EXHAUSTED, rig_recover_now(b.s));
    reply = b.rig->last;
    assert_int_equal(reply->shortage.group, 0);
    assert_int_equal(reply->shortage.needed, 2);
    assert_int_equal(reply->shortage.free, 0);
    assert_string_equal(state_of(b.s), "retracted");
    assert_int_equal(rig_jobs(b.rig, RIG_COPY), 0);
    assert_ok(rig_close(hog, 0));
    assert_leaves(rig_recover_now(b.s), b.s, 8, 14, 14);
    goes_on_to_the_end(&b);
}

/* T14: nothing is committed, so nothing is copied and all of [0, C) stays the session's own. */
TEST(retract_host_with_nothing_committed)
{
    struct bench b = host_bench(4, 32, 4);

    computes(b.s, 1, 10);
    assert_leaves(rig_retract(b.s, RETRACT_HOST, 0), b.s, 0, 10, 10);
    assert_int_equal(b.rig->free_now, 0);
    assert_string_equal(state_of(b.s), "retracted");
    assert_int_equal(rig_group_view(b.rig, b.pool, 0).session, 3);
    assert_leaves(rig_recover_now(b.s), b.s, 0, 10, 10);
    goes_on_to_the_end(&b);
}

/* T14 */
TEST(retract_a_fresh_session_can_go_and_come_back)
{
    for (uint32_t mode = RETRACT_HOST; mode <= RETRACT_DROP; mode++) {
        struct bench b = host_bench(4, 32, 4);

        assert_leaves(rig_retract(b.s, mode, 0), b.s, 0, 0, 0);
        assert_ok(rig_recover_now(b.s));
        assert_string_equal(state_of(b.s), "open");
        assert_ok(rig_match(b.s, seq1, 14));
        goes_on_to_the_end(&b);
    }
}

/* T14: a session that is retracted between turns comes back idle, with its last good list. */
TEST(retract_an_idle_session_comes_back_idle)
{
    for (uint32_t i = 0; i < 3; i++) {
        enum retract_mode mode = i == 2 ? RETRACT_DROP : RETRACT_HOST;
        bool evicts = i == 1;
        struct bench b = running(32);

        assert_ok(rig_finish(b.s, 14, 0));
        assert_string_equal(state_of(b.s), "idle");
        retracts_to("retracting", b.s, RETRACT_HOST, 5); /* cancelled */
        assert_ok(rig_recover_now(b.s));
        assert_string_equal(state_of(b.s), "idle");
        b.rig->now_ns += 1000;
        assert_ok(rig_retract(b.s, mode, 0));
        assert_true(session_seen(b.s).ref_since_ns == b.rig->now_ns);
        b.rig->now_ns += 1000;
        if (evicts)
            rig_evict(b.rig, b.admin, b.pool, 0);
        assert_ok(rig_recover_now(b.s));
        assert_string_equal(state_of(b.s), "idle");
        assert_true(session_seen(b.s).last_use_ns == b.rig->now_ns);
        assert_true(session_seen(b.s).ref_since_ns == b.rig->now_ns);
        assert_true(node_seen(b.rig, b.pool, seq1, 8).last_use_ns == b.rig->now_ns);
        assert_int_equal(b.s->ntokens, 14);
        assert_ok(rig_match(b.s, seq1, 20));
        goes_on_to_the_end(&b);
    }
}

/* T14: the step of a commit has not passed: the copy waits for it, and so does the retract. */
TEST(retract_host_waits_for_a_commit_that_is_pending)
{
    struct bench b = host_bench(4, 32, 32);

    computes_tokens(b.s, seq1, 14);
    assert_ok(rig_commit(b.s, 8, 6));
    assert_ok(rig_retract(b.s, RETRACT_HOST, 5));
    rig_engine_done(b.rig, &b.e, 5);
    assert_string_equal(state_of(b.s), "retracting");
    assert_int_equal(b.rig->copies_back, 0);
    rig_engine_done(b.rig, &b.e, 6);
    assert_string_equal(state_of(b.s), "retracted");
    assert_int_equal(b.rig->copies_back, 2);
    assert_int_equal(rig_evict(b.rig, b.admin, b.pool, 0), 2);
    assert_ok(rig_recover_now(b.s));
    goes_on_to_the_end(&b);
}

/* T14: the step that a Retract named ends with that Retract. */
TEST(retract_the_step_of_a_retract_ends_with_it)
{
    for (uint32_t mode = RETRACT_HOST; mode <= RETRACT_DROP; mode++) {
        struct bench b = running(32);

        assert_ok(rig_retract(b.s, mode, 5));
        assert_ok(rig_abort(b.s, 0)); /* step 5 names its pages */
        assert_int_equal(rig_group_view(b.rig, b.pool, 0).session, 0);
        assert_int_equal(rig_retiring(b.rig, b.pool), 3);
        rig_evict(b.rig, b.admin, b.pool, 0); /* what it borrowed retires at that step, too */
        assert_int_equal(rig_depth(b.s, seq1, 8), 8);
        computes(b.s, 5, 14);
        assert_ok(rig_abort(b.s, 0));
        assert_int_equal(rig_retiring(b.rig, b.pool), 3); /* these name no step */
        rig_engine_done(b.rig, &b.e, 5);
        assert_int_equal(rig_retiring(b.rig, b.pool), 0);
        bench_ends_clean(&b);
    }
    for (uint32_t mode = RETRACT_HOST; mode <= RETRACT_DROP; mode++) {
        struct bench b = running(32);

        assert_ok(rig_retract(b.s, mode, 5));
        assert_ok(rig_recover_now(b.s));
        rig_engine_done(b.rig, &b.e, 5);
        retracts_to("retracted", b.s, mode, 0); /* at once: step 5 need not pass again */
        assert_ok(rig_recover_now(b.s));
        goes_on_to_the_end(&b);
    }
}

/* T14: after a Recover the session's requests name their steps, whatever the Retract named. */
TEST(retract_after_a_recover_the_step_is_the_engines_again)
{
    for (uint32_t mode = RETRACT_HOST; mode <= RETRACT_DROP; mode++) {
        struct bench b = running(32);
        uint32_t retiring;

        assert_ok(rig_retract(b.s, mode, 5));
        assert_ok(rig_recover_now(b.s));
        assert_ok(rig_run_to(b.s, seq1, 30));
        retiring = rig_retiring(b.rig, b.pool);
        assert_ok(rig_abort(b.s, 0));
        assert_int_equal(rig_retiring(b.rig, b.pool), retiring);
        rig_engine_done(b.rig, &b.e, 5);
        bench_ends_clean(&b);
    }
}

/* T14: more pages than the retire records can name: BUSY, and nothing has changed. */
TEST(retract_without_a_retire_record_it_is_busy)
{
    struct bench b = running_with(HOST_BENCH_LIMITED(limits.retires = 2, 4, 32, 32));
    uint64_t changes;

    assert_ok(rig_rewind(b.s, 16, 3));
    assert_ok(rig_rewind(b.s, 12, 4));
    assert_ok(rig_extend(b.s, 16, 0, NULL, 0));
    changes = core_changes(b.rig->core);
    assert_err(TERN_BUSY, rig_retract(b.s, RETRACT_DROP, 5));
    assert_err(TERN_BUSY, rig_retract(b.s, RETRACT_HOST, 5));
    assert_true(core_changes(b.rig->core) == changes);
    assert_string_equal(state_of(b.s), "turn");
    assert_err(TERN_INVALID, rig_retract(b.s, 2, 0)); /* no such mode */
    rig_engine_done(b.rig, &b.e, 3);
    assert_ok(rig_retract(b.s, RETRACT_DROP, 5));
    assert_int_equal(rig_view(b.rig).retires_free, 0);
    assert_ok(rig_retract(b.s, RETRACT_DROP, 6)); /* repeated, without a record */
    bench_ends_clean(&b);
}

/* T14: two sessions of one path: each has its own ref, and each finds what the other one loaded. */
TEST(retract_two_sessions_of_one_prefix_go_and_come_back)
{
    struct bench b = running(32);
    struct rig_session *two = rig_session(b.rig, &b.e, b.pool, 1);
    uint64_t first, second;

    matches(two, seq1, 10, 8);
    assert_ok(rig_retract(b.s, RETRACT_HOST, 0));
    assert_int_equal(rig_evict(b.rig, b.admin, b.pool, 0), 0); /* the other session uses it */
    assert_int_equal(rig_wrong(two, 8), 0);
    assert_ok(rig_retract(two, RETRACT_HOST, 0));
    assert_int_equal(node_seen(b.rig, b.pool, seq1, 8).refs[REF_HOST], 2);
    assert_int_equal(rig_evict(b.rig, b.admin, b.pool, 0), 2);
    b.rig->automatic = BY_HAND(RIG_COPY);
    first = rig_recover(b.s);
    second = rig_recover(two);
    assert_int_equal(rig_jobs(b.rig, RIG_COPY), 2); /* one load for both */
    assert_ok(rig_abort(b.s, 0));                   /* the second one still needs it */
    assert_int_equal(rig_jobs(b.rig, RIG_COPY), 2);
    rig_complete(b.rig, RIG_COPY);
    assert_err(TERN_BUSY, rig_recovered(two, second));
    rig_complete(b.rig, RIG_COPY);
    assert_ok(rig_recovered(two, second));
    assert_int_not_equal(rig_recovered(b.s, first), TERN_OK);
    assert_int_equal(rig_wrong(two, 8), 0);
    b.rig->automatic = RIG_ALL;
    assert_ok(rig_close(two, 0));
    bench_ends_clean(&b);
}

/* The text of a refusal is about the request that was refused. */
TEST(retract_a_fetch_of_a_session_that_is_away_is_told_to_recover)
{
    struct bench b = host_bench(4, 64, 16);

    commits(b.s, 1, 8);
    assert_ok(rig_retract(b.s, RETRACT_HOST, 0));
    rig_fetch(b.s, PEER_HOST, 0);
    assert_err(TERN_INVALID, rig_reply_to(b.rig, b.s->fetch)->err);
    assert_non_null(strstr(rig_reply_to(b.rig, b.s->fetch)->text, "Recover"));
}

TEST(retract_a_recover_of_a_session_that_is_coming_back_busy)
{
    struct bench b = host_bench(4, 64, 16);
    uint64_t first;

    commits(b.s, 1, 8);
    assert_ok(rig_retract(b.s, RETRACT_HOST, 0));
    demote_pool(b.rig, b.pool);
    b.rig->automatic = BY_HAND(RIG_COPY);
    first = rig_recover(b.s);
    assert_err(TERN_BUSY, rig_reply_to(b.rig, rig_recover(b.s))->err);
    complete_all(b.rig, RIG_COPY);
    assert_ok(rig_recovered(b.s, first));
    assert_int_equal(rig_wrong(b.s, 8), 0);
}

/* An answer that is sent later has the trace id of its own request. */
TEST(retract_a_recover_that_waits_has_the_trace_id_of_its_request)
{
    struct bench b = running(32);
    struct request recover = {.op = OP_RECOVER, .trace_id = 0x7ace, .recover.session = b.s->id};

    assert_ok(rig_retract(b.s, RETRACT_HOST, 0));
    assert_int_equal(rig_evict(b.rig, b.admin, b.pool, 0), 2);
    b.rig->automatic = BY_HAND(RIG_COPY);
    assert_null(rig_request(b.rig, b.s->conn, &recover));
    complete_all(b.rig, RIG_COPY);
    assert_true(rig_reply_to(b.rig, recover.request_id)->trace_id == 0x7ace);
    assert_ok(rig_recovered(b.s, recover.request_id));
    bench_ends_clean(&b);
}

/* More sessions wait for one copy than a step can answer: the rest is answered at once, without
 * another event. */
TEST(retract_more_recover_at_once_than_a_step_can_answer)
{
    struct rig_options o = rig_defaults();
    struct rig_session *s[ACTIONS_MAX + 2];
    uint64_t request[ACTIONS_MAX + 2];
    struct bench b;

    o.limits.sessions = o.tenant[0].sessions_max = 2 * ACTIONS_MAX;
    o.limits.retires = 4 * ACTIONS_MAX;
    b = host_bench_with(&o, 4, 32, 32);
    rig_put(b.rig, &b.e, b.pool, 1, 4);
    for (uint32_t i = 0; i < ACTIONS_MAX + 2; i++) {
        s[i] = session_with(b.rig, &b.e, b.pool, 1, 6);
        assert_ok(rig_retract(s[i], RETRACT_HOST, 0));
    }
    assert_int_equal(rig_evict(b.rig, b.admin, b.pool, 0), 1);
    b.rig->automatic = BY_HAND(RIG_COPY);
    for (uint32_t i = 0; i < ACTIONS_MAX + 2; i++)
        request[i] = rig_recover(s[i]);
    assert_int_equal(rig_jobs(b.rig, RIG_COPY), 1);
    rig_complete(b.rig, RIG_COPY);
    for (uint32_t i = 0; i < ACTIONS_MAX + 2; i++) {
        assert_ok(rig_recovered(s[i], request[i]));
        assert_ok(rig_close(s[i], 0));
    }
    bench_ends_clean(&b);
}
