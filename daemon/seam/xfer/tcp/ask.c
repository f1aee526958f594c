/* The destination's side of the TCP transport: batches are cut into pieces and asked for on the
 * link's data connection. receive.c takes what comes.
 *
 * Stopping a pull cancels the one receive that may write its pages and waits for that receive's
 * completion; the rest of the answer, and the answers to pieces asked for before, are received into
 * a scratch buffer. That is better than closing the connection: what is still to come is at most
 * one piece plus heads (the source answers GONE once it was told), other pulls on the connection
 * lose nothing, and nobody asks twice. The proof of quiet does not wait for the skipping. */
#include <errno.h>
#include <stdlib.h>

#include "seam/xfer/tcp/tcp.h"

/* ------------------------------------------------------------------ asking */

static void piece_ask(struct data_conn *conn, uint32_t number)
{
    struct tcp_caller *c = tcp_caller_of(conn);
    const struct batch *batch = &conn->xfer->batch[number];
    struct tcp_asked asked = {.part = batch_cut(conn->xfer, number, XFER_PIECE_SUMS),
                              .seq = c->seq++};
    struct xfer_head head = {.type = XFER_REQUEST,
                             .n = asked.part.n,
                             .seq = asked.seq,
                             .a = serve_id_pack(batch->serve),
                             .b = batch->inflow};

    xfer_put_head(conn->buffer + conn->out_n, &head);
    conn->out_n += XFER_HEAD_BYTES;
    for (uint32_t i = asked.part.first; i < asked.part.first + asked.part.n; i++) {
        struct xfer_entry entry = {batch->page[i].group, batch->ref[i].index, batch->ref[i].gen};

        xfer_put_entry(conn->buffer + conn->out_n, &entry);
        conn->out_n += XFER_ENTRY_BYTES;
    }
    c->asked[(c->asked_at + c->nasked) % TCP_ASKED_MAX] = asked;
    c->nasked++;
    batch_asked(conn->xfer, number, asked.part.n);
}

static void fill_buffer(struct data_conn *conn)
{
    struct tcp_caller *c = tcp_caller_of(conn);
    bool was_idle = c->nasked == 0;

    while (c->nasked < TCP_ASKED_MAX && conn->out_n + XFER_REQUEST_BYTES <= DATA_BUFFER_BYTES) {
        uint32_t number = batch_in_turn(conn->transport, conn->peer_link, NULL);

        if (number == NONE)
            break;
        piece_ask(conn, number);
    }
    if (was_idle)
        data_conn_progress(conn); /* the peer's time to answer starts now */
}

/* ------------------------------------------------------------------ life of a connection */

static bool busy(const struct data_conn *conn)
{
    return tcp_caller_of(conn)->nasked > 0;
}

static bool idle(const struct data_conn *conn)
{
    return !busy(conn);
}

/* What was asked for is lost with the connection; what was not yet asked for goes to a new one,
 * unless this one never came up. */
static void lost(struct data_conn *conn)
{
    struct xfer *xfer = conn->xfer;
    struct tcp_caller *c = tcp_caller_of(conn);
    bool never_up = c->seq == 0;

    while (c->nasked > 0) {
        uint32_t number = c->asked[c->asked_at].part.batch;

        c->asked_at = (c->asked_at + 1) % TCP_ASKED_MAX;
        c->nasked--;
        if (number != NONE && batch_used(&xfer->batch[number]))
            inflow_break(xfer, xfer->batch[number].inflow, TERN_PEER_LOST);
    }
    if (never_up)
        queue_break(xfer, &transport_lane(conn->transport, conn->peer_link)->queue, TERN_PEER_LOST);
    else if (xfer->link[conn->peer_link].up)
        tcp_pump(conn->transport, conn->peer_link);
}

static const struct data_caller caller = {
    .opened = fill_buffer,
    .receive = tcp_receive,
    .landed = tcp_landed,
    .received = tcp_received,
    .lost = lost,
    .busy = busy,
    .idle = idle,
};

void tcp_pump(struct transport *t, uint32_t peer_link)
{
    struct data_conn *conn;

    if (transport_lane(t, peer_link)->queue.head == NONE)
        return;
    conn = data_conn_of_lane(t, peer_link);
    if (!conn) {
        data_conn_call(t, peer_link, &caller);
        return;
    }
    if (conn->state != DATA_CONN_OPEN || conn->sending)
        return; /* comes again when that is done */
    conn->out_n = conn->out_at = 0;
    fill_buffer(conn);
    if (conn->out_n > 0)
        data_conn_send_buffer(conn);
}

/* Answers that are due are skipped; the receive that may write its pages is cancelled. */
void tcp_drop(struct transport *t, uint32_t inflow)
{
    struct data_conn *conn = data_conn_of_lane(t, t->xfer->inflow[inflow].peer_link);
    struct tcp_caller *c = conn ? tcp_caller_of(conn) : NULL;

    for (uint32_t i = 0; conn && i < c->nasked; i++) {
        struct batch_part *part = &c->asked[(c->asked_at + i) % TCP_ASKED_MAX].part;

        if (part->batch != NONE && t->xfer->batch[part->batch].inflow == inflow)
            part->batch = NONE;
    }
    data_conn_stop_writing(t->xfer, inflow);
}
