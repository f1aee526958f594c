/* Load-backs: copies of host pages on the device, for sessions that need the node there. See
 * host.h. A node with a queued or running one stays on the host: its copy state holds it there. */
#include "core/tier/host.h"

#include "core/tree/copies.h"
#include "core/tree/events.h"
#include "core/tree/state.h"
#include "core/tree/tokens.h"

uint32_t host_down(struct core *c, uint32_t at, struct token_view *w)
{
    const uint32_t from = at;
    uint32_t child;

    if (node_pool(c, node_at(c, at))->tiers[TIER_HOST] == NONE ||
        space_at(c, node_at(c, at)->space)->reset)
        return at;
    while (w->end - node_at(c, at)->depth >= w->align) {
        const struct node *n;

        child = node_child(c, at, w);
        n = node_at(c, child == NONE ? 0 : child);
        if (child == NONE || !node_visible(n) ||
            !(node_on_device(n) || (node_on_host(n) && !n->tier[TIER_HOST].corrupt)))
            break;
        at = child;
    }
    /* The chunk that differs is looked at, too. */
    walked(c, (1 + (node_at(c, at)->depth - node_at(c, from)->depth) / w->align) *
                  tokens_blocks_per_chunk(w->align));
    return at;
}

uint32_t host_above(struct core *c, struct host_reach reach)
{
    const uint32_t least = node_at(c, reach.from)->depth,
                   at = state_above_on_both(c, (struct path){reach.to, least});

    return node_at(c, at)->depth > least ? at : reach.from;
}

uint32_t host_walk(struct core *c, uint32_t from, struct token_view *w)
{
    return host_above(c, (struct host_reach){.from = from, .to = host_down(c, from, w)});
}

uint32_t load_device_end(const struct core *c, uint32_t slot)
{
    const uint32_t align = node_pool(c, node_at(c, slot))->align;
    uint32_t most = node_at(c, slot)->depth / align, least = 0;

    while (least < most) {
        uint32_t mid = (least + most + 1) / 2;

        if (node_on_device(node_at(c, node_above(c, (struct path){slot, mid * align}))))
            least = mid;
        else
            most = mid - 1;
    }
    return node_above(c, (struct path){slot, least * align});
}

bool load_passed(const struct core *c, const struct session *s)
{
    return node_at(c, s->load.at)->depth <= s->load.low;
}

/* Nobody waits for the node's copy any more. */
static void loadback_cancel(struct core *c, uint32_t slot)
{
    struct node *n = node_at(c, slot);

    if (n->work.copy == COPY_RUNNING) {
        copy_state_move(&n->work.copy, COPY_CANCELLED);
        return;
    }
    if (copy_list_has(c, slot))
        copy_list_remove(c, n->work.copy == COPY_QUEUED ? &c->copies_queued : &c->copies_come,
                         slot);
    copy_pages_free(c, n);
    copy_state_move(&n->work.copy, COPY_NONE);
}

/* The node has the load among its loaders, or no longer. Meanwhile the session is not content with
 * the host's copy of its STATE, and borrows what a fetch brings. Where a load has come it stays so.
 */
static void load_hold(struct core *c, const struct session *s, uint32_t slot, bool on)
{
    struct node *n = node_at(c, slot);
    const uint32_t by = on ? 1 : UINT32_MAX;

    n->work.loaders += by;
    if (s->load.state != LOAD_ENDING && pool_at(c, s->pool)->nstate > 0) {
        n->state.borrowers += n->depth > s->load.from ? by : 0;
        n->state.host_borrowers -= n->depth > s->lent_from ? by : 0;
    }
    if (on && n->work.copy == COPY_CANCELLED)
        copy_state_move(&n->work.copy, COPY_RUNNING);
    if (n->work.loaders == 0 && copy_goes_to(n, TIER_DEVICE))
        loadback_cancel(c, slot);
    state_settle(c, slot);
    node_offer(c, slot);
    c->visits++;
    touch(c);
}

bool load_let_go(struct core *c, struct session *s, uint32_t end)
{
    struct load *l = &s->load;

    while (l->hold.node != NONE) {
        uint32_t at = l->hold.node;

        if (node_at(c, at)->depth <= l->hold.state_from) {
            l->hold.node = NONE;
            break;
        }
        if (c->visits >= end)
            return false;
        l->hold.node = node_at(c, at)->parent;
        load_hold(c, s, at, false);
    }
    if (l->state == LOAD_ENDING || l->state == LOAD_LEAVING)
        load_state_move(&l->state, LOAD_NONE);
    return true;
}

/* Are the pages of group g missing on the device, and is the host able to give them? */
static bool loads(const struct pool *p, uint32_t g, const struct node *n, uint32_t state_from)
{
    return n->group[g].pages[TIER_DEVICE] == NONE && n->group[g].pages[TIER_HOST] != NONE &&
           (!group_is_state(&p->group[g]) || n->depth > state_from);
}

static bool loads_any(const struct pool *p, const struct node *n, uint32_t state_from)
{
    for (uint32_t g = 0; g < p->ngroups; g++)
        if (loads(p, g, n, state_from))
            return true;
    return false;
}

/* The same, and does no copy bring them? */
static bool lacks_any(const struct pool *p, const struct node *n, uint32_t state_from)
{
    return loads_any(p, n, state_from) && !copy_goes_to(n, TIER_DEVICE);
}

