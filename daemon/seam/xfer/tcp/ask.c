/* The destination's side: batches are cut into pieces and asked for on the link's data connection;
 * a batch is handed to the core when all its pieces are there. tcp/receive.c receives them.
 *
 * Stopping a pull cancels the one receive that may write its pages and waits for that receive's
 * completion; the rest of the answer, and the answers to pieces asked for before, are received into
 * a scratch buffer. That is better than closing the connection: what is still to come is at most
 * one piece plus heads (the source answers GONE once it was told), other pulls on the connection
 * lose nothing, and nobody asks twice. The proof of quiet does not wait for the skipping. */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/check.h"
#include "core/bugs.h"
#include "seam/xfer/tcp/tcp.h"

/* ------------------------------------------------------------------ pulls and batches */

static void emit_pull(struct xfer *xfer, enum event_kind kind, uint32_t slot, enum tern_err err)
{
    struct event event;

    memset(&event, 0, sizeof event);
    event.kind = kind;
    if (kind == EV_PULL_BROKEN) {
        event.broken.pull = (struct pull_id){slot, xfer->pull[slot].gen};
        event.broken.err = err;
    } else {
        event.pull_quiet.pull = (struct pull_id){slot, xfer->pull[slot].gen};
    }
    xfer->config.emit(xfer->config.ctx, &event);
}

/* The one place that says QUIET. */
void pull_quiet(struct xfer *xfer, uint32_t slot)
{
    struct xfer_pull_slot *pull = &xfer->pull[slot];

    if (pull->state != PULL_STOPPING || pull->receiving > 0 ||
        (pull->reading > 0 && !BUG(CORE_BUG_QUIET_ON_ACK)))
        return;
    check(!verbs_reads(xfer, slot) || BUG(CORE_BUG_QUIET_ON_ACK));
    for (uint32_t i = 0; i < xfer->config.data_conns_max; i++)
        check(xfer->conn[i].state == CONN_FREE || !xfer->conn[i].outbound ||
              xfer->conn[i].recv_pull != slot);
    pull->state = PULL_IDLE;
    emit_pull(xfer, EV_PULL_QUIET, slot, TERN_OK);
}

void queue_push(struct xfer *xfer, struct xfer_queue *queue, uint32_t batch)
{
    xfer->batch[batch].next = NONE;
    xfer->batch[batch].queued = true;
    if (queue->tail == NONE)
        queue->head = batch;
    else
        xfer->batch[queue->tail].next = batch;
    queue->tail = batch;
}

void queue_remove(struct xfer *xfer, struct xfer_queue *queue, uint32_t batch)
{
    uint32_t prev = NONE, at = queue->head;

    while (at != batch) {
        check(at != NONE);
        prev = at;
        at = xfer->batch[at].next;
    }
    if (prev == NONE)
        queue->head = xfer->batch[batch].next;
    else
        xfer->batch[prev].next = xfer->batch[batch].next;
    if (queue->tail == batch)
        queue->tail = prev;
    xfer->batch[batch].queued = false;
}

static void tcp_queue_remove(struct xfer *xfer, struct xfer_link *link, uint32_t batch)
{
    queue_remove(xfer, &link->queue, batch);
    if (link->queue.head == NONE)
        link->waiting_ns = 0;
}

/* Forgets all that the pull asked for. Its receive in flight, if there is one, is cancelled. */
static void pull_drop(struct xfer *xfer, uint32_t slot)
{
    struct xfer_link *link = &xfer->link[xfer->pull[slot].link];
    uint32_t first = slot * PULL_BATCHES_MAX;
    struct xfer_conn *conn = link->conn == NONE ? NULL : &xfer->conn[link->conn];

    for (uint32_t i = 0; conn && i < conn->out.nasked; i++) {
        struct asked *asked = &conn->out.asked[(conn->out.asked_at + i) % XFER_ASKED_MAX];

        if (asked->batch != NONE && asked->batch / PULL_BATCHES_MAX == slot)
            asked->batch = NONE;
    }
    for (uint32_t b = first; b < first + PULL_BATCHES_MAX; b++) {
        if (xfer->batch[b].used && xfer->batch[b].queued && xfer->batch[b].reads)
            queue_remove(xfer, &link->reads, b);
        else if (xfer->batch[b].used && xfer->batch[b].queued)
            tcp_queue_remove(xfer, link, b);
        xfer->batch[b].used = false;
    }
    verbs_drop(xfer, slot);
    if (conn && conn->recv_pull == slot)
        io_cancel(xfer->config.io, &conn->recv_op);
}

