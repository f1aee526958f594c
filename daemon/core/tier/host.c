/* Copies between the tiers. See host.h.
 *
 * A node's `moving` pages are COPYING: of the host tier for BACK, of the device for LOAD. They
 * become its host or device pages when the copy is acknowledged and its parent is on that tier;
 * until then nobody sees them (T16). While a copy is queued or running the node stays on the tier
 * that is read: by a JOB ref on the device, by `copy` itself on the host. */
#include "core/tier/host.h"

#include "core/arena/machine.h"
#include "core/tree/events.h"
#include "core/tree/state.h"

static bool is_back(const struct node *n)
{
    return n->work.copy >= COPY_WRITEBACK_WAITING && n->work.copy <= COPY_WRITEBACK_DONE;
}

static bool is_load(const struct node *n)
{
    return n->work.copy >= COPY_LOADBACK_QUEUED && n->work.copy <= COPY_LOADBACK_DONE;
}

static struct pool *pool_of(const struct core *c, const struct node *n)
{
    return pool_at(c, n->pool);
}

/* --- pages --- */

static void take_moving(struct core *c, struct pool *p, uint32_t slot, uint32_t group)
{
    struct list pages;

    pages = LIST_EMPTY;
    for (uint32_t i = 0; i < p->group[group].segment; i++)
        page_list_push(c, &pages, page_take(c, p, group, PAGE_COPYING, slot));
    node_at(c, slot)->work.copy_pages[group] = pages.head;
}

static void free_moving(struct core *c, struct node *n)
{
    for (uint32_t g = 0; g < GROUPS_MAX; g++)
        chain_free(c, &n->work.copy_pages[g]);
}

static void attach_moving(struct core *c, uint32_t slot, uint32_t *heads)
{
    struct node *n = node_at(c, slot);

    for (uint32_t g = 0; g < GROUPS_MAX; g++) {
        if (n->work.copy_pages[g] == NONE)
            continue;
        check(heads[g] == NONE); /* T18 does not fill what is being loaded */
        for (uint32_t at = n->work.copy_pages[g]; at != NONE; at = page_list_next(c, at)) {
            page_move(c, page_at(c, at), PAGE_COMMITTED, slot);
            page_at(c, at)->sealed = SEAL_DONE;
        }
        heads[g] = n->work.copy_pages[g];
        n->work.copy_pages[g] = NONE;
    }
}

/* --- writing back --- */

/* What of the node the host lacks and could be given now. */
static bool lacks(const struct pool *p, const struct node *n, uint32_t g)
{
    return n->pages[g] != NONE && (n->tiers.host_pages[g] == NONE || n->tiers.host_corrupt) &&
           !(group_is_state(&p->group[g]) &&
             (state_reclaimable(n) || n->state.refilling & 1u << g));
}

static bool lacks_any(const struct pool *p, const struct node *n)
{
    for (uint32_t g = 0; g < p->ngroups; g++)
        if (lacks(p, n, g))
            return true;
    return false;
}

static bool host_room(struct core *c, struct pool *p, const uint32_t *need, uint32_t *ret_group)
{
    while (!pages_fit(c, pool_at(c, p->other), need, ret_group))
        if (!host_evict_one(c, p))
            return false;
    return true;
}

static bool checksums_known(const struct core *c, const struct node *n)
{
    for (uint32_t g = 0; g < GROUPS_MAX; g++)
        for (uint32_t at = n->work.copy_pages[g] == NONE ? NONE : n->pages[g]; at != NONE;
             at = page_list_next(c, at))
            if (page_at(c, at)->sealed != SEAL_DONE)
                return false;
    return node_visible(n);
}

static void back_queue(struct core *c, uint32_t slot)
{
    copy_state_move(&node_at(c, slot)->work.copy, COPY_WRITEBACK_QUEUED);
    copy_list_push(c, &c->copies_queued, slot);
}

/* There is room. */
static void back_begin(struct core *c, uint32_t slot)
{
    struct node *n = node_at(c, slot);
    struct pool *p = pool_of(c, n);

    for (uint32_t g = 0; g < p->ngroups; g++)
        if (lacks(p, n, g))
            take_moving(c, pool_at(c, p->other), slot, g);
    if (!node_on_host(n))
        node_at(c, n->parent)->tiers.host_children++;
    copy_state_move(&n->work.copy, COPY_WRITEBACK_WAITING);
    if (checksums_known(c, n))
        back_queue(c, slot);
    state_settle(c, slot);
    touch(c);
}

