/* Pages that a peer writes to us. A memory window (type 2) of the path opens each contiguous run of
 * a piece's pages, or of the slots that receive them (bounce.c). The window is bound for this piece
 * alone. The source writes there when asked, and the immediate of its last write reports that all
 * data arrived. Then the windows are closed, and the pages are confirmed and verified.
 *
 * When the pull of a piece ends before the piece was requested, its memory windows are closed at
 * once. A requested piece has VERBS_REVOKE_NS to arrive or to be refused by the source, which is
 * informed of the end too. Then the windows are closed even if the source still writes. The device
 * refuses such late writes, which breaks both queue pairs and so every other pull of the path. The
 * delay avoids that. */
#include <arpa/inet.h>
#include <errno.h>

#include "base/check.h"
#include "base/err.h"
#include "seam/xfer/verbs/verbs.h"

struct runs {
    struct verbs_run *run; /* borrowed */
    uint32_t n, room;
};

static bool runs_add(struct runs *runs, const struct verbs_mr *mr, uint64_t offset, uint64_t bytes)
{
    struct verbs_run *last = runs->n > 0 ? &runs->run[runs->n - 1] : NULL;

    if (last && last->mr == mr && last->offset + last->bytes == offset) {
        last->bytes += bytes;
        return true;
    }
    if (runs->n == runs->room)
        return false;
    runs->run[runs->n++] = (struct verbs_run){.mr = mr, .offset = offset, .bytes = bytes};
    return true;
}

/* Splits the page at registrations, because a memory window covers one registration only. */
static bool runs_add_page(struct runs *runs, const struct verbs_domain *domain, const uint8_t *at,
                          uint64_t bytes)
{
    while (bytes > 0) {
        const struct verbs_mr *mr = local_mr(domain, at);
        uint64_t within, n;

        check(mr);
        within = (uint64_t)(at - mr->base);
        n = bytes < mr->bytes - within ? bytes : mr->bytes - within;
        if (!runs_add(runs, mr, mr->offset + within, n))
            return false;
        at += n;
        bytes -= n;
    }
    return true;
}

/* Fills the runs of slots for n pages. Returns false if that takes too many runs or more slots than
 * are free. */
static bool runs_of_slots(struct verbs *v, const struct verbs_path *p, const struct batch *batch,
                          uint32_t first, uint32_t n, struct runs *runs)
{
    const struct verbs_mr *ring = &rail_of(v, p)->domain[p->tenant].ring;
    uint64_t bytes = 0, slots;

    for (uint32_t i = first; i < first + n; i++)
        bytes += mem_transfer_bytes(v->xfer->config.mem, batch->pool, batch->page[i].group);
    if (!ring_fit(v, p, bytes, &slots))
        return false;
    runs->n = 0;
    for (; slots != 0; slots &= slots - 1) {
        uint64_t here = bytes < XFER_SLOT_BYTES ? bytes : XFER_SLOT_BYTES;

        if (!runs_add(runs, ring, (uint64_t)__builtin_ctzll(slots) * XFER_SLOT_BYTES, here))
            return false;
        bytes -= here;
    }
    return true;
}

/* Fills the runs of n pages of a batch. Returns false if there are too many. */
static bool runs_of_pages(struct verbs *v, const struct verbs_path *p, const struct batch *batch,
                          uint32_t first, uint32_t n, struct runs *runs)
{
    const struct verbs_domain *domain = &rail_of(v, p)->domain[p->tenant];
    const struct mem *mem = v->xfer->config.mem;
    uint32_t regions = mem_place(mem, batch->pool)->transfer_regions;

    runs->n = 0;
    for (uint32_t r = 0; r < regions; r++)
        for (uint32_t i = first; i < first + n; i++) {
            const struct page_at *page = &batch->page[i];

            if (!runs_add_page(runs, domain,
                               mem_page(mem, batch->pool, r, page->group, page->index),
                               mem_group(mem, batch->pool, page->group)->page_bytes))
                return false;
        }
    return true;
}

uint32_t push_fit(struct verbs *v, struct verbs_path *p, uint32_t number, uint32_t first,
                  uint32_t n, struct verbs_piece *piece, bool *ret_most)
{
    const struct batch *batch = &v->xfer->batch[number];
    uint32_t credit = path_credit(v, p);
    uint32_t all = n;
    struct runs runs = {.run = piece->run, .room = credit < XFER_RUNS_MAX ? credit : XFER_RUNS_MAX};
    bool bounces = path_bounces(v, p);

    while (n > 0 && !(bounces ? runs_of_slots : runs_of_pages)(v, p, batch, first, n, &runs))
        n /= 2;
    piece->nruns = n > 0 ? runs.n : 0;
    *ret_most = n == all || (credit >= XFER_RUNS_MAX && (!bounces || ring_whole(v, p)));
    if (!*ret_most)
        rail_full(v, p);
    return n;
}

