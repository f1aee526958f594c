/* Clients that race on a session, through ternd and libtern: the scenarios M-f to M-i, and a turn
 * that nobody ends (M5, M7, M12). The clients are connections of one engine: threads if they wait,
 * a process if one is killed. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "engine/admin.h"
#include "engine/proc.h"
#include "rig_daemon.h"
#include "testing/test.h"

#define L          16 /* tokens of a page and of a chunk */
#define NAME       "chat"
#define CLIENTS    8
#define CONTENDERS 3
#define TURN_MS    500     /* M-f */
#define SESSIONS   CLIENTS /* M-g */
#define TURNS      3
#define BRIEF_MS   200
#define EXPIRES_MS 1000 /* deadlines.turn_ms, for tests that wait for it */

static struct daemon rig;
static struct tern *client[CLIENTS]; /* ranks of one engine, each its own connection */
static struct tern_pool *map[CLIENTS];
static struct tern *t; /* the first of them */
static struct tern *admin;
static struct rig_answer answer;
static uint64_t pool;
static tern_session own; /* of an open session */

static const uint32_t tokens[4 * L];
static const struct tern_tokens list = {.v = tokens, .n = 2 * L};
static const struct tern_namespace ns = {.model = "m"};

static uint64_t turns(const char *path)
{
    return rig_figure(admin, "status", path);
}

static uint64_t retiring(void)
{
    struct daemon_status st;

    assert_true(admin_status(admin, pool, &st));
    return st.pages.retiring;
}

static tern_session opened(void)
{
    tern_session s;

    assert_ok(t, tern_session_open(t, pool, &ns, NULL, 0, &s));
    return s;
}

/* Starts the engine and its session, once an earlier engine of that name is gone. */
static void start_engine(void)
{
    struct tern_group kv = {.name = "kv", .page_tokens = L, .page_bytes = RIG_PAGE};
    struct tern_layout layout = {.groups = &kv, .ngroups = 1, .bytes = 1u << 20};

    for (uint32_t i = 0; i < CLIENTS; i++) {
        enum tern_err err;

        client[i] = rig_connected(rig.socket);
        wait_until((err = tern_join(client[i], NAME, TERN_WORKER, i, CLIENTS, NULL, 0)) !=
                   TERN_BUSY);
        assert_ok(client[i], err);
    }
    t = client[0];
    assert_ok(t, tern_pool_open(t, &layout, RIG_WAIT_MS, &pool, NULL));
    for (uint32_t i = 0; i < CLIENTS; i++)
        assert_ok(client[i], tern_pool_map(client[i], pool, RIG_WAIT_MS, &map[i]));
    own = opened();
}

static void stop_engine(void)
{
    for (uint32_t i = 0; i < CLIENTS; i++)
        tern_destroy(client[i]);
}

static void start_all(void)
{
    rig_start(&rig, "    regions: 8\n", NULL);
    admin = rig_connected(rig.admin);
    start_engine();
}

FIXTURE(start)
{
    start_all();
    return 0;
}

FIXTURE(start_short)
{
    rig_deadlines.turn_ms = EXPIRES_MS;
    start_all();
    rig_deadlines.turn_ms = 0;
    return 0;
}

FIXTURE(stop)
{
    stop_engine();
    tern_destroy(admin);
    assert_int_equal(rig_stop(&rig), 0);
    return 0;
}

TEST_EACH(start, stop);

/* A client without libtern, for messages that libtern never sends. */
static int raw_client(void)
{
    Tern__Wire__EngineJoin m = TERN__WIRE__ENGINE_JOIN__INIT;
    int fd = rig_greeted(rig.socket);

    m.name = (char *)(uintptr_t)NAME;
    m.has_world = true; /* role 0: the scheduler, of which there is one */
    m.world = CLIENTS;
    assert_true(rig_message(fd, FRAME_ENGINE_JOIN, 2, 0, &m.base));
    assert_int_equal(rig_read(fd, RIG_WAIT_MS, &answer), RIG_FRAME);
    assert_err(TERN_OK, rig_status(&answer));
    return fd;
}

/* Sends a Match of that session with an invalid body. */
static void assert_garbage(int fd, uint64_t id, tern_session s, enum tern_err err)
{
    static const uint8_t body[] = {0x0a, 0x7f, 0x01};
    uint8_t frame[FRAME_HEADER_BYTES + sizeof body];
    struct frame_header h = {.length = sizeof body,
                             .version = FRAME_VERSION,
                             .type = FRAME_MATCH,
                             .request_id = id,
                             .session = s};

    frame_encode(&h, frame);
    memcpy(frame + FRAME_HEADER_BYTES, body, sizeof body);
    assert_true(rig_write(fd, frame, sizeof frame));
    assert_int_equal(rig_read(fd, RIG_WAIT_MS, &answer), RIG_FRAME);
    assert_int_equal(answer.h.request_id, id);
    assert_err(err, rig_status(&answer));
}

