/* The io seam over io_uring: one ring, one thread (the one that calls io_create), no allocation
 * after io_create. Completions are deferred to io_run (DEFER_TASKRUN), so a callback is never
 * interrupted.
 *
 * Invariant: each operation has exactly one final completion; its submission is kept in the
 * operation until then, so that EINTR and EAGAIN can be retried and a full queue can wait for room.
 * Sockets given to this file are in blocking mode: io_uring polls for them, while O_NONBLOCK would
 * return EAGAIN. */
#include "seam/io/io.h"

#include <assert.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/check.h"
#include "base/undumped.h"
#include "seam/io/client_fds.h"
#include "seam/io/io_states.h"
#include "seam/io/uring_compat.h"

#define RING_FLAGS_WANTED                                                                          \
    (IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_SUBMIT_ALL |           \
     IORING_SETUP_CQSIZE | IORING_SETUP_R_DISABLED)
#define CQ_PER_SQ   4u     /* completion entries for each submission entry: multishots need many */
#define ENTRIES_MAX 4096u  /* of the submission queue */
#define BUFFERS_MAX 32768u /* the kernel's own limit of a buffer ring */
#define BUFFERS_ALL 65536u /* of all groups: their numbers have 16 bits */
#define OPCODES_MAX 256u   /* that one probe can report */
#define STOP_MAX_NS 2000000000u /* a cancelled operation ends at once, or something is wrong */

/* An operation's state (io_states.h) is in a word of the submission that no opcode here uses. */
#define STATE_AT 7

struct io {
    struct io_uring ring;
    struct io_uring_buf_ring **buf_ring; /* owned, one a group; NULL: no buffers */
    uint8_t *buf_mem;                    /* owned mapping, of the buffers of all groups */
    uint32_t groups, buffers, buffer_bytes;
    struct fifo waiting; /* operations that wait for room in the submission queue */
    uint32_t fault_sq_full, fault_count;
    bool running; /* inside io_run: a callback must not call it again */
    bool overflow_seen;
    struct io_stats stats;
};

static_assert(sizeof(struct io_uring_sqe) == sizeof(((struct io_op *)0)->pending),
              "an operation has room for its submission");

static const uint8_t opcodes_used[] = {
    IORING_OP_NOP,     IORING_OP_ACCEPT,   IORING_OP_RECV,
    IORING_OP_SEND,    IORING_OP_RECVMSG,  IORING_OP_SENDMSG,
    IORING_OP_CONNECT, IORING_OP_POLL_ADD, IORING_OP_ASYNC_CANCEL,
};
#define OPCODES_USED (sizeof opcodes_used)

uint64_t io_now_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* ------------------------------------------------------------------ create */

static const char *why_setup_failed(int err)
{
    switch (err) {
    case EPERM:
    case EACCES:
        return "io_uring is denied: if sysctl kernel.io_uring_disabled is not 0, set it to 0; in a "
               "container use a seccomp profile that allows io_uring_setup, io_uring_enter and "
               "io_uring_register (docker run --security-opt seccomp=FILE, Kubernetes "
               "seccompProfile type Localhost)";
    case ENOSYS:
        return "the kernel has no io_uring, or a container's seccomp profile hides it: allow "
               "io_uring_setup, io_uring_enter and io_uring_register; Linux 6.1 or newer is needed";
    case EINVAL:
        return "the kernel is too old: io_uring with DEFER_TASKRUN needs Linux 6.1 or newer";
    case ENOMEM:
        return "no memory for the io_uring queues: raise RLIMIT_MEMLOCK (ulimit -l, LimitMEMLOCK=) "
               "or lower the number of entries";
    case EMFILE:
    case ENFILE: return "no file descriptor left for the io_uring: raise RLIMIT_NOFILE";
    default: return "io_uring_setup failed";
    }
}

static bool probe_opcodes(struct io_uring *ring)
{
    union {
        struct io_uring_probe probe;
        uint8_t
            room[sizeof(struct io_uring_probe) + OPCODES_MAX * sizeof(struct io_uring_probe_op)];
    } answer = {.room = {0}};
    bool all = io_uring_register_probe(ring, &answer.probe, OPCODES_MAX) == 0;

    for (size_t i = 0; all && i < OPCODES_USED; i++)
        all = io_uring_opcode_supported(&answer.probe, opcodes_used[i]);
    return all;
}

static size_t buffers_size(const struct io *io)
{
    return (size_t)io->groups * io->buffers * io->buffer_bytes;
}

static void *buffer_at(const struct io *io, uint32_t buffer)
{
    return io->buf_mem + (size_t)buffer * io->buffer_bytes;
}

