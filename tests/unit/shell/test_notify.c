/* Messages to the service manager, and that one which does not read delays nobody. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "shell/log/log.h"
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
    notify_close();
    unsetenv("NOTIFY_SOCKET");
    unsetenv("WATCHDOG_USEC");
    unsetenv("WATCHDOG_PID");
    return 0;
}

static void heard(const char *want)
{
    char text[NOTIFY_STATUS_BYTES] = "";
    ssize_t n = recv(manager, text, sizeof text - 1, 0);

    assert_int_equal(n, strlen(want));
    assert_string_equal(text, want);
}

static void heard_nothing(void)
{
    char text[8];

    assert_int_equal(recv(manager, text, sizeof text, 0), -1);
}

/* Sends until there is no more room. */
static uint32_t fill(void)
{
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct sockaddr_un addr = address();
    uint32_t n = 0;

    while (sendto(fd, "x", 1, 0, (struct sockaddr *)&addr, sizeof addr) == 1)
        n++;
    assert_int_equal(errno, EAGAIN);
    assert_true(n > 0);
    close(fd);
    return n;
}

TEST_WITH(notify_reaches_the_manager_word_for_word, set_up, tear_down)
{
    notify_open();
    notify_state("READY=1");
    heard("READY=1");
    notify_status("serving %d tenants\nMAINPID=1", 2);
    heard("STATUS=serving 2 tenants MAINPID=1");
    notify_tick(1);
    heard_nothing();
}

TEST_WITH(notify_with_a_manager_that_does_not_read_waits_for_the_next_tick, set_up, tear_down)
{
    uint32_t n;

    setenv("WATCHDOG_USEC", "2000000", 1);
    notify_open();
    n = fill();
    notify_state("RELOADING=1");
    notify_status("one");
    notify_state("READY=1");
    notify_status("two");
    notify_tick(1);
    while (n-- > 0)
        heard("x");
    heard_nothing();
    notify_tick(2);
    heard("READY=1");
    heard("STATUS=two");
    heard("WATCHDOG=1");
    heard_nothing();
}

TEST_WITH(notify_watchdog_is_told_twice_in_its_time, set_up, tear_down)
{
    char pid[24];

    snprintf(pid, sizeof pid, "%d", (int)getpid());
    setenv("WATCHDOG_USEC", "2000000", 1);
    setenv("WATCHDOG_PID", pid, 1);
    notify_open();
    notify_tick(5);
    heard("WATCHDOG=1");
    notify_tick(5 + 999999999);
    heard_nothing();
    notify_tick(5 + 1000000000);
    heard("WATCHDOG=1");
    setenv("WATCHDOG_PID", "1", 1);
    notify_open();
    notify_tick(UINT64_MAX / 2);
    heard_nothing();
}

TEST_WITH(notify_without_a_manager_does_nothing, set_up, tear_down)
{
    static const char *const nobody[] = {NULL, "", "tmp/relative", "/tmp/tern-notify-nobody"};

    for (size_t i = 0; i < sizeof nobody / sizeof *nobody; i++) {
        if (nobody[i])
            setenv("NOTIFY_SOCKET", nobody[i], 1);
        else
            unsetenv("NOTIFY_SOCKET");
        notify_open();
        notify_state("READY=1");
        notify_status("serving");
        notify_tick(1);
        heard_nothing();
    }
}
