/* See pairs.h. Invariant: both ends make the same plans, because each plan follows from the two
 * layouts and the index of a page at the source. */
#include "seam/xfer/flow/pairs.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/err.h"
#include "base/rate.h"
#include "reshard/holds.h"
#include "reshard/units.h"
#include "seam/xfer/flow/transfers.h"

#define AHEAD_NS ((PAIR_COST_S - PAIR_COST_MAX) * RATE_SPAN_NS / PAIR_COST_S)

struct told {
    uint32_t n; /* groups; 0: unused */
    uint64_t hash, used;
    uint64_t *tellers; /* in pairs->tellers: peers that sent it, a bit each; NULL: ours */
    struct reshard_layout group[GROUPS_MAX];
};

struct pairs {
    uint64_t used; /* ascending */
    uint32_t npairs, npeers, teller_words;
    struct pair *pair;  /* owned, npairs, and one more that only finds refusals */
    struct told *own;   /* owned, config.pools */
    struct told *peers; /* owned, npeers */
    uint64_t *tellers;  /* owned, teller_words of each of them */
    uint64_t *paid_ns;  /* owned, config.links: time up to which a peer's pairs are charged */
};

static uint32_t teller_words(const struct xfer_config *c)
{
    return (c->links + 63) / 64;
}

uint64_t pairs_bytes(const struct xfer_config *c)
{
    uint64_t peers = (uint64_t)c->pairs * LAYOUTS_A_PAIR;

    return sizeof(struct pairs) + (c->pools + peers) * sizeof(struct told) +
           peers * teller_words(c) * sizeof(uint64_t) + c->links * sizeof(uint64_t) +
           (c->pairs + 1) * sizeof(struct pair);
}

enum tern_err pairs_create(struct xfer *xfer)
{
    const struct xfer_config *c = &xfer->config;
    struct pairs *p = calloc(1, sizeof *p);

    xfer->pairs = p;
    if (!p)
        return TERN_INTERNAL;
    p->teller_words = teller_words(c);
    p->own = calloc(c->pools ? c->pools : 1, sizeof *p->own);
    p->peers = calloc(c->pairs ? c->pairs : 1, LAYOUTS_A_PAIR * sizeof *p->peers);
    p->tellers =
        calloc(c->pairs ? c->pairs : 1, LAYOUTS_A_PAIR * p->teller_words * sizeof *p->tellers);
    p->paid_ns = calloc(c->links ? c->links : 1, sizeof *p->paid_ns);
    p->pair = calloc(c->pairs + 1, sizeof *p->pair);
    if (!p->own || !p->peers || !p->tellers || !p->paid_ns || !p->pair)
        return TERN_INTERNAL;
    p->npairs = c->pairs;
    p->npeers = c->pairs * LAYOUTS_A_PAIR;
    for (uint32_t i = 0; i < p->npeers; i++)
        p->peers[i].tellers = p->tellers + (size_t)i * p->teller_words;
    return TERN_OK;
}

void pairs_destroy(struct xfer *xfer)
{
    struct pairs *p = xfer->pairs;

    if (!p)
        return;
    free(p->pair);
    free(p->own);
    free(p->peers);
    free(p->tellers);
    free(p->paid_ns);
    free(p);
    xfer->pairs = NULL;
}

static void told_set(struct told *t, uint64_t hash, const struct reshard_layout *l, uint32_t n)
{
    check(n <= GROUPS_MAX);
    t->hash = hash;
    t->n = n;
    if (n > 0)
        memcpy(t->group, l, n * sizeof *l);
}

void xfer_pool_layouts(struct xfer *xfer, uint32_t pool, uint64_t hash,
                       const struct reshard_layout *l, uint32_t n)
{
    check(pool < xfer->config.pools);
    told_set(&xfer->pairs->own[pool], hash, l, n);
}

const struct reshard_layout *xfer_layouts_of(const struct xfer *xfer, uint64_t hash,
                                             uint32_t *ret_n)
{
    for (uint32_t i = 0; i < xfer->config.pools; i++) {
        const struct told *t = &xfer->pairs->own[i];

        if (t->n == 0 || t->hash != hash)
            continue;
        *ret_n = t->n;
        return t->group;
    }
    return NULL;
}

uint64_t pairs_own_hash(const struct xfer *xfer, uint32_t pool)
{
    return pool < xfer->config.pools ? xfer->pairs->own[pool].hash : 0;
}

