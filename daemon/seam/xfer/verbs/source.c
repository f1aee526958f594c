/* The source's side of the RDMA transport: what peers ask on their data connections. Pages
 * that we are to write are answered with statuses and checksums when all of the writes were posted;
 * a CONFIRM asks which pages were given up in between. write.c posts.
 *
 * What must stay true: GONE says that nothing of a piece comes any more, because the destination
 * closes its memory windows on hearing it. */
#include "base/check.h"
#include "seam/xfer/verbs/verbs.h"

static bool knows(uint16_t frame)
{
    return frame == XFER_REQUEST_WRITE || frame == XFER_CONFIRM;
}

/* The statuses and checksums of pages that go by RDMA. */
static bool answer(const struct verbs *v, struct data_conn *conn)
{
    bool leaves = v && outflow_serves(conn->xfer, conn->request->serve) &&
                  memory_leaves(v, data_request_pool(conn));

    return data_answer_begin(conn, XFER_ANSWER_WRITE, leaves);
}

static void answer_none(struct data_conn *conn, enum tern_err err)
{
    data_answer_none(conn, XFER_ANSWER_WRITE, err);
    data_request_state_move(&conn->request->state, DATA_REQUEST_META);
}

/* These pages are there: whose generation passed meanwhile? Nothing is kept from the
 * request to here: a page that may leave now is the one that might leave then, for generations do
 * not come back. */
static void confirm(struct data_conn *conn)
{
    struct data_request *r = conn->request;
    struct xfer_head head = {.type = XFER_CONFIRMED, .n = r->n, .seq = r->seq};
    uint64_t stale[XFER_MASK_WORDS] = {0};
    uint32_t record;

    for (uint32_t i = 0; i < r->n; i++) {
        if (outflow_page(conn->xfer, r->serve, &r->entry[i], &record)) {
            outflow_sent(conn->xfer, r->serve, 1, data_request_bytes(conn, i));
            conn->xfer->stats.verbs_pages_out++;
        } else {
            xfer_set_bit(stale, i);
        }
    }
    xfer_put_head(conn->meta + conn->out_n, &head);
    xfer_put_tail(conn->meta + conn->out_n + XFER_HEAD_BYTES, r->seq, stale);
    conn->out_n += XFER_HEAD_BYTES + XFER_TAIL_BYTES;
    data_request_state_move(&r->state, DATA_REQUEST_META);
}

/* False: the request breaks the protocol. */
static bool settle(struct data_conn *conn, enum verbs_written written)
{
    switch (written) {
    case WRITTEN_ALL:
        data_request_state_move(&conn->request->state, DATA_REQUEST_META);
        return true;
    case WRITTEN_SOME:
        data_request_state_move(&conn->request->state, DATA_REQUEST_WAITS);
        return true;
    case WRITTEN_LOST: answer_none(conn, TERN_PEER_LOST); return true;
    case WRITTEN_NOT: break;
    }
    return false;
}

/* All pages of the request or none. False: it breaks the protocol. */
static bool write_begin(struct verbs *v, struct data_conn *conn)
{
    const struct data_request *r = conn->request;

    if (conn->out_n > 0 || !answer(v, conn))
        return false; /* the answer to something else is not out: nobody asks so */
    for (uint32_t i = 0; i < r->n; i++) {
        if (xfer_bit(r->given, i))
            continue;
        answer_none(conn, TERN_GONE);
        return true;
    }
    return settle(conn, writes_begin(v, conn));
}

static bool begin(struct transport *t, struct data_conn *conn)
{
    if (conn->request->kind == XFER_REQUEST_WRITE)
        return write_begin(t->own, conn);
    confirm(conn);
    return true;
}

void write_go_on(struct verbs *v, struct data_conn *conn)
{
    struct data_request *r = conn->request;
    bool serves = outflow_serves(conn->xfer, r->serve);

    check(r->state == DATA_REQUEST_WAITS);
    if (!serves && writes_under_way(v, conn))
        return;
    data_request_state_move(
        &r->state, DATA_REQUEST_NONE); /* a path that fails while this posts does not call again */
    if (!serves)
        answer_none(conn, TERN_GONE);
    else if (!settle(conn, writes_post(v, conn)))
        data_conn_fail(conn);
    data_source_send(conn);
}

static void over(struct transport *t, struct data_conn *conn, bool lost)
{
    check(!lost); /* no page byte of it goes out over a connection */
    write_go_on(t->own, conn);
}

const struct data_service verbs_service = {.knows = knows, .begin = begin, .over = over};
