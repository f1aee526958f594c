/* What an engine gave back or published under a step, in ascending order of steps (E2, E3). A
 * record holds pages that become FREE, a pin that ends, nodes that become visible. */
#include "core/session/retires.h"

#include "core/memory/pages.h"
#include "core/session/steps.h"
#include "core/tier/host.h"
#include "core/transfer/seals.h"
#include "core/tree/events.h"
#include "core/tree/nodes.h"
#include "core/tree/state.h"

#include <string.h>

bool retire_ready(const struct core *c, const struct engine *e, uint64_t step)
{
    return step <= e->done_min || share_room(c, SHARE_RETIRES, e->tenant) > 0;
}

/* The borrows before the pin: it is what keeps the path there. */
static void apply_pages(struct core *c, struct list *pages, struct path pin)
{
    pages_free(c, pages);
    if (pin.node == NONE)
        return;
    state_unhold(c, pin);
    node_unpin(c, pin.node, REF_DEVICE);
}

/* The list is built from the end of the commit: parents are to be seen first. */
static uint32_t reversed(const struct core *c, uint32_t at)
{
    uint32_t before = NONE;

    for (uint32_t next; at != NONE; at = next) {
        next = node_at(c, at)->work.publish_next;
        node_at(c, at)->work.publish_next = before;
        before = at;
    }
    return before;
}

static void publish_nodes(struct core *c, uint32_t at)
{
    at = reversed(c, at);
    while (at != NONE) {
        struct node *n = node_at(c, at);
        uint32_t next = n->work.publish_next;

        n->pending_engine = n->work.publish_next = NONE;
        n->work.publish_step = 0;
        if (n->state.refilling && n->work.seal == SEAL_DONE)
            seal_state_move(&n->work.seal, SEAL_NONE); /* what was refilled has no checksum yet */
        n->state.refilling = 0;
        seal_queue(c, at);
        tree_event(c, at, n->announced ? TREE_TIER : TREE_STORED);
        state_arrived(c, at);
        if (n->work.seal == SEAL_DONE)
            host_sealed(c, at);
        node_offer(c, at);
        touch(c);
        at = next;
    }
}

static void record_put(struct core *c, struct engine *e)
{
    retire_slot_put(c, retire_list_pop(c, &e->retires));
    share_put(c, SHARE_RETIRES, e->tenant);
    c->nretires--;
    touch(c);
}

/* A record of the engine for `step`, in its place in the order; later ones of the same step come
 * behind. */
static struct retire *record_take(struct core *c, struct engine *e, uint64_t step)
{
    uint32_t slot = retire_slot_take(c), later = NONE;
    struct retire *r = retire_at(c, slot);

    share_take(c, SHARE_RETIRES, e->tenant);
    c->nretires++;
    if (e->retires.n == 0)
        e->waits_since_ns = c->now_ns;
    for (uint32_t at = retire_list_last(c, &e->retires);
         at != NONE && retire_at(c, at)->step > step; at = retire_list_before(c, &e->retires, at))
        later = at;
    retire_list_insert(c, &e->retires, slot, later);
    r->step = step;
    r->pending = NONE;
    r->pin = (struct path){.node = NONE};
    r->pages = LIST_EMPTY;
    r->pool = NONE;
    memset(r->pages_of, 0, sizeof r->pages_of);
    touch(c);
    return r;
}

void retire_release(struct core *c, struct engine *e, uint64_t step, struct list *pages,
                    struct path pin)
{
    struct retire *r;

    if (pages->n == 0 && pin.node == NONE)
        return;
    step_named(c, e, step);
    if (step <= e->done_min) {
        apply_pages(c, pages, pin);
        return;
    }
    r = record_take(c, e, step);
    for (uint32_t at = pages->head; at != NONE; at = page_list_next(c, at)) {
        page_move(c, page_at(c, at), PAGE_RETIRING, retire_slot(c, r));
        r->pool = page_at(c, at)->pool;
        r->pages_of[page_at(c, at)->group]++;
    }
    page_list_append(c, &r->pages, pages);
    r->pin = pin;
}

void retire_publish(struct core *c, struct engine *e, uint64_t step, uint32_t nodes)
{
    if (nodes == NONE)
        return;
    step_named(c, e, step);
    if (step <= e->done_min)
        publish_nodes(c, nodes);
    else
        record_take(c, e, step)->pending = nodes;
}

void retire_advance(struct core *c, struct engine *e)
{
    while (e->retires.head != NONE && retire_at(c, e->retires.head)->step <= e->done_min) {
        struct retire *r = retire_at(c, e->retires.head);

        publish_nodes(c, r->pending);
        apply_pages(c, &r->pages, r->pin);
        record_put(c, e);
    }
}

/* Pins first: they may hold pending nodes. Then those from the newest record to the oldest, each
 * list deepest first: a pending node has only pending children, committed after it, so each is a
 * leaf when its turn comes. */
void retire_drop_all(struct core *c, struct engine *e)
{
    for (uint32_t at = e->retires.head; at != NONE; at = retire_list_next(c, at)) {
        struct retire *r = retire_at(c, at);

        apply_pages(c, &r->pages, r->pin);
        r->pin.node = NONE;
    }
    for (uint32_t at = retire_list_last(c, &e->retires); at != NONE;
         at = retire_list_before(c, &e->retires, at))
        for (uint32_t n = retire_at(c, at)->pending, next; n != NONE; n = next) {
            next = node_at(c, n)->work.publish_next;
            if (node_visible(node_at(c, n)))
                state_unfill(c, n);
            else if (node_on_host(node_at(c, n)))
                node_demote(c, n);
            else
                node_destroy(c, n);
        }
    while (e->retires.n > 0)
        record_put(c, e);
}

uint64_t retire_until(const struct core *c, const struct engine *e, const struct pool *pool,
                      const struct shortage *s)
{
    uint32_t soon = s->free + s->reclaimable, missing = s->needed > soon ? s->needed - soon : 0;
    uint32_t have = 0, looked = 0, slot = pool_slot(c, pool);
    uint64_t last = 0;

    for (uint32_t at = e->retires.head; at != NONE && looked < SHORTAGE_RETIRES_MAX;
         at = retire_list_next(c, at), looked++) {
        const struct retire *r = retire_at(c, at);

        if (r->pool == slot)
            have += r->pages_of[s->group];
        if (have > 0 || r->pin.node != NONE || r->pending != NONE)
            last = r->step;
        if (have >= missing)
            break;
    }
    return last;
}
