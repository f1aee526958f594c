/* The seam's serves: decides whether a page may leave, and reports when nothing reads the pages of
 * a serve any more. Called by the shell's owner thread and by the transports. */
#include "base/check.h"
#include "seam/xfer/flow/transfers.h"

static struct xfer_serve *serve_of(struct xfer *xfer, struct serve_id id)
{
    check(id.slot < xfer->config.serves);
    return &xfer->serve[id.slot];
}

/* The only place that emits EV_SERVE_QUIET. */
static void serve_quiet(struct xfer *xfer, uint32_t slot)
{
    struct xfer_serve *serve = &xfer->serve[slot];
    struct event event = {.kind = EV_SERVE_QUIET, .serve_quiet = {.serve = {slot, serve->gen}}};

    if (serve->state != XFER_SERVE_STOPPING || serve->holds > 0)
        return;
    for (uint32_t i = 0; i < xfer->ntransports; i++) {
        const struct transport *t = &xfer->transport[i];

        check(!t->own || !t->ops->reads || !t->ops->reads(t, slot));
    }
    xfer_serve_state_move(&serve->state, XFER_SERVE_NONE);
    pair_put(&serve->pair);
    xfer->config.emit(xfer->config.ctx, &event);
}

void serve_hold(struct xfer *xfer, uint32_t slot)
{
    xfer->serve[slot].holds++;
}

void serve_release(struct xfer *xfer, uint32_t slot)
{
    check(xfer->serve[slot].holds > 0);
    xfer->serve[slot].holds--;
    serve_quiet(xfer, slot);
}

void xfer_serve_start(struct xfer *xfer, const struct action *act)
{
    struct xfer_serve *serve = serve_of(xfer, act->serve.serve);
    const struct pair_ask ask = {.pool = act->serve.pool,
                                 .peer = act->serve.peer,
                                 .other_hash = act->serve.layout_hash,
                                 .ours_sends = true};

    check(serve->holds == 0);
    if (serve->state != XFER_SERVE_NONE)
        xfer_serve_state_move(&serve->state, XFER_SERVE_NONE);
    xfer_serve_state_move(&serve->state, XFER_SERVE_SERVING);
    pair_put(&serve->pair);
    serve->gen = act->serve.serve.gen;
    serve->pool = act->serve.pool;
    serve->seen = (struct xfer_flow_view){0};
    serve->lost = act->serve.layout_hash != 0 && pair_take(xfer, &ask, &serve->pair) != TERN_OK &&
                  act->serve.layout_hash != pairs_own_hash(xfer, act->serve.pool);
}

void serve_stop(struct xfer *xfer, struct serve_id id)
{
    struct xfer_serve *serve = serve_of(xfer, id);

    serve->gen = id.gen;
    xfer_serve_state_move(&serve->state, XFER_SERVE_STOPPING);
    serve->holds++;
}

bool serve_active(const struct xfer *xfer, struct serve_id id)
{
    return id.slot < xfer->config.serves && xfer->serve[id.slot].state == XFER_SERVE_SERVING &&
           xfer->serve[id.slot].gen == id.gen;
}

bool serve_page_leaves(const struct xfer *xfer, struct serve_id id, const struct xfer_entry *e,
                       uint32_t *ret_record)
{
    return serve_active(xfer, id) && !xfer->serve[id.slot].lost &&
           xfer->config.serve_page(xfer->config.ctx, id, e->group,
                                   (struct page_ref){e->index, e->gen}, ret_record) == TERN_OK;
}

bool serve_next_page(const struct xfer *xfer, struct serve_id id, struct xfer_entry *io)
{
    struct page_ref next;

    if (!serve_active(xfer, id) || !xfer->config.serve_next ||
        xfer->config.serve_next(xfer->config.ctx, id, io->group,
                                (struct page_ref){io->index, io->gen}, &next) != TERN_OK)
        return false;
    io->index = next.index;
    io->gen = next.gen;
    return true;
}

void serve_sent(struct xfer *xfer, struct serve_id id, uint32_t pages, uint64_t bytes)
{
    struct xfer_serve *serve = serve_of(xfer, id);

    xfer->stats.pages_out += pages;
    serve->seen.pages += pages;
    serve->seen.bytes += bytes;
    rate_add(&serve->seen.rate, io_now_ns(), bytes);
}

bool xfer_serve_view(const struct xfer *xfer, struct serve_id id, struct xfer_flow_view *ret)
{
    if (id.slot >= xfer->config.serves || xfer->serve[id.slot].gen != id.gen)
        return false;
    *ret = xfer->serve[id.slot].seen;
    return true;
}

bool serve_allows(struct xfer *xfer, struct serve_id id, uint32_t peer_link)
{
    if (!xfer->config.serve_allowed || xfer->config.serve_allowed(xfer->config.ctx, id, peer_link))
        return true;
    xfer->stats.refused++;
    return false;
}