/* The work of a turn: two pages for two chunks of tokens. */
static enum tern_err work(struct tern *by, tern_session turn, struct tern_result *ret)
{
    enum tern_err err = tern_match(by, turn, &list, TERN_STEP_NONE, RIG_WAIT_MS, ret);

    return err == TERN_OK ? tern_extend(by, turn, NULL, 2 * L, 2 * L, RIG_WAIT_MS, ret) : err;
}

/* The slot is free: a turn of `by` begins, does its work and ends. */
static void assert_next_succeeds(struct tern *by, tern_session s)
{
    struct tern_result r;
    tern_session turn;

    assert_ok(by, tern_turn_begin(by, s, RIG_WAIT_MS, &turn));
    assert_ok(by, work(by, turn, &r));
    assert_int_equal(r.lengths.allocated, 2 * L);
    assert_ok(by, tern_turn_end(by, turn, TERN_STEP_NONE, RIG_WAIT_MS));
    assert_err(TERN_GONE, work(by, turn, &r));
    assert_int_equal(turns("turns.turns_in_flight"), 0);
}

/* ---- M-f ---- */

static void assert_contender_is_busy(struct tern *by)
{
    struct tern_result r;
    tern_session turn;

    assert_err(TERN_BUSY, tern_turn_begin(by, own, RIG_WAIT_MS, &turn));
    assert_err(TERN_BUSY, tern_match(by, own, &list, TERN_STEP_NONE, RIG_WAIT_MS, &r));
    assert_err(TERN_BUSY, tern_extend(by, own, NULL, 0, 4 * L, RIG_WAIT_MS, &r));
    assert_non_null(strstr(tern_error_text(by, NULL), "a turn of this session is in flight"));
}

TEST(m_f_three_contenders_are_busy_until_the_turn_ends)
{
    struct tern **contender = client + 1;
    uint32_t rounds = 0;
    struct tern_result r;
    tern_session turn;
    uint64_t end;

    assert_ok(t, tern_turn_begin(t, own, 0, &turn));
    for (end = rig_now_ms() + TURN_MS; rig_now_ms() < end || rounds == 0; rounds++)
        for (uint32_t i = 0; i < CONTENDERS; i++)
            assert_contender_is_busy(contender[i]);
    assert_ok(t, work(t, turn, &r));
    assert_int_equal(turns("turns.turns_begun"), 1);
    assert_ok(t, tern_turn_end(t, turn, TERN_STEP_NONE, 0));
    for (uint32_t i = 0; i < CONTENDERS; i++)
        assert_next_succeeds(contender[i], own);
    assert_int_equal(turns("turns.turns_begun"), 1 + CONTENDERS);
}

/* BUSY or MALFORMED: the error shows whether the body was decoded. */
TEST(m_f_contenders_are_busy_before_their_bodies_are_decoded)
{
    tern_session turn, free_one = opened();
    int fd = raw_client();

    assert_ok(t, tern_turn_begin(t, own, 0, &turn));
    assert_garbage(fd, 3, own, TERN_BUSY);
    assert_garbage(fd, 4, own, TERN_BUSY);
    assert_true(rig_ping(fd, 5, RIG_WAIT_MS));
    assert_garbage(fd, 6, free_one, TERN_MALFORMED);
    assert_closed(fd, RIG_WAIT_MS);
    assert_ok(t, tern_turn_end(t, turn, TERN_STEP_NONE, 0));
    assert_next_succeeds(t, own);
}

/* ---- M-g ---- */

struct runner {
    struct tern *by;
    tern_session s;
};

static void *three_turns(void *arg)
{
    struct tern *by = ((struct runner *)arg)->by;
    tern_session s = ((struct runner *)arg)->s, turn;
    struct tern_result r;

    for (uint32_t i = 0; i < TURNS; i++) {
        check(tern_turn_begin(by, s, RIG_WAIT_MS, &turn) == TERN_OK);
        check(work(by, turn, &r) == TERN_OK);
        sleep_ms(BRIEF_MS);
        check(tern_turn_end(by, turn, TERN_STEP_NONE, RIG_WAIT_MS) == TERN_OK);
    }
    return NULL;
}

