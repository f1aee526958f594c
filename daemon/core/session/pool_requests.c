/* Opening, mapping and closing pools. A pool outlives the engine that opened it: its prefixes are
 * available to the tenant's next engine that requests the same pool (equal_find). Invariant: a
 * range of memory is reused only when every engine that mapped it is gone, after it was zeroed, and
 * only by its tenant. */

#include "core/arena/actions.h"
#include "core/memory/pages.h"
#include "core/session/engines.h"
#include "core/transfer/serves.h"
#include "core/tree/nodes.h"

static bool size_agrees(const struct pool *p, uint64_t bytes)
{
    return p->bytes <= bytes && bytes - p->bytes < p->slab_bytes;
}

/* Finds a pool in the regions of this engine's ranks, with exactly this layout and supersession:
 * its prefixes are still valid. No engine has mapped it and its size is equal, unless `shared`. */
static struct pool *equal_find(const struct core *c, const struct engine *e,
                               const struct req_pool_open *r)
{
    for (uint32_t i = 0; i < c->limits.pools; i++) {
        struct pool *p = pool_at(c, i);
        bool same = p->state == POOL_OPEN && p->tier == TIER_DEVICE && p->tenant == e->tenant &&
                    p->layout_hash == layout_hash(r, e->world) && pool_suits(p, e) &&
                    p->supersede == (uint32_t)r->supersede &&
                    (r->shared || (p->engines == 0 && size_agrees(p, r->bytes) &&
                                   (p->tiers[TIER_HOST] != NONE) == (r->host_bytes > 0)));

        if (same && !r->shared && p->tiers[TIER_HOST] != NONE)
            same = size_agrees(pool_at(c, p->tiers[TIER_HOST]), r->host_bytes);

        for (uint32_t g = 0; same && g < r->ngroups; g++)
            same = p->group[g].layout.cap_pages == r->group[g].cap_pages;
        if (same)
            return p;
    }
    return NULL;
}

static void pool_begin_close(struct core *c, struct pool *p)
{
    pool_state_move(&p->state, POOL_CLOSING);
    c->nclosing++;
    p->close_at = c->npinned > 0 ? 0 : NONE;
    serve_end_pool(c, pool_slot(c, p));
    touch(c);
}

/* Closes the oldest unmapped pool that lies in one of these regions and has no tickets (Y3). Adds
 * to *ret_tickets the sessions of unmapped pools there. */
static bool orphan_close(struct core *c, uint32_t tenant, uint64_t regions, uint32_t *ret_tickets)
{
    struct pool *oldest = NULL;

    for (uint32_t i = 0; i < c->limits.pools; i++) {
        struct pool *p = pool_at(c, i);

        if (p->state == POOL_OPEN && p->tier == TIER_DEVICE && p->tenant == tenant &&
            p->engines == 0 && (p->region_set & regions) != 0) {
            *ret_tickets += p->sessions;
            if (p->sessions == 0 && (!oldest || p->opened_seq < oldest->opened_seq))
                oldest = p;
        }
    }
    if (!oldest)
        return false;
    pool_begin_close(c, oldest);
    return true;
}

/* Returns true if a pool that is being zeroed or closed will free room. */
static bool room_is_coming(const struct core *c, uint32_t tenant, uint64_t regions)
{
    for (uint32_t i = 0; i < c->limits.pools; i++) {
        const struct pool *p = pool_at(c, i);

        if (p->tenant == tenant && (p->region_set & regions) != 0 &&
            (p->state == POOL_ZEROING || (p->state == POOL_CLOSING && p->engines == 0)))
            return true;
    }
    return false;
}

static enum tern_err carve_or_wait(struct core *c, const struct engine *e,
                                   const struct req_pool_open *r, uint32_t *ret_pool,
                                   struct reply *ret)
{
    enum tern_err err = pool_carve(c, e, r, ret_pool, ret);
    /* For memory, pools in the same regions are in the way; for records, all pools. */
    uint64_t regions = err == TERN_QUOTA ? e->region_set : UINT64_MAX;
    uint32_t tickets = 0;