/* A node that is ready, and has its parent on the host or on the way there. */
static bool back_wanted(const struct core *c, const struct node *n)
{
    const struct pool *p = pool_of(c, n);
    const struct node *parent = node_at(c, n->parent);

    return p->other != NONE && p->state == POOL_OPEN && n->work.seal == SEAL_DONE &&
           n->work.copy == COPY_NONE && (!node_on_host(n) || n->tiers.host_corrupt) &&
           node_on_device(n) && node_visible(n) && !space_at(c, n->space)->reset &&
           (node_on_host(parent) || is_back(parent));
}

static bool back_if_room(struct core *c, uint32_t slot)
{
    const struct node *n = node_at(c, slot);
    struct pool *p = pool_of(c, n);
    uint32_t need[GROUPS_MAX] = {0}, group;
    /* Making room must not take what it hangs on, nor what it has there and so does not count. */
    uint32_t held = node_on_host(n) && !n->tiers.host_corrupt ? slot : n->parent;
    bool room;

    for (uint32_t g = 0; g < p->ngroups; g++)
        need[g] = lacks(p, n, g) ? p->group[g].segment : 0;
    node_pin(c, held, REF_HOST);
    room = host_room(c, p, need, &group);
    if (room)
        back_begin(c, slot);
    node_unpin(c, held, REF_HOST);
    return room;
}

void host_sealed(struct core *c, uint32_t slot)
{
    const struct node *n = node_at(c, slot);

    if (n->work.copy == COPY_WRITEBACK_WAITING && checksums_known(c, n)) {
        back_queue(c, slot);
        return;
    }
    /* A commit of several chunks is sealed from its end up: with the first the rest goes. Siblings
     * come when their parent's copy is acknowledged. */
    while (slot != NONE && back_wanted(c, node_at(c, slot)) && back_if_room(c, slot)) {
        slot = node_at(c, slot)->children.head;
        while (slot != NONE && !back_wanted(c, node_at(c, slot)))
            slot = child_list_next(c, slot);
    }
}

/* What a session at `slot` that borrows STATE deeper than `low` has to find on the host. */
static bool must_have(const struct pool *p, const struct node *n, uint32_t low)
{
    if (!node_on_host(n) || n->tiers.host_corrupt)
        return true;
    for (uint32_t g = 0; g < p->ngroups && n->depth > low; g++)
        if (lacks(p, n, g))
            return true;
    return false;
}

enum tern_err host_back_path(struct core *c, uint32_t slot, uint32_t low, struct shortage *ret)
{
    struct pool *p = pool_of(c, node_at(c, slot));
    uint32_t need[GROUPS_MAX] = {0}, deepest = slot, group;
    bool room;

    while (!node_on_host(node_at(c, deepest)))
        deepest = node_at(c, deepest)->parent;
    for (uint32_t at = slot; node_at(c, at)->depth > 0; at = node_at(c, at)->parent) {
        const struct node *n = node_at(c, at);

        for (uint32_t g = 0; g < p->ngroups && n->work.copy == COPY_NONE && must_have(p, n, low);
             g++)
            need[g] += lacks(p, n, g) ? p->group[g].segment : 0;
    }
    node_pin(c, deepest, REF_HOST);
    room = host_room(c, p, need, &group);
    if (room)
        for (uint32_t at = slot; node_at(c, at)->depth > 0; at = node_at(c, at)->parent) {
            const struct node *n = node_at(c, at);

            if (n->work.copy == COPY_NONE && must_have(p, n, low) && lacks_any(p, n))
                back_begin(c, at);
        }
    node_unpin(c, deepest, REF_HOST);
    if (room)
        return TERN_OK;
    *ret = (struct shortage){
        .group = group, .needed = need[group], .free = group_free(c, pool_at(c, p->other), group)};
    return TERN_POOL_EXHAUSTED;
}

