/* Transfers in that follow: units of pages ahead of their commit (Y4). The source tells of one run
 * of pages at a time, and hears when they are here, or are not to be had. They are hashed as they
 * come, and kept; with the commit the source offers the page, and of it is asked for the rest and
 * all checksums (pull_data.c). What must stay true: while units of a page are on their way nothing
 * else is asked for that writes it, so no byte changes once its page is verified. */
#ifndef CORE_PULL_EARLY_H
#define CORE_PULL_EARLY_H

#include "core/arena/arena.h"

/* A bit for each unit of the group's pages; UNITS_EARLY_MAX of them at most. */
static inline uint64_t units_all(const struct group *g)
{
    return g->layout.units >= 64 ? UINT64_MAX : (UINT64_C(1) << g->layout.units) - 1;
}

/* Pages of a group behind the offer; further ones come with their chunk. Both ends use this. */
static inline uint32_t early_pages_max(const struct core *c)
{
    return c->limits.early_pages ? c->limits.early_pages : EARLY_PAGES_MAX;
}

/* Is this what a source may tell of? */
bool pull_early_fits(const struct core *c, const struct pull *p, const struct peer_msg *msg);
void pull_early_told(struct core *c, struct pull *p, const struct peer_msg *msg);

static inline bool pull_early_waits(const struct pull *p)
{
    return p->early.unasked > 0;
}

/* The page of which they are asked for next; NONE. */
uint32_t pull_early_next(const struct core *c, struct pull *p);
/* These units of it are here; 0: none came. */
void pull_early_arrived(struct core *c, struct pull *p, uint32_t record, uint64_t units);
/* The source hears that it may tell of others. False: no room. */
bool pull_early_answer(struct core *c, struct actions *out, struct pull *p);

#endif
