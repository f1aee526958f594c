/* Transfers in whose source is this daemon's own disk: which extents their pages lie in. */
#ifndef CORE_PULL_DISK_H
#define CORE_PULL_DISK_H

#include "core/arena/arena.h"

/* Its pages were reserved: each is told which chunk it is of. */
void pull_told_disk(struct core *c, struct pull *p);
/* Where the n pages of a batch lie; in `out`. There is room. */
const struct disk_page *pull_disk_from(const struct core *c, struct actions *out,
                                       const struct pull *p, const struct page_at *pages,
                                       const struct page_ref *refs, uint32_t n);
/* What was read of this page is not what was written, each time. STATE that was written anew since
 * the transfer began is not judged: what it was read from may have been given back. */
void pull_disk_bad(struct core *c, const struct pull *p, const struct page *pg);

#endif
