/* Requests and answers of libtern when a session is retracted and recovered: retract, recover,
 * fetches from the host tier, depths, namespace resets. The daemon is scripted; a real one answers
 * such requests in the end-to-end tests. */
#include <stdatomic.h>

#include "unit/rig/rig_client.h"

/* ---- retract ---- */

/* Session 1: DROP at step 9. 2: the host tier is full. Others: the status alone. */
static void serve_retract(struct fake *f)
{
    const ProtobufCMessage *msg;

    while ((msg = fake_read(f))) {
        const Tern__Wire__Retract *ask = (const Tern__Wire__Retract *)msg;
        Tern__Wire__RetractReply m = TERN__WIRE__RETRACT_REPLY__INIT;
        Tern__Wire__Lengths lengths = fake_lengths(64, 65, 66);
        Tern__Wire__Shortage shortage = fake_shortage();
        Tern__Wire__Status status =
            fake_status(TERN_POOL_EXHAUSTED, "the host tier is full", &shortage);

        check(f->h.type == FRAME_RETRACT);
        if (f->h.session > 2) {
            fake_reply_err(f, TERN_GONE, NULL);
            continue;
        }
        check(ask->mode == (f->h.session == 1 ? TERN_RETRACT_DROP : TERN_RETRACT_HOST));
        check(ask->step == (f->h.session == 1 ? 1ull << 50 : 0));
        m.lengths = &lengths;
        m.has_free_now = m.has_free_at_step = 1;
        m.free_now = 5;
        m.free_at_step = 1u << 20;
        if (f->h.session == 2)
            m.status = &status;
        fake_reply(f, &m);
    }
}

TEST(retract_tells_lengths_and_pages)
{
    struct tern_retracted r = {.free_now = 99, .shortage.needed = 99};

    start(serve_retract, NULL);
    assert_ok(tern_retract(t, 1, TERN_RETRACT_DROP, 1ull << 50, 2000, &r));
    assert_told_lengths(&r, 64, 65, 66);
    assert_int_equal(r.free_now, 5);
    assert_int_equal(r.free_at_step, 1u << 20);
    assert_int_equal(r.shortage.needed, 0);
}

TEST(retract_error_tells_what_holds)
{
    struct tern_retracted r = {.free_now = 99};

    start(serve_retract, NULL);
    assert_err(TERN_POOL_EXHAUSTED,
               tern_retract(t, 2, TERN_RETRACT_HOST, TERN_STEP_NONE, 2000, &r));
    assert_string_equal(tern_error_text(t, NULL), "the host tier is full");
    assert_int_equal(r.lengths.allocated, 66);
    assert_shortage_told(&r.shortage);
    assert_err(TERN_GONE, tern_retract(t, 3, TERN_RETRACT_HOST, TERN_STEP_NONE, 2000, &r));
    assert_int_equal(r.lengths.allocated, 0); /* such an answer has no lengths */
}

static void serve_silence(struct fake *f)
{
    while (fake_read(f))
        ;
}

TEST(retract_without_an_answer_leaves_the_result)
{
    struct tern_retracted r = {.free_now = 99};

    start(serve_silence, NULL);
    assert_err(TERN_TIMED_OUT, tern_retract(t, 1, TERN_RETRACT_DROP, TERN_STEP_NONE, 30, &r));
    assert_int_equal(r.free_now, 99);
}

/* ---- recover ---- */

/* A table that is a function of the session. */
static void reply_recovered(struct fake *f)
{
    Tern__Wire__RecoverReply m = TERN__WIRE__RECOVER_REPLY__INIT;
    uint32_t tag = (uint32_t)f->h.session;
    struct tern_page pages[2] = {{tag, 7}, {tag + 1, 8}};
    Tern__Wire__Lengths lengths = fake_lengths(tag, tag, tag);
    Tern__Wire__Run run = fake_run(1, tag + 5, pages, 2), *runs[1] = {&run};

    m.lengths = &lengths;
    m.has_tokens = m.has_kib = 1;
    m.tokens = tag + 2;
    m.kib = tag + 3;
    m.n_runs = 1;
    m.runs = runs;
    fake_reply(f, &m);
}

static void assert_recovered(const struct tern_result *r, uint32_t tag)
{
    assert_ok(r->err);
    assert_told_lengths(r, tag, tag, tag);
    assert_int_equal(r->tokens, tag + 2);
    assert_int_equal(r->fetched_kib, tag + 3);
    assert_int_equal(r->matched, 0);
    assert_int_equal(r->nruns, 1);
    assert_run(&r->runs[0], 1, tag + 5, 2);
    assert_int_equal(r->runs[0].pages[1].index, tag + 1);
    assert_int_equal(r->runs[0].pages[1].generation, 8);
}

