/* Moves pages between this daemon's own pools, over its link to itself. They are copied without a
 * connection; between two GPUs by peer access, or through host memory (mem_move). A data thread
 * copies a piece and verifies it like any that arrives. Then the owner asks the core once more
 * whether the source's pages are still the same.
 *
 * Invariant: until its task returns a copy holds its pull and its serve, so the pages of both ends,
 * the batch's list of pages and the checksums do not change while the thread uses them. */
#include <stdlib.h>
#include <string.h>

#include "base/container.h"
#include "seam/mem/mem_touch.h"
#include "seam/xfer/conn/data_conn.h"

#define LOCAL_COPIES 8u   /* at a time */
#define LOCAL_SUMS   512u /* checksums of a piece, unless one page has more */

struct local_copy {
    struct io_task task;
    struct transport *t;
    uint32_t peer_link, pull;
    uint32_t batch;         /* NONE: dropped meanwhile */
    struct batch_part part; /* its batch, as when the copy began */
    struct serve_id serve;
    uint64_t sent[XFER_MASK_WORDS];  /* pages that may be copied */
    uint64_t right[XFER_MASK_WORDS]; /* pages that match; the thread's while it is away */
    uint64_t *sums;                  /* owned: the source's checksums */
};

struct local {
    uint32_t sums; /* of a piece */
    struct local_copy copy[LOCAL_COPIES];
};

static uint32_t sums_of(uint32_t sums_per_page)
{
    return sums_per_page > LOCAL_SUMS ? sums_per_page : LOCAL_SUMS;
}

/* ------------------------------------------------------------------ on a data thread */

static bool page_copied(struct local_copy *c, uint32_t i, const uint64_t *sums)
{
    struct xfer *xfer = c->t->xfer;
    const struct mem *mem = xfer->config.mem;
    const struct batch *batch = &xfer->batch[c->part.batch];
    const uint32_t k = c->part.first + i, from = xfer->serve[c->serve.slot].pool;
    const struct page_at *page = batch_pages(batch, k);
    const uint64_t bytes = mem_group(mem, batch->pool, page->group)->page_bytes;
    struct arrival a;

    arrival_begin(&a, xfer, c->part.batch, k, sums);
    for (uint32_t r = 0; r < mem_place(mem, batch->pool)->transfer_regions; r++) {
        if (!mem_move(mem, mem_page(mem, batch->pool, r, page->group, page->index),
                      mem_page(mem, from, r, page->group, batch->ref[k].index), bytes))
            return false;
        arrival_reached(&a, r, bytes);
    }
    return mem_verify_landed(&a.verify);
}

static bool copy_pages(struct io_task *task, int32_t res)
{
    struct local_copy *c = container_of(task, struct local_copy, task);
    const struct xfer *xfer = c->t->xfer;
    const uint64_t *sums = c->sums;

    (void)res;
    for (uint32_t i = 0; i < c->part.n; i++) {
        if (xfer_bit(c->sent, i) && page_copied(c, i, sums))
            xfer_set_bit(c->right, i);
        sums += batch_page_sums(xfer, &xfer->batch[c->part.batch], c->part.first + i);
    }
    return false;
}

/* ------------------------------------------------------------------ on the owner thread */

static struct xfer_entry entry_of(const struct batch *batch, uint32_t k)
{
    return (struct xfer_entry){.group = batch_pages(batch, k)->group,
                               .index = batch->ref[k].index,
                               .gen = batch->ref[k].gen,
                               .n = 1};
}

static void local_pump(struct transport *t, uint32_t peer_link);

static void tell_batch(struct local_copy *c)
{
    struct xfer *xfer = c->t->xfer;
    const struct batch *batch = &xfer->batch[c->batch];
    uint64_t bytes = 0;
    uint32_t pages = 0, record;

    for (uint32_t i = 0; i < c->part.n; i++) {
        const uint32_t k = c->part.first + i;
        const struct xfer_entry e = entry_of(batch, k);

        if (!xfer_bit(c->sent, i))
            continue;
        pages++;
        bytes += batch_page_bytes(xfer, batch, k);
        if (serve_page_leaves(xfer, c->serve, &e, &record)) {
            arrival_end(xfer, c->batch, k, xfer_bit(c->right, i));
        } else {
            xfer->stats.payload_bytes_in += batch_page_bytes(xfer, batch, k);
            batch_gone(xfer, c->batch);
        }
    }
    serve_sent(xfer, c->serve, pages, bytes);
}

static void copied(struct io_task *task, int32_t res)
{
    struct local_copy *c = container_of(task, struct local_copy, task);
    struct transport *t = c->t;
    const uint32_t number = c->batch;

    (void)res;
    if (number != NONE)
        tell_batch(c);
    if (number != NONE)
        batch_answered(t->xfer, number, c->part.n);
    serve_release(t->xfer, c->serve.slot);
    pull_release(t->xfer, c->pull);
    local_pump(t, c->peer_link);
}