static void mw_take(struct verbs *v, struct verbs_path *p, struct verbs_run *run)
{
    check(p->mws_free != 0);
    run->mw = (uint8_t)__builtin_ctzll(p->mws_free);
    p->mws_free &= ~((uint64_t)1 << run->mw);
    v->xfer->stats.windows_open++;
}

/* Takes places in the completion queue for the bindings and for the later invalidations. */
bool push_bind(struct verbs *v, struct verbs_path *p, struct verbs_piece *piece)
{
    struct verbs_wrs list = {.n = piece->nruns};
    bool posted;

    static_assert(2 * VERBS_MWS <= VERBS_SEND_QUEUE, "all are bound, then all are closed");
    static_assert(XFER_RUNS_MAX <= VERBS_POST_MAX && XFER_RUNS_MAX <= VERBS_MWS, "one list");
    for (uint32_t i = 0; i < piece->nruns; i++) {
        struct verbs_run *run = &piece->run[i];
        struct ibv_send_wr *wr = &list.wr[i];

        mw_take(v, p, run);
        *wr = (struct ibv_send_wr){.opcode = IBV_WR_BIND_MW};
        wr->bind_mw.mw = p->mw[run->mw];
        wr->bind_mw.rkey = ibv_inc_rkey(p->mw[run->mw]->rkey);
        wr->bind_mw.bind_info = (struct ibv_mw_bind_info){
            .mr = run->mr->mr,
            .addr = (uintptr_t)(run->mr->base + (run->offset - run->mr->offset)),
            .length = run->bytes,
            .mw_access_flags = IBV_ACCESS_REMOTE_WRITE};
    }
    if (path_bounces(v, p))
        slots_take(v, piece);
    places_take(v, p, piece->nruns);
    posted = wrs_post(v, p, &list);
    /* Before the post the device knows the window by its old key. */
    for (uint32_t i = 0; i < piece->nruns; i++)
        p->mw[piece->run[i].mw]->rkey = list.wr[i].bind_mw.rkey;
    piece_state_move(&piece->state, PIECE_BINDING);
    piece->answered = true;
    piece->holds = true;
    piece->path = path_number(v, p);
    piece->tried |= 1u << p->rail;
    piece->last = p->posted;
    piece->at_ns = io_now_ns();
    pull_hold(v->xfer, piece->pull);
    if (!posted)
        path_failed(v, p, "a memory window could not be bound: %s", strerror(errno));
    return posted;
}

/* On a path that is not ready, destroying the queue pair closes the windows. */
static void push_close(struct verbs *v, struct verbs_piece *piece)
{
    struct verbs_path *p = &v->path[piece->path];
    struct verbs_wrs list = {.n = piece->nruns};

    piece_state_move(&piece->state, PIECE_CLOSING);
    piece->at_ns = io_now_ns();
    piece->last = p->posted + piece->nruns;
    if (p->state != PATH_READY)
        return;
    for (uint32_t i = 0; i < piece->nruns; i++)
        list.wr[i] = (struct ibv_send_wr){.opcode = IBV_WR_LOCAL_INV,
                                          .invalidate_rkey = p->mw[piece->run[i].mw]->rkey};
    p->held -= piece->nruns;
    rail_of(v, p)->cq_used -= piece->nruns;
    if (!wrs_post(v, p, &list))
        path_failed(v, p, "a memory window could not be closed: %s", strerror(errno));
}

void push_asked(struct verbs_piece *piece)
{
    piece_state_move(&piece->state, PIECE_ASKED);
    piece->answered = false;
    piece->at_ns = io_now_ns();
}

void push_answered(struct verbs *v, struct verbs_piece *piece, bool given)
{
    if (piece->state == PIECE_ASKED && given)
        piece_state_move(&piece->state, PIECE_COMING);
    else if (piece->state == PIECE_ASKED || piece->state == PIECE_ARRIVED)
        push_close(v, piece); /* refused: no write is or will be posted */
}

static void arrived(struct verbs *v, struct verbs_path *p, uint32_t seq)
{
    struct verbs_piece *piece = piece_next(v, p->link, NULL);

    while (piece && (!(piece->holds || piece->revoked) || piece->path != path_number(v, p) ||
                     piece->seq != seq))
        piece = piece_next(v, p->link, piece);
    if (!piece || piece->batch == NONE)
        v->xfer->stats.late_writes++;
    if (!piece)
        return;
    if (piece->state == PIECE_CLOSING) {
        piece->revoked = false;
        piece_free(piece);
    } else if (piece->state == PIECE_COMING || piece->batch == NONE) {
        push_close(v, piece);
    } else if (piece->state == PIECE_ASKED) {
        piece_state_move(&piece->state, PIECE_ARRIVED); /* its answer is due */
    } else {
        path_failed(v, p, "the peer reports a write that was not requested");
    }
}

void push_refused(struct verbs *v, struct verbs_path *p)
{
    uint32_t number = path_number(v, p), revoked = 0;

    for (const struct verbs_piece *piece = NULL; (piece = piece_next(v, p->link, piece));)
        revoked += piece->revoked && piece->path == number;
    if (revoked == 0)
        return;
    v->xfer->stats.late_writes++;
    p->pause_ns = 0; /* we caused it, so retry after the shortest pause */
}

