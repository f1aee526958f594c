/* The connection beside a path: what is asked of the source, and what it answers. Its frames carry
 * everything but the pages. That it ends breaks the pulls it spoke for and no read: those end by
 * themselves, and their pieces stay until then. Called by verbs/ and tcp/tcp.c. */
#include <unistd.h>

#include "base/check.h"
#include "seam/xfer/verbs/verbs.h"

/* ------------------------------------------------------------------ what is asked */

static void put_frame(struct xfer_conn *conn, uint16_t type, const struct verbs_piece *piece,
                      const uint64_t *mask)
{
    struct conn_read *r = &conn->read;
    struct xfer_head head = {
        .type = type, .seq = piece->seq, .a = serve_id_pack(piece->serve), .b = piece->pull};
    uint32_t head_at = r->tx_n;

    r->tx_n += XFER_HEAD_BYTES;
    for (uint32_t i = 0; i < piece->n; i++) {
        if (mask && !xfer_bit(mask, i))
            continue;
        xfer_put_entry(r->tx + r->tx_n, &piece->entry[i]);
        r->tx_n += XFER_ENTRY_BYTES;
        head.n++;
    }
    xfer_put_head(r->tx + head_at, &head);
}

static bool room_to_say(const struct xfer_conn *conn)
{
    return conn->read.tx_n + XFER_WRITE_BYTES <= READ_TX_BYTES;
}

static void put_request_write(const struct verbs *v, struct xfer_conn *conn,
                              const struct verbs_piece *piece)
{
    const struct verbs_path *p = &v->path[piece->path];
    struct conn_read *r = &conn->read;
    struct xfer_head head = {.type = XFER_REQUEST_WRITE,
                             .n = piece->n,
                             .seq = piece->seq,
                             .a = serve_id_pack(piece->serve),
                             .b = piece->nruns | (uint64_t)p->epoch << 32};
    uint32_t head_at = r->tx_n;

    put_frame(conn, XFER_REQUEST_WRITE, piece, NULL);
    xfer_put_head(r->tx + head_at, &head);
    for (uint32_t i = 0; i < piece->nruns; i++, r->tx_n += XFER_RUN_BYTES) {
        const struct verbs_run *run = &piece->run[i];

        xfer_put_run(r->tx + r->tx_n, &(struct xfer_run){.window = push_window_name(p, run),
                                                         .region = run->mr->region,
                                                         .offset = run->offset,
                                                         .bytes = run->bytes});
    }
}

static void say_grants(struct verbs *v, struct xfer_conn *conn)
{
    for (uint32_t i = 0; i < VERBS_PIECES && room_to_say(conn); i++) {
        struct verbs_piece *piece = piece_of(v, conn->read.link, i);

        if (piece->state != PIECE_BOUND)
            continue;
        put_request_write(v, conn, piece);
        push_asked(piece);
    }
}

static void say_confirms(struct verbs *v, struct xfer_conn *conn)
{
    for (uint32_t i = 0; i < VERBS_PIECES && room_to_say(conn); i++) {
        struct verbs_piece *piece = piece_of(v, conn->read.link, i);

        if (piece->state != PIECE_READ)
            continue;
        put_frame(conn, XFER_CONFIRM, piece, piece->sent);
        piece->state = PIECE_CONFIRMING;
        piece->heard = false;
    }
}

static void piece_cut_from(struct verbs *v, struct verbs_piece *piece, uint32_t link,
                           const struct asked *from)
{
    struct asked cut = *from;
    uint32_t number = cut.batch;
    struct xfer_batch *batch = &v->xfer->batch[number];

    piece->state = PIECE_ASKED;
    piece->counted = piece->heard = piece->granted = piece->revoked = false;
    piece->batch = number;
    piece->pull = batch->pull;
    piece->seq = v->link[link].seq++;
    piece->first = cut.first;
    piece->n = cut.n;
    piece->path = NONE;
    piece->tries = piece->tried = 0;
    piece->serve = batch->serve;
    piece->cursor = (struct cursor){0};
    memset(piece->sent, 0, sizeof piece->sent);
    for (uint32_t i = 0; i < cut.n; i++)
        piece->entry[i] =
            (struct xfer_entry){batch->page[cut.first + i].group, batch->ref[cut.first + i].index,
                                batch->ref[cut.first + i].gen};
    batch->asked += cut.n;
    if (batch->asked == batch->n)
        queue_remove(v->xfer, &v->xfer->link[link].reads, number);
}

static uint32_t next_batch(struct verbs *v, uint32_t link)
{
    uint32_t b = v->xfer->link[link].reads.head;

    while (b != NONE && !path_best(v, link, batch_tenant(v, b), NULL))
        b = v->xfer->batch[b].next;
    return b;
}

