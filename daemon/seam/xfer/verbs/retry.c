/* Chooses the path of a piece, and handles the loss of that path: the piece is requested again from
 * its beginning over another path; else its batch moves to another transport, if the link allows
 * one; else its pull breaks. Invariant: none of this happens while the device may still write the
 * piece's pages over the lost path. */
#include "seam/xfer/verbs/verbs.h"

/* Forgets the requests of a batch; another transport requests it. Does nothing while pages of the
 * batch are being written or verified: it is called again when the last such piece ends. */
static void batch_given_up(struct verbs *v, uint32_t link, uint32_t number)
{
    struct verbs_piece *piece = NULL;

    while ((piece = piece_next(v, link, piece)))
        if (piece_held(piece) && piece->batch == number)
            return;
    while ((piece = piece_next(v, link, piece)))
        if (piece->state != PIECE_FREE && piece->batch == number)
            piece_drop(v, piece);
    batch_hand_on(v->xfer, number, TERN_PEER_LOST);
}

/* Used, for instance, if a page lies in more memory regions than a piece has memory windows. */
void batch_other_way(struct verbs *v, uint32_t link, uint32_t number)
{
    if (!batch_has_another_way(v->xfer, number))
        pull_break(v->xfer, v->xfer->batch[number].pull, TERN_UNSUPPORTED);
    else
        batch_given_up(v, link, number);
}

/* Binds windows again under a new seq, so that an answer to the old seq does not match. */
static void piece_push(struct verbs *v, uint32_t link, struct verbs_path *p,
                       struct verbs_piece *piece)
{
    bool most;

    if (push_fit(v, p, piece->batch, piece->first, piece->n, piece, &most) < piece->n) {
        piece->nruns = 0;
        if (most)
            batch_other_way(v, link, piece->batch); /* this path has other registrations */
        return;                                     /* waits for free memory windows */
    }
    v->xfer->stats.pieces_again += piece->tries++ > 0;
    piece->seq = v->link[link].seq++;
    push_bind(v, p, piece);
}

static void piece_start(struct verbs *v, uint32_t link, struct verbs_piece *piece)
{
    bool more = piece->tries < VERBS_PIECE_TRIES || piece->tries < v->nrails; /* each rail once */
    struct verbs_path *p = more ? path_for(v, link, piece->batch, piece) : NULL;
    const struct batch *batch = &v->xfer->batch[piece->batch];

    if (!p && more && path_coming(v, link, batch->tenant))
        return;
    if (!p && !batch_has_another_way(v->xfer, piece->batch)) {
        pull_break(v->xfer, piece->pull, TERN_PEER_LOST);
        return;
    }
    if (!more && batch->state == BATCH_QUEUED) /* the other transport requests all pages */
        batch_asked(v->xfer, piece->batch, batch->n - batch->asked);
    if (piece->holds || !piece->answered)
        return;
    if (!p)
        batch_given_up(v, link, piece->batch);
    else
        piece_push(v, link, p, piece);
}

void pieces_start(struct verbs *v, uint32_t link)
{
    for (struct verbs_piece *piece = NULL; (piece = piece_next(v, link, piece));) {
        if (piece->state == PIECE_WAITING && piece->batch != NONE)
            piece_start(v, link, piece);
    }
}

void batches_settle(struct verbs *v, struct verbs_path *p)
{
    struct xfer *xfer = v->xfer;
    uint32_t next;

    if (!xfer->link[p->link].up || path_best(v, p->link, p->tenant) ||
        path_coming(v, p->link, p->tenant))
        return;
    transport_note(v, p->link, p->tenant, false, p->reason);
    for (uint32_t b = verbs_lane(v, p->link)->queue.head; b != NONE; b = next) {
        next = xfer->batch[b].next;
        if (xfer->batch[b].tenant != p->tenant)
            continue;
        if (!batch_has_another_way(xfer, b)) {
            pull_break(xfer, xfer->batch[b].pull, TERN_PEER_LOST);
            next = verbs_lane(v, p->link)->queue.head; /* pull_break removed other batches too */
        } else {
            batch_given_up(v, p->link, b);
        }
    }
}
