/* The audit of STATE: the borrowers and claims of a segment, superseded segments, known checksums.
 * It recomputes each count from the holders, and derives by a walk of its own, from the pages
 * alone, whether a node can be resumed. See audit.h. */
#include "oracle/audit.h"

#include "core/tree/state.h"

struct counts {
    uint32_t borrowers, host_borrowers, listed;
    uint32_t needed, nearest; /* number of claims, and the depth of the nearest one */
};

static void hold(const struct audit *a, struct counts *n, uint32_t slot, uint32_t low)
{
    for (; node_at(a->c, slot)->depth > low; slot = node_at(a->c, slot)->parent)
        n[slot].borrowers++;
}

/* The loaders of a load that has not arrived borrow its nodes, and none of these counts as lent. */
static void hold_loaders(const struct audit *a, struct counts *n, const struct session *s)
{
    if (s->load.hold.node == NONE || s->load.state == LOAD_ENDING ||
        pool_at(a->c, s->pool)->nstate == 0)
        return;
    for (uint32_t at = s->load.hold.node; node_at(a->c, at)->depth > s->load.hold.state_from;
         at = node_at(a->c, at)->parent) {
        n[at].borrowers += node_at(a->c, at)->depth > s->load.from;
        n[at].host_borrowers -= node_at(a->c, at)->depth > s->lent_from;
    }
}

static void hold_session(const struct audit *a, struct counts *n, const struct session *s)
{
    uint32_t lent = s->left.node != NONE ? s->left.node : s->node;

    if (s->state == SESSION_EMPTY)
        return;
    hold(a, n, s->node, s->state_from);
    if (s->left.node != NONE)
        hold(a, n, s->left.node, s->left.state_from);
    for (; node_at(a->c, lent)->depth > s->lent_from; lent = node_at(a->c, lent)->parent)
        n[lent].host_borrowers++;
    hold_loaders(a, n, s);
}

/* Nodes deeper than the store's prefix on the device are borrowed on the host. */
static void hold_store(const struct audit *a, struct counts *n, const struct disk_store *s)
{
    if (s->state == DISK_STORE_DUE)
        return;
    hold(a, n, s->node, s->state_from);
    for (uint32_t at = s->node; node_at(a->c, at)->depth > s->state_from &&
                                node_at(a->c, at)->depth > node_at(a->c, s->device)->depth;
         at = node_at(a->c, at)->parent)
        n[at].host_borrowers++;
}

static void count_holders(const struct audit *a, struct counts *n)
{
    const struct core *c = a->c;

    for (uint32_t i = 0; i < c->limits.sessions; i++)
        hold_session(a, n, session_at(c, i));
    for (uint32_t i = 0; i < c->limits.engines; i++)
        for (uint32_t at = engine_at(c, i)->state == ENGINE_EMPTY ? NONE
                                                                  : engine_at(c, i)->retires.head;
             at != NONE; at = retire_list_next(c, at))
            if (retire_at(c, at)->pin.node != NONE)
                hold(a, n, retire_at(c, at)->pin.node, retire_at(c, at)->pin.state_from);
    for (uint32_t i = c->disk_stores.head; i != NONE; i = disk_store_list_next(c, i))
        hold_store(a, n, disk_store_at(c, i));
    for (uint32_t i = 0; i < c->limits.serves; i++)
        if (serve_at(c, i)->state != SERVE_EMPTY)
            hold(a, n, serve_at(c, i)->node, serve_at(c, i)->state_from);
}

/* Returns the number of chunks in which a window that ends at a chunk's end has pages. */
static uint32_t chunks_of(const struct pool *p, uint32_t g)
{
    const struct group_layout *l = &p->group[g].layout;

    return l->family == FAMILY_RECURRENT ? 1 : (l->window + p->align - 1) / p->align;
}

static bool resumable(const struct core *c, const struct pool *p, uint32_t slot)
{
    for (uint32_t g = 0; g < p->ngroups; g++) {
        uint32_t at = slot;

        if (p->group[g].layout.family == FAMILY_HISTORY)
            continue;
        for (uint32_t i = 0; i < chunks_of(p, g) && node_at(c, at)->depth > 0; i++) {
            if (node_at(c, at)->group[g].pages[TIER_DEVICE] == NONE ||
                node_at(c, at)->state.refilling & 1u << g)
                return false;
            at = node_at(c, at)->parent;
        }
    }
    return true;
}

