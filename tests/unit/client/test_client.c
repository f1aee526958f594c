/* libtern's calls against a daemon that the test scripts: deadlines, answers cut at every offset,
 * lost connections, the asynchronous form. The bytes of answers are in test_client_wire.c, pools in
 * test_client_pool.c. */
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <time.h>

#include "unit/rig/rig_client.h"

#define ENDS_MS  10000 /* for a call of 50 ms, on a machine that is stalled */
#define COMES_MS 30000 /* for an answer that must come */

static uint64_t now_ms(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000u + (uint64_t)ts.tv_nsec / 1000000u;
}

static void on_alarm(int signal)
{
    (void)signal;
}

/* ---- connecting ---- */

static void connect_refused(enum tern_err err, const char *text)
{
    fake_start(&fake, NULL, NULL);
    assert_err(err, tern_connect(fake.path, 2000, &t));
    assert_null(t);
    assert_string_equal(tern_error_text(NULL, NULL), text);
    fake_stop(&fake);
}

TEST(connect_version_differs_unsupported)
{
    fake.version = 77;
    fake_start(&fake, NULL, NULL);
    assert_err(TERN_UNSUPPORTED, tern_connect(fake.path, 2000, &t));
    assert_null(t);
}

TEST(connect_daemon_refuses_its_error)
{
    fake.hello_err = TERN_DENIED;
    fake.hello_text = "no, and here is why";
    connect_refused(TERN_DENIED, "no, and here is why");
    fake.hello_text = NULL;
    connect_refused(TERN_DENIED, tern_strerror(TERN_DENIED));
    fake.hello_err = 0;
    start(NULL, NULL);
    assert_string_equal(tern_error_text(NULL, NULL), "");
}

static _Thread_local bool sends_late; /* only after the other side has closed */

ssize_t __real_send(int fd, const void *bytes, size_t n, int flags);
ssize_t __wrap_send(int fd, const void *bytes, size_t n, int flags);

ssize_t __wrap_send(int fd, const void *bytes, size_t n, int flags)
{
    struct pollfd ended = {.fd = fd, .events = POLLRDHUP};

    if (sends_late)
        check(poll(&ended, 1, -1) == 1);
    return __real_send(fd, bytes, n, flags);
}

static _Thread_local uint32_t polls; /* of the test's thread; the daemon's has its own */

int __real_poll(struct pollfd *fds, nfds_t n, int ms);
int __wrap_poll(struct pollfd *fds, nfds_t n, int ms);

int __wrap_poll(struct pollfd *fds, nfds_t n, int ms)
{
    polls++;
    return __real_poll(fds, n, ms);
}

/* A daemon without room refuses the connection before Hello came or was read: the client gets its
 * text, whichever side was faster. */
TEST(connect_turned_away_its_error)
{
    fake.hello_err = TERN_QUOTA;
    fake.hello_text = "as many as may be";
    for (int late = 0; late < 2; late++) {
        fake.unasked = sends_late = late;
        fake.unread = !late;
        connect_refused(TERN_QUOTA, "as many as may be");
        sends_late = false;
    }
}

TEST(connect_nobody_listens_peer_lost)
{
    char path[200];

    assert_err(TERN_DAEMON_LOST, tern_connect("/tmp/tern-nobody-listens.sock", 100, &t));
    assert_int_equal(errno, ENOENT);
    assert_string_equal(tern_error_text(NULL, NULL),
                        "No such file or directory: check that ternd is running "
                        "and that this is its tenant's socket");
    memset(path, 'x', sizeof(path));
    path[sizeof(path) - 1] = '\0';
    assert_err(TERN_INVALID, tern_connect(path, 100, &t));
    assert_err(TERN_INVALID, tern_connect("", 100, &t));
    assert_null(t);
}

/* A daemon that accepts no connection, and a signal every few milliseconds: the call keeps its one
 * deadline. */
TEST(connect_interrupted_by_signals_has_one_deadline)
{
    struct sigaction sa = {.sa_handler = on_alarm, .sa_flags = SA_RESTART}, old;
    struct itimerval timer = {.it_interval.tv_usec = 5000, .it_value.tv_usec = 5000}, off = {0};
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    int listener = socket(AF_UNIX, SOCK_STREAM, 0), waiting[8], n = 0;
    enum tern_err err;
    uint64_t before;

    snprintf(addr.sun_path, sizeof(addr.sun_path), "/tmp/tern-full-%d.sock", (int)getpid());
    assert_int_equal(bind(listener, (const struct sockaddr *)&addr, sizeof(addr)), 0);
    assert_int_equal(listen(listener, 0), 0);
    do {
        assert_true(n < 8);
        waiting[n] = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
    } while (connect(waiting[n++], (const struct sockaddr *)&addr, sizeof(addr)) == 0);
    assert_int_equal(errno, EAGAIN);
    sigaction(SIGALRM, &sa, &old);
    setitimer(ITIMER_REAL, &timer, NULL);
    before = now_ms();
    err = tern_connect(addr.sun_path, 100, &t);
    setitimer(ITIMER_REAL, &off, NULL);
    sigaction(SIGALRM, &old, NULL);
    assert_err(TERN_TIMED_OUT, err);
    assert_in_range(now_ms() - before, 95, 5000);
    while (n > 0)
        close(waiting[--n]);
    close(listener);
    unlink(addr.sun_path);
}

