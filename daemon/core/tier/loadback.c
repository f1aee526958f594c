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

void load_hold(struct core *c, struct path path)
{
    node_pool(c, node_at(c, path.node))->loads++;
    for (uint32_t at = path.node; node_at(c, at)->depth > path.state_from;
         at = node_at(c, at)->parent) {
        struct node *n = node_at(c, at);

        n->work.loaders++;
        node_changed(c, at);
        if (n->work.copy == COPY_CANCELLED)
            copy_state_move(&n->work.copy, COPY_RUNNING);
        state_settle(c, at);
    }
    touch(c);
}

/* Nobody waits for the node's copy any more. */
static void loadback_cancel(struct core *c, uint32_t slot)
{
    struct node *n = node_at(c, slot);

    if (n->work.copy == COPY_RUNNING) {
        copy_state_move(&n->work.copy, COPY_CANCELLED);
        return;
    }
    if (n->work.copy == COPY_QUEUED)
        copy_list_remove(c, &c->copies_queued, slot);
    copy_pages_free(c, n);
    copy_state_move(&n->work.copy, COPY_NONE);
    node_changed(c, slot);
}

void load_let_go(struct core *c, struct path path)
{
    node_pool(c, node_at(c, path.node))->loads--;
    for (uint32_t at = path.node, up; node_at(c, at)->depth > path.state_from; at = up) {
        struct node *n = node_at(c, at);

        up = n->parent;
        c->visits++;
        if (--n->work.loaders > 0)
            continue;
        if (copy_goes_to(n, TIER_DEVICE))
            loadback_cancel(c, at);
        state_settle(c, at);
        node_offer(c, at);
    }
    touch(c);
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

enum tern_err load_need(const struct core *c, struct path path, uint32_t *need)
{
    const struct pool *p = node_pool(c, node_at(c, path.node));

    for (uint32_t at = path.node; node_at(c, at)->depth > 0; at = node_at(c, at)->parent) {
        const struct node *n = node_at(c, at);

        if (node_on_device(n) && n->depth <= path.state_from)
            break; /* so is everything above it */
        if (!loads_any(p, n, path.state_from) || copy_goes_to(n, TIER_DEVICE))
            continue;
        if (n->tier[TIER_HOST].corrupt)
            return TERN_CORRUPT;
        if (n->work.copy != COPY_NONE || !node_visible(n))
            return TERN_BUSY;
        for (uint32_t g = 0; g < p->ngroups; g++)
            need[g] += loads(p, g, n, path.state_from) ? p->group[g].segment : 0;
    }
    return TERN_OK;
}

uint32_t load_begin(struct core *c, struct path path)
{
    struct pool *p = node_pool(c, node_at(c, path.node));
    uint32_t pages = 0, below = NONE;

    for (uint32_t at = path.node; node_at(c, at)->depth > 0; at = node_at(c, at)->parent) {
        struct node *n = node_at(c, at);

        if (node_on_device(n) && n->depth <= path.state_from)
            break;
        if (!loads_any(p, n, path.state_from) || copy_goes_to(n, TIER_DEVICE))
            continue;
        for (uint32_t g = 0; g < p->ngroups; g++)
            if (loads(p, g, n, path.state_from)) {
                copy_pages_take(c, at, p, g);
                pages += p->group[g].segment;
            }
        copy_begin(n, TIER_HOST, TIER_DEVICE, COPY_QUEUED);
        c->visits += NODE_VISITS;
        node_changed(c, at);
        state_settle(c, at);
        copy_list_insert(c, &c->copies_queued, at, below);
        below = at;
    }
    touch(c);
    return pages;
}

bool load_done(const struct core *c, struct path path)
{
    const struct pool *p = node_pool(c, node_at(c, path.node));

    if (!node_on_device(node_at(c, path.node)))
        return false;
    for (uint32_t at = path.node; node_at(c, at)->depth > path.state_from;
         at = node_at(c, at)->parent)
        if (copy_goes_to(node_at(c, at), TIER_DEVICE) ||
            loads_any(p, node_at(c, at), path.state_from))
            return false;
    return true;
}

enum tern_err load_failed(const struct core *c, struct path path)
{
    const struct pool *p = node_pool(c, node_at(c, path.node));

    for (uint32_t at = path.node; node_at(c, at)->depth > 0; at = node_at(c, at)->parent) {
        const struct node *n = node_at(c, at);

        if (node_on_device(n) && n->depth <= path.state_from)
            break;
        if (loads_any(p, n, path.state_from) && !copy_goes_to(n, TIER_DEVICE))
            return n->tier[TIER_HOST].corrupt ? TERN_CORRUPT : TERN_BUSY;
    }
    return TERN_OK;
}

/* Takes acknowledged copies in, from `slot` downwards, as writeback_settle does. */
static void loadback_settle(struct core *c, uint32_t slot)
{
    struct list work = LIST_EMPTY;
    uint32_t last = NONE;

    copy_list_push(c, &work, slot);
    while (work.n > 0) {
        uint32_t at = copy_list_pop(c, &work);
        struct node *n = node_at(c, at);

        if (!node_on_device(node_at(c, n->parent)))
            continue; /* it is looked at again with its parent */
        copy_pages_attach(c, at);
        copy_state_move(&n->work.copy, COPY_NONE);
        c->host_loads++;
        if (!node_on_device(n)) {
            node_arrive(c, at);
            seal_state_move(&n->work.seal, SEAL_DONE);
            tree_event(c, at, TREE_TIER);
        }
        touch(c);
        for (uint32_t kid = n->children.head; kid != NONE; kid = child_list_next(c, kid))
            if (copy_has_come(node_at(c, kid), TIER_DEVICE))
                copy_list_push_front(c, &work, kid);
        state_arrived(c, at, true, &last);
        node_offer(c, at);
    }
}

void loadback_acked(struct core *c, uint32_t slot, enum tern_err err)
{
    struct node *n = node_at(c, slot);

    if (err == TERN_OK && n->work.copy == COPY_RUNNING) {
        copy_state_move(&n->work.copy, COPY_DONE);
        loadback_settle(c, slot);
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
