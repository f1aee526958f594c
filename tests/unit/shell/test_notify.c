/* What the service manager is told, and that one which does not read holds nobody up. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "shell/loop/notify.h"

#define GIVE_UP_S 60 /* the alarm ends the test */

static char path[64];
static int manager;

static struct sockaddr_un address(void)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};

    strcpy(addr.sun_path, path);
    return addr;
}

static int set_up(void **state)
{
    struct sockaddr_un addr;

    (void)state;
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

static int tear_down(void **state)
{
    (void)state;
    alarm(0);
    close(manager);
    unlink(path);
    unsetenv("NOTIFY_SOCKET");
    return 0;
}

static void notify_reaches_the_manager_word_for_word(void **state)
{
    char text[64] = "";

    (void)state;
    notify_service("READY=1");
    assert_int_equal(recv(manager, text, sizeof text, 0), 7);
    assert_string_equal(text, "READY=1");
}

static void notify_with_a_manager_that_does_not_read_comes_back(void **state)
{
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct sockaddr_un addr = address();
    uint32_t n = 0;

    (void)state;
    while (sendto(fd, "x", 1, 0, (struct sockaddr *)&addr, sizeof addr) == 1)
        n++;
    assert_int_equal(errno, EAGAIN);
    assert_true(n > 0);
    notify_service("STOPPING=1");
    close(fd);
}

static void notify_without_a_manager_does_nothing(void **state)
{
    char text[64];

    (void)state;
    unsetenv("NOTIFY_SOCKET");
    notify_service("READY=1");
    setenv("NOTIFY_SOCKET", "/tmp/tern-notify-nobody", 1);
    notify_service("READY=1");
    assert_int_equal(recv(manager, text, sizeof text, 0), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(notify_reaches_the_manager_word_for_word, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(notify_with_a_manager_that_does_not_read_comes_back, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(notify_without_a_manager_does_nothing, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
