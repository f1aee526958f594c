/* Releases and publications of an engine under a step, in ascending order of steps (E2, E3). A
 * record has pages that become FREE, a pin that ends, and nodes that become visible. */
#include "core/session/retires.h"

#include "core/memory/pages.h"
#include "core/session/engines.h"
#include "core/tier/host.h"
#include "core/transfer/serves.h"
#include "core/tree/nodes.h"
#include "core/tree/state.h"

#include <string.h>

bool retire_ready(const struct core *c, const struct engine *e, uint64_t step)
{
    return step <= e->done_min || share_room(c, SHARE_RETIRES, e->tenant) > 0;
}

static bool end_pin(struct core *c, struct path *pin, uint32_t end)
{
    return pin->node == NONE || state_path_end(c, pin, UINT32_MAX, REF_DEVICE, end);
}

/* Reverses the list, which a commit built from its end: parents become visible first. */
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

/* *last: see state_arrived. */
static void publish_node(struct core *c, uint32_t at, uint32_t *last)
{
    struct node *n = node_at(c, at);
    bool refilled = n->state.refilling != 0;

    n->pending_engine = n->work.publish_next = NONE;
    n->work.publish_step = 0;
    if (n->work.since_ns) {
        count_since(c, LATENCY_PUBLISH, n->work.since_ns);
        n->work.since_ns = c->now_ns;
    }
    if (refilled && n->work.seal == SEAL_DONE)
        seal_state_move(&n->work.seal, SEAL_NONE); /* refilled pages have no checksum yet */
    n->state.refilling = 0;
    seal_queue(c, at);
    tree_event(c, at, n->announced ? TREE_TIER : TREE_STORED);
    state_arrived(c, at, refilled, last);
    if (n->work.seal == SEAL_DONE)
        host_sealed(c, at);
    node_changed(c, at);
    c->visits += NODE_VISITS;
    touch(c);
}

/* Parents first, up to `end` visits. Returns false if *nodes has some left. */
static bool publish_nodes(struct core *c, uint32_t *nodes, uint32_t end)
{
    uint32_t last = NONE;

    while (*nodes != NONE && c->visits < end) {
        uint32_t at = *nodes;

        *nodes = node_at(c, at)->work.publish_next;
        publish_node(c, at, &last);
    }
    return *nodes == NONE;
}

static void retire_free(struct core *c, const struct engine *e, uint32_t slot)
{
    retire_slot_put(c, slot, e->tenant);
    c->nretires--;
}

/* Inserts a record for `step` into the engine's order, behind others of that step. After
 * RETIRE_LOOKS_MAX records of later steps the search ends, and the record waits for the step of the
 * next record found: a later step proves no less, and delays only this engine. */
static struct retire *retire_take(struct core *c, struct engine *e, uint64_t step)
{
    uint32_t slot = retire_slot_take(c, e->tenant), later = NONE, looks = 0;
    struct retire *r = retire_at(c, slot);

    c->nretires++;
    if (e->retires.n == 0)
        e->waits_since_ns = c->now_ns;
    for (uint32_t at = retire_list_last(c, &e->retires);
         at != NONE && retire_at(c, at)->step > step;
         at = retire_list_before(c, &e->retires, at), c->visits++) {
        if (looks++ == RETIRE_LOOKS_MAX) {
            step = retire_at(c, at)->step;
            break;
        }
        later = at;
    }
    retire_list_insert(c, &e->retires, slot, later);
    if (e->state == ENGINE_ENDING && e->drop_at == later) /* the engine's release starts with it */
        e->drop_at = slot;
    r->step = step;
    r->pending = NONE;
    r->turned = 0;
    r->pin = (struct path){.node = NONE};
    r->pages = LIST_EMPTY;
    r->pool = r->session = NONE;
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
        pages_free(c, pages);
        end_pin(c, &pin, UINT32_MAX);
        return;
    }
    r = retire_take(c, e, step);
    while (pages->n > 0)
        retire_add(c, r, page_list_pop(c, pages));
    r->pin = pin;
}

uint32_t retire_open(struct core *c, struct engine *e, uint64_t step, uint32_t session)
{
    struct retire *r;

    step_named(c, e, step);
    if (step <= e->done_min)
        return NONE;
    r = retire_take(c, e, step);
    r->session = session;
    return retire_slot(c, r);
}

