/* Transfers between pools whose pages have other numbers of tokens (N3). A span is as many tokens
 * as the larger page of a group has: one page at the one end, and several at the other. Pages move
 * in whole spans, so the core counts those: the source names the first page of each, the data path
 * of either end knows what the span is there, and all of it is verified, or nothing. Both pools
 * have one L, which every page_tokens divides, so no span reaches into two chunks; those at the
 * ends of a range may lack pages at the end with smaller ones. */
#ifndef CORE_SPANS_H
#define CORE_SPANS_H

#include "core/tree/state.h"

#define SPAN_PAGES_MAX 64u /* of one end, in a page of the other: as daemon/reshard has it */

/* Pages of a span at either end; one of the two is 1. */
struct span_shape {
    uint32_t ours, theirs;
};

/* their_tokens: of a page there; 0: as many as here. */
static inline struct span_shape span_shape(const struct group *g, uint32_t their_tokens)
{
    const uint32_t ours = g->layout.page_tokens, theirs = their_tokens ? their_tokens : ours;

    return (struct span_shape){.ours = theirs > ours ? theirs / ours : 1,
                               .theirs = ours > theirs ? ours / theirs : 1};
}

/* Do pages of so many tokens have spans with those of the pool's groups? */
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

/* Spans of so many pages that the range, counted in such pages, has a part of. */
static inline uint32_t spans_of(struct transfer_range range, uint32_t pages)
{
    return range.n == 0 ? 0 : (range.first + range.n - 1) / pages - range.first / pages + 1;
}

/* What the message of a transfer says of a pool's pages. A state has no tokens. */
static inline void spans_tell(const struct pool *p, uint32_t ret_tokens[GROUPS_MAX])
{
    for (uint32_t g = 0; g < p->ngroups; g++)
        ret_tokens[g] =
            p->group[g].layout.family == FAMILY_RECURRENT ? 0 : p->group[g].layout.page_tokens;
}

#endif