#define NO_ROOM                                                                                    \
    "tern_recover: group 1 needs 2 pages, and 3 are free, 4 evictable and 5 retiring, in memory "  \
    "that the request's other groups need, too; retry when all ranks have passed step 6"

/* Answers Recovers in reverse order when a Ping comes; session 13 is refused. */
static void serve_recover(struct fake *f)
{
    struct frame_header held[TERN_INFLIGHT_MAX], ping;
    uint32_t n = 0;

    while (fake_read(f)) {
        if (f->h.type == FRAME_RECOVER && f->h.session == 13) {
            Tern__Wire__RecoverReply m = TERN__WIRE__RECOVER_REPLY__INIT;
            Tern__Wire__Shortage shortage = fake_shortage();
            Tern__Wire__Status full = fake_status(TERN_POOL_EXHAUSTED, "no room", &shortage);

            shortage.until_step = 6;
            m.status = &full;
            fake_reply(f, &m);
        } else if (f->h.type == FRAME_RECOVER && f->h.session < 100) {
            reply_recovered(f);
        } else if (f->h.type == FRAME_RECOVER) {
            check(n < TERN_INFLIGHT_MAX);
            held[n++] = f->h;
        } else {
            check(f->h.type == FRAME_PING);
            ping = f->h;
            while (n > 0) {
                f->h = held[--n];
                reply_recovered(f);
            }
            f->h = ping;
            fake_reply_empty(f);
        }
    }
}

TEST(recover_tells_the_whole_table)
{
    struct tern_result r;

    start(serve_recover, NULL);
    assert_ok(tern_recover(t, 5, 2000, &r));
    assert_recovered(&r, 5);
    assert_err(TERN_POOL_EXHAUSTED, tern_recover(t, 13, 2000, &r));
    assert_err(TERN_POOL_EXHAUSTED, r.err);
    assert_string_equal(tern_error_text(t, NULL), NO_ROOM);
    assert_ok(tern_recover(t, 6, 2000, &r));
    assert_recovered(&r, 6);
}

TEST(recover_submitted_is_handed_out_by_poll)
{
    struct tern_answer answer;

    start(serve_recover, NULL);
    for (uint32_t i = 0; i < 4; i++)
        assert_ok(tern_submit_recover(t, 100 + i, 1000 + i));
    assert_ok(tern_ping(t, 2000)); /* their answers come earlier, and are kept */
    for (uint32_t i = 4; i-- > 0;) {
        answer = polled();
        assert_int_equal(answer.cookie, 1000 + i);
        assert_ok(answer.err);
        assert_int_equal(answer.n, 1);
        assert_recovered(&answer.results[0], 100 + i);
    }
    assert_ok(tern_submit_recover(t, 13, 77));
    answer = polled();
    assert_int_equal(answer.cookie, 77);
    assert_err(TERN_POOL_EXHAUSTED, answer.err);
    assert_err(TERN_POOL_EXHAUSTED, answer.results[0].err);
    assert_string_equal(tern_error_text(t, NULL), NO_ROOM);
    assert_string_equal(tern_error_text(t, &answer.results[0]), NO_ROOM); /* it is no batch's */
}

static void serve_recover_never_answered(struct fake *f)
{
    struct frame_header recover;

    check(fake_read(f) != NULL && f->h.type == FRAME_RECOVER);
    recover = f->h;
    check(fake_read(f) != NULL && f->h.type == FRAME_FETCH_CANCEL &&
          f->h.session == recover.session);
    atomic_store((atomic_int *)f->ctx, 1);
    usleep(500000); /* until the call has returned */
    fake_reply_empty(f);
    f->h = recover;
    fake_reply_err(f, TERN_GONE, NULL);
    while (fake_read(f))
        fake_reply_empty(f);
}

TEST(recover_deadline_passes_cancelled_and_forgotten)
{
    atomic_int cancelled = 0;
    struct tern_result r = {.tokens = 99};

    start(serve_recover_never_answered, &cancelled);
    assert_err(TERN_TIMED_OUT, tern_recover(t, 5, 30, &r));
    assert_int_equal(r.tokens, 99);
    assert_string_not_equal(tern_error_text(t, NULL), "");
    assert_ok(tern_ping(t, 2000)); /* drops both late answers on the way */
    assert_int_equal(atomic_load(&cancelled), 1);
}

