/* Page memory of every node, behind seam/mem.h, and who may write it. One pool a tenant; the pages
 * of its groups lie one group behind the other. A page's required contents follow from its tag, so
 * every byte of every node can be compared at any time. */
#include "world.h"

#include "base/check.h"
#include "seam/mem/checksum.h"
#include "seam/mem/mem_touch.h"

struct mem {
    uint32_t node;
};

/* The ring into which peers write what is for GPU pages of the node: one a tenant. */
#define RING_MAX (16u << 10)
static struct {
    uint8_t bytes[TENANTS][RING_MAX];
    uint32_t n;
} ring[NODES];

static struct mem mem_of[NODES];

struct mem *rmem_of(uint32_t node)
{
    mem_of[node].node = node;
    return &mem_of[node];
}

/* ------------------------------------------------------------------ where pages lie */

uint32_t rmem_places(void)
{
    return rw.cfg.pages[0] + (rw.cfg.groups > 1 ? rw.cfg.pages[1] : 0);
}

uint32_t rmem_group(uint32_t place)
{
    return place < rw.cfg.pages[0] ? 0 : 1;
}

uint32_t rmem_index(uint32_t place)
{
    uint32_t g = rmem_group(place);

    return rw.cfg.first[g] + place - (g ? rw.cfg.pages[0] : 0);
}

uint32_t rmem_place(uint32_t group, uint32_t index)
{
    if (group >= rw.cfg.groups || index < rw.cfg.first[group] ||
        index - rw.cfg.first[group] >= rw.cfg.pages[group])
        return NONE32;
    return index - rw.cfg.first[group] + (group ? rw.cfg.pages[0] : 0);
}

/* A pool's ranks live in the tenant's regions in their order, or in reverse. */
static const uint8_t *regions_of(uint32_t node, uint32_t pool)
{
    static const uint8_t order[2][REGIONS] = {{0, 1}, {1, 0}};

    return order[rw.cfg.regions == REGIONS && rw.node[node].pool[pool].offset / 64 % 2];
}

/* `region`: of the rank. */
static uint8_t *page_base(uint32_t node, uint32_t pool, uint32_t region, uint32_t place)
{
    uint64_t at = rw.node[node].pool[pool].offset +
                  (uint64_t)rmem_index(place) * rw.cfg.page_bytes[rmem_group(place)];

    return &rw.node[node].memory[pool][regions_of(node, pool)[region]][at];
}

struct where {
    uint32_t node, pool, region, place; /* place NONE32: between pages */
    uint64_t at, left;                  /* in the page, from there on */
};

static bool where_is(const void *p, struct where *ret)
{
    const uint8_t *at = p;

    for (uint32_t i = 0; i < rw.cfg.nodes; i++) {
        struct rnode *n = &rw.node[i];
        uint64_t offset, in_pool;

        if (at < &n->memory[0][0][0] || at >= &n->memory[0][0][0] + sizeof n->memory)
            continue;
        offset = (uint64_t)(at - &n->memory[0][0][0]);
        *ret = (struct where){.node = i,
                              .pool = (uint32_t)(offset / (REGIONS * MEMORY)),
                              .region = (uint32_t)(offset / MEMORY % REGIONS),
                              .place = NONE32};
        ret->region = regions_of(i, ret->pool)[ret->region]; /* either order is its own inverse */
        in_pool = offset % MEMORY - n->pool[ret->pool].offset;
        for (uint32_t g = 0; g < rw.cfg.groups && offset % MEMORY >= n->pool[ret->pool].offset;
             g++) {
            ret->place = rmem_place(g, (uint32_t)(in_pool / rw.cfg.page_bytes[g]));
            ret->at = in_pool % rw.cfg.page_bytes[g];
            ret->left = rw.cfg.page_bytes[g] - ret->at;
            if (ret->place != NONE32)
                return true;
        }
        return true;
    }
    return false;
}

bool rmem_is_memory(const void *at)
{
    struct where w;

    return where_is(at, &w);
}

bool rmem_is_far(const void *at)
{
    struct where w;

    return where_is(at, &w) && rw.cfg.far[w.node];
}

void *sim_mmap(size_t n)
{
    uint32_t node = rw.current;

    check(n <= RING_MAX && ring[node].n < TENANTS);
    return memset(ring[node].bytes[ring[node].n++], 0, n);
}

/* The node whose ring has this address; NONE32: none. */
static uint32_t ring_of(const void *p)
{
    const uint8_t *at = p;

    for (uint32_t i = 0; i < NODES; i++) {
        const uint8_t *first = (const uint8_t *)(const void *)ring[i].bytes;

        if (at >= first && at < first + sizeof ring[i].bytes)
            return i;
    }
    return NONE32;
}