    if (err == TERN_OK || !pool_possible(c, e->tenant, r))
        return err;
    if (!room_is_coming(c, e->tenant, regions) && !orphan_close(c, e->tenant, regions, &tickets))
        return tickets == 0 ? err
                            : refuse_numbers(ret, TERN_BUSY,
                                             "# tickets need a pool that no engine maps: retry "
                                             "when they were fetched or have expired",
                                             tickets, 0);
    return refuse(ret, TERN_BUSY,
                  "a pool that no engine maps is being closed to make room: retry in a moment");
}

enum tern_err pool_open(struct core *c, struct call *call, struct reply *ret)
{
    const struct req_pool_open *r = &call->req->pool_open;
    struct engine *e = call->engine;
    struct pool *p;
    uint32_t slot;

    TRY(layout_check(c, r, ret));
    for (uint32_t g = 0; g < r->ngroups; g++)
        if ((uint64_t)r->group[g].units * e->world > c->limits.sums_per_page)
            return refuse_numbers(ret, TERN_INVALID, PAGE_SUMS_EXCEED, r->group[g].units * e->world,
                                  c->limits.sums_per_page);
    p = equal_find(c, e, r);
    if (p)
        slot = pool_slot(c, p);
    else
        TRY(carve_or_wait(c, e, r, &slot, ret));
    p = pool_at(c, slot);
    engine_attach(c, e, slot);
    ret->pool_open.pool = (struct pool_id){.slot = slot, .gen = p->gen};
    ret->pool_open.align_tokens = p->align;
    ret->pool_open.bytes = p->bytes;
    ret->pool_open.names = r->names;
    ret->pool_open.layouts = r->layouts;
    return TERN_OK;
}

static enum tern_err pool_of_request(const struct core *c, const struct engine *e,
                                     struct pool_id id, struct pool **ret_pool, struct reply *ret)
{
    struct pool *p = pool_find(c, id);

    if (!p || p->tenant != e->tenant || p->state != POOL_OPEN)
        return refuse(ret, TERN_GONE,
                      "no such pool: it was closed, or the daemon restarted; open it again");
    *ret_pool = p;
    return TERN_OK;
}

enum tern_err pool_map(struct core *c, struct call *call, struct reply *ret)
{
    const struct conn *cn = call->conn;
    struct engine *e = call->engine;
    struct pool *p;

    TRY(pool_of_request(c, e, call->req->pool_map.pool, &p, ret));
    if (p->regions != e->world)
        return refuse(ret, TERN_INVALID,
                      "the pool was opened by an engine of another world size: open another pool");
    if (!pool_suits(p, e))
        return refuse(ret, TERN_INVALID,
                      "the pool lies on other devices than this engine's ranks: open another, or "
                      "join on its devices");
    engine_attach(c, e, pool_slot(c, p));
    ret->pool_map.region = p->region[cn->seat < RANKS_MAX ? cn->seat : 0];
    ret->pool_map.offset = p->offset;
    ret->pool_map.bytes = p->bytes;
    ret->pool_map.sums = call->req->pool_map.sums;
    return TERN_OK;
}

enum tern_err pool_close(struct core *c, struct call *call, struct reply *ret)
{
    const struct engine *e = call->engine;
    struct pool *p;

    TRY(pool_of_request(c, e, call->req->pool_close.pool, &p, ret));
    if (p->sessions > 0)
        return refuse(ret, TERN_CONFLICT, "sessions are open in that pool: close them first");
    if (e->leased_of[pool_slot(c, p)] > 0)
        return refuse(ret, TERN_CONFLICT,
                      "pages of that pool are leased to this engine: unlease them first");
    if (p->engines != 1 || !(e->pools & 1ull << pool_slot(c, p)))
        return refuse(ret, TERN_CONFLICT,
                      "another engine has mapped that pool: the last engine to unmap it closes it");
    pool_begin_close(c, p);
    return TERN_OK;
}

