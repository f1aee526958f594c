/* Evictions that an operator requested. Each step does one piece of one eviction; the answer
 * follows the last piece, with all that was freed. Invariant: other requests are served in between
 * and may add prefixes, yet every eviction ends, because it evicts at most as many nodes as existed
 * at its start. */
#include "core/arena/actions.h"
#include "core/memory/pages.h"
#include "core/session/call.h"
#include "core/tree/nodes.h"

static uint32_t pages_used(const struct core *c, enum tier tier)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < c->limits.pools; i++) {
        const struct pool *p = pool_at(c, i);

        if (p->state == POOL_EMPTY || p->tier != tier)
            continue;
        for (uint32_t g = 0; g < p->ngroups; g++)
            n += group_used(&p->group[g]);
    }
    return n;
}

/* Returns false if more is left to do. */
static bool piece(struct core *c, struct eviction *e)
{
    uint32_t end = piece_begin(c);
    uint32_t pages = pages_used(c, TIER_DEVICE), host_pages = pages_used(c, TIER_HOST);
    bool ended = true;

    for (uint32_t i = 0; i < c->limits.pools && ended; i++) {
        struct pool *p = pool_at(c, i);

        if (p->state == POOL_EMPTY || (e->pool.slot != NONE && p != pool_find(c, e->pool)))
            continue;
        while (e->told.nodes < e->nodes_max && c->visits < end && evict_unheld(c, p))
            e->told.nodes++;
        ended = e->told.nodes == e->nodes_max || (c->visits < end && visits_left(c) > 0);
    }
    e->told.pages += pages - pages_used(c, TIER_DEVICE);
    e->told.host_pages += host_pages - pages_used(c, TIER_HOST);
    return ended;
}

enum tern_err request_evict(struct core *c, struct call *call, struct reply *ret)
{
    const struct req_evict *r = &call->req->evict;
    /* Each node may count twice: evicted from the device, and from the host. */
    uint32_t nodes_now = 2 * (c->limits.nodes - c->free_nodes.n);
    struct eviction *e = NULL;

    if (r->pool.slot != NONE && !pool_find(c, r->pool))
        return refuse(ret, TERN_GONE,
                      "no such pool: it was closed; `ternctl pools` lists the others");
    for (uint32_t i = 0; i < EVICTIONS_MAX && !e; i++)
        e = c->eviction[i].on ? NULL : &c->eviction[i];
    if (!e)
        return refuse(ret, TERN_BUSY,
                      "4 evictions are under way, the maximum: retry when one has ended");
    *e = (struct eviction){.on = 1,
                           .pool = r->pool,
                           .nodes_max = r->nodes ? r->nodes : nodes_now,
                           .reply = call_later(call)}; /* evictions_flush starts it in this step */
    return TERN_OK;
}

bool evictions_flush(struct core *c, struct actions *out)
{
    bool all = true;

    for (uint32_t i = 0; i < EVICTIONS_MAX; i++) {
        struct eviction *e = &c->eviction[i];

        if (!e->on)
            continue;
        touch(c);
        if (!all || !piece(c, e) || actions_room(out) == 0) {
            all = false;
            continue;
        }
        if (reply_waits(c, &e->reply))
            reply_late(out, e->reply, OP_EVICT, TERN_OK, "")->evict = e->told;
        *e = (struct eviction){0};
    }
    return all;
}