bool host_has_path(const struct core *c, uint32_t slot, uint32_t low)
{
    const struct pool *p = pool_of(c, node_at(c, slot));

    if (!node_on_host(node_at(c, slot)))
        return false;
    for (uint32_t at = slot; node_at(c, at)->depth > (c->host_corrupt ? 0 : low);
         at = node_at(c, at)->parent)
        if (is_back(node_at(c, at)) || must_have(p, node_at(c, at), low) ||
            node_at(c, at)->state.refilling) /* a refill will have to be copied */
            return false;
    return true;
}

bool host_path_lacks(const struct core *c, uint32_t slot, uint32_t low)
{
    const struct pool *p = pool_of(c, node_at(c, slot));

    if (!node_on_host(node_at(c, slot)))
        return false;
    for (uint32_t at = slot; node_at(c, at)->depth > (c->host_corrupt ? 0 : low);
         at = node_at(c, at)->parent) {
        const struct node *n = node_at(c, at);

        if (n->work.copy == COPY_NONE && must_have(p, n, low) && lacks_any(p, n))
            return true;
    }
    return false;
}

bool host_path_comes(const struct core *c, uint32_t slot)
{
    for (uint32_t at = slot; node_at(c, at)->depth > 0; at = node_at(c, at)->parent)
        if (!node_on_host(node_at(c, at)) && !is_back(node_at(c, at)))
            return false;
    return true;
}

/* What did not agree with its checksums makes way for what was copied anew. STATE that was not
 * stays, and is found out again when somebody loads it: it must not be lost in silence. */
static void host_heal(struct core *c, struct node *n)
{
    if (!n->tiers.host_corrupt)
        return;
    for (uint32_t g = 0; g < GROUPS_MAX; g++)
        if (n->work.copy_pages[g] != NONE)
            chain_free(c, &n->tiers.host_pages[g]);
    n->tiers.host_corrupt = 0;
    c->host_corrupt--;
}

/* Takes acknowledged copies in, or gives them up, from the top down: `slot` is BACK_DONE. The
 * list of those to look at uses the links of the queue, since none of them is in it. */
static void back_settle(struct core *c, uint32_t slot)
{
    struct list work = LIST_EMPTY;

    copy_list_push(c, &work, slot);
    while (work.n > 0) {
        uint32_t at = copy_list_pop(c, &work);
        struct node *n = node_at(c, at), *parent = node_at(c, n->parent);

        if (!node_on_host(parent) && is_back(parent))
            continue; /* its turn comes with its parent's */
        if (node_on_host(parent)) {
            host_heal(c, n);
            attach_moving(c, at, n->tiers.host_pages);
            n->residency |= ON_HOST;
            c->host_copies++;
        } else {
            free_moving(c, n);
            if (!node_on_host(n))
                parent->tiers.host_children--;
            c->copy_failed = 1;
        }
        copy_state_move(&n->work.copy, COPY_NONE);
        n->work.copy_tries = 0; /* it was good, wherever its parent is */
        touch(c);
        for (uint32_t kid = n->children.head; kid != NONE; kid = child_list_next(c, kid))
            if (node_at(c, kid)->work.copy == COPY_WRITEBACK_DONE)
                copy_list_push_front(c, &work, kid);
        if (node_on_host(n))
            tree_event(c, at, TREE_TIER);
        state_settle(c, at);
        /* Those that were ready before their parent was. Making room may end their siblings. */
        for (uint32_t kid = n->children.head; kid != NONE && node_on_host(n);
             kid = child_list_next(c, kid))
            if (back_wanted(c, node_at(c, kid)))
                host_sealed(c, kid);
        node_offer(c, at);
    }
}

/* --- loading --- */

uint32_t host_walk(const struct core *c, uint32_t from, struct token_view *w)
{
    const struct pool *p = pool_of(c, node_at(c, from));
    uint32_t at = from, child;

    if (p->other == NONE || space_at(c, node_at(c, from)->space)->reset)
        return from;
    while (w->end - node_at(c, at)->depth >= w->align) {
        const struct node *n;

        child = node_child(c, at, w);
        n = node_at(c, child == NONE ? 0 : child);
        if (child == NONE || !node_visible(n) ||
            !(node_on_device(n) || (node_on_host(n) && !n->tiers.host_corrupt)))
            break;
        at = child;
    }
    for (; at != from; at = node_at(c, at)->parent) {
        bool all = true;

        for (uint32_t g = 0; g < p->ngroups && all; g++)
            for (uint32_t i = 0, up = at; i < p->group[g].reach && node_at(c, up)->depth > 0 && all;
                 i++, up = node_at(c, up)->parent)
                all = (node_at(c, up)->pages[g] != NONE ||
                       node_at(c, up)->tiers.host_pages[g] != NONE) &&
                      !(node_at(c, up)->state.refilling & 1u << g);
        if (all)
            break;
    }
    return at;
}