static void count_claims(const struct audit *a, struct counts *n)
{
    const struct core *c = a->c;

    for (uint32_t i = 0; i < c->limits.nodes; i++) {
        const struct node *m = node_at(c, i);
        const struct pool *p = pool_at(c, m->pool);
        uint32_t most = 0, at = i;

        if (!m->used || !m->state.claims_window)
            continue;
        if (m->state.resume != RESUME_POINT || m->depth == 0 || !resumable(c, p, i))
            oracle_fail("audit: T19: node %u, depth %u, claims a window that is not complete", i,
                        m->depth);
        for (uint32_t g = 0; g < p->ngroups; g++)
            if (p->group[g].layout.family != FAMILY_HISTORY && chunks_of(p, g) > most)
                most = chunks_of(p, g);
        for (uint32_t k = 0; k < most && node_at(c, at)->depth > 0; k++) {
            n[at].needed++;
            if (n[at].nearest == 0 || m->depth < n[at].nearest)
                n[at].nearest = m->depth;
            at = node_at(c, at)->parent;
        }
    }
}

/* No copy between the tiers reads or writes its STATE, and no load needs it. */
bool audit_state_at_rest(const struct core *c, const struct node *n)
{
    const struct pool *p = pool_at(c, n->pool);

    for (uint32_t g = 0; g < p->ngroups; g++)
        if (p->group[g].layout.family != FAMILY_HISTORY && n->group[g].copying != NONE)
            return false;
    return n->work.loaders == 0 && node_visible(n) && !n->state.refilling &&
           n->work.seal != SEAL_QUEUED && n->work.seal != SEAL_RUNNING;
}

/* T10, T17: a segment is superseded if a resume point has passed it and nothing needs it. */
static bool superseded(const struct core *c, const struct node *n, uint32_t claims)
{
    return pool_at(c, n->pool)->supersede != SUPERSEDE_OFF && n->depth > 0 &&
           (n->state.successor == SUCCESSOR_BELOW || n->state.resume == RESUME_RELEASED) &&
           n->children.n < 2 && n->state.borrowers == 0 && claims == n->state.claims_window &&
           audit_state_at_rest(c, n) && state_has(c, n);
}

/* Checks the nearest claim that each child reports, and the nearest of all by the node's heap. The
 * children of a root report none. */
static void audit_told(const struct core *c, uint32_t slot, struct counts *n)
{
    const struct node *m = node_at(c, slot);
    uint32_t top = m->state.claims_below, nearest = 0;

    for (uint32_t at = m->children.head; at != NONE; at = child_list_next(c, at)) {
        uint32_t claim = m->depth == 0 ? 0 : n[at].nearest;

        if (node_at(c, at)->state.claim != claim ||
            !claim != !node_at(c, at)->heap_rank[HEAP_CLAIM])
            oracle_fail("audit: T10: node %u tells of a claim at %u, the nearest is at %u", at,
                        node_at(c, at)->state.claim, claim);
        nearest = claim > 0 && (nearest == 0 || claim < nearest) ? claim : nearest;
    }
    if ((top == NONE ? 0 : node_at(c, top)->state.claim) != nearest)
        oracle_fail("audit: T10: the nearest claim below node %u is at %u", slot, nearest);
}

