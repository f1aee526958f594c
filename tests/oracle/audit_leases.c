/* The audit of leases (E5): each LEASED page lies in the list of one engine that has mapped its
 * pool, and is counted there. See audit.h. */
#include "oracle/audit.h"

static void audit_lease(struct audit *a, uint32_t slot)
{
    const struct engine *e = engine_at(a->c, slot);
    uint32_t most = a->c->limits.lease_pages ? a->c->limits.lease_pages : LEASE_PAGES,
             of[POOLS_LIMIT] = {0};

    audit_page_list(a, &e->leased, 1u << PAGE_LEASED, slot, "a lease");
    for (uint32_t at = e->leased.head; at != NONE; at = page_list_next(a->c, at)) {
        const struct page *p = page_at(a->c, at);

        if (p->chain != NONE)
            oracle_fail("audit: E5: page %u of a lease is still named by an operation", at);
        if (pool_at(a->c, p->pool)->state != POOL_OPEN || !(e->pools & 1ull << p->pool))
            oracle_fail("audit: E5: engine %u has page %u leased of a pool that it has not", slot,
                        at);
        of[p->pool]++;
    }
    for (uint32_t p = 0; p < POOLS_LIMIT; p++)
        if (of[p] != e->leased_of[p] || of[p] > most)
            oracle_fail(
                "audit: E5: engine %u has %u pages of pool %u leased, %u counted, %u may be", slot,
                of[p], p, e->leased_of[p], most);
}

void audit_leases(struct audit *a)
{
    for (uint32_t i = 0; i < a->c->limits.engines; i++)
        if (engine_at(a->c, i)->state != ENGINE_EMPTY)
            audit_lease(a, i);
}
