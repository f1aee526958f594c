/* Transfers between pools with different page_tokens (N3). A span is as many tokens as the larger
 * page of a group has: one page at one end, several at the other. Pages move in whole spans, so the
 * core counts spans: the source names the first page of each, both ends' data paths know its shape,
 * and a span is verified as a whole. Both pools have the same L, which every page_tokens divides,
 * so no span crosses a chunk; spans at the ends of a range may lack some of the smaller pages. */
#ifndef CORE_SPANS_H
#define CORE_SPANS_H

#include "core/tree/state.h"

#define SPAN_PAGES_MAX 64u /* smaller pages in a larger one, as in daemon/reshard */

/* Pages of a span at either end; one of the two is 1. */
struct span_shape {
    uint32_t ours, theirs;
};

/* their_tokens: page_tokens of the other end; 0: equal to ours. */
static inline struct span_shape span_shape(const struct group *g, uint32_t their_tokens)
{
    const uint32_t ours = g->layout.page_tokens, theirs = their_tokens ? their_tokens : ours;

    return (struct span_shape){.ours = theirs > ours ? theirs / ours : 1,
                               .theirs = ours > theirs ? ours / theirs : 1};
}

/* Returns true if pages of these sizes have spans with those of the pool's groups. */
static inline bool spans_suit(const struct pool *p, const uint32_t *their_tokens)
{
    for (uint32_t g = 0; g < p->ngroups; g++) {
        const uint32_t ours = p->group[g].layout.page_tokens, theirs = their_tokens[g];

        if (theirs == 0 || theirs == ours)
            continue;
        if (p->group[g].layout.family == FAMILY_RECURRENT || p->align % theirs != 0 ||
            (ours % theirs != 0 && theirs % ours != 0) || ours / theirs > SPAN_PAGES_MAX ||
            theirs / ours > SPAN_PAGES_MAX)
            return false;
    }
    return true;
}

/* Number of spans of so many pages that the range, counted in such pages, touches. */
static inline uint32_t spans_of(struct transfer_range range, uint32_t pages)
{
    return range.n == 0 ? 0 : (range.first + range.n - 1) / pages - range.first / pages + 1;
}

/* The page_tokens of a pool as a transfer's message has them: 0 for a recurrent state. */
static inline void spans_tell(const struct pool *p, uint32_t ret_tokens[GROUPS_MAX])
{
    for (uint32_t g = 0; g < p->ngroups; g++)
        ret_tokens[g] =
            p->group[g].layout.family == FAMILY_RECURRENT ? 0 : p->group[g].layout.page_tokens;
}

/* Pairs of layouts that transfers are resharded between (N3). The data path has plans for
 * RESHARD_PAIRS_MAX at a time, and each peer has at most RESHARD_PEER_PAIRS. All transfers between
 * the same two layouts share one pair. */

struct layout_pair {
    uint64_t from, to; /* hashes of the source's pool and of the destination's */
};

/* Returns true if one more transfer with the link's peer may use these layouts; else BUSY (X8). */
bool resharded_room(const struct core *c, uint32_t link, struct layout_pair pair);

#endif
