/* Pools: checks layouts, carves a pool from the tenant's memory and its records, and finds pools.
 * Invariant: slab 0 of a pool is never used, so index 0 exists in no group. */
#include "core/memory/pages.h"

#include "core/arena/actions.h"

#include <string.h>

#include "base/hash.h"

#define MAP_ALIGN 4096u

struct pool *pool_find(const struct core *c, struct pool_id id)
{
    struct pool *p;

    if (id.slot >= c->limits.pools)
        return NULL;
    p = pool_at(c, id.slot);
    return p->gen == id.gen && p->tier == TIER_DEVICE &&
                   (p->state == POOL_OPEN || p->state == POOL_CLOSING)
               ? p
               : NULL;
}

static uint64_t gcd(uint64_t a, uint64_t b)
{
    while (b) {
        uint64_t r = a % b;

        a = b;
        b = r;
    }
    return a;
}

static bool lcm_within(uint64_t a, uint64_t b, uint64_t max, uint64_t *ret)
{
    uint64_t f = a / gcd(a, b);

    if (f > max / b)
        return false;
    *ret = f * b;
    return true;
}

static enum tern_err family_check(const struct group_layout *g, struct reply *ret)
{
    bool window = g->family == FAMILY_WINDOW;

    if (g->family > FAMILY_RECURRENT)
        return refuse(ret, TERN_UNSUPPORTED,
                      "the family of a group is HISTORY, WINDOW or RECURRENT");
    if (window != (g->window > 0) || window != (g->reserve > 0) || g->window > SESSION_TOKENS_MAX ||
        g->reserve > SESSION_TOKENS_MAX)
        return refuse(ret, TERN_INVALID,
                      "a WINDOW group needs a window and a reserve of 1 to 4,194,304 tokens; other "
                      "groups have neither");
    return TERN_OK;
}

/* Finds the least common multiple of the HISTORY groups' page_tokens; 0: there is no such group. */
static bool least_align(const struct req_pool_open *req, uint64_t *ret_align)
{
    *ret_align = 0;
    for (uint32_t i = 0; i < req->ngroups; i++) {
        if (req->group[i].family != FAMILY_HISTORY)
            continue;
        if (!lcm_within(*ret_align ? *ret_align : 1, req->group[i].page_tokens, ALIGN_TOKENS_MAX,
                        ret_align))
            return false;
    }
    return true;
}

/* Finds L: what the HISTORY groups need, or a multiple of it that the pool declares. Every STATE
 * group's page_tokens must divide it. */
static bool align_of(const struct req_pool_open *req, uint64_t *ret_align)
{
    if (!least_align(req, ret_align))
        return false;
    if (req->align_tokens != 0 && *ret_align != 0) {
        if (req->align_tokens > ALIGN_TOKENS_MAX || req->align_tokens % *ret_align != 0)
            return false;
        *ret_align = req->align_tokens;
    }
    for (uint32_t i = 0; i < req->ngroups; i++)
        if (*ret_align == 0 || *ret_align % req->group[i].page_tokens != 0)
            return false;
    return true;
}

/* Refuses with the reason why there is no L. */
static enum tern_err align_refused(const struct req_pool_open *req, struct reply *ret)
{
    uint64_t least, chunk;

    if (!least_align(req, &least) || least == 0)
        return refuse(ret, TERN_INVALID,
                      "a pool needs a HISTORY group, and the least common multiple of the HISTORY "
                      "groups' page_tokens must be at most 16384");
    if (req->align_tokens > ALIGN_TOKENS_MAX || req->align_tokens % least != 0)
        return refuse_numbers(ret, TERN_INVALID,
                              "align_tokens is #, and must be at most 16384 and a multiple of #, "
                              "the least common multiple of the HISTORY groups' page_tokens",
                              req->align_tokens, (uint32_t)least);
    chunk = req->align_tokens != 0 ? req->align_tokens : least;
    return refuse_numbers(ret, TERN_INVALID,
                          "each group's page_tokens must divide # tokens, which is align_tokens or "
                          "the least common multiple of the HISTORY groups' page_tokens",
                          (uint32_t)chunk, 0);
}