/* Finds the pages that may be copied, and their checksums. Returns false if there is none. */
static bool copy_may(struct local_copy *c)
{
    struct xfer *xfer = c->t->xfer;
    const struct batch *batch = &xfer->batch[c->batch];
    uint64_t *sums = c->sums;
    uint32_t record;

    memset(c->sent, 0, sizeof c->sent);
    memset(c->right, 0, sizeof c->right);
    for (uint32_t i = 0; i < c->part.n; i++) {
        const uint32_t k = c->part.first + i, n = batch_page_sums(xfer, batch, k);
        const struct xfer_entry e = entry_of(batch, k);

        if (serve_page_leaves(xfer, c->serve, &e, &record)) {
            memcpy(sums, mem_sums(xfer->config.mem, record), n * sizeof *sums);
            xfer_set_bit(c->sent, i);
        } else {
            batch_gone(xfer, c->batch);
        }
        sums += n;
    }
    for (uint32_t w = 0; w < XFER_MASK_WORDS; w++)
        if (c->sent[w])
            return true;
    return false;
}

static void copy_begin(struct transport *t, struct local_copy *c, uint32_t peer_link,
                       uint32_t number)
{
    const struct local *l = t->own;
    struct xfer *xfer = t->xfer;

    c->peer_link = peer_link;
    c->batch = number;
    c->part = batch_cut(xfer, number, XFER_PIECE_BYTES, l->sums);
    c->serve = xfer->batch[number].serve;
    c->pull = xfer->batch[number].pull;
    batch_asked(xfer, number, c->part.n);
    if (!copy_may(c)) {
        batch_answered(xfer, number, c->part.n);
        return;
    }
    c->task.work = copy_pages;
    c->task.done = copied;
    pull_hold(xfer, c->pull);
    serve_hold(xfer, c->serve.slot);
    io_threads_submit(xfer->threads, &c->task, IO_TASK_WORK, (uint32_t)(c - l->copy), -1);
}

static void local_pump(struct transport *t, uint32_t peer_link)
{
    struct local *l = t->own;

    for (uint32_t i = 0; i < LOCAL_COPIES; i++) {
        struct local_copy *c = &l->copy[i];
        uint32_t number;

        while (c->task.state == IO_TASK_HOME &&
               (number = batch_in_turn(t, peer_link, NULL)) != NONE)
            copy_begin(t, c, peer_link, number);
    }
}

static bool local_takes(const struct transport *t, uint32_t peer_link, uint32_t pool)
{
    (void)pool;
    return xfer_link_is_own(t->xfer, peer_link);
}

static void local_drop(struct transport *t, uint32_t pull)
{
    struct local *l = t->own;

    for (uint32_t i = 0; i < LOCAL_COPIES; i++)
        if (l->copy[i].task.state != IO_TASK_HOME && l->copy[i].pull == pull)
            l->copy[i].batch = NONE;
}

static bool local_holds(const struct transport *t, uint32_t pull)
{
    const struct local *l = t->own;

    for (uint32_t i = 0; i < LOCAL_COPIES; i++)
        if (l->copy[i].task.state != IO_TASK_HOME && l->copy[i].pull == pull)
            return true;
    return false;
}

static void local_view(const struct transport *t, uint32_t peer_link, struct xfer_link_view *ret)
{
    if (!xfer_link_is_own(t->xfer, peer_link))
        return;
    ret->transport = t->ops->name;
    ret->reason = "the peer is this daemon itself: its pages are copied, without a connection";
}

static uint64_t local_bytes(const struct xfer_config *config, uint32_t sums_per_page)
{
    (void)config;
    return sizeof(struct local) + LOCAL_COPIES * sums_of(sums_per_page) * sizeof(uint64_t);
}

static uint32_t local_works(const struct xfer_config *config)
{
    (void)config;
    return LOCAL_COPIES;
}

static void local_destroy(struct transport *t)
{
    struct local *l = t->own;

    for (uint32_t i = 0; l && i < LOCAL_COPIES; i++)
        free(l->copy[i].sums);
    free(l);
    t->own = NULL;
}

static enum tern_err local_create(struct transport *t)
{
    struct local *l = calloc(1, sizeof *l);

    t->own = l;
    if (!l)
        return TERN_INTERNAL;
    l->sums = sums_of(mem_sums_per_page(t->xfer->config.mem));
    for (uint32_t i = 0; i < LOCAL_COPIES; i++) {
        l->copy[i].t = t;
        l->copy[i].sums = calloc(l->sums, sizeof(uint64_t));
        if (!l->copy[i].sums)
            return TERN_INTERNAL;
    }
    return TERN_OK;
}

const struct transport_ops local_transport = {
    .name = "local",
    .asked_for = XFER_AUTO,
    .bytes = local_bytes,
    .works = local_works,
    .create = local_create,
    .destroy = local_destroy,
    .takes = local_takes,
    .pump = local_pump,
    .drop = local_drop,
    .holds = local_holds,
    .link_view = local_view,
};
