/* What an engine gave back or published under a step, in ascending order of steps (E2, E3). A
 * record holds pages that become FREE, a pin that ends, nodes that become visible. */
#include "core/tree/events.h"
#include "core/tier/host.h"
#include "core/arena/machine.h"
#include "core/tree/state.h"

bool retire_ready(const struct core *c, const struct engine *e, uint64_t step)
{
    return step <= e->done_min || c->free_retires.n > 0;
}

/* The borrows before the pin: it is what keeps the path there. */
static void apply_pages(struct core *c, struct page_list *pages, uint32_t node, uint32_t low)
{
    pages_free(c, pages);
    if (node == NONE)
        return;
    state_unhold(c, node, low);
    node_unpin(c, node, REF_DEVICE);
}

/* The list is built from the end of the commit: parents are to be seen first. */
static uint32_t reversed(const struct core *c, uint32_t at)
{
    uint32_t before = NONE;

    for (uint32_t next; at != NONE; at = next) {
        next = node_at(c, at)->pending_next;
        node_at(c, at)->pending_next = before;
        before = at;
    }
    return before;
}

static void publish_nodes(struct core *c, uint32_t at)
{
    at = reversed(c, at);
    while (at != NONE) {
        struct node *n = node_at(c, at);
        uint32_t next = n->pending_next;

        n->pending_engine = n->pending_next = NONE;
        n->pending_step = 0;
        if (n->state_pending && n->seal == SEAL_DONE)
            n->seal = SEAL_NO; /* what was refilled has no checksum yet */
        n->state_pending = 0;
        seal_queue(c, at);
        tree_event(c, at, n->stored ? TREE_TIER : TREE_STORED);
        state_arrived(c, at);
        if (n->seal == SEAL_DONE)
            host_sealed(c, at);
        node_offer(c, at);
        touch(c);
        at = next;
    }
}

static void record_put(struct core *c, struct engine *e, uint32_t slot)
{
    struct retire *r = retire_at(c, slot);

    e->retire_head = r->next;
    if (r->next == NONE)
        e->retire_tail = NONE;
    else
        retire_at(c, r->next)->prev = NONE;
    r->next = c->free_retires.head;
    c->free_retires.head = slot;
    c->free_retires.n++;
    c->nretires--;
    touch(c);
}

/* A record of the engine for `step`, in its place in the order; later ones of the same step come
 * behind. */
static struct retire *record_take(struct core *c, struct engine *e, uint64_t step)
{
    uint32_t slot = c->free_retires.head, after = e->retire_tail;
    struct retire *r = retire_at(c, slot);

    check(slot != NONE);
    c->free_retires.head = r->next;
    c->free_retires.n--;
    c->nretires++;
    while (after != NONE && retire_at(c, after)->step > step)
        after = retire_at(c, after)->prev;
    r->step = step;
    r->prev = after;
    r->next = after == NONE ? e->retire_head : retire_at(c, after)->next;
    if (r->prev == NONE)
        e->retire_head = slot;
    else
        retire_at(c, r->prev)->next = slot;
    if (r->next == NONE)
        e->retire_tail = slot;
    else
        retire_at(c, r->next)->prev = slot;
    r->node = r->pending = NONE;
    r->low = 0;
    list_init(&r->pages);
    touch(c);
    return r;
}

void retire_release(struct core *c, struct engine *e, uint64_t step, struct page_list *pages,
                    uint32_t node, uint32_t low)
{
    struct retire *r;

    if (BUG(CORE_BUG_UNPIN_UNFENCED) && node != NONE) {
        state_unhold(c, node, low);
        node_unpin(c, node, REF_DEVICE);
        node = NONE;
    }
    if (pages->n == 0 && node == NONE)
        return;
    if (step <= e->done_min || BUG(CORE_BUG_FREE_UNFENCED)) {
        apply_pages(c, pages, node, low);
        return;
    }
    r = record_take(c, e, step);
    for (uint32_t at = pages->head; at != NONE; at = page_at(c, at)->next)
        page_move(c, page_at(c, at), PAGE_RETIRING, (uint32_t)(r - retire_at(c, 0)));
    list_concat(c, &r->pages, pages);
    r->node = node;
    r->low = low;
}

void retire_publish(struct core *c, struct engine *e, uint64_t step, uint32_t nodes)
{
    if (nodes == NONE)
        return;
    if (step <= e->done_min)
        publish_nodes(c, nodes);
    else
        record_take(c, e, step)->pending = nodes;
}

void retire_advance(struct core *c, struct engine *e)
{
    while (e->retire_head != NONE && retire_at(c, e->retire_head)->step <= e->done_min) {
        struct retire *r = retire_at(c, e->retire_head);

        publish_nodes(c, r->pending);
        apply_pages(c, &r->pages, r->node, r->low);
        record_put(c, e, e->retire_head);
    }
}

/* Pins first: they may hold pending nodes. Then those from the newest record to the oldest, each
 * list deepest first: a pending node has only pending children, committed after it, so each is a
 * leaf when its turn comes. */
void retire_drop_all(struct core *c, struct engine *e)
{
    for (uint32_t at = e->retire_head; at != NONE; at = retire_at(c, at)->next) {
        struct retire *r = retire_at(c, at);

        apply_pages(c, &r->pages, r->node, r->low);
        r->node = NONE;
    }
    for (uint32_t at = e->retire_tail; at != NONE; at = retire_at(c, at)->prev)
        for (uint32_t n = retire_at(c, at)->pending, next; n != NONE; n = next) {
            next = node_at(c, n)->pending_next;
            if (node_visible(node_at(c, n)))
                state_unfill(c, n);
            else if (node_at(c, n)->on_host)
                node_demote(c, n);
            else
                node_destroy(c, n);
        }
    while (e->retire_head != NONE)
        record_put(c, e, e->retire_head);
}

uint64_t retire_until(const struct core *c, const struct engine *e, uint32_t pool, uint32_t group,
                      uint32_t missing)
{
    uint32_t have = 0, scanned = 0;
    uint64_t last = 0;

    for (uint32_t at = e->retire_head; at != NONE; at = retire_at(c, at)->next) {
        const struct retire *r = retire_at(c, at);

        for (uint32_t p = r->pages.head; p != NONE && scanned < EVICT_SCAN_MAX;
             p = page_at(c, p)->next, scanned++)
            have += page_at(c, p)->pool == pool && page_at(c, p)->group == group;
        if (have > 0 || r->node != NONE || r->pending != NONE)
            last = r->step;
        if (have >= missing)
            break;
    }
    return last;
}
