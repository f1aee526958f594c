/* Sockets and the ring (seam/io.h). Bytes travel in pieces of random size and arrive at random
 * times. An operation's result is fixed at one moment (its bytes move then, or, for a send, little
 * by little before) and reported at a later one, so that a cancellation may come before, between or
 * after. Connections are reset, refused, cut off and left without a peer. */
#include "world.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/uio.h>

#include "redirect.h"

#define FDS        96u
#define FD_FIRST   1000
#define OPS        160u
#define SOCK_BYTES 8192u
#define BACKLOG    8u
#define AGAIN_NS   (20 * MS) /* between tries to get over a cut */

enum fd_kind { FD_FREE, FD_SOCKET, FD_LISTEN, FD_EVENT };

struct descriptor {
    enum fd_kind kind;
    uint32_t gen, node, port;
    /* FD_EVENT */
    bool readable, news; /* news: since the last poll reported it */
    /* FD_SOCKET */
    bool connected, shut, fin, reset, delivering; /* fin: no bytes follow those received */
    uint32_t peer;                                /* NONE32: none, or it fell silent */
    uint64_t silent_until;
    uint32_t head, n, visible;
    uint8_t in[SOCK_BYTES];
    /* FD_LISTEN */
    uint32_t waiting[BACKLOG], nwaiting;
};

enum op_kind { OP_RECV, OP_SEND, OP_CONNECT, OP_ACCEPT, OP_POLL };

struct operation {
    bool used, due, fixed; /* due: a T_OP is in the heap */
    enum op_kind kind;
    uint32_t gen, node, fd, port;
    struct io_op *op;
    struct iovec one;
    const struct iovec *iov;
    size_t niov, done;
    bool all;
    uint64_t owner;
    int32_t res;
};

struct io {
    uint32_t node;
    uint64_t completions;
};

static struct descriptor fds[FDS];
static struct operation ops[OPS];
static struct io ios[NODES];

void rnet_reset(void)
{
    for (uint32_t i = 0; i < FDS; i++) {
        fds[i].kind = FD_FREE;
        fds[i].gen++;
    }
    for (uint32_t i = 0; i < OPS; i++) {
        ops[i].used = false;
        ops[i].gen++;
    }
}

struct io *rnet_io(uint32_t node)
{
    ios[node].node = node;
    return &ios[node];
}

uint64_t io_now_ns(void)
{
    return rw.now_ns;
}

/* ------------------------------------------------------------------ descriptors */

static uint32_t fd_take(enum fd_kind kind, uint32_t node)
{
    uint32_t i = 0, gen;

    while (i < FDS && fds[i].kind != FD_FREE)
        i++;
    check(i < FDS);
    gen = fds[i].gen + 1;
    memset(&fds[i], 0, offsetof(struct descriptor, in));
    fds[i].nwaiting = 0;
    fds[i].kind = kind;
    fds[i].gen = gen;
    fds[i].node = node;
    fds[i].peer = NONE32;
    return i;
}

static struct descriptor *fd_of(int fd)
{
    uint32_t i = (uint32_t)(fd - FD_FIRST);

    if (fd < FD_FIRST || i >= FDS || fds[i].kind == FD_FREE)
        rw_fail("bad_descriptor", "descriptor %d is not open", fd);
    return &fds[i];
}

uint32_t rnet_open(uint32_t node)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < FDS; i++)
        n += fds[i].kind != FD_FREE && fds[i].node == node;
    return n;
}

static void op_due(struct operation *o, uint64_t delay)
{
    if (o->due || o->fixed)
        return;
    o->due = true;
    rw_post(delay, T_OP, (uint32_t)(o - ops), o->gen);
}

static void poke(uint32_t fd)
{
    for (uint32_t i = 0; i < OPS; i++)
        if (ops[i].used && ops[i].fd == fd)
            op_due(&ops[i],
                   rw_soon() + (ops[i].kind == OP_POLL ? 1000ull * rw_below(rw.cfg.busy + 1) : 0));
}

