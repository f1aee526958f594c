/* See pulls.h. In place of a peer's page, a page from the disk names its chunk, and its number in
 * its group's segment, from 1. */
#include "core/transfer/pulls.h"

#include "core/disk/entries.h"
#include "core/tree/state.h"

void pull_told_disk(struct core *c, struct pull *p)
{
    const struct pool *pool = pool_at(c, p->pool);

    for (uint32_t g = 0; g < pool->ngroups; g++) {
        uint32_t at = page_list_last(c, &p->pages[g]), chunk = p->chunk,
                 left = pool->group[g].segment;

        for (; at != NONE; at = page_list_before(c, &p->pages[g], at)) {
            page_at(c, at)->source = (struct page_ref){.index = chunk, .gen = left};
            page_at(c, at)->named = 1;
            if (--left > 0)
                continue;
            left = pool->group[g].segment;
            chunk = disk_chunk_at(c, chunk)->parent;
        }
    }
    p->told = p->to;
    touch(c);
}

/* Finds the `number`-th page of the group's segment in its extent. */
static void find(const struct core *c, const struct pool *pool, uint32_t group, struct page_ref at,
                 struct disk_page *ret)
{
    const struct disk_chunk *k = disk_chunk_at(c, at.index);
    enum disk_part part = group_is_state(&pool->group[group]) ? DISK_STATE : DISK_HISTORY;

    *ret = (struct disk_page){.zero = 0};
    check(k->kept & DISK_HAS(part) && k->part[part].groups & 1u << group);
    disk_extent_of(c, at.index, part, &k->part[part], &ret->extent);
    ret->body_at = disk_meta_bytes(&ret->extent);
    for (uint32_t g = 0; g <= group; g++) {
        const struct group *of = &pool->group[g];
        uint32_t pages = g < group ? of->segment : at.gen - 1;

        if (!(k->part[part].groups & 1u << g))
            continue;
        ret->body_at += pages * of->layout.page_bytes * pool->transfer_regions;
        ret->sum_at += pages * of->layout.units * pool->transfer_regions;
    }
}

const struct disk_page *pull_disk_from(const struct core *c, struct actions *out,
                                       const struct pull *p, const struct page_at *pages,
                                       const struct page_ref *refs, uint32_t n)
{
    struct disk_page *from = out->reads + out->nreads;

    for (uint32_t i = 0; i < n; i++)
        find(c, pool_at(c, p->pool), pages[i].group, refs[i], &from[i]);
    out->nreads += n;
    return from;
}

void pull_disk_bad(struct core *c, const struct pull *p, const struct page *pg)
{
    const struct disk_chunk *k = disk_chunk_at(c, pg->source.index);

    if (k->renewed_ns >= p->started_ns && group_is_state(&pool_at(c, p->pool)->group[pg->group]))
        return;
    disk_chunk_bad(c, pg->source.index);
}
