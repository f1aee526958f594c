/* What the service manager is told, and that one which does not read holds nobody up. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "shell/log/notify.h"
#include "testing/test.h"

#define GIVE_UP_S 60 /* the alarm ends the test */

static char path[64];
static int manager;

static struct sockaddr_un address(void)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};

    strcpy(addr.sun_path, path);
    return addr;
}

FIXTURE(set_up)
{
    struct sockaddr_un addr;

    snprintf(path, sizeof path, "/tmp/tern-notify-%d", (int)getpid());
    unlink(path);
    addr = address();
    manager = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_true(manager >= 0);
    assert_int_equal(bind(manager, (struct sockaddr *)&addr, sizeof addr), 0);
    setenv("NOTIFY_SOCKET", path, 1);
    alarm(GIVE_UP_S);
    return 0;
}

FIXTURE(tear_down)
{
    alarm(0);
    close(manager);
    unlink(path);
    unsetenv("NOTIFY_SOCKET");
    return 0;
}

TEST_WITH(notify_reaches_the_manager_word_for_word, set_up, tear_down)
{
    char text[64] = "";

    notify_service("READY=1");
    assert_int_equal(recv(manager, text, sizeof text, 0), 7);
    assert_string_equal(text, "READY=1");
}

TEST_WITH(notify_with_a_manager_that_does_not_read_comes_back, set_up, tear_down)
{
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct sockaddr_un addr = address();
    uint32_t n = 0;

    while (sendto(fd, "x", 1, 0, (struct sockaddr *)&addr, sizeof addr) == 1)
        n++;
    assert_int_equal(errno, EAGAIN);
    assert_true(n > 0);
    notify_service("STOPPING=1");
    close(fd);
}

TEST_WITH(notify_without_a_manager_does_nothing, set_up, tear_down)
{
    char text[64];

    unsetenv("NOTIFY_SOCKET");
    notify_service("READY=1");
    setenv("NOTIFY_SOCKET", "/tmp/tern-notify-nobody", 1);
    notify_service("READY=1");
    assert_int_equal(recv(manager, text, sizeof text, 0), -1);
}