static void peer_ends(uint32_t fd, bool reset)
{
    struct descriptor *d = &fds[fd];

    if (reset)
        d->reset = true;
    d->fin = true;
    poke(fd);
}

int sim_shutdown(int fd, int how)
{
    struct descriptor *d = fd_of(fd);

    (void)how;
    d->shut = true;
    poke((uint32_t)(d - fds));
    if (d->kind == FD_SOCKET && d->peer != NONE32)
        peer_ends(d->peer, false);
    return 0;
}

int sim_close(int fd)
{
    struct descriptor *d = fd_of(fd);
    uint32_t number = (uint32_t)(d - fds);

    for (uint32_t i = 0; i < OPS; i++)
        if (ops[i].used && ops[i].fd == number)
            rw_fail("closed_under_operation", "descriptor %d has an operation in flight, kind %d",
                    fd, (int)ops[i].kind);
    if (d->kind == FD_SOCKET && d->peer != NONE32) {
        peer_ends(d->peer, d->n > 0);
        fds[d->peer].peer = NONE32;
    }
    for (uint32_t i = 0; d->kind == FD_LISTEN && i < d->nwaiting; i++)
        sim_close((int)d->waiting[i] + FD_FIRST);
    d->kind = FD_FREE;
    return 0;
}

void rnet_close(int fd)
{
    sim_close(fd);
}

int sim_socket(int family, int type, int protocol)
{
    (void)family, (void)type, (void)protocol;
    return (int)fd_take(FD_SOCKET, rw.current) + FD_FIRST;
}

int sim_getaddrinfo(const char *host, const char *service, const struct addrinfo *hints,
                    struct addrinfo **ret)
{
    static struct sockaddr_in at;
    static struct addrinfo list;

    (void)host, (void)hints;
    at = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(service))};
    list = (struct addrinfo){
        .ai_family = AF_INET, .ai_addr = (struct sockaddr *)(void *)&at, .ai_addrlen = sizeof at};
    *ret = &list;
    return 0;
}

int sim_bind(int fd, const struct sockaddr *addr, socklen_t len)
{
    (void)len;
    fd_of(fd)->port = ntohs(((const struct sockaddr_in *)(const void *)addr)->sin_port);
    return 0;
}

int sim_listen(int fd, int backlog)
{
    (void)backlog;
    fd_of(fd)->kind = FD_LISTEN;
    return 0;
}

int sim_getsockname(int fd, struct sockaddr *addr, socklen_t *len)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)fd_of(fd)->port)};

    memcpy(addr, &at, sizeof at);
    *len = sizeof at;
    return 0;
}

int rnet_event_fd(uint32_t node)
{
    return (int)fd_take(FD_EVENT, node) + FD_FIRST;
}

void rnet_signal(int fd)
{
    struct descriptor *d = fd_of(fd);

    d->readable = d->news = true;
    poke((uint32_t)(d - fds));
}

void rnet_clear(int fd)
{
    fd_of(fd)->readable = false;
}

/* ------------------------------------------------------------------ operations */

static struct operation *op_take(struct io *io, struct io_op *op, enum op_kind kind, int fd)
{
    uint32_t i = 0, gen;

    while (i < OPS && ops[i].used)
        i++;
    check(i < OPS);
    gen = ops[i].gen + 1;
    ops[i] = (struct operation){.used = true,
                                .kind = kind,
                                .gen = gen,
                                .node = io->node,
                                .fd = (uint32_t)(fd_of(fd) - fds),
                                .op = op};
    op->pending[0] = (uint64_t)gen << 32 | i;
    return &ops[i];
}

static void op_fix(struct operation *o, int32_t res)
{
    o->fixed = true;
    o->res = res;
    rw_post(rw_soon(), T_OP_DONE, (uint32_t)(o - ops), o->gen);
}

static void op_tell(struct operation *o, int32_t res, bool last)
{
    struct io_op *op = o->op;

    ios[o->node].completions++;
    rw.current = o->node;
    if (last)
        o->used = false;
    op->done(op, res, last ? IO_LAST : 0, 0);
}

