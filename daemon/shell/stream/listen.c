/* Listening sockets. See listen.h. Invariant: a socket file belongs to one running daemon; a lack
 * of descriptors ends neither the listener nor connections. */
#include "shell/stream/listen.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/container.h"
#include "base/err.h"
#include "seam/io/client_fds.h"
#include "seam/io/tcp_listen.h"
#include "shell/log/log.h"

#define LISTEN_FDS_START 3
#define WHY_NOT_MADE     "%s: %s (check that its folder exists and that this user may write there)"

/* Returns true if a daemon answers on that path: then we must not replace the file. */
static bool answers(const struct sockaddr_un *addr)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bool yes;

    if (fd < 0)
        return false;
    yes = connect(fd, (const struct sockaddr *)addr, sizeof(*addr)) == 0 || errno == EAGAIN;
    close(fd);
    return yes;
}

static bool is_socket(const char *path)
{
    struct stat st;

    return lstat(path, &st) == 0 && S_ISSOCK(st.st_mode);
}

enum tern_err listen_unix_place(const char *path, char *why, size_t cap)
{
    char folder[sizeof(((struct sockaddr_un *)0)->sun_path)], *end;
    struct stat st;

    snprintf(folder, sizeof(folder), "%s", path);
    end = strrchr(folder, '/');
    if (!end)
        return TERN_OK; /* the working directory: bind reports its errors */
    end[end == folder] = '\0';
    if (stat(folder, &st) != 0)
        snprintf(why, cap, "%s: its folder %s: %s", path, folder, strerror(errno));
    else if (!S_ISDIR(st.st_mode))
        snprintf(why, cap, "%s: %s is not a folder", path, folder);
    else if (faccessat(AT_FDCWD, folder, W_OK | X_OK, AT_EACCESS) != 0)
        snprintf(why, cap, "%s: this user may not make a socket in %s: %s", path, folder,
                 strerror(errno));
    else if (!is_socket(path) && lstat(path, &st) == 0)
        snprintf(why, cap,
                 "%s: the path exists and is not a socket: remove it or choose another path", path);
    else
        return TERN_OK;
    return TERN_INVALID;
}

enum tern_err listen_unix_may(const char *path, char *why, size_t cap)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};

    if (strlen(path) >= sizeof(addr.sun_path))
        return fail_with(why, cap, TERN_INVALID, "%s: too long for a socket's path", path);
    strcpy(addr.sun_path, path);
    if (answers(&addr))
        return fail_with(why, cap, TERN_CONFLICT,
                         "%s: another daemon answers there; stop it or choose another path", path);
    return listen_unix_place(path, why, cap);
}

enum tern_err listen_unix(struct listener *l, const char *path, uint32_t mode, char *why,
                          size_t cap)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    mode_t old;
    int bound;

    *l = (struct listener){.fd = -1};
    TRY(listen_unix_may(path, why, cap));
    strcpy(addr.sun_path, path);
    if (is_socket(path))
        unlink(path);
    l->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (l->fd < 0)
        return fail_with(why, cap, TERN_INTERNAL, "%s: %s", path, strerror(errno));
    l->refuses = client_fds_refuse(l->fd);
    /* The mode must apply from the first moment, so the file is made without rights for others. */
    old = umask(0177);
    bound = bind(l->fd, (struct sockaddr *)&addr, sizeof(addr));
    umask(old);
    if (bound != 0 || chmod(path, (mode_t)mode) != 0 || listen(l->fd, LISTEN_BACKLOG) != 0) {
        snprintf(why, cap, WHY_NOT_MADE, path, strerror(errno));
        close(l->fd);
        l->fd = -1;
        return TERN_INVALID;
    }
    strcpy(l->path, path);
    return TERN_OK;
}

enum tern_err listen_tcp(struct listener *l, const char *host, uint16_t port, uint16_t *ret_port,
                         char *why, size_t cap)
{
    const char *text = "";

    *l = (struct listener){.fd = tcp_listen(host, port, LISTEN_BACKLOG, ret_port, &text)};
    if (l->fd >= 0)
        return TERN_OK;
    return fail_with(
        why, cap, TERN_INVALID, "listen %s:%u: %s; %s", host, port, text,
        errno == EADDRINUSE
            ? "stop the program that listens there, perhaps another daemon, or choose another port"
            : "`listen` must name an address of this host");
}

/* Accepts one connection per turn of the loop, so that a storm of connects delays nobody. */
static void ask(struct listener *l)
{
    l->waits = l->has_place && !l->has_place(l);
    if (!l->waits)
        io_accept(l->io, &l->op, l->fd);
}

static void accept_done(struct io_op *op, int32_t res, uint32_t flags, uint32_t buffer)
{
    struct listener *l = container_of(op, struct listener, op);

    (void)buffer;
    if (res >= 0)
        l->accepted(l, res);
    else if (res != -ECANCELED)
        log_event(LEVEL_WARN, "accept_paused", "errno=%d reason=%s path=%s", -res, strerror(-res),
                  l->path);
    if (!(flags & IO_LAST))
        return;
    if (res >= 0)
        ask(l);
    else
        l->resume_ns = io_now_ns() + LISTEN_PAUSE_NS;
}

void listen_start(struct listener *l, struct io *io, void (*accepted)(struct listener *, int fd),
                  void *ctx)
{
    l->io = io;
    l->accepted = accepted;
    l->ctx = ctx;
    l->op.done = accept_done;
    ask(l);
}

void listen_again(struct listener *l)
{
    if (l->waits)
        ask(l);
}

void listen_tick(struct listener *l, uint64_t now_ns)
{
    if (l->fd < 0 || !l->resume_ns || now_ns < l->resume_ns)
        return;
    l->resume_ns = 0;
    ask(l);
}

void listen_stop(struct listener *l)
{
    if (l->fd < 0)
        return;
    /* The exit of the process closes clients that were not accepted: some may have sent
     * descriptors, and some have epolls waiting on them. */
    if (!l->has_place)
        close(l->fd);
    l->fd = -1;
    if (l->path[0] && !l->given)
        unlink(l->path);
}

/* ---- sockets that the service manager passed ---- */

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
