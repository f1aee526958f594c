/* Making room on the device: what is evicted for which group, and which shortage an answer reports
 * if too little is evictable (T4, T12, E4). tree/obtain.h decides whether to evict at all. */
#include "core/session/room.h"

#include "core/arena/actions.h"
#include "core/disk/stores.h"
#include "core/memory/pages.h"
#include "core/session/retires.h"
#include "core/tier/host.h"
#include "core/tree/nodes.h"
#include "core/tree/state.h"

#define NEVER_FITS                                                                                 \
    "this request can never fit: it needs # pages of a group at once, and the group could have # " \
    "if nobody else used any: ask for less, or open a larger pool (with a larger cap_pages or "    \
    "host_bytes)"

static enum tern_err shortage_fill(struct core *c, struct engine *e, struct pool *p,
                                   struct shortage *ret)
{
    ret->free = group_free(p, ret->group);
    ret->evictable = p->group[ret->group].obtainable;
    ret->retiring = p->group[ret->group].count[PAGE_RETIRING];
    ret->until_step = retire_until(c, e, p, ret);
    return TERN_POOL_EXHAUSTED;
}

/* With write-behind, copies the leaves that are evicted next to the host, as many as the missing
 * pages need. Returns true while copies run. If none begins or ends for COPY_WAIT_MS_MAX, leaves
 * are evicted without a copy. */
static bool copied_first(struct core *c, struct pool *p, const uint32_t *need, uint32_t group)
{
    uint32_t leaf = writes_behind(p) ? evict_next(c, p) : NONE, free = group_free(p, group),
             missing = need[group] > free ? need[group] - free : 1;

    if (leaf == NONE || node_on_host(node_at(c, leaf)))
        return false;
    return reserve_ahead(c, p, div_up(missing, p->group[group].segment)) &&
           c->now_ns - p->copy_moved_ns < COPY_WAIT_MS_MAX * NS_PER_MS;
}

/* T12: superseded STATE first, wherever its pages help. A STATE group evicts only STATE before
 * whole leaves, and those slab by slab, since pages of HISTORY help it only as whole slabs. A
 * HISTORY group evicts STATE only if no leaf may be evicted. */
static enum tern_err make_some(struct core *c, struct pool *p, const uint32_t *need, uint32_t group,
                               bool copies)
{
    const struct group *g = &p->group[group];
    uint32_t used = g->held * g->pages_per_slab - g->count[PAGE_FREE];
    bool capped = g->layout.cap_pages && used + need[group] > g->layout.cap_pages;
    bool state = group_is_state(g);

    if ((state || (p->reclaim.n > 0 && !capped)) && evict_state(c, p))
        return TERN_OK;
    if (state && !capped && evict_slab(c, p))
        return TERN_OK;
    if (copies && copied_first(c, p, need, group))
        return TERN_BUSY;
    return evict_one(c, p) || (!state && !capped && evict_state(c, p)) ? TERN_OK
                                                                       : TERN_POOL_EXHAUSTED;
}

static enum tern_err make_copied(struct core *c, struct pool *p, const uint32_t *need,
                                 uint32_t group)
{
    return make_some(c, p, need, group, true);
}

static enum tern_err make_now(struct core *c, struct pool *p, const uint32_t *need, uint32_t group)
{
    return make_some(c, p, need, group, false);
}

/* Returns true if the end of checksum jobs, copies and stores would free enough. */
static bool later_is_enough(struct core *c, struct pool *p, const struct shortage *s)
{
    const uint32_t have = group_free(p, s->group) + p->group[s->group].obtainable;

    return obtain_later(c, s->group, p, s->needed > have ? s->needed - have : 1);
}

enum tern_err pages_make_room(struct core *c, struct engine *e, struct pool *p, struct page_need n,
                              struct shortage *ret)
{
    enum tern_err err;

    ret->goes_on = ret->storing = false;
    err = pages_admit(c, p, p, n, make_copied, ret);
    if (err != TERN_POOL_EXHAUSTED)
        return err;
    if (gives_back(c) || (ret->storing = disk_gives_way(c, p)))
        return TERN_BUSY;
    if (later_is_enough(c, p, ret)) {
        ret->storing = p->stores_due > 0;
        return TERN_BUSY;
    }
    return shortage_fill(c, e, p, ret);
}

struct reason room_never(const struct shortage *s)
{
    return (struct reason){NEVER_FITS, {s->needed, s->free}};
}

const char *room_busy(const struct shortage *s)
{
    return s->storing ? STORED_FIRST : MAKING_ROOM;
}

enum tern_err room_refused(struct reply *ret, enum tern_err err, const char *text)
{
    const struct reason never = room_never(&ret->shortage);

    if (err == TERN_QUOTA)
        return refuse_why(ret, err, &never);
    return refuse(ret, err, err == TERN_BUSY ? room_busy(&ret->shortage) : text);
}

enum tern_err pages_make_room_now(struct core *c, struct pool *p, const uint32_t *need)
{
    struct shortage unused;
    uint32_t end = piece_whole(c);
    enum tern_err err = pages_admit(c, p, p, (struct page_need){need, NULL}, make_now, &unused);

    c->piece_end = end;
    return err;
}
