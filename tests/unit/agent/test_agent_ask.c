/* tern-agent's questions without a daemon: each is refused with its reason, immediately until some
 * time has passed. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "client/agent/ask.h"
#include "testing/test.h"

static char path[64];

FIXTURE(begin)
{
    snprintf(path, sizeof path, "/tmp/tern-ask-%d", (int)getpid());
    unlink(path);
    return 0;
}

FIXTURE(end)
{
    unlink(path);
    return 0;
}

TEST_EACH(begin, end);

static struct ask asks(void)
{
    return (struct ask){.socket = path, .deadline_ms = 1000, .why = ASK_ANSWERED};
}

TEST(agent_without_a_daemon_is_told_why_and_waits)
{
    struct ask a = asks();

    assert_false(ask_begin(&a));
    assert_int_equal(a.why, ASK_NO_SOCKET);
    assert_null(a.tern);
    assert_int_equal(a.failures[ASK_NO_SOCKET], 1);
    assert_true(a.again_ns > ask_now_ns());
    assert_false(ask_begin(&a)); /* it does not try so soon */
    assert_int_equal(a.failures[ASK_NO_SOCKET], 1);
    a.again_ns = 0;
    assert_false(ask_begin(&a));
    assert_int_equal(a.failures[ASK_NO_SOCKET], 2);
}

TEST(agent_at_a_socket_that_nobody_listens_on_is_told_so)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    struct ask a = asks();
    int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);

    snprintf(at.sun_path, sizeof at.sun_path, "%s", path);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    close(fd);
    assert_false(ask_begin(&a));
    assert_string_equal(ask_word(a.why), "nobody_listens");
}
