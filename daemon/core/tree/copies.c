/* See copies.h. */
#include "core/tree/copies.h"

#include "core/tree/nodes.h"

void copy_pages_take(struct core *c, uint32_t slot, struct pool *p, uint32_t group)
{
    struct list pages = LIST_EMPTY;

    for (uint32_t i = 0; i < p->group[group].segment; i++)
        page_list_push(c, &pages, page_take(c, p, group, PAGE_COPYING, slot));
    node_at(c, slot)->work.copy_pages[group] = pages.head;
}

void copy_pages_attach(struct core *c, uint32_t slot)
{
    struct node *n = node_at(c, slot);
    uint32_t *heads = n->tier[n->work.copy_to].pages;

    for (uint32_t g = 0; g < GROUPS_MAX; g++) {
        if (n->work.copy_pages[g] == NONE)
            continue;
        check(heads[g] == NONE); /* T18 does not fill what is being loaded */
        for (uint32_t at = n->work.copy_pages[g]; at != NONE; at = page_list_next(c, at)) {
            page_move(c, page_at(c, at), PAGE_COMMITTED, slot);
            page_seal_state_move(&page_at(c, at)->seal, PAGE_SEAL_DONE);
        }
        heads[g] = n->work.copy_pages[g];
        n->work.copy_pages[g] = NONE;
    }
    node_changed(c, slot);
}

void copy_pages_free(struct core *c, struct node *n)
{
    for (uint32_t g = 0; g < GROUPS_MAX; g++)
        chain_free(c, &n->work.copy_pages[g]);
}

void copy_forget(struct core *c, uint32_t slot)
{
    struct node *n = node_at(c, slot);

    if (n->work.copy == COPY_NONE)
        return;
    check(copy_goes_to(n, TIER_HOST) && n->work.copy != COPY_RUNNING);
    if (n->work.copy == COPY_QUEUED)
        copy_list_remove(c, &c->copies_queued, slot);
    copy_pages_free(c, n);
    copy_state_move(&n->work.copy, COPY_NONE);
    node_changed(c, slot);
    c->copy_failed = 1;
}