TEST(connect_without_a_descriptor_says_so)
{
    struct rlimit before, none;
    enum tern_err err;
    int next = socket(AF_UNIX, SOCK_STREAM, 0);

    close(next); /* the lowest that is free */
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = (struct rlimit){.rlim_cur = (rlim_t)next, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    err = tern_connect("/tmp/tern-nobody-listens.sock", 100, &t);
    setrlimit(RLIMIT_NOFILE, &before);
    assert_err(TERN_INTERNAL, err);
    assert_string_equal(tern_error_text(NULL, NULL), strerror(EMFILE));
}

static void serve_match_tag_from_session(struct fake *f)
{
    struct match_answer a;

    while (fake_read(f)) {
        check(f->h.type == FRAME_MATCH);
        fake_reply(f, make_match(&a, (uint32_t)f->h.session));
    }
}

TEST(connect_daemon_announces_larger_cap_it_is_used)
{
    static const uint32_t tokens[400000];
    struct tern_tokens list = {.v = tokens, .n = 200000};
    struct tern_result r;

    fake.body_max = 2u << 20;
    start(serve_match_tag_from_session, NULL);
    assert_ok(tern_match(t, 5, &list, TERN_STEP_NONE, 1000, &r));
    assert_match(&r, 5);
}

/* ---- synchronous calls ---- */

static void serve_split(struct fake *f)
{
    uint8_t frame[512];
    struct match_answer a;

    for (size_t at = 0; fake_read(f); at++) {
        size_t n = fake_pack(FRAME_MATCH_REPLY, f->h.request_id,
                             make_match(&a, (uint32_t)f->h.session), frame, sizeof(frame));

        at = at >= n ? 0 : at;
        *(size_t *)f->ctx = n;
        fake_write(f, frame, at);
        fake_drained(f); /* the client has read exactly this piece */
        fake_write(f, frame + at, n - at);
    }
}

TEST(match_answer_split_at_every_offset_same_result)
{
    volatile size_t n = 1;
    size_t splits = 0;

    start(serve_split, (void *)(uintptr_t)&n);
    for (uint32_t i = 0; i < n; i++, splits++) {
        struct tern_result r;

        assert_ok(tern_match(t, 1 + i, &some_tokens, TERN_STEP_NONE, 2000, &r));
        assert_match(&r, 1 + i);
    }
    assert_true(splits == n && n > 90);
}

/* An answer that comes whole is waited for in the receive: no call polls for it. */
TEST(match_answer_that_comes_whole_costs_no_poll)
{
    struct tern_result r;

    start(serve_match_tag_from_session, NULL);
    polls = 0;
    assert_ok(tern_match(t, 7, &some_tokens, TERN_STEP_NONE, COMES_MS, &r));
    assert_int_equal(polls, 0);
    assert_match(&r, 7);
}

static void serve_byte_by_byte(struct fake *f)
{
    uint8_t frame[512];
    struct match_answer a;

    while (fake_read(f)) {
        size_t n = fake_pack(FRAME_MATCH_REPLY, f->h.request_id,
                             make_match(&a, (uint32_t)f->h.session), frame, sizeof(frame));

        for (size_t i = 0; i < n; i++) {
            fake_write(f, frame + i, 1);
            fake_drained(f);
        }
    }
}

/* Fault 16: a call that EINTR interrupts continues. */
TEST(match_interrupted_by_signals_same_result)
{
    struct sigaction sa = {.sa_handler = on_alarm}, old; /* no SA_RESTART */
    struct itimerval timer = {.it_interval.tv_usec = 200, .it_value.tv_usec = 200}, off = {0};

    start(serve_byte_by_byte, NULL);
    sigaction(SIGALRM, &sa, &old);
    setitimer(ITIMER_REAL, &timer, NULL);
    for (uint32_t i = 0; i < 20; i++) {
        struct tern_result r;

        assert_ok(tern_match(t, 1 + i, &some_tokens, TERN_STEP_NONE, 5000, &r));
        assert_match(&r, 1 + i);
    }
    setitimer(ITIMER_REAL, &off, NULL);
    sigaction(SIGALRM, &old, NULL);
}

/* Answers the first request only after the second has come. */
static void serve_late(struct fake *f)
{
    struct match_answer a;
    struct frame_header first;

    check(fake_read(f) != NULL);
    first = f->h;
    check(fake_read(f) != NULL);
    {
        struct frame_header second = f->h;

        f->h = first;
        fake_reply(f, make_match(&a, (uint32_t)first.session));
        f->h = second;
        fake_reply(f, make_match(&a, (uint32_t)second.session));
    }
    while (fake_read(f))
        ;
}

TEST(match_deadline_passes_timed_out_late_answer_dropped)
{
    uint64_t before = now_ms(), took;
    struct tern_result r = {.tokens = 99};

    start(serve_late, NULL);
    assert_err(TERN_TIMED_OUT, tern_match(t, 1, &some_tokens, TERN_STEP_NONE, 50, &r));
    took = now_ms() - before;
    assert_in_range(took, 45, ENDS_MS);
    assert_int_equal(r.tokens, 99); /* untouched */
    assert_ok(tern_match(t, 2, &some_tokens, TERN_STEP_NONE, 2000, &r));
    assert_match(&r, 2);
}

static void serve_nothing(struct fake *f)
{
    while (f->fd >= 0 && recv(f->fd, f->body, sizeof(f->body), 0) > 0)
        ;
}

static void serve_never_reads(struct fake *f)
{
    char c;

    check(read(*(int *)f->ctx, &c, 1) == 1); /* the test has seen enough */
}

TEST(match_daemon_does_not_read_timed_out)
{
    static const uint32_t tokens[250000];
    struct tern_tokens list = {.v = tokens, .n = 250000};
    struct tern_result r;
    int go[2];

    assert_int_equal(pipe(go), 0);
    start(serve_never_reads, &go[0]);
    for (int i = 0; i < 3; i++) {
        uint64_t before = now_ms();

        assert_err(TERN_TIMED_OUT, tern_match(t, 1, &list, TERN_STEP_NONE, 50, &r));
        assert_in_range(now_ms() - before, 45, ENDS_MS);
    }
    assert_int_equal(write(go[1], "x", 1), 1);
    stop();
    close(go[0]);
    close(go[1]);
}

static void serve_half_then_close(struct fake *f)
{
    uint8_t frame[512];
    struct match_answer a;

    check(fake_read(f) != NULL);
    fake_pack(FRAME_MATCH_REPLY, f->h.request_id, make_match(&a, 1), frame, sizeof(frame));
    fake_write(f, frame, *(size_t *)f->ctx);
}

TEST(match_connection_ends_peer_lost_for_ever)
{
    size_t cut[] = {0, 1, FRAME_HEADER_BYTES, FRAME_HEADER_BYTES + 9};

    for (size_t i = 0; i < sizeof(cut) / sizeof(cut[0]); i++) {
        struct tern_answer answer;
        struct tern_result r;

        start(serve_half_then_close, &cut[i]);
        assert_err(TERN_DAEMON_LOST, tern_match(t, 1, &some_tokens, TERN_STEP_NONE, 2000, &r));
        assert_non_null(strstr(tern_error_text(t, NULL), "connect again"));
        assert_err(TERN_DAEMON_LOST, tern_match(t, 1, &some_tokens, TERN_STEP_NONE, 2000, &r));
        assert_err(TERN_DAEMON_LOST, tern_ping(t, 100));
        assert_err(TERN_DAEMON_LOST, tern_submit_match(t, 1, &some_tokens, TERN_STEP_NONE, 1));
        assert_err(TERN_DAEMON_LOST, tern_poll(t, &answer));
        stop();
    }
}

#define MANY (1ull << 40)

/* Two operations, of which the second is refused with numbers; so is every other request. */
static void serve_numbers(struct fake *f)
{
    const ProtobufCMessage *msg;

    while ((msg = fake_read(f))) {
        const Tern__Wire__Step *step = (const Tern__Wire__Step *)msg;
        Tern__Wire__Status status = fake_status(TERN_QUOTA, "12 of them, of 1099511627776", NULL);
        Tern__Wire__OpResult results[2], *list[2] = {&results[0], &results[1]};
        Tern__Wire__StepReply m = TERN__WIRE__STEP_REPLY__INIT;
        Tern__Wire__Empty empty = TERN__WIRE__EMPTY__INIT;

        status.has_first = status.has_second = 1;
        status.first = 12;
        status.second = MANY;
        if (f->h.type == FRAME_PING) {
            fake_reply_empty(f);
            continue;
        }
        if (f->h.type != FRAME_STEP) {
            empty.status = &status;
            fake_reply(f, &empty);
            continue;
        }
        m.n_results = step->n_ops;
        m.results = list;
        for (size_t i = 0; i < step->n_ops; i++)
            tern__wire__op_result__init(&results[i]);
        results[step->n_ops - 1].status = &status;
        fake_reply(f, &m);
    }
}

/* E4: the numbers in the text of a refusal are also fields, and only of a refusal. */
TEST(e4_the_numbers_of_a_refusal_are_fields)
{
    const struct tern_result *results;
    struct tern_batch *b;
    struct tern_result r;
    struct tern_stored stored;
    uint64_t n[2] = {1, 1};
    uint32_t done;

    start(serve_numbers, NULL);
    for (uint32_t i = 0; i < 3; i++) {
        enum tern_err err = i == 0   ? tern_extend(t, 3, NULL, 3, 4, 2000, &r)
                            : i == 1 ? tern_match(t, 3, &some_tokens, TERN_STEP_NONE, 2000, &r)
                                     : tern_store(t, 3, 0, 2000, &stored);

        assert_err(TERN_QUOTA, err);
        tern_error_numbers(t, i == 1 ? &r : NULL, n);
        assert_true(n[0] == 12 && n[1] == MANY);
        assert_string_equal(tern_error_text(t, NULL), "12 of them, of 1099511627776");
        assert_string_equal(tern_error_text(t, &r), "12 of them, of 1099511627776");
        if (i != 1)
            assert_ok(tern_ping(t, 0));
        else
            assert_err(TERN_INVALID, tern_commit(t, 3, 0, 0, 2000, &r)); /* libtern's text */
        tern_error_numbers(t, NULL, n);
        assert_true(n[0] == 0 && n[1] == 0);
    }
    assert_ok(tern_batch_create(t, &b));
    assert_ok(tern_batch_commit(b, 1, 16, 9));
    assert_ok(tern_batch_commit(b, 2, 16, 9));
    assert_ok(tern_batch_run(b, 2000, &results, &done));
    for (uint32_t i = 0; i < 3; i++) {
        tern_error_numbers(t, &results[i], n);
        assert_true(n[0] == (i == 1 ? 12 : 0) && n[1] == (i == 1 ? MANY : 0));
    }
    tern_batch_destroy(b);
}

static void serve_errors(struct fake *f)
{
    while (fake_read(f)) {
        if (f->h.type == FRAME_PING)
            fake_reply_empty(f);
        else if (f->h.session == 1)
            fake_reply_err(f, TERN_GONE, "that session was closed");
        else
            fake_reply_err(f, 4711, NULL);
    }
}

TEST(call_error_answered_text_until_next_success)
{
    struct tern_result r;

    start(serve_errors, NULL);
    assert_err(TERN_GONE, tern_match(t, 1, &some_tokens, TERN_STEP_NONE, 2000, &r));
    assert_string_equal(tern_error_text(t, NULL), "that session was closed; the handle is 0x1");
    assert_err(TERN_GONE, r.err);
    assert_ok(tern_ping(t, 0));
    assert_string_equal(tern_error_text(t, NULL), "");
    assert_err(TERN_INTERNAL, tern_match(t, 2, &some_tokens, TERN_STEP_NONE, 2000,
                                         &r)); /* a number of a later version */
    assert_string_not_equal(tern_error_text(t, NULL), "");
}

static void serve_json(struct fake *f)
{
    static const char *const piece[] = {"{\"a\":[1,", "2,", "3]}"};
    const ProtobufCMessage *msg;

    while ((msg = fake_read(f))) {
        const Tern__Wire__Admin *ask = (const Tern__Wire__Admin *)msg;

        check(f->h.type == FRAME_ADMIN && strcmp(ask->command, "tree") == 0);
        check(ask->n_args == 2 && strcmp(ask->args[1], "limit=5") == 0);
        for (int i = 0; i < 3; i++) {
            Tern__Wire__AdminReply m = TERN__WIRE__ADMIN_REPLY__INIT;

            m.json = (char *)(uintptr_t)piece[i];
            m.has_more = 1;
            m.more = i < 2;
            fake_reply(f, &m);
        }
    }
}

TEST(admin_answer_in_pieces_joined)
{
    static const char *const args[] = {"from=0", "limit=5"};
    const char *json;

    start(serve_json, NULL);
    for (int i = 0; i < 3; i++) {
        assert_ok(tern_admin(t, "tree", args, 2, 2000, &json));
        assert_string_equal(json, "{\"a\":[1,2,3]}");
    }
}

#define SLOW_PIECES 12

/* Each piece comes well before the deadline, the last one long after it. */
static void serve_json_slowly(struct fake *f)
{
    Tern__Wire__AdminReply m = TERN__WIRE__ADMIN_REPLY__INIT;

    check(fake_read(f) != NULL && f->h.type == FRAME_ADMIN);
    m.json = (char *)(uintptr_t) " ";
    m.has_more = 1;
    for (int i = 0; i < SLOW_PIECES; i++) {
        usleep(100000);
        m.more = i + 1 < SLOW_PIECES;
        fake_reply(f, &m);
    }
    while (fake_read(f))
        fake_reply_empty(f);
}

TEST(admin_answer_in_slow_pieces_has_one_deadline)
{
    const char *json;

    start(serve_json_slowly, NULL);
    assert_err(TERN_TIMED_OUT, tern_admin(t, "tree", NULL, 0, 500, &json));
    assert_ok(tern_ping(t, COMES_MS));
}

static void serve_fetch_never_answered(struct fake *f)
{
    Tern__Wire__FetchReply gone = TERN__WIRE__FETCH_REPLY__INIT;
    struct frame_header fetch;

    check(fake_read(f) != NULL && f->h.type == FRAME_FETCH);
    fetch = f->h;
    check(fake_read(f) != NULL && f->h.type == FRAME_FETCH_CANCEL && f->h.session == fetch.session);
    atomic_store((atomic_int *)f->ctx, 1);
    usleep(500000); /* until the call has returned */
    fake_reply_empty(f);
    f->h = fetch;
    fake_reply(f, &gone);
    while (fake_read(f))
        fake_reply_empty(f);
}

TEST(fetch_deadline_passes_cancelled_and_forgotten)
{
    atomic_int cancelled = 0;
    struct tern_result r;

    start(serve_fetch_never_answered, &cancelled);
    assert_err(
        TERN_TIMED_OUT,
        tern_fetch(t, 5, &(struct tern_fetch){.peer = "source", .step = TERN_STEP_NONE}, 30, &r));
    assert_non_null(strstr(tern_error_text(t, NULL), "tern_recover returns"));
    assert_ok(tern_ping(t, 2000)); /* drops both late answers on the way */
    assert_int_equal(atomic_load(&cancelled), 1);
}

/* Session 6 is complete before the cancel; 7 is not a session. */
static void serve_fetch_cancelled(struct fake *f)
{
    while (fake_read(f)) {
        Tern__Wire__FetchReply m = TERN__WIRE__FETCH_REPLY__INIT;
        Tern__Wire__Lengths lengths = fake_lengths(64, 64, 64);
        Tern__Wire__Status gone = fake_status(TERN_GONE, "it was cancelled", NULL);
        struct frame_header fetch = f->h;

        check(f->h.type == FRAME_FETCH);
        check(fake_read(f) != NULL && f->h.type == FRAME_FETCH_CANCEL &&
              f->h.session == fetch.session);
        fake_reply_empty(f);
        f->h = fetch;
        if (fetch.session != 6)
            m.status = &gone;
        if (fetch.session != 7) {
            m.lengths = &lengths;
            m.has_tokens = 1;
            m.tokens = 100;
        }
        fake_reply(f, &m);
    }
}

TEST(fetch_deadline_nears_cancelled_and_what_came_is_told)
{
    struct tern_result r = {0};

    start(serve_fetch_cancelled, NULL);
    assert_err(
        TERN_TIMED_OUT,
        tern_fetch(t, 5, &(struct tern_fetch){.peer = "source", .step = TERN_STEP_NONE}, 1600, &r));
    assert_non_null(strstr(tern_error_text(t, NULL), "the result names them"));
    assert_err(TERN_TIMED_OUT, r.err);
    assert_told_lengths(&r, 64, 64, 64);
    assert_int_equal(r.tokens, 100);
    assert_err(TERN_TIMED_OUT,
               tern_fetch(t, 5, &(struct tern_fetch){.ticket = "tern1-0", .step = TERN_STEP_NONE},
                          1600, &r));
    assert_ok(
        tern_fetch(t, 6, &(struct tern_fetch){.peer = "source", .step = TERN_STEP_NONE}, 1600, &r));
    assert_told_lengths(&r, 64, 64, 64);
    assert_err(
        TERN_GONE,
        tern_fetch(t, 7, &(struct tern_fetch){.peer = "source", .step = TERN_STEP_NONE}, 1600, &r));
}

TEST(fetch_with_fields_that_exclude_each_other_names_both)
{
    static const struct {
        struct tern_fetch of;
        const char *one, *other;
    } wrong[] = {
        {{.ticket = "tern1-0", .peer = "west"}, "ticket", "peer"},
        {{.ticket = "tern1-0", .peer = TERN_PEER_DISK}, "ticket", "peer"},
        {{.ticket = "tern1-0", .at_least = 16}, "ticket", "at_least"},
        {{.ticket = "tern1-0", .depth = 16}, "ticket", "depth"},
        {{.ticket = "tern1-0", .prefetch = true}, "ticket", "prefetch"},
        {{.peer = "west", .follow = true}, "follow", "ticket"},
        {{.follow = true}, "follow", "ticket"},
    };
    struct tern_result r;

    start(serve_nothing, NULL);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct tern_fetch of = wrong[i].of;

        of.step = TERN_STEP_NONE;
        assert_err(TERN_INVALID, tern_fetch(t, 1, &of, 100, &r));
        assert_non_null(strstr(tern_error_text(t, NULL), wrong[i].one));
        assert_non_null(strstr(tern_error_text(t, NULL), wrong[i].other));
        assert_err(TERN_INVALID, tern_submit_fetch(t, 1, &of, 7));
        assert_non_null(strstr(tern_error_text(t, NULL), wrong[i].one));
        assert_non_null(strstr(tern_error_text(t, NULL), wrong[i].other));
    }
    /* No field has a default that names a step. */
    assert_err(TERN_INVALID, tern_fetch(t, 1, &(struct tern_fetch){.ticket = "tern1-0"}, 100, &r));
    assert_err(TERN_INVALID, tern_submit_fetch(t, 1, &(struct tern_fetch){.peer = "west"}, 7));
    assert_err(TERN_INVALID, tern_fetch(t, 1, NULL, 100, &r));
}

