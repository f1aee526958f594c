/* Pulls by RDMA READ: a piece is asked for on the connection beside the path (may these pages
 * leave, and what are their checksums), read straight into our own pages, confirmed (are they still
 * those generations) and only then compared with its checksums. A page that was recycled under a
 * read fails at the confirmation; a page that was damaged fails at the checksum.
 *
 * What must stay true: a piece counts in pull->reading from its first work request until path->done
 * has passed its last, whatever became of the pull, the connection or the link meanwhile. */
#include <errno.h>

#include "base/check.h"
#include "seam/xfer_verbs.h"

/* ------------------------------------------------------------------ reading */

static const struct verbs_mr *local_chunk(const struct verbs *v, uint32_t tenant, const uint8_t *at)
{
    const struct verbs_domain *d = &v->domain[tenant];

    for (uint32_t i = 0; i < d->n; i++)
        if (at >= d->mr[i].base && (uint64_t)(at - d->mr[i].base) < d->mr[i].bytes)
            return &d->mr[i];
    return NULL;
}

static const struct xfer_chunk *remote_chunk(const struct verbs_path *p, uint32_t region,
                                             uint64_t offset)
{
    for (uint32_t i = 0; i < p->nchunks; i++)
        if (p->chunk[i].region == region && offset >= p->chunk[i].offset &&
            offset - p->chunk[i].offset < p->chunk[i].bytes)
            return &p->chunk[i];
    return NULL;
}

/* A list of requests that grows at its end as long as memory is adjacent on both sides. */
struct reads {
    struct ibv_send_wr wr[VERBS_POST_MAX];
    struct ibv_sge sge[VERBS_POST_MAX];
    uint32_t n, room;
};

static bool reads_extend(struct reads *r, const struct ibv_sge *more, uint64_t remote,
                         uint32_t rkey, uint32_t most)
{
    /* The pages of a pool lie in as many regions as it has ranks, each with a run of its own. */
    for (uint32_t i = r->n; i > 0 && r->n - i < RANKS_MAX; i--) {
        struct ibv_sge *sge = &r->sge[i - 1];
        struct ibv_send_wr *wr = &r->wr[i - 1];

        if (sge->lkey == more->lkey && wr->wr.rdma.rkey == rkey &&
            sge->addr + sge->length == more->addr &&
            wr->wr.rdma.remote_addr + sge->length == remote &&
            (uint64_t)sge->length + more->length <= most) {
            sge->length += more->length;
            return true;
        }
    }
    if (r->n == r->room)
        return false;
    r->sge[r->n] = *more;
    r->wr[r->n] =
        (struct ibv_send_wr){.sg_list = &r->sge[r->n], .num_sge = 1, .opcode = IBV_WR_RDMA_READ};
    r->wr[r->n].wr.rdma.remote_addr = remote;
    r->wr[r->n].wr.rdma.rkey = rkey;
    r->n++;
    return true;
}

/* The next bytes of the page at the cursor. False: no room; or, with *ret_sound false, the source
 * names memory that it did not offer. */
static bool reads_next(struct verbs *v, const struct verbs_path *p, struct verbs_piece *piece,
                       struct reads *r, bool *ret_sound)
{
    const struct xfer_batch *batch = &v->xfer->batch[piece->batch];
    const struct mem *mem = v->xfer->config.mem;
    struct cursor *c = &piece->cursor;
    const struct page_at *page = &batch->page[piece->first + c->page];
    uint64_t page_bytes = mem_page_bytes(mem, batch->pool, page->group);
    uint8_t *at = mem_page(mem, batch->pool, c->region, page->group, page->index);
    uint64_t there = piece->offset + piece->entry[c->page].index * page_bytes + c->at;
    uint32_t most = v->max_msg < VERBS_READ_BYTES ? v->max_msg : VERBS_READ_BYTES;
    const struct verbs_mr *mine = local_chunk(v, p->tenant, at + c->at);
    const struct xfer_chunk *theirs = remote_chunk(p, c->region, there);
    uint64_t n = page_bytes - c->at;