/* The layouts of the groups of a pool. */
struct layouts {
    const struct reshard_layout *v; /* borrowed */
    uint32_t n;
};

static struct layouts layouts_told(const struct told *t)
{
    return (struct layouts){t->group, t->n};
}

static bool same_layouts(struct layouts a, struct layouts b)
{
    return a.n == b.n && memcmp(a.v, b.v, a.n * sizeof *a.v) == 0;
}

/* Returns the layout that the peer (NONE: any) sent under that hash. */
static struct told *told_of(const struct xfer *xfer, uint32_t peer, uint64_t hash)
{
    const struct pairs *p = xfer->pairs;

    for (uint32_t i = 0; i < p->npeers; i++) {
        struct told *t = &p->peers[i];

        if (t->n > 0 && t->hash == hash && (peer == NONE || xfer_bit(t->tellers, peer)))
            return t;
    }
    return NULL;
}

static bool layout_used(const struct xfer *xfer, uint64_t hash)
{
    return xfer->config.layout_used && xfer->config.layout_used(xfer->config.ctx, hash);
}

/* Returns a slot for a layout: a free one, or the least recently used that no transfer needs.
 * Returns NULL only if peers have several layouts under one hash: the core uses fewer layouts than
 * there are slots. */
static struct told *told_spare(const struct xfer *xfer)
{
    const struct pairs *p = xfer->pairs;
    struct told *spare = NULL;

    for (uint32_t i = 0; i < p->npeers; i++) {
        struct told *t = &p->peers[i];

        if (t->n == 0)
            return t;
        if ((!spare || t->used < spare->used) && !layout_used(xfer, t->hash))
            spare = t;
    }
    return spare;
}

/* Returns true if the peer may have another pair made, whatever it costs. */
static bool may_plan(const struct xfer *xfer, uint32_t peer)
{
    return pace_kept(xfer->pairs->paid_ns[peer], io_now_ns(), AHEAD_NS);
}

static void plan_spend(const struct xfer *xfer, uint32_t peer, const struct pair *made)
{
    const uint64_t cost =
        PAIR_COST_LEAST + (PAIR_STEPS_MAX - made->steps) + (PAIR_RUNS_MAX - made->runs);

    pace_spend(&xfer->pairs->paid_ns[peer], io_now_ns(), cost * RATE_SPAN_NS / PAIR_COST_S);
}

const char *xfer_peer_layouts(struct xfer *xfer, uint32_t peer, uint64_t hash,
                              const struct reshard_layout *l, uint32_t n)
{
    static const char other[] =
        "the layout cannot be kept, because transfers need another layout of the peer with the "
        "same hash, or all layouts that the daemon knows: the peer gets BUSY";
    const struct layouts told = {l, n};
    struct pairs *p = xfer->pairs;
    struct told *t = told_of(xfer, peer, hash);

    check(peer < xfer->config.links);
    if (t && !same_layouts(layouts_told(t), told)) {
        if (layout_used(xfer, hash))
            return other;
        t->tellers[peer / 64] &= ~(1ull << (peer % 64));
        t = NULL;
    }
    for (uint32_t i = 0; !t && i < p->npeers; i++)
        if (p->peers[i].n > 0 && p->peers[i].hash == hash &&
            same_layouts(layouts_told(&p->peers[i]), told))
            t = &p->peers[i];
    if (!t) {
        if (!may_plan(xfer, peer))
            return "the peer sends new layouts faster than this daemon makes plans for them: the "
                   "peer gets BUSY";
        t = told_spare(xfer);
        if (!t)
            return other;
        memset(t->tellers, 0, p->teller_words * sizeof *t->tellers);
        told_set(t, hash, l, n);
    }
    xfer_set_bit(t->tellers, peer);
    t->used = ++p->used;
    return NULL;
}

/* Adds the plan's rows to those of the pair. Returns false if they are too many. */
static bool rows_add(struct pair *p, const struct reshard_plan *plan)
{
    for (uint32_t i = 0; i < plan->n; i++) {
        uint64_t rows = strided_rows(&plan->v[i].shape);

        if (rows > PAIR_ROWS_MAX - p->rows)
            return false;
        p->rows += rows;
    }
    return true;
}

