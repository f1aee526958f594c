/* T20: a session that recovers from the host tier, or fetches from it, takes its path in pieces.
 * Whatever happens between two pieces, an ended load leaves nothing behind: each case is played
 * once for each step that the load takes, with pieces of one visit, and audited after each step. */
#include "unit/rig/rig_host.h"

#include "core/session/record.h"

#define CHUNKS 9 /* of four tokens */
#define TOKENS (4 * CHUNKS)
#define PAGES  32 /* pages of the device, for each group */

enum way { RECOVER, FETCH, WAYS };
enum cut { NOTHING, CANCEL, ABORT, CLOSE, KILL, RESET, LOSS, EVICT, PRESSURE, LEAVE, POOL, CUTS };

struct trial {
    struct bench b;
    struct rig_session *other;
    enum cut cut;
    uint32_t steps, cut_at;
    uint64_t request;
    bool done;
};

static void cut(struct trial *t)
{
    struct bench *b = &t->b;

    switch (t->cut) {
    case CANCEL: rig_fetch_cancel(b->s); break;
    case ABORT: rig_abort(b->s, 0); break;
    case CLOSE: rig_close(b->s, 0); break;
    case KILL: rig_engine_kill(b->rig, &b->e, 0); break;
    case RESET: assert_ok(rig_reset(b->rig, b->e.conn[0], 1, NULL)); break;
    case LOSS: b->rig->copies_to_fail = 1; break;
    case EVICT: rig_evict(b->rig, b->admin, b->pool, 0); break;
    case PRESSURE: rig_run_to(t->other, rig_tokens(2, TOKENS), TOKENS); break;
    case POOL: rig_pool_close(b->rig, b->e.conn[0], b->pool); break;
    case LEAVE: rig_disconnect(b->rig, b->e.conn[0]); break;
    case NOTHING:
    case CUTS: break;
    }
}

static void note_step(void *ctx, const struct event *event)
{
    struct trial *t = ctx;

    (void)event;
    if (t->done || session_at(t->b.rig->core, t->b.s->id.slot)->state != SESSION_LOADING ||
        t->steps++ != t->cut_at)
        return;
    t->done = true;
    cut(t);
}

/* The session's path is only on the host. */
static struct trial trial_begin(enum way way, enum cut cut, uint32_t window)
{
    const struct group_layout groups[2] = {rig_group(4, 512), rig_window(4, window, 512)};
    struct trial t = {.cut = cut};
    struct bench *b = &t.b;

    b->rig = rig_create(NULL);
    b->rig->copy_err = TERN_INTERNAL;
    b->rig->host_bytes = 512 * 2 * (2 * CHUNKS + 2);
    b->e = rig_engine(b->rig, 0, "e", 1);
    assert_ok(rig_pool_open(b->rig, b->e.conn[0], groups, window ? 2 : 1,
                            512ull * (window ? 2 : 1) * PAGES, &b->pool));
    b->admin = rig_connect_admin(b->rig);
    b->s = rig_session(b->rig, &b->e, b->pool, 1);
    t.other = rig_session(b->rig, &b->e, b->pool, 2);
    assert_ok(rig_match(t.other, rig_tokens(2, TOKENS), TOKENS));
    if (way == FETCH) {
        put_away(b, 1, TOKENS);
        assert_ok(rig_match(b->s, seq1, TOKENS));
    } else {
        assert_ok(rig_match(b->s, seq1, TOKENS));
        assert_ok(rig_run_to(b->s, seq1, TOKENS));
        while (b->s->len.committed < TOKENS)
            rig_commit(b->s, TOKENS, 0);
        assert_ok(rig_retract(b->s, RETRACT_HOST, 0));
        assert_string_equal(state_of(b->s), "retracted");
        evicts(b, 0);
    }
    assert_false(on_device(b, 1, 4));
    b->rig->core->limits.give_back_visits = 1; /* from now on */
    return t;
}