    check(mine);
    *ret_sound = theirs != NULL;
    if (!theirs)
        return false;
    n = n < most ? n : most;
    if (n > mine->bytes - (uint64_t)(at + c->at - mine->base))
        n = mine->bytes - (uint64_t)(at + c->at - mine->base);
    if (n > theirs->bytes - (there - theirs->offset))
        n = theirs->bytes - (there - theirs->offset);
    if (!reads_extend(r,
                      &(struct ibv_sge){.addr = (uintptr_t)(at + c->at),
                                        .length = (uint32_t)n,
                                        .lkey = mine->mr->lkey},
                      theirs->addr + (there - theirs->offset), theirs->rkey, most))
        return false;
    c->at += n;
    if (c->at == page_bytes) {
        c->at = 0;
        if (++c->region == mem_pool_regions(mem, batch->pool)) {
            c->region = 0;
            c->page++;
        }
    }
    return true;
}

static void cursor_to_sent(struct verbs_piece *piece)
{
    while (piece->cursor.page < piece->n && !xfer_bit(piece->sent, piece->cursor.page))
        piece->cursor.page++;
}

/* Requests are named by path, epoch and how many were posted with it: a completion of a queue pair
 * that is gone finds another epoch. Only the last of a list reports, and stands for those before.
 */
static bool reads_post(struct verbs *v, struct verbs_path *p, struct reads *r)
{
    struct ibv_send_wr *bad = NULL;
    int rc;

    for (uint32_t i = 0; i < r->n; i++) {
        r->wr[i].next = i + 1 < r->n ? &r->wr[i + 1] : NULL;
        r->wr[i].wr_id = (uint64_t)(p - v->path) << 40 | (uint64_t)p->epoch << 16 |
                         (uint16_t)(p->posted + i + 1);
    }
    r->wr[r->n - 1].send_flags = IBV_SEND_SIGNALED;
    rc = ibv_post_send(p->qp, r->wr, &bad);
    if (rc && bad) /* those before the bad one are the device's */
        r->n = (uint32_t)(bad - r->wr);
    p->posted += r->n;
    v->cq_used += r->n;
    v->xfer->stats.reads_posted += r->n;
    if (v->cq_used > v->xfer->stats.cq_high_water)
        v->xfer->stats.cq_high_water = v->cq_used;
    return rc == 0;
}

static uint32_t credits(const struct verbs *v, const struct verbs_path *p)
{
    uint32_t queue = VERBS_SEND_QUEUE - (p->posted - p->done);
    uint32_t cq = v->view.completion_queue - v->cq_used;
    uint32_t n = queue < cq ? queue : cq;

    return n < VERBS_POST_MAX ? n : VERBS_POST_MAX;
}

bool piece_post(struct verbs *v, struct verbs_piece *piece)
{
    struct verbs_path *p = &v->path[piece->path];
    struct xfer_link *link = &v->xfer->link[p->link];

    cursor_to_sent(piece);
    while (piece->cursor.page < piece->n && p->state == PATH_READY) {
        struct reads r = {.room = credits(v, p)};
        bool sound = true, posted;

        while (piece->cursor.page < piece->n && reads_next(v, p, piece, &r, &sound))
            cursor_to_sent(piece);
        if (!sound) {
            if (link->read_conn != NONE)
                conn_fail(&v->xfer->conn[link->read_conn]);
            return false;
        }
        if (r.n == 0)
            return true; /* no credit: goes on when requests are done */
        posted = reads_post(v, p, &r);
        if (r.n > 0 && !piece->counted) {
            piece->counted = true;
            piece->at_ns = io_now_ns();
            v->xfer->pull[piece->pull].reading++;
        }
        piece->last = p->posted;
        if (!posted) {
            path_failed(v, p, "a read could not be posted: %s", strerror(errno));
            return false;
        }
    }
    return p->state == PATH_READY;
}

/* ------------------------------------------------------------------ pieces */

void piece_free(struct verbs_piece *piece)
{
    if (piece->batch == NONE && !piece->counted && piece->heard)
        piece->state = PIECE_FREE;
}