static void serve_recover_cancelled(struct fake *f)
{
    Tern__Wire__RecoverReply m = TERN__WIRE__RECOVER_REPLY__INIT;
    Tern__Wire__Status gone = fake_status(TERN_GONE, "it was cancelled", NULL);
    Tern__Wire__Lengths lengths = fake_lengths(64, 64, 64);
    struct frame_header recover;

    check(fake_read(f) != NULL && f->h.type == FRAME_RECOVER);
    recover = f->h;
    check(fake_read(f) != NULL && f->h.type == FRAME_FETCH_CANCEL);
    fake_reply_empty(f);
    f->h = recover;
    m.status = &gone;
    m.lengths = &lengths;
    m.has_tokens = 1;
    m.tokens = 100;
    fake_reply(f, &m);
    (void)fake_read(f);
}

TEST(recover_deadline_nears_cancelled_and_retracted_as_before)
{
    struct tern_result r = {0};

    start(serve_recover_cancelled, NULL);
    assert_err(TERN_TIMED_OUT, tern_recover(t, 5, 1600, &r));
    assert_non_null(strstr(tern_error_text(t, NULL), "is still retracted"));
    assert_int_equal(r.nruns, 0);
}

static void serve_nonsense(struct fake *f)
{
    static const uint8_t body[] = {0x22, 0x7f}; /* a run that is longer than its answer */
    uint8_t frame[FRAME_HEADER_BYTES + sizeof body];
    struct frame_header h = {
        .length = sizeof body, .version = FRAME_VERSION, .type = FRAME_RECOVER_REPLY};

    check(fake_read(f) != NULL);
    h.request_id = f->h.request_id;
    frame_encode(&h, frame);
    memcpy(frame + FRAME_HEADER_BYTES, body, sizeof body);
    fake_write(f, frame, sizeof frame);
    while (fake_read(f))
        ;
}

TEST(recover_answer_is_nonsense_connection_ends_typed)
{
    for (int submitted = 0; submitted < 2; submitted++) {
        struct tern_result r;

        start(serve_nonsense, NULL);
        if (submitted) {
            assert_ok(tern_submit_recover(t, 1, 5));
            assert_err(TERN_MALFORMED, polled().err);
        } else {
            assert_err(TERN_MALFORMED, tern_recover(t, 1, 2000, &r));
        }
        assert_err(TERN_DAEMON_LOST, tern_ping(t, 100));
        stop();
    }
}

/* ---- the rest ---- */

/* Session 1: at most 64 tokens. 2: the daemon has no disk. */
static void serve_store(struct fake *f, const Tern__Wire__Store *ask)
{
    Tern__Wire__Status status = fake_status(TERN_UNSUPPORTED, "no disk tier", NULL);
    Tern__Wire__StoreReply m = TERN__WIRE__STORE_REPLY__INIT;

    m.has_depth = m.has_written = f->h.session == 1;
    m.depth = ask->has_depth && ask->depth ? ask->depth / 16 * 16 : 64;
    m.written = 5ull << 32;
    if (f->h.session == 2)
        m.status = &status;
    fake_reply(f, &m);
}

static void serve_requests(struct fake *f)
{
    static const char *const sources[] = {"?", "", "west", "/disk"}; /* by session */
    const ProtobufCMessage *msg;

    while ((msg = fake_read(f))) {
        if (f->h.type == FRAME_FETCH) {
            Tern__Wire__FetchReply m = TERN__WIRE__FETCH_REPLY__INIT;
            Tern__Wire__Status late = fake_status(TERN_TIMED_OUT, "late", NULL);
            Tern__Wire__Lengths lengths = fake_lengths(16, 16, 16);
            const Tern__Wire__Fetch *fetch = (const Tern__Wire__Fetch *)msg;

            check(fetch->peer && strcmp(fetch->peer, sources[f->h.session]) == 0);
            check(fetch->prefetch == (fetch->depth == 63));
            if (fetch->at_least) {
                check(fetch->at_least == 48 && fetch->wait_ms == 1500 && fetch->step == 9);
                m.status = &late;
                m.lengths = &lengths;
                m.has_tokens = 1;
                m.tokens = 64;
            }
            m.has_kib = 1;
            m.kib = 6;
            fake_reply(f, &m);
        } else if (f->h.type == FRAME_STORE) {
            serve_store(f, (const Tern__Wire__Store *)msg);
        } else if (f->h.type == FRAME_PEEK) {
            Tern__Wire__PeekReply m = TERN__WIRE__PEEK_REPLY__INIT;

            m.has_depth = m.has_history_depth = m.has_host_depth = m.has_disk_depth = 1;
            m.disk_depth = 2048;
            m.depth = 64;
            m.history_depth = 128;
            m.host_depth = 1024;
            fake_reply(f, &m);
        } else if (f->h.type == FRAME_NAMESPACE_RESET) {
            const Tern__Wire__Namespace *ns = ((const Tern__Wire__NamespaceReset *)msg)->ns;
            Tern__Wire__NamespaceResetReply m = TERN__WIRE__NAMESPACE_RESET_REPLY__INIT;

            check(ns && strcmp(ns->model, "m") == 0 && strcmp(ns->revision, "7") == 0);
            m.has_nodes = 1;
            m.nodes = 300;
            fake_reply(f, &m);
        } else {
            const Tern__Wire__PoolOpen *open = (const Tern__Wire__PoolOpen *)msg;
            Tern__Wire__PoolOpenReply m = TERN__WIRE__POOL_OPEN_REPLY__INIT;

            check(f->h.type == FRAME_POOL_OPEN);
            m.has_pool = 1; /* the answer has the request's fields, for the test */
            m.pool = open->has_host_bytes ? open->host_bytes : UINT64_MAX;
            fake_reply(f, &m);
        }
    }
}