static bool pull_has_batches(const struct xfer *xfer, uint32_t slot)
{
    const struct xfer_batch *first = &xfer->batch[(size_t)slot * PULL_BATCHES_MAX];

    for (uint32_t b = 0; b < PULL_BATCHES_MAX; b++)
        if (first[b].used)
            return true;
    return false;
}

void pull_break(struct xfer *xfer, uint32_t slot, enum tern_err err)
{
    if (xfer->pull[slot].state != PULL_ACTIVE)
        return;
    xfer->pull[slot].state = PULL_BROKEN;
    pull_drop(xfer, slot);
    emit_pull(xfer, EV_PULL_BROKEN, slot, err);
}

static struct xfer_pull_slot *pull_slot(struct xfer *xfer, struct pull_id id)
{
    check(id.slot < xfer->config.pulls);
    return &xfer->pull[id.slot];
}

static uint32_t batch_take(struct xfer *xfer, uint32_t slot)
{
    uint32_t first = slot * PULL_BATCHES_MAX;

    for (uint32_t b = first; b < first + PULL_BATCHES_MAX; b++)
        if (!xfer->batch[b].used)
            return b;
    check_failed("batches of a pull in flight <= PULL_BATCHES_MAX", __FILE__, __LINE__);
}

void xfer_pull(struct xfer *xfer, const struct action *act)
{
    struct xfer_pull_slot *pull = pull_slot(xfer, act->pull.pull);
    uint32_t slot = act->pull.pull.slot, number;
    enum tern_err err = TERN_OK;
    struct xfer_batch *batch;

    check(act->pull.link < xfer->config.links);
    check(act->pull.n >= 1 && act->pull.n <= PULL_BATCH_PAGES);
    if (pull->gen != act->pull.pull.gen || pull->state == PULL_IDLE) {
        check(pull->state != PULL_STOPPING && pull->receiving == 0 &&
              (pull->reading == 0 || BUG(CORE_BUG_QUIET_ON_ACK)));
        *pull = (struct xfer_pull_slot){
            .state = PULL_ACTIVE, .gen = act->pull.pull.gen, .link = act->pull.link};
    }
    if (pull->state != PULL_ACTIVE)
        return; /* broken; the core has not heard of it yet */
    if (!xfer->link[act->pull.link].up) {
        pull_break(xfer, slot, TERN_PEER_LOST);
        return;
    }
    number = batch_take(xfer, slot);
    batch = &xfer->batch[number];
    batch->used = true;
    batch->gone = false;
    batch->pull = slot;
    batch->pool = act->pull.pool;
    batch->number = act->pull.batch;
    batch->n = act->pull.n;
    batch->asked = batch->answered = 0;
    batch->serve = act->pull.serve;
    memset(batch->ok, 0, sizeof batch->ok);
    memcpy(batch->page, act->pull.pages, act->pull.n * sizeof *batch->page);
    memcpy(batch->ref, act->pull.refs, act->pull.n * sizeof *batch->ref);
    batch->reads = verbs_takes(xfer, act->pull.link, batch->pool, &err);
    if (err != TERN_OK) {
        pull_break(xfer, slot, err);
    } else if (batch->reads) {
        queue_push(xfer, &xfer->link[act->pull.link].reads, number);
        verbs_pump(xfer, act->pull.link);
    } else {
        queue_push(xfer, &xfer->link[act->pull.link].queue, number);
        link_pump(xfer, act->pull.link);
    }
}