void retire_add(struct core *c, struct retire *r, uint32_t page)
{
    page_move(c, page_at(c, page), PAGE_RETIRING, retire_slot(c, r));
    r->pool = page_at(c, page)->pool;
    r->pages_of[page_at(c, page)->group]++;
    page_list_push(c, &r->pages, page);
}

void retire_close(struct core *c, uint32_t record, struct path pin)
{
    retire_at(c, record)->session = NONE;
    retire_at(c, record)->pin = pin;
}

void retire_publish(struct core *c, struct engine *e, uint64_t step, uint32_t nodes)
{
    if (nodes == NONE)
        return;
    step_named(c, e, step);
    if (step > e->done_min) {
        retire_take(c, e, step)->pending = nodes;
        for (; nodes != NONE; nodes = node_at(c, nodes)->work.publish_next)
            node_at(c, nodes)->work.publish_step = step;
        return;
    }
    nodes = reversed(c, nodes);
    publish_nodes(c, &nodes, UINT32_MAX);
}

/* Returns false if more is left to do. */
static bool give_back(struct core *c, struct retire *r, uint32_t end)
{
    while (r->pages.n > 0) {
        uint32_t record = page_list_pop(c, &r->pages);

        r->pages_of[page_at(c, record)->group]--;
        page_free(c, record);
        if (++c->visits >= end)
            return false;
    }
    return end_pin(c, &r->pin, end);
}

/* Parents become visible first; a record that ends with its engine removes children first. */
static void turn(const struct core *c, struct retire *r, bool parents_first)
{
    if (r->turned != parents_first)
        r->pending = reversed(c, r->pending);
    r->turned = parents_first;
}

/* A step counts only when everything that waited for it is released. So a release at a passed step
 * never precedes releases that were named earlier, and records are never late. */
bool retire_advance(struct core *c, struct engine *e, uint32_t end)
{
    while (e->retires.head != NONE && retire_at(c, e->retires.head)->step <= e->passed) {
        struct retire *r = retire_at(c, e->retires.head);

        e->done_min = r->step - 1;
        waits_look(c, e);
        touch(c);
        if (c->visits >= end || r->session != NONE) /* sessions_flush works on it */
            return false;
        turn(c, r, true);
        if (!publish_nodes(c, &r->pending, end) || !give_back(c, r, end))
            return false;
        retire_free(c, e, retire_list_pop(c, &e->retires));
    }
    c->nbehind -= e->done_min < e->passed;
    e->done_min = e->passed;
    waits_look(c, e);
    return true;
}

bool retires_flush(struct core *c)
{
    uint32_t end = give_back_begin(c);
    bool all = true;

    for (uint32_t i = 0; i < c->limits.engines && c->nbehind > 0 && all; i++)
        if (engine_at(c, i)->done_min < engine_at(c, i)->passed)
            all = retire_advance(c, engine_at(c, i), end);
    return all;
}

static void drop_node(struct core *c, uint32_t slot)
{
    if (node_visible(node_at(c, slot)))
        state_unfill(c, slot);
    else if (node_on_host(node_at(c, slot)))
        node_demote(c, slot);
    else
        node_destroy(c, slot);
}

/* Ends the pins first, since they may pin pending nodes. Then removes the nodes, from the newest
 * record to the oldest and in each list the deepest first: a pending node has only pending
 * children, committed after it, so each is a leaf when it is removed. */
bool retire_drop_all(struct core *c, struct engine *e, uint32_t end)
{
    for (; e->drop_at != NONE; e->drop_at = retire_list_next(c, e->drop_at))
        if (!give_back(c, retire_at(c, e->drop_at), end))
            return false;
    while (e->retires.n > 0) {
        struct retire *r = retire_at(c, retire_list_last(c, &e->retires));

        turn(c, r, false);
        while (r->pending != NONE) {
            uint32_t slot = r->pending;

            if (c->visits >= end)
                return false;
            r->pending = node_at(c, slot)->work.publish_next;
            drop_node(c, slot);
            c->visits++;
        }
        retire_free(c, e, retire_list_pop_last(c, &e->retires));
    }
    return true;
}

uint64_t retire_until(const struct core *c, const struct engine *e, const struct pool *pool,
                      const struct shortage *s)
{
    uint32_t soon = s->free + s->evictable, missing = s->needed > soon ? s->needed - soon : 0;
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
