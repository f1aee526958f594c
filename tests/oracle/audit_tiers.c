/* The audit of the device and host tiers: the place of each prefix node and its copies under way,
 * prefix-closed residency on the device, the reserve, the queue of copies, the loads that sessions
 * wait for, pools and their host tiers. It recomputes all of it from the pages and the sessions.
 * See audit.h. */
#include "core/memory/pages.h"
#include "core/tree/nodes.h"
#include "oracle/audit.h"

static bool is_back(const struct node *n)
{
    return n->work.copy != COPY_NONE && n->work.copy_from == TIER_DEVICE;
}

static bool is_load(const struct node *n)
{
    return n->work.copy != COPY_NONE && n->work.copy_to == TIER_DEVICE;
}

/* A group of a node has no page or a whole segment in each of its three places. */
static bool meet_pages(struct audit *a, uint32_t slot, uint32_t g, uint32_t head, uint32_t pool,
                       uint32_t state)
{
    uint32_t count = 0;

    for (uint32_t at = head; at != NONE; at = page_list_next(a->c, at), count++) {
        const struct page *page;

        audit_meet(a->page_seen, at, a->c->limits.pages, "page", "a prefix node");
        page = page_at(a->c, at);
        if (page->state != state || page->owner != slot || page->group != g || page->pool != pool)
            oracle_fail("audit: page %u of node %u has state %u, owner %u, pool %u", at, slot,
                        page->state, page->owner, page->pool);
        if (page->gen == 0)
            oracle_fail("audit: page %u of node %u has generation 0", at, slot);
    }
    if (count && count != pool_at(a->c, node_at(a->c, slot)->pool)->group[g].segment)
        oracle_fail("audit: node %u has %u pages of group %u", slot, count, g);
    return count > 0;
}

static void audit_moving(const struct node *n, uint32_t slot, bool any)
{
    if (any != (n->work.copy != COPY_NONE))
        oracle_fail("audit: node %u has %s pages on the move, and a copy in state %u", slot,
                    any ? "some" : "no", n->work.copy);
    if (is_load(n) && !node_on_host(n))
        oracle_fail("audit: node %u is loaded from a tier where it is not", slot);
    if (is_load(n) && n->work.loaders == 0 && n->work.copy != COPY_CANCELLED)
        oracle_fail("audit: node %u is loaded for nobody", slot);
    if (n->work.copy == COPY_CANCELLED && n->work.loaders > 0)
        oracle_fail("audit: node %u has a cancelled load that is none", slot);
    if (n->work.copy != COPY_NONE && is_back(n) == is_load(n))
        oracle_fail("audit: node %u is copied from tier %u to tier %u", slot, n->work.copy_from,
                    n->work.copy_to);
    if (is_back(n) && n->work.copy == COPY_CANCELLED)
        oracle_fail("audit: node %u has a cancelled writeback", slot);
    if (is_back(n) && !node_on_device(n))
        oracle_fail("audit: node %u is copied from a device where it is not", slot);
}

static void audit_reserved(const struct node *n, const struct node *up, uint32_t slot)
{
    if (n->reserved && !node_on_device(n))
        oracle_fail("audit: node %u is of the reserve, and not on the device", slot);
    if (n->reserved && !node_on_host(n) && !is_back(n))
        oracle_fail("audit: node %u is of the reserve, and has no copy on its way", slot);
    if (up->reserved && node_on_device(n) && !n->reserved)
        oracle_fail("audit: node %u leaves the device after node %u, which hangs on it", slot,
                    n->parent);
}