/* Or its batch goes another way. False: no more can be begun now. */
static bool piece_begin(struct verbs *v, struct xfer_conn *conn, struct verbs_piece *piece,
                        uint32_t number)
{
    uint32_t link = conn->read.link;
    struct verbs_path *p = path_best(v, link, batch_tenant(v, number), NULL);
    struct asked cut = piece_cut(v->xfer, number, v->piece_sums);
    bool most;

    check(p); /* as next_batch has seen */
    if (!p->push) {
        piece_cut_from(v, piece, link, &cut);
        put_frame(conn, XFER_REQUEST_READ, piece, NULL);
        return true;
    }
    cut.n = push_fit(v, p, number, cut.first, cut.n, piece, &most);
    if (cut.n == 0 && !most)
        return false; /* goes on when windows are free */
    if (cut.n == 0) {
        batch_other_way(v, link, number);
        link_pump(v->xfer, link);
        return next_batch(v, link) != number; /* else when what is granted of it has ended */
    }
    piece_cut_from(v, piece, link, &cut);
    piece->tries = 1;
    return push_bind(v, p, piece);
}

static void say_requests(struct verbs *v, struct xfer_conn *conn)
{
    uint32_t link = conn->read.link;

    for (uint32_t i = 0; i < VERBS_PIECES && room_to_say(conn);) {
        struct verbs_piece *piece = piece_of(v, link, i);
        uint32_t number = next_batch(v, link);

        if (number == NONE)
            return;
        if (piece->state != PIECE_FREE)
            i++;
        else if (!piece_begin(v, conn, piece, number))
            return;
    }
}

static void read_send(struct xfer_conn *conn)
{
    conn->sending = true;
    io_send(conn->xfer->config.io, &conn->send_op, conn->fd, conn->read.tx + conn->read.tx_at,
            conn->read.tx_n - conn->read.tx_at, true);
}

