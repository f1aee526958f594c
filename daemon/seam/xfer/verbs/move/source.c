/* The source's side of the RDMA transport: answers requests on data connections. Requested pages
 * are written from where they lie into the destination's runs, in the order of the runs. The
 * immediate of the last write is the seq of the piece. Writes that do not fit into the send queue
 * wait in their request, and the connection answers nothing else until they are posted. When all
 * writes are posted, the answer carries statuses and checksums. A later CONFIRM asks which pages
 * were given up meanwhile. events.c calls writes_go_on when a path has credit or ends.
 *
 * A wrong request harms only its destination: the destination's device refuses writes outside its
 * memory windows, and a write that passes fails the checksum there.
 *
 * Invariant: each list of writes from a serve's pages holds its serve until its last write has
 * completed, successfully or not, or the queue pair is destroyed. GONE promises that no further
 * write of the piece follows, because the destination closes its memory windows on GONE. */
#include <arpa/inet.h>
#include <errno.h>

#include "base/check.h"
#include "seam/xfer/verbs/verbs.h"

/* ------------------------------------------------------------------ writes */

enum written {
    WRITTEN_ALL = 0,
    WRITTEN_SOME, /* no credit for the rest; write_go_on resumes it */
    WRITTEN_LOST, /* the path ended, or is not the requested one */
    WRITTEN_NOT,  /* the request is invalid */
};

static struct verbs_path *write_path(struct verbs *v, uint32_t link, uint32_t tenant,
                                     uint32_t epoch)
{
    for (uint32_t i = 0; i < v->rails; i++) {
        struct verbs_path *p = path_of(v, link, tenant, i);

        if (p->source && !p->offer.waits && p->state == PATH_READY && p->their_epoch == epoch)
            return p;
    }
    return NULL;
}

