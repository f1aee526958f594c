/* Writebacks: copies of a node's device pages in host memory. See host.h. While one is queued or
 * running, a JOB ref holds the node on the device. */
#include "core/tier/host.h"

#include "core/memory/pages.h"
#include "core/tree/nodes.h"
#include "core/tree/obtain.h"
#include "core/tree/state.h"

#include <string.h>

/* Returns bits of the node's groups that the host lacks and the device can supply now. */
static uint32_t host_lacks(const struct pool *p, const struct node *n)
{
    uint32_t groups = 0;

    for (uint32_t g = 0; g < p->ngroups; g++)
        if (n->group[g].pages[TIER_DEVICE] != NONE &&
            (n->group[g].pages[TIER_HOST] == NONE || n->host_corrupt) &&
            !(group_is_state(&p->group[g]) &&
              (state_reclaimable(n) || n->state.refilling & 1u << g)))
            groups |= 1u << g;
    return groups;
}

static enum tern_err host_make_some(struct core *c, struct pool *p, const uint32_t *need,
                                    uint32_t group)
{
    (void)need;
    (void)group;
    return host_evict_one(c, p) ? TERN_OK : TERN_POOL_EXHAUSTED;
}

/* For copies of the reserve: evicts only host pages that are less useful than the copy. */
static enum tern_err host_make_spare(struct core *c, struct pool *p, const uint32_t *need,
                                     uint32_t group)
{
    (void)need;
    (void)group;
    return host_evict_spare(c, p) ? TERN_OK : TERN_BUSY;
}

/* Returns what pages_admit returns. */
static enum tern_err host_room(struct core *c, struct pool *p, const uint32_t *need, evictor *evict,
                               struct shortage *ret)
{
    return pages_admit(c, p, pool_at(c, p->tiers[TIER_HOST]), (struct page_need){need, NULL}, evict,
                       ret);
}

static bool checksums_known(const struct core *c, const struct node *n)
{
    for (uint32_t g = 0; g < c->limits.groups; g++)
        for (uint32_t at = n->group[g].copying == NONE ? NONE : n->group[g].pages[TIER_DEVICE];
             at != NONE; at = page_list_next(c, at))
            if (page_at(c, at)->seal != PAGE_SEAL_DONE)
                return false;
    return node_visible(n);
}

static void writeback_queue(struct core *c, uint32_t slot)
{
    struct pool *p = node_pool(c, node_at(c, slot));

    p->writebacks++;
    p->copy_moved_ns = c->now_ns;
    copy_state_move(&node_at(c, slot)->work.copy, COPY_QUEUED);
    copy_list_push(c, &tenant_at(c, p->tenant)->copies_queued, slot);
    c->copies_queued++;
}

/* There must be room on the host. */
static void writeback_begin(struct core *c, uint32_t slot)
{
    struct node *n = node_at(c, slot);

    n->work.copy_tries = 0; /* writeback_again restores it */
    copy_begin(c, slot, TIER_HOST, host_lacks(node_pool(c, n), n), COPY_WAITING);
    if (checksums_known(c, n))
        writeback_queue(c, slot);
    state_settle(c, slot);
    touch(c);
}

bool writeback_ready(const struct core *c, uint32_t slot)
{
    const struct node *n = node_at(c, slot);
    const struct pool *p = node_pool(c, n);

    return p->tiers[TIER_HOST] != NONE && p->state == POOL_OPEN && n->work.seal == SEAL_DONE &&
           n->work.copy == COPY_NONE && (!node_on_host(n) || n->host_corrupt) &&
           node_on_device(n) && node_visible(n) && !space_at(c, n->space)->reset;
}

/* Write-through goes from the root downwards: a prefix whose beginning has no room is useless. */
static bool writeback_wanted(const struct core *c, uint32_t slot)
{
    const struct node *n = node_at(c, slot), *parent = node_at(c, n->parent);

    return node_pool(c, n)->host_write == HOST_WRITE_THROUGH && writeback_ready(c, slot) &&
           (node_on_host(parent) || copy_goes_to(parent, TIER_HOST));
}

