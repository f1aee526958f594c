/* Peer links of the RDMA transport: chooses the path of a batch, finds whether a path is being set
 * up, and reports links and paths to operators. */
#include "base/check.h"
#include "seam/xfer/verbs/verbs.h"

/* A doubted path may fail again, which takes seconds: try it with one piece that was never lost. */
static bool doubtful(const struct verbs_path *p, const struct verbs_piece *piece)
{
    return p->doubted && (p->posted > 0 || (piece && piece->tries > 0));
}

static bool tried(const struct verbs_path *p, const struct verbs_piece *piece)
{
    return piece && (piece->tried >> p->rail & 1);
}

/* The inputs that decide the path of a piece. */
struct choice {
    const struct verbs_piece *piece; /* NULL: not begun */
    uint32_t near;                   /* rails near its pages, a bit each; 0: any */
};

/* Returns true if a is better than b, by these in order: not in doubt; this piece not lost on its
 * rail; on the rail of its regions; more credit; used less. */
static bool better(struct verbs *v, const struct verbs_path *a, const struct verbs_path *b,
                   const struct choice *c)
{
    uint32_t more = path_credit(v, a), less = path_credit(v, b);

    if (doubtful(a, c->piece) != doubtful(b, c->piece))
        return doubtful(b, c->piece);
    if (tried(a, c->piece) != tried(b, c->piece))
        return tried(b, c->piece);
    if ((c->near >> a->rail & 1) != (c->near >> b->rail & 1))
        return c->near >> a->rail & 1;
    return more > less || (more == less && a->posted < b->posted);
}

static struct verbs_path *best_of(struct verbs *v, uint32_t link, uint32_t tenant,
                                  const struct choice *c)
{
    struct verbs_path *best = NULL;

    for (uint32_t i = 0; i < v->nrails; i++) {
        struct verbs_path *p = path_of(v, link, tenant, i);

        if (p->state == PATH_READY && (!best || better(v, p, best, c)))
            best = p;
    }
    return best;
}

struct verbs_path *path_best(struct verbs *v, uint32_t link, uint32_t tenant)
{
    return best_of(v, link, tenant, &(struct choice){.piece = NULL});
}

/* Returns the rails of the regions of a batch's pages, a bit each; 0: a region may use any rail. */
static uint32_t batch_rails(const struct verbs *v, uint32_t batch)
{
    const struct batch *b = &v->xfer->batch[batch];
    uint32_t regions = mem_place(v->xfer->config.mem, b->pool)->transfer_regions, near = 0;

    for (uint32_t r = 0; r < regions; r++) {
        uint32_t of_tenant = mem_place(v->xfer->config.mem, b->pool)->region[r];
        const struct xfer_region *region = &v->xfer->region[b->tenant][of_tenant];

        if (!region->binds || region->rail == NONE)
            return 0;
        near |= 1u << region->rail;
    }
    return near;
}

struct verbs_path *path_for(struct verbs *v, uint32_t link, uint32_t batch,
                            const struct verbs_piece *piece)
{
    return best_of(v, link, v->xfer->batch[batch].tenant,
                   &(struct choice){.piece = piece, .near = batch_rails(v, batch)});
}

bool path_coming(const struct verbs *v, uint32_t link, uint32_t tenant)
{
    if (io_now_ns() - v->link[link].up_ns >= VERBS_SETUP_NS)
        return false;
    for (uint32_t i = 0; i < v->nrails; i++) {
        const struct verbs_path *p = path_of(v, link, tenant, i);

        if (p->wanted && p->state != PATH_READY && p->pause_ns == 0)
            return true;
    }
    return false;
}

bool verbs_takes(const struct transport *t, uint32_t link, uint32_t pool)
{
    struct verbs *v = t->own;
    const struct mem *mem = t->xfer->config.mem;
    const uint32_t tenant = mem_place(mem, pool)->tenant;

    return v->link[link].piece && mem_place(mem, pool)->tier == TIER_DEVICE &&
           (path_best(v, link, tenant) || path_coming(v, link, tenant));
}