void rnet_op_done(uint32_t number, uint32_t gen)
{
    struct operation *o = &ops[number];

    if (o->used && o->gen == gen)
        op_tell(o, o->res, true);
}

static size_t iov_bytes(const struct operation *o)
{
    size_t n = 0;

    for (size_t i = 0; i < o->niov; i++)
        n += o->iov[i].iov_len;
    return n;
}

/* The memory `at` bytes into the operation's; *ret_n: length of its contiguous part. */
static uint8_t *iov_at(const struct operation *o, size_t at, size_t *ret_n)
{
    size_t i = 0;

    for (; at >= o->iov[i].iov_len; i++)
        at -= o->iov[i].iov_len;
    *ret_n = o->iov[i].iov_len - at;
    return (uint8_t *)o->iov[i].iov_base + at;
}

/* ------------------------------------------------------------------ bytes */

static size_t some_of(size_t n)
{
    return rw_one_in(3) ? rw_between(1, (uint32_t)n) : n;
}

static void flip(uint8_t *at, size_t n)
{
    rmem_excuse(at, n, EXCUSE_FLIP);
    at[rw_below((uint32_t)n)] ^= (uint8_t)(1u << rw_below(8));
}

static void recv_try(struct operation *o)
{
    struct descriptor *d = &fds[o->fd];
    size_t n = iov_bytes(o), done = 0;

    if (d->reset || d->shut || d->visible == 0) {
        if (d->reset)
            op_fix(o, -ECONNRESET);
        else if (d->shut || (d->fin && d->n == 0))
            op_fix(o, 0);
        return;
    }
    n = n < d->visible ? n : d->visible;
    n = some_of(n);
    while (done < n) {
        size_t room, step = SOCK_BYTES - d->head;
        uint8_t *to = iov_at(o, done, &room);

        step = step < room ? step : room;
        step = step < n - done ? step : n - done;
        rmem_land(to, d->in + d->head, step, o->owner, "a receive");
        if (rmem_is_memory(to)) {
            rw_mark(RM_landed_by_tcp);
            if (rmem_came_by(to, (uint64_t)d->gen << 32 | (o->fd + 1)))
                rw_mark(RM_asked_on_another_path);
            if (rw_fault(RF_bit_flip))
                flip(to, step);
        }
        d->head = (d->head + (uint32_t)step) % SOCK_BYTES;
        done += step;
    }
    if (n < d->visible)
        rw_mark(RM_split_frame);
    d->n -= (uint32_t)n;
    d->visible -= (uint32_t)n;
    if (d->peer != NONE32)
        poke(d->peer);
    op_fix(o, (int32_t)n);
}

static void deliver_later(uint32_t fd)
{
    if (fds[fd].delivering)
        return;
    fds[fd].delivering = true;
    rw_post(rw_soon(), T_DELIVER, fd, fds[fd].gen);
}

/* Bytes for a silent peer fill a buffer and stay there. */
static void send_try(struct operation *o)
{
    struct descriptor *d = &fds[o->fd];
    struct descriptor *to = d->peer == NONE32 ? NULL : &fds[d->peer];
    size_t n = iov_bytes(o) - o->done, room, step;

    if (d->reset || d->shut || (!to && d->fin)) {
        op_fix(o, o->done > 0 ? (int32_t)o->done : -EPIPE);
        return;
    }
    room = to ? SOCK_BYTES - to->n : 0;
    n = n < room ? n : room;
    if (n == 0)
        return; /* the peer's reading makes room */
    for (n = some_of(n); n > 0; n -= step) {
        uint32_t end = (to->head + to->n) % SOCK_BYTES;
        const uint8_t *from = iov_at(o, o->done, &step);

        step = step < n ? step : n;
        step = step < SOCK_BYTES - end ? step : SOCK_BYTES - end;
        rmem_taken(from, step);
        memcpy(to->in + end, from, step);
        to->n += (uint32_t)step;
        o->done += step;
    }
    deliver_later(d->peer);
    if (o->done == iov_bytes(o) || !o->all)
        op_fix(o, (int32_t)o->done);
    else
        op_due(o, rw_soon());
}

