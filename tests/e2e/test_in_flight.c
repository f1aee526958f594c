/* Answers with descriptors that a client does not read: the kernel counts the descriptors against
 * the daemon's user, and above RLIMIT_NOFILE refuses to send more for that user. Here daemon and
 * test run as one user without capabilities, so that the limit applies to them. */
#include <grp.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rig_daemon.h"
#include "testing/test.h"

#define NOBODY    65534
#define FILES_MAX 300u /* of the daemon */
#define AT_ONCE   250u /* descriptors of one message: the kernel's limit is 253 */

static struct daemon d;
static struct rig_answer answer;

static void answered(int fd, uint16_t type, uint64_t id, enum tern_err want)
{
    do
        assert_int_equal(rig_read(fd, RIG_WAIT_MS, &answer), RIG_FRAME);
    while (answer.h.request_id != id);
    assert_int_equal(answer.h.type, type + 1);
    assert_err(want, rig_status(&answer));
}

static void close_fds(void)
{
    for (uint32_t i = 0; i < answer.nfds; i++)
        close(answer.fds[i]);
}

/* Joins as an engine of that name and opens a pool, with the requests 2 and 3. */
static uint64_t joined(int fd, const char *name)
{
    Tern__Wire__EngineJoin join = TERN__WIRE__ENGINE_JOIN__INIT;
    Tern__Wire__Group group = TERN__WIRE__GROUP__INIT, *list[1] = {&group};
    Tern__Wire__PoolOpen m = TERN__WIRE__POOL_OPEN__INIT;

    join.name = (char *)(uintptr_t)name;
    join.has_role = join.has_world = true;
    join.role = 2;
    join.world = 1;
    group.name = (char *)(uintptr_t) "kv";
    group.has_page_tokens = group.has_page_bytes = true;
    group.page_tokens = 64;
    group.page_bytes = RIG_PAGE;
    m.n_groups = 1;
    m.groups = list;
    m.has_bytes = true;
    m.bytes = 64 * RIG_PAGE;
    assert_true(rig_message(fd, FRAME_ENGINE_JOIN, 2, 0, &join.base));
    answered(fd, FRAME_ENGINE_JOIN, 2, TERN_OK);
    assert_true(rig_message(fd, FRAME_POOL_OPEN, 3, 0, &m.base));
    answered(fd, FRAME_POOL_OPEN, 3, TERN_OK);
    return ((const Tern__Wire__PoolOpenReply *)rig_decoded(&answer, FRAME_POOL_OPEN_REPLY))->pool;
}

static void ask_map(int fd, uint64_t id, uint64_t pool)
{
    Tern__Wire__PoolRef m = TERN__WIRE__POOL_REF__INIT;

    m.has_pool = true;
    m.pool = pool;
    assert_true(rig_message(fd, FRAME_POOL_MAP, id, 0, &m.base));
}

/* The kernel may count an answer for a moment after it was read: the processor that allocated its
 * memory frees it. */
static void map_in_the_end(int fd, uint64_t id, uint64_t pool)
{
    uint64_t end = rig_now_ms() + RIG_WAIT_MS;

    do {
        ask_map(fd, id, pool);
        assert_int_equal(rig_read(fd, RIG_WAIT_MS, &answer), RIG_FRAME);
        assert_int_equal(answer.h.request_id, id++);
    } while (rig_status(&answer) == TERN_BUSY && rig_now_ms() < end);
    assert_err(TERN_OK, rig_status(&answer));
}

TEST(answer_with_descriptors_is_busy_behind_an_unread_one)
{
    uint64_t pool;
    int fd, other;

    rig_start(&d, NULL, NULL);
    fd = rig_greeted(d.socket);
    pool = joined(fd, "e");
    for (uint64_t id = 4; id < 104; id++)
        ask_map(fd, id, pool);
    other = rig_greeted(d.socket);
    assert_true(rig_ping(other, 2, RIG_WAIT_MS)); /* the daemon has answered all of them */
    answered(fd, FRAME_POOL_MAP, 4, TERN_OK);
    assert_int_equal(answer.nfds, 3);
    close_fds();
    for (uint64_t id = 5; id < 104; id++) {
        answered(fd, FRAME_POOL_MAP, id, TERN_BUSY);
        assert_int_equal(answer.nfds, 0);
    }
    map_in_the_end(fd, 104, pool);
    assert_int_equal(answer.nfds, 3);
    close_fds();
    close(fd);
    close(other);
}

