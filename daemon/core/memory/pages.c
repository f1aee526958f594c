/* Page states and slabs. See pages.h. A slab without used pages returns to its pool at once and
 * stays formatted for its group, so the group can take it again at no cost. */
#include "core/memory/pages.h"

static void count_move(struct group *g, enum page_state from, enum page_state to)
{
    check(g->count[from] > 0);
    g->count[from]--;
    g->count[to]++;
    if (g->count[PAGE_OWNED] > g->peak_owned)
        g->peak_owned = g->count[PAGE_OWNED];
    /* state.c updates the peak of a STATE group at the end of a commit. */
    if (g->layout.family == FAMILY_HISTORY && g->count[PAGE_COMMITTED] > g->peak_committed)
        g->peak_committed = g->count[PAGE_COMMITTED];
}

void page_move(struct core *c, struct page *p, enum page_state to, uint32_t owner)
{
    enum page_state from = p->state;

    page_state_move(&p->state, to);
    count_move(&pool_at(c, p->pool)->group[p->group], from, to);
    p->owner = owner;
    touch(c);
}

static void slab_format(const struct core *c, uint32_t slot, const struct pool *p, uint32_t group)
{
    struct slab *s = slab_at(c, slot);
    uint32_t n = p->group[group].pages_per_slab, local = slot - p->slab_base;
    uint32_t base = p->page_base + local * p->pages_per_slab_max;

    s->group = group;
    s->nfree = n;
    s->free_head = base;
    for (uint32_t i = 0; i < n; i++) {
        struct page *pg = page_at(c, base + i);

        pg->index = local * n + i;
        pg->pool = (uint16_t)pool_slot(c, p);
        pg->group = (uint8_t)group;
        check(pg->state == PAGE_FREE); /* a slab is released when all of its pages are free */
        pg->owner = NONE;
        pg->in_list = (struct list_links){.next = i + 1 < n ? base + i + 1 : NONE, .prev = NONE};
    }
}

bool slab_loose(const struct slab *s, const struct group *g)
{
    return s->nfree + s->obtainable == g->pages_per_slab;
}

static void slab_assign(struct core *c, struct pool *p, uint32_t group)
{
    uint32_t slot = slab_list_pop(c, &p->free_slabs);
    struct slab *s = slab_at(c, slot);
    struct group *g = &p->group[group];

    if (s->group != group)
        slab_format(c, slot, p, group);
    s->assigned = 1;
    g->held++;
    g->loose++;
    g->count[PAGE_FREE] += g->pages_per_slab;
    slab_list_push_front(c, &g->partial, slot);
}

static void slab_unassign(struct pool *p, const struct core *c, uint32_t slot)
{
    struct slab *s = slab_at(c, slot);
    struct group *g = &p->group[s->group];

    slab_list_remove(c, &g->partial, slot);
    s->assigned = 0;
    g->held--;
    g->loose--;
    g->count[PAGE_FREE] -= g->pages_per_slab;
    slab_list_push_front(c, &p->free_slabs, slot);
}

void page_free(struct core *c, uint32_t record)
{
    struct page *pg = page_at(c, record);
    struct pool *p = pool_at(c, pg->pool);
    struct group *g = &p->group[pg->group];
    uint32_t slot = p->slab_base + pg->index / g->pages_per_slab;
    struct slab *s = slab_at(c, slot);

    page_move(c, pg, PAGE_FREE, NONE);
    pg->gen = gen_next(pg->gen);
    pg->in_list = (struct list_links){.next = s->free_head, .prev = NONE};
    s->free_head = record;
    if (s->nfree++ == 0)
        slab_list_push_front(c, &g->partial, slot);
    g->loose += slab_loose(s, g);
    if (s->nfree == g->pages_per_slab)
        slab_unassign(p, c, slot);
}

void page_obtainable(struct core *c, struct pool *p, uint32_t record, bool in)
{
    struct slab *s = slab_at(c, p->slab_base + (record - p->page_base) / p->pages_per_slab_max);
    struct group *g = &p->group[s->group];

    g->loose -= slab_loose(s, g);
    s->obtainable += in ? 1 : -1u;
    g->obtainable += in ? 1 : -1u;
    g->loose += slab_loose(s, g);
}

void pages_free(struct core *c, struct list *list)
{
    while (list->n > 0)
        page_free(c, page_list_pop(c, list));
}

uint32_t chain_free(struct core *c, uint32_t *head)
{
    uint32_t freed = 0;

    for (uint32_t at = *head, next; at != NONE; at = next, freed++) {
        next = page_list_next(c, at);
        page_free(c, at);
    }
    *head = NONE;
    return freed;
}

uint32_t group_used(const struct group *g)
{
    return g->held * g->pages_per_slab - g->count[PAGE_FREE];
}