static bool slab_of(const struct req_pool_open *req, uint64_t bytes, uint64_t *ret_slab)
{
    *ret_slab = 1;
    for (uint32_t i = 0; i < req->ngroups; i++)
        if (!lcm_within(*ret_slab, req->group[i].page_bytes, bytes / 2, ret_slab))
            return false;
    return true;
}

static uint32_t segment_of(const struct group_layout *g, uint32_t align)
{
    if (g->family == FAMILY_RECURRENT)
        return 1;
    if (g->family == FAMILY_WINDOW && g->window < align)
        return div_up(g->window, g->page_tokens);
    return align / g->page_tokens;
}

enum tern_err layout_check(const struct core *c, const struct req_pool_open *req, struct reply *ret)
{
    uint64_t align, slab, chunk = 0;

    if (req->ngroups == 0 || req->ngroups > c->limits.groups || req->supersede > SUPERSEDE_OFF)
        return refuse(ret, TERN_INVALID,
                      "a pool has 1 to `limits.groups` groups: raise that limit, or give the pool "
                      "fewer groups");
    for (uint32_t i = 0; i < req->ngroups; i++) {
        const struct group_layout *g = &req->group[i];

        TRY(family_check(g, ret));
        if (g->page_tokens == 0 || g->page_tokens > PAGE_TOKENS_MAX || g->page_bytes == 0 ||
            g->page_bytes % 8 != 0)
            return refuse(
                ret, TERN_INVALID,
                "page_tokens must be 1 to 4096, and page_bytes a multiple of 8 that is not 0");
        if (g->page_bytes < c->limits.page_bytes_min)
            return refuse_numbers(
                ret, TERN_INVALID,
                "a page has # bytes, and the daemon's page_bytes_min is #: use larger pages, or "
                "lower page_bytes_min in the daemon's configuration",
                (uint32_t)g->page_bytes, (uint32_t)c->limits.page_bytes_min);
        if (g->units == 0 || g->page_bytes % g->units != 0)
            return refuse(ret, TERN_INVALID,
                          "page_bytes must be a multiple of units, and units at least 1");
        if (g->units > c->limits.sums_per_page)
            return refuse_numbers(ret, TERN_INVALID, PAGE_SUMS_EXCEED, g->units,
                                  c->limits.sums_per_page);
    }
    if (!align_of(req, &align))
        return align_refused(req, ret);
    if (!slab_of(req, req->bytes, &slab) ||
        (req->host_bytes && !slab_of(req, req->host_bytes, &slab)))
        return refuse_numbers(ret, TERN_INVALID,
                              "bytes is # and host_bytes #: each must be at least twice the least "
                              "common multiple of the groups' page_bytes (host_bytes may be 0)",
                              req->bytes, req->host_bytes);
    for (uint32_t i = 0; i < req->ngroups; i++)
        chunk += segment_of(&req->group[i], (uint32_t)align);
    if (chunk > SEAL_PAGES_MAX)
        return refuse(ret, TERN_INVALID,
                      "a chunk of L tokens has more than 256 pages: use larger pages");
    return TERN_OK;
}

uint64_t layout_hash(const struct req_pool_open *req, uint32_t regions)
{
    uint64_t h = hash_mix(req->ngroups, req->shard), least = 0;

    h = hash_mix(h, (uint64_t)regions << 32 | req->axes_hash);
    for (uint32_t i = 0; i < req->ngroups; i++) {
        const struct group_layout *g = &req->group[i];

        h = hash_mix(h, (uint64_t)g->family << 32 | g->page_tokens);
        h = hash_mix(h, g->page_bytes);
        h = hash_mix(h, g->units);
        h = hash_mix(h, (uint64_t)g->window << 32 | g->reserve);
    }
    if (req->align_tokens != 0 && least_align(req, &least) && req->align_tokens != least)
        h = hash_mix(h, req->align_tokens);
    return h;
}