void piece_drop(struct verbs_piece *piece)
{
    piece->batch = NONE;
    piece_free(piece);
}

void verbs_drop(struct xfer *xfer, uint32_t pull)
{
    struct verbs *v = xfer->verbs;
    struct verbs_link *l = v ? &v->link[xfer->pull[pull].link] : NULL;

    for (uint32_t i = 0; l && l->piece && i < VERBS_PIECES; i++)
        if (l->piece[i].state != PIECE_FREE && l->piece[i].batch != NONE &&
            l->piece[i].pull == pull)
            piece_drop(&l->piece[i]);
}

bool verbs_reads(const struct xfer *xfer, uint32_t pull)
{
    const struct verbs *v = xfer->verbs;

    for (uint32_t n = 0; v && n < xfer->config.links; n++)
        for (uint32_t i = 0; v->link[n].piece && i < VERBS_PIECES; i++)
            if (v->link[n].piece[i].counted && v->link[n].piece[i].pull == pull)
                return true;
    return false;
}

static void piece_done(struct verbs *v, struct verbs_piece *piece)
{
    struct xfer *xfer = v->xfer;
    uint32_t pull = piece->pull;

    piece->counted = false;
    xfer->pull[pull].reading--;
    if (piece->batch == NONE)
        xfer->stats.late_reads++;
    else
        piece->state = PIECE_READ;
    piece_free(piece);
    pull_quiet(xfer, pull);
}

static bool piece_quiet(const struct verbs_path *p, const struct verbs_piece *piece)
{
    return (int32_t)(p->done - piece->last) >= 0;
}

void pieces_done(struct verbs *v, const struct verbs_path *p)
{
    uint32_t number = (uint32_t)(p - v->path);

    for (uint32_t i = 0; v->link[p->link].piece && i < VERBS_PIECES; i++) {
        struct verbs_piece *piece = piece_of(v, p->link, i);

        if (piece->state == PIECE_FREE || !piece->counted || piece->path != number)
            continue;
        if (piece_quiet(p, piece) && (piece->batch == NONE || piece->cursor.page == piece->n))
            piece_done(v, piece);
    }
}

void piece_end(struct verbs *v, struct verbs_piece *piece)
{
    struct xfer_batch *batch = &v->xfer->batch[piece->batch];
    uint32_t number = piece->batch;

    batch->answered += piece->n;
    piece->batch = NONE;
    piece_free(piece);
    if (batch->answered == batch->n)
        batch_done(v->xfer, number);
}

static struct verbs_piece *oldest_unposted(struct verbs *v, const struct verbs_path *p)
{
    uint32_t number = (uint32_t)(p - v->path), seq = v->link[p->link].seq;
    struct verbs_piece *oldest = NULL;

    for (uint32_t i = 0; v->link[p->link].piece && i < VERBS_PIECES; i++) {
        struct verbs_piece *piece = piece_of(v, p->link, i);

        if (piece->state == PIECE_READING && piece->batch != NONE && piece->path == number &&
            piece->cursor.page < piece->n && (!oldest || seq - piece->seq > seq - oldest->seq))
            oldest = piece;
    }
    return oldest;
}

/* Those that waited for credit go on, oldest first. */
static void pieces_go_on(struct verbs *v, struct verbs_path *p)
{
    struct verbs_piece *piece;

    while (p->state == PATH_READY && (piece = oldest_unposted(v, p)) != NULL)
        if (!piece_post(v, piece) || piece->cursor.page < piece->n)
            return;
}

/* A device that neither completes a read nor gives it up: its queue pair is taken from it. */
void pieces_tick(struct verbs *v, uint32_t link, uint64_t now_ns)
{
    for (uint32_t i = 0; v->link[link].piece && i < VERBS_PIECES; i++) {
        const struct verbs_piece *piece = piece_of(v, link, i);
        struct verbs_path *p = &v->path[piece->path];

        if (piece->state != PIECE_FREE && piece->counted && p->state == PATH_READY &&
            now_ns > piece->at_ns && now_ns - piece->at_ns > v->xfer->config.idle_ns)
            path_failed(v, p, "reads were neither completed nor given up in time");
    }
}