bool writeback_if_room(struct core *c, uint32_t slot)
{
    const struct node *n = node_at(c, slot);
    struct pool *p = node_pool(c, n);
    uint32_t need[GROUPS_MAX] = {0};
    struct shortage unused;
    bool behind = p->host_write == HOST_WRITE_BEHIND, room;
    /* Making room must not evict the node's own host pages. Where the host tier needs whole
     * prefixes, it must not evict the node's parent either. */
    bool own = node_on_host(n) && !n->host_corrupt;
    uint32_t held = own ? slot : n->parent, end = piece_whole(c);

    copy_pages_count(p, host_lacks(p, n), need);
    if (own || !behind)
        node_pin(c, held, REF_HOST);
    room = host_room(c, p, need, behind ? host_make_spare : host_make_some, &unused) == TERN_OK;
    c->piece_end = end;
    if (room)
        writeback_begin(c, slot);
    if (own || !behind)
        node_unpin(c, held, REF_HOST);
    return room;
}

void host_sealed(struct core *c, uint32_t slot)
{
    const struct node *n = node_at(c, slot);

    if (n->work.copy == COPY_WAITING && checksums_known(c, n)) {
        writeback_queue(c, slot);
        return;
    }
    /* A commit of several chunks is sealed from its end upwards, so its first chunk is sealed last.
     * Its seal begins the copies of all chunks below it, up to the end of a piece. The copies of
     * siblings, and of nodes below that end, begin when their parent's copy is acknowledged. */
    while (slot != NONE && writeback_wanted(c, slot) && writeback_if_room(c, slot)) {
        slot = piece_over(c) ? NONE : node_at(c, slot)->children.head;
        while (slot != NONE && !writeback_wanted(c, slot))
            slot = child_list_next(c, slot);
    }
}

/* Returns true if a session that borrows STATE deeper than `state_from` needs a new host copy of
 * this node. */
static bool must_have(const struct pool *p, const struct node *n, uint32_t state_from)
{
    return !node_on_host(n) || n->host_corrupt || (n->depth > state_from && host_lacks(p, n) != 0);
}

/* Returns the groups whose copy has to begin for such a session. */
static uint32_t wants_copy(const struct pool *p, const struct node *n, uint32_t state_from)
{
    return n->work.copy == COPY_NONE && must_have(p, n, state_from) ? host_lacks(p, n) : 0;
}

enum tern_err host_promise(struct core *c, struct session *s, struct shortage *ret)
{
    struct pool *p = pool_at(c, s->pool), *host = pool_at(c, p->tiers[TIER_HOST]);
    uint32_t need[GROUPS_MAX] = {0};
    enum tern_err room;

    check(node_at(c, s->node)->refs[REF_HOST] > 0); /* the path's host copies stay */
    walked(c, node_at(c, s->node)->depth / p->align);
    for (uint32_t at = s->node; node_at(c, at)->depth > 0; at = node_at(c, at)->parent)
        copy_pages_count(p, wants_copy(p, node_at(c, at), s->state_from), need);
    room = host_room(c, p, need, host_make_some, ret);
    if (room == TERN_POOL_EXHAUSTED)
        ret->free = group_free(host, ret->group) - host->group[ret->group].promised;
    if (room != TERN_OK)
        return room;
    memcpy(s->promised, need, sizeof need);
    pages_promise(host, s->promised);
    s->load.at = s->node;
    return TERN_OK;
}

void host_promise_end(struct core *c, struct session *s)
{
    struct pool *host = pool_at(c, pool_at(c, s->pool)->tiers[TIER_HOST]);

    pages_promise_take(host, s->promised, s->promised);
    s->load.at = NONE;
}

bool host_back_begin(struct core *c, struct session *s, uint32_t end)
{
    struct pool *p = pool_at(c, s->pool), *host = pool_at(c, p->tiers[TIER_HOST]);

    while (s->load.at != NONE) {
        const struct node *n = node_at(c, s->load.at);
        uint32_t groups;

        if (n->depth == 0) {
            host_promise_end(c, s);
            break;
        }
        if (c->visits++ >= end)
            break;
        groups = wants_copy(p, n, s->state_from);
        if (groups != 0 && !copy_pages_promised(host, groups, s->promised))
            return false;
        if (groups != 0)
            writeback_begin(c, s->load.at);
        s->load.at = n->parent;
    }
    return true;
}

uint32_t host_end(struct core *c, struct path path)
{
    uint32_t at = path.node, n = 1;

    for (; node_at(c, at)->depth > path.state_from && !node_on_host(node_at(c, at)); n++) {
        at = node_at(c, at)->parent;
        c->visits += n % NODES_A_VISIT == 0;
    }
    return node_on_host(node_at(c, at)) && node_at(c, at)->depth > 0 ? at : NONE;
}

