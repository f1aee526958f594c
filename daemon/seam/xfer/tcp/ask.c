/* The TCP transport as transport.h calls it, its start and end, and the destination's side. This
 * file cuts batches into pieces, and requests each piece on the link's data connection with the
 * fewest bytes outstanding. receive.c receives the answers. If a connection fails, missing pages
 * are requested on another one, but only when the failed one cannot write these pages any more: its
 * receive has returned from its data thread.
 *
 * Stopping a pull cancels the one receive that may write its pages and waits for that receive's
 * completion. The rest of the answer, and the answers to earlier requests, go to a scratch buffer.
 * Skipping is better than closing the connection: at most one piece plus heads still arrives (an
 * informed source answers GONE), other pulls on the connection lose nothing, and nothing is
 * requested twice. The proof of quiet does not wait for the skipping. */
#include "seam/xfer/tcp/tcp.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/undumped.h"

static void pump(struct transport *t, uint32_t peer_link);

/* Returns true if a pull survives the loss of its connection. */
static bool has_several_paths(const struct xfer *xfer)
{
    return xfer->config.connections > 1;
}

static void piece_ask(struct data_conn *conn, uint32_t number)
{
    struct tcp_caller *c = tcp_caller_of(conn);
    const struct batch *batch = &conn->xfer->batch[number];
    struct tcp_asked asked = {
        .part = batch_cut(conn->xfer, number, TCP_PIECE_BYTES, XFER_PIECE_SUMS), .seq = c->seq++};
    struct xfer_head head = {.type = conn->xfer->pull[batch->pull].pair ? XFER_REQUEST_PLAN
                                                                        : XFER_REQUEST,
                             .n = asked.part.n,
                             .seq = asked.seq,
                             .a = serve_id_pack(batch->serve),
                             .b = batch->pull};

    xfer_put_head(conn->buffer + conn->out_n, &head);
    conn->out_n += XFER_HEAD_BYTES;
    for (uint32_t i = asked.part.first; i < asked.part.first + asked.part.n; i++) {
        struct xfer_entry entry = {.group = batch_pages(batch, i)->group,
                                   .index = batch->ref[i].index,
                                   .gen = batch->ref[i].gen,
                                   .first = batch->span[i].first,
                                   .n = batch->span[i].n};

        xfer_put_entry(conn->buffer + conn->out_n, &entry);
        conn->out_n += XFER_ENTRY_BYTES;
    }
    if (c->nasked == 0)
        data_conn_progress(conn); /* the timeout for the peer's answer starts now */
    c->asked[(c->asked_at + c->nasked) % TCP_ASKED_MAX] = asked;
    c->nasked++;
    c->asked_bytes += asked.part.page_bytes;
    batch_asked(conn->xfer, number, asked.part.n);
}

/* Returns true if another piece may be requested on it. X8: no path exceeds its credit. */
static bool has_credit(const struct data_conn *conn)
{
    const struct tcp_caller *c = tcp_caller_of(conn);

    return c->nasked < TCP_ASKED_MAX && conn->out_n + XFER_REQUEST_BYTES <= DATA_BUFFER_BYTES &&
           (c->nasked == 0 || c->asked_bytes < TCP_PATH_BYTES);
}

/* Returns true if it is open and the kernel has taken all that it had to send. */
static bool can_ask(const struct data_conn *conn)
{
    return conn && conn->state == DATA_CONN_OPEN && !conn->sending;
}

/* Returns the path with credit that has the fewest bytes outstanding. */
static struct data_conn *path_with_credit(const struct transport *t, uint32_t peer_link)
{
    struct data_conn *best = NULL;

    for (uint32_t i = 0; i < t->xfer->config.connections; i++) {
        struct data_conn *conn = data_path_conn(t, peer_link, i);

        if (can_ask(conn) && has_credit(conn) &&
            (!best || tcp_caller_of(conn)->asked_bytes < tcp_caller_of(best)->asked_bytes))
            best = conn;
    }
    return best;
}

static void opened(struct data_conn *conn)
{
    uint32_t number;

    while (has_credit(conn) &&
           (number = batch_in_turn(conn->transport, conn->peer_link, NULL)) != NONE)
        piece_ask(conn, number);
}

static bool busy(const struct data_conn *conn)
{
    return tcp_caller_of(conn)->nasked > 0;
}

static bool idle(const struct data_conn *conn)
{
    return !busy(conn);
}

/* Returns the batch of the i-th requested piece; other pieces may share it. NULL: none. */
static struct batch *asked_of(const struct data_conn *conn, uint32_t i)
{
    const struct tcp_caller *c = tcp_caller_of(conn);
    uint32_t number = c->asked[(c->asked_at + i) % TCP_ASKED_MAX].part.batch;
    struct batch *batch = number == NONE ? NULL : &conn->xfer->batch[number];

    return batch && batch_used(batch) ? batch : NULL;
}

/* Counts a lost last connection once for each batch, however many of its pieces it had. */
static void count_lost(const struct data_conn *conn)
{
    if (data_paths_alive(conn->transport, conn->peer_link))
        return;
    for (uint32_t i = 0; i < tcp_caller_of(conn)->nasked; i++) {
        struct batch *batch = asked_of(conn, i);
        uint32_t first = 0;

        while (asked_of(conn, first) != batch)
            first++;
        if (batch && first == i)
            batch->lost++;
    }
}

/* Returns true if the batch's lost pages may be requested again. */
static bool goes_on(const struct data_conn *conn, const struct batch *batch)
{
    return has_several_paths(conn->xfer) && !conn->xfer->conns->ending &&
           batch->lost <= XFER_LOST_MAX;
}