/* ------------------------------------------------------------------ verifying */

static bool page_right(struct verbs *v, const struct xfer_batch *batch, const struct page_at *page,
                       const uint64_t *sums)
{
    struct xfer *xfer = v->xfer;
    const struct mem *mem = xfer->config.mem;
    uint32_t units = mem_units(mem, batch->pool, page->group);
    uint32_t regions = mem_pool_regions(mem, batch->pool);
    uint64_t page_bytes = mem_page_bytes(mem, batch->pool, page->group);
    bool right = true;

    for (uint32_t r = 0; r < regions; r++) {
        uint8_t *base = mem_page(mem, batch->pool, r, page->group, page->index);

        if (xfer->injected)
            page_inject(xfer, page, regions, r, base, page_bytes, 0, page_bytes);
        for (uint32_t u = 0; u < units; u++) {
            uint64_t from, to = checksum_unit_span(page_bytes, units, u, &from);
            struct checksum sum;

            checksum_begin(&sum);
            checksum_feed(&sum, base + from, to - from);
            mem_sums(xfer->config.mem, page->record)[r * units + u] = checksum_end(&sum);
            right = right &&
                    mem_sums(xfer->config.mem, page->record)[r * units + u] == sums[r * units + u];
        }
    }
    return right;
}

void piece_verify(struct verbs *v, struct verbs_piece *piece, const uint64_t *stale)
{
    struct xfer_batch *batch = &v->xfer->batch[piece->batch];
    struct xfer_stats *stats = &v->xfer->stats;
    uint32_t k = 0, sum = 0;

    for (uint32_t i = 0; i < piece->n; i++) {
        const struct page_at *page = &batch->page[piece->first + i];
        uint64_t bytes = batch_page_bytes(v->xfer, batch, piece->first + i);

        if (!xfer_bit(piece->sent, i))
            continue;
        stats->payload_bytes_in += bytes;
        if (xfer_bit(stale, k++)) {
            batch->gone = true;
            stats->gone_answers++;
        } else if (page_right(v, batch, page, piece->sums + sum)) {
            xfer_set_bit(batch->ok, piece->first + i);
            stats->pages_in++;
            stats->verbs_pages_in++;
            stats->verbs_bytes_in += bytes;
        } else {
            stats->corrupt_detected++;
        }
        sum += batch_page_sums(v->xfer, batch, piece->first + i);
    }
}

/* ------------------------------------------------------------------ completions */

static void completion(struct verbs *v, const struct ibv_wc *wc)
{
    uint32_t number = (uint32_t)(wc->wr_id >> 40);
    struct verbs_path *p;
    uint16_t moved;

    if (number >= v->npaths || v->path[number].epoch != (wc->wr_id >> 16 & 0xffffffu)) {
        v->xfer->stats.stale_completions++;
        return;
    }
    p = &v->path[number];
    moved = (uint16_t)((uint16_t)wc->wr_id - (uint16_t)p->done);
    if (moved == 0 || moved > p->posted - p->done) {
        v->xfer->stats.stale_completions++;
        return;
    }
    p->done += moved;
    v->cq_used -= moved;
    if (wc->status != IBV_WC_SUCCESS) {
        v->xfer->stats.read_errors++;
        if (p->state == PATH_READY)
            path_failed(v, p, "a read failed: %s", ibv_wc_status_str(wc->status));
    }
}

void cq_drain(struct verbs *v)
{
    struct ibv_wc wc[VERBS_POLL_MAX];
    int n;

    while ((n = ibv_poll_cq(v->cq, VERBS_POLL_MAX, wc)) > 0) {
        for (int i = 0; i < n; i++) {
            uint32_t number = (uint32_t)(wc[i].wr_id >> 40);

            completion(v, &wc[i]);
            if (number >= v->npaths)
                continue;
            pieces_done(v, &v->path[number]);
            path_advance(v, &v->path[number]);
            pieces_go_on(v, &v->path[number]);
            verbs_pump(v->xfer, v->path[number].link);
        }
    }
    check(n == 0);
}
