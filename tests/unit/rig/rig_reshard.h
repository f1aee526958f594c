/* Worlds for resharding: pages of known bytes in pools of any layout, and what each byte of them
 * is. Nothing here looks at a plan or at the arithmetic behind one: world_fill walks a page of one
 * rank in the order of its memory and asks of each element what it is in the whole pool. */
#ifndef TEST_RIG_RESHARD_H
#define TEST_RIG_RESHARD_H

#include "reshard/layout.h"

enum world_kind {
    WORLD_MHA,       /* 8 heads */
    WORLD_GQA,       /* 2 heads, fewer than some pools have ranks */
    WORLD_MLA,       /* no heads: replicated */
    WORLD_WHOLE,     /* 2 heads that every rank has, or that are divided: by the end's `whole` */
    WORLD_RECURRENT, /* a state of 8 heads */
    WORLD_XBC,       /* a convolution state: x of 8 heads, B and C of 2 groups */
    WORLD_XB1,       /* likewise, with one group */
    WORLD_QKV,       /* likewise: q and k of 4 heads, v of 8 */
    WORLD_HYBRID,    /* a recurrent and a convolution state in one page, and a scale beside */
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
    uint32_t gap;   /* bytes before each field, and behind each part of its outermost axis */
    uint32_t units; /* of a page */
    bool whole;     /* WORLD_WHOLE: every rank has all heads */
    bool reversed;  /* the sections of channels */
};

const char *world_name(enum world_kind kind);
bool world_is_state(enum world_kind kind);

/* What the pool would say of itself. */
void world_layout(const struct world_end *e, struct reshard_layout *ret);

/* A page of a rank (of all stages): its bytes in `bytes`, where gaps are left as they are, and in
 * `held` (may be NULL) 1 for each byte of a field and 0 for gaps. Returns how long it is. */
uint64_t world_fill(const struct world_end *e, uint32_t rank, uint32_t page, uint8_t *bytes,
                    uint8_t *held);

/* Of each byte of that page the number of its token in the span, from 1; of others 0. */
void world_tokens(const struct world_end *e, uint32_t rank, uint32_t page, uint8_t *ret);

/* Bytes of so many tokens of KV, or of one state, each element once. */
uint64_t world_bytes(enum world_kind kind, uint32_t tokens);

#endif