void load_hold(struct core *c, uint32_t slot, uint32_t low)
{
    for (uint32_t at = slot; node_at(c, at)->depth > low; at = node_at(c, at)->parent) {
        struct node *n = node_at(c, at);

        n->work.loaders++;
        if (n->work.copy == COPY_LOADBACK_CANCELLED)
            copy_state_move(&n->work.copy, COPY_LOADBACK_RUNNING);
        state_settle(c, at);
    }
    touch(c);
}

/* Nobody waits for the node's copy any more. */
static void load_cancel(struct core *c, uint32_t slot)
{
    struct node *n = node_at(c, slot);

    if (n->work.copy == COPY_LOADBACK_RUNNING && !BUG(CORE_BUG_HOST_FREE_EARLY)) {
        copy_state_move(&n->work.copy, COPY_LOADBACK_CANCELLED);
        return;
    }
    if (n->work.copy == COPY_LOADBACK_RUNNING)
        c->copies_running--;
    if (n->work.copy == COPY_LOADBACK_QUEUED)
        copy_list_remove(c, &c->copies_queued, slot);
    free_moving(c, n);
    copy_state_move(&n->work.copy, COPY_NONE);
}

void load_let_go(struct core *c, uint32_t slot, uint32_t low)
{
    for (uint32_t at = slot, up; node_at(c, at)->depth > low; at = up) {
        struct node *n = node_at(c, at);

        up = n->parent;
        if (--n->work.loaders > 0)
            continue;
        if (is_load(n))
            load_cancel(c, at);
        state_settle(c, at);
        node_offer(c, at);
    }
    touch(c);
}

/* Of group g: is it missing on the device, and to be had from the host? */
static bool loads(const struct pool *p, const struct node *n, uint32_t g, uint32_t low)
{
    return n->pages[g] == NONE && n->tiers.host_pages[g] != NONE &&
           (!group_is_state(&p->group[g]) || n->depth > low);
}

static bool loads_any(const struct pool *p, const struct node *n, uint32_t low)
{
    for (uint32_t g = 0; g < p->ngroups; g++)
        if (loads(p, n, g, low))
            return true;
    return false;
}

enum tern_err load_need(const struct core *c, uint32_t slot, uint32_t low, uint32_t *need)
{
    const struct pool *p = pool_of(c, node_at(c, slot));

    for (uint32_t at = slot; node_at(c, at)->depth > 0; at = node_at(c, at)->parent) {
        const struct node *n = node_at(c, at);

        if (node_on_device(n) && n->depth <= low)
            break; /* and so is all above */
        if (!loads_any(p, n, low) || is_load(n))
            continue;
        if (n->tiers.host_corrupt)
            return TERN_CORRUPT;
        if (n->work.copy != COPY_NONE || !node_visible(n))
            return TERN_BUSY;
        for (uint32_t g = 0; g < p->ngroups; g++)
            need[g] += loads(p, n, g, low) ? p->group[g].segment : 0;
    }
    return TERN_OK;
}

uint32_t load_begin(struct core *c, uint32_t slot, uint32_t low)
{
    struct pool *p = pool_of(c, node_at(c, slot));
    uint32_t pages = 0, below = NONE;

    for (uint32_t at = slot; node_at(c, at)->depth > 0; at = node_at(c, at)->parent) {
        struct node *n = node_at(c, at);

        if (node_on_device(n) && n->depth <= low)
            break;
        if (!loads_any(p, n, low) || is_load(n))
            continue;
        for (uint32_t g = 0; g < p->ngroups; g++)
            if (loads(p, n, g, low)) {
                take_moving(c, p, at, g);
                pages += p->group[g].segment;
            }
        copy_state_move(&n->work.copy, COPY_LOADBACK_QUEUED);
        state_settle(c, at);
        copy_list_insert(c, &c->copies_queued, at, below);
        below = at;
    }
    touch(c);
    return pages;
}