void rnet_deliver(uint32_t fd, uint32_t gen)
{
    struct descriptor *d = &fds[fd];
    uint64_t until;

    if (d->kind != FD_SOCKET || d->gen != gen)
        return;
    d->delivering = false;
    if (d->peer != NONE32) {
        until = rw.cut_until[fds[d->peer].node][d->node];
        until = d->silent_until > until ? d->silent_until : until;
        if (until > rw.now_ns) {
            d->delivering = true;
            rw_post(AGAIN_NS, T_DELIVER, fd, gen);
            return;
        }
    }
    if (d->visible < d->n)
        d->visible += (uint32_t)some_of(d->n - d->visible);
    if (d->visible < d->n)
        deliver_later(fd);
    poke(fd);
}

/* ------------------------------------------------------------------ connections */

static struct descriptor *listener(uint32_t port)
{
    for (uint32_t i = 0; i < FDS; i++)
        if (fds[i].kind == FD_LISTEN && fds[i].port == port)
            return &fds[i];
    return NULL;
}

static void connect_try(struct operation *o)
{
    struct descriptor *l = listener(o->port), *d = &fds[o->fd];
    uint32_t other;

    if (d->shut || !l || l->nwaiting == BACKLOG || rw_fault(RF_conn_refused)) {
        op_fix(o, -ECONNREFUSED);
        return;
    }
    if (rw.cut_until[d->node][l->node] > rw.now_ns) {
        op_due(o, AGAIN_NS);
        return;
    }
    other = fd_take(FD_SOCKET, l->node);
    fds[other].peer = o->fd;
    d->peer = other;
    d->connected = fds[other].connected = true;
    l->waiting[l->nwaiting++] = other;
    poke((uint32_t)(l - fds));
    op_fix(o, 0);
}

static void accept_try(struct operation *o)
{
    struct descriptor *l = &fds[o->fd];

    if (l->nwaiting == 0)
        return;
    if (rw_fault(RF_accept_fails)) {
        op_fix(o, -EMFILE);
        return;
    }
    l->nwaiting--;
    op_tell(o, (int32_t)l->waiting[l->nwaiting] + FD_FIRST, true);
}

static void poll_try(struct operation *o)
{
    struct descriptor *d = &fds[o->fd];

    if (!d->news)
        return;
    d->news = rw_fault(RF_poll_ends) && d->readable; /* the ring has posted it again */
    if (d->news)
        op_due(o, rw_soon());
    op_tell(o, POLLIN, false);
}

void rnet_op(uint32_t number, uint32_t gen)
{
    struct operation *o = &ops[number];

    if (!o->used || o->gen != gen)
        return;
    o->due = false;
    if (o->fixed)
        return;
    switch (o->kind) {
    case OP_RECV: recv_try(o); break;
    case OP_SEND: send_try(o); break;
    case OP_CONNECT: connect_try(o); break;
    case OP_ACCEPT: accept_try(o); break;
    case OP_POLL: poll_try(o); break;
    }
}

/* ------------------------------------------------------------------ what happens to them */

/* Other connections between the same two nodes. */
static uint32_t beside(const struct descriptor *d)
{
    uint32_t n = 0;

    for (uint32_t i = 0; d->peer != NONE32 && i < FDS; i++)
        n += &fds[i] != d && fds[i].kind == FD_SOCKET && fds[i].node == d->node &&
             fds[i].connected && !fds[i].reset && fds[i].peer != NONE32 &&
             fds[fds[i].peer].node == fds[d->peer].node;
    return n;
}

/* Does a receive that is posted on this socket write pages? */
static bool receives(uint32_t fd)
{
    for (uint32_t i = 0; i < OPS; i++)
        if (ops[i].used && ops[i].fd == fd && ops[i].kind == OP_RECV && ops[i].owner != 0)
            return true;
    return false;
}

