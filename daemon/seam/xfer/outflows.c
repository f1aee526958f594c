/* Outflows, which are the seam's records of serves: whether a page may leave, and when nothing
 * reads the pages of one any more. Called by the shell's owner thread and by the transports. */
#include "base/check.h"
#include "seam/xfer/transfers.h"

static struct outflow *outflow_of(struct xfer *xfer, struct serve_id id)
{
    check(id.slot < xfer->config.serves);
    return &xfer->outflow[id.slot];
}

/* The one place that says QUIET. */
static void outflow_quiet(struct xfer *xfer, uint32_t slot)
{
    struct outflow *outflow = &xfer->outflow[slot];
    struct event event = {.kind = EV_SERVE_QUIET, .serve_quiet = {.serve = {slot, outflow->gen}}};

    if (outflow->state != OUTFLOW_STOPPING || outflow->holds > 0)
        return;
    for (uint32_t i = 0; i < xfer->ntransports; i++) {
        const struct transport *t = &xfer->transport[i];

        check(!t->own || !t->ops->reads || !t->ops->reads(t, slot));
    }
    outflow_state_move(&outflow->state, OUTFLOW_NONE);
    pair_put(&outflow->pair);
    xfer->config.emit(xfer->config.ctx, &event);
}

void outflow_hold(struct xfer *xfer, uint32_t slot)
{
    xfer->outflow[slot].holds++;
}

void outflow_release(struct xfer *xfer, uint32_t slot)
{
    check(xfer->outflow[slot].holds > 0);
    xfer->outflow[slot].holds--;
    outflow_quiet(xfer, slot);
}

void xfer_serve_start(struct xfer *xfer, const struct action *act)
{
    struct outflow *outflow = outflow_of(xfer, act->serve.serve);
    const struct pair_ask ask = {.pool = act->serve.pool,
                                 .peer = act->serve.peer,
                                 .other_hash = act->serve.layout_hash,
                                 .ours_sends = true};

    check(outflow->holds == 0);
    if (outflow->state != OUTFLOW_NONE)
        outflow_state_move(&outflow->state, OUTFLOW_NONE);
    outflow_state_move(&outflow->state, OUTFLOW_SERVING);
    pair_put(&outflow->pair);
    outflow->gen = act->serve.serve.gen;
    outflow->pool = act->serve.pool;
    outflow->seen = (struct xfer_flow_view){0};
    outflow->lost = act->serve.layout_hash != 0 &&
                    pair_take(xfer, &ask, &outflow->pair) != TERN_OK &&
                    act->serve.layout_hash != pairs_own_hash(xfer, act->serve.pool);
}

void outflow_stop(struct xfer *xfer, struct serve_id id)
{
    struct outflow *outflow = outflow_of(xfer, id);

    outflow->gen = id.gen;
    outflow_state_move(&outflow->state, OUTFLOW_STOPPING);
    outflow->holds++;
}

bool outflow_serves(const struct xfer *xfer, struct serve_id id)
{
    return id.slot < xfer->config.serves && xfer->outflow[id.slot].state == OUTFLOW_SERVING &&
           xfer->outflow[id.slot].gen == id.gen;
}

bool outflow_page(const struct xfer *xfer, struct serve_id id, const struct xfer_entry *e,
                  uint32_t *ret_record)
{
    return outflow_serves(xfer, id) && !xfer->outflow[id.slot].lost &&
           xfer->config.serve_page(xfer->config.ctx, id, e->group,
                                   (struct page_ref){e->index, e->gen}, ret_record) == TERN_OK;
}

bool outflow_next(const struct xfer *xfer, struct serve_id id, struct xfer_entry *io)
{
    struct page_ref next;

    if (!outflow_serves(xfer, id) || !xfer->config.serve_next ||
        xfer->config.serve_next(xfer->config.ctx, id, io->group,
                                (struct page_ref){io->index, io->gen}, &next) != TERN_OK)
        return false;
    io->index = next.index;
    io->gen = next.gen;
    return true;
}

void outflow_sent(struct xfer *xfer, struct serve_id id, uint32_t pages, uint64_t bytes)
{
    struct outflow *outflow = outflow_of(xfer, id);

    xfer->stats.pages_out += pages;
    outflow->seen.pages += pages;
    outflow->seen.bytes += bytes;
    rate_add(&outflow->seen.rate, io_now_ns(), bytes);
}

bool xfer_outflow_view(const struct xfer *xfer, struct serve_id id, struct xfer_flow_view *ret)
{
    if (id.slot >= xfer->config.serves || xfer->outflow[id.slot].gen != id.gen)
        return false;
    *ret = xfer->outflow[id.slot].seen;
    return true;
}

bool outflow_allowed(struct xfer *xfer, struct serve_id id, uint32_t peer_link)
{
    if (!xfer->config.serve_allowed || xfer->config.serve_allowed(xfer->config.ctx, id, peer_link))
        return true;
    xfer->stats.refused++;
    return false;
}
