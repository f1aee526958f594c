/* What the device, a data thread or the peer may still do to the pages of a piece, and what a path
 * that fails or ends leaves of it. Nothing is posted here: marks say what may go on. Called by
 * path.c and by those that move pages.
 *
 * What must stay true: a piece holds its pull from its first BIND until its invalidations have
 * completed well or the queue pair is destroyed. A flushed invalidation proves nothing. */
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
        for (uint32_t i = 0; v->link[n].piece && i < VERBS_PIECES; i++)
            if (piece_held(&v->link[n].piece[i]) && v->link[n].piece[i].pull == pull)
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
    for (uint32_t i = 0; v->link[p->link].piece && i < VERBS_PIECES; i++) {
        struct verbs_piece *piece = piece_of(v, p->link, i);

        if (piece->path != path_number(v, p) || piece->state == PIECE_WAITING || !piece->holds)
            continue;
        piece->tried |= 1u << p->rail;
        piece_state_move(&piece->state, PIECE_WAITING);
    }
    path_mark(v, p);
}

void pieces_ended(struct verbs *v, struct verbs_path *p)
{
    for (uint32_t i = 0; v->link[p->link].piece && i < VERBS_PIECES; i++) {
        struct verbs_piece *piece = piece_of(v, p->link, i);

        if (!piece->holds || piece->path != path_number(v, p))
            continue;
        if (piece->state != PIECE_WAITING) /* to be granted again, unless its pull has ended */
            piece_state_move(&piece->state, PIECE_WAITING);
        mws_give(v, p, piece);
        piece_done(v, piece);
        if (piece->state == PIECE_WAITING) /* else as it got free */
            slots_give(v, piece);
    }
    path_mark(v, p);
}

void pieces_forgotten(struct verbs *v, const struct verbs_path *p)
{
    for (uint32_t i = 0; v->link[p->link].piece && i < VERBS_PIECES; i++) {
        struct verbs_piece *piece = piece_of(v, p->link, i);

        if (!piece->revoked || piece->path != path_number(v, p))
            continue;
        piece->revoked = false;
        piece_free(piece);
    }
}