/* A peer with several connections always has one that works. */
static bool some_socket(uint32_t *ret)
{
    uint32_t tries = rw.cfg.connections > 1 ? FDS : 1;

    *ret = rw_below(FDS);
    while (tries-- > 0) {
        if (fds[*ret].kind == FD_SOCKET && fds[*ret].connected)
            return true;
        *ret = (*ret + 1) % FDS;
    }
    return false;
}

void rnet_silence_random(void)
{
    uint64_t until = rw.now_ns + MS * rw_between(50, 8000);
    uint32_t fd;

    if (!some_socket(&fd))
        return;
    for (uint32_t i = 0; i < FDS && rw.cfg.connections > 1; i++)
        if (fds[(fd + i) % FDS].kind == FD_SOCKET && receives((fd + i) % FDS)) {
            fd = (fd + i) % FDS;
            break;
        }
    rw.fault[RF_path_silent]++;
    fds[fd].silent_until = until;
    if (fds[fd].peer != NONE32)
        fds[fds[fd].peer].silent_until = until;
    if (receives(fd) && beside(&fds[fd]) > 0)
        rw_mark(RM_path_silent_beside_others);
}

void rnet_reset_random(void)
{
    uint32_t fd;

    if (!some_socket(&fd))
        return;
    rw.fault[RF_conn_reset]++;
    if (receives(fd))
        rw_mark(beside(&fds[fd]) > 0 ? RM_path_lost_beside_others : RM_last_path_lost);
    if (fds[fd].peer != NONE32)
        peer_ends(fds[fd].peer, true);
    peer_ends(fd, true);
}

/* Half of the time the host dies with its process, and sends nothing. */
void rnet_kill(uint32_t node)
{
    bool silent = rw_one_in(2);

    for (uint32_t i = 0; i < OPS; i++)
        if (ops[i].used && ops[i].node == node)
            ops[i].used = false;
    for (uint32_t i = 0; i < FDS; i++) {
        if (fds[i].kind == FD_FREE || fds[i].node != node)
            continue;
        if (fds[i].kind == FD_SOCKET && fds[i].peer != NONE32) {
            fds[fds[i].peer].peer = NONE32;
            if (!silent)
                peer_ends(fds[i].peer, true);
        }
        fds[i].kind = FD_FREE;
    }
}

void rnet_completed(uint32_t node)
{
    ios[node].completions++;
}

void rnet_heal(void)
{
    for (uint32_t i = 0; i < FDS; i++)
        if (fds[i].kind == FD_SOCKET) {
            fds[i].silent_until = 0;
            poke(i);
        }
}

/* ------------------------------------------------------------------ seam/io.h */

static struct operation *op_buffer(struct io *io, struct io_op *op, enum op_kind kind, int fd,
                                   void *buf, size_t n, bool wait_all)
{
    struct operation *o = op_take(io, op, kind, fd);

    o->one = (struct iovec){buf, n};
    o->iov = &o->one;
    o->niov = 1;
    o->all = wait_all;
    op_due(o, rw_soon());
    return o;
}

void io_recv(struct io *io, struct io_op *op, int fd, void *buf, size_t n, bool wait_all)
{
    check(!wait_all && n > 0);
    op_buffer(io, op, OP_RECV, fd, buf, n, false);
}

void io_send(struct io *io, struct io_op *op, int fd, const void *buf, size_t n, bool wait_all)
{
    op_buffer(io, op, OP_SEND, fd, (void *)(uintptr_t)buf, n, wait_all);
}

static bool overlap(const struct iovec *a, const struct iovec *b)
{
    return (uintptr_t)a->iov_base < (uintptr_t)b->iov_base + b->iov_len &&
           (uintptr_t)b->iov_base < (uintptr_t)a->iov_base + a->iov_len;
}

/* Another path asks for a dead path's pages only when the former receive has returned: two receives
 * into one page would each overwrite the other's bytes. */