uint32_t group_free(const struct pool *p, uint32_t group)
{
    const struct group *g = &p->group[group];
    uint32_t n = g->count[PAGE_FREE] + p->free_slabs.n * g->pages_per_slab,
             cap = g->layout.cap_pages;

    if (cap && n > cap - group_used(g))
        n = cap - group_used(g);
    return n;
}

uint32_t group_total(const struct pool *p, uint32_t group)
{
    return group_free(p, group) + group_used(&p->group[group]);
}

/* What a pool has, or would have. */
struct stock {
    uint32_t slabs;            /* slabs of no group */
    uint32_t used[GROUPS_MAX]; /* pages that are not free */
    uint32_t own[GROUPS_MAX];  /* free pages in the group's slabs */
    uint32_t promised[GROUPS_MAX];
};

static bool stock_fits(const struct pool *p, const struct stock *stock, const uint32_t *need,
                       uint32_t *ret_short)
{
    uint32_t slabs = 0;

    for (uint32_t g = 0; g < p->ngroups; g++) {
        uint32_t cap = p->group[g].layout.cap_pages, n = need[g] + stock->promised[g];

        *ret_short = g;
        if (cap && n > cap - stock->used[g])
            return false;
        if (n > stock->own[g]) /* groups share free slabs: count each group's */
            slabs += div_up(n - stock->own[g], p->group[g].pages_per_slab);
        if (slabs > stock->slabs)
            return false;
    }
    return true;
}

bool pages_fit(const struct pool *p, bool evicted, const uint32_t *need, uint32_t *ret_short)
{
    struct stock stock = {.slabs = p->free_slabs.n};

    for (uint32_t g = 0; g < p->ngroups; g++) {
        const struct group *gr = &p->group[g];
        uint32_t loose = evicted ? gr->loose : 0;

        stock.slabs += loose;
        stock.used[g] = group_used(gr) - (evicted ? gr->obtainable : 0);
        stock.own[g] = (gr->held - loose) * gr->pages_per_slab - stock.used[g];
        stock.promised[g] = gr->promised;
    }
    return stock_fits(p, &stock, need, ret_short);
}

void pages_promise(struct pool *p, const uint32_t *promised)
{
    for (uint32_t g = 0; g < p->ngroups; g++)
        p->group[g].promised += promised[g];
}

void pages_promise_take(struct pool *p, uint32_t *promised, const uint32_t *need)
{
    for (uint32_t g = 0; g < p->ngroups; g++) {
        uint32_t n = need[g] < promised[g] ? need[g] : promised[g];

        promised[g] -= n;
        p->group[g].promised -= n;
    }
}

bool pages_possible(const struct pool *p, const uint32_t *all, uint32_t *ret_short,
                    uint32_t *ret_most)
{
    struct stock stock = {.slabs = p->free_slabs.n};
    uint32_t left, cap;

    for (uint32_t g = 0; g < p->ngroups; g++)
        stock.slabs += p->group[g].held;
    if (stock_fits(p, &stock, all, ret_short))
        return true;
    left = stock.slabs;
    for (uint32_t g = 0; g < *ret_short; g++)
        left -= div_up(all[g], p->group[g].pages_per_slab);
    *ret_most = left * p->group[*ret_short].pages_per_slab;
    cap = p->group[*ret_short].layout.cap_pages;
    if (cap && *ret_most > cap)
        *ret_most = cap;
    return false;
}

uint32_t page_take(struct core *c, struct pool *p, uint32_t group, enum page_state state,
                   uint32_t owner)
{
    struct group *g = &p->group[group];
    struct slab *s;
    struct page *pg;
    uint32_t slot, record;

    if (g->partial.n == 0)
        slab_assign(c, p, group);
    slot = g->partial.head;
    s = slab_at(c, slot);
    record = s->free_head;
    pg = page_at(c, record);
    s->free_head = pg->in_list.next;
    g->loose -= slab_loose(s, g);
    if (--s->nfree == 0)
        slab_list_remove(c, &g->partial, slot);
    pg->in_list = (struct list_links){.next = NONE, .prev = NONE};
    pg->chain = NONE;
    pg->tries = 0;
    page_seal_state_move(&pg->seal, PAGE_SEAL_NONE);
    if (pg->gen == 0)
        pg->gen = 1; /* a ref of generation 0 is never valid */
    page_move(c, pg, state, owner);
    return record;
}

struct page *page_find(const struct core *c, const struct pool *p, uint32_t group,
                       struct page_ref ref)
{
    const struct group *g;
    const struct slab *s;
    struct page *pg;
    uint32_t local;

    if (group >= p->ngroups)
        return NULL;
    g = &p->group[group];
    local = ref.index / g->pages_per_slab;
    if (local >= p->nslabs)
        return NULL;
    s = slab_at(c, p->slab_base + local);
    if (!s->assigned || s->group != group)
        return NULL;
    pg = page_at(c, p->page_base + local * p->pages_per_slab_max + ref.index % g->pages_per_slab);
    if (pg->state == PAGE_FREE || pg->gen != ref.gen)
        return NULL;
    return pg;
}
