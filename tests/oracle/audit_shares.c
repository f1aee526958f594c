/* The audit of the shares: it counts every record of a table that tenants fill again for its
 * holder, and derives the free part of the shared remainder from these counts. */

#include "oracle/audit.h"

struct count {
    uint32_t *used[SHARE_TABLES]; /* by holder */
    uint32_t *held;               /* by namespace */
    uint32_t keyed[POOLS_LIMIT];  /* nodes with extra keys */
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
            n->used[SHARE_SESSIONS][pool_at(c, s->pool)->tenant]++;
    }
}

static void count_pools(const struct core *c, struct count *n)
{
    for (uint32_t i = 0; i < c->limits.pools; i++) {
        const struct pool *p = pool_at(c, i);

        if (p->state == POOL_EMPTY)
            continue;
        n->used[SHARE_POOLS][p->tenant]++;
        n->used[SHARE_NAMESPACES][p->tenant] += p->spaces.n;
        n->used[SHARE_SLABS][p->tenant] += p->nslabs;
        n->used[SHARE_PAGES][p->tenant] += p->nslabs * p->pages_per_slab_max;
    }
}

static void count_chain(const struct core *c, struct count *n, uint32_t tenant, uint32_t blocks,
                        uint32_t keys)
{
    for (; blocks != NONE; blocks = *block_next(c, blocks))
        n->used[SHARE_TOKEN_BLOCKS][tenant]++;
    for (; keys != NONE; keys = key_at(c, keys)->next)
        n->used[SHARE_EXTRA_KEYS][tenant]++;
}

/* Nodes and sessions keep tokens; pins of nodes keep their namespace. */
static void count_records(const struct core *c, struct count *n)
{
    for (uint32_t i = 0; i < c->limits.nodes; i++) {
        const struct node *at = node_at(c, i);

        if (!at->used)
            continue;
        n->used[SHARE_NODES][pool_at(c, at->pool)->tenant]++;
        n->held[at->space] += at->nrefs + at->refs[REF_HOST];
        n->keyed[at->pool] += at->keys != NONE;
        if ((at->keys != NONE) != keyed_list_has(c, i))
            oracle_fail("audit: T22: node %u is in the list of those with extra keys, or is not, "
                        "wrongly",
                        i);
        if (at->depth > 0)
            count_chain(c, n, pool_at(c, at->pool)->tenant, at->tokens, at->keys);
    }
    for (uint32_t i = 0; i < c->limits.sessions; i++) {
        const struct session *s = session_at(c, i);

        if (s->state != SESSION_EMPTY)
            count_chain(c, n, pool_at(c, s->pool)->tenant, s->tokens.head, s->tokens.keys);
        if (s->state == SESSION_HANDED)
            count_chain(c, n, pool_at(c, s->pool)->tenant, s->blob.head, NONE);
    }
    for (uint32_t i = 0; i < c->limits.pulls; i++)
        if (pull_at(c, i)->state != PULL_EMPTY)
            count_chain(c, n, pull_at(c, i)->tenant, pull_at(c, i)->blob.head, NONE);
}

/* A namespace is in the list of those that may be evicted exactly while nothing pins it. */
static void audit_idle(const struct core *c, const struct count *n)
{
    for (uint32_t i = 0; i < c->limits.pools; i++) {
        const struct pool *p = pool_at(c, i);
        uint32_t keys = 0;

        if (p->state == POOL_EMPTY)
            continue;
        for (uint32_t at = p->spaces.head; at != NONE; at = space_list_next(c, at))
            if (space_at(c, at)->held != n->held[at] || idle_list_has(c, at) != (n->held[at] == 0))
                oracle_fail("audit: T22: namespace %u counts %u pins and has %u, or it may make "
                            "way and is held",
                            at, space_at(c, at)->held, n->held[at]);
        for (uint32_t at = p->keyed.head; at != NONE; at = keyed_list_next(c, at))
            for (uint32_t k = node_at(c, at)->keys; k != NONE; k = key_at(c, k)->next)
                keys++;
        if (p->keyed.n != n->keyed[i] || p->node_keys != keys)
            oracle_fail("audit: T22: pool %u counts %u nodes with extra keys and has %u; it counts "
                        "%u keys of theirs and has %u",
                        i, p->keyed.n, n->keyed[i], p->node_keys, keys);
    }
}