TEST(call_arguments_wrong_invalid_without_a_request)
{
    struct tern_tokens nowhere = {.v = NULL, .n = 1}, keys = {.nkeys = 1}, none = {0};
    static struct tern_extra_key many[TERN_KEYS_MAX + 1];
    const struct tern_result *results;
    struct tern_batch *batch;
    struct tern_result r;
    struct tern_depths depths;
    uint64_t pool;
    uint32_t done;
    struct tern_layout layout = {.ngroups = 0};
    char long_word[257] = "";
    const char *const words[] = {long_word};
    const char *json;

    start(serve_nothing, NULL);
    assert_err(TERN_INVALID, tern_match(t, 1, &nowhere, TERN_STEP_NONE, 100, &r));
    assert_err(TERN_INVALID, tern_match(t, 1, &keys, TERN_STEP_NONE, 100, &r));
    keys = (struct tern_tokens){.keys = many, .nkeys = TERN_KEYS_MAX + 1};
    assert_err(TERN_INVALID, tern_match(t, 1, &keys, TERN_STEP_NONE, 100, &r));
    assert_err(TERN_INVALID, tern_extend(t, 1, &nowhere, 0, 64, 100, &r));
    assert_ok(tern_batch_create(t, &batch));
    assert_err(TERN_INVALID, tern_batch_run(batch, 100, &results, &done));
    assert_err(TERN_INVALID, tern_batch_submit(batch, 1));
    assert_err(TERN_INVALID, tern_batch_extend(batch, 1, &nowhere, 0, 64));
    assert_err(TERN_INVALID, tern_batch_extend(batch, 1, &keys, 0, 64));
    assert_int_equal(tern_batch_count(batch), 0);
    for (uint32_t i = 0; i < TERN_BATCH_OPS_MAX; i++)
        assert_ok(tern_batch_snapshot_release(batch, 1));
    assert_err(TERN_INVALID, tern_batch_snapshot_release(batch, 1));
    assert_int_equal(tern_batch_count(batch), TERN_BATCH_OPS_MAX);
    tern_batch_destroy(batch);
    assert_err(TERN_INVALID, tern_join(t, "", TERN_BOTH, 0, 1, NULL, 100));
    assert_err(TERN_INVALID, tern_join(t, "e", TERN_BOTH, 1, 1, NULL, 100));
    assert_err(TERN_INVALID, tern_join(t, "e", TERN_BOTH, 0, TERN_RANKS_MAX + 1, NULL, 100));
    assert_err(TERN_INVALID, tern_pool_open(t, &layout, 100, &pool, NULL));
    assert_err(TERN_INVALID,
               tern_fetch(t, 1, &(struct tern_fetch){.peer = "", .step = TERN_STEP_NONE}, 100, &r));
    assert_err(TERN_INVALID, tern_peek(t, 1, NULL, &none, 100, &depths));
    assert_err(TERN_INVALID, tern_admin(t, "tree", NULL, 1, 100, &json));
    memset(long_word, 'x', 256); /* one byte more than the limit */
    assert_err(TERN_INVALID, tern_admin(t, long_word, NULL, 0, 100, &json));
    assert_err(TERN_INVALID, tern_admin(t, "tree", words, 1, 100, &json));
    assert_err(
        TERN_INVALID,
        tern_fetch(t, 1, &(struct tern_fetch){.peer = long_word, .step = TERN_STEP_NONE}, 100, &r));
}

