/* See nodes.h. */

#include "core/memory/pages.h"
#include "core/tree/nodes.h"

#define COPY_PAGES_A_VISIT 4 /* pages taken for a copy, possibly each from another slab */

void copy_pages_count(const struct pool *p, uint32_t groups, uint32_t *need)
{
    for (uint32_t g = 0; g < p->ngroups; g++)
        need[g] += groups & 1u << g ? p->group[g].segment : 0;
}

bool copy_pages_promised(struct pool *p, uint32_t groups, uint32_t *promised)
{
    uint32_t need[GROUPS_MAX] = {0}, short_of;

    copy_pages_count(p, groups, need);
    pages_promise_take(p, promised, need);
    return pages_fit(p, false, need, &short_of);
}

static void pages_take(struct core *c, uint32_t slot, struct pool *p, uint32_t group)
{
    struct list pages = LIST_EMPTY;

    for (uint32_t i = 0; i < p->group[group].segment; i++)
        page_list_push(c, &pages, page_take(c, p, group, PAGE_COPYING, slot));
    c->visits += pages.n / COPY_PAGES_A_VISIT;
    node_at(c, slot)->group[group].copying = pages.head;
}

void copy_begin(struct core *c, uint32_t slot, enum tier to, uint32_t groups, enum copy_state state)
{
    struct node *n = node_at(c, slot);
    struct pool *p = pool_at(c, node_pool(c, n)->tiers[to]);

    for (uint32_t g = 0; g < p->ngroups; g++)
        if (groups & 1u << g)
            pages_take(c, slot, p, g);
    n->work.copy_from = to == TIER_HOST ? TIER_DEVICE : TIER_HOST;
    n->work.copy_to = (uint8_t)to;
    copy_state_move(&n->work.copy, state);
    c->visits += NODE_VISITS;
    node_changed(c, slot);
}

void copy_pages_attach(struct core *c, uint32_t slot)
{
    struct node *n = node_at(c, slot);

    for (uint32_t g = 0; g < c->limits.groups; g++) {
        if (n->group[g].copying == NONE)
            continue;
        /* T18 does not refill a segment that is being loaded. */
        check(n->group[g].pages[n->work.copy_to] == NONE);
        for (uint32_t at = n->group[g].copying; at != NONE; at = page_list_next(c, at)) {
            page_move(c, page_at(c, at), PAGE_COMMITTED, slot);
            page_seal_state_move(&page_at(c, at)->seal, PAGE_SEAL_DONE);
        }
        n->group[g].pages[n->work.copy_to] = n->group[g].copying;
        n->group[g].copying = NONE;
    }
    node_changed(c, slot);
}

void copy_pages_free(struct core *c, struct node *n)
{
    for (uint32_t g = 0; g < c->limits.groups; g++)
        chain_free(c, &n->group[g].copying);
}

void copy_unqueue(struct core *c, uint32_t slot)
{
    copy_list_remove(c, &tenant_at(c, node_pool(c, node_at(c, slot))->tenant)->copies_queued, slot);
    c->copies_queued--;
}

void copy_forget(struct core *c, uint32_t slot)
{
    struct node *n = node_at(c, slot);

    if (n->work.copy == COPY_NONE)
        return;
    check(copy_goes_to(n, TIER_HOST) && n->work.copy != COPY_RUNNING);
    if (n->work.copy == COPY_QUEUED) {
        copy_unqueue(c, slot);
        node_pool(c, n)->writebacks--;
    }
    copy_pages_free(c, n);
    copy_state_move(&n->work.copy, COPY_NONE);
    node_changed(c, slot);
    c->copies_lost++;
}