void audit_node_pages(struct audit *a, uint32_t slot)
{
    const struct node *n = node_at(a->c, slot), *up = node_at(a->c, n->parent);
    const struct pool *p = pool_at(a->c, n->pool);
    uint32_t to = is_back(n) ? p->tiers[TIER_HOST] : n->pool;
    bool moves = false;

    for (uint32_t g = 0; g < p->ngroups; g++) {
        bool history = p->group[g].layout.family == FAMILY_HISTORY;
        bool device =
            meet_pages(a, slot, g, n->group[g].pages[TIER_DEVICE], n->pool, PAGE_COMMITTED);
        bool host = meet_pages(a, slot, g, n->group[g].pages[TIER_HOST], p->tiers[TIER_HOST],
                               PAGE_COMMITTED);
        bool moving = meet_pages(a, slot, g, n->group[g].copying, to, PAGE_COPYING);

        moves = moves || moving;
        if ((device && !node_on_device(n)) || (history && device != (node_on_device(n) == 1)))
            oracle_fail("audit: node %u, on the device %u, has %u pages of group %u there", slot,
                        node_on_device(n), device, g);
        if ((host && !node_on_host(n)) || (history && host != (node_on_host(n) == 1)))
            oracle_fail("audit: node %u, on the host %u, has %u pages of group %u there", slot,
                        node_on_host(n), host, g);
        /* A commit may fill STATE that is being loaded. */
        if (moving &&
            (is_back(n) ? !device || (host && !n->host_corrupt) : !host || (history && device)))
            oracle_fail(
                "audit: T16: node %u copies group %u, which is on the device %u, the host %u", slot,
                g, device, host);
    }
    audit_moving(n, slot, moves);
    if (!node_on_device(n) && !node_on_host(n))
        oracle_fail("audit: node %u is on no tier", slot);
    if (node_on_device(n) && !node_on_device(up))
        oracle_fail("audit: node %u is on the device and hangs on node %u, which is not", slot,
                    n->parent);
    audit_reserved(n, up, slot);
    if (!node_on_device(n) && (!node_visible(n) || n->state.refilling || n->state.claims_window ||
                               n->state.reclaim.prev != NONE))
        oracle_fail("audit: node %u is on the host alone and waits, or claims", slot);
    if (n->nrefs > 0 && !node_on_device(n))
        oracle_fail("audit: node %u is pinned on the device, where it is not", slot);
    if (n->refs[REF_HOST] > 0 && !node_on_host(n) && !is_back(n))
        oracle_fail("audit: node %u is pinned on the host, where it is not", slot);
}

static void audit_kids(const struct core *c, uint32_t slot)
{
    const struct node *n = node_at(c, slot);
    uint32_t device = 0, host = 0, reserved = 0;

    for (uint32_t at = n->children.head; at != NONE; at = child_list_next(c, at)) {
        device += node_on_device(node_at(c, at)) == 1;
        host += node_on_host(node_at(c, at)) == 1;
        reserved += node_at(c, at)->reserved;
    }
    if (reserved != n->reserved_children)
        oracle_fail("audit: node %u counts %u children of the reserve and has %u", slot,
                    n->reserved_children, reserved);
    if (device != n->children_on[TIER_DEVICE] || host != n->children_on[TIER_HOST])
        oracle_fail("audit: node %u counts %u/%u children on the tiers and has %u/%u", slot,
                    n->children_on[TIER_DEVICE], n->children_on[TIER_HOST], device, host);
}

/* Checks a list of copies. Returns its length. */
static uint32_t audit_copies(const struct core *c, const struct list *l, uint32_t state)
{
    uint32_t prev = copy_list_last(c, l), listed = 0;

    for (uint32_t at = l->head; at != NONE && listed <= c->limits.nodes;
         prev = at, at = copy_list_next(c, at), listed++)
        if (!node_at(c, at)->used || node_at(c, at)->work.copy_queue.prev != prev ||
            node_at(c, at)->work.copy != state)
            oracle_fail("audit: node %u, copy state %u, is wrongly in a queue of copies", at,
                        node_at(c, at)->work.copy);
    if (listed != l->n)
        oracle_fail("audit: %u copies are listed, %u counted", listed, l->n);
    return listed;
}