bool load_done(const struct core *c, uint32_t slot, uint32_t low)
{
    const struct pool *p = pool_of(c, node_at(c, slot));

    if (!node_on_device(node_at(c, slot)))
        return false;
    for (uint32_t at = slot; node_at(c, at)->depth > low; at = node_at(c, at)->parent)
        if (is_load(node_at(c, at)) || loads_any(p, node_at(c, at), low))
            return false;
    return true;
}

enum tern_err load_failed(const struct core *c, uint32_t slot, uint32_t low)
{
    const struct pool *p = pool_of(c, node_at(c, slot));

    for (uint32_t at = slot; node_at(c, at)->depth > 0; at = node_at(c, at)->parent) {
        const struct node *n = node_at(c, at);

        if (node_on_device(n) && n->depth <= low)
            break;
        if (loads_any(p, n, low) && !is_load(n))
            return n->tiers.host_corrupt ? TERN_CORRUPT : TERN_BUSY;
    }
    return TERN_OK;
}

/* Like back_settle: `slot` is LOAD_DONE. */
static void load_settle(struct core *c, uint32_t slot)
{
    struct list work = LIST_EMPTY;

    copy_list_push(c, &work, slot);
    while (work.n > 0) {
        uint32_t at = copy_list_pop(c, &work);
        struct node *n = node_at(c, at);

        if (!node_on_device(node_at(c, n->parent)))
            continue; /* its turn comes with its parent's */
        attach_moving(c, at, n->pages);
        copy_state_move(&n->work.copy, COPY_NONE);
        c->host_loads++;
        if (!node_on_device(n)) {
            node_arrive(c, at);
            seal_state_move(&n->work.seal, SEAL_DONE);
            tree_event(c, at, TREE_TIER);
        }
        touch(c);
        for (uint32_t kid = n->children.head; kid != NONE; kid = child_list_next(c, kid))
            if (node_at(c, kid)->work.copy == COPY_LOADBACK_DONE)
                copy_list_push_front(c, &work, kid);
        state_arrived(c, at);
        node_offer(c, at);
    }
}

/* --- jobs --- */

void copy_forget(struct core *c, uint32_t slot)
{
    struct node *n = node_at(c, slot);

    if (n->work.copy == COPY_NONE)
        return;
    check(n->work.copy == COPY_WRITEBACK_WAITING || n->work.copy == COPY_WRITEBACK_QUEUED ||
          n->work.copy == COPY_WRITEBACK_DONE);
    if (n->work.copy == COPY_WRITEBACK_QUEUED)
        copy_list_remove(c, &c->copies_queued, slot);
    free_moving(c, n);
    copy_state_move(&n->work.copy, COPY_NONE);
    n->work.copy_tries = 0;
    if (!node_on_host(n))
        node_at(c, n->parent)->tiers.host_children--;
    c->copy_failed = 1;
}

/* From the device, which has it still: the JOB ref has not ended. What hangs on the node, and who
 * waits for it, waits on. */
static bool back_again(struct core *c, uint32_t slot)
{
    const struct node *n = node_at(c, slot), *parent = node_at(c, n->parent);
    const struct pool *p = pool_of(c, n);

    if (n->work.copy_tries == COPY_TRIES_MAX || p->state != POOL_OPEN ||
        space_at(c, n->space)->reset || !(node_on_host(parent) || is_back(parent)) ||
        !lacks_any(p, n) || !back_if_room(c, slot))
        return false;
    c->host_copies_again++;
    return true;
}

static void back_fail(struct core *c, uint32_t slot)
{
    struct node *n = node_at(c, slot);

    c->host_copies_failed++;
    n->work.copy_tries++;
    free_moving(c, n);
    copy_state_move(&n->work.copy, COPY_NONE);
    if (!node_on_host(n))
        node_at(c, n->parent)->tiers.host_children--;
    if (back_again(c, slot))
        return;
    n->work.copy_tries = 0;
    c->copy_failed = 1;
    for (uint32_t kid = n->children.head; kid != NONE; kid = child_list_next(c, kid))
        if (!node_on_host(n) && node_at(c, kid)->work.copy == COPY_WRITEBACK_DONE)
            back_settle(c, kid); /* gives up what hangs on it */
    state_settle(c, slot);
    node_offer(c, n->parent);
}