/* A forgotten step is not "nothing is in flight": pages that are being written would be published,
 * or given to others. */
TEST(call_without_a_step_invalid_without_a_request)
{
    struct tern_retracted away;
    struct tern_batch *b;
    struct tern_result r;

    start(serve_nothing, NULL);
    assert_err(TERN_INVALID, tern_match(t, 1, &some_tokens, 0, 100, &r));
    assert_err(TERN_INVALID, tern_submit_match(t, 1, &some_tokens, 0, 7));
    assert_err(TERN_INVALID, tern_retract(t, 1, TERN_RETRACT_DROP, 0, 100, &away));
    assert_err(TERN_INVALID, tern_rewind(t, 1, 64, 0, 100, &r));
    assert_non_null(strstr(tern_error_text(t, NULL), "TERN_STEP_NONE"));
    assert_err(TERN_INVALID, tern_commit(t, 1, 64, 0, 100, &r));
    assert_err(TERN_INVALID, tern_finish(t, 1, 64, 0, 100, &r));
    assert_err(TERN_INVALID, tern_slide(t, 1, 64, 0, 100, &r));
    assert_err(TERN_INVALID, tern_abort(t, 1, 0, 100, &r));
    assert_err(TERN_INVALID, tern_session_close(t, 1, 0, 100, &r));
    assert_ok(tern_batch_create(t, &b));
    assert_ok(tern_batch_extend(b, 1, NULL, 0, 64));
    assert_err(TERN_INVALID, tern_batch_rewind(b, 1, 64, 0));
    assert_non_null(strstr(tern_error_text(t, NULL), "TERN_STEP_NONE"));
    assert_err(TERN_INVALID, tern_batch_commit(b, 1, 64, 0));
    assert_err(TERN_INVALID, tern_batch_finish(b, 1, 64, 0));
    assert_err(TERN_INVALID, tern_batch_slide(b, 1, 64, 0));
    assert_err(TERN_INVALID, tern_batch_abort(b, 1, 0));
    assert_err(TERN_INVALID, tern_batch_session_close(b, 1, 0));
    assert_int_equal(tern_batch_count(b), 1); /* without the refused ones */
    tern_batch_destroy(b);
    assert_err(TERN_INVALID, tern_wait_published(t, 0, 100));
    assert_err(TERN_INVALID, tern_wait_published(t, TERN_STEP_NONE, 100));
}

