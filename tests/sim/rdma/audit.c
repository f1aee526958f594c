/* The seam's own state of its pieces and places, checked for consistency: the only part of these
 * histories that looks inside the seam. A resource that outlives its use would hurt late, or only a
 * little, and no model would see it. */
#include "seam/xfer/verbs/verbs.h"

#include "nic.h"

/* A device may write for the path: its queue pair was connected, and is not destroyed. */
static bool may_write(const struct verbs_path *p)
{
    return !p->source &&
           (p->state == PATH_READY || p->state == PATH_STOPPING || p->state == PATH_DRAINING ||
            p->state == PATH_ENDING || p->state == PATH_STUCK);
}

static void audit_piece(const struct verbs *v, const struct verbs_piece *piece, uint32_t node,
                        bool rest)
{
    const struct verbs_path *p = piece->path == NONE ? NULL : &v->path[piece->path];

    if (piece->state == PIECE_FREE && (piece->holds || piece->revoked))
        rw_fail("free_and_held", "node %u piece %u", node, piece->seq);
    if (piece->holds && (!p || !may_write(p)))
        rw_fail("held_wrongly", "node %u piece %u", node, piece->seq);
    if (piece->revoked && (!p || p->source || p->state != PATH_READY))
        rw_fail("revoked_without_path", "node %u piece %u", node, piece->seq);
    if (rest && piece->state != PIECE_FREE)
        rw_fail("piece_left", "node %u piece %u: state %d%s", node, piece->seq, (int)piece->state,
                piece->revoked ? ", revoked" : "");
}

static uint32_t rail_named(const struct xfer_path_view *view)
{
    return (uint32_t)(view->device[3] - '0');
}

/* A path that failed may be ready again only after bytes have come over its new queue pair. */
static void called_ready(struct rnode *node, uint32_t link, const struct xfer_path_view *view)
{
    uint32_t rail = rail_named(view);
    const struct verbs_path *p = path_of(verbs_of(node->xfer), link, view->tenant, rail);

    if (node->failed[link][view->tenant][rail] && !nqp_of(p->qp)->landed)
        rw_fail("ready_and_unproven", "node %u link %u: %s", node->number, link, view->reason);
    node->failed[link][view->tenant][rail] = false;
}

static void audit_views(struct rnode *node, uint32_t link)
{
    struct xfer_path_view view;

    for (uint32_t i = 0; xfer_path_view(node->xfer, link, i, &view); i++) {
        if (view.reads && (view.ready || strcmp(view.state_word, "ready") == 0))
            called_ready(node, link, &view);
        else if (strcmp(view.state_word, "unproven") == 0)
            rw_mark(RM_unproven);
    }
}

void audit_node(uint32_t number, bool rest)
{
    struct verbs *v = verbs_of(rw.node[number].xfer);
    uint32_t held[XFER_RAILS_MAX] = {0};

    for (uint32_t l = 0; v && l < LINKS; l++)
        audit_views(&rw.node[number], l);

    for (uint32_t l = 0; v && l < LINKS; l++)
        for (uint32_t i = 0; v->link[l].piece && i < VERBS_PIECES; i++)
            audit_piece(v, piece_of(v, l, i), number, rest);
    for (uint32_t i = 0; v && v->nrails > 0 && i < v->npaths; i++) {
        const struct verbs_path *p = &v->path[i];

        held[p->rail % v->nrails] += p->held + (p->posted - p->completed);
        if (rest && p->state == PATH_READY && !p->source && ~p->mws_free << (64 - VERBS_MWS))
            rw_fail("window_left", "node %u path %u", number, i);
    }
    if (rnic_windows_open(number) > rw.node[number].xfer->stats.windows_open)
        rw_fail("window_not_counted", "node %u: %u are open", number, rnic_windows_open(number));
    if (rest && rw.node[number].xfer->stats.windows_open > 0)
        rw_fail("window_counted_for_ever", "node %u", number);
    if (rest)
        rnic_audit_reads(number);
    for (uint32_t i = 0; v && rest && i < v->nrails; i++)
        if (v->rail[i].cq_used != held[i])
            rw_fail("place_left", "node %u: %u taken, %u held", number, v->rail[i].cq_used,
                    held[i]);
}

static bool could_go_on(struct verbs *v, uint32_t link, const struct verbs_piece *piece)
{
    return piece->state == PIECE_WAITING && piece->batch != NONE && !piece->holds &&
           piece->answered && path_for(v, link, piece->batch, piece);
}

/* The tick is only for time that has passed: a piece that waits for any other event must continue
 * at that event. */
void audit_tick(uint32_t number)
{
    struct verbs *v = verbs_of(rw.node[number].xfer);
    bool waits[LINKS][VERBS_PIECES] = {{false}};
    uint64_t failed = rw.node[number].xfer->stats.paths_failed;

    for (uint32_t l = 0; v && l < LINKS; l++)
        for (uint32_t i = 0; v->link[l].piece && i < VERBS_PIECES; i++)
            waits[l][i] = could_go_on(v, l, piece_of(v, l, i));
    xfer_tick(rw.node[number].xfer, rw.now_ns);
    if (rw.node[number].xfer->stats.paths_failed != failed)
        return; /* its resources are free for the others */
    for (uint32_t l = 0; v && l < LINKS; l++)
        for (uint32_t i = 0; v->link[l].piece && i < VERBS_PIECES; i++) {
            enum piece_state state = piece_of(v, l, i)->state;

            if (waits[l][i] && (state == PIECE_BINDING || state == PIECE_COMING))
                rw_fail("waited_for_the_tick", "node %u piece %u", number, piece_of(v, l, i)->seq);
        }
}

/* A path fails: is the reason that it names the true one? */
void audit_path_changed(void *ctx, uint32_t link, const struct xfer_path_view *view)
{
    struct rnode *node = ctx;
    struct verbs *v = node->xfer ? verbs_of(node->xfer) : NULL;

    if (view->ready) {
        called_ready(node, link, view);
        return;
    }
    node->failed[link][view->tenant][rail_named(view)] = view->reads;
    if (strstr(view->reason, strerror(0)))
        rw_fail("fails_well", "node %u: %s", node->number, view->reason);
    if (!strstr(view->reason, "neither pushed nor refused"))
        return;
    rw_mark(RM_not_pushed_in_time);
    for (uint32_t i = 0; v && i < v->nrails; i++) {
        const struct verbs_path *p = path_of(v, link, view->tenant, i);

        if (p->qp && p->reason == view->reason &&
            rw.now_ns - nqp_of(p->qp)->heard_ns < rw.cfg.idle_ns)
            rw_fail("given_up_while_it_moves", "node %u heard of a piece at %.6f", node->number,
                    (double)nqp_of(p->qp)->heard_ns * 1e-9);
    }
}
