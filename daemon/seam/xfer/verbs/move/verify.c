/* Verification of pieces whose pages arrived and were confirmed. A data thread copies ring slots to
 * the pages, verifies the pages, and copies them to the regions that hold the same data. When the
 * task returns, the owner learns which pages are right. The piece keeps its slot and its hold until
 * then; if the pull has ended meanwhile, the result is discarded.
 *
 * Invariant: from piece_verify until piece_verified the piece holds its pull, so its pages, the
 * batch's list of pages and the checksums do not change while the thread uses them. */
#include "base/check.h"
#include "base/container.h"
#include "seam/xfer/verbs/verbs.h"

/* ------------------------------------------------------------------ on a data thread */

/* The device has written all bytes of the page, so verify it as a whole. */
static bool page_is_right(struct xfer *xfer, const struct verbs_piece *piece, uint32_t i,
                          const uint64_t *sums)
{
    const struct batch *batch = &xfer->batch[piece->verified];
    uint64_t bytes =
        mem_group(xfer->config.mem, batch->pool, batch->page[piece->first + i].group)->page_bytes;
    uint32_t regions = mem_place(xfer->config.mem, batch->pool)->transfer_regions;
    struct arrival a;

    arrival_begin(&a, xfer, piece->verified, piece->first + i, sums);
    for (uint32_t r = 0; r < regions; r++)
        arrival_reached(&a, r, bytes);
    return mem_verify_landed(&a.verify);
}

static bool verify_pages(struct io_task *task, int32_t res)
{
    struct verbs_piece *piece = container_of(task, struct verbs_piece, task);
    struct xfer *xfer = piece->v->xfer;
    const struct batch *batch = &xfer->batch[piece->verified];
    const uint64_t *sums = piece->sums;
    bool landed = piece->slots == 0 || slots_land(piece);

    (void)res;
    for (uint32_t i = 0; i < piece->n; i++) {
        if (!xfer_bit(piece->stale, i) && landed && page_is_right(xfer, piece, i, sums))
            xfer_set_bit(piece->right, i);
        sums += batch_page_sums(xfer, batch, piece->first + i);
    }
    return false;
}

/* ------------------------------------------------------------------ on the owner thread */

static void tell_batch(struct xfer *xfer, const struct verbs_piece *piece)
{
    const struct batch *batch = &xfer->batch[piece->batch];

    for (uint32_t i = 0; i < piece->n; i++) {
        if (xfer_bit(piece->stale, i)) {
            xfer->stats.payload_bytes_in += batch_page_bytes(xfer, batch, piece->first + i);
            batch_gone(xfer, piece->batch);
        } else {
            if (piece->slots)
                xfer->stats.ring_bytes_in += batch_page_bytes(xfer, batch, piece->first + i);
            arrival_end(xfer, piece->batch, piece->first + i, xfer_bit(piece->right, i));
        }
    }
}

void piece_verified(struct verbs_piece *piece)
{
    struct verbs *v = piece->v;
    uint32_t pull = piece->pull, number = piece->batch;

    if (number != NONE)
        tell_batch(v->xfer, piece);
    piece->batch = NONE;
    piece_state_move(&piece->state, PIECE_FREE);
    slots_give(v, piece);
    if (number != NONE)
        batch_answered(v->xfer, number, piece->n);
    pull_release(v->xfer, pull);
    path_mark(v, &v->path[piece->path]); /* a slot is free; its batch may use another transport */
}

void piece_verify(struct verbs *v, struct verbs_piece *piece, const uint64_t *stale)
{
    uint32_t lane = piece->link * VERBS_PIECES + (uint32_t)(piece - v->link[piece->link].piece);

    check(piece->batch != NONE);
    piece_state_move(&piece->state, PIECE_VERIFYING);
    piece->verified = piece->batch;
    memcpy(piece->stale, stale, sizeof piece->stale);
    memset(piece->right, 0, sizeof piece->right);
    piece->task.work = verify_pages;
    pull_hold(v->xfer, piece->pull);
    io_threads_submit(v->xfer->threads, &piece->task, IO_TASK_WORK, lane, -1);
}