static void serve_joins(struct fake *f)
{
    const Tern__Wire__EngineJoin *m;

    while ((m = (const Tern__Wire__EngineJoin *)(const void *)fake_read(f)) != NULL) {
        if (f->h.type == FRAME_ENGINE_JOIN) {
            Tern__Wire__EngineJoinReply reply = TERN__WIRE__ENGINE_JOIN_REPLY__INIT;

            check(strcmp(m->name, "e") == 0 && m->has_role && m->has_rank && m->has_world);
            check(m->role == TERN_WORKER && m->rank == 2 && m->world == 4);
            fake_reply(f, &reply);
        } else {
            fake_reply_empty(f);
        }
    }
}

TEST(client_join_names_role_rank_and_world)
{
    start(serve_joins, NULL);
    assert_ok(tern_join(t, "e", TERN_WORKER, 2, 4, NULL, 2000));
}

/* ---- the asynchronous form ---- */

/* Answers submitted matches in reverse order, and just before each Ping's answer. */
static void serve_mixed(struct fake *f)
{
    struct frame_header held[TERN_INFLIGHT_MAX];
    struct match_answer a;
    uint32_t n = 0;

    while (fake_read(f)) {
        struct frame_header ping;

        if (f->h.type == FRAME_MATCH) {
            check(n < TERN_INFLIGHT_MAX);
            held[n++] = f->h;
            continue;
        }
        check(f->h.type == FRAME_PING);
        ping = f->h;
        while (n > 0) {
            f->h = held[--n];
            fake_reply(f, make_match(&a, (uint32_t)f->h.session));
        }
        f->h = ping;
        fake_reply_empty(f);
    }
}

