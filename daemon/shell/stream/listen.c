/* Listening sockets. See listen.h. Invariant: a socket file belongs to one running daemon; a lack
 * of descriptors ends neither the listener nor connections. */
#include "shell/stream/listen.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
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

#define WHY_NOT_MADE "%s: %s (check that its folder exists and that this user may write there)"

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
        snprintf(why, cap, "%s: %s is no folder", path, folder);
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
    return fail_with(why, cap, TERN_INVALID, "listen %s:%u: %s; %s", host, port, text,
                     errno == EADDRINUSE
                         ? "stop what listens there, another daemon perhaps, or choose another port"
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