/* The piece is lost, except its first `told` pages, which were reported to the batch. */
static void piece_lost(struct data_conn *conn, const struct batch_part *part, uint32_t told)
{
    struct xfer *xfer = conn->xfer;
    struct batch *batch = &xfer->batch[part->batch];

    if (!goes_on(conn, batch)) {
        pull_break(xfer, batch->pull, TERN_PEER_LOST);
        return;
    }
    if (told < part->n)
        batch_again(xfer, part->batch, part->first + told, part->n - told);
    if (told > 0)
        batch_answered(xfer, part->batch, told);
}

/* Nothing writes for the connection any more. Pages reported to the batch were verified, right or
 * wrong, and need no tail; all others are requested again. */
static void ended(struct data_conn *conn)
{
    struct tcp_caller *c = tcp_caller_of(conn);
    uint32_t told = c->state == TCP_ANSWER_BODY ? c->told : 0;

    check(!has_several_paths(conn->xfer) || (!conn->receiving && conn->recv_pull == NONE)); /* X1 */
    count_lost(conn);
    for (; c->nasked > 0; told = 0) {
        struct batch_part part = c->asked[c->asked_at].part;
        bool wanted = asked_of(conn, 0) != NULL;

        c->asked_at = (c->asked_at + 1) % TCP_ASKED_MAX;
        c->nasked--;
        if (wanted)
            piece_lost(conn, &part, told);
    }
}

/* Pages not yet requested go to another connection, unless this one was never up and there is no
 * other. Requested pages wait until this connection can no longer write them: see `ended`. */
static void lost(struct data_conn *conn)
{
    struct xfer *xfer = conn->xfer;
    bool never_up = tcp_caller_of(conn)->seq == 0;

    if (!has_several_paths(xfer))
        ended(conn);
    if (never_up && !data_paths_alive(conn->transport, conn->peer_link))
        queue_break(xfer, &transport_lane(conn->transport, conn->peer_link)->queue, TERN_PEER_LOST);
    else if (xfer->link[conn->peer_link].up)
        pump(conn->transport, conn->peer_link);
}

static const struct data_caller caller = {
    .opened = opened,
    .receive = tcp_receive,
    .landed = tcp_landed,
    .received = tcp_received,
    .lost = lost,
    .ended = ended,
    .busy = busy,
    .idle = idle,
};

static void pump(struct transport *t, uint32_t peer_link)
{
    const struct lane *lane = transport_lane(t, peer_link);
    struct data_conn *conn;

    if (lane->queue.head == NONE)
        return;
    for (uint32_t i = 0; i < t->xfer->config.connections; i++)
        if (can_ask(conn = data_path_conn(t, peer_link, i)))
            conn->out_n = conn->out_at = 0;
    while (lane->queue.head != NONE && (conn = path_with_credit(t, peer_link)) != NULL)
        piece_ask(conn, batch_in_turn(t, peer_link, NULL));
    for (uint32_t i = 0; i < t->xfer->config.connections; i++)
        if (can_ask(conn = data_path_conn(t, peer_link, i)) && conn->out_n > 0)
            data_conn_send_buffer(conn);
    if (lane->queue.head != NONE)
        data_paths_call(t, peer_link, &caller);
}

/* Due answers are skipped; the receive that may write the pull's pages is cancelled. */
static void drop(struct transport *t, uint32_t pull)
{
    struct data_conns *conns = t->xfer->conns;
    uint32_t link = t->xfer->pull[pull].peer_link;

    for (uint32_t k = 0; k < conns->end; k++) {
        struct data_conn *conn = &conns->conn[k];
        struct tcp_caller *c = tcp_caller_of(conn);

        if (conn->state == DATA_CONN_FREE || conn->transport != t || conn->peer_link != link)
            continue;
        for (uint32_t i = 0; i < c->nasked; i++) {
            struct batch_part *part = &c->asked[(c->asked_at + i) % TCP_ASKED_MAX].part;

            if (part->batch != NONE && t->xfer->batch[part->batch].pull == pull)
                part->batch = NONE;
        }
    }
    data_conn_stop_writing(t->xfer, pull);
}

static uint64_t bytes(const struct xfer_config *config, uint32_t sums_per_page)
{
    (void)config, (void)sums_per_page;
    return sizeof(struct tcp) + 2 * TCP_SCRATCH;
}

static enum tern_err create(struct transport *t)
{
    struct tcp *tcp = calloc(1, sizeof *tcp);

    t->own = tcp;
    if (!tcp)
        return TERN_INTERNAL;
    tcp->scratch = undumped_take(TCP_SCRATCH, false);
    tcp->zeros = calloc(1, TCP_SCRATCH);
    return tcp->scratch && tcp->zeros ? TERN_OK : TERN_INTERNAL;
}

static void destroy(struct transport *t)
{
    struct tcp *tcp = t->own;

    if (!tcp)
        return;
    undumped_put(tcp->scratch, TCP_SCRATCH);
    free(tcp->zeros);
    free(tcp);
    t->own = NULL;
}

const struct transport_ops tcp_transport = {
    .name = "tcp",
    .asked_for = XFER_TCP,
    .reshards = true,
    .conn_bytes = sizeof(struct tcp_caller),
    .service = &tcp_service,
    .bytes = bytes,
    .create = create,
    .destroy = destroy,
    .pump = pump,
    .drop = drop,
    .holds = data_conns_write,
    .reads = data_conns_read,
};
