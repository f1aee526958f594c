/* Shared by the tests of resharding: pools of known bytes, and plans checked byte by byte, with
 * loops of the tests' own. */
#ifndef TEST_RESHARD_RIG_H
#define TEST_RESHARD_RIG_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "oracle/carry.h"
#include "reshard/plan.h"
#include "testing/test.h"
#include "unit/rig/rig_reshard.h"

#define POOL_RANKS 16 /* of all stages */
#define POOL_PAGES 8  /* of a span */
#define POOL_BYTES (512 * 1024)
#define PIECES_MAX 4096
#define GAP_BYTE   0xa5

struct pool {
    struct world_end e;
    struct reshard_layout l;
    uint32_t pages, ranks; /* of a span; of all stages */
    uint64_t bytes;        /* of all its pages */
    uint8_t *page[POOL_PAGES * POOL_RANKS];
    uint8_t held[WORLD_PAGE_MAX];
    uint8_t memory[POOL_BYTES];
};

/* pages: of the span. */
static inline void pool_fill(struct pool *p, const struct world_end *e, uint32_t pages)
{
    p->e = *e;
    p->pages = pages;
    p->ranks = e->ranks * e->stages;
    world_layout(e, &p->l);
    p->bytes = p->l.page_bytes * pages * p->ranks;
    assert_true(p->bytes <= POOL_BYTES && pages <= POOL_PAGES && p->ranks <= POOL_RANKS);
    memset(p->memory, GAP_BYTE, p->bytes);
    memset(p->held, 0, p->l.page_bytes);
    for (uint32_t i = 0; i < pages * p->ranks; i++) {
        p->page[i] = p->memory + i * p->l.page_bytes;
        assert_int_equal(p->l.page_bytes,
                         world_fill(e, i % p->ranks, i / p->ranks, p->page[i], p->held));
    }
}

static inline uint64_t shape_at(const struct strided *s, uint64_t a, uint64_t b, uint64_t c)
{
    return a * s->loop[0].from_stride + b * s->loop[1].from_stride + c * s->loop[2].from_stride;
}

static inline uint64_t shape_to(const struct strided *s, uint64_t a, uint64_t b, uint64_t c)
{
    return a * s->loop[0].to_stride + b * s->loop[1].to_stride + c * s->loop[2].to_stride;
}

#define EACH_ROW(s, a, b, c)                                                                       \
    for (uint64_t a = 0; a < (s)->loop[0].n; a++)                                                  \
        for (uint64_t b = 0; b < (s)->loop[1].n; b++)                                              \
            for (uint64_t c = 0; c < (s)->loop[2].n; c++)

static inline uint32_t end_number(const struct reshard_end *end, const struct pool *p)
{
    assert_true(end->page < p->pages && end->rank < p->ranks);
    return end->page * p->ranks + end->rank;
}

struct pair_shape {
    struct world_end from, to;
};

static inline uint32_t pages_of(const struct world_end *e, const struct world_end *other)
{
    return !world_is_state(e->kind) && other->page_tokens > e->page_tokens
               ? other->page_tokens / e->page_tokens
               : 1;
}

static inline const char *end_text(const struct world_end *e, char ret[96])
{
    snprintf(ret, 96, "%s ranks %u stages %u page_tokens %u order %u gap %u%s%s",
             world_name(e->kind), e->ranks, e->stages, e->page_tokens, e->order, e->gap,
             e->whole ? " whole" : "", e->reversed ? " reversed" : "");
    return ret;
}

/* ---- every pair of pools ---- */

struct matrix {
    const uint32_t (*tokens)[2]; /* page_tokens of both ends */
    uint32_t ntokens, turns, gaps;
};

static inline bool end_next(struct world_end *e)
{
    if (++e->order < WORLD_ORDERS)
        return true;
    e->order = 0;
    if (++e->stages <= 2)
        return true;
    e->stages = 1;
    e->ranks *= 2;
    if (e->ranks <= 8)
        return true;
    e->ranks = 1;
    if (e->kind == WORLD_WHOLE && !e->whole)
        return (e->whole = true);
    e->whole = false;
    if (e->kind >= WORLD_XBC && !e->reversed)
        return (e->reversed = true);
    e->reversed = false;
    return false;
}

#endif