static struct rpage *page_of(const struct where *w)
{
    return &rw.node[w->node].pool[w->pool].page[w->place];
}

/* ------------------------------------------------------------------ what pages hold */

static uint64_t word_of(uint64_t tag, uint32_t region, uint64_t at)
{
    uint64_t z = tag * 0x9e3779b97f4a7c15u + region * 0xc2b2ae3d27d4eb4fu + at;

    z = (z ^ z >> 31) * 0xbf58476d1ce4e5b9u;
    return z ^ z >> 29;
}

void rmem_write(uint32_t node, uint32_t pool, uint32_t place, uint64_t tag)
{
    uint32_t bytes = rw.cfg.page_bytes[rmem_group(place)];

    for (uint32_t r = 0; r < rw.cfg.regions; r++) {
        uint8_t *base = page_base(node, pool, r, place);

        for (uint32_t at = 0; at < bytes; at += 8) {
            uint64_t word = word_of(tag, r % rw.cfg.transfer_regions, at);

            memcpy(base + at, &word, 8);
        }
    }
    rw.node[node].pool[pool].page[place].tag = tag;
}

bool rmem_holds(uint32_t node, uint32_t pool, uint32_t place, uint64_t tag)
{
    uint32_t bytes = rw.cfg.page_bytes[rmem_group(place)];

    for (uint32_t r = 0; r < rw.cfg.regions; r++) {
        const uint8_t *base = page_base(node, pool, r, place);

        for (uint32_t at = 0; at < bytes; at += 8) {
            uint64_t word = word_of(tag, r % rw.cfg.transfer_regions, at);

            if (memcmp(base + at, &word, 8) != 0)
                return false;
        }
    }
    return true;
}

static void sums_of(uint32_t node, uint32_t pool, uint32_t place, uint64_t *sums)
{
    uint32_t g = rmem_group(place), units = rw.cfg.units[g];

    for (uint32_t r = 0; r < rw.cfg.regions; r++)
        for (uint32_t u = 0; u < units; u++) {
            uint64_t from, to = checksum_unit_span(rw.cfg.page_bytes[g], units, u, &from);

            sums[r * units + u] = checksum_unit(page_base(node, pool, r, place) + from, to - from);
        }
}

void rmem_commit(uint32_t node, uint32_t pool, uint32_t place)
{
    sums_of(node, pool, place, rw.node[node].sums[pool * PAGES + place]);
}

bool rmem_sums_right(uint32_t node, uint32_t pool, uint32_t place)
{
    uint64_t sums[UNITS * REGIONS];

    sums_of(node, pool, place, sums);
    return memcmp(sums, rw.node[node].sums[pool * PAGES + place],
                  rw.cfg.units[rmem_group(place)] * rw.cfg.regions * sizeof sums[0]) == 0;
}

void rmem_start(uint32_t node)
{
    ring[node].n = 0;
    for (uint32_t pool = 0; pool < rw.cfg.tenants; pool++) {
        struct rpool *p = &rw.node[node].pool[pool];

        for (uint32_t i = 0; i < rmem_places(); i++) {
            p->page[i] = (struct rpage){.kind = rw_one_in(2) ? PG_COMMITTED : PG_FREE,
                                        .gen = p->page[i].gen + rw_between(1, 1000)};
            rmem_write(node, pool, i, ++rw.tags);
            rmem_commit(node, pool, i);
        }
    }
}

/* Only the pull of a reserved page writes it, so at the end all other pages are unchanged. */
void rmem_audit(uint32_t node)
{
    for (uint32_t pool = 0; pool < rw.cfg.tenants; pool++)
        for (uint32_t i = 0; i < rmem_places(); i++) {
            const struct rpage *page = &rw.node[node].pool[pool].page[i];

            if (page->kind != PG_RESERVED && !rmem_holds(node, pool, i, page->tag))
                rw_fail("bytes_changed", "node %u pool %u page %u is not what it was", node, pool,
                        i);
        }
}

/* ------------------------------------------------------------------ who writes and who reads */

uint64_t rmem_owner(const void *at)
{
    struct where w;

    if (ring_of(at) != NONE32)
        return OWNER_RING;
    return where_is(at, &w) && w.place != NONE32 && page_of(&w)->kind == PG_RESERVED
               ? page_of(&w)->owner
               : 0;
}