/* Adds the pages for which a copy of the node is to begin. CORRUPT, BUSY: it cannot. */
static enum tern_err load_need(const struct session *s, const struct pool *p, const struct node *n,
                               uint32_t *need, bool *ret_commit)
{
    *ret_commit = true;
    if (n->state.refilling && n->depth > s->load.state_from)
        return TERN_BUSY;
    if (!lacks_any(p, n, s->load.state_from))
        return TERN_OK;
    if (n->tier[TIER_HOST].corrupt)
        return TERN_CORRUPT;
    *ret_commit = n->work.copy == COPY_NONE;
    if (n->work.copy != COPY_NONE || !node_visible(n))
        return TERN_BUSY;
    for (uint32_t g = 0; g < p->ngroups; g++)
        need[g] += loads(p, g, n, s->load.state_from) ? p->group[g].segment : 0;
    return TERN_OK;
}

static void loadback_begin(struct core *c, struct session *s, uint32_t slot)
{
    struct node *n = node_at(c, slot);
    struct pool *p = pool_at(c, s->pool);

    for (uint32_t g = 0; g < p->ngroups; g++)
        if (loads(p, g, n, s->load.state_from))
            copy_pages_take(c, slot, p, g);
    copy_begin(n, TIER_HOST, TIER_DEVICE, COPY_QUEUED);
    c->visits += NODE_VISITS;
    node_changed(c, slot);
    state_settle(c, slot);
    copy_list_push_front(c, &s->load.begun, slot);
}

/* Makes the load one of the node's loaders, and begins its copy where it needs one. */
static enum tern_err load_begin(struct core *c, struct session *s, uint32_t at, bool *ret_commit)
{
    struct load *l = &s->load;
    struct pool *p = pool_at(c, s->pool);
    uint32_t need[GROUPS_MAX] = {0}, short_of;

    if (node_at(c, at)->depth <= l->hold.state_from) {
        load_hold(c, s, at, true);
        l->hold.state_from = node_at(c, node_at(c, at)->parent)->depth;
    }
    TRY(load_need(s, p, node_at(c, at), need, ret_commit));
    if (!lacks_any(p, node_at(c, at), l->state_from))
        return TERN_OK;
    pages_promise_take(p, s->promised, need);
    if (!pages_fit(c, p, need, &short_of)) /* more than was promised */
        return TERN_POOL_EXHAUSTED;
    loadback_begin(c, s, at);
    return TERN_OK;
}

enum tern_err load_walk(struct core *c, struct session *s, uint32_t end, bool *ret_commit)
{
    struct load *l = &s->load;
    const struct pool *p = pool_at(c, s->pool);

    for (uint32_t n = 1; !load_passed(c, s) && c->visits < end; n++) {
        if (l->state == LOAD_COMING && loads_any(p, node_at(c, l->at), l->state_from))
            return TERN_OK;
        if (l->state == LOAD_BEGINNING)
            TRY(load_begin(c, s, l->at, ret_commit));
        else if (l->state != LOAD_COMING)
            TRY(load_need(s, p, node_at(c, l->at), s->promised, ret_commit));
        c->visits += n % NODES_A_VISIT == 0;
        l->at = node_at(c, l->at)->parent;
    }
    return TERN_OK;
}

void load_queue(struct core *c, struct session *s)
{
    pages_promise_take(pool_at(c, s->pool), s->promised, s->promised);
    copy_list_append(c, &c->copies_queued, &s->load.begun);
}

/* Takes an acknowledged copy in, and with it those below it that waited for it. */
static void loadback_take(struct core *c, uint32_t at, uint32_t *last)
{
    struct node *n = node_at(c, at);

    c->visits++;
    if (!node_on_device(node_at(c, n->parent)))
        return; /* it is looked at again with its parent */
    copy_pages_attach(c, at);
    copy_state_move(&n->work.copy, COPY_NONE);
    c->host_loads++;
    c->visits += NODE_VISITS;
    if (!node_on_device(n)) {
        node_arrive(c, at);
        seal_state_move(&n->work.seal, SEAL_DONE);
        tree_event(c, at, TREE_TIER);
    }
    touch(c);
    walked(c, n->children.n);
    for (uint32_t kid = n->children.head; kid != NONE; kid = child_list_next(c, kid))
        if (copy_has_come(node_at(c, kid), TIER_DEVICE) && !copy_list_has(c, kid))
            copy_list_push_front(c, &c->copies_come, kid);
    state_arrived(c, at, true, last);
    node_offer(c, at);
}

bool loads_flush(struct core *c)
{
    uint32_t last = NONE;

    piece_begin(c);
    while (c->copies_come.n > 0) {
        if (piece_over(c))
            return false;
        loadback_take(c, copy_list_pop(c, &c->copies_come), &last);
    }
    return true;
}

void loadback_acked(struct core *c, uint32_t slot, enum tern_err err)
{
    struct node *n = node_at(c, slot);

    if (err == TERN_OK && n->work.copy == COPY_RUNNING) {
        copy_state_move(&n->work.copy, COPY_DONE);
        copy_list_push(c, &c->copies_come, slot);
        return;
    }
    copy_pages_free(c, n);
    copy_state_move(&n->work.copy, COPY_NONE);
    if (err != TERN_OK) {
        c->copies_lost++;
        c->corrupt_detected += err == TERN_CORRUPT;
        if (err == TERN_CORRUPT && !n->tier[TIER_HOST].corrupt)
            c->host_corrupt++;
        n->tier[TIER_HOST].corrupt |= err == TERN_CORRUPT;
    }
    state_settle(c, slot);
    node_offer(c, slot);
}