static bool runs_sound(const struct verbs_path *p, const struct data_request *in, uint64_t bytes)
{
    for (uint32_t i = 0; i < in->nruns; i++) {
        const struct xfer_run *run = &in->runs[i];
        const struct xfer_mr *mr = peer_mr(p, run->region, run->offset);

        if (!mr || run->bytes == 0 || run->bytes > bytes || run->mw >> 8 >= p->nmws ||
            run->bytes > mr->bytes - (run->offset - mr->offset))
            return false;
        bytes -= run->bytes;
    }
    return bytes == 0;
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static void cursor_move(struct data_request *in, uint64_t n, uint64_t page_bytes)
{
    struct page_cursor *c = &in->cursor;

    in->run_at += n;
    if (in->run_at == in->runs[in->run].bytes) {
        in->run_at = 0;
        in->run++;
    }
    c->at += n;
    if (c->at < page_bytes)
        return;
    c->at = 0;
    if (++c->page == in->n) {
        c->page = 0;
        c->region++;
    }
}

/* Adds a write of the next bytes at the cursor. Returns false if the list is full. */
static bool writes_next(struct verbs *v, const struct verbs_path *p, struct data_request *in,
                        uint32_t pool, struct verbs_wrs *list)
{
    const struct mem *mem = v->xfer->config.mem;
    const struct xfer_entry *e = &in->entry[in->cursor.page];
    const struct xfer_run *run = &in->runs[in->run];
    const struct xfer_mr *theirs = peer_mr(p, run->region, run->offset);
    uint64_t page_bytes = mem_group(mem, pool, e->group)->page_bytes;
    uint32_t most = (uint32_t)least(rail_of(v, p)->max_msg, VERBS_WRITE_BYTES);
    uint8_t *at =
        (uint8_t *)mem_page(mem, pool, in->cursor.region, e->group, e->index) + in->cursor.at;
    const struct verbs_mr *mine = local_mr(&rail_of(v, p)->domain[p->tenant], at);
    struct ibv_sge from = {.addr = (uintptr_t)at};

    check(mine && theirs);
    from.lkey = mine->mr->lkey;
    from.length = (uint32_t)least(least(page_bytes - in->cursor.at, run->bytes - in->run_at),
                                  least(most, mine->bytes - (uint64_t)(at - mine->base)));
    if (!wrs_extend(list, IBV_WR_RDMA_WRITE, &from,
                    theirs->addr + (run->offset - theirs->offset) + in->run_at,
                    (p->mw_rkey[run->mw >> 8] & ~0xffu) | (run->mw & 0xffu), most))
        return false;
    cursor_move(in, from.length, page_bytes);
    return true;
}

static void write_counted(struct verbs *v, struct verbs_path *p, uint32_t serve)
{
    uint32_t at = (p->writes_at + p->writes_n) % VERBS_SEND_QUEUE;

    check(p->writes_n < VERBS_SEND_QUEUE); /* each list has a request outstanding */
    p->writes[at] = (struct verbs_write){.serve = serve, .last = p->posted};
    p->writes_n++;
    serve_hold(v->xfer, serve);
}

static bool path_gone(const struct verbs_path *p, const struct data_request *in)
{
    return p->state != PATH_READY || p->offer.waits || p->their_epoch != in->epoch;
}

/* Returns true if a posted write is still outstanding on a path that will report its completion. */
static bool writes_under_way(const struct verbs *v, const struct data_conn *conn)
{
    const struct data_request *in = conn->request;
    const struct verbs_path *p = &v->path[in->path];

    return (in->run > 0 || in->run_at > 0) && !path_gone(p, in) &&
           (int32_t)(p->completed - in->last) < 0;
}

/* Fills one list with as many writes as fit. */
static void writes_list(struct verbs *v, const struct verbs_path *p, const struct data_conn *conn,
                        struct verbs_wrs *list)
{
    struct data_request *in = conn->request;
    uint32_t credit = path_credit(v, p), pool = data_request_pool(conn);

    list->room = credit < VERBS_POST_MAX ? credit : VERBS_POST_MAX;
    while (in->run < in->nruns && writes_next(v, p, in, pool, list))
        ;
    if (in->run == in->nruns && list->n > 0) {
        list->wr[list->n - 1].opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
        list->wr[list->n - 1].imm_data = htonl(in->seq);
    }
}

static enum written writes_post(struct verbs *v, struct data_conn *conn)
{
    struct data_request *in = conn->request;
    struct verbs_path *p = &v->path[in->path];

    while (in->run < in->nruns) {
        struct verbs_wrs list = {0};
        bool posted;

        if (path_gone(p, in))
            return WRITTEN_LOST;
        writes_list(v, p, conn, &list);
        if (list.n == 0) {
            rail_full(v, p);
            return WRITTEN_SOME;
        }
        posted = wrs_post(v, p, &list);
        v->xfer->stats.writes_posted += list.n;
        if (list.n > 0)
            write_counted(v, p, in->serve.slot);
        in->last = p->posted;
        if (!posted) {
            path_failed(v, p, "a write could not be posted: %s", strerror(errno));
            return WRITTEN_LOST;
        }
    }
    return WRITTEN_ALL;
}

/* conn->request has runs and cursor set, and all its pages may leave. Posts what fits. */
static enum written writes_begin(struct verbs *v, struct data_conn *conn)
{
    struct data_request *in = conn->request;
    const struct mem *mem = conn->xfer->config.mem;
    uint32_t pool = data_request_pool(conn);
    struct verbs_path *p = write_path(v, conn->peer_link, mem_place(mem, pool)->tenant, in->epoch);
    uint64_t bytes = 0;

    check(mem_place(mem, pool)->tier == TIER_DEVICE); /* memory_leaves checked it */
    if (!p)
        return WRITTEN_LOST;
    for (uint32_t i = 0; i < in->n; i++)
        bytes += mem_transfer_bytes(mem, pool, in->entry[i].group);
    if (!runs_sound(p, in, bytes))
        return WRITTEN_NOT;
    in->path = path_number(v, p);
    in->run = 0;
    in->run_at = 0;
    return writes_post(v, conn);
}

/* ------------------------------------------------------------------ requests */

/* Fills in statuses and checksums of the request's pages. */
static bool answer(const struct verbs *v, struct data_conn *conn)
{
    bool leaves = v && serve_active(conn->xfer, conn->request->serve) &&
                  memory_leaves(v, data_request_pool(conn));

    return data_answer_begin(conn, XFER_ANSWER_WRITE, leaves);
}

static void answer_none(struct data_conn *conn, enum tern_err err)
{
    data_answer_none(conn, XFER_ANSWER_WRITE, err);
    data_request_state_move(&conn->request->state, DATA_REQUEST_META);
}

/* Answers CONFIRM: names the pages whose generation has changed. No state is kept from the request.
 * A generation is never reused, so a page that may leave now is the page that could leave then. */
static void confirm(struct data_conn *conn)
{
    struct data_request *r = conn->request;
    struct xfer_head head = {.type = XFER_CONFIRMED, .n = r->n, .seq = r->seq};
    uint64_t stale[XFER_MASK_WORDS] = {0};
    uint32_t record;

    for (uint32_t i = 0; i < r->n; i++) {
        if (serve_page_leaves(conn->xfer, r->serve, &r->entry[i], &record)) {
            serve_sent(conn->xfer, r->serve, 1, data_request_bytes(conn, i));
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

/* Returns false if the request breaks the protocol. */
static bool settle(struct data_conn *conn, enum written written)
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

/* Writes all pages of the request or none. Returns false if it breaks the protocol. */
static bool write_begin(struct verbs *v, struct data_conn *conn)
{
    const struct data_request *r = conn->request;

    if (conn->out_n > 0 || !answer(v, conn))
        return false; /* an answer is still unsent: no correct peer asks now */
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

/* Resumes a request that waits for its path. */
static void write_go_on(struct verbs *v, struct data_conn *conn)
{
    struct data_request *r = conn->request;
    bool serves = serve_active(conn->xfer, r->serve);

    check(r->state == DATA_REQUEST_WAITS);
    if (!serves && writes_under_way(v, conn))
        return;
    data_request_state_move(
        &r->state, DATA_REQUEST_NONE); /* if the path fails now, it must not call this again */
    if (!serves)
        answer_none(conn, TERN_GONE);
    else if (!settle(conn, writes_post(v, conn)))
        data_conn_end(conn, true);
    data_source_send(conn);
}

void writes_go_on(struct verbs *v, struct verbs_path *p)
{
    for (uint32_t i = 0; i < v->xfer->config.data_conns_max; i++) {
        struct data_conn *conn = &v->xfer->conns->conn[i];

        if (conn->state == DATA_CONN_OPEN && conn->request &&
            conn->request->state == DATA_REQUEST_WAITS && conn->request->path == path_number(v, p))
            write_go_on(v, conn);
    }
}

static void over(struct transport *t, struct data_conn *conn, bool lost)
{
    check(!lost); /* no page bytes go over this connection */
    write_go_on(t->own, conn);
}

const struct data_service verbs_service = {
    .frame = {XFER_REQUEST_WRITE, XFER_CONFIRM}, .begin = begin, .over = over};