void rmem_land(void *to, const void *bytes, size_t n, uint64_t owner, const char *by)
{
    uint8_t *at = to;

    for (size_t left = n; left > 0;) {
        struct where w;
        struct rpage *page;

        if (ring_of(at) != NONE32)
            rw_mark(RM_landed_in_ring);
        if (!where_is(at, &w))
            break; /* a buffer of the seam */
        if (w.place == NONE32)
            rw_fail("landed_in_no_page", "%s, node %u", by, w.node);
        page = page_of(&w);
        if (page->kind != PG_RESERVED)
            rw_fail("landed_in_live_page", "%s: %zu bytes in page %u of node %u, kind %d", by, n,
                    w.place, w.node, (int)page->kind);
        if (page->owner != owner)
            rw_fail("landed_in_anothers_page", "%s: page %u of node %u is another pull's by now",
                    by, w.place, w.node);
        at += w.left < left ? w.left : left;
        left -= w.left < left ? w.left : left;
    }
    memcpy(to, bytes, n);
}

void rmem_land_late(void *to, const void *bytes, size_t n, uint64_t owner)
{
    uint8_t *at = to;
    const uint8_t *from = bytes;
    struct where w;

    while (n > 0 && where_is(at, &w) && w.place != NONE32) {
        size_t step = w.left < n ? w.left : n;

        if (rmem_owner(at) == owner)
            memcpy(at, from, step);
        at += step;
        from += step;
        n -= step;
    }
}

bool rmem_came_by(const void *at, uint64_t socket)
{
    struct where w;
    struct rpage *page;
    bool other;

    if (!where_is(at, &w) || w.place == NONE32)
        return false;
    page = page_of(&w);
    other = page->came_by != 0 && page->came_by != socket;
    page->came_by = socket;
    return other;
}

void rmem_excuse(const void *p, size_t n, uint8_t why)
{
    const uint8_t *at = p;
    struct where w;

    while (n > 0 && where_is(at, &w) && w.place != NONE32) {
        page_of(&w)->excused |= why;
        at += w.left < n ? w.left : n;
        n -= w.left < n ? w.left : n;
    }
}

void rmem_taken(const void *p, size_t n)
{
    const uint8_t *at = p;
    struct where w;

    while (n > 0 && where_is(at, &w)) {
        if (w.place == NONE32 || !serves_cover(w.node, w.pool, w.place, true))
            rw_fail("read_after_serve_quiet", "a send reads page %u of node %u", w.place, w.node);
        at += w.left < n ? w.left : n;
        n -= w.left < n ? w.left : n;
    }
}

static bool may_leave(const struct where *s, uint32_t gen)
{
    const struct rpage *source = page_of(s);

    return source->kind == PG_COMMITTED && source->gen == gen &&
           serves_cover(s->node, s->pool, s->place, false);
}

/* Data for a ring belongs to some page of that node that waits for this place. If it is read at the
 * source too late, each such page may be reported wrong. */
static void read_for_some(uint32_t node, const struct where *s)
{
    for (uint32_t i = 0; i < rmem_places(); i++) {
        struct rpage *page = &rw.node[node].pool[s->pool].page[i];

        if (page->kind == PG_RESERVED && page->from_node == s->node &&
            page->from_place == s->place && !may_leave(s, page->from_gen))
            page->excused |= EXCUSE_RING;
    }
}

static void read_for_ring(uint32_t node, const void *from, size_t n)
{
    const uint8_t *there = from;
    struct where s;

    for (size_t step; n > 0; there += step, n -= step) {
        check(where_is(there, &s));
        if (s.place == NONE32)
            rw_fail("read_of_no_page", "node %u pushes what is no page", s.node);
        read_for_some(node, &s);
        step = s.left < n ? s.left : n;
    }
}

void rmem_read_for(void *p, const void *from, size_t n)
{
    uint8_t *at = p;
    const uint8_t *there = from;

    if (ring_of(at) != NONE32) {
        read_for_ring(ring_of(at), from, n);
        return;
    }
    while (n > 0) {
        struct where w, s;
        struct rpage *page;
        uint64_t step;

        check(where_is(at, &w) && where_is(there, &s));
        if (w.place == NONE32 || s.place == NONE32)
            rw_fail("read_of_no_page", "node %u reads what is no page of node %u", w.node, s.node);
        page = page_of(&w);
        if (s.node != page->from_node || s.place != page->from_place || s.pool != w.pool ||
            s.region != w.region || s.at != w.at)
            rw_fail("read_of_another_page", "page %u of node %u is read for page %u of node %u",
                    s.place, s.node, w.place, w.node);
        if (!may_leave(&s, page->from_gen))
            page->stale = true;
        step = w.left < n ? w.left : n;
        at += step;
        there += step;
        n -= step;
    }
}

