/* The connected processes: their pidfds, and the proofs of their exit. See proc.h. Invariant: a pid
 * is not reused before its process has exited, so a connection is from a watched process if both
 * have the same pid and neither pidfd shows an exit. */
#include "shell/conn/proc.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/container.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* Linux 6.5; not in every libc's headers */
#endif

static const char why_namespace[] =
    "the daemon cannot see this process, which is in another pid namespace: run both in one, for "
    "instance with --pid=host or hostPID: true, or with shareProcessNamespace in one pod";

enum tern_err proc_table_init(struct proc_table *t, struct io *io, uint32_t n,
                              void (*gone)(void *ctx, uint32_t slot), void *ctx)
{
    *t = (struct proc_table){.io = io, .n = n, .gone = gone, .ctx = ctx};
    t->v = calloc(n, sizeof(*t->v));
    return t->v ? TERN_OK : TERN_INTERNAL;
}

void proc_table_finish(struct proc_table *t)
{
    for (uint32_t i = 0; t->v && i < t->n; i++)
        if (t->v[i].state == PROC_WATCHED)
            close(t->v[i].pidfd);
    free(t->v);
    t->v = NULL;
}

pid_t proc_pid(const struct proc_table *t, uint32_t slot)
{
    return slot < t->n && t->v[slot].state != PROC_FREE ? t->v[slot].pid : 0;
}

void proc_pids(const struct proc_table *t, const uint32_t procs[PROCS_PER_ENGINE_MAX], char *ret,
               size_t cap)
{
    size_t at = 0;

    ret[0] = '\0';
    for (uint32_t seat = 0; seat < PROCS_PER_ENGINE_MAX && at < cap; seat++)
        if (procs[seat] != NONE)
            at += (size_t)snprintf(ret + at, cap - at, "%s%d", at ? "," : "",
                                   (int)proc_pid(t, procs[seat]));
}

/* A pidfd is ready to read once every thread of the process has exited. Returns 1 if they have, 0
 * if not, -1 if poll fails. */
static int exited(int pidfd)
{
    struct pollfd p = {.fd = pidfd, .events = POLLIN};

    return poll(&p, 1, 0);
}

/* Without SO_PEERPIDFD the pid may have been recycled since the connect. If the connection is still
 * open after pidfd_open, its process (or a child that inherited it) was alive. */
static int pidfd_of(int sock, pid_t pid)
{
    struct pollfd p = {.fd = sock, .events = POLLRDHUP};
    socklen_t len = sizeof(int);
    int fd = -1;

    if (getsockopt(sock, SOL_SOCKET, SO_PEERPIDFD, &fd, &len) == 0)
        return fd;
    if (errno != ENOPROTOOPT)
        return -1;
    fd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (fd < 0)
        return -1;
    if (poll(&p, 1, 0) < 0 || (p.revents & (POLLRDHUP | POLLHUP | POLLERR))) {
        close(fd);
        return -1;
    }
    return fd;
}

static void proc_exited(struct io_op *op, int32_t res, uint32_t flags, uint32_t buffer)
{
    struct proc *p = container_of(op, struct proc, poll);
    struct proc_table *t = p->table;

    (void)flags, (void)buffer;
    if (res < 0 || exited(p->pidfd) != 1) {
        /* Not a proof of an exit: poll again. */
        if (res != -ECANCELED)
            io_poll_in(t->io, &p->poll, p->pidfd, false);
        return;
    }
    close(p->pidfd);
    p->pidfd = -1;
    proc_state_move(&p->state, PROC_EXITED);
    t->gone(t->ctx, (uint32_t)(p - t->v));
    proc_state_move(&p->state, PROC_FREE);
}

/* BUSY: no descriptors left. GONE: that process has exited. */
static enum tern_err identify(int sock, pid_t pid, int *ret_pidfd)
{
    int fd = pidfd_of(sock, pid);
    bool none_free = fd < 0 && (errno == EMFILE || errno == ENFILE);

    if (fd >= 0 && exited(fd) == 0) {
        *ret_pidfd = fd;
        return TERN_OK;
    }
    if (fd >= 0)
        close(fd);
    return none_free ? TERN_BUSY : TERN_GONE;
}

static uint32_t find(const struct proc_table *t, pid_t pid)
{
    for (uint32_t i = 0; i < t->n; i++)
        if (t->v[i].state == PROC_WATCHED && t->v[i].pid == pid && exited(t->v[i].pidfd) == 0)
            return i;
    return t->n;
}

/* Finds a slot for one more process of that tenant; none if the tenant has used its share. */
static uint32_t find_free(const struct proc_table *t, uint32_t tenant, uint32_t share)
{
    uint32_t slot = t->n, held = 0;

    for (uint32_t i = 0; i < t->n; i++)
        if (t->v[i].state == PROC_FREE)
            slot = slot == t->n ? i : slot;
        else
            held += t->v[i].tenant == tenant;
    return held < share ? slot : t->n;
}

enum tern_err proc_take(struct proc_table *t, int sock, uint32_t tenant, uint32_t share,
                        uint32_t *ret_slot, const char **ret_why)
{
    struct ucred cred = {0};
    socklen_t len = sizeof(cred);
    uint32_t slot;
    enum tern_err err;
    struct proc *p;
    int pidfd;

    if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &cred, &len) != 0 || cred.pid <= 0) {
        *ret_why = why_namespace;
        return TERN_DENIED;
    }
    err = identify(sock, cred.pid, &pidfd);
    if (err != TERN_OK) {
        *ret_why = err == TERN_BUSY
                       ? "no descriptor is free to watch the process: raise RLIMIT_NOFILE"
                       : "the process that connected has exited";
        return err;
    }
    slot = find(t, cred.pid);
    if (slot < t->n) {
        close(pidfd);
        *ret_slot = slot;
        return TERN_OK;
    }
    slot = find_free(t, tenant, share);
    if (slot == t->n) {
        close(pidfd);
        *ret_why = "this tenant has as many live processes as its conns_max: end one, or raise "
                   "conns_max";
        return TERN_BUSY;
    }
    p = &t->v[slot];
    proc_state_move(&p->state, PROC_WATCHED);
    p->pid = cred.pid;
    p->tenant = tenant;
    p->pidfd = pidfd;
    p->table = t;
    p->poll.done = proc_exited;
    io_poll_in(t->io, &p->poll, pidfd, false);
    *ret_slot = slot;
    return TERN_OK;
}