TEST(fetch_that_came_too_short_says_how_far_it_got)
{
    struct tern_result r;

    start(serve_requests, NULL);
    assert_err(
        TERN_TIMED_OUT,
        tern_fetch(t, 2,
                   &(struct tern_fetch){.peer = "west", .at_least = 48, .depth = 64, .step = 9},
                   2000, &r));
    assert_string_equal(tern_error_text(t, NULL),
                        "late; the session has committed 16 and written 16 of 64 tokens");
    assert_int_equal(r.tokens, 64);
}

TEST(fetch_without_a_peer_is_from_the_host_tier)
{
    struct tern_answer answer;
    struct tern_result r;

    start(serve_requests, NULL);
    assert_ok(
        tern_fetch(t, 1, &(struct tern_fetch){.depth = 64, .step = TERN_STEP_NONE}, 2000, &r));
    assert_int_equal(r.fetched_kib, 6);
    assert_ok(tern_fetch(
        t, 2, &(struct tern_fetch){.peer = "west", .depth = 64, .step = TERN_STEP_NONE}, 2000, &r));
    assert_ok(tern_fetch(
        t, 2,
        &(struct tern_fetch){.peer = "west", .depth = 63, .step = TERN_STEP_NONE, .prefetch = true},
        2000, &r));
    assert_err(TERN_INVALID,
               tern_fetch(t, 1,
                          &(struct tern_fetch){
                              .peer = "", .depth = 63, .step = TERN_STEP_NONE, .prefetch = true},
                          2000, &r));
    assert_ok(tern_submit_fetch(
        t, 2,
        &(struct tern_fetch){.peer = "west", .depth = 63, .step = TERN_STEP_NONE, .prefetch = true},
        4));
    answer = polled();
    assert_int_equal(answer.cookie, 4);
    assert_ok(answer.err);
    assert_err(TERN_INVALID,
               tern_fetch(t, 1,
                          &(struct tern_fetch){.peer = "", .depth = 64, .step = TERN_STEP_NONE},
                          2000, &r));
    assert_err(TERN_INVALID,
               tern_submit_fetch(
                   t, 1, &(struct tern_fetch){.peer = "", .depth = 64, .step = TERN_STEP_NONE}, 5));
    assert_ok(
        tern_submit_fetch(t, 1, &(struct tern_fetch){.depth = 64, .step = TERN_STEP_NONE}, 5));
    answer = polled();
    assert_int_equal(answer.cookie, 5);
    assert_ok(answer.err);
    assert_int_equal(answer.results[0].fetched_kib, 6);
}

TEST(fetch_from_the_disk_names_it)
{
    struct tern_answer answer;
    struct tern_result r;

    start(serve_requests, NULL);
    assert_ok(tern_fetch(
        t, 3, &(struct tern_fetch){.peer = TERN_PEER_DISK, .depth = 64, .step = TERN_STEP_NONE},
        2000, &r));
    assert_int_equal(r.fetched_kib, 6);
    assert_ok(tern_submit_fetch(
        t, 3, &(struct tern_fetch){.peer = TERN_PEER_DISK, .depth = 64, .step = TERN_STEP_NONE},
        5));
    answer = polled();
    assert_ok(answer.err);
}