TEST(async_answers_during_a_call_are_kept_in_order)
{
    struct tern_answer answer;

    start(serve_mixed, NULL);
    for (uint32_t round = 0; round < 3; round++) {
        assert_err(TERN_BUSY, tern_poll(t, &answer));
        for (uint32_t i = 0; i < 5; i++)
            assert_ok(tern_submit_match(t, 100 + i, &some_tokens, TERN_STEP_NONE, 1000 + i));
        assert_ok(tern_ping(t, 2000));
        for (uint32_t i = 5; i-- > 0;) {
            assert_ok(tern_poll(t, &answer));
            assert_int_equal(answer.cookie, 1000 + i);
            assert_ok(answer.err);
            assert_int_equal(answer.n, 1);
            assert_match(&answer.results[0], 100 + i);
        }
    }
    assert_err(TERN_BUSY, tern_poll(t, &answer));
}

TEST(async_inflight_max_busy_then_all_answered)
{
    struct tern_answer answer;
    uint64_t seen = 0;

    start(serve_mixed, NULL);
    for (uint32_t i = 0; i < TERN_INFLIGHT_MAX; i++)
        assert_ok(tern_submit_match(t, 100 + i, &some_tokens, TERN_STEP_NONE, i));
    assert_err(TERN_BUSY, tern_submit_match(t, 1, &some_tokens, TERN_STEP_NONE, 99));
    assert_ok(tern_ping(t, 2000)); /* synchronous calls have their own room */
    assert_err(TERN_BUSY,
               tern_submit_match(t, 1, &some_tokens, TERN_STEP_NONE, 99)); /* kept answers count */
    for (uint32_t i = 0; i < TERN_INFLIGHT_MAX; i++) {
        assert_ok(tern_poll(t, &answer));
        assert_match(&answer.results[0], 100 + (uint32_t)answer.cookie);
        seen |= 1ull << answer.cookie;
    }
    assert_true(seen == UINT64_MAX);
    assert_ok(tern_submit_match(t, 1, &some_tokens, TERN_STEP_NONE, 99));
}

/* Reads the lists of three operations, whose lengths leave gaps between them; then returns. */
static void serve_lists(struct fake *f)
{
    const Tern__Wire__Step *step = (const Tern__Wire__Step *)fake_read(f);
    uint32_t *right = f->ctx, token;

    check(step != NULL && f->h.type == FRAME_STEP);
    for (size_t i = 0; i < step->n_ops; i++) {
        const ProtobufCBinaryData *list = &step->ops[i]->tokens->tokens;
        bool as_added = list->len == (2 * i + 1) * sizeof token;

        for (size_t k = 0; as_added && k < 2 * i + 1; k++) {
            memcpy(&token, list->data + k * sizeof token, sizeof token);
            as_added = token == 100 * i + k;
        }
        *right += as_added;
    }
}

