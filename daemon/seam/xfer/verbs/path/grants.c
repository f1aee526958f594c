/* Tracks who may still touch the pages of a piece (device, data thread, peer), and what becomes of
 * a piece whose path fails or ends. This file posts nothing; it marks paths that can resume. Called
 * by path.c and by the files that move pages.
 *
 * Invariant: a piece holds its pull from its first BIND until its invalidations have completed
 * successfully or the queue pair is destroyed. A flushed invalidation proves nothing. */
#include "base/check.h"
#include "seam/xfer/verbs/verbs.h"

void piece_free(struct verbs_piece *piece)
{
    if (piece->state != PIECE_FREE && piece->state != PIECE_VERIFYING && piece->batch == NONE &&
        !piece->holds && piece->answered && !piece->revoked) {
        piece_state_move(&piece->state, PIECE_FREE);
        slots_give(piece->v, piece);
    }
}

bool verbs_holds(const struct transport *t, uint32_t pull)
{
    const struct verbs *v = t->own;

    for (uint32_t n = 0; n < t->xfer->config.links; n++)
        for (const struct verbs_piece *piece = NULL; (piece = piece_next(v, n, piece));)
            if (piece_held(piece) && piece->pull == pull)
                return true;
    return false;
}

void piece_done(struct verbs *v, struct verbs_piece *piece)
{
    uint32_t pull = piece->pull;

    piece->holds = false;
    if (piece->batch != NONE && piece->state == PIECE_CLOSING)
        piece_state_move(&piece->state, PIECE_CLOSED);
    piece_free(piece);
    pull_release(v->xfer, pull);
}

void mws_give(struct verbs *v, struct verbs_path *p, struct verbs_piece *piece)
{
    for (uint32_t i = 0; i < piece->nruns; i++)
        p->mws_free |= (uint64_t)1 << piece->run[i].mw;
    v->xfer->stats.windows_open -= piece->nruns;
    piece->nruns = 0;
}

void pieces_lost(struct verbs *v, struct verbs_path *p)
{
    for (struct verbs_piece *piece = NULL; (piece = piece_next(v, p->link, piece));) {
        if (piece->path != path_number(v, p) || piece->state == PIECE_WAITING || !piece->holds)
            continue;
        piece->tried |= 1u << p->rail;
        piece_state_move(&piece->state, PIECE_WAITING);
    }
    path_mark(v, p);
}

void pieces_ended(struct verbs *v, struct verbs_path *p)
{
    for (struct verbs_piece *piece = NULL; (piece = piece_next(v, p->link, piece));) {
        if (!piece->holds || piece->path != path_number(v, p))
            continue;
        if (piece->state != PIECE_WAITING) /* it is granted again, unless its pull has ended */
            piece_state_move(&piece->state, PIECE_WAITING);
        mws_give(v, p, piece);
        piece_done(v, piece);
        if (piece->state == PIECE_WAITING) /* otherwise piece_free has freed them */
            slots_give(v, piece);
    }
    path_mark(v, p);
}

void pieces_forgotten(struct verbs *v, const struct verbs_path *p)
{
    for (struct verbs_piece *piece = NULL; (piece = piece_next(v, p->link, piece));) {
        if (!piece->revoked || piece->path != path_number(v, p))
            continue;
        piece->revoked = false;
        piece_free(piece);
    }
}
