/* The rig's memory: real bytes behind every page of region 0, and a pattern that each page must
 * have. Called by the rig and by tests. Invariant: a pattern depends on all that P1 names, the
 * tokens with their extra keys, the namespace and the group, so that a page in the wrong place is
 * detected. */
#include "unit/rig/rig.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "oracle/rules.h"

uint8_t *rig_region(struct rig *rig, uint32_t tenant, uint32_t region)
{
    uint8_t **at = region ? &rig->region[tenant][region] : &rig->bytes[tenant];

    if (!*at)
        *at = calloc(1, rig->options.tenant[tenant].memory_bytes);
    if (!*at)
        abort();
    return *at;
}

static uint8_t *page_in(struct rig *rig, const struct pool_view *v, uint32_t rank,
                        struct page_at at, uint64_t *ret_bytes)
{
    uint64_t bytes = v->group[at.group].layout.page_bytes;
    uint8_t *region = rig->host[v->tenant];

    if (!at.index || (at.index + 1) * bytes > v->bytes)
        rig_fail("page index %u lies outside its pool", at.index);
    if (v->tier != TIER_HOST)
        region = rig_region(rig, v->tenant, v->region[rank]);
    *ret_bytes = bytes;
    return region + v->offset + at.index * bytes;
}

uint8_t *rig_page_at(struct rig *rig, uint32_t pool, uint32_t rank, struct page_at at,
                     uint64_t *ret_bytes)
{
    struct pool_view v;

    if (!core_pool_view(rig->core, pool, &v) || at.group >= v.ngroups)
        rig_fail("page %u of group %u in pool %u, which is not there", at.index, at.group, pool);
    return page_in(rig, &v, rank, at, ret_bytes);
}

uint8_t *rig_page(struct rig *rig, uint32_t pool, uint32_t group, uint32_t index,
                  uint64_t *ret_bytes)
{
    return rig_page_at(rig, pool, 0, (struct page_at){.group = group, .index = index}, ret_bytes);
}

static uint64_t pattern(const struct rig_session *s, uint32_t group, uint32_t end)
{
    uint64_t h = hash_mix(s->ns.lo ^ group, s->ns.hi ^ s->tenant);

    for (uint32_t k = 0; k < s->nkeys; k++)
        if (s->keys[k].position < end)
            h = hash_mix(h ^ s->keys[k].lo, s->keys[k].hi ^ s->keys[k].position);
    return hash_words(h, s->tokens, end);
}

static void fill(uint8_t *page, uint64_t bytes, uint64_t word)
{
    for (uint64_t at = 0; at + sizeof word <= bytes; at += sizeof word)
        memcpy(page + at, &word, sizeof word);
}

static bool holds(const uint8_t *page, uint64_t bytes, uint64_t word)
{
    uint64_t there;

    for (uint64_t at = 0; at + sizeof word <= bytes; at += sizeof word) {
        memcpy(&there, page + at, sizeof there);
        if (there != word)
            return false;
    }
    return true;
}

static bool is_recurrent(const struct pool_view *v, uint32_t g)
{
    return v->group[g].layout.family == FAMILY_RECURRENT;
}

static uint8_t *table_page(struct rig_session *s, const struct pool_view *v, uint32_t g, uint32_t p,
                           uint64_t *ret_bytes)
{
    return page_in(s->rig, v, 0, (struct page_at){.group = g, .index = s->table[g][p].index},
                   ret_bytes);
}

/* The steps that compute tokens [from, to): they write pages that become whole, and the state. */
void rig_write(struct rig_session *s, uint32_t from, uint32_t to)
{
    struct pool_view v = rig_pool_view(s->rig, s->pool);
    uint64_t bytes;

    for (uint32_t g = 0; g < v.ngroups; g++) {
        uint32_t page_tokens = v.group[g].layout.page_tokens, p = from / page_tokens;

        if (is_recurrent(&v, g)) {
            if (to > 0 && s->table[g][0].index) {
                uint8_t *page = table_page(s, &v, g, 0, &bytes);

                fill(page, bytes, pattern(s, g, to));
            }
            continue;
        }
        for (; (p + 1) * page_tokens <= to; p++) {
            uint8_t *page;

            if (v.group[g].layout.family == FAMILY_WINDOW && !s->table[g][p].index)
                continue; /* it left the table, or no fetch brought it */
            page = table_page(s, &v, g, p, &bytes);
            fill(page, bytes, pattern(s, g, (p + 1) * page_tokens));
        }
    }
}

static uint32_t wrong_in_group(struct rig_session *s, const struct pool_view *v, uint32_t g,
                               uint32_t upto)
{
    const struct group_layout *l = &v->group[g].layout;
    uint32_t wrong = 0, p = 0;
    uint64_t bytes = 0;
    const uint8_t *page;

    if (l->family == FAMILY_RECURRENT) { /* a session without a page gets one, with a copy */
        if (!s->table[g][0].index)
            return s->len.written > s->len.committed;
        if (upto == 0 || upto != s->len.written)
            return 0;
        page = table_page(s, v, g, 0, &bytes);
        return !holds(page, bytes, pattern(s, g, upto));
    }
    if (l->family == FAMILY_WINDOW)
        p = rule_window_first(l->window, l->page_tokens, upto);
    for (; (p + 1) * l->page_tokens <= upto; p++) {
        if (!s->table[g][p].index) {
            wrong++;
            continue;
        }
        page = table_page(s, v, g, p, &bytes);
        wrong += !holds(page, bytes, pattern(s, g, (p + 1) * l->page_tokens));
    }
    return wrong;
}

uint32_t rig_wrong(struct rig_session *s, uint32_t upto)
{
    struct pool_view v = rig_pool_view(s->rig, s->pool);
    uint32_t wrong = 0;

    for (uint32_t g = 0; g < v.ngroups; g++)
        wrong += wrong_in_group(s, &v, g, upto);
    return wrong;
}

struct pool_view rig_pool_view(struct rig *rig, struct pool_id pool)
{
    struct pool_view v;

    if (!core_pool_view(rig->core, pool.slot, &v) || v.id.gen != pool.gen)
        rig_fail("pool %u is not there", pool.slot);
    return v;
}

struct pool_view rig_host_view(struct rig *rig, struct pool_id pool)
{
    struct pool_view v = rig_pool_view(rig, pool), host;

    if (v.other == NONE || !core_pool_view(rig->core, v.other, &host) || host.tier != TIER_HOST)
        rig_fail("pool %u has no host tier", pool.slot);
    return host;
}

struct group_view rig_group_view(struct rig *rig, struct pool_id pool, uint32_t group)
{
    return rig_pool_view(rig, pool).group[group];
}

uint32_t rig_free(struct rig *rig, struct pool_id pool)
{
    return rig_group_view(rig, pool, 0).free;
}

uint32_t rig_retiring(struct rig *rig, struct pool_id pool)
{
    return rig_group_view(rig, pool, 0).retiring;
}

bool rig_event_view(const struct core *core, uint64_t seq, struct tree_event_view *ret)
{
    for (uint32_t i = 0; i < core_limits_of(core)->tenants; i++)
        if (core_event_own_view(core, i, core_event_own_at(core, i, seq), ret) && ret->seq == seq)
            return true;
    return false;
}

struct core_view rig_view(struct rig *rig)
{
    struct core_view v;

    core_view(rig->core, &v);
    return v;
}