/* ------------------------------------------------------------------ seam/mem.h */

void *mem_page(const struct mem *mem, uint32_t pool, uint32_t region, uint32_t group,
               uint32_t index)
{
    uint32_t place = rmem_place(group, index);

    if (place == NONE32)
        rw_fail("page_out_of_range", "group %u index %u", group, index);
    return page_base(mem->node, pool, region, place);
}

const struct pool_place *mem_place(const struct mem *mem, uint32_t pool)
{
    static struct pool_place places[NODES][TENANTS];
    struct pool_place *place = &places[mem->node][pool];

    place->tier = TIER_DEVICE;
    place->tenant = pool;
    place->regions = rw.cfg.regions;
    place->transfer_regions = rw.cfg.transfer_regions;
    memcpy(place->region, regions_of(mem->node, pool), rw.cfg.regions);
    place->ngroups = rw.cfg.groups;
    for (uint32_t g = 0; g < rw.cfg.groups; g++) {
        place->group[g].page_bytes = rw.cfg.page_bytes[g];
        place->group[g].units = rw.cfg.units[g];
    }
    return place;
}

bool mem_spread(struct mem *mem, uint32_t pool, const struct page_at *page)
{
    uint32_t place = rmem_place(page->group, page->index), units = rw.cfg.units[page->group];
    uint64_t *sums = mem_sums(mem, page->record);

    if (!tasks_working())
        rw_fail("verified_by_owner", "page %u of node %u", place, mem->node);
    if (rw.node[mem->node].pool[pool].page[place].gen != page->gen)
        rw_fail("verified_after_quiet", "page %u of node %u is another pull's", place, mem->node);
    if (pulls_stopping(rw.node[mem->node].pool[pool].page[place].owner))
        rw_mark(RM_verified_after_stop);
    for (uint32_t r = rw.cfg.transfer_regions; r < rw.cfg.regions; r++) {
        memcpy(page_base(mem->node, pool, r, place), page_base(mem->node, pool, 0, place),
               rw.cfg.page_bytes[page->group]);
        memcpy(sums + r * units, sums, units * sizeof *sums);
    }
    return true;
}

uint32_t mem_page_records(const struct mem *mem)
{
    (void)mem;
    return TENANTS * PAGES;
}

uint8_t *mem_region_base(const struct mem *mem, uint32_t tenant, uint32_t region,
                         uint64_t *ret_bytes)
{
    *ret_bytes = MEMORY;
    return &rw.node[mem->node].memory[tenant][region][0];
}

/* Only NICs know the difference: the seam's threads reach GPU memory like host memory. */
const char *mem_region_device(const struct mem *mem, uint32_t tenant, uint32_t region,
                              uint64_t *ret_bytes, bool *ret_lost)
{
    if (!rw.cfg.far[mem->node])
        return NULL;
    if (ret_bytes)
        (void)mem_region_base(mem, tenant, region, ret_bytes);
    if (ret_lost)
        *ret_lost = false;
    return "GPU";
}

enum tern_err mem_region_export(struct mem *mem, uint32_t tenant, uint32_t region, bool pcie,
                                int *ret_fd, const char **ret_why)
{
    (void)mem, (void)tenant, (void)region, (void)pcie, (void)ret_fd;
    *ret_why = "there are no dma-bufs";
    return TERN_UNSUPPORTED;
}

/* The simulator's NICs have no self-test at the start. */
uint64_t mem_unheld_bytes(const struct mem *mem)
{
    (void)mem;
    return 0;
}

uint32_t mem_region_count(const struct mem *mem, uint32_t tenant)
{
    (void)mem, (void)tenant;
    return rw.cfg.regions;
}

const char *mem_region_pci(const struct mem *mem, uint32_t tenant, uint32_t region)
{
    (void)mem, (void)tenant, (void)region;
    return NULL;
}

uint32_t mem_sums_per_page(const struct mem *mem)
{
    (void)mem;
    return UNITS * REGIONS;
}

const struct mem_far *mem_far(const struct mem *mem)
{
    (void)mem;
    return NULL;
}

uint64_t *mem_sums(struct mem *mem, uint32_t record)
{
    check(record < TENANTS * PAGES);
    if (tasks_working() &&
        rw.node[mem->node].pool[record / PAGES].page[record % PAGES].kind != PG_RESERVED)
        rw_fail("verified_after_quiet", "record %u of node %u is nobody's", record, mem->node);
    return rw.node[mem->node].sums[record];
}