static void audit_queue(const struct core *c)
{
    uint32_t queued = 0, running = 0, come = 0, begun = 0;
    uint32_t listed = 0;

    for (uint32_t i = 0; i < c->limits.tenants; i++)
        listed += audit_copies(c, &tenant_at(c, i)->copies_queued, COPY_QUEUED);
    if (listed != c->copies_queued)
        oracle_fail("audit: %u copies wait, %u counted", listed, c->copies_queued);
    for (uint32_t i = 0; i < c->limits.sessions; i++)
        if (session_at(c, i)->state != SESSION_EMPTY)
            begun += audit_copies(c, &session_at(c, i)->load.begun, COPY_QUEUED);
    for (uint32_t i = 0; i < c->limits.nodes; i++) {
        const struct node *n = node_at(c, i);

        queued += n->used && n->work.copy == COPY_QUEUED;
        running += n->used && (n->work.copy == COPY_RUNNING || n->work.copy == COPY_CANCELLED);
        come += n->used && n->work.copy == COPY_DONE && node_on_device(node_at(c, n->parent));
    }
    queued -= begun;
    if (queued != listed)
        oracle_fail("audit: %u copies are queued, %u are in the queue", queued, listed);
    if (come != audit_copies(c, &c->copies_come, COPY_DONE) || (come > 0 && !c->left_over))
        oracle_fail("audit: %u copies have come, and wait for nothing", come);
    if (running != c->copies_running || running > c->limits.copy_jobs)
        oracle_fail("audit: %u copies run, %u counted", running, c->copies_running);
    if (queued > 0 && running < c->limits.copy_jobs && !c->left_over)
        oracle_fail("audit: %u copies wait although a job is free", queued);
}

static void audit_loaders(const struct core *c)
{
    uint32_t *loaders = audit_scratch(c->limits.nodes, sizeof *loaders);

    for (uint32_t i = 0; i < c->limits.sessions; i++) {
        const struct session *s = session_at(c, i);

        if (s->state == SESSION_EMPTY || s->load.hold.node == NONE)
            continue;
        for (uint32_t at = s->load.hold.node; node_at(c, at)->depth > s->load.hold.state_from;
             at = node_at(c, at)->parent)
            loaders[at]++;
    }
    for (uint32_t i = 0; i < c->limits.nodes; i++)
        if (node_at(c, i)->used && node_at(c, i)->work.loaders != loaders[i])
            oracle_fail("audit: node %u counts %u loaders and has %u", i,
                        node_at(c, i)->work.loaders, loaders[i]);
}

/* Sessions that wait for something besides their engine are in one list. */
static void audit_away(const struct core *c)
{
    uint32_t listed = 0, away = 0, prev = away_list_last(c, &c->away);

    for (uint32_t at = c->away.head; at != NONE && listed <= c->limits.sessions;
         prev = at, at = away_list_next(c, at), listed++) {
        const struct session *s = session_at(c, at);

        if (s->in_away.prev != prev || s->state < SESSION_RETRACTING)
            oracle_fail("audit: session %u, state %u, is wrongly in the list of those away", at,
                        s->state);
    }
    for (uint32_t i = 0; i < c->limits.sessions; i++) {
        const struct session *s = session_at(c, i);

        if (s->state == SESSION_EMPTY || s->state == SESSION_HANDED ||
            s->state == SESSION_CLOSING || s->releasing)
            continue;
        away += away_list_has(c, i);
        if (!away_list_has(c, i) && (s->state == SESSION_RETRACTING || s->state == SESSION_LOADING))
            oracle_fail("audit: session %u, state %u, is in no list of those away", i, s->state);
    }
    if (listed != away || listed != c->away.n)
        oracle_fail("audit: %u sessions are away, %u are listed", away, listed);
}