/* A closed connection with such an answer still counts for its tenant, until the other side has
 * read the answer or closed its end. */
TEST(ended_connection_with_an_unread_answer_holds_its_place)
{
    int ended[RIG_CONNS_MAX], fd;

    rig_start(&d, NULL, NULL);
    for (uint32_t i = 0; i < RIG_CONNS_MAX; i++) {
        fd = ended[i] = rig_greeted(d.socket);
        ask_map(fd, 4, joined(fd, "e"));
        assert_true(rig_message(fd, FRAME_ENGINE_LEAVE, 5, 0,
                                &(Tern__Wire__EngineLeave)TERN__WIRE__ENGINE_LEAVE__INIT.base));
        assert_int_equal(shutdown(fd, SHUT_WR), 0);
    }
    fd = rig_connect(d.socket);
    assert_true(fd >= 0);
    assert_int_equal(rig_read(fd, RIG_WAIT_MS, &answer), RIG_FRAME);
    assert_err(TERN_QUOTA, rig_status(&answer));
    close(fd);
    for (uint32_t i = 0; i < RIG_CONNS_MAX; i++)
        close(ended[i]);
    close(rig_greeted_in_time(d.socket));
}

/* Sends descriptors of this process that nobody receives. */
static void pump(int pair[2])
{
    char control[CMSG_SPACE(AT_ONCE * sizeof(int))] = {0};
    struct iovec iov = {(char[1]){0}, 1};
    struct msghdr m = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *cm = CMSG_FIRSTHDR(&m);

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    cm->cmsg_level = SOL_SOCKET;
    cm->cmsg_type = SCM_RIGHTS;
    cm->cmsg_len = CMSG_LEN(AT_ONCE * sizeof(int));
    for (uint32_t i = 0; i < AT_ONCE; i++)
        memcpy(CMSG_DATA(cm) + i * sizeof(int), &(int){STDERR_FILENO}, sizeof(int));
    assert_int_equal(sendmsg(pair[1], &m, 0), 1);
}

/* Another process of the daemon's user has used up the kernel's limit: the asker gets a typed
 * error, the connection continues, and the log names the asker. */
TEST(answer_whose_descriptors_the_kernel_refuses_is_typed)
{
    Tern__Wire__Empty ping = TERN__WIRE__EMPTY__INIT;
    char env[32], words[64];
    int fd, pair[2][2];
    uint64_t pool;

    snprintf(env, sizeof env, RIG_NOFILE "%u", FILES_MAX);
    rig_start(&d, NULL, env);
    fd = rig_greeted(d.socket);
    pool = joined(fd, "e");
    pump(pair[0]);
    pump(pair[1]);
    ask_map(fd, 4, pool);
    assert_true(rig_message(fd, FRAME_PING, 5, 0, &ping.base)); /* answered in the same buffer */
    answered(fd, FRAME_POOL_MAP, 4, TERN_BUSY);
    assert_int_equal(answer.nfds, 0);
    answered(fd, FRAME_PING, 5, TERN_OK);
    snprintf(words, sizeof words, "event=descriptors_in_flight tenant=t0 pid=%d limit=%u",
             (int)getpid(), FILES_MAX);
    assert_true(rig_log_has(&d, words, RIG_WAIT_MS));
    for (uint32_t i = 0; i < 2; i++) {
        close(pair[i][0]);
        close(pair[i][1]);
    }
    map_in_the_end(fd, 6, pool);
    assert_int_equal(answer.nfds, 3);
    close_fds();
    close(fd);
}

FIXTURE(set_up)
{
    struct rlimit files;

    if (geteuid() != 0)
        return 0;
    return getrlimit(RLIMIT_NOFILE, &files) != 0 || setgroups(0, NULL) != 0 ||
           setresgid(NOBODY, NOBODY, NOBODY) != 0 || setresuid(NOBODY, NOBODY, NOBODY) != 0;
}

FIXTURE(tear_down)
{
    return rig_stop(&d);
}

TEST_EACH(set_up, tear_down);