/* Whatever was cut, the session is whole in the end or is gone, and no page stays in use. */
static void trial_ends(struct trial *t, enum way way)
{
    struct bench *b = &t->b;
    const struct core *c = b->rig->core;
    uint64_t request = t->request;

    b->rig->on_event = NULL;
    b->rig->copies_to_fail = 0;
    rig_runs_free(b->rig);
    assert_int_equal(c->copies_come.n, 0);
    if (t->cut == KILL || t->cut == LEAVE) {
        rig_proc_gone(b->rig, b->e.proc[0]);
        nothing_stays(b->rig, b->admin, b->pool);
        return;
    }
    if (t->cut == PRESSURE || t->cut == EVICT)
        assert_ok(rig_abort(t->other, 0));
    if (t->cut != CLOSE && t->cut != ABORT && t->cut != RESET && t->cut != POOL) {
        for (uint32_t i = 0; i < 64; i++) {
            enum tern_err err =
                way == RECOVER ? rig_recovered(b->s, request) : rig_fetched(b->s, request);

            assert_true(err == TERN_OK || rig_reply_to(b->rig, request));
            assert_true(err == TERN_OK || t->cut != NOTHING);
            if (err == TERN_OK)
                break;
            request = way == RECOVER ? rig_recover(b->s) : rig_fetch(b->s, PEER_HOST, 0);
        }
        assert_lengths(b->s, TOKENS, TOKENS, TOKENS);
        assert_int_equal(rig_wrong(b->s, TOKENS), 0);
    }
    rig_runs_free(b->rig);
    if (session_at(c, b->s->id.slot)->gen == b->s->id.gen &&
        session_at(c, b->s->id.slot)->state != SESSION_EMPTY)
        assert_ok(rig_close(b->s, 0));
    assert_ok(rig_close(t->other, 0));
    nothing_stays(b->rig, b->admin, b->pool);
}

/* Returns false if the load took fewer steps than `at`. */
static bool trial(enum way way, enum cut cut, uint32_t window, uint32_t at)
{
    struct trial t = trial_begin(way, cut, window);

    t.cut_at = at;
    t.b.rig->on_event = note_step;
    t.b.rig->on_event_ctx = &t;
    t.request = way == RECOVER ? rig_recover(t.b.s) : rig_fetch(t.b.s, PEER_HOST, 0);
    trial_ends(&t, way);
    rig_destroy_all();
    return t.done;
}

static void cut_at_each_step(enum cut cut)
{
    static const uint32_t windows[] = {0, TOKENS};

    for (uint32_t w = 0; w < 2; w++)
        for (uint32_t way = 0; way < WAYS; way++) {
            uint32_t at = 0;

            while (trial(way, cut, windows[w], at))
                at++;
            assert_true(at > 4 * CHUNKS); /* the load takes many steps */
        }
}

TEST(host_a_load_takes_its_path_in_pieces)
{
    cut_at_each_step(NOTHING);
}

TEST(host_a_load_is_cancelled_between_two_pieces)
{
    cut_at_each_step(CANCEL);
}

TEST(host_a_session_is_aborted_between_two_pieces_of_its_load)
{
    cut_at_each_step(ABORT);
}

TEST(host_a_session_is_closed_between_two_pieces_of_its_load)
{
    cut_at_each_step(CLOSE);
}

TEST(host_an_engine_dies_between_two_pieces_of_a_load)
{
    cut_at_each_step(KILL);
}

TEST(host_a_connection_closes_between_two_pieces_of_its_load)
{
    cut_at_each_step(LEAVE);
}

TEST(host_a_namespace_is_reset_between_two_pieces_of_a_load)
{
    cut_at_each_step(RESET);
}

TEST(host_a_pool_is_closed_between_two_pieces_of_a_load)
{
    cut_at_each_step(POOL);
}

TEST(host_a_copy_fails_between_two_pieces_of_a_load)
{
    cut_at_each_step(LOSS);
}

TEST(host_an_operator_evicts_between_two_pieces_of_a_load)
{
    cut_at_each_step(EVICT);
}

TEST(host_others_take_pages_between_two_pieces_of_a_load)
{
    cut_at_each_step(PRESSURE);
}