TEST(store_tells_depth_and_bytes)
{
    struct tern_stored r = {.depth = 99};

    start(serve_requests, NULL);
    assert_ok(tern_store(t, 1, 0, 2000, &r));
    assert_int_equal(r.depth, 64);
    assert_true(r.written == 5ull << 32);
    assert_ok(tern_store(t, 1, 47, 2000, &r));
    assert_int_equal(r.depth, 32);
    assert_err(TERN_UNSUPPORTED, tern_store(t, 2, 47, 2000, &r));
    assert_string_equal(tern_error_text(t, NULL), "no disk tier");
    assert_int_equal(r.depth, 32); /* unchanged */
}

static const uint8_t endless[] = {0x0a, 0x7f}; /* a status that is longer than its answer */

static void serve_nonsense_of_a_store(struct fake *f)
{
    uint8_t frame[FRAME_HEADER_BYTES + sizeof endless];
    struct frame_header h = {
        .length = sizeof endless, .version = FRAME_VERSION, .type = FRAME_STORE_REPLY};

    check(fake_read(f) != NULL && f->h.type == FRAME_STORE);
    h.request_id = f->h.request_id;
    frame_encode(&h, frame);
    memcpy(frame + FRAME_HEADER_BYTES, endless, sizeof endless);
    fake_write(f, frame, sizeof frame);
    while (fake_read(f))
        ;
}

TEST(store_submitted_is_handed_out_by_poll)
{
    struct tern_answer answer;
    struct tern_stored r;

    start(serve_requests, NULL);
    assert_ok(tern_submit_store(t, 1, 47, 5));
    assert_ok(tern_submit_store(t, 2, 47, 6));
    assert_ok(
        tern_submit_fetch(t, 1, &(struct tern_fetch){.depth = 64, .step = TERN_STEP_NONE}, 7));
    assert_ok(tern_store(t, 1, 0, 2000, &r)); /* the other answers come earlier, and are kept */
    assert_int_equal(r.depth, 64);
    answer = polled();
    assert_int_equal(answer.cookie, 5);
    assert_ok(answer.err);
    assert_int_equal(answer.n, 1);
    assert_ok(answer.results[0].err);
    assert_int_equal(answer.stored.depth, 32);
    assert_true(answer.stored.written == 5ull << 32);
    answer = polled();
    assert_int_equal(answer.cookie, 6);
    assert_err(TERN_UNSUPPORTED, answer.err);
    assert_err(TERN_UNSUPPORTED, answer.results[0].err);
    assert_string_equal(tern_error_text(t, NULL), "no disk tier");
    assert_int_equal(answer.stored.depth, 0);
    assert_true(answer.stored.written == 0);
    answer = polled();
    assert_int_equal(answer.results[0].fetched_kib, 6);
    assert_int_equal(answer.stored.depth, 0);
    stop();

    start(serve_nonsense_of_a_store, NULL);
    assert_ok(tern_submit_store(t, 1, 0, 5));
    answer = polled();
    assert_err(TERN_MALFORMED, answer.err);
    assert_int_equal(answer.n, 0);
    assert_err(TERN_DAEMON_LOST, tern_ping(t, 100));
}

TEST(peek_returns_all_depths)
{
    struct tern_namespace ns = {.model = "m"};
    struct tern_depths d;

    start(serve_requests, NULL);
    assert_ok(tern_peek(t, 1, &ns, &some_tokens, 2000, &d));
    assert_int_equal(d.resumable, 64);
    assert_int_equal(d.history, 128);
    assert_int_equal(d.host, 1024);
    assert_int_equal(d.disk, 2048);
}

TEST(namespace_reset_tells_nodes_that_are_held)
{
    struct tern_namespace ns = {.model = "m", .revision = "7"};
    uint32_t nodes = 0;

    start(serve_requests, NULL);
    assert_ok(tern_namespace_reset(t, &ns, 2000, &nodes, NULL));
    assert_int_equal(nodes, 300);
    assert_ok(tern_namespace_reset(t, &ns, 2000, NULL, NULL));
    assert_err(TERN_INVALID, tern_namespace_reset(t, NULL, 2000, &nodes, NULL));
}

TEST(pool_open_asks_for_the_host_tier)
{
    struct tern_group group = {.name = "kv", .page_tokens = 64, .page_bytes = 4096};
    struct tern_layout layout = {.groups = &group, .ngroups = 1, .bytes = 1u << 20};
    uint64_t pool = 0;

    start(serve_requests, NULL);
    assert_ok(tern_pool_open(t, &layout, 2000, &pool, NULL));
    assert_true(pool == UINT64_MAX); /* none, as in an older client's request */
    layout.host_bytes = 1ull << 40;
    assert_ok(tern_pool_open(t, &layout, 2000, &pool, NULL));
    assert_true(pool == 1ull << 40);
}