void host_reached(struct core *c, uint32_t *slot, uint32_t end)
{
    for (uint32_t n = 1; node_at(c, *slot)->depth > 0 && node_on_host(node_at(c, *slot)); n++) {
        if (c->visits >= end)
            return;
        c->visits += n % NODES_A_VISIT == 0;
        *slot = node_at(c, *slot)->parent;
    }
}

enum host_path host_path(struct core *c, const struct session *s)
{
    const struct pool *p = pool_at(c, s->pool);
    const uint32_t low = c->host_corrupt ? 0 : s->state_from;
    enum host_path found = HOST_HAS;

    walked(c, node_at(c, s->node)->depth / p->align);
    for (uint32_t at = s->node; at != s->load.at && node_at(c, at)->depth > 0;
         at = node_at(c, at)->parent) {
        const struct node *n = node_at(c, at);
        bool comes = copy_goes_to(n, TIER_HOST);

        if (!node_on_host(n) && !comes)
            return HOST_LOST;
        if (n->depth > low && wants_copy(p, n, s->state_from) != 0)
            found = HOST_LACKS;
        else if (n->depth > low && found == HOST_HAS &&
                 (comes || must_have(p, n, s->state_from) || n->state.refilling))
            found = HOST_COMES; /* a refill has to be copied later */
    }
    return found;
}

/* Frees corrupt host pages that were copied again. STATE that was not copied again stays, and a
 * later load finds it corrupt again: it must not be lost silently. */
static void host_heal(struct core *c, uint32_t slot)
{
    struct node *n = node_at(c, slot);

    if (!n->host_corrupt)
        return;
    for (uint32_t g = 0; g < c->limits.groups; g++)
        if (n->group[g].copying != NONE) {
            obtain_forget_group(c, slot, TIER_HOST, g);
            chain_free(c, &n->group[g].pages[TIER_HOST]);
        }
    n->host_corrupt = 0;
    c->host_corrupt--;
}

static void writeback_take(struct core *c, uint32_t slot)
{
    struct node *n = node_at(c, slot);

    host_heal(c, slot);
    copy_pages_attach(c, slot);
    copy_state_move(&n->work.copy, COPY_NONE);
    node_at(c, n->parent)->children_on[TIER_HOST] += !node_on_host(n);
    n->residency |= ON_HOST;
    c->counts.host_copies++;
    node_changed(c, slot);
    touch(c);
    tree_event(c, slot, TREE_TIER);
    state_settle(c, slot);
    /* Some children were ready before this node. Making room for one may remove its siblings. */
    for (uint32_t kid = n->children.head; kid != NONE; kid = child_list_next(c, kid))
        if (writeback_wanted(c, kid))
            host_sealed(c, kid);
    node_offer(c, slot);
}

/* Copies the node again: the JOB ref has not ended, so it is still on the device. Its children and
 * the sessions that wait for it keep waiting. */
static bool writeback_again(struct core *c, uint32_t slot)
{
    struct node *n = node_at(c, slot);
    const struct pool *p = node_pool(c, n);
    const uint8_t tries = n->work.copy_tries;

    if (tries == COPY_TRIES_MAX || p->state != POOL_OPEN || space_at(c, n->space)->reset ||
        host_lacks(p, n) == 0 || !writeback_if_room(c, slot))
        return false;
    n->work.copy_tries = tries;
    c->counts.host_copies_again++;
    return true;
}

static void writeback_fail(struct core *c, uint32_t slot)
{
    struct node *n = node_at(c, slot);

    c->counts.host_copies_failed++;
    n->work.copy_tries++;
    copy_pages_free(c, n);
    copy_state_move(&n->work.copy, COPY_NONE);
    node_changed(c, slot);
    if (writeback_again(c, slot))
        return;
    c->copies_lost++;
    if (!node_on_host(n) || n->host_corrupt)
        reserve_leave(c, slot);
    state_settle(c, slot);
    node_offer(c, slot);
}

void writeback_acked(struct core *c, uint32_t slot, enum tern_err err)
{
    struct pool *p = node_pool(c, node_at(c, slot));

    /* A store may be reading the corrupt pages, which the copy would replace. */
    if (p->host_stores > 0 && node_at(c, slot)->host_corrupt)
        err = TERN_BUSY;
    p->writebacks--;
    p->copy_moved_ns = c->now_ns;
    if (err == TERN_OK) {
        copy_state_move(&node_at(c, slot)->work.copy, COPY_DONE);
        writeback_take(c, slot);
    } else {
        writeback_fail(c, slot);
    }
    node_unpin(c, slot, REF_JOB);
}