void transport_note(struct verbs *v, uint32_t link, uint32_t tenant, bool verbs, const char *reason)
{
    struct verbs_link *l = &v->link[link];
    uint64_t bit = (uint64_t)1 << tenant;
    struct xfer_note note = {
        .tenant = tenant, .transport = v->transport->ops->name, .reason = reason};

    if ((l->noted & bit) && ((l->noted_verbs & bit) != 0) == verbs)
        return;
    l->noted |= bit;
    l->noted_verbs = verbs ? l->noted_verbs | bit : l->noted_verbs & ~bit;
    if (!v->xfer->config.rdma.path_note)
        return;
    if (verbs)
        v->xfer->config.rdma.path_note(v->xfer->config.ctx, link, &note);
    else
        xfer_note_fallback(v->xfer, link, v->transport, &note);
}

const char *verbs_unwanted(const struct verbs *v, uint32_t link)
{
    const char *unwanted = xfer_link_unwanted(v->xfer, link, v->transport);

    if (unwanted)
        return unwanted;
    if (v->nrails == 0)
        return v->view.why;
    return v->link[link].peer_rdma ? "" : "the peer does not support RDMA, or has no RDMA device";
}

const char *rail_pathless(const struct verbs_rail *rail, uint32_t tenant)
{
    const struct verbs_domain *d = &rail->domain[tenant];

    if (rail->windows_refused)
        return "a device of this host refused a memory window in its self-test";
    if (!rail->view.memory_windows)
        return "a device of this host has no memory windows of type 2B";
    return d->far && !d->ring.mr ? d->no_ring : NULL;
}

const char *tenant_pathless(const struct verbs *v, uint32_t tenant)
{
    for (uint32_t i = 0; i < v->nrails; i++)
        if (!rail_pathless(&v->rail[i], tenant))
            return NULL;
    return rail_pathless(&v->rail[0], tenant);
}

void verbs_link_view(const struct transport *t, uint32_t link, struct xfer_link_view *ret)
{
    struct verbs *v = t->own;
    const char *missing;

    if (!v->link[link].piece)
        return;
    ret->reason = verbs_unwanted(v, link);
    for (uint32_t tenant = 0; !*ret->reason && tenant < v->tenants; tenant++) {
        const struct verbs_path *p = path_best(v, link, tenant);

        if (!(v->link[link].tenants >> tenant & 1))
            continue;
        if (p)
            ret->transport = t->ops->name;
        else if (path_coming(v, link, tenant))
            ret->transport = "setting up";
        ret->push = p != NULL;
        missing = tenant_pathless(v, tenant);
        ret->reason = p ? p->reason : missing ? missing : path_of(v, link, tenant, 0)->reason;
        break;
    }
}

void path_view(const struct verbs *v, const struct verbs_path *p, struct xfer_path_view *ret)
{
    bool unproven = p->state == PATH_READY && p->doubted;
    static const char *const words[] = {
        [PATH_NONE] = "ended",         [PATH_MAKING] = "making",
        [PATH_OFFERED] = "offered",    [PATH_CONNECTING] = "connecting",
        [PATH_ABANDONED] = "stopping", [PATH_STUCK] = "ending",
        [PATH_READY] = "ready",        [PATH_STOPPING] = "stopping",
        [PATH_DRAINING] = "draining",  [PATH_ENDING] = "ending",
        [PATH_PAUSED] = "paused"};

    *ret = (struct xfer_path_view){.tenant = p->tenant,
                                   .device = v->rail[p->rail % v->nrails].view.device,
                                   .state_word = unproven ? "unproven" : words[p->state],
                                   .reason = p->reason,
                                   .ready = p->state == PATH_READY && !unproven,
                                   .reads = !p->source};
}

bool xfer_path_view(const struct xfer *xfer, uint32_t link, uint32_t i, struct xfer_path_view *ret)
{
    const struct verbs *v = verbs_of(xfer);

    check(link < xfer->config.links);
    for (uint32_t k = 0; v && v->nrails > 0 && k < v->tenants * v->rails; k++) {
        const struct verbs_path *p = path_of(v, link, 0, 0) + k;

        if (p->state == PATH_NONE && !p->wanted)
            continue;
        if (i-- == 0) {
            path_view(v, p, ret);
            return true;
        }
    }
    return false;
}
