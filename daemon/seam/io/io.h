/* Asynchronous I/O: the only module that knows liburing. One owner thread posts operations and runs
 * the loop; completions are calls of `done`. Nothing here allocates after io_create.
 *
 * An operation is the caller's struct io_op, embedded in the caller's own struct. It must stay in
 * place until `done` was called with IO_LAST in flags (for one-shot operations: the only call). For
 * the caller the submission queue never overflows: a full queue is submitted and, if that does not
 * help, the operation waits on an intrusive list (fault 13). */
#ifndef SEAM_IO_H
#define SEAM_IO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/fifo.h"
#include "base/tern_err.h"

struct io;

#define IO_LAST   1u /* no further completion of this operation follows */
#define IO_BUFFER 2u /* a receive returned a buffer: io_buffer / io_buffer_put */

/* Zeroed before its first use. */
struct io_op {
    /* res >= 0: bytes, a file descriptor or poll mask; < 0: -errno. Never EINTR or EAGAIN. */
    void (*done)(struct io_op *op, int32_t res, uint32_t flags, uint32_t buffer);
    /* A kernel thread executes it, and not this thread when the operation is ready: for a socket
     * whose other end can make each call on it slow. */
    bool aside;
    struct fifo_link link; /* io's own */
    uint64_t pending[8];   /* io's own: a submission, waiting for room */
};

struct io_config {
    uint32_t entries;       /* submission queue */
    uint32_t groups;        /* of receive buffers: an empty group does not affect the others */
    uint32_t buffers;       /* of each group; a power of two */
    uint32_t buffer_bytes;  /* of each buffer */
    uint32_t fault_sq_full; /* injected: each n-th submission finds the queue full; 0: none */
};

/* Returns INTERNAL and sets *ret_why if the ring cannot be made: what is missing and what to do
 * (io_uring denied by the container, kernel too old, RLIMIT_MEMLOCK). */
enum tern_err io_create(const struct io_config *config, struct io **ret, const char **ret_why);
void io_destroy(struct io *io);

/* Sockets given to these calls are in blocking mode (no O_NONBLOCK): the ring itself waits for
 * them.
 *
 * io_run submits, waits until at least one completion or until deadline_ns (CLOCK_MONOTONIC;
 * UINT64_MAX: for ever; 0: do not wait), and calls back for every completion that exists; returns
 * how many. */
uint32_t io_run(struct io *io, uint64_t deadline_ns);

uint64_t io_now_ns(void); /* CLOCK_MONOTONIC */
/* Submits the posted operations, and executes those that need no waiting: for a caller that
 * measures the time. */
void io_submit(struct io *io);

void io_accept(struct io *io, struct io_op *op, int fd); /* of one connection */
void io_recv(struct io *io, struct io_op *op, int fd, void *buf, size_t n, bool wait_all);

/* The way to receive from a client's socket, decided once, before its first byte is read. If the
 * kernel refuses descriptors (client_fds.h), it is the same as for any other socket. Otherwise
 * `look` is set: the bytes are peeked at first, and only bytes without descriptors are read. Owned
 * by the caller; zeros: of no client. */
struct io_client {
    bool look;
    struct msghdr msg;
};
void io_client_init(struct io_client *client, int fd);
/* Waits until there is something to read, and reads it into a buffer of that group. -ENOBUFS: the
 * group has no free buffer, and nothing was read. -EBADMSG: the client has sent descriptors,
 * nothing was read, and none of them was received; close the socket with closer_close (closer.h).
 * *client belongs to the operation until its end. */
void io_recv_buffers(struct io *io, struct io_op *op, struct io_client *client, int fd,
                     uint32_t group);
void io_send(struct io *io, struct io_op *op, int fd, const void *buf, size_t n, bool wait_all);
/* msg is borrowed until done; its msg_flags (MSG_WAITALL) apply to the call, also in io_recvmsg. */
void io_sendmsg(struct io *io, struct io_op *op, int fd, const struct msghdr *msg);
void io_recvmsg(struct io *io, struct io_op *op, int fd, struct msghdr *msg);
void io_connect(struct io *io, struct io_op *op, int fd, const struct sockaddr *addr,
                socklen_t len);
/* multishot: completes again and again until it is cancelled, or with an error. */
void io_poll_in(struct io *io, struct io_op *op, int fd, bool multishot);
void io_cancel(struct io *io, struct io_op *op); /* it completes: with -ECANCELED or a result */
/* Cancels it and runs the ring until it has completed, for use at an end. Has no effect if it is
 * not in flight. */
void io_stop(struct io *io, struct io_op *op);

const void *io_buffer(struct io *io, uint32_t buffer);
void io_buffer_put(struct io *io, uint32_t buffer);

struct io_stats {
    uint64_t completions, cq_overflows, sq_waits, buffers_empty;
};
void io_stats(const struct io *io, struct io_stats *ret);

#endif