static void back_done(struct core *c, uint32_t slot, enum tern_err err)
{
    if (err == TERN_OK) {
        copy_state_move(&node_at(c, slot)->work.copy, COPY_WRITEBACK_DONE);
        back_settle(c, slot);
    } else {
        back_fail(c, slot);
    }
    node_unpin(c, slot, REF_JOB);
}

static void load_acked(struct core *c, uint32_t slot, enum tern_err err)
{
    struct node *n = node_at(c, slot);

    if (err == TERN_OK && n->work.copy == COPY_LOADBACK_RUNNING) {
        copy_state_move(&n->work.copy, COPY_LOADBACK_DONE);
        load_settle(c, slot);
        return;
    }
    free_moving(c, n);
    copy_state_move(&n->work.copy, COPY_NONE);
    if (err != TERN_OK) {
        c->copy_failed = 1;
        c->corrupt_detected += err == TERN_CORRUPT;
        if (err == TERN_CORRUPT && !n->tiers.host_corrupt)
            c->host_corrupt++;
        n->tiers.host_corrupt |= err == TERN_CORRUPT;
    }
    state_settle(c, slot);
    node_offer(c, slot);
}

void copy_done(struct core *c, struct copy_id job, enum tern_err err)
{
    struct node *n;

    if (job.slot >= c->limits.nodes)
        return;
    n = node_at(c, job.slot);
    if (!n->used || n->work.copy_gen != job.gen ||
        (n->work.copy != COPY_WRITEBACK_RUNNING && n->work.copy != COPY_LOADBACK_RUNNING &&
         n->work.copy != COPY_LOADBACK_CANCELLED))
        return; /* a second acknowledgement */
    c->copies_running--;
    touch(c);
    if (n->work.copy == COPY_WRITEBACK_RUNNING)
        back_done(c, job.slot, err);
    else
        load_acked(c, job.slot, err);
}

static uint32_t list_at(const struct core *c, struct page_at *to, uint32_t group, uint32_t head)
{
    uint32_t n = 0;

    for (uint32_t at = head; at != NONE; at = page_list_next(c, at))
        to[n++] = (struct page_at){.group = group,
                                   .index = page_at(c, at)->index,
                                   .gen = page_at(c, at)->gen,
                                   .record = at};
    return n;
}

static void emit_copy(struct core *c, struct actions *out, uint32_t slot, uint32_t pages)
{
    struct node *n = node_at(c, slot);
    const struct pool *p = pool_of(c, n);
    struct action *a = action_add(out, ACT_COPY);
    struct page_at *from = out->pages + out->npages, *to = from + pages;
    const uint32_t *source = is_back(n) ? n->pages : n->tiers.host_pages;

    n->work.copy_gen = gen_next(n->work.copy_gen);
    a->copy.job = (struct copy_id){.slot = slot, .gen = n->work.copy_gen};
    a->copy.from_pool = is_back(n) ? n->pool : p->other;
    a->copy.to_pool = is_back(n) ? p->other : n->pool;
    a->copy.from = from;
    a->copy.to = to;
    a->copy.n = pages;
    out->npages += 2 * pages;
    for (uint32_t g = 0; g < p->ngroups; g++) {
        if (n->work.copy_pages[g] == NONE)
            continue;
        from += list_at(c, from, g, source[g]);
        to += list_at(c, to, g, n->work.copy_pages[g]);
    }
    if (is_back(n))
        node_pin(c, slot, REF_JOB);
    copy_state_move(&n->work.copy, is_back(n) ? COPY_WRITEBACK_RUNNING : COPY_LOADBACK_RUNNING);
}

bool copy_flush(struct core *c, struct actions *out)
{
    while (c->copies_queued.n > 0 && c->copies_running < c->limits.copy_jobs) {
        uint32_t slot = c->copies_queued.head, pages = 0;
        const struct node *n = node_at(c, slot);

        for (uint32_t g = 0; g < GROUPS_MAX; g++)
            pages += n->work.copy_pages[g] == NONE ? 0 : pool_of(c, n)->group[g].segment;
        if (actions_room(out) == 0 ||
            out->npages + 2 * pages > sizeof out->pages / sizeof out->pages[0])
            return false;
        copy_list_remove(c, &c->copies_queued, slot);
        c->copies_running++;
        emit_copy(c, out, slot, pages);
        touch(c);
    }
    return true;
}
