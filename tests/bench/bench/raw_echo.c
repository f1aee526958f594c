/* The raw baseline: see raw_echo.h. The server submits the answers to everything received together
 * with the next receive, which is as cheap as an answering server can be. */
#include "raw_echo.h"

#include <liburing.h>
#include <sys/socket.h>
#include <unistd.h>

#include "engine/proc.h"

#define BUFFER_BYTES 65536
#define MESSAGE_MAX  16384

enum tag { TAG_RECV = 1, TAG_SEND };

static void post_recv(struct io_uring *ring, int fd, void *buf)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(ring);

    io_uring_prep_recv(sqe, fd, buf, BUFFER_BYTES, 0);
    io_uring_sqe_set_data64(sqe, TAG_RECV);
}

static void post_send(struct io_uring *ring, int fd, const void *buf, size_t n)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(ring);

    io_uring_prep_send(sqe, fd, buf, n, MSG_WAITALL | MSG_NOSIGNAL);
    io_uring_sqe_set_data64(sqe, TAG_SEND);
}

static bool ring_init(struct io_uring *ring)
{
    struct io_uring_params params = {.flags =
                                         IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN};

    if (io_uring_queue_init_params(64, ring, &params) == 0)
        return true;
    return io_uring_queue_init(64, ring, 0) == 0;
}

_Noreturn static void serve(int fd, uint32_t request_bytes, uint32_t reply_bytes)
{
    static uint8_t in[BUFFER_BYTES], out[RAW_REPLIES_MAX * MESSAGE_MAX];
    struct io_uring ring;
    uint64_t have = 0;

    if (!ring_init(&ring))
        _exit(1);
    post_recv(&ring, fd, in);
    for (;;) {
        struct io_uring_cqe *cqe;

        if (io_uring_submit_and_wait(&ring, 1) < 0)
            _exit(1);
        while (io_uring_peek_cqe(&ring, &cqe) == 0) {
            int res = cqe->res;
            bool received = io_uring_cqe_get_data64(cqe) == TAG_RECV;

            io_uring_cqe_seen(&ring, cqe);
            if (res <= 0)
                _exit(0);
            if (!received)
                continue;
            have += (uint64_t)res;
            if (have >= request_bytes)
                post_send(&ring, fd, out, have / request_bytes * reply_bytes);
            have %= request_bytes;
            post_recv(&ring, fd, in);
        }
    }
}

bool raw_echo_start(struct raw_echo *e, uint32_t request_bytes, uint32_t reply_bytes, int core)
{
    *e = (struct raw_echo){
        .pid = -1, .fd = -1, .request_bytes = request_bytes, .reply_bytes = reply_bytes};
    if (request_bytes > MESSAGE_MAX || reply_bytes > MESSAGE_MAX || !request_bytes || !reply_bytes)
        return false;
    e->pid = proc_fork_linked(&e->fd);
    if (e->pid == 0) {
        if (!proc_pin(core))
            _exit(1);
        serve(e->fd, request_bytes, reply_bytes);
    }
    return e->pid > 0 && raw_echo_ping(e);
}

void raw_echo_stop(struct raw_echo *e)
{
    if (e->fd >= 0)
        close(e->fd);
    e->fd = -1;
    proc_end(&e->pid);
}

bool raw_echo_send(const struct raw_echo *e)
{
    static uint8_t message[MESSAGE_MAX];

    return proc_send(e->fd, message, e->request_bytes);
}

bool raw_echo_receive(const struct raw_echo *e)
{
    static uint8_t message[MESSAGE_MAX];

    return proc_recv(e->fd, message, e->reply_bytes);
}

bool raw_echo_ping(const struct raw_echo *e)
{
    return raw_echo_send(e) && raw_echo_receive(e);
}

bool raw_echo_pipeline(const struct raw_echo *e, uint32_t n, uint32_t depth)
{
    static uint8_t message[MESSAGE_MAX], in[BUFFER_BYTES];
    uint32_t sent = 0, answered = 0;
    uint64_t have = 0;

    while (answered < n) {
        ssize_t got;

        for (; sent < n && sent - answered < depth; sent++) {
            if (!proc_send(e->fd, message, e->request_bytes))
                return false;
        }
        got = recv(e->fd, in, sizeof in, 0);
        if (got <= 0)
            return false;
        have += (uint64_t)got;
        answered += (uint32_t)(have / e->reply_bytes);
        have %= e->reply_bytes;
    }
    return true;
}