static void buffer_add(struct io *io, uint32_t buffer)
{
    struct io_uring_buf_ring *ring = io->buf_ring[buffer / io->buffers];

    io_uring_buf_ring_add(ring, buffer_at(io, buffer), io->buffer_bytes, (unsigned short)buffer,
                          io_uring_buf_ring_mask(io->buffers), 0);
    io_uring_buf_ring_advance(ring, 1);
}

static size_t buf_ring_bytes(const struct io *io)
{
    return io->buffers * sizeof(struct io_uring_buf);
}

static int setup_group(struct io *io, uint32_t group)
{
    struct io_uring_buf_ring *ring = undumped_take(buf_ring_bytes(io), true);
    struct io_uring_buf_reg reg = {
        .ring_addr = (uintptr_t)ring, .ring_entries = io->buffers, .bgid = (uint16_t)group};

    io->buf_ring[group] = ring;
    return ring ? io_uring_register_buf_ring(&io->ring, &reg, 0) : -ENOMEM;
}

static int setup_buffers(struct io *io, const struct io_config *config)
{
    int r = 0;

    if (config->buffers == 0)
        return 0;
    io->groups = config->groups;
    io->buffers = config->buffers;
    io->buffer_bytes = config->buffer_bytes;
    io->buf_ring = calloc(io->groups, sizeof *io->buf_ring);
    io->buf_mem = undumped_take(buffers_size(io), true);
    if (!io->buf_mem || !io->buf_ring)
        return -ENOMEM;
    for (uint32_t g = 0; r == 0 && g < io->groups; g++)
        r = setup_group(io, g);
    for (uint32_t i = 0; r == 0 && i < io->groups * io->buffers; i++)
        buffer_add(io, i);
    return r;
}

static enum tern_err setup_ring(struct io *io, const struct io_config *config, const char **ret_why)
{
    struct io_uring_params params = {.flags = RING_FLAGS_WANTED,
                                     .cq_entries = config->entries * CQ_PER_SQ};
    int r = io_uring_queue_init_params(config->entries, &io->ring, &params);

    if (r < 0) {
        io->ring.ring_fd = -1;
        *ret_why = why_setup_failed(-r);
        return TERN_INTERNAL;
    }
    if (!(params.features & IORING_FEAT_NODROP) || !(params.features & IORING_FEAT_EXT_ARG) ||
        !probe_opcodes(&io->ring)) {
        *ret_why = "the kernel's io_uring lacks an operation that the daemon needs: use Linux 6.1 "
                   "or newer";
        return TERN_INTERNAL;
    }
    r = setup_buffers(io, config);
    if (r < 0) {
        *ret_why = r == -ENOMEM
                       ? "no memory for the receive buffers: lower their number or raise "
                         "RLIMIT_MEMLOCK (ulimit -l, LimitMEMLOCK=)"
                       : "the kernel refused the ring of receive buffers: use Linux 6.1 or newer";
        return TERN_INTERNAL;
    }
    if (uring_enable(&io->ring, opcodes_used, OPCODES_USED,
                     IOSQE_BUFFER_SELECT | IOSQE_CQE_SKIP_SUCCESS | IOSQE_ASYNC) < 0) {
        *ret_why = "the kernel refused to restrict the io_uring to the operations in use";
        return TERN_INTERNAL;
    }
    return TERN_OK;
}

enum tern_err io_create(const struct io_config *config, struct io **ret, const char **ret_why)
{
    struct io *io;
    enum tern_err err;

    if (config->entries == 0 || config->entries > ENTRIES_MAX || config->buffers > BUFFERS_MAX ||
        (config->buffers & (config->buffers - 1)) != 0 ||
        (uint64_t)config->buffers * config->groups > BUFFERS_ALL ||
        (config->buffers != 0 && (config->buffer_bytes == 0 || config->groups == 0))) {
        *ret_why = "io: entries must be 1 to 4096, buffers a power of two up to 32768, and those "
                   "of all groups at most 65536";
        return TERN_INVALID;
    }
    io = calloc(1, sizeof *io);
    if (!io) {
        *ret_why = "no memory for the io ring";
        return TERN_INTERNAL;
    }
    io->ring.ring_fd = -1;
    io->fault_sq_full = config->fault_sq_full;
    err = setup_ring(io, config, ret_why);
    if (err != TERN_OK) {
        io_destroy(io);
        return err;
    }
    *ret = io;
    return TERN_OK;
}