static enum reshard_refusal plan_room(struct pair *p, struct reshard_plan *ret)
{
    *ret = (struct reshard_plan){.v = p->pieces + p->npieces, .room = PAIR_PIECES_MAX - p->npieces};
    return ret->room > 0 ? RESHARD_NONE : RESHARD_PIECES;
}

/* Fills in the contents of the source's units, which do not depend on the destination; the plans
 * add more. */
static enum reshard_refusal units_make(struct pair *p, const struct reshard_layout *from,
                                       uint32_t pages, uint8_t **ret)
{
    if ((uint64_t)from->units * from->ranks * from->stages * pages > PAIR_SUMS_MAX ||
        from->units > PAIR_UNITS_MAX - p->nheld)
        return RESHARD_UNITS;
    *ret = p->held + p->nheld;
    p->nheld += from->units;
    return reshard_units(from, &p->runs, *ret);
}

static enum reshard_refusal plan_make(struct pair *p, struct reshard_ready *ready,
                                      struct pair_group *g, uint32_t variant)
{
    const uint32_t starts = g->from_pages * g->from.ranks * g->from.stages + 1;
    struct pair_plan *plan = &g->variant[variant];

    if (starts > PAIR_STARTS_MAX - p->nstarts)
        return RESHARD_PIECES;
    TRY(plan_room(p, &plan->plan));
    TRY(reshard_plan_ready(ready, variant, &plan->plan));
    p->npieces += plan->plan.n;
    TRY(plan_room(p, &plan->map));
    plan->map_of = p->starts + p->nstarts;
    p->nstarts += starts;
    TRY(reshard_map_ready(ready, variant, &plan->map, plan->map_of));
    p->npieces += plan->map.n;
    if (!rows_add(p, &plan->plan) || !rows_add(p, &plan->map))
        return RESHARD_ROWS;
    plan->bytes = reshard_plan_bytes(&plan->plan, PIECE_MOVE) / g->from_pages;
    return RESHARD_NONE;
}

static enum reshard_refusal group_make(struct pair *p, struct pair_group *g)
{
    const struct reshard_pair pair = {&g->from, &g->to};
    enum reshard_refusal refusal;
    struct reshard_ready ready;

    TRY(reshard_prepare(&pair, p->steps, &ready));
    g->from_pages = span_pages(&g->from, &g->to);
    g->to_pages = span_pages(&g->to, &g->from);
    g->sums = g->from.units * g->from.ranks * g->from.stages;
    g->variants = reshard_variants(&pair);
    refusal = units_make(p, &g->from, g->from_pages, &g->held);
    for (uint32_t v = 0; v < g->variants && refusal == RESHARD_NONE; v++)
        refusal = plan_make(p, &ready, g, v);
    p->steps = ready.steps;
    return refusal == RESHARD_ROOM ? RESHARD_PIECES : refusal;
}

/* Fills in the layouts of a pair, without plans. */
static void pair_fill(struct pair *p, struct layouts from, struct layouts to)
{
    p->used = 0; /* until its plans are made */
    p->npieces = p->nheld = p->nstarts = 0;
    p->rows = 0;
    p->steps = PAIR_STEPS_MAX;
    p->runs = PAIR_RUNS_MAX;
    p->alike = same_layouts(from, to);
    p->nfrom = from.n;
    p->nto = to.n;
    p->ngroups = from.n < to.n ? from.n : to.n;
    for (uint32_t g = 0; g < p->ngroups; g++) {
        p->group[g].from = from.v[g];
        p->group[g].to = to.v[g];
    }
}

static void pair_make(struct pair *p, struct layouts from, struct layouts to)
{
    pair_fill(p, from, to);
    p->refusal = from.n == to.n ? RESHARD_NONE : RESHARD_OTHER_GROUP;
    p->refused = 0;
    for (uint32_t g = 0; g < p->ngroups && p->refusal == RESHARD_NONE; g++) {
        p->refusal = group_make(p, &p->group[g]);
        p->refused = g;
    }
}

/* Returns true if these layouts are that end of the pair. */
static bool pair_has(const struct pair *p, struct layouts l, bool is_to)
{
    bool same = (is_to ? p->nto : p->nfrom) == l.n;

    for (uint32_t g = 0; same && g < p->ngroups; g++)
        same = reshard_same_layout(is_to ? &p->group[g].to : &p->group[g].from, &l.v[g]);
    return same;
}

