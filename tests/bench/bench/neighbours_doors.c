/* Strangers of tenant A of `tern-bench neighbours`: connections that send nothing, many more than a
 * door has places. The daemon closes the oldest ones, which is A's refusal. Within its share A
 * closes each at once. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "neighbours_tables.h"

#define SILENT 256 /* left open by A */

/* Returns -1 with a message. A reset at the end leaves no port in TIME_WAIT. */
static int connect_to(uint16_t port, const char *path)
{
    struct sockaddr_in in = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    struct linger reset = {.l_onoff = 1};
    int fd = socket(path ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), rc;

    if (path)
        snprintf(un.sun_path, sizeof un.sun_path, "%s", path);
    rc = fd < 0 ? -1
                : connect(fd, path ? (struct sockaddr *)&un : (struct sockaddr *)&in,
                          path ? sizeof un : sizeof in);
    if (rc != 0) {
        fprintf(stderr, "tern-bench: a stranger at a door: %s\n", strerror(errno));
        if (fd >= 0)
            close(fd);
        return -1;
    }
    if (!path)
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    return fd;
}

static int stranger(const struct tenant_a *a)
{
    const struct hosts *h = a->hosts;

    if (a->table == &a_socket_door)
        return connect_to(0, h->here.socket);
    return connect_to(a->table == &a_data_door ? h->data_port : h->control_port, NULL);
}

/* REFUSED: the daemon has closed the oldest of them. */
static enum a_answer stay(struct tenant_a *a)
{
    int *oldest = &a->fds[a->serial++ % SILENT];
    enum a_answer answer = A_DONE;
    char byte;

    if (*oldest > 0) {
        ssize_t n = recv(*oldest, &byte, 1, MSG_DONTWAIT);

        if (n >= 0 || errno != EAGAIN)
            answer = A_REFUSED;
        close(*oldest);
    }
    *oldest = stranger(a);
    return *oldest > 0 ? answer : A_FAILED;
}

static enum a_answer pass(struct tenant_a *a)
{
    int fd = stranger(a);

    if (fd < 0)
        return A_FAILED;
    close(fd);
    return A_DONE;
}

static bool strangers_open(struct tenant_a *a)
{
    (void)a;
    return true;
}

static bool strangers_go(struct tenant_a *a)
{
    for (uint32_t i = 0; i < SILENT; i++) {
        if (a->fds[i] > 0)
            close(a->fds[i]);
        a->fds[i] = 0;
    }
    return true;
}

#define DOOR(title)                                                                                \
    {                                                                                              \
        .name = title, .open = strangers_open, .over = stay, .within = pass,                       \
        .release = strangers_go                                                                    \
    }

const struct a_table a_data_door = DOOR("data door");
const struct a_table a_control_door = DOOR("control door");
const struct a_table a_socket_door = DOOR("socket door");