void io_destroy(struct io *io)
{
    if (!io)
        return;
    if (io->ring.ring_fd >= 0)
        io_uring_queue_exit(&io->ring);
    for (uint32_t g = 0; io->buf_ring && g < io->groups; g++)
        undumped_put(io->buf_ring[g], buf_ring_bytes(io));
    free(io->buf_ring);
    undumped_put(io->buf_mem, buffers_size(io));
    free(io);
}

/* ------------------------------------------------------------------ submission */

static enum io_op_state op_state(const struct io_op *op)
{
    return (enum io_op_state)op->pending[STATE_AT];
}

static void op_move(struct io_op *op, enum io_op_state to)
{
    io_op_state_move(&op->pending[STATE_AT], to);
}

/* Keeps the submission until the operation ends; its state stays. */
static void op_keep(struct io_op *op, struct io_uring_sqe *sqe, void *data)
{
    io_uring_sqe_set_data(sqe, data);
    memcpy(op->pending, sqe, STATE_AT * sizeof(op->pending[0]));
}

/* A free submission entry; a full queue is submitted once. NULL: the kernel takes none now. */
static struct io_uring_sqe *sqe_take(struct io *io)
{
    struct io_uring_sqe *sqe;

    if (io->fault_sq_full && ++io->fault_count % io->fault_sq_full == 0)
        return NULL;
    sqe = io_uring_get_sqe(&io->ring);
    if (sqe)
        return sqe;
    io_uring_submit(&io->ring);
    return io_uring_get_sqe(&io->ring);
}

static void sqe_fill(struct io_uring_sqe *sqe, const struct io_op *op)
{
    uint64_t words[8];

    memcpy(words, op->pending, sizeof words);
    words[STATE_AT] = 0;
    memcpy(sqe, words, sizeof *sqe);
}

static void wait_flush(struct io *io)
{
    while (io->waiting.first) {
        struct io_uring_sqe *sqe = sqe_take(io);
        struct io_op *op;

        if (!sqe)
            return;
        op = fifo_pop(&io->waiting, struct io_op, link);
        sqe_fill(sqe, op);
        if (op_state(op) == IO_OP_WAITING)
            op_move(op, IO_OP_IN_FLIGHT);
        else if (op_state(op) == IO_OP_CANCEL_WAITING)
            op_move(op, IO_OP_CANCELLED);
    }
}

/* Submits what op_keep has kept, or queues it to wait for room. */
static void post(struct io *io, struct io_op *op, enum io_op_state waits, enum io_op_state posted)
{
    struct io_uring_sqe *sqe = io->waiting.first ? NULL : sqe_take(io);

    op_move(op, sqe ? posted : waits);
    if (sqe) {
        sqe_fill(sqe, op);
    } else {
        fifo_push(&io->waiting, &op->link);
        io->stats.sq_waits++;
    }
}

static void post_sqe(struct io *io, struct io_op *op, struct io_uring_sqe *sqe)
{
    if (op->aside)
        sqe->flags |= IOSQE_ASYNC;
    op_keep(op, sqe, op);
    post(io, op, IO_OP_WAITING, IO_OP_IN_FLIGHT);
}

void io_accept(struct io *io, struct io_op *op, int fd)
{
    struct io_uring_sqe sqe = {0};

    io_uring_prep_accept(&sqe, fd, NULL, NULL, SOCK_CLOEXEC);
    post_sqe(io, op, &sqe);
}

void io_recv(struct io *io, struct io_op *op, int fd, void *buf, size_t n, bool wait_all)
{
    struct io_uring_sqe sqe = {0};

    check(n <= INT32_MAX);
    io_uring_prep_recv(&sqe, fd, buf, n, wait_all ? MSG_WAITALL : 0);
    post_sqe(io, op, &sqe);
}

/* A peek skips an OOB byte, and reading it frees its descriptors, unless the byte is in line. */
void io_client_init(struct io_client *client, int fd)
{
    int one = 1;

    client->look = client_fds_may_come(fd);
    if (client->look)
        check(setsockopt(fd, SOL_SOCKET, SO_OOBINLINE, &one, sizeof one) == 0);
}

/* The poll comes first, so that a buffer is used only when there are bytes for it. */
void io_recv_buffers(struct io *io, struct io_op *op, struct io_client *client, int fd,
                     uint32_t group)
{
    struct io_uring_sqe sqe = {0};

    check(group < io->groups);
    if (client->look && !op->aside) {
        client->msg = (struct msghdr){0};
        io_uring_prep_recvmsg(&sqe, fd, &client->msg, MSG_PEEK);
    } else {
        io_uring_prep_recv(&sqe, fd, NULL, 0, 0);
    }
    sqe.ioprio |= IORING_RECVSEND_POLL_FIRST;
    sqe.flags |= IOSQE_BUFFER_SELECT;
    sqe.buf_group = (uint16_t)group;
    post_sqe(io, op, &sqe);
}