TEST(m_g_turns_of_different_sessions_run_side_by_side)
{
    uint64_t now, most = 0, end = rig_now_ms() + RIG_WAIT_MS;
    pthread_t thread[SESSIONS];
    struct runner runner[SESSIONS];

    for (uint32_t i = 0; i < SESSIONS; i++)
        runner[i] = (struct runner){client[i], opened()};
    for (uint32_t i = 0; i < SESSIONS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, three_turns, &runner[i]), 0);
    do {
        now = turns("turns.turns_in_flight");
        most = now > most ? now : most;
        assert_true(rig_now_ms() < end);
        usleep(1000);
    } while (turns("turns.turns_begun") < SESSIONS * TURNS || now > 0);
    for (uint32_t i = 0; i < SESSIONS; i++)
        pthread_join(thread[i], NULL);
    assert_in_range(most, 4, SESSIONS);
    assert_int_equal(turns("turns.turns_begun"), SESSIONS * TURNS);
}

/* ---- M-h ---- */

struct closer {
    struct tern *t;
    enum tern_err err;
    atomic_int answered;
};

static void *close_own(void *arg)
{
    struct closer *c = arg;
    struct tern_result r;

    c->err = tern_session_close(c->t, own, TERN_STEP_NONE, RIG_WAIT_MS, &r);
    atomic_store(&c->answered, 1);
    return NULL;
}

/* A turn is in flight, and a close waits for its end. */
static pthread_t close_in_mid_turn(struct closer *c, tern_session *ret_turn)
{
    pthread_t thread;
    tern_session unused;
    enum tern_err err;

    c->t = client[1];
    atomic_store(&c->answered, 0);
    assert_ok(t, tern_turn_begin(t, own, 0, ret_turn));
    assert_int_equal(pthread_create(&thread, NULL, close_own, c), 0);
    wait_until((err = tern_turn_begin(t, own, 0, &unused)) != TERN_BUSY);
    assert_err(TERN_GONE, err);
    return thread;
}

TEST(m_h_a_close_in_mid_turn_waits_and_later_use_is_gone)
{
    struct tern_result r;
    tern_session turn;
    struct closer c;
    pthread_t thread = close_in_mid_turn(&c, &turn);

    assert_ok(t, work(t, turn, &r)); /* the turn answers */
    assert_int_equal(r.lengths.allocated, 2 * L);
    assert_int_equal(atomic_load(&c.answered), 0);
    assert_ok(t, tern_turn_end(t, turn, 1, 0));
    pthread_join(thread, NULL);
    assert_ok(c.t, c.err);
    assert_err(TERN_GONE, work(t, turn, &r));
    assert_err(TERN_GONE, work(t, own, &r));
    assert_err(TERN_GONE, tern_session_close(t, own, TERN_STEP_NONE, 0, &r));
    assert_int_equal(retiring(), 2);
    for (uint32_t i = 0; i < CLIENTS; i++)
        assert_ok(client[i], tern_done_step(map[i], 1));
    assert_ok(t, tern_wait_published(t, 1, 0));
    assert_int_equal(retiring(), 0);
}

/* Nobody reported what the turn had in flight. */
TEST_WITH(m_h_a_turn_that_expires_leaves_the_session_open, start_short, stop)
{
    tern_session turn;
    struct closer c;
    pthread_t thread = close_in_mid_turn(&c, &turn);

    pthread_join(thread, NULL);
    assert_err(TERN_BUSY, c.err);
    assert_next_succeeds(c.t, own);
}

/* ---- M-i ---- */

TEST(m_i_the_slot_after_a_malformed_body)
{
    Tern__Wire__TurnBegin m = TERN__WIRE__TURN_BEGIN__INIT;
    int fd = raw_client();
    tern_session turn;

    assert_true(rig_message(fd, FRAME_TURN_BEGIN, 3, own, &m.base));
    assert_int_equal(rig_read(fd, RIG_WAIT_MS, &answer), RIG_FRAME);
    turn = ((const Tern__Wire__TurnBeginReply *)rig_decoded(&answer, FRAME_TURN_BEGIN_REPLY))->turn;
    assert_garbage(fd, 4, turn, TERN_MALFORMED);
    assert_closed(fd, RIG_WAIT_MS);
    wait_until(turns("turns.turns_lost") == 1);
    assert_next_succeeds(t, own);
}

