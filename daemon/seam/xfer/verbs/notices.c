/* The data connection beside the paths of a link carries requests to the source and its answers:
 * everything except the pages. When the connection ends, the pulls that use it break, and open
 * memory windows are closed. The pieces remain until their windows are closed. */
#include "base/check.h"
#include "seam/xfer/verbs/verbs.h"

static bool answer_due(const struct data_conn *conn)
{
    const struct verbs_piece *piece = NULL;

    while ((piece = piece_next(conn->transport->own, conn->peer_link, piece)))
        if (piece->state != PIECE_FREE && !piece->answered)
            return true;
    return false;
}

static void put_frame(struct data_conn *conn, uint16_t type, const struct verbs_piece *piece,
                      uint64_t b)
{
    struct xfer_head head = {
        .type = type, .n = piece->n, .seq = piece->seq, .a = serve_id_pack(piece->serve), .b = b};

    xfer_put_head(conn->buffer + conn->out_n, &head);
    conn->out_n += XFER_HEAD_BYTES;
    for (uint32_t i = 0; i < piece->n; i++, conn->out_n += XFER_ENTRY_BYTES)
        xfer_put_entry(conn->buffer + conn->out_n, &piece->entry[i]);
}

static bool room_to_say(const struct data_conn *conn)
{
    return conn->out_n + XFER_WRITE_BYTES <= DATA_BUFFER_BYTES;
}

static void put_request_write(const struct verbs *v, struct data_conn *conn,
                              const struct verbs_piece *piece)
{
    const struct verbs_path *p = &v->path[piece->path];

    put_frame(conn, XFER_REQUEST_WRITE, piece, piece->nruns | (uint64_t)p->epoch << 32);
    for (uint32_t i = 0; i < piece->nruns; i++, conn->out_n += XFER_RUN_BYTES) {
        const struct verbs_run *run = &piece->run[i];

        xfer_put_run(
            conn->buffer + conn->out_n,
            &(struct xfer_run){.mw = (uint32_t)run->mw << 8 | (p->mw[run->mw]->rkey & 0xffu),
                               .region = run->mr->region,
                               .offset = run->offset,
                               .bytes = run->bytes});
    }
}

static void ask_for_writes(struct verbs *v, struct data_conn *conn)
{
    struct verbs_piece *piece = NULL;

    while (room_to_say(conn) && (piece = piece_next(v, conn->peer_link, piece)))
        if (piece->state == PIECE_BOUND) {
            put_request_write(v, conn, piece);
            push_asked(piece);
        }
}

static void say_confirms(struct verbs *v, struct data_conn *conn)
{
    struct verbs_piece *piece = NULL;

    while (room_to_say(conn) && (piece = piece_next(v, conn->peer_link, piece)))
        if (piece->state == PIECE_CLOSED) {
            put_frame(conn, XFER_CONFIRM, piece, piece->pull);
            piece_state_move(&piece->state, PIECE_CONFIRMING);
            piece->answered = false;
        }
}

static void piece_cut_from(struct verbs *v, struct verbs_piece *piece, uint32_t link,
                           const struct batch_part *from)
{
    struct batch_part cut = *from;
    uint32_t number = cut.batch;
    const struct batch *batch = &v->xfer->batch[number];

    piece->holds = piece->answered = piece->revoked = false;
    piece->batch = number;
    piece->tenant = batch->tenant;
    piece->pull = batch->pull;
    piece->seq = v->link[link].seq++;
    piece->first = cut.first;
    piece->n = cut.n;
    piece->path = NONE;
    piece->tries = piece->tried = 0;
    piece->serve = batch->serve;
    for (uint32_t i = 0; i < cut.n; i++)
        piece->entry[i] = (struct xfer_entry){.group = batch->page[cut.first + i].group,
                                              .index = batch->ref[cut.first + i].index,
                                              .gen = batch->ref[cut.first + i].gen};
    batch_asked(v->xfer, number, cut.n);
}

static bool has_path(const struct transport *t, uint32_t link, uint32_t tenant)
{
    return path_best(t->own, link, tenant) != NULL;
}

static uint32_t next_batch(struct verbs *v, uint32_t link)
{
    return batch_in_turn(v->transport, link, has_path);
}

/* Begins a piece, or moves its batch to another transport. Returns false if no more can begin
 * now. */
