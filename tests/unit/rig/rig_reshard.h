/* Worlds for resharding: pages of known bytes in pools of any layout. No code here uses a plan or a
 * plan's arithmetic: world_fill walks a page of one rank in the order of its memory and computes
 * each element from its place in the whole pool. */
#ifndef TEST_RIG_RESHARD_H
#define TEST_RIG_RESHARD_H

#include "reshard/layout.h"

enum world_kind {
    WORLD_MHA,       /* 8 heads */
    WORLD_GQA,       /* 2 heads, so some pools have more ranks */
    WORLD_MLA,       /* no heads: replicated */
    WORLD_WHOLE,     /* 2 heads, whole at every rank or divided: see `whole` */
    WORLD_RECURRENT, /* a state of 8 heads */
    WORLD_XBC,       /* a convolution state: x of 8 heads, B and C of 2 groups */
    WORLD_XB1,       /* the same with one group */
    WORLD_QKV,       /* a convolution state: q and k of 4 heads, v of 8 */
    WORLD_HYBRID,    /* a recurrent and a convolution state in one page, and a scale */
    WORLD_KINDS
};

#define WORLD_ORDERS                                                                               \
    3 /* orders of memory: of KV tokens-heads-dim, heads-tokens-dim, K and V apart */
#define WORLD_LAYERS   4
#define WORLD_FIELDS   3
#define WORLD_TOKENS   16          /* the longest span */
#define WORLD_PAGE_MAX (64 * 1024) /* bytes of a rank's page */

struct world_end {
    enum world_kind kind;
    uint32_t ranks, stages;
    uint32_t page_tokens; /* of KV; a state has none */
    uint32_t order;
    uint32_t gap;   /* bytes before each field, and after each part of its outermost axis */
    uint32_t units; /* of a page */
    bool whole;     /* WORLD_WHOLE: every rank has all heads */
    bool reversed;  /* order of the sections of channels */
};

const char *world_name(enum world_kind kind);
bool world_is_state(enum world_kind kind);

/* The layout that the pool declares. */
void world_layout(const struct world_end *e, struct reshard_layout *ret);

/* Fills a rank's page (of all stages): its bytes in `bytes`, without the gaps, and in `held` (may
 * be NULL) 1 for each byte of a field and 0 for gaps. Returns the page's bytes. */
uint64_t world_fill(const struct world_end *e, uint32_t rank, uint32_t page, uint8_t *bytes,
                    uint8_t *held);

/* For each byte of that page: the number of its token in the span, from 1 on; 0 for other bytes. */
void world_tokens(const struct world_end *e, uint32_t rank, uint32_t page, uint8_t *ret);

/* Bytes of that many tokens of KV, or of one state, each element counted once. */
uint64_t world_bytes(enum world_kind kind, uint32_t tokens);

#endif