void push_received(struct verbs *v, struct verbs_path *p, const struct ibv_wc *wc)
{
    int rc;

    if (p->state != PATH_READY)
        return;
    if (wc->status != IBV_WC_SUCCESS) {
        push_refused(v, p);
        path_failed(v, p, "the peer wrote where it may not, or its end failed: %s",
                    ibv_wc_status_str(wc->status));
        return;
    }
    rc = receive_post(v, p);
    p->pushed_ns = io_now_ns();
    if (p->source) {
        path_failed(v, p, "the peer wrote over a path that only this daemon pushes over");
    } else if (rc) {
        path_failed(v, p, "a receive could not be posted: %s", strerror(rc));
    } else if (wc->opcode != IBV_WC_RECV_RDMA_WITH_IMM) {
        path_failed(v, p, "the peer sent something that is not a page");
    } else {
        path_carried(v, p);
        arrived(v, p, ntohl(wc->imm_data));
    }
}

void pieces_done(struct verbs *v, struct verbs_path *p)
{
    path_mark(v, p);
    if (p->source)
        writes_done(v, p);
    for (struct verbs_piece *piece = NULL; (piece = piece_next(v, p->link, piece));) {
        if (p->state != PATH_READY)
            return; /* flushed requests look like completed ones */
        if (!piece->holds || piece->path != path_number(v, p) ||
            (int32_t)(p->completed - piece->last) < 0)
            continue;
        if (piece->state == PIECE_CLOSING) {
            mws_give(v, p, piece);
            piece_done(v, piece);
        } else if (piece->state == PIECE_BINDING && piece->batch == NONE) {
            push_close(v, piece);
        } else if (piece->state == PIECE_BINDING) {
            piece_state_move(&piece->state, PIECE_BOUND);
        }
    }
}

void piece_drop(struct verbs *v, struct verbs_piece *piece)
{
    piece->batch = NONE;
    piece->at_ns = io_now_ns();
    if (piece->holds && (piece->state == PIECE_BOUND || piece->state == PIECE_ARRIVED))
        push_close(v, piece); /* a requested piece has VERBS_REVOKE_NS */
    piece_free(piece);
}

void verbs_drop(struct transport *t, uint32_t pull)
{
    struct verbs *v = t->own;
    uint32_t link = t->xfer->pull[pull].peer_link;

    for (struct verbs_piece *piece = NULL; (piece = piece_next(v, link, piece));)
        if (piece->state != PIECE_FREE && piece->batch != NONE && piece->pull == pull)
            piece_drop(v, piece);
}

static void push_tick(struct verbs *v, struct verbs_piece *piece, uint64_t now_ns)
{
    struct verbs_path *p = &v->path[piece->path];

    if (piece->batch != NONE || p->state != PATH_READY || now_ns < piece->at_ns ||
        now_ns - piece->at_ns < VERBS_REVOKE_NS ||
        (piece->state != PIECE_ASKED && piece->state != PIECE_COMING))
        return;
    v->xfer->stats.grants_revoked++;
    /* A lost connection also counts as an answer. Such a piece is not marked revoked, because
     * neither a write nor a refusal would clear the mark. */
    piece->revoked = !piece->answered || piece->state == PIECE_COMING;
    push_close(v, piece);
}

/* Returns the time at which a granted piece began to wait. Pieces are written and answered in turn
 * over all paths of the link, so each arrival and each answer restarts the wait of the others. */
static uint64_t granted_ns(const struct verbs *v, uint32_t link, const struct verbs_piece *piece)
{
    const struct verbs_path *p = &v->path[piece->path];
    const struct data_conn *conn = data_path_conn(v->transport, link, 0);
    uint64_t since_ns = piece->at_ns > p->pushed_ns ? piece->at_ns : p->pushed_ns;

    if (!piece->answered && conn && conn->progress_ns > since_ns)
        since_ns = conn->progress_ns;
    return since_ns;
}

/* Fails the path, and so ends its grants, if the peer neither writes nor refuses them in time. */
void pieces_tick(struct verbs *v, uint32_t link, uint64_t now_ns)
{
    for (struct verbs_piece *piece = NULL; (piece = piece_next(v, link, piece));) {
        struct verbs_path *p;
        uint64_t since_ns;

        if (piece->state == PIECE_WAITING)
            link_mark(v, link); /* in case no path becomes ready */
        if (!piece->holds && !piece->revoked)
            continue;
        p = &v->path[piece->path];
        push_tick(v, piece, now_ns);
        since_ns = granted_ns(v, link, piece);
        if (p->state == PATH_READY && now_ns > since_ns &&
            now_ns - since_ns > v->xfer->config.idle_ns)
            path_failed(v, p, "the peer neither pushed nor refused the requested pages in time");
    }
}