uint64_t fields_hash(const struct req_pool_open *req)
{
    uint64_t h = hash_mix(req->ngroups, req->fields_hash), align = 0;

    align_of(req, &align);
    h = hash_mix(h, align);
    for (uint32_t i = 0; i < req->ngroups; i++) {
        const struct group_layout *g = &req->group[i];

        h = hash_mix(h, (uint64_t)g->family);
        h = hash_mix(h, (uint64_t)g->window << 32 | g->reserve);
    }
    return req->fields_hash == 0 ? 0 : h ? h : 1;
}

/* Ranges begin where a process can map them. */
static uint64_t round_up(uint64_t bytes)
{
    return (bytes + MAP_ALIGN - 1) / MAP_ALIGN * MAP_ALIGN;
}

enum range_of { RANGE_BYTES, RANGE_PAGES, RANGE_SLABS };

static void pool_range(const struct pool *p, enum range_of of, uint64_t *ret_at, uint64_t *ret_n)
{
    *ret_at = of == RANGE_BYTES ? p->offset : of == RANGE_PAGES ? p->page_base : p->slab_base;
    *ret_n = of == RANGE_BYTES   ? round_up(p->bytes)
             : of == RANGE_PAGES ? (uint64_t)p->nslabs * p->pages_per_slab_max
                                 : p->nslabs;
}

/* Returns true if it could overlap a new range of that engine in that tier. Pools may have the same
 * range if they have no common region. */
static bool in_the_way(const struct pool *p, const struct engine *e, enum tier tier,
                       enum range_of of)
{
    return of != RANGE_BYTES || (p->tenant == e->tenant && p->tier == (uint32_t)tier &&
                                 (p->region_set & e->region_set) != 0);
}

/* Finds the first gap of `n` between the pools. Bytes are compared within the regions of the
 * engine's ranks in one tier, records over all pools. */
static bool range_find(const struct core *c, const struct engine *e, enum tier tier,
                       enum range_of of, uint64_t n, uint64_t limit, uint64_t *ret_at)
{
    uint64_t at = 0, other, len;
    bool moved = true;

    while (moved) {
        moved = false;
        for (uint32_t i = 0; i < c->limits.pools; i++) {
            const struct pool *p = pool_at(c, i);

            if (p->state == POOL_EMPTY || !in_the_way(p, e, tier, of))
                continue;
            pool_range(p, of, &other, &len);
            if (at < other + len && other < at + n) {
                at = other + len;
                moved = true;
            }
        }
    }
    *ret_at = at;
    return n <= limit && at <= limit - n;
}

static void group_set(struct pool *p, uint32_t i, const struct group_layout *layout)
{
    struct group *g = &p->group[i];
    uint32_t window = layout->family == FAMILY_RECURRENT ? p->align : layout->window;

    g->layout = *layout;
    g->index = i;
    g->pages_per_slab = (uint32_t)(p->slab_bytes / layout->page_bytes);
    g->partial = LIST_EMPTY;
    g->segment = segment_of(layout, p->align);
    g->reach = div_up(window, p->align);
    p->nstate += layout->family != FAMILY_HISTORY;
    if (g->reach > p->reach)
        p->reach = g->reach;
    if (window > p->window_max)
        p->window_max = window;
}

static void pool_set_groups(struct pool *p, const struct req_pool_open *req, enum tier tier)
{
    uint64_t bytes = tier == TIER_HOST ? req->host_bytes : req->bytes;
    uint64_t align, slab, min_bytes = UINT64_MAX, scale;

    check(align_of(req, &align) && slab_of(req, bytes, &slab));
    for (uint32_t i = 0; i < req->ngroups; i++)
        if (req->group[i].page_bytes < min_bytes)
            min_bytes = req->group[i].page_bytes;
    scale = bytes / slab / SLABS_PER_POOL;
    slab *= scale ? scale : 1;
    p->ngroups = req->ngroups;
    p->supersede = req->supersede;
    p->align = (uint32_t)align;
    p->slab_bytes = slab;
    p->tier = tier;
    p->nslabs = (uint32_t)(bytes / slab);
    p->bytes = p->nslabs * slab;
    p->pages_per_slab_max =
        slab / min_bytes > UINT32_MAX ? UINT32_MAX : (uint32_t)(slab / min_bytes);
    for (uint32_t i = 0; i < req->ngroups; i++) {
        group_set(p, i, &req->group[i]);
        if (tier == TIER_HOST)
            p->group[i].layout.cap_pages = 0;
    }
}

