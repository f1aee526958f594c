/* The audit of the shares: every record of a table that tenants fill is counted anew for whoever
 * holds it, and what is left of the common rest follows from that alone. */

#include "oracle/audit.h"

struct count {
    uint32_t *used[SHARE_TABLES]; /* by holder */
};

static void count_engines(const struct core *c, struct count *n)
{
    for (uint32_t i = 0; i < c->limits.engines; i++) {
        const struct engine *e = engine_at(c, i);

        if (e->state != ENGINE_EMPTY)
            n->used[SHARE_RETIRES][e->tenant] += e->retires.n;
        n->used[SHARE_ENGINES][e->tenant] += e->state != ENGINE_EMPTY;
    }
    for (uint32_t i = 0; i < c->limits.sessions; i++) {
        const struct session *s = session_at(c, i);

        if (s->state != SESSION_EMPTY)
            n->used[SHARE_SESSIONS][engine_at(c, s->engine)->tenant]++;
    }
}

static void count_pools(const struct core *c, struct count *n)
{
    for (uint32_t i = 0; i < c->limits.pools; i++)
        n->used[SHARE_POOLS][pool_at(c, i)->tenant] += pool_at(c, i)->state != POOL_EMPTY;
}

static void count_transfers(const struct core *c, struct count *n)
{
    uint32_t peers = c->limits.peers ? c->limits.peers : 1;

    for (uint32_t i = 0; i < c->limits.pulls; i++) {
        const struct pull *p = pull_at(c, i);

        n->used[SHARE_PULLS][p->tenant * peers + p->link] += p->state != PULL_EMPTY;
    }
    for (uint32_t i = 0; i < c->limits.serves; i++) {
        const struct serve *s = serve_at(c, i);

        if (s->state == SERVE_EMPTY)
            continue;
        if (s->holder / peers != pool_at(c, s->pool)->tenant)
            oracle_fail("audit: T22: transfer %u is of tenant %u, and counts for holder %u", i,
                        pool_at(c, s->pool)->tenant, s->holder);
        n->used[SHARE_SERVES][s->holder]++;
    }
}

/* A holder that has more than what is reserved for it has the rest from what is common. */
static void audit_table(const struct core *c, const uint32_t *used, enum share_table table,
                        const struct share_of_table *laid)
{
    const struct share_of_table *t = &c->share[table];
    uint32_t common = 0;

    if (t->holders != laid->holders || t->reserved != laid->reserved)
        oracle_fail("audit: T22: table %u reserves %u records for each of %u, and not %u for %u",
                    table, t->reserved, t->holders, laid->reserved, laid->holders);
    for (uint32_t h = 0; h < t->holders; h++) {
        if (used[h] != *share_used(c, table, h))
            oracle_fail("audit: T22: holder %u has %u records of table %u, and %u are counted", h,
                        used[h], table, *share_used(c, table, h));
        common += used[h] > t->reserved ? used[h] - t->reserved : 0;
    }
    if (common + t->rest != laid->rest)
        oracle_fail("audit: T22: of %u common records of table %u %u are held, and %u are said to "
                    "be left",
                    laid->rest, table, common, t->rest);
}

void audit_shares(struct audit *a)
{
    struct share_of_table laid[SHARE_TABLES];
    struct count n;
    uint32_t holders = shares_layout(&a->c->limits, laid),
             *all = audit_scratch(holders, sizeof *all);

    for (uint32_t t = 0; t < SHARE_TABLES; t++)
        n.used[t] = all + laid[t].used_at;
    count_engines(a->c, &n);
    count_pools(a->c, &n);
    count_transfers(a->c, &n);
    for (uint32_t t = 0; t < SHARE_TABLES; t++)
        audit_table(a->c, n.used[t], t, &laid[t]);
}