static void count_transfers(const struct core *c, struct count *n)
{
    uint32_t peers = c->limits.peers ? c->limits.peers : 1,
             sources = c->limits.disk_chunks ? c->limits.peers + 1 : peers;

    for (uint32_t i = 0; i < c->limits.resets; i++)
        n->used[SHARE_RESETS][reset_at(c, i)->tenant] +=
            reset_at(c, i)->state == RESET_ASKED || reset_at(c, i)->state == RESET_OWED;
    for (uint32_t i = c->asks.head; i != NONE; i = ask_list_next(c, i))
        n->used[SHARE_ASKS][ask_at(c, i)->tenant]++;
    for (uint32_t i = 0; i < c->limits.turn_records; i++) {
        const struct turn_record *r = turn_record_at(c, i);

        n->used[SHARE_TURN_RECORDS][r->tenant] += r->state != TURN_RECORD_EMPTY;
        n->used[SHARE_RECORD_JOBS][r->tenant] +=
            r->state == TURN_RECORD_CHECKING || r->state == TURN_RECORD_LEAVING;
    }
    for (uint32_t i = 0; i < c->limits.pulls; i++) {
        const struct pull *p = pull_at(c, i);

        n->used[SHARE_PULLS]
               [p->tenant * sources + (p->link < c->limits.peers ? p->link : c->limits.peers)] +=
            p->state != PULL_EMPTY;
    }
    for (uint32_t i = 0; i < c->limits.disk_chunks; i++) {
        const struct disk_chunk *k = disk_chunk_at(c, i);

        if (!k->used)
            continue;
        n->used[SHARE_DISK_CHUNKS][k->tenant]++;
        for (uint32_t at = k->tokens; at != NONE; at = *block_next(c, at))
            n->used[SHARE_DISK_BLOCKS][k->tenant]++;
        for (uint32_t at = k->keys; at != NONE; at = key_at(c, at)->next)
            n->used[SHARE_DISK_KEYS][k->tenant]++;
    }
    for (uint32_t i = 0; i < c->limits.disk_files; i++)
        n->used[SHARE_DISK_FILES][disk_file_at(c, i)->tenant] +=
            disk_file_at(c, i)->state != DISK_FILE_EMPTY;
    for (uint32_t i = c->disk_stores.head; i != NONE; i = disk_store_list_next(c, i))
        n->used[SHARE_DISK_STORES][disk_store_at(c, i)->tenant]++;
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

/* A holder that has more than its reserved records has the others from the shared remainder. */
static void audit_table(const struct core *c, const uint32_t *used, enum share_table table,
                        const struct tenant_config *tenants)
{
    const struct share_of_table *t = &c->share[table];
    uint32_t taken = 0;

    for (uint32_t h = 0; h < t->holders; h++) {
        uint32_t reserved = share_reserved(&c->limits, tenants, table, h);

        if (used[h] != share_holder(c, table, h)->used ||
            reserved != share_holder(c, table, h)->reserved)
            oracle_fail("audit: T22: holder %u has %u records of table %u and %u are counted; %u "
                        "are reserved, and not %u",
                        h, used[h], table, share_holder(c, table, h)->used, reserved,
                        share_holder(c, table, h)->reserved);
        taken += used[h] > reserved ? used[h] : reserved;
    }
    if (taken + t->rest != share_limit(&c->limits, table))
        oracle_fail("audit: T22: of %u records of table %u %u are held or reserved, and %u are "
                    "said to be left",
                    share_limit(&c->limits, table), table, taken, t->rest);
}

/* X8: a tenant counts the batches of its transfers, and a transfer those under way. */
static void audit_batches(const struct core *c)
{
    uint32_t *of = audit_scratch(c->limits.tenants, sizeof *of), most = c->limits.tenant_batches;

    for (uint32_t i = 0; i < c->limits.pulls; i++) {
        const struct pull *p = pull_at(c, i);
        uint32_t used = 0;

        if (p->state == PULL_EMPTY)
            continue;
        for (uint32_t b = 0; b < PULL_BATCHES_MAX; b++)
            used += p->batch[b].used;
        if (p->batches < used || (p->state == PULL_RUNNING && p->batches != used))
            oracle_fail("audit: X8: pull %u has %u batches under way and counts %u", i, used,
                        p->batches);
        of[p->tenant] += p->batches;
    }
    for (uint32_t t = 0; t < c->limits.tenants; t++)
        if (of[t] != tenant_at(c, t)->batches || (most > 0 && of[t] > most))
            oracle_fail("audit: X8: tenant %u has %u batches of %u that it may have, and counts %u",
                        t, of[t], most, tenant_at(c, t)->batches);
}

void audit_shares(struct audit *a)
{
    const struct core *c = a->c;
    struct tenant_config *tenants;
    struct share_of_table laid[SHARE_TABLES];
    struct count n = {.keyed = {0}};
    uint32_t holders, *all;

    shares_layout(&c->limits, laid);
    holders = shares_holders(laid);
    all = audit_scratch(holders + c->limits.namespaces, sizeof *all);
    tenants = audit_scratch(c->limits.tenants, sizeof *tenants);
    for (uint32_t i = 0; i < c->limits.tenants; i++)
        tenants[i] = tenant_at(c, i)->config;
    n.held = all + holders;
    for (uint32_t t = 0; t < SHARE_TABLES; t++)
        n.used[t] = all + laid[t].first_at;
    count_engines(c, &n);
    count_pools(c, &n);
    count_records(c, &n);
    count_transfers(c, &n);
    audit_idle(c, &n);
    for (uint32_t t = 0; t < SHARE_TABLES; t++)
        audit_table(c, n.used[t], t, tenants);
    audit_batches(c);
}
