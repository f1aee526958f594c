/* Records that tenants share and cached prefixes use (T22): namespaces, prefix nodes, token blocks
 * and extra keys. When a tenant's share is used up, unheld prefixes are evicted: its own first,
 * then those of a tenant that has more common records than it has.
 *
 * Called before records are taken: by nodes.c for nodes and namespaces, and by session requests for
 * their tokens. Invariant: nothing that is pinned, waits for a step or is being copied is evicted,
 * and a step of the core visits no more than STEP_VISITS_MAX records. */
#ifndef CORE_RECORDS_H
#define CORE_RECORDS_H

#include "core/arena/arena.h"

/* Evicts until the pool's tenant may take `n` records. Returns false if it cannot have them; where
 * that is known in advance, nothing is evicted. */
bool records_evict(struct core *c, uint32_t pool, enum share_table table, uint32_t n);

static inline bool records_room(struct core *c, uint32_t pool, enum share_table table, uint32_t n)
{
    return share_room(c, table, pool_at(c, pool)->tenant) >= n || records_evict(c, pool, table, n);
}

/* Records that tokens and their extra keys take of the two stores. */
struct token_need {
    uint32_t blocks, keys;
    const struct token_buf *list; /* they complete its first `end` tokens; NULL: they are all */
    uint32_t end;
};

/* The list is cut to its tokens below `end` first: subtracts the records that this frees. */
void token_need_cut(const struct core *c, struct token_need *need, uint32_t end);

/* Makes room in both stores. BUSY, QUOTA: from share_lacks, for the store that is used up. */
enum tern_err tokens_room(struct core *c, uint32_t pool, struct token_need need,
                          struct reason *ret);

#endif
