/* The RDMA transport as transport.h calls it: tables, life and statistics. See verbs.h. */
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/err.h"
#include "seam/xfer/verbs/verbs.h"

static uint32_t npaths(const struct xfer_config *c)
{
    return c->links * c->rdma.tenants * xfer_rails(&c->rdma);
}

static uint32_t piece_sums(uint32_t sums_per_page)
{
    return sums_per_page > VERBS_PIECE_SUMS ? sums_per_page : VERBS_PIECE_SUMS;
}

static uint32_t verbs_works(const struct xfer_config *c)
{
    uint32_t pulls = c->rdma.pulls < c->links ? c->rdma.pulls : c->links;

    return c->rdma.tenants > 0 ? pulls * VERBS_PIECES : 0;
}

static uint64_t verbs_bytes(const struct xfer_config *c, uint32_t sums_per_page)
{
    uint64_t rails = xfer_rails(&c->rdma),
             pulls = c->rdma.pulls < c->links ? c->rdma.pulls : c->links,
             piece = sizeof(struct verbs_piece) + piece_sums(sums_per_page) * sizeof(uint64_t);

    if (c->rdma.tenants == 0 || (c->rdma.pulls == 0 && !c->rdma.serves))
        return 0;
    return sizeof(struct verbs) + c->links * sizeof(struct verbs_link) +
           npaths(c) * sizeof(struct verbs_path) + setup_bytes(npaths(c)) +
           pulls * VERBS_PIECES * piece + c->rdma.on_gpus * xfer_ring_bytes(&c->rdma) +
           rails * c->rdma.tenants * sizeof(struct verbs_domain);
}

bool link_pieces(struct verbs *v, uint32_t link)
{
    struct verbs_link *l = &v->link[link];

    l->piece = calloc(VERBS_PIECES, sizeof *l->piece);
    for (uint32_t i = 0; l->piece && i < VERBS_PIECES; i++) {
        l->piece[i].v = v;
        l->piece[i].link = link;
        l->piece[i].task.done = piece_back;
        l->piece[i].sums = calloc(v->piece_sums, sizeof *l->piece[i].sums);
        if (!l->piece[i].sums)
            return false;
    }
    return l->piece != NULL;
}

static enum tern_err create_tables(struct verbs *v)
{
    const struct xfer_config *c = &v->xfer->config;

    v->tenants = c->rdma.tenants;
    v->rails = xfer_rails(&c->rdma);
    v->npaths = npaths(c);
    check(v->npaths <= XFER_PATHS_MAX);
    v->piece_sums = piece_sums(mem_sums_per_page(c->mem));
    v->path = calloc(v->npaths, sizeof *v->path);
    v->link = calloc(c->links, sizeof *v->link);
    if (!v->path || !v->link)
        return TERN_INTERNAL;
    for (uint32_t i = 0; i < v->npaths; i++) {
        v->path[i].v = v;
        v->path[i].task.done = path_back;
        v->path[i].link = i / v->rails / v->tenants;
        v->path[i].tenant = i / v->rails % v->tenants;
        v->path[i].rail = i % v->rails;
    }
    for (uint32_t i = 0; i < c->rdma.pulls && i < c->links; i++)
        if (!link_pieces(v, i))
            return TERN_INTERNAL;
    return TERN_OK;
}

static enum tern_err verbs_create(struct transport *t)
{
    struct xfer *xfer = t->xfer;
    const struct xfer_rdma_config *c = &xfer->config.rdma;
    struct verbs *v;

    if (c->tenants == 0)
        return TERN_OK;
    if (c->pulls == 0 && !c->serves) {
        rails_look(xfer);
        return TERN_OK;
    }
    check(c->ndevices <= xfer_rails(c) && xfer_rails(c) <= XFER_RAILS_MAX);
    v = calloc(1, sizeof *v);
    if (!v)
        return TERN_INTERNAL;
    t->own = v;
    v->xfer = xfer;
    v->transport = t;
    v->view.built = true;
    v->view.send_queue = VERBS_SEND_QUEUE;
    TRY(create_tables(v));
    rails_open(v);
    if (v->nrails == 0)
        return TERN_OK;
    TRY(setup_start(v));
    v->view.open = true;
    rails_poll(v);
    return TERN_OK;
}

static void verbs_destroy(struct transport *t)
{
    struct verbs *v = t->own;

    if (!v)
        return;
    atomic_store(&v->closing, true);
    rails_unpoll(v);
    setup_stop(v);
    for (uint32_t i = 0; v->path && i < v->npaths; i++)
        (void)setup_end_now(&v->path[i]); /* if this fails, the pair ends with the process */
    rails_close(v);
    rings_close(v);
    for (uint32_t i = 0; v->link && i < t->xfer->config.links; i++) {
        for (uint32_t k = 0; v->link[i].piece && k < VERBS_PIECES; k++)
            free(v->link[i].piece[k].sums);
        free(v->link[i].piece);
    }
    free(v->path);
    free(v->link);
    free(v);
    t->own = NULL;
}

void xfer_rdma_view(const struct xfer *xfer, struct xfer_rdma_view *ret)
{
    const struct verbs *v = verbs_of(xfer);

    if (!v) {
        *ret = xfer->looked;
        ret->built = true;
        snprintf(ret->why, sizeof ret->why, "not requested: no peer's transport is auto or verbs");
        return;
    }
    *ret = v->view;
    ret->wanted = true;
    ret->nrails = v->nrails;
    for (uint32_t i = 0; i < v->nrails; i++)
        ret->rail[i] = v->rail[i].view;
}

const struct transport_ops verbs_transport = {
    .name = "verbs",
    .asked_for = XFER_VERBS,
    .rdma = true,
    .conn_bytes = sizeof(struct verbs_notices),
    .service = &verbs_service,
    .bytes = verbs_bytes,
    .works = verbs_works,
    .create = verbs_create,
    .destroy = verbs_destroy,
    .takes = verbs_takes,
    .pump = verbs_pump,
    .drop = verbs_drop,
    .holds = verbs_holds,
    .link_down = verbs_link_down,
    .tick = verbs_tick,
    .poll = verbs_poll,
    .link_view = verbs_link_view,
};