/* The caller may reuse its memory: each operation has a copy of its own. */
TEST(batch_keeps_the_tokens_of_each_operation)
{
    const struct tern_result *results;
    uint32_t v[8], right = 0, done;
    struct tern_batch *b;

    start(serve_lists, &right);
    assert_ok(tern_batch_create(t, &b));
    for (uint32_t i = 0; i < 3; i++) {
        const struct tern_tokens list = {.v = v, .n = 2 * i + 1};

        for (uint32_t k = 0; k < list.n; k++)
            v[k] = 100 * i + k;
        assert_ok(tern_batch_extend(b, i + 1, &list, 0, 0));
    }
    assert_err(TERN_DAEMON_LOST, tern_batch_run(b, 2000, &results, &done));
    tern_batch_destroy(b);
    stop();
    assert_int_equal(right, 3);
}

/* A batch that is refused frees its request. */
TEST(async_batch_that_is_refused_keeps_no_memory)
{
    struct tern_batch *b;
    size_t before;

    start(serve_mixed, NULL);
    for (uint32_t i = 0; i < TERN_INFLIGHT_MAX; i++)
        assert_ok(tern_submit_match(t, 100 + i, &some_tokens, TERN_STEP_NONE, i));
    assert_ok(tern_batch_create(t, &b));
    assert_ok(tern_batch_commit(b, 1, 16, 9));
    assert_err(TERN_BUSY, tern_batch_submit(b, 99));
    before = mallinfo2().uordblks;
    for (uint32_t i = 0; i < 1000; i++)
        assert_err(TERN_BUSY, tern_batch_submit(b, 99));
    assert_true(mallinfo2().uordblks < before + 1000);
    tern_batch_destroy(b);
}

TEST(async_socket_full_busy_then_all_sent)
{
    static const uint32_t tokens[200000];
    struct tern_tokens list = {.v = tokens, .n = 200000};
    struct tern_answer answer;
    uint32_t sent = 0, got = 0;
    short events;

    start(serve_match_tag_from_session, NULL);
    for (uint32_t i = 0; i < 40; i++) {
        enum tern_err err = tern_submit_match(t, 100 + i, &list, TERN_STEP_NONE, i);

        if (err == TERN_OK) {
            sent++;
            continue;
        }
        assert_err(TERN_BUSY, err);
        assert_int_equal(tern_fd(t, &events), tern_fd(t, NULL));
        assert_int_equal(events, POLLIN | POLLOUT);
    }
    assert_true(sent >= 1);
    for (uint64_t end = now_ms() + COMES_MS; got < sent && now_ms() < end;) {
        enum tern_err err = tern_poll(t, &answer);

        if (err == TERN_OK) {
            assert_match(&answer.results[0], 100 + (uint32_t)answer.cookie);
            got++;
        } else {
            assert_err(TERN_BUSY, err);
            usleep(100);
        }
    }
    assert_int_equal(got, sent);
    (void)tern_fd(t, &events);
    assert_int_equal(events, POLLIN);
}

static void serve_two_then_close(struct fake *f)
{
    struct match_answer a;

    for (int i = 0; i < 4; i++) {
        check(fake_read(f) != NULL);
        if (i < 2)
            fake_reply(f, make_match(&a, (uint32_t)f->h.session));
    }
}

TEST(async_connection_ends_each_request_is_told)
{
    struct tern_answer answer;
    uint32_t ok = 0, lost = 0;
    enum tern_err err;

    start(serve_two_then_close, NULL);
    for (uint32_t i = 0; i < 4; i++)
        assert_ok(tern_submit_match(t, 100 + i, &some_tokens, TERN_STEP_NONE, i));
    for (uint64_t end = now_ms() + COMES_MS; now_ms() < end;) {
        err = tern_poll(t, &answer);
        if (err == TERN_BUSY) {
            usleep(100);
            continue;
        }
        if (err != TERN_OK)
            break;
        ok += answer.err == TERN_OK;
        lost += answer.err == TERN_DAEMON_LOST;
    }
    assert_err(TERN_DAEMON_LOST, err);
    assert_int_equal(ok, 2);
    assert_int_equal(lost, 2);
    assert_err(TERN_DAEMON_LOST, tern_poll(t, &answer));
}

static void serve_one_then_close(struct fake *f)
{
    struct match_answer a;

    check(fake_read(f) != NULL);
    fake_reply(f, make_match(&a, (uint32_t)f->h.session));
}

TEST(async_answers_from_before_the_end_are_not_lost_to_a_send)
{
    struct tern_answer answer;

    start(serve_one_then_close, NULL);
    assert_ok(tern_submit_match(t, 100, &some_tokens, TERN_STEP_NONE, 0));
    sends_late = true;
    assert_ok(tern_submit_match(t, 101, &some_tokens, TERN_STEP_NONE, 1));
    sends_late = false;
    assert_ok(tern_poll(t, &answer));
    assert_int_equal(answer.cookie, 0);
    assert_match(answer.results, 100);
    assert_ok(tern_poll(t, &answer));
    assert_int_equal(answer.cookie, 1);
    assert_err(TERN_DAEMON_LOST, answer.err);
    assert_err(TERN_DAEMON_LOST, tern_poll(t, &answer));
}