/* An operator ends an unmapped pool, which would otherwise stay for the next engine. */
enum tern_err request_pool_end(struct core *c, struct call *call, struct reply *ret)
{
    struct pool *p = pool_find(c, call->req->pool_end.pool);

    if (!p || p->state != POOL_OPEN)
        return refuse(ret, TERN_GONE,
                      "no such pool: it is closed or closing; `ternctl pools` lists the others");
    if (p->engines > 0)
        return refuse_numbers(ret, TERN_CONFLICT,
                              "# engines have mapped the pool, and # sessions are open in it: stop "
                              "or kick the engines and wait until their processes have exited",
                              p->engines, p->sessions);
    if (p->sessions > 0)
        return refuse_numbers(ret, TERN_CONFLICT,
                              "# tickets need the pool: wait until they were fetched or have "
                              "expired, or close their sessions",
                              p->sessions, 0);
    if (p->serves > 0)
        return refuse_numbers(ret, TERN_CONFLICT,
                              "# transfers to peers read the pool: wait until they have ended",
                              p->serves, 0);
    ret->pool_end.nodes = p->nodes;
    pool_begin_close(c, p);
    return TERN_OK;
}

void pool_zeroed(struct core *c, struct pool_id id)
{
    struct pool *p = id.slot < c->limits.pools ? pool_at(c, id.slot) : NULL;

    if (!p || p->gen != id.gen || p->state != POOL_ZEROING)
        return;
    pool_end(c, p);
    c->npools--;
    touch(c);
}

/* An operator's pin does not outlast its pool. */
static void unpin_piece(struct core *c, struct pool *p, uint32_t end)
{
    while (p->close_at != NONE && c->visits < end) {
        uint32_t slot = p->close_at;
        const struct node *n = node_at(c, slot);
        bool pinned = n->used && pool_at(c, n->pool) == p && n->refs[REF_ADMIN] > 0;

        p->close_at = slot + 1 < c->limits.nodes ? slot + 1 : NONE;
        c->visits++;
        c->npinned -= pinned;
        for (uint32_t left = pinned ? n->refs[REF_ADMIN] : 0; left > 0; left--)
            node_unpin(c, slot, REF_ADMIN);
        touch(c);
    }
}

/* Returns false if more is left to do. */
static bool close_piece(struct core *c, struct pool *p, uint32_t end)
{
    unpin_piece(c, p, end);
    while (c->visits < end && obtain_settle(c, p) && (evict_one(c, p) || host_evict_one(c, p)))
        ;
    return c->visits < end && visits_left(c) > 0;
}

bool pool_flush(struct core *c, struct actions *out)
{
    uint32_t end = piece_begin(c);
    bool all = true;

    for (uint32_t i = 0; i < c->limits.pools && c->nclosing > 0; i++) {
        struct pool *p = pool_at(c, i);

        if (p->state != POOL_CLOSING)
            continue;
        if (!close_piece(c, p, end)) {
            all = false;
            touch(c);
            continue;
        }
        if (p->engines > 0 || p->serves > 0 || p->nodes > 0 || p->spaces.n > 0 ||
            !pool_all_free(p) ||
            (p->tiers[TIER_HOST] != NONE && !pool_all_free(pool_at(c, p->tiers[TIER_HOST]))))
            continue;
        if (actions_room(out) == 0)
            return false;
        if (p->tiers[TIER_HOST] != NONE) { /* no engine has seen it */
            pool_end(c, pool_at(c, p->tiers[TIER_HOST]));
            p->tiers[TIER_HOST] = NONE;
        }
        pool_state_move(&p->state, POOL_ZEROING);
        c->nclosing--;
        action_add(out, ACT_ZERO)->zero.pool = (struct pool_id){.slot = i, .gen = p->gen};
        touch(c);
    }
    return all;
}