/* Sessions that are closed or releasing, and still have something to free, are in another list. */
static void audit_closing(const struct core *c)
{
    uint32_t listed = 0, closing = 0;

    for (uint32_t at = c->closing.head; at != NONE && listed <= c->limits.sessions;
         at = closing_list_next(c, at), listed++)
        if (session_at(c, at)->state != SESSION_CLOSING && !session_at(c, at)->releasing)
            oracle_fail("audit: session %u is listed as closing, and is in state %u", at,
                        session_at(c, at)->state);
    for (uint32_t i = 0; i < c->limits.sessions; i++)
        closing += session_at(c, i)->state == SESSION_CLOSING || session_at(c, i)->releasing;
    if (listed != closing || listed != c->closing.n)
        oracle_fail("audit: %u sessions are closing, %u are listed", closing, listed);
}

static void audit_counts(const struct core *c)
{
    uint32_t *resident = audit_scratch(c->limits.pools, sizeof *resident),
             *reserved = audit_scratch(c->limits.pools, sizeof *reserved),
             *copied = audit_scratch(c->limits.pools, sizeof *copied),
             *loads = audit_scratch(c->limits.pools, sizeof *loads);

    for (uint32_t i = 0; i < c->limits.nodes; i++)
        if (node_at(c, i)->used && node_at(c, i)->depth > 0) {
            resident[node_at(c, i)->pool] += node_on_device(node_at(c, i)) == 1;
            reserved[node_at(c, i)->pool] += node_at(c, i)->reserved;
            copied[node_at(c, i)->pool] +=
                copy_goes_to(node_at(c, i), TIER_HOST) && node_at(c, i)->work.copy != COPY_WAITING;
        }
    for (uint32_t i = 0; i < c->limits.sessions; i++)
        if (session_at(c, i)->state == SESSION_LOADING)
            loads[session_at(c, i)->pool]++;
    for (uint32_t i = 0; i < c->limits.pools; i++)
        if (pool_at(c, i)->state != POOL_EMPTY && pool_at(c, i)->loads != loads[i])
            oracle_fail("audit: pool %u counts %u loads and has %u", i, pool_at(c, i)->loads,
                        loads[i]);
    for (uint32_t i = 0; i < c->limits.pools; i++)
        if (pool_at(c, i)->state != POOL_EMPTY &&
            (pool_at(c, i)->resident != resident[i] || pool_at(c, i)->reserved != reserved[i] ||
             pool_at(c, i)->writebacks != copied[i]))
            oracle_fail("audit: pool %u counts %u nodes on the device, %u of the reserve, %u "
                        "copies, and has %u, %u and %u",
                        i, pool_at(c, i)->resident, pool_at(c, i)->reserved,
                        pool_at(c, i)->writebacks, resident[i], reserved[i], copied[i]);
}

/* Promised pages are free, and equal the pages that sessions still have to take. */
static void audit_promised(const struct core *c, uint32_t pool)
{
    const struct pool *p = pool_at(c, pool);
    uint32_t promised[GROUPS_MAX] = {0}, none[GROUPS_MAX] = {0}, short_of;

    for (uint32_t i = 0; i < c->limits.sessions; i++) {
        const struct session *s = session_at(c, i);

        if (s->state == SESSION_EMPTY || s->load.state == LOAD_COUNTING ||
            s->load.state == LOAD_LOOKING ||
            pool_at(c, s->pool)->tiers[s->load.state == LOAD_NONE ? TIER_HOST : TIER_DEVICE] !=
                pool)
            continue;
        for (uint32_t g = 0; g < p->ngroups; g++)
            promised[g] += s->promised[g];
    }
    for (uint32_t g = 0; g < p->ngroups; g++)
        if (p->group[g].promised != promised[g])
            oracle_fail("audit: pool %u promised %u pages of group %u, and sessions have %u", pool,
                        p->group[g].promised, g, promised[g]);
    if (!pages_fit(p, false, none, &short_of))
        oracle_fail("audit: pool %u promised more of group %u than it has", pool, short_of);
}