static void pool_set_slabs(const struct core *c, struct pool *p)
{
    p->free_slabs = LIST_EMPTY;
    for (uint32_t i = 0; i < p->nslabs; i++) {
        struct slab *s = slab_at(c, p->slab_base + i);

        memset(s, 0, sizeof *s);
        s->group = s->free_head = NONE;
        s->in_list = (struct list_links){.next = NONE, .prev = NONE};
        if (i > 0) /* index 0 exists in no group */
            slab_list_push(c, &p->free_slabs, p->slab_base + i);
    }
}

static uint64_t tier_bytes(const struct core *c, uint32_t tenant, enum tier tier)
{
    const struct tenant_config *config = &tenant_at(c, tenant)->config;

    return tier == TIER_HOST ? config->host_bytes : config->memory_bytes;
}

static uint64_t page_records(const struct pool *p)
{
    return (uint64_t)p->nslabs * p->pages_per_slab_max;
}

/* Returns true if such a pool would fit if it were the only one. */
static bool could_fit(const struct core *c, uint32_t tenant, enum tier tier,
                      const struct req_pool_open *req)
{
    struct pool p;

    memset(&p, 0, sizeof p);
    pool_set_groups(&p, req, tier);
    return p.bytes <= tier_bytes(c, tenant, tier) &&
           p.nslabs <= share_most(c, SHARE_SLABS, tenant) &&
           page_records(&p) <= share_most(c, SHARE_PAGES, tenant);
}

bool pool_possible(const struct core *c, uint32_t tenant, const struct req_pool_open *req)
{
    return could_fit(c, tenant, TIER_DEVICE, req) &&
           (!req->host_bytes || could_fit(c, tenant, TIER_HOST, req));
}

static enum tern_err carve(struct core *c, const struct engine *e, enum tier tier,
                           const struct req_pool_open *req, uint32_t *ret_pool, struct reply *ret)
{
    uint32_t tenant = e->tenant;
    uint64_t memory = tier_bytes(c, tenant, tier);
    struct pool fresh, *p = NULL;
    uint64_t offset, page_base, slab_base;
    struct reason why;
    uint32_t slot;

    if (share_room(c, SHARE_POOLS, tenant) == 0)
        return refuse(ret, TERN_BUSY, share_refused(SHARE_POOLS));
    for (slot = 0; pool_at(c, slot)->state != POOL_EMPTY; slot++)
        ; /* room in the share guarantees a record */
    memset(&fresh, 0, sizeof fresh);
    pool_set_groups(&fresh, req, tier);
    if (!range_find(c, e, tier, RANGE_BYTES, fresh.bytes, memory, &offset))
        return refuse_numbers(
            ret, TERN_QUOTA,
            tier == TIER_HOST ? "the tenant's host memory has no room for a host tier of # bytes "
                                "in the regions of this engine's ranks, each of # bytes: close a "
                                "pool that lies there, join on other devices, or raise host_memory"
                              : "the tenant's memory has no room for a pool of # bytes in the "
                                "regions of this engine's ranks, each of # bytes: close a pool "
                                "that lies there, join on other devices, or raise memory",
            fresh.bytes, memory);
    if (fresh.nslabs > share_room(c, SHARE_SLABS, tenant))
        return refuse_why(
            ret, share_lacks(c, (struct share_of){SHARE_SLABS, tenant}, fresh.nslabs, &why), &why);
    if (page_records(&fresh) > share_room(c, SHARE_PAGES, tenant))
        return refuse_why(
            ret, share_lacks(c, (struct share_of){SHARE_PAGES, tenant}, page_records(&fresh), &why),
            &why);
    if (!range_find(c, e, tier, RANGE_PAGES, page_records(&fresh), c->limits.pages, &page_base) ||
        !range_find(c, e, tier, RANGE_SLABS, fresh.nslabs, c->limits.slabs, &slab_base))
        return refuse(ret, TERN_BUSY,
                      "the free page or slab records are not contiguous: close a pool, or raise "
                      "limits.pages or limits.pools");
    p = pool_at(c, slot);
    fresh.gen = gen_next(p->gen);
    *p = fresh;
    pool_state_move(&p->state, POOL_OPEN);
    share_take(c, SHARE_POOLS, tenant);
    share_take_n(c, (struct share_of){SHARE_SLABS, tenant}, fresh.nslabs);
    share_take_n(c, (struct share_of){SHARE_PAGES, tenant}, (uint32_t)page_records(&fresh));
    p->tenant = tenant;
    p->opener = NONE;
    p->host_write = tenant_at(c, tenant)->config.host_write;
    for (uint32_t t = 0; t < TIER_COUNT; t++)
        p->tiers[t] = t == p->tier ? slot : NONE;
    p->spaces = p->reclaim = p->changed = p->keyed = LIST_EMPTY;
    for (uint32_t k = 0; k < POOL_HEAPS; k++)
        p->heap[k] = NONE;
    p->offset = offset;
    p->page_base = (uint32_t)page_base;
    p->slab_base = (uint32_t)slab_base;
    p->regions = e->world;
    p->region_set = e->region_set;
    memcpy(p->region, e->region, sizeof p->region);
    p->transfer_regions = req->shard == SHARD_REPLICATED ? 1 : e->world;
    p->layout_hash = layout_hash(req, e->world);
    p->fields_hash = fields_hash(req);
    p->copies = p->fields_hash != 0 && req->copies && req->shard != SHARD_REPLICATED;
    p->opened_seq = ++c->seq;
    p->figures = (struct figure_counts){0};
    pool_set_slabs(c, p);
    *ret_pool = slot;
    return TERN_OK;
}

