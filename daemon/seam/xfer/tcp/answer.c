/* The source's side of the TCP transport. Pages are sent straight from where they lie, after the
 * answer that announces them; or through a buffer, if the bytes lie scattered in short stretches
 * (DATA_PACKED_STRETCH). The core is asked about each page again when the kernel has taken its last
 * byte. If a page's generation changed in between, the tail names the page, and the destination
 * discards it.
 *
 * If a serve ends in the middle of an answer, announced bytes not yet sent are sent as zeros, and
 * the tail names every page. So the stream stays in step, the connection stays in use, and nothing
 * reads the pages once EV_SERVE_QUIET was emitted. */
#include "seam/xfer/tcp/tcp.h"

static bool begin(struct transport *t, struct data_conn *conn)
{
    (void)t;
    if (!data_answer_begin(conn, XFER_ANSWER, true))
        return false;
    data_request_state_move(&conn->request->state, DATA_REQUEST_PAGES);
    return true;
}

/* Adds the bytes of resharded pages, stretch by stretch. */
static void gather_resharded(struct data_conn *conn, struct data_gather *g)
{
    const struct data_request *r = conn->request;
    const struct pair *pair = data_request_pair(conn);
    uint64_t at = r->cursor.at;

    for (uint32_t i = r->cursor.page; i < r->n; i++, at = 0) {
        const struct xfer_entry *e = &r->entry[i];
        const struct reshard_part there = {e->first, e->n};
        const struct page_ref *pages = data_request_pages(r, i);
        const struct reshard_plan *plan;
        struct reshard_cursor c;
        struct reshard_run run;

        if (!xfer_bit(r->given, i))
            continue; /* its group may not be in the pair */
        plan = &pair_plan_of(pair, e->group, e->index)->plan;
        c = reshard_cursor_at(plan, there, at);
        conn->send_serve = r->serve.slot;
        while (reshard_cursor_next(plan, there, &c, &run)) {
            uint8_t *page = mem_page(conn->xfer->config.mem, data_request_pool(conn), run.from.rank,
                                     e->group, pages[run.from.page - e->first].index);

            if (g->n >= XFER_PIECE_PARTS ||
                data_gather_add(g, page + run.from.at, run.bytes) < run.bytes)
                return;
        }
    }
}

static void gather(struct data_conn *conn, struct data_gather *g)
{
    const struct data_request *r = conn->request;
    const struct mem *mem = conn->xfer->config.mem;
    uint32_t pool = data_request_pool(conn), regions = mem_place(mem, pool)->transfer_regions;
    struct page_cursor c = r->cursor;

    if (r->over) {
        (void)tcp_gather_again(g, ((const struct tcp *)r->transport->own)->zeros, r->pages_left,
                               XFER_PIECE_PARTS);
        return;
    }
    if (data_request_pair(conn)) {
        gather_resharded(conn, g);
        return;
    }
    for (; c.page < r->n; c.page++, c.region = 0, c.at = 0) {
        const struct xfer_entry *e = &r->entry[c.page];

        if (!xfer_bit(r->given, c.page))
            continue;
        for (; c.region < regions; c.region++, c.at = 0) {
            uint8_t *at = mem_page(mem, pool, c.region, e->group, e->index);
            uint64_t n = mem_group(mem, pool, e->group)->page_bytes - c.at;

            conn->send_serve = r->serve.slot;
            if (data_gather_add(g, at + c.at, n) < n)
                return;
        }
    }
}

/* Moves the cursor over n page bytes, unless the serve is over. */
static bool sent(struct data_conn *conn, uint64_t n)
{
    struct data_request *r = conn->request;
    uint32_t regions =
        data_request_pair(conn)
            ? 1
            : mem_place(conn->xfer->config.mem, data_request_pool(conn))->transfer_regions;

    r->pages_left -= n;
    conn->xfer->stats.payload_bytes_out += n;
    while (n > 0 && !r->over) {
        uint64_t left;

        if (!xfer_bit(r->given, r->cursor.page)) {
            r->cursor.page++;
            continue;
        }
        left = data_request_bytes(conn, r->cursor.page) / regions - r->cursor.at;
        if (n < left) {
            r->cursor.at += n;
            break;
        }
        n -= left;
        r->cursor.at = 0;
        if (++r->cursor.region == regions) {
            r->cursor.region = 0;
            r->cursor.page++;
        }
    }
    return r->pages_left > 0;
}

static bool still_leaves(const struct data_conn *conn, uint32_t i)
{
    const struct data_request *r = conn->request;
    const struct page_ref *pages = data_request_pages(r, i);
    uint32_t record;

    for (uint32_t k = 0; k < r->entry[i].n; k++) {
        const struct xfer_entry e = {
            .group = r->entry[i].group, .index = pages[k].index, .gen = pages[k].gen};

        if (!serve_page_leaves(conn->xfer, r->serve, &e, &record))
            return false;
    }
    return true;
}

/* The kernel has taken every byte. Names the pages whose generation changed meanwhile. */
static void end(struct data_conn *conn)
{
    struct data_request *r = conn->request;
    uint64_t stale[XFER_MASK_WORDS] = {0};

    for (uint32_t i = 0; i < r->n; i++) {
        if (!xfer_bit(r->given, i))
            continue;
        if (r->over || !still_leaves(conn, i))
            xfer_set_bit(stale, i);
        else
            serve_sent(conn->xfer, r->serve, r->entry[i].n, data_request_bytes(conn, i));
    }
    xfer_put_tail(conn->meta, r->seq, stale);
    conn->out_n = XFER_TAIL_BYTES;
}

static void over(struct transport *t, struct data_conn *conn, bool lost)
{
    (void)t, (void)lost;
    conn->request->over = true; /* the tail then names every page */
}

const struct data_service tcp_service = {
    .frame = {XFER_REQUEST, XFER_REQUEST_PLAN},
    .begin = begin,
    .gather = gather,
    .sent = sent,
    .end = end,
    .over = over,
};
