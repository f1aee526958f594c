/* See listen.h. */
#include "shell/stream/listen.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/err.h"
#include "seam/io/client_fds.h"
#include "shell/log/log.h"

#define LISTEN_FDS_START 3

#define refuse(why, cap, ...) fail_with(why, cap, TERN_INVALID, __VA_ARGS__)

/* Makes the socket blocking: on a non-blocking one the ring's accept would end at once. */
static bool prepare(int fd)
{
    int flags = fcntl(fd, F_GETFL);

    return flags >= 0 && fcntl(fd, F_SETFL, flags & ~O_NONBLOCK) == 0 &&
           fcntl(fd, F_SETFD, FD_CLOEXEC) == 0;
}

static enum tern_err add(struct listen_fds *to, const char *name, size_t bytes, char *why,
                         size_t cap)
{
    int fd = LISTEN_FDS_START + (int)to->n;

    if (to->n == LISTEN_FDS_MAX)
        return refuse(why, cap, "LISTEN_FDS: more sockets than there can be tenants");
    if (bytes >= sizeof(to->v[0].name))
        return refuse(
            why, cap,
            "LISTEN_FDS: a name in LISTEN_FDNAMES is longer than admin or any tenant-NAME");
    if (!prepare(fd))
        return refuse(why, cap, "LISTEN_FDS: descriptor %d: %s", fd, strerror(errno));
    snprintf(to->v[to->n].name, sizeof(to->v[0].name), "%.*s", (int)bytes, name);
    to->v[to->n++].fd = fd;
    return TERN_OK;
}

enum tern_err listen_fds_read(struct listen_fds *ret, char *why, size_t cap)
{
    const char *pid = getenv("LISTEN_PID"), *count = getenv("LISTEN_FDS"),
               *names = getenv("LISTEN_FDNAMES");
    unsigned long n;

    ret->n = 0;
    if (!pid || !count || strtol(pid, NULL, 10) != (long)getpid())
        return TERN_OK;
    n = strtoul(count, NULL, 10);
    for (size_t bytes; n > 0 && names; names = names[bytes] ? names + bytes + 1 : NULL) {
        bytes = strcspn(names, ":");
        TRY(add(ret, names, bytes, why, cap));
    }
    if (ret->n != n)
        return refuse(why, cap,
                      "LISTEN_FDS: LISTEN_FDNAMES lacks names: set FileDescriptorName= to admin or "
                      "tenant-NAME in every socket unit");
    return TERN_OK;
}

static bool listens_at(int fd, const char *path)
{
    struct sockaddr_un at = {0};
    socklen_t len = sizeof(at) - 1, size = sizeof(int);
    int listening = 0, type = 0;

    return getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) == 0 && listening &&
           getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_STREAM &&
           getsockname(fd, (struct sockaddr *)&at, &len) == 0 && at.sun_family == AF_UNIX &&
           strcmp(at.sun_path, path) == 0;
}

enum tern_err listen_fds_take(struct listen_fds *fds, const char *name, const char *path,
                              struct listener *l, char *why, size_t cap)
{
    *l = (struct listener){.fd = -1};
    for (uint32_t i = 0; i < fds->n; i++) {
        if (fds->v[i].fd < 0 || strcmp(fds->v[i].name, name) != 0)
            continue;
        if (!listens_at(fds->v[i].fd, path))
            return refuse(
                why, cap,
                "LISTEN_FDS: the socket called %s does not listen at %s: set the same path in "
                "ListenStream= of its unit and in the configuration",
                name, path);
        l->fd = fds->v[i].fd;
        l->given = true;
        l->refuses = client_fds_refuse(l->fd); /* not for clients that connected earlier */
        snprintf(l->path, sizeof(l->path), "%s", path);
        fds->v[i].fd = -1;
        log_event(LEVEL_INFO, "socket_taken", "name=%s path=%s", name, path);
        return TERN_OK;
    }
    return TERN_OK;
}

enum tern_err listen_fds_all_taken(const struct listen_fds *fds, char *why, size_t cap)
{
    for (uint32_t i = 0; i < fds->n; i++)
        if (fds->v[i].fd >= 0)
            return refuse(
                why, cap,
                "LISTEN_FDS: no socket is called %s: a socket's name is admin, or tenant- and the "
                "name of a configured tenant, and each has one socket",
                fds->v[i].name);
    return TERN_OK;
}