/* False: no descriptor. With no slot it waits for one, as over TCP. */
static bool read_connect(struct verbs *v, uint32_t number)
{
    struct xfer *xfer = v->xfer;
    struct xfer_link *link = &xfer->link[number];
    int fd = socket(link->addr.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct xfer_conn *conn = fd < 0 ? NULL : conn_take(xfer, true, fd);

    if (fd < 0)
        return false;
    if (!conn) {
        close(fd);
        if (link->reads_waiting_ns == 0)
            link->reads_waiting_ns = io_now_ns();
        evict_idle(xfer);
        return true;
    }
    conn_options(xfer, fd);
    link->reads_waiting_ns = 0;
    link->read_conn = (uint32_t)(conn - xfer->conn);
    read_start(conn, number);
    return true;
}

void verbs_pump(struct xfer *xfer, uint32_t number)
{
    struct verbs *v = xfer->verbs;
    struct xfer_link *link = &xfer->link[number];
    struct xfer_conn *conn;

    if (!link->up || !v->link[number].piece)
        return;
    if (link->read_conn == NONE) {
        if (next_batch(v, number) != NONE && !read_connect(v, number))
            queue_break(xfer, &link->reads, TERN_BUSY);
        return;
    }
    conn = &xfer->conn[link->read_conn];
    if (conn->state != CONN_OPEN || conn->sending)
        return;
    conn->read.tx_n = conn->read.tx_at = 0;
    if (!verbs_conn_busy(conn))
        conn_progress(conn); /* the peer's time to answer starts now */
    say_confirms(v, conn);
    say_grants(v, conn);
    say_requests(v, conn);
    if (conn->state == CONN_OPEN && !conn->sending && conn->read.tx_n > 0)
        read_send(conn);
}

/* ------------------------------------------------------------------ what is answered */

/* The one whose answer is due, of that number; it answers a CONFIRM or what was asked before. */
static struct verbs_piece *piece_by_seq(struct verbs *v, uint32_t link, uint32_t seq, bool confirms)
{
    for (uint32_t i = 0; i < VERBS_PIECES; i++) {
        struct verbs_piece *piece = piece_of(v, link, i);

        if (piece->state != PIECE_FREE && !piece->heard && piece->seq == seq &&
            (piece->state == PIECE_CONFIRMING) == confirms)
            return piece;
    }
    return NULL;
}

/* The statuses: how many pages are given. *ret_lost: none, because the source's end of the path is
 * gone. */
static uint32_t count_given(const uint8_t *status, uint32_t n, bool *ret_lost)
{
    uint32_t given = 0;

    *ret_lost = false;
    for (uint32_t i = 0; i < n; i++) {
        given += xfer_get32(status + 4 * i) == TERN_OK;
        *ret_lost = *ret_lost || xfer_get32(status + 4 * i) == TERN_PEER_LOST;
    }
    return given;
}

/* What the answer says of the pages. False: this is not our protocol. */
static bool take_answer(struct verbs *v, struct verbs_piece *piece, const struct xfer_head *head,
                        const uint8_t *status)
{
    struct xfer_batch *batch = &v->xfer->batch[piece->batch];
    uint32_t nsums = 0;

    for (uint32_t i = 0; i < piece->n; i++) {
        if (xfer_get32(status + 4 * i) != TERN_OK) {
            batch->gone = true;
            v->xfer->stats.gone_answers++;
            continue;
        }
        xfer_set_bit(piece->sent, i);
        nsums += batch_page_sums(v->xfer, batch, piece->first + i);
    }
    if (head->b != nsums * sizeof(uint64_t) || nsums > v->piece_sums)
        return false;
    for (uint32_t i = 0; i < nsums; i++)
        piece->sums[i] = xfer_get64(status + XFER_STATUS_BYTES(piece->n) + 8 * i);
    piece->offset = head->a;
    return true;
}

/* Nothing of a piece that is not given is under way. False: this is not our protocol. */
static bool answered_push(struct verbs *v, struct verbs_piece *piece, const struct xfer_head *head,
                          const uint8_t *status)
{
    bool lost;
    uint32_t given = count_given(status, head->n, &lost);

    if (given != 0 && given != piece->n)
        return false;
    piece->revoked = piece->revoked && given > 0;
    if (piece->counted && lost)
        push_lost(v, piece);
    if (piece->state == PIECE_WAITING || lost)
        return true; /* it is asked for again */
    if (piece->batch != NONE && !take_answer(v, piece, head, status))
        return false;
    if (piece->counted)
        push_answered(v, piece, given > 0);
    if (piece->batch != NONE && given == 0)
        piece_end(v, piece);
    return true;
}

static bool answered_read(struct verbs *v, struct verbs_piece *piece, const struct xfer_head *head,
                          const uint8_t *status)
{
    bool lost;

    if (piece->batch == NONE)
        return true;
    if (!take_answer(v, piece, head, status))
        return false;
    piece->state = PIECE_WAITING;
    if (count_given(status, head->n, &lost) == 0)
        piece_end(v, piece);
    return true;
}

static bool answered(struct verbs *v, struct xfer_conn *conn, const struct xfer_head *head)
{
    struct verbs_piece *piece = piece_by_seq(v, conn->read.link, head->seq, false);

    if (!piece || head->n != piece->n)
        return false;
    piece->heard = true;
    if (!(piece->granted ? answered_push : answered_read)(v, piece, head,
                                                          conn->meta + XFER_HEAD_BYTES))
        return false;
    piece_free(piece);
    pieces_start(v, conn->read.link);
    return true;
}

static bool confirmed(struct verbs *v, struct xfer_conn *conn, const struct xfer_head *head)
{
    struct verbs_piece *piece = piece_by_seq(v, conn->read.link, head->seq, true);
    uint64_t stale[XFER_MASK_WORDS];

    if (!piece || !xfer_get_tail(conn->meta + XFER_HEAD_BYTES, head->seq, stale))
        return false;
    piece->heard = true;
    piece_free(piece);
    if (piece->state == PIECE_FREE)
        return true;
    piece_verify(v, piece, stale);
    piece_end(v, piece);
    return true;
}

/* Bytes of the frame that conn->meta begins with; 0: not all of it is there. */
static uint32_t frame_bytes(const struct xfer_conn *conn, struct xfer_head *ret, bool *ret_bad)
{
    uint64_t need;

    *ret_bad = false;
    if (conn->read.rx_n < XFER_HEAD_BYTES)
        return 0;
    *ret_bad = !xfer_get_head(conn->meta, ret) || ret->n > XFER_PAGES_MAX ||
               (ret->type != XFER_ANSWER_READ && ret->type != XFER_CONFIRMED) ||
               ret->b > conn->xfer->meta_bytes;
    if (*ret_bad)
        return 0;
    need = ret->type == XFER_CONFIRMED ? XFER_HEAD_BYTES + XFER_TAIL_BYTES
                                       : XFER_HEAD_BYTES + XFER_STATUS_BYTES(ret->n) + ret->b;
    *ret_bad = need > conn->xfer->meta_bytes;
    return *ret_bad || conn->read.rx_n < need ? 0 : (uint32_t)need;
}

static void read_recv(struct xfer_conn *conn)
{
    conn->receiving = true;
    io_recv(conn->xfer->config.io, &conn->recv_op, conn->fd, conn->meta + conn->read.rx_n,
            conn->xfer->meta_bytes - conn->read.rx_n, false);
}

static void take_frames(struct verbs *v, struct xfer_conn *conn)
{
    struct conn_read *r = &conn->read;
    struct xfer_head head;
    uint32_t n;
    bool bad;

    while (conn->state == CONN_OPEN && (n = frame_bytes(conn, &head, &bad)) > 0) {
        if (!(head.type == XFER_ANSWER_READ ? answered : confirmed)(v, conn, &head)) {
            conn_fail(conn);
            return;
        }
        if (conn->state != CONN_OPEN)
            return;
        memmove(conn->meta, conn->meta + n, r->rx_n - n);
        r->rx_n -= n;
    }
    if (conn->state == CONN_OPEN && bad)
        conn_fail(conn);
}

static void read_recv_done(struct io_op *op, int32_t res, uint32_t flags, uint32_t buffer)
{
    struct xfer_conn *conn = conn_of_recv(op);
    struct xfer *xfer = conn->xfer;

    (void)flags, (void)buffer;
    conn->receiving = false;
    if (conn->state == CONN_OPEN) {
        if (res > 0) {
            conn_progress(conn);
            xfer->stats.socket_bytes_in += (uint64_t)res;
            conn->read.rx_n += (uint32_t)res;
            take_frames(xfer->verbs, conn);
        } else {
            conn_fail(conn);
        }
    }
    if (conn->state != CONN_OPEN) {
        conn_reap(conn);
        return;
    }
    read_recv(conn);
    verbs_pump(xfer, conn->read.link);
}

static void read_send_done(struct io_op *op, int32_t res, uint32_t flags, uint32_t buffer)
{
    struct xfer_conn *conn = conn_of_send(op);
    struct xfer *xfer = conn->xfer;

    (void)flags, (void)buffer;
    if (!conn_sent(conn, res > 0))
        return;
    xfer->stats.socket_bytes_out += (uint64_t)res;
    conn->read.tx_at += (uint32_t)res;
    if (conn->read.tx_at < conn->read.tx_n)
        read_send(conn);
    else
        verbs_pump(xfer, conn->read.link);
}

static void read_connect_done(struct io_op *op, int32_t res, uint32_t flags, uint32_t buffer)
{
    struct xfer_conn *conn = conn_of_send(op);

    (void)flags, (void)buffer;
    if (!conn_sent(conn, res >= 0))
        return;
    conn->state = CONN_OPEN;
    conn->read.tx_n = conn_hello(conn->xfer, conn->read.link, conn->read.tx);
    conn->send_op.done = read_send_done;
    read_send(conn);
    read_recv(conn);
}

/* ------------------------------------------------------------------ life of the connection */

void read_start(struct xfer_conn *conn, uint32_t link)
{
    conn->reads = true;
    conn->read.link = link;
    conn->read.rx_n = conn->read.tx_n = conn->read.tx_at = 0;
    conn->recv_op.done = read_recv_done;
    conn_connect(conn, link, read_connect_done);
}

bool verbs_conn_busy(const struct xfer_conn *conn)
{
    struct verbs *v = conn->xfer->verbs;

    if (conn->sending)
        return true;
    for (uint32_t i = 0; i < VERBS_PIECES; i++) {
        const struct verbs_piece *piece = piece_of(v, conn->read.link, i);

        if (piece->state != PIECE_FREE && !piece->heard)
            return true;
    }
    return false;
}

bool verbs_conn_idle(const struct xfer_conn *conn)
{
    for (uint32_t i = 0; i < VERBS_PIECES; i++) {
        const struct verbs_piece *piece = piece_of(conn->xfer->verbs, conn->read.link, i);

        if (piece->state != PIECE_FREE && (piece->batch != NONE || !piece->heard))
            return false;
    }
    return !conn->sending;
}

/* The pulls that it spoke for break; reads that are in flight end by themselves. */
void verbs_conn_lost(struct xfer_conn *conn)
{
    struct xfer *xfer = conn->xfer;
    struct verbs *v = xfer->verbs;
    uint32_t number = conn->read.link;

    xfer->link[number].read_conn = NONE;
    for (uint32_t i = 0; i < VERBS_PIECES; i++) {
        struct verbs_piece *piece = piece_of(v, number, i);

        if (piece->state == PIECE_FREE)
            continue;
        piece->revoked = piece->revoked && piece->heard;
        piece->heard = true;
        if (piece->batch != NONE)
            pull_break(xfer, piece->pull, TERN_PEER_LOST);
        if (piece->state != PIECE_FREE && piece->batch != NONE)
            piece_drop(v, piece);
        piece_free(piece);
    }
    queue_break(xfer, &xfer->link[number].reads, TERN_PEER_LOST);
}
