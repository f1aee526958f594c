/* Pairs of layouts between which pages are resharded (N3), with the plans that follow from them,
 * and the known layouts: those of our pools, and those that peers sent of theirs. A pull or serve
 * between different layouts holds its pair; a pair without holds may be replaced. A pair is found
 * by the contents of both layouts, so all links between equal layouts share it. A refused pair is
 * kept too, so that it is examined once. The time that one peer's pairs cost the owner thread is
 * bounded: a peer that keeps sending new layouts waits. Owner thread, except that data threads read
 * the plans of held pairs, which do not change. Nothing is allocated after create. */
#ifndef SEAM_XFER_PAIRS_H
#define SEAM_XFER_PAIRS_H

#include "reshard/stream.h"
#include "seam/mem/mem_reshard.h"
#include "seam/xfer/flow/data_wire.h"

struct xfer;
struct xfer_config;

#define PAIR_PIECES_MAX 8192u      /* of all plans and maps of a pair, over all groups */
#define PAIR_ROWS_MAX   (1u << 20) /* of the same plans and maps */
#define PAIR_STEPS_MAX  (1u << 17) /* of the same: their cost to the owner thread (plan.h) */
#define PAIR_SUMS_MAX   8192u  /* checksums of the source's pages of a span, over all its ranks */
#define PAIR_UNITS_MAX  32768u /* of a page of the source, over all groups */
#define PAIR_RUNS_MAX   32768u /* of their bytes and gaps, over all groups (units.h) */
/* Costs in steps and runs: the least and the most that one pair costs, and the most that all pairs
 * made for one peer may cost in a second, or at once. */
#define PAIR_COST_LEAST 2048u
#define PAIR_COST_MAX   (PAIR_COST_LEAST + PAIR_STEPS_MAX + PAIR_RUNS_MAX)
#define PAIR_COST_S     (4u * PAIR_COST_MAX)
#define PAIR_STARTS_MAX 8192u /* where the pieces of each page and rank begin, over all plans */
#define LAYOUTS_A_PAIR  4u    /* layouts of peers kept for each pair */

/* The index of a span's first page at the source selects its plan. */
struct pair_plan {
    struct reshard_plan plan, map;
    uint32_t *map_of; /* see mem_reshard.h */
    uint64_t bytes;   /* moved from one page of the source */
};

struct pair_group {
    struct reshard_layout from, to;
    uint32_t from_pages, to_pages; /* of a span; one of the two is 1 */
    uint32_t sums;                 /* of a page of the source */
    uint32_t variants;
    uint8_t *held; /* by unit of a page of the source: see units.h */
    struct pair_plan variant[RESHARD_RANKS_MAX];
};

struct pair {
    uint32_t holds;
    bool alike;                   /* both layouts are equal, so pages may also leave unchanged */
    uint64_t used;                /* ascending; 0: unused slot */
    enum reshard_refusal refusal; /* NONE: has all its plans */
    uint32_t refused;             /* the group that refusal is about */
    uint32_t nfrom, nto;          /* groups of both ends; ngroups: the smaller of the two */
    uint32_t ngroups, npieces, nheld, nstarts;
    uint32_t runs;        /* left of PAIR_RUNS_MAX */
    uint64_t rows, steps; /* of all its plans and maps; left of PAIR_STEPS_MAX */
    struct pair_group group[GROUPS_MAX];
    struct reshard_piece pieces[PAIR_PIECES_MAX];
    uint8_t held[PAIR_UNITS_MAX];
    uint32_t starts[PAIR_STARTS_MAX];
};

struct pairs;

uint64_t pairs_bytes(const struct xfer_config *config);
enum tern_err pairs_create(struct xfer *xfer);
void pairs_destroy(struct xfer *xfer);

/* Returns the hash of the layout of one of our pools; 0: not known. */
uint64_t pairs_own_hash(const struct xfer *xfer, uint32_t pool);

/* The two ends of a transfer: one of our pools, and one of the peer's. */
struct pair_ask {
    uint32_t pool, peer;
    uint64_t other_hash;
    bool ours_sends;
};

/* Takes a pair, held until pair_put. BUSY: the peer's layouts have reached their cost limit, or all
 * pairs are in use, which the core allows only if several peers have different layouts under one
 * hash. UNSUPPORTED: one of the layouts is not known, or pages of one cannot go to the other. */
enum tern_err pair_take(struct xfer *xfer, const struct pair_ask *ask, struct pair **ret);
void pair_put(struct pair **pair); /* NULL is fine */

/* Returns the plan for a page. Caller has checked that a peer's group is one of the pair's. */
static inline const struct pair_plan *pair_plan_of(const struct pair *pair, uint32_t group,
                                                   uint32_t source_index)
{
    const struct pair_group *g = &pair->group[group];

    return &g->variant[source_index % g->variants];
}

#endif
