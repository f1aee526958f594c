/* Records that tenants share and that cached prefixes hold: namespaces, prefix nodes, token blocks
 * and extra keys (T22). Where a tenant's share of them is used up, prefixes that nobody holds make
 * way: its own first, then those of a tenant that has more of what is common than it has.
 *
 * Called before records are taken: by nodes.c for nodes and namespaces, and by the session's
 * requests for their tokens. What must stay true: what is pinned, waits for a step or is being
 * copied stays, and a step of the core visits no more records than STEP_VISITS_MAX. */
#ifndef CORE_RECORDS_H
#define CORE_RECORDS_H

#include "core/arena/arena.h"

/* Evicts until the tenant of this pool may take so many records. False: it can't have them, and
 * where that is known before, nothing is evicted. */
bool records_evict(struct core *c, uint32_t pool, enum share_table table, uint32_t n);

static inline bool records_room(struct core *c, uint32_t pool, enum share_table table, uint32_t n)
{
    return share_room(c, table, pool_at(c, pool)->tenant) >= n || records_evict(c, pool, table, n);
}

/* What tokens and their extra keys take of the two stores. */
struct token_need {
    uint32_t blocks, keys;
    const struct token_buf *list; /* they complete its first `end` tokens; NULL: they are all */
    uint32_t end;
};

/* The list is first cut to its tokens below `end`: what that gives back is not needed. */
void token_need_cut(const struct core *c, struct token_need *need, uint32_t end);

/* The same of both. BUSY, QUOTA: as share_lacks of the one that is used up. */
enum tern_err tokens_room(struct core *c, uint32_t pool, struct token_need need,
                          struct reason *ret);

#endif
