/* Pages, slabs and pools: where every page is (T1). The state of a page changes in pages.c alone,
 * through the table of page_states.h. */
#ifndef CORE_PAGES_H
#define CORE_PAGES_H

#include "core/arena/arena.h"

/* Moves a page to a state that the table allows from its present one. To FREE: see page_free. */
void page_move(struct core *c, struct page *p, enum page_state to, uint32_t owner);
/* Back to its slab; the generation passes. */
void page_free(struct core *c, uint32_t record);
void pages_free(struct core *c, struct list *list); /* and empties the list */
/* Frees a chain of pages that hangs on a node; *head becomes NONE. Returns how many they were. */
uint32_t chain_free(struct core *c, uint32_t *head);

uint32_t page_record(const struct core *c, const struct page *p);
/* The record that a handle names, or NULL where index or generation is not current. */
struct page *page_find(const struct core *c, const struct pool *pool, uint32_t group,
                       struct page_ref ref);

/* FREE pages of a group that can be had without evicting, within its cap. */
uint32_t group_free(const struct core *c, const struct pool *p, uint32_t group);
uint32_t group_used(const struct group *g); /* that are not FREE */
uint32_t group_total(const struct core *c, const struct pool *p, uint32_t group);
/* Are need[g] pages of each group free? Else *ret_short is a group that lacks some. */
bool pages_fit(const struct core *c, const struct pool *p, const uint32_t *need,
               uint32_t *ret_short);
/* These pages are kept for who has `promised`, though they stay FREE: nobody else can take them. */
void pages_promise(struct pool *p, const uint32_t *promised);
/* It is about to take need[] of them; or needs them no longer. */
void pages_promise_take(struct pool *p, uint32_t *promised, const uint32_t *need);
/* Would they be, if all that eviction could bring were evicted? */
bool pages_obtainable(const struct pool *p, const uint32_t *need, uint32_t *ret_short);
/* Would all[g] pages of each group fit if the pool had nothing else? Else *ret_most is how many of
 * *ret_short it would have beside those of the groups before. */
bool pages_possible(const struct pool *p, const uint32_t *all, uint32_t *ret_short,
                    uint32_t *ret_most);
/* Would the slab go back to the pool if what may be evicted were? */
bool slab_loose(const struct slab *s, const struct group *g);
/* A page is, or is no longer, among those that eviction would free: see tree/obtain.h. */
void page_obtainable(struct core *c, struct pool *p, uint32_t record, bool in);
/* group_free must be at least 1. */
uint32_t page_take(struct core *c, struct pool *p, uint32_t group, enum page_state state,
                   uint32_t owner);

/* The numbers: checksums of a page, and how many are configured. */
#define PAGE_SUMS_EXCEED                                                                           \
    "a page of a group has # checksums, its units times the engine's ranks, and "                  \
    "limits.sums_per_page is #: declare fewer units, or raise it in the daemon's configuration"

enum tern_err layout_check(const struct core *c, const struct req_pool_open *req,
                           struct reply *ret);
uint64_t layout_hash(const struct req_pool_open *req, uint32_t regions);
/* Of all that two pools have to have in common, so that pages can be resharded between them; 0:
 * the request does not say. */
uint64_t fields_hash(const struct req_pool_open *req);
/* Carves a pool for an engine: one range, free in each region that its ranks live in. Other regions
 * are not looked at. QUOTA: the tenant's memory there; BUSY: page, slab or pool records. */
enum tern_err pool_carve(struct core *c, const struct engine *e, const struct req_pool_open *req,
                         uint32_t *ret_pool, struct reply *ret);
/* Does it lie where the engine's ranks live, rank by rank? */
bool pool_suits(const struct pool *p, const struct engine *e);
/* The record is free again; nothing of the pool is used any more. */
void pool_end(struct core *c, struct pool *p);
/* False: it would not fit even if all other pools were gone. */
bool pool_possible(const struct core *c, uint32_t tenant, const struct req_pool_open *req);
/* Pages in the table of a session of that many tokens, of all groups, at most; of a WINDOW group
 * those of its window, for what the session owns beyond that see session_table_refs. */
uint32_t pool_table_refs(const struct pool *p, uint32_t tokens);
bool pool_all_free(const struct core *c, const struct pool *p);
struct pool *pool_find(const struct core *c, struct pool_id id); /* open or closing; NULL: stale */

#endif