static bool piece_begin(struct verbs *v, struct data_conn *conn, struct verbs_piece *piece,
                        uint32_t number)
{
    uint32_t link = conn->peer_link;
    struct verbs_path *p = path_for(v, link, number, NULL);
    struct batch_part cut = batch_cut(v->xfer, number, XFER_PIECE_BYTES, v->piece_sums);
    bool most;

    check(p); /* next_batch checked has_path */
    cut.n = push_fit(v, p, number, cut.first, cut.n, piece, &most);
    if (cut.n == 0 && !most)
        return false; /* resumes when memory windows are free */
    if (cut.n == 0) {
        batch_other_way(v, link, number);
        return next_batch(v, link) != number; /* false: it waits until its granted pieces end */
    }
    piece_cut_from(v, piece, link, &cut);
    piece->tries = 1;
    return push_bind(v, p, piece);
}

static void say_requests(struct verbs *v, struct data_conn *conn)
{
    uint32_t link = conn->peer_link;

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

void link_say(struct verbs *v, uint32_t number)
{
    struct data_conn *conn;

    if (!v->xfer->link[number].up || !v->link[number].piece)
        return;
    conn = data_path_conn(v->transport, number, 0);
    if (!conn) {
        if (next_batch(v, number) != NONE)
            data_conn_call(v->transport, number, 0, &verbs_caller);
        return;
    }
    if (conn->state != DATA_CONN_OPEN || conn->sending)
        return;
    conn->out_n = conn->out_at = 0;
    if (!answer_due(conn))
        data_conn_progress(conn); /* the timeout for the peer's answer starts now */
    say_confirms(v, conn);
    ask_for_writes(v, conn);
    say_requests(v, conn);
    if (conn->state == DATA_CONN_OPEN && !conn->sending && conn->out_n > 0)
        data_conn_send_buffer(conn);
}

/* Returns the piece with that seq whose answer is due. confirms: that answer is the one to its
 * CONFIRM. */
static struct verbs_piece *piece_by_seq(struct verbs *v, uint32_t link, uint32_t seq, bool confirms)
{
    struct verbs_piece *piece = NULL;

    while ((piece = piece_next(v, link, piece)))
        if (piece->state != PIECE_FREE && !piece->answered && piece->seq == seq &&
            (piece->state == PIECE_CONFIRMING) == confirms)
            break;
    return piece;
}

/* Returns how many pages the source gave. *ret_lost: it gave none, because its end of the path is
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

/* Takes statuses and checksums from the answer. Returns false if it breaks the protocol. */
static bool take_answer(struct verbs *v, struct verbs_piece *piece, const struct xfer_head *head,
                        const uint8_t *status)
{
    const struct batch *batch = &v->xfer->batch[piece->batch];
    uint32_t nsums = 0, regions = mem_place(v->xfer->config.mem, batch->pool)->transfer_regions;
    const uint8_t *sums = status + XFER_STATUS_BYTES(piece->n);

    for (uint32_t i = 0; i < piece->n; i++) {
        if (xfer_get32(status + 4 * i) != TERN_OK) {
            batch_gone(v->xfer, piece->batch);
            continue;
        }
        nsums += batch_page_sums(v->xfer, batch, piece->first + i);
    }
    if (nsums > v->piece_sums ||
        head->b != nsums * sizeof(uint64_t) + (nsums > 0 ? XFER_REGION_BYTES(regions) : 0))
        return false;
    for (uint32_t i = 0; i < nsums; i++)
        piece->sums[i] = xfer_get64(sums + 8 * i);
    return true;
}

static void piece_end(struct verbs *v, struct verbs_piece *piece)
{
    uint32_t number = piece->batch;

    piece->batch = NONE;
    piece_free(piece);
    batch_answered(v->xfer, number, piece->n);
}

/* The source writes no page of a refused piece. Returns false on a protocol error. */
static bool answered_push(struct verbs *v, struct verbs_piece *piece, const struct xfer_head *head,
                          const uint8_t *status)
{
    bool lost;
    uint32_t given = count_given(status, head->n, &lost);

    if (given != 0 && given != piece->n)
        return false;
    piece->revoked = piece->revoked && given > 0;
    if (piece->holds && lost && v->path[piece->path].state == PATH_READY)
        path_failed(v, &v->path[piece->path], "the peer has no end of this path any more");
    if (piece->state == PIECE_WAITING || lost)
        return true; /* the piece is requested again */
    if (piece->batch != NONE && !take_answer(v, piece, head, status))
        return false;
    if (piece->holds)
        push_answered(v, piece, given > 0);
    if (piece->batch != NONE && given == 0)
        piece_end(v, piece);
    return true;
}

static bool answered(struct verbs *v, struct data_conn *conn, const struct xfer_head *head)
{
    struct verbs_piece *piece = piece_by_seq(v, conn->peer_link, head->seq, false);

    if (!piece || head->n != piece->n)
        return false;
    piece->answered = true;
    if (!answered_push(v, piece, head, conn->meta + XFER_HEAD_BYTES))
        return false;
    piece_free(piece);
    link_mark(v, conn->peer_link);
    return true;
}

static bool confirmed(struct verbs *v, struct data_conn *conn, const struct xfer_head *head)
{
    struct verbs_piece *piece = piece_by_seq(v, conn->peer_link, head->seq, true);
    uint64_t stale[XFER_MASK_WORDS];

    if (!piece || !xfer_get_tail(conn->meta + XFER_HEAD_BYTES, head->seq, stale))
        return false;
    piece->answered = true;
    piece_free(piece);
    if (piece->state == PIECE_FREE)
        return true;
    piece_verify(v, piece, stale);
    return true;
}

/* Returns the bytes of the first frame in conn->meta; 0: incomplete. */
static uint32_t frame_bytes(const struct data_conn *conn, struct xfer_head *ret, bool *ret_bad)
{
    uint64_t need;

    *ret_bad = false;
    uint32_t rx_n = ((const struct verbs_notices *)conn->own)->rx_n;

    if (rx_n < XFER_HEAD_BYTES)
        return 0;
    *ret_bad = !xfer_get_head(conn->meta, ret) || ret->n > XFER_PAGES_MAX ||
               (ret->type != XFER_ANSWER_WRITE && ret->type != XFER_CONFIRMED) ||
               ret->b > conn->xfer->conns->meta_bytes;
    if (*ret_bad)
        return 0;
    need = ret->type == XFER_CONFIRMED ? XFER_HEAD_BYTES + XFER_TAIL_BYTES
                                       : XFER_HEAD_BYTES + XFER_STATUS_BYTES(ret->n) + ret->b;
    *ret_bad = need > conn->xfer->conns->meta_bytes;
    return *ret_bad || rx_n < need ? 0 : (uint32_t)need;
}

static void receive(struct data_conn *conn)
{
    uint32_t at = ((const struct verbs_notices *)conn->own)->rx_n;

    data_conn_receive(conn, conn->meta + at, (uint32_t)conn->xfer->conns->meta_bytes - at, false);
}

static bool received(struct data_conn *conn, uint64_t bytes)
{
    struct verbs_notices *notices = conn->own;
    struct verbs *v = conn->transport->own;
    struct xfer_head head;
    uint32_t n;
    bool bad;

    notices->rx_n += (uint32_t)bytes;
    while ((n = frame_bytes(conn, &head, &bad)) > 0) {
        if (!(head.type == XFER_ANSWER_WRITE ? answered : confirmed)(v, conn, &head))
            return false;
        if (conn->state != DATA_CONN_OPEN)
            return true;
        memmove(conn->meta, conn->meta + n, notices->rx_n - n);
        notices->rx_n -= n;
    }
    return !bad;
}

static bool idle(const struct data_conn *conn)
{
    const struct verbs_piece *piece = NULL;

    while ((piece = piece_next(conn->transport->own, conn->peer_link, piece)))
        if (piece->state != PIECE_FREE && (piece->batch != NONE || !piece->answered))
            return false;
    return true;
}

/* Breaks the pulls that used the connection and closes the memory windows of their pieces. */
static void lost(struct data_conn *conn)
{
    struct xfer *xfer = conn->xfer;
    struct verbs *v = conn->transport->own;

    for (struct verbs_piece *piece = NULL; (piece = piece_next(v, conn->peer_link, piece));) {
        if (piece->state == PIECE_FREE || piece->state == PIECE_VERIFYING)
            continue; /* needs no connection any more */
        piece->revoked = piece->revoked && piece->answered;
        piece->answered = true;
        if (piece->batch != NONE) /* the pull is active: pull_break drops its pieces */
            pull_break(xfer, piece->pull, TERN_PEER_LOST);
        piece_free(piece);
    }
    queue_break(xfer, &verbs_lane(v, conn->peer_link)->queue, TERN_PEER_LOST);
}

const struct data_caller verbs_caller = {
    .receive = receive,
    .received = received,
    .lost = lost,
    .busy = answer_due,
    .idle = idle,
};