static void audit_tiers(const struct core *c)
{
    for (uint32_t i = 0; i < c->limits.pools; i++) {
        const struct pool *p = pool_at(c, i), *o;

        if (p->state == POOL_EMPTY)
            continue;
        audit_promised(c, i);
        if (p->tiers[p->tier] != i)
            oracle_fail("audit: pool %u is not its own tier %u", i, p->tier);
        for (uint32_t t = 0; t < TIER_COUNT; t++) {
            if (p->tiers[t] == NONE)
                continue;
            o = pool_at(c, p->tiers[t]);
            if (o->state == POOL_EMPTY || o->tiers[p->tier] != i || o->tier != t ||
                o->tenant != p->tenant || o->ngroups != p->ngroups || o->align != p->align)
                oracle_fail("audit: pools %u and %u are no tiers of each other", i, p->tiers[t]);
        }
        if (p->tier != TIER_HOST)
            continue;
        if (p->sessions || p->nodes || p->serves || p->engines || p->spaces.n > 0)
            oracle_fail("audit: host tier %u has what only a pool has", i);
        for (uint32_t g = 0; g < p->ngroups; g++)
            for (uint32_t s = 0; s < PAGE_STATES; s++)
                if (p->group[g].count[s] && s != PAGE_FREE && s != PAGE_COMMITTED &&
                    s != PAGE_COPYING)
                    oracle_fail("audit: host tier %u has pages in state %u", i, s);
    }
}

static void audit_spaces(const struct core *c)
{
    uint32_t *nodes = audit_scratch(c->limits.namespaces, sizeof *nodes), resets = 0;

    for (uint32_t i = 0; i < c->limits.nodes; i++)
        if (node_at(c, i)->used && node_at(c, i)->depth > 0)
            nodes[node_at(c, i)->space]++;
    for (uint32_t i = 0; i < c->limits.pools; i++)
        for (uint32_t at = pool_at(c, i)->state == POOL_EMPTY ? NONE : pool_at(c, i)->spaces.head;
             at != NONE; at = space_list_next(c, at)) {
            const struct space *s = space_at(c, at);

            resets += s->reset;
            if (s->nodes != nodes[at])
                oracle_fail("audit: namespace %u counts %u nodes and has %u", at, s->nodes,
                            nodes[at]);
            for (uint32_t k = s->in_pool.next; k != NONE && !s->reset; k = space_list_next(c, k))
                if (!space_at(c, k)->reset && space_at(c, k)->ns.hi == s->ns.hi &&
                    space_at(c, k)->ns.lo == s->ns.lo)
                    oracle_fail("audit: namespaces %u and %u are one", at, k);
        }
    if (resets != c->resets)
        oracle_fail("audit: %u namespaces were reset, %u counted", resets, c->resets);
}

void audit_host(struct audit *a)
{
    uint32_t rotten = 0;

    for (uint32_t i = 0; i < a->c->limits.nodes; i++) {
        const struct node *n = node_at(a->c, i);

        if (!n->used)
            continue;
        audit_kids(a->c, i);
        rotten += n->host_corrupt != 0;
        if (n->host_corrupt && !node_on_host(n))
            oracle_fail("audit: node %u has rotten pages on a tier where it is not", i);
        if (n->depth == 0 && (!node_on_device(n) || !node_on_host(n) || n->work.copy != COPY_NONE))
            oracle_fail("audit: root %u is on %u/%u, copy state %u", i, node_on_device(n),
                        node_on_host(n), n->work.copy);
    }
    if (rotten != a->c->host_corrupt)
        oracle_fail("audit: %u nodes are rotten, %u counted", rotten, a->c->host_corrupt);
    audit_queue(a->c);
    audit_loaders(a->c);
    audit_away(a->c);
    audit_closing(a->c);
    audit_tiers(a->c);
    audit_counts(a->c);
    audit_spaces(a->c);
}