void pool_end(struct core *c, struct pool *p)
{
    share_put(c, SHARE_POOLS, p->tenant);
    share_put_n(c, (struct share_of){SHARE_SLABS, p->tenant}, p->nslabs);
    share_put_n(c, (struct share_of){SHARE_PAGES, p->tenant}, (uint32_t)page_records(p));
    pool_state_move(&p->state, POOL_EMPTY);
}

bool pool_suits(const struct pool *p, const struct engine *e)
{
    return p->regions == e->world && memcmp(p->region, e->region, p->regions) == 0;
}

enum tern_err pool_carve(struct core *c, const struct engine *e, const struct req_pool_open *req,
                         uint32_t *ret_pool, struct reply *ret)
{
    uint32_t device, host;
    enum tern_err err = carve(c, e, TIER_DEVICE, req, &device, ret);

    if (err == TERN_OK && req->host_bytes) {
        err = carve(c, e, TIER_HOST, req, &host, ret);
        if (err != TERN_OK) {
            pool_end(c, pool_at(c, device));
        } else {
            pool_at(c, device)->tiers[TIER_HOST] = host;
            pool_at(c, host)->tiers[TIER_DEVICE] = device;
        }
    }
    if (err != TERN_OK)
        return err;
    c->npools++; /* a pool and its host tier count as one */
    touch(c);
    *ret_pool = device;
    return TERN_OK;
}

bool pool_all_free(const struct pool *p)
{
    return p->free_slabs.n == p->nslabs - 1;
}

/* A WINDOW group has the window with its reserve, at most one more page for where that begins, and
 * the segments at either side of the committed length. */
static uint64_t group_table_refs(const struct group *g, uint32_t tokens)
{
    const struct group_layout *l = &g->layout;
    uint64_t all = div_up(tokens, l->page_tokens), window;

    if (l->family == FAMILY_HISTORY)
        return all;
    if (l->family == FAMILY_RECURRENT)
        return 1;
    window = ((uint64_t)l->window + l->reserve) / l->page_tokens + 2 +
             2 * (uint64_t)g->reach * g->segment;
    return all < window ? all : window;
}

uint32_t pool_table_refs(const struct pool *p, uint32_t tokens)
{
    uint64_t n = 0;

    for (uint32_t g = 0; g < p->ngroups; g++)
        n += group_table_refs(&p->group[g], tokens);
    return n > UINT32_MAX ? UINT32_MAX : (uint32_t)n;
}