void xfer_pull_stop(struct xfer *xfer, const struct action *act)
{
    struct xfer_pull_slot *pull = pull_slot(xfer, act->pull_stop.pull);
    uint32_t slot = act->pull_stop.pull.slot;

    if (pull->gen != act->pull_stop.pull.gen || pull->state == PULL_IDLE) {
        check(pull->receiving == 0 &&
              pull->reading ==
                  0); /* nothing was asked for, or all of it was answered and handed over */
        pull->gen = act->pull_stop.pull.gen;
        pull->state = PULL_STOPPING;
    } else if (pull->state != PULL_STOPPING) {
        pull->state = PULL_STOPPING;
        pull_drop(xfer, slot);
    }
    pull_quiet(xfer, slot);
}

void batch_done(struct xfer *xfer, uint32_t number)
{
    struct xfer_batch *batch = &xfer->batch[number];
    struct event event;

    if (batch->gone) {
        pull_break(xfer, batch->pull, TERN_GONE);
        return;
    }
    batch->used = false;
    memset(&event, 0, sizeof event);
    event.kind = EV_PULLED;
    event.pulled.pull = (struct pull_id){batch->pull, xfer->pull[batch->pull].gen};
    event.pulled.batch = batch->number;
    memcpy(event.pulled.ok, batch->ok, sizeof batch->ok);
    xfer->config.emit(xfer->config.ctx, &event);
}

/* ------------------------------------------------------------------ links */

enum tern_err xfer_link_up(struct xfer *xfer, uint32_t number, const struct sockaddr *addr,
                           socklen_t len, uint64_t peer_incarnation, uint64_t token)
{
    struct xfer_link *link;

    if (number >= xfer->config.links || len > sizeof link->addr ||
        (addr->sa_family != AF_INET && addr->sa_family != AF_INET6))
        return TERN_INVALID;
    xfer_link_down(xfer, number); /* what was asked of an earlier incarnation is over */
    link = &xfer->link[number];
    memcpy(&link->addr, addr, len);
    link->addr_len = len;
    link->peer_incarnation = peer_incarnation;
    link->token = token;
    link->up = true;
    return TERN_OK;
}

void xfer_link_down(struct xfer *xfer, uint32_t number)
{
    struct xfer_link *link = &xfer->link[number];

    check(number < xfer->config.links);
    if (!link->up)
        return;
    link->up = false;
    if (link->conn != NONE)
        conn_fail(&xfer->conn[link->conn]);
    if (link->read_conn != NONE)
        conn_fail(&xfer->conn[link->read_conn]);
    for (uint32_t slot = 0; slot < xfer->config.pulls; slot++)
        if (xfer->pull[slot].link == number && pull_has_batches(xfer, slot))
            pull_break(xfer, slot, TERN_PEER_LOST);
    verbs_link_down(xfer, number);
}

/* Nothing asked for, nothing queued: its slot may go to a link that needs one. */
bool evict_idle(struct xfer *xfer)
{
    for (uint32_t i = 0; i < xfer->config.links; i++) {
        struct xfer_link *link = &xfer->link[i];
        uint32_t idle = NONE;

        if (link->conn != NONE && link->queue.head == NONE && !out_busy(&xfer->conn[link->conn]))
            idle = link->conn;
        else if (link->read_conn != NONE && link->reads.head == NONE &&
                 verbs_conn_idle(&xfer->conn[link->read_conn]))
            idle = link->read_conn;
        if (idle == NONE)
            continue;
        conn_fail(&xfer->conn[idle]);
        return true;
    }
    return false;
}

void queue_break(struct xfer *xfer, const struct xfer_queue *queue, enum tern_err err)
{
    while (queue->head != NONE) {
        uint32_t head = queue->head;

        pull_break(xfer, xfer->batch[head].pull, err);
        check(queue->head != head); /* a queued batch is one of an active pull */
    }
}