static struct pair *pair_find(const struct pairs *pairs, struct layouts from, struct layouts to)
{
    for (uint32_t i = 0; i < pairs->npairs; i++) {
        const struct pair *p = &pairs->pair[i];

        if (p->used > 0 && pair_has(p, from, false) && pair_has(p, to, true))
            return (struct pair *)p;
    }
    return NULL;
}

/* Returns the least recently used pair without holds. NULL: all are in use. */
static struct pair *pair_spare(struct pairs *pairs)
{
    struct pair *spare = NULL;

    for (uint32_t i = 0; i < pairs->npairs; i++)
        if (pairs->pair[i].holds == 0 && (!spare || pairs->pair[i].used < spare->used))
            spare = &pairs->pair[i];
    return spare;
}

/* Finds or makes a pair. NULL: the peer must wait, or all pairs are in use. */
static struct pair *pair_get(struct xfer *xfer, uint32_t peer, struct layouts from,
                             struct layouts to)
{
    struct pairs *pairs = xfer->pairs;
    struct pair *p = pair_find(pairs, from, to);

    if (!p) {
        p = may_plan(xfer, peer) ? pair_spare(pairs) : NULL;
        if (!p)
            return NULL;
        pair_make(p, from, to);
        plan_spend(xfer, peer, p);
    }
    p->used = ++pairs->used;
    return p;
}

enum tern_err pair_take(struct xfer *xfer, const struct pair_ask *ask, struct pair **ret)
{
    struct pairs *pairs = xfer->pairs;
    const struct told *own = ask->pool < xfer->config.pools ? &pairs->own[ask->pool] : NULL;
    struct told *other = told_of(xfer, ask->peer, ask->other_hash);
    struct layouts from, to;
    struct pair *p;

    if (!own || own->n == 0 || !other)
        return TERN_UNSUPPORTED;
    from = layouts_told(ask->ours_sends ? own : other);
    to = layouts_told(ask->ours_sends ? other : own);
    other->used = ++pairs->used;
    p = pair_get(xfer, ask->peer, from, to);
    if (!p)
        return TERN_BUSY;
    if (p->refusal != RESHARD_NONE)
        return TERN_UNSUPPORTED;
    p->holds++;
    *ret = p;
    return TERN_OK;
}

void pair_put(struct pair **pair)
{
    if (!*pair)
        return;
    check((*pair)->holds > 0);
    (*pair)->holds--;
    *pair = NULL;
}

enum reshard_refusal xfer_pool_refusal(struct xfer *xfer, const struct reshard_layout *l,
                                       uint32_t n, char ret_group[RESHARD_NAME_MAX])
{
    struct pair *p = &xfer->pairs->pair[xfer->pairs->npairs];
    enum reshard_refusal refusal = RESHARD_NONE;
    uint8_t *held;

    pair_fill(p, (struct layouts){l, 0}, (struct layouts){l, 0});
    for (uint32_t g = 0; g < n && refusal == RESHARD_NONE; g++) {
        memcpy(ret_group, l[g].name, RESHARD_NAME_MAX);
        refusal = units_make(p, &l[g], 1, &held);
    }
    return refusal;
}

static uint32_t teller_of(const struct pairs *p, const struct told *t)
{
    for (uint32_t w = 0; w < p->teller_words; w++)
        if (t->tellers[w])
            return w * 64 + (uint32_t)__builtin_ctzll(t->tellers[w]);
    return 0;
}

enum reshard_refusal xfer_layouts_refusal(struct xfer *xfer, uint64_t own_hash, uint64_t other_hash,
                                          char ret_group[RESHARD_NAME_MAX])
{
    struct pairs *p = xfer->pairs;
    const struct told *own = NULL, *other = told_of(xfer, NONE, other_hash);
    const struct pair *pair;

    ret_group[0] = 0;
    for (uint32_t i = 0; i < xfer->config.pools; i++)
        if (p->own[i].n > 0 && p->own[i].hash == own_hash)
            own = &p->own[i];
    if (!own || !other)
        return RESHARD_NONE;
    pair = pair_get(xfer, teller_of(p, other), layouts_told(other), layouts_told(own));
    if (!pair)
        return RESHARD_NONE;
    memcpy(ret_group, own->group[pair->refused].name, RESHARD_NAME_MAX);
    return pair->refusal;
}
