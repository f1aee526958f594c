/* The service manager's notification protocol. See log.h. */
#include "shell/log/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static struct {
    int fd; /* -1: no manager to notify */
    struct sockaddr_un to;
    socklen_t to_bytes;
    uint64_t watchdog_ns, watchdog_at_ns; /* interval, 0: no watchdog; time of the next report */
    char news[NOTIFY_STATE_BYTES];        /* pending message; "": none */
    char status[NOTIFY_STATUS_BYTES];
} notify = {.fd = -1};

/* Half of the time that the manager allows. Ignores a variable for another process's pid. */
static uint64_t watchdog(void)
{
    const char *usec = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");

    if (!usec || (pid && strtol(pid, NULL, 10) != (long)getpid()))
        return 0;
    return strtoull(usec, NULL, 10) * 1000 / 2;
}

void notify_open(void)
{
    const char *path = getenv("NOTIFY_SOCKET");
    size_t n = path ? strlen(path) : 0;

    notify_close();
    if (n == 0)
        return;
    if (n < 2 || n >= sizeof(notify.to.sun_path) || (path[0] != '/' && path[0] != '@')) {
        log_event(LEVEL_WARN, "notify_failed", "reason=%s",
                  "NOTIFY_SOCKET is neither a path nor an abstract name");
        return;
    }
    notify.to = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(notify.to.sun_path, path, n);
    if (path[0] == '@')
        notify.to.sun_path[0] = '\0'; /* the abstract namespace */
    notify.to_bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n);
    notify.fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (notify.fd < 0)
        log_event(LEVEL_WARN, "notify_failed", "reason=%s", strerror(errno));
    notify.watchdog_ns = watchdog();
}

void notify_close(void)
{
    if (notify.fd >= 0)
        close(notify.fd);
    notify.fd = -1;
    notify.watchdog_ns = notify.watchdog_at_ns = 0;
    notify.news[0] = notify.status[0] = '\0';
}

/* Returns false if there was no room and the message must be sent again. */
static bool sent(const char *text)
{
    ssize_t n =
        TEMP_FAILURE_RETRY(sendto(notify.fd, text, strlen(text), MSG_NOSIGNAL | MSG_DONTWAIT,
                                  (struct sockaddr *)&notify.to, notify.to_bytes));

    return n >= 0 || (errno != EAGAIN && errno != ENOBUFS);
}

static void send_all(void)
{
    if (notify.news[0] && sent(notify.news))
        notify.news[0] = '\0';
    if (!notify.news[0] && notify.status[0] && sent(notify.status))
        notify.status[0] = '\0';
}

void notify_state(const char *state)
{
    if (notify.fd < 0)
        return;
    snprintf(notify.news, sizeof(notify.news), "%s", state);
    send_all();
}

void notify_status(const char *format, ...)
{
    size_t n = sizeof("STATUS=") - 1;
    va_list args;

    if (notify.fd < 0)
        return;
    memcpy(notify.status, "STATUS=", n);
    va_start(args, format);
    vsnprintf(notify.status + n, sizeof(notify.status) - n, format, args);
    va_end(args);
    for (char *c = notify.status; *c; c++)
        if (*c == '\n') /* a newline would begin another variable */
            *c = ' ';
    send_all();
}

void notify_tick(uint64_t now_ns)
{
    if (notify.fd < 0)
        return;
    send_all();
    if (notify.watchdog_ns && now_ns >= notify.watchdog_at_ns && sent("WATCHDOG=1"))
        notify.watchdog_at_ns = now_ns + notify.watchdog_ns;
}