void io_send(struct io *io, struct io_op *op, int fd, const void *buf, size_t n, bool wait_all)
{
    struct io_uring_sqe sqe = {0};

    check(n <= INT32_MAX);
    io_uring_prep_send(&sqe, fd, buf, n, MSG_NOSIGNAL | (wait_all ? MSG_WAITALL : 0));
    post_sqe(io, op, &sqe);
}

void io_sendmsg(struct io *io, struct io_op *op, int fd, const struct msghdr *msg)
{
    struct io_uring_sqe sqe = {0};

    io_uring_prep_sendmsg(&sqe, fd, msg, MSG_NOSIGNAL | (unsigned)msg->msg_flags);
    post_sqe(io, op, &sqe);
}

void io_recvmsg(struct io *io, struct io_op *op, int fd, struct msghdr *msg)
{
    struct io_uring_sqe sqe = {0};

    io_uring_prep_recvmsg(&sqe, fd, msg, (unsigned)msg->msg_flags);
    post_sqe(io, op, &sqe);
}

void io_connect(struct io *io, struct io_op *op, int fd, const struct sockaddr *addr, socklen_t len)
{
    struct io_uring_sqe sqe = {0};

    io_uring_prep_connect(&sqe, fd, addr, len);
    post_sqe(io, op, &sqe);
}

void io_poll_in(struct io *io, struct io_op *op, int fd, bool multishot)
{
    struct io_uring_sqe sqe = {0};

    if (multishot)
        io_uring_prep_poll_multishot(&sqe, fd, POLLIN);
    else
        io_uring_prep_poll_add(&sqe, fd, POLLIN);
    post_sqe(io, op, &sqe);
}

/* An operation that still waits for room becomes a NOP, whose completion is reported as ECANCELED;
 * so io_run always reports the result, and never the call itself. */
void io_cancel(struct io *io, struct io_op *op)
{
    struct io_uring_sqe sqe = {0};

    if (op_state(op) == IO_OP_WAITING) {
        io_uring_prep_nop(&sqe);
        op_keep(op, &sqe, op);
        op_move(op, IO_OP_CANCELLED);
        return;
    }
    if (op_state(op) != IO_OP_IN_FLIGHT)
        return;
    io_uring_prep_cancel(&sqe, op, 0);
    sqe.flags |= IOSQE_CQE_SKIP_SUCCESS; /* the operation's own completion has its result */
    op_keep(op, &sqe, NULL);
    post(io, op, IO_OP_CANCEL_WAITING, IO_OP_CANCELLED);
}

void io_stop(struct io *io, struct io_op *op)
{
    const uint64_t deadline = io_now_ns() + STOP_MAX_NS;

    io_cancel(io, op);
    while (op_state(op) != IO_OP_IDLE && io_now_ns() < deadline)
        io_run(io, deadline);
    check(op_state(op) == IO_OP_IDLE);
}

/* ------------------------------------------------------------------ completion */

/* The kernel ends a multishot poll if it has no room for a completion. */
static bool goes_on(const struct io_op *op, int32_t res)
{
    struct io_uring_sqe sqe;

    if ((uint8_t)op->pending[0] != IORING_OP_POLL_ADD || res < 0 || op_state(op) != IO_OP_IN_FLIGHT)
        return false;
    memcpy(&sqe, op->pending, sizeof sqe);
    return (sqe.len & IORING_POLL_ADD_MULTI) != 0;
}

/* After a peek at n bytes: reads exactly those, since more bytes may have arrived, with
 * descriptors. A peek at a message with descriptors returns MSG_CTRUNC. */
static int32_t take_seen(struct io *io, const struct io_uring_cqe *cqe,
                         const struct io_uring_sqe *sqe)
{
    const struct msghdr *msg = (const struct msghdr *)(uintptr_t)sqe->addr;
    size_t n = (size_t)cqe->res;
    ssize_t got;

    if (msg->msg_flags & MSG_CTRUNC)
        return -EBADMSG;
    got = recv(sqe->fd, buffer_at(io, cqe->flags >> IORING_CQE_BUFFER_SHIFT), n, MSG_DONTWAIT);
    return got > 0 ? (int32_t)got : -EIO;
}

