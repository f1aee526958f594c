/* Pages, slabs and pools: the owner and state of every page (T1). Invariant: page states change
 * only in pages.c, through the table of page_states.h. */
#ifndef CORE_PAGES_H
#define CORE_PAGES_H

#include "core/arena/arena.h"

/* Moves a page to a state that the table allows. For FREE use page_free. */
void page_move(struct core *c, struct page *p, enum page_state to, uint32_t owner);
/* Frees the page to its slab and increments its generation. */
void page_free(struct core *c, uint32_t record);
void pages_free(struct core *c, struct list *list); /* and empties the list */
/* Frees a node's chain of pages; *head becomes NONE. Returns how many pages. */
uint32_t chain_free(struct core *c, uint32_t *head);

static inline struct page_ref page_ref_of(const struct core *c, uint32_t record)
{
    return (struct page_ref){.index = page_at(c, record)->index, .gen = page_at(c, record)->gen};
}
/* Returns the page as a seam finds it. */
static inline struct page_at page_place(const struct core *c, uint32_t record)
{
    const struct page *pg = page_at(c, record);

    return (struct page_at){
        .group = pg->group, .index = pg->index, .gen = pg->gen, .record = record};
}
/* Returns the record that a handle names; NULL if index or generation is not current. */
struct page *page_find(const struct core *c, const struct pool *pool, uint32_t group,
                       struct page_ref ref);

/* Returns the pages of a group that are available without evicting, within its cap. */
uint32_t group_free(const struct pool *p, uint32_t group);
uint32_t group_used(const struct group *g); /* pages that are not FREE */
uint32_t group_total(const struct pool *p, uint32_t group);
/* Returns true if need[g] pages of each group are free; else group *ret_short lacks some. evicted:
 * as if everything evictable were evicted. */
bool pages_fit(const struct pool *p, bool evicted, const uint32_t *need, uint32_t *ret_short);
/* Promises promised[] pages to the array's owner: they stay FREE, but nobody else can take them. */
void pages_promise(struct pool *p, const uint32_t *promised);
/* Ends the promise of need[] of them: the holder takes them now, or needs them no longer. */
void pages_promise_take(struct pool *p, uint32_t *promised, const uint32_t *need);
/* Returns true if all[g] pages of each group would fit in an empty pool. Else *ret_most is how many
 * of group *ret_short would fit beside those of the groups before. */
bool pages_possible(const struct pool *p, const uint32_t *all, uint32_t *ret_short,
                    uint32_t *ret_most);
/* Returns true if eviction of all that is evictable would free the slab for the pool. */
bool slab_loose(const struct slab *s, const struct group *g);
/* Adds a page to those that eviction would free, or removes it: see tree/obtain.h. */
void page_obtainable(struct core *c, struct pool *p, uint32_t record, bool in);
/* Takes a page. group_free must be at least 1. */
uint32_t page_take(struct core *c, struct pool *p, uint32_t group, enum page_state state,
                   uint32_t owner);

/* The numbers: checksums of a page, and how many are configured. */
#define PAGE_SUMS_EXCEED                                                                           \
    "a page of a group has # checksums (its units times the engine's ranks), and "                 \
    "limits.sums_per_page is #: declare fewer units, or raise limits.sums_per_page"

enum tern_err layout_check(const struct core *c, const struct req_pool_open *req,
                           struct reply *ret);
uint64_t layout_hash(const struct req_pool_open *req, uint32_t regions);
/* Returns a hash of what two pools must share so that pages can be resharded between them; 0: the
 * request does not declare it. */
uint64_t fields_hash(const struct req_pool_open *req);
/* Carves a pool for an engine: one range, free in each region of its ranks; other regions do not
 * matter. QUOTA: the tenant's memory there; BUSY: page, slab or pool records. */
enum tern_err pool_carve(struct core *c, const struct engine *e, const struct req_pool_open *req,
                         uint32_t *ret_pool, struct reply *ret);
/* Returns true if its regions are those of the engine's ranks, rank by rank. */
bool pool_suits(const struct pool *p, const struct engine *e);
/* Frees the pool's record; nothing of the pool is used any more. */
void pool_end(struct core *c, struct pool *p);
/* Returns false if the pool would not fit even if all other pools were gone. */
bool pool_possible(const struct core *c, uint32_t tenant, const struct req_pool_open *req);
/* Returns the most pages, over all groups, in the table of a session of that many tokens. WINDOW
 * groups count only the window; session_table_refs adds what the session owns beyond it. */
uint32_t pool_table_refs(const struct pool *p, uint32_t tokens);
bool pool_all_free(const struct pool *p);
struct pool *pool_find(const struct core *c, struct pool_id id); /* open or closing; NULL: stale */

#endif