static void link_connect(struct xfer *xfer, uint32_t number)
{
    struct xfer_link *link = &xfer->link[number];
    int fd = socket(link->addr.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct xfer_conn *conn;

    if (fd < 0) {
        queue_break(xfer, &link->queue, TERN_BUSY); /* no descriptor: what has some may let go */
        return;
    }
    conn_options(xfer, fd);
    conn = conn_take(xfer, true, fd);
    if (conn) {
        link->waiting_ns = 0;
        link->conn = (uint32_t)(conn - xfer->conn);
        out_start(conn, number);
        return;
    }
    close(fd);
    if (link->waiting_ns == 0)
        link->waiting_ns = io_now_ns();
    evict_idle(xfer);
}

static bool waited_too_long(const struct xfer *xfer, uint64_t *since_ns, uint64_t now_ns)
{
    if (*since_ns == 0 || now_ns <= *since_ns || now_ns - *since_ns <= xfer->config.idle_ns)
        return false;
    *since_ns = 0;
    return true;
}

void link_tick(struct xfer *xfer, uint32_t number, uint64_t now_ns)
{
    struct xfer_link *link = &xfer->link[number];

    if (waited_too_long(xfer, &link->waiting_ns, now_ns))
        queue_break(xfer, &link->queue, TERN_BUSY);
    if (link->reads.head == NONE)
        link->reads_waiting_ns = 0;
    if (waited_too_long(xfer, &link->reads_waiting_ns, now_ns))
        queue_break(xfer, &link->reads, TERN_BUSY);
    if (link->waiting_ns != 0 || link->reads_waiting_ns != 0)
        evict_idle(xfer);
}

/* ------------------------------------------------------------------ asking */

uint64_t batch_page_bytes(const struct xfer *xfer, const struct xfer_batch *batch, uint32_t i)
{
    return mem_moved_bytes(xfer->config.mem, batch->pool, batch->page[i].group);
}

uint32_t batch_page_sums(const struct xfer *xfer, const struct xfer_batch *batch, uint32_t i)
{
    return mem_moved_sums(xfer->config.mem, batch->pool, batch->page[i].group);
}

struct asked piece_cut(const struct xfer *xfer, uint32_t number, uint32_t sums_max)
{
    const struct xfer_batch *batch = &xfer->batch[number];
    uint32_t regions = mem_moved_regions(xfer->config.mem, batch->pool), sums = 0;
    struct asked piece = {.batch = number, .first = batch->asked};

    for (uint32_t i = batch->asked; i < batch->n; i++) {
        uint64_t bytes = batch_page_bytes(xfer, batch, i);
        uint32_t more = batch_page_sums(xfer, batch, i);

        if (piece.n > 0 && (piece.page_bytes_max + bytes > XFER_PIECE_BYTES ||
                            sums + more > sums_max || (piece.n + 1) * regions > XFER_IOVS_PAGES))
            break;
        piece.n++;
        piece.page_bytes_max += bytes;
        sums += more;
    }
    piece.sums_bytes_max = sums * (uint32_t)sizeof(uint64_t);
    return piece;
}

static void piece_ask(struct xfer_conn *conn, uint32_t number)
{
    struct conn_out *out = &conn->out;
    struct xfer_batch *batch = &conn->xfer->batch[number];
    struct asked piece = piece_cut(conn->xfer, number, XFER_PIECE_SUMS);
    struct xfer_head head = {.type = XFER_REQUEST,
                             .n = piece.n,
                             .seq = out->seq,
                             .a = serve_id_pack(batch->serve),
                             .b = batch->pull};

    piece.seq = out->seq++;
    xfer_put_head(out->tx + out->tx_n, &head);
    out->tx_n += XFER_HEAD_BYTES;
    for (uint32_t i = piece.first; i < piece.first + piece.n; i++) {
        struct xfer_entry entry = {batch->page[i].group, batch->ref[i].index, batch->ref[i].gen};

        xfer_put_entry(out->tx + out->tx_n, &entry);
        out->tx_n += XFER_ENTRY_BYTES;
    }
    batch->asked += piece.n;
    out->asked[(out->asked_at + out->nasked) % XFER_ASKED_MAX] = piece;
    out->nasked++;
}

static void tx_send(struct xfer_conn *conn)
{
    conn->sending = true;
    io_send(conn->xfer->config.io, &conn->send_op, conn->fd, conn->out.tx + conn->out.tx_at,
            conn->out.tx_n - conn->out.tx_at, true);
}

static void tx_fill(struct xfer_conn *conn, struct xfer_link *link)
{
    struct xfer *xfer = conn->xfer;
    bool was_idle = conn->out.nasked == 0;

    while (link->queue.head != NONE && conn->out.nasked < XFER_ASKED_MAX &&
           conn->out.tx_n + XFER_REQUEST_BYTES <= XFER_TX_BYTES) {
        uint32_t number = link->queue.head;

        piece_ask(conn, number);
        if (xfer->batch[number].asked == xfer->batch[number].n)
            tcp_queue_remove(xfer, link, number);
    }
    if (was_idle)
        conn_progress(conn); /* the peer's time to answer starts now */
}

void link_pump(struct xfer *xfer, uint32_t number)
{
    struct xfer_link *link = &xfer->link[number];
    struct xfer_conn *conn;

    if (link->queue.head == NONE)
        return;
    if (link->conn == NONE) {
        link_connect(xfer, number);
        return;
    }
    conn = &xfer->conn[link->conn];
    if (conn->state != CONN_OPEN || conn->sending)
        return; /* comes again when that is done */
    conn->out.tx_n = conn->out.tx_at = 0;
    tx_fill(conn, link);
    if (conn->out.tx_n > 0)
        tx_send(conn);
}

static void tx_done(struct io_op *op, int32_t res, uint32_t flags, uint32_t buffer)
{
    struct xfer_conn *conn = conn_of_send(op);

    (void)flags, (void)buffer;
    if (!conn_sent(conn, res > 0))
        return;
    conn->xfer->stats.socket_bytes_out += (uint64_t)res;
    conn->out.tx_at += (uint32_t)res;
    if (conn->out.tx_at < conn->out.tx_n)
        tx_send(conn);
    else
        link_pump(conn->xfer, conn->out.link);
}

static void connect_done(struct io_op *op, int32_t res, uint32_t flags, uint32_t buffer)
{
    struct xfer_conn *conn = conn_of_send(op);

    (void)flags, (void)buffer;
    if (!conn_sent(conn, res >= 0))
        return;
    conn->state = CONN_OPEN;
    conn->out.tx_n = conn_hello(conn->xfer, conn->out.link, conn->out.tx);
    tx_fill(conn, &conn->xfer->link[conn->out.link]);
    conn->send_op.done = tx_done;
    tx_send(conn);
    out_recv(conn);
}

/* ------------------------------------------------------------------ life of a connection */

void out_start(struct xfer_conn *conn, uint32_t number)
{
    memset(&conn->out, 0, offsetof(struct conn_out, head));
    conn->out.link = number;
    conn->recv_op.done = out_recv_done;
    conn_connect(conn, number, connect_done);
}

bool out_busy(const struct xfer_conn *conn)
{
    return conn->out.nasked > 0 || conn->sending;
}

/* What was asked for is lost with the connection; what was not yet asked for goes to a new one,
 * unless this one never came up. */
void out_lost(struct xfer_conn *conn)
{
    struct xfer *xfer = conn->xfer;
    struct conn_out *out = &conn->out;
    uint32_t number = out->link;
    bool never_up = out->seq == 0;

    xfer->link[number].conn = NONE;
    while (out->nasked > 0) {
        struct asked *asked = &out->asked[out->asked_at];

        out->asked_at = (out->asked_at + 1) % XFER_ASKED_MAX;
        out->nasked--;
        if (asked->batch != NONE && xfer->batch[asked->batch].used)
            pull_break(xfer, xfer->batch[asked->batch].pull, TERN_PEER_LOST);
    }
    if (never_up)
        queue_break(xfer, &xfer->link[number].queue, TERN_PEER_LOST);
    else if (xfer->link[number].up)
        link_pump(xfer, number);
}