static void receives_alone(const struct operation *o, const struct iovec *iov)
{
    for (uint32_t i = 0; i < OPS; i++)
        for (size_t k = 0; ops[i].used && &ops[i] != o && ops[i].kind == OP_RECV && k < ops[i].niov;
             k++)
            if (overlap(iov, &ops[i].iov[k]))
                rw_fail("two_receives", "descriptors %u and %u of node %u receive into one page",
                        o->fd + FD_FIRST, ops[i].fd + FD_FIRST, o->node);
}

static struct operation *op_msg(struct io *io, struct io_op *op, enum op_kind kind, int fd,
                                const struct msghdr *msg)
{
    struct operation *o = op_take(io, op, kind, fd);

    o->iov = msg->msg_iov;
    o->niov = (size_t)msg->msg_iovlen;
    o->all = (msg->msg_flags & MSG_WAITALL) != 0;
    for (size_t i = 0; i < o->niov && o->owner == 0; i++)
        o->owner = rmem_owner(o->iov[i].iov_base);
    for (size_t i = 0; i < o->niov && kind == OP_RECV; i++)
        if (rmem_is_memory(o->iov[i].iov_base)) {
            receives_alone(o, &o->iov[i]);
            rnic_receive(o->iov[i].iov_base, o->iov[i].iov_len);
        }
    op_due(o, rw_soon());
    return o;
}

bool rnet_receives(const void *to, uint64_t n)
{
    uint64_t at = (uintptr_t)to;

    for (uint32_t i = 0; i < OPS; i++) {
        const struct operation *o = &ops[i];

        for (size_t k = 0; o->used && o->kind == OP_RECV && !o->fixed && k < o->niov; k++)
            if ((uintptr_t)o->iov[k].iov_base < at + n &&
                at < (uintptr_t)o->iov[k].iov_base + o->iov[k].iov_len)
                return true;
    }
    return false;
}

void io_sendmsg(struct io *io, struct io_op *op, int fd, const struct msghdr *msg)
{
    op_msg(io, op, OP_SEND, fd, msg);
}

void io_recvmsg(struct io *io, struct io_op *op, int fd, struct msghdr *msg)
{
    op_msg(io, op, OP_RECV, fd, msg);
}

void io_connect(struct io *io, struct io_op *op, int fd, const struct sockaddr *addr, socklen_t len)
{
    struct operation *o = op_take(io, op, OP_CONNECT, fd);

    (void)len;
    o->port = ntohs(((const struct sockaddr_in *)(const void *)addr)->sin_port);
    op_due(o, rw_soon());
}

void io_accept(struct io *io, struct io_op *op, int fd)
{
    op_due(op_take(io, op, OP_ACCEPT, fd), rw_soon());
}

void io_poll_in(struct io *io, struct io_op *op, int fd, bool multishot)
{
    struct operation *o = op_take(io, op, OP_POLL, fd);

    check(multishot);
    fds[o->fd].news = fds[o->fd].readable;
    op_due(o, rw_soon());
}

void io_cancel(struct io *io, struct io_op *op)
{
    struct operation *o = &ops[(uint32_t)op->pending[0]];

    (void)io;
    if (!o->used || o->op != op || o->gen != (uint32_t)(op->pending[0] >> 32) || o->fixed)
        return;
    op_fix(o, o->kind == OP_SEND && o->done > 0 ? (int32_t)o->done : -ECANCELED);
}

void io_stop(struct io *io, struct io_op *op)
{
    const struct operation *o = &ops[(uint32_t)op->pending[0]];
    const uint32_t gen = o->gen;

    io_cancel(io, op);
    while (o->used && o->op == op && o->gen == gen && rw_step(UINT64_MAX))
        ;
}

uint32_t io_run(struct io *io, uint64_t deadline_ns)
{
    uint64_t before = io->completions;

    while (io->completions == before && rw_step(deadline_ns))
        ;
    return (uint32_t)(io->completions - before);
}