TEST(m_i_the_slot_after_failed_work_and_a_validation_error)
{
    struct tern_result r;
    tern_session turn;

    assert_ok(t, tern_turn_begin(t, own, 0, &turn));
    assert_ok(t, work(t, turn, &r));
    assert_err(TERN_QUOTA, tern_extend(t, turn, NULL, 0, 4000 * L, 0, &r));
    assert_ok(t, tern_turn_end(t, turn, TERN_STEP_NONE, 0));
    assert_next_succeeds(t, own);
    assert_ok(t, tern_turn_begin(t, own, 0, &turn));
    assert_err(TERN_INVALID, tern_rewind(t, turn, 400, TERN_STEP_NONE, 0, &r));
    assert_ok(t, tern_turn_end(t, turn, TERN_STEP_NONE, 0));
    assert_next_succeeds(t, own);
}

TEST(m_i_the_slot_after_a_cancel)
{
    struct tern_result r;
    tern_session turn;

    assert_ok(t, tern_turn_begin(t, own, 0, &turn));
    assert_ok(t, work(t, turn, &r));
    assert_ok(t, tern_abort(t, turn, TERN_STEP_NONE, 0, &r));
    assert_int_equal(r.lengths.allocated, 0);
    assert_ok(t, tern_turn_end(t, turn, TERN_STEP_NONE, 0));
    assert_next_succeeds(t, own);
}

/* The connection is closed, the process stays. */
TEST(m_i_the_slot_after_a_disconnect)
{
    struct tern *gone = client[1];
    struct tern_result r;
    tern_session turn;

    assert_ok(gone, tern_turn_begin(gone, own, 0, &turn));
    assert_ok(gone, work(gone, turn, &r));
    assert_int_equal(shutdown(tern_fd(gone, NULL), SHUT_RDWR), 0);
    wait_until(turns("turns.turns_lost") == 1);
    assert_err(TERN_GONE, work(t, turn, &r));
    assert_next_succeeds(t, own);
    assert_err(TERN_DAEMON_LOST, tern_ping(gone, 0));
}

/* The engine dies with its process and takes its sessions along: the next turn belongs to a later
 * engine. */
TEST(m_i_the_slot_after_a_client_was_killed)
{
    struct tern_result r;
    tern_session turn = 0;
    int fd;
    pid_t pid = proc_fork_linked(&fd);

    if (pid == 0) {
        struct tern *by;

        check(tern_connect(rig.socket, RIG_WAIT_MS, &by) == TERN_OK);
        check(tern_join(by, NAME, TERN_SCHEDULER, 0, CLIENTS, NULL, RIG_WAIT_MS) == TERN_OK);
        check(tern_turn_begin(by, own, RIG_WAIT_MS, &turn) == TERN_OK);
        check(work(by, turn, &r) == TERN_OK);
        check(proc_send(fd, &turn, sizeof turn));
        pause();
    }
    assert_true(pid > 0);
    assert_true(proc_recv(fd, &turn, sizeof turn));
    assert_int_equal(turns("turns.turns_in_flight"), 1);
    assert_err(TERN_BUSY, work(t, own, &r));
    proc_end(&pid); /* SIGKILL */
    close(fd);
    wait_until(turns("turns.turns_in_flight") == 0);
    wait_until(work(t, own, &r) == TERN_GONE);
    assert_err(TERN_GONE, work(t, turn, &r));
    stop_engine();
    start_engine();
    assert_next_succeeds(t, own);
}

/* ---- a turn that nobody ends ---- */

TEST_WITH(a_turn_ends_at_its_deadline_and_a_late_request_releases_nothing, start_short, stop)
{
    struct tern *late = client[1];
    struct tern_result r;
    tern_session turn;
    uint64_t begun = rig_now_ms();

    assert_ok(late, tern_turn_begin(late, own, 0, &turn));
    assert_ok(late, work(late, turn, &r));
    wait_until(turns("turns.turns_expired") == 1);
    assert_true(rig_now_ms() >= begun + EXPIRES_MS);
    assert_err(TERN_GONE, tern_abort(late, turn, TERN_STEP_NONE, 0, &r));
    assert_err(TERN_GONE, tern_session_close(late, turn, TERN_STEP_NONE, 0, &r));
    assert_err(TERN_GONE, tern_turn_end(late, turn, TERN_STEP_NONE, 0));
    assert_ok(t, tern_extend(t, own, NULL, 0, 0, 0, &r)); /* the session's lengths */
    assert_int_equal(r.lengths.allocated, 2 * L);
    assert_int_equal(r.lengths.written, 2 * L);
    assert_next_succeeds(t, own);
}
