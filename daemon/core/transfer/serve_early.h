/* Transfers out that follow a session: units of its pages that are written, ahead of their commit
 * (Y4). When the step has passed that writes them, their follower is told, of one run of pages at a
 * time, and may ask for them from then on. Nothing is promised by that: the pages are the session's
 * and may be written again, and what the follower has of them counts only by the checksums that are
 * offered with the commit. Pages that are resharded on their way, those far behind what was offered
 * (EARLY_PAGES_MAX), and STATE come with their chunk. */
#ifndef CORE_SERVE_EARLY_H
#define CORE_SERVE_EARLY_H

#include "core/arena/arena.h"

/* Tells followers what they may be told now. False: work is left for want of room. */
bool serve_early_flush(struct core *c, struct actions *out);
/* Does a follower wait for units whose step is not seen to have passed? */
bool serve_early_awaits(const struct core *c);
/* The peer has done with what it was told. */
void serve_early_took(struct core *c, struct serve *s, const struct peer_msg *m);
/* Is it a page of the session, or of its namespace? */
bool serve_early_page(const struct core *c, const struct serve *s, const struct page *pg);

#endif
