/* What the seam itself says of its pieces and places, compared with itself: the one part of these
 * histories that looks inside. What is held of what has ended would hurt late, or only a little,
 * and no model would see it. */
#include "seam/xfer_verbs.h"

#include "world.h"

static void audit_piece(const struct verbs *v, const struct verbs_piece *piece, uint32_t node,
                        bool rest)
{
    const struct verbs_path *p = piece->path == NONE ? NULL : &v->path[piece->path];

    if (piece->state == PIECE_FREE && (piece->counted || piece->revoked))
        rw_fail("free_and_held", "node %u piece %u", node, piece->seq);
    if (piece->revoked && (!p || p->source || !p->push || p->state != PATH_READY))
        rw_fail("revoked_without_path", "node %u piece %u", node, piece->seq);
    if (rest && piece->state != PIECE_FREE)
        rw_fail("piece_left", "node %u piece %u: state %d%s", node, piece->seq, (int)piece->state,
                piece->revoked ? ", revoked" : "");
}

void audit_node(uint32_t number, bool rest)
{
    struct verbs *v = rw.node[number].xfer->verbs;
    uint32_t held[XFER_RAILS_MAX] = {0};

    for (uint32_t l = 0; v && l < LINKS; l++)
        for (uint32_t i = 0; v->link[l].piece && i < VERBS_PIECES; i++)
            audit_piece(v, piece_of(v, l, i), number, rest);
    for (uint32_t i = 0; v && v->nrails > 0 && i < v->npaths; i++) {
        const struct verbs_path *p = &v->path[i];

        held[p->rail % v->nrails] += p->held + (p->posted - p->done);
        if (rest && p->state == PATH_READY && !p->source && p->push &&
            ~p->windows_free << (64 - VERBS_WINDOWS))
            rw_fail("window_left", "node %u path %u", number, i);
    }
    for (uint32_t i = 0; v && rest && i < v->nrails; i++)
        if (v->rail[i].cq_used != held[i])
            rw_fail("place_left", "node %u: %u taken, %u held", number, v->rail[i].cq_used,
                    held[i]);
}
