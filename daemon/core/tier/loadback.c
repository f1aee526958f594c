/* Load-backs: copies of host pages on the device, for sessions that need the node there. See
 * host.h. While a load-back is queued or running, its copy state holds the node on the host. */
#include "core/tier/host.h"

#include "core/arena/actions.h"
#include "core/busy.h"
#include "core/tree/nodes.h"
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
            !(node_on_device(n) || (node_on_host(n) && !n->host_corrupt)))
            break;
        at = child;
    }
    /* Also count the first chunk that differs. */
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

bool load_passed(const struct core *c, const struct session *s)
{
    return node_at(c, s->load.at)->depth <= s->load.low;
}

/* Cancels a node's copy that nobody waits for any more. */
static void loadback_cancel(struct core *c, uint32_t slot)
{
    struct node *n = node_at(c, slot);

    if (n->work.copy == COPY_RUNNING) {
        copy_state_move(&n->work.copy, COPY_CANCELLED);
        return;
    }
    if (n->work.copy == COPY_QUEUED && copy_list_has(c, slot))
        copy_unqueue(c, slot);
    else if (copy_list_has(c, slot))
        copy_list_remove(c, &c->copies_come, slot);
    copy_pages_free(c, n);
    copy_state_move(&n->work.copy, COPY_NONE);
}

/* Adds the load to the node's loaders, or removes it. During a load the session needs STATE on the
 * device: it borrows the node's STATE there, including STATE that a fetch delivers, and not the
 * host's copy. A finished load keeps these borrows. */
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

    while (l->hold.node != NONE && node_at(c, l->hold.node)->depth > l->hold.state_from) {
        uint32_t at = l->hold.node;

        if (c->visits >= end)
            return false;
        l->hold.node = node_at(c, at)->parent;
        load_hold(c, s, at, false);
    }
    l->hold.node = NONE;
    if (l->state == LOAD_ENDING || l->state == LOAD_LEAVING)
        load_state_move(&l->state, LOAD_NONE);
    return true;
}

/* Returns bits of the node's groups that the device lacks and the host can supply. */
static uint32_t device_lacks(const struct pool *p, const struct node *n, uint32_t state_from)
{
    uint32_t groups = 0;

    for (uint32_t g = 0; g < p->ngroups; g++)
        if (n->group[g].pages[TIER_DEVICE] == NONE && n->group[g].pages[TIER_HOST] != NONE &&
            (!group_is_state(&p->group[g]) || n->depth > state_from))
            groups |= 1u << g;
    return groups;
}

/* Finds the groups whose copy has to begin. CORRUPT, BUSY: it cannot begin. */
static enum tern_err wants_copy(const struct pool *p, const struct node *n, uint32_t state_from,
                                uint32_t *ret_groups, struct reply *why)
{
    const uint32_t lacks = device_lacks(p, n, state_from);

    *ret_groups = 0;
    if (n->state.refilling && n->depth > state_from)
        return refuse(why, TERN_BUSY, LOAD_AWAITS_COMMIT);
    if (lacks == 0 || copy_goes_to(n, TIER_DEVICE))
        return TERN_OK;
    if (n->host_corrupt)
        return refuse(why, TERN_CORRUPT, LOAD_CORRUPT);
    if (n->work.copy != COPY_NONE)
        return refuse(why, TERN_BUSY, LOAD_AWAITS_COPY);
    if (!node_visible(n))
        return refuse(why, TERN_BUSY, LOAD_AWAITS_COMMIT);
    *ret_groups = lacks;
    return TERN_OK;
}

/* Adds the load to the node's loaders, and begins the node's copy of these groups. */
static enum tern_err load_begin(struct core *c, struct session *s, uint32_t groups)
{
    struct load *l = &s->load;
    const struct node *n = node_at(c, l->at);

    if (n->depth <= l->hold.state_from) {
        load_hold(c, s, l->at, true);
        l->hold.state_from = node_at(c, n->parent)->depth;
    }
    if (groups == 0)
        return TERN_OK;
    if (!copy_pages_promised(pool_at(c, s->pool), groups, s->promised))
        return TERN_POOL_EXHAUSTED;
    copy_begin(c, l->at, TIER_DEVICE, groups, COPY_QUEUED);
    state_settle(c, l->at);
    copy_list_push_front(c, &l->begun, l->at);
    return TERN_OK;
}

enum tern_err load_walk(struct core *c, struct session *s, uint32_t end, struct reply *why)
{
    struct load *l = &s->load;
    const struct pool *p = pool_at(c, s->pool);

    for (uint32_t n = 1; !load_passed(c, s) && c->visits < end; n++) {
        const struct node *at = node_at(c, l->at);
        uint32_t groups = 0;

        if (l->state == LOAD_COMING && device_lacks(p, at, l->state_from) != 0)
            return TERN_OK;
        if (l->state != LOAD_COMING)
            TRY(wants_copy(p, at, l->state_from, &groups, why));
        if (l->state == LOAD_BEGINNING)
            TRY(load_begin(c, s, groups));
        else
            copy_pages_count(p, groups, s->promised);
        c->visits += n % NODES_A_VISIT == 0;
        l->at = node_at(c, l->at)->parent;
    }
    return TERN_OK;
}

void load_queue(struct core *c, struct session *s)
{
    pages_promise_take(pool_at(c, s->pool), s->promised, s->promised);
    c->copies_queued += s->load.begun.n;
    copy_list_append(c, &tenant_at(c, pool_at(c, s->pool)->tenant)->copies_queued, &s->load.begun);
}

/* Attaches an acknowledged copy, and queues copies of children that waited for it. */
static void loadback_take(struct core *c, uint32_t at, uint32_t *last)
{
    struct node *n = node_at(c, at);

    c->visits++;
    if (!node_on_device(node_at(c, n->parent)))
        return; /* its parent's copy checks it again */
    copy_pages_attach(c, at);
    copy_state_move(&n->work.copy, COPY_NONE);
    c->counts.host_loads++;
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

    if (c->copies_come.n > 0)
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
        c->counts.corrupt_detected += err == TERN_CORRUPT;
        if (err == TERN_CORRUPT && !n->host_corrupt)
            c->host_corrupt++;
        n->host_corrupt |= err == TERN_CORRUPT;
    }
    state_settle(c, slot);
    node_offer(c, slot);
}