static void complete(struct io *io, const struct io_uring_cqe *cqe)
{
    struct io_op *op = io_uring_cqe_get_data(cqe);
    bool last = !(cqe->flags & IORING_CQE_F_MORE);
    uint32_t flags = 0, buffer = 0;
    int32_t res = cqe->res;

    if (!op)
        return; /* the cancel found nothing; the operation's own completion has its result */
    if (last) {
        enum io_op_state state = op_state(op);

        if (state == IO_OP_CANCEL_WAITING)
            fifo_remove(&io->waiting, &op->link); /* it completed before its cancel found room */
        if (state != IO_OP_IN_FLIGHT &&
            (res == -EINTR || res == -EAGAIN || (uint8_t)op->pending[0] == IORING_OP_NOP))
            res = -ECANCELED;
        if (res == -EINTR || res == -EAGAIN) {
            post(io, op, IO_OP_WAITING, IO_OP_IN_FLIGHT);
            return;
        }
        if (goes_on(op, res)) {
            post(io, op, IO_OP_WAITING, IO_OP_IN_FLIGHT);
        } else {
            op_move(op, IO_OP_IDLE);
            flags = IO_LAST;
        }
    }
    if (res > 0 && (uint8_t)op->pending[0] == IORING_OP_RECVMSG) {
        struct io_uring_sqe sqe;

        memcpy(&sqe, op->pending, STATE_AT * sizeof op->pending[0]);
        if (sqe.msg_flags & MSG_PEEK)
            res = take_seen(io, cqe, &sqe);
    }
    if (res == -ENOBUFS)
        io->stats.buffers_empty++;
    if (cqe->flags & IORING_CQE_F_BUFFER) {
        flags |= IO_BUFFER;
        buffer = cqe->flags >> IORING_CQE_BUFFER_SHIFT;
    }
    io->stats.completions++;
    op->done(op, res, flags, buffer);
}

/* Calls back for every completion that is in the queue now. Completions that the callbacks cause
 * wait for the next round, so that the caller gets its turn. */
static uint32_t reap(struct io *io)
{
    unsigned n = io_uring_cq_ready(&io->ring), done = 0;

    for (; done < n; done++) {
        struct io_uring_cqe *cqe, copy;

        if (io_uring_peek_cqe(&io->ring, &cqe) != 0)
            break;
        copy = *cqe;
        io_uring_cqe_seen(&io->ring, cqe);
        complete(io, &copy);
    }
    return done;
}

/* Counts each time the kernel parked completions; the next entry returns them (NODROP). */
static void note_overflow(struct io *io)
{
    bool now = io_uring_cq_has_overflow(&io->ring);

    if (now && !io->overflow_seen)
        io->stats.cq_overflows++;
    io->overflow_seen = now;
}

static void submit_and_wait(struct io *io, uint64_t deadline_ns)
{
    struct io_uring_cqe *cqe = NULL;
    struct __kernel_timespec ts;
    uint64_t now;

    if (io_uring_cq_ready(&io->ring) > 0) {
        /* Completions exist already: no wait, no clock, and no system call except a submission. The
         * submission also runs deferred work, which completions at submission could otherwise
         * starve. */
        if (io_uring_sq_ready(&io->ring) > 0)
            io_uring_submit_and_get_events(&io->ring);
        return;
    }
    if (deadline_ns == UINT64_MAX) {
        io_uring_submit_and_wait_timeout(&io->ring, &cqe, 1, NULL, NULL);
        return;
    }
    now = io_now_ns();
    if (deadline_ns <= now) {
        io_uring_submit_and_get_events(&io->ring);
        return;
    }
    ts.tv_sec = (long long)((deadline_ns - now) / 1000000000u);
    ts.tv_nsec = (long long)((deadline_ns - now) % 1000000000u);
    io_uring_submit_and_wait_timeout(&io->ring, &cqe, 1, &ts, NULL);
}

void io_submit(struct io *io)
{
    io_uring_submit(&io->ring);
}

uint32_t io_run(struct io *io, uint64_t deadline_ns)
{
    uint32_t n;

    check(!io->running);
    io->running = true;
    wait_flush(io);
    if (io->waiting.first || deadline_ns == 0) /* then do not wait: operations need room */
        io_uring_submit_and_get_events(&io->ring);
    else
        submit_and_wait(io, deadline_ns);
    note_overflow(io);
    n = reap(io);
    io->running = false;
    return n;
}

/* ------------------------------------------------------------------ buffers, figures */

const void *io_buffer(struct io *io, uint32_t buffer)
{
    check(buffer < io->groups * io->buffers);
    return buffer_at(io, buffer);
}

void io_buffer_put(struct io *io, uint32_t buffer)
{
    check(buffer < io->groups * io->buffers);
    buffer_add(io, buffer);
}

void io_stats(const struct io *io, struct io_stats *ret)
{
    *ret = io->stats;
}