static void audit_reclaim(const struct audit *a, uint32_t slot, struct counts *n)
{
    const struct core *c = a->c;
    const struct pool *p = pool_at(c, slot);
    uint32_t pages[GROUPS_MAX] = {0}, prev = reclaim_list_last(c, &p->reclaim), listed = 0;

    for (uint32_t at = p->reclaim.head; at != NONE; prev = at, at = reclaim_list_next(c, at)) {
        const struct node *m = node_at(c, at);

        listed++;
        if (n[at].listed++ || !m->used || m->pool != slot || m->state.reclaim.prev != prev)
            oracle_fail("audit: node %u is wrongly in a reclaim list", at);
        for (uint32_t g = 0; g < p->ngroups; g++)
            if (p->group[g].layout.family != FAMILY_HISTORY)
                for (uint32_t page = m->group[g].pages[TIER_DEVICE]; page != NONE;
                     page = page_list_next(c, page))
                    pages[g]++;
    }
    if (listed != p->reclaim.n || (listed > 0 && p->supersede != SUPERSEDE_LAZY))
        oracle_fail("audit: the reclaim list of pool %u ends elsewhere", slot);
    for (uint32_t g = 0; g < p->ngroups; g++)
        if (pages[g] != p->group[g].reclaimable)
            oracle_fail("audit: group %u counts %u reclaimable pages and has %u", g,
                        p->group[g].reclaimable, pages[g]);
}

/* Each page's checksum is known, is being computed, or is asked for. */
static void audit_sealed(const struct core *c, uint32_t slot)
{
    const struct node *n = node_at(c, slot);
    const struct pool *p = pool_at(c, n->pool);
    bool asked = n->work.seal == SEAL_QUEUED || n->work.seal == SEAL_RUNNING;

    for (uint32_t g = 0; g < p->ngroups; g++)
        for (uint32_t at = n->group[g].pages[TIER_DEVICE]; at != NONE; at = page_list_next(c, at)) {
            uint32_t sealed = page_at(c, at)->seal;
            bool refilled = n->state.refilling & 1u << g;

            if ((sealed == PAGE_SEAL_RUNNING && n->work.seal != SEAL_RUNNING) ||
                (sealed != PAGE_SEAL_DONE && n->work.seal == SEAL_DONE && !refilled))
                oracle_fail("audit: page %u is sealed %u in a node that is sealed %u", at, sealed,
                            n->work.seal);
            if (sealed != PAGE_SEAL_DONE && !refilled && node_visible(n) && node_on_device(n) &&
                !asked)
                oracle_fail("audit: page %u has no checksum, and node %u waits for none", at, slot);
        }
}

void audit_state(struct audit *a)
{
    const struct core *c = a->c;
    struct counts *n = audit_scratch(c->limits.nodes, sizeof *n);
    uint32_t remade[POOLS_LIMIT] = {0};

    count_holders(a, n);
    count_claims(a, n);
    for (uint32_t i = 0; i < c->limits.pools; i++)
        if (pool_at(c, i)->state != POOL_EMPTY)
            audit_reclaim(a, i, n);
    for (uint32_t i = 0; i < c->limits.nodes; i++) {
        const struct node *m = node_at(c, i);

        if (!m->used)
            continue;
        audit_sealed(c, i);
        if (pool_at(c, m->pool)->nstate == 0)
            continue;
        remade[m->pool] += (m->state.successor == SUCCESSOR_EARLIER);
        if (m->state.borrowers != n[i].borrowers)
            oracle_fail("audit: T17: node %u, depth %u, counts %u borrowers; has %u", i, m->depth,
                        m->state.borrowers, n[i].borrowers);
        audit_told(c, i, n);
        if (m->state.host_borrowers != n[i].host_borrowers)
            oracle_fail("audit: T17: node %u counts %u borrowers on the host and has %u", i,
                        m->state.host_borrowers, n[i].host_borrowers);
        if (state_reclaimable(m) != n[i].listed)
            oracle_fail("audit: node %u believes that it is in the reclaim list", i);
        if (superseded(c, m, n[i].needed) != state_reclaimable(m))
            oracle_fail(
                "audit: T10: node %u, depth %u, %s superseded and %s listed; copy %u, %u loaders",
                i, m->depth, superseded(c, m, n[i].needed) ? "is" : "is not",
                state_reclaimable(m) ? "is" : "is not", m->work.copy, m->work.loaders);
    }
    for (uint32_t i = 0; i < c->limits.pools; i++)
        if (pool_at(c, i)->state != POOL_EMPTY && pool_at(c, i)->resumed_anew != remade[i])
            oracle_fail("audit: pool %u counts %u nodes made anew and has %u", i,
                        pool_at(c, i)->resumed_anew, remade[i]);
}