static void serve_step(struct fake *f)
{
    const ProtobufCMessage *msg;

    while ((msg = fake_read(f))) {
        const Tern__Wire__Step *step = (const Tern__Wire__Step *)msg;
        static Tern__Wire__OpResult results[TERN_BATCH_OPS_MAX], *list[TERN_BATCH_OPS_MAX];
        Tern__Wire__StepReply m = TERN__WIRE__STEP_REPLY__INIT;
        Tern__Wire__Shortage shortage = TERN__WIRE__SHORTAGE__INIT;
        Tern__Wire__Shortage for_good = TERN__WIRE__SHORTAGE__INIT;
        Tern__Wire__Status status = fake_status(TERN_POOL_EXHAUSTED, NULL, &shortage);
        Tern__Wire__Status no_step = fake_status(TERN_POOL_EXHAUSTED, NULL, &for_good);
        Tern__Wire__Status invalid = fake_status(TERN_INVALID, NULL, NULL);

        check(f->h.type == FRAME_STEP);
        shortage.has_needed = shortage.has_until_step = 1;
        shortage.needed = 3;
        shortage.until_step = 1ull << 40;
        for (size_t i = 0; i < step->n_ops; i++) {
            tern__wire__op_result__init(&results[i]);
            results[i].has_written = 1;
            results[i].written = (uint32_t)step->ops[i]->session;
            results[i].status = step->ops[i]->session == 3 ? &status : NULL;
            if (step->n_ops == 1 && step->ops[i]->session == 5)
                results[i].status = &no_step;
            if (step->n_ops == 1 && step->ops[i]->session == 6)
                results[i].status = &invalid;
            list[i] = &results[i];
        }
        m.n_results = step->n_ops;
        m.results = list;
        fake_reply(f, &m);
    }
}

TEST(batch_operations_have_their_own_results_and_words)
{
    const struct tern_result *results;
    struct tern_result other;
    struct tern_answer answer;
    struct tern_batch *b;
    uint32_t done = 0, token = 7;
    struct tern_tokens one = {.v = &token, .n = 1};

    start(serve_step, NULL);
    assert_ok(tern_batch_create(t, &b));
    for (uint32_t i = 0; i < TERN_BATCH_OPS_MAX; i++)
        assert_ok(tern_batch_extend(b, i, &one, i, i + 1));
    assert_ok(tern_batch_run(b, 2000, &results, &done));
    assert_int_equal(done, TERN_BATCH_OPS_MAX);
    assert_int_equal(tern_batch_count(b), 0);
    for (uint32_t i = 0; i < done; i++) {
        assert_err(i == 3 ? TERN_POOL_EXHAUSTED : TERN_OK, results[i].err);
        assert_int_equal(results[i].lengths.written, i);
        assert_true(i == 3 || tern_error_text(t, &results[i])[0] == '\0');
    }
    assert_int_equal(results[3].shortage.needed, 3);
    assert_true(results[3].shortage.until_step == 1ull << 40);
    assert_non_null(strstr(tern_error_text(t, &results[3]), "tern_extend: group 0 needs 3 pages"));
    assert_string_equal(tern_error_text(t, &results[done]), "");
    other = results[3];
    assert_string_equal(tern_error_text(t, &other), ""); /* of no batch: the last call succeeded */
    for (uint32_t i = 0; i < 8; i++)
        assert_ok(tern_batch_commit(b, i, 16 * i, 9));
    assert_ok(tern_batch_submit(b, 42));
    assert_int_equal(tern_batch_count(b), 0);
    answer = polled();
    assert_int_equal(answer.cookie, 42);
    assert_int_equal(answer.n, 8);
    assert_err(TERN_POOL_EXHAUSTED, answer.results[3].err);
    assert_non_null(
        strstr(tern_error_text(t, &answer.results[3]), "tern_commit: group 0 needs 3 pages"));
    assert_int_equal(answer.results[7].lengths.written, 7);
    tern_batch_destroy(b);
}

TEST(operation_that_is_refused_says_why_with_the_numbers)
{
    struct tern_result r;

    start(serve_step, NULL);
    assert_err(TERN_POOL_EXHAUSTED, tern_extend(t, 3, NULL, 3, 4, 2000, &r));
    assert_int_equal(r.shortage.needed, 3);
    assert_non_null(strstr(tern_error_text(t, NULL), "needs 3 pages"));
    assert_non_null(strstr(tern_error_text(t, NULL), "passed step 1099511627776"));
    assert_err(TERN_POOL_EXHAUSTED, tern_extend(t, 5, NULL, 5, 6, 2000, &r)); /* names no step */
    assert_non_null(strstr(tern_error_text(t, NULL), "no step will free more"));
    assert_non_null(
        strstr(tern_error_text(t, NULL), "in memory that the request's other groups need"));
    assert_err(TERN_INVALID, tern_extend(t, 6, NULL, 6, 7, 2000, &r));
    assert_non_null(
        strstr(tern_error_text(t, NULL), "tern_extend with written 6 and allocated 7 is refused"));
    assert_non_null(strstr(tern_error_text(t, NULL), "the session has committed 0, written 6,"));
    assert_err(TERN_INVALID, tern_commit(t, 6, 50, TERN_STEP_NONE, 2000, &r));
    assert_non_null(strstr(tern_error_text(t, NULL), "tern_commit with depth 50 is refused"));
    assert_err(TERN_INVALID, tern_rewind(t, 6, 51, TERN_STEP_NONE, 2000, &r));
    assert_non_null(strstr(tern_error_text(t, NULL), "tern_rewind with length 51 is refused"));
    assert_err(TERN_INVALID, tern_abort(t, 6, TERN_STEP_NONE, 2000, &r));
    assert_non_null(strstr(tern_error_text(t, NULL), "tern_abort is refused"));
    assert_ok(tern_extend(t, 4, NULL, 4, 5, 2000, &r));
    assert_string_equal(tern_error_text(t, NULL), "");
}

TEST(client_that_is_destroyed_leaves_no_memory_behind)
{
    size_t before = 0;

    for (uint32_t round = 0; round < 4; round++) {
        start(NULL, NULL);
        stop();
        if (round == 1)
            before = mallinfo2().uordblks + mallinfo2().hblkhd;
    }
    assert_int_equal(mallinfo2().uordblks + mallinfo2().hblkhd, before);
}
