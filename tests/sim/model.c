/* The model of pages and prefixes, and the rules for every page that a core allocates (T1, P2),
 * serves to readers (P1) or reports as missing (E4). Nothing here is read from a core. */
#include <string.h>

#include "core/busy.h"
#include "disk.h"
#include "records.h"
#include "tickets.h"

bool pools_meet(const struct pool *a, const struct pool *b)
{
    bool meet = false;

    for (uint32_t i = 0; a->tenant == b->tenant && i < a->ranks; i++)
        for (uint32_t k = 0; k < b->ranks; k++)
            meet |= a->region[i] == b->region[k];
    return meet;
}

uint32_t pool_home(const struct pool *p)
{
    uint32_t least = p->region[0];

    for (uint32_t r = 1; r < p->ranks; r++)
        least = p->region[r] < least ? p->region[r] : least;
    return least;
}

struct granule *page_granule(struct sim *w, uint32_t d, uint32_t pool, uint32_t group,
                             uint32_t index)
{
    struct pool *p = &w->d[d].pool[pool];
    uint32_t at = index * w->page_granules[group];

    EXPECT(p->open && p->base != UINT32_MAX, "page_of_no_pool", "a page of pool %u", pool);
    EXPECT(index != 0 && at + w->page_granules[group] <= p->granules, "page_index",
           "group %u index %u", group, index);
    return &w->d[d].granule[p->tenant][p->base + at];
}

bool granule_busy(const struct sim *w, uint32_t d, uint32_t tenant, const struct granule *g)
{
    const struct engine *e = w->d[d].engine;

    (void)tenant;
    return (g->busy[0] > e[0].min_done) | (g->busy[1] > e[1].min_done) |
           (g->busy[2] > e[2].min_done);
}

struct chunk *chunk_at(struct sim *w, uint32_t d, uint32_t pool, uint32_t space, uint32_t variant,
                       uint32_t k)
{
    uint32_t v = w->canon[variant][k], at = (space * VARIANTS + v) * CHUNKS + k - 1;
    struct chunk *c = &w->d[d].chunk[pool][at];
    uint64_t *known = &w->d[d].known[pool][at / 64], bit = 1ull << at % 64;

    if (!(*known & bit)) {
        *known |= bit;
        *c = (struct chunk){.space = (uint8_t)space, .variant = (uint8_t)v, .depth = (uint8_t)k};
    }
    return c;
}

bool chunk_visible(const struct sim *w, uint32_t d, const struct chunk *c)
{
    return c->engine == NO || c->step <= w->d[d].engine[c->engine].min_done;
}

static struct granule *chunk_granule(struct sim *w, uint32_t d, uint32_t pool,
                                     const struct chunk *c, uint32_t g, uint32_t i)
{
    return &w->d[d].granule[w->d[d].pool[pool].tenant][c->granule[g][i]];
}

bool chunk_pinned(struct sim *w, uint32_t d, uint32_t pool, const struct chunk *c)
{
    const struct granule *g = chunk_granule(w, d, pool, c, 0, 0);

    return g->borrows || granule_busy(w, d, w->d[d].pool[pool].tenant, g);
}

bool chunk_certain(struct sim *w, uint32_t d, uint32_t pool, const struct chunk *c)
{
    return c->present && ((c->evictions == w->d[d].pool[pool].evictions && w->ample &&
                           space_current(w, d, w->d[d].pool[pool].tenant, c->space)) ||
                          chunk_pinned(w, d, pool, c));
}

static void chunk_free_pages(struct sim *w, uint32_t d, uint32_t pool, struct chunk *c)
{
    uint16_t self = (uint16_t)(c - w->d[d].chunk[pool]);

    if (w->cfg.nstate)
        state_gone(w, d, pool, c);
    c->present = 0;
    for (uint32_t g = 0; g < w->cfg.ngroups; g++)
        for (uint32_t i = 0; i < w->L / w->page_tokens[d][g]; i++) {
            struct granule *p = chunk_granule(w, d, pool, c, g, i);

            for (uint32_t k = 0; k < w->page_granules[g]; k++)
                if (p[k].own == OWN_CHUNK && p[k].chunk == self && p[k].pool == pool)
                    p[k].own = OWN_FREE;
        }
}

/* A chunk has gone, and so has everything below it. */
void chunk_drop(struct sim *w, uint32_t d, uint32_t pool, struct chunk *c)
{
    uint32_t depth = c->depth, space = c->space, variant = c->variant;

    chunk_free_pages(w, d, pool, c);
    for (uint32_t v = variant; v < w->cfg.variants; v++) {
        if (w->canon[v][depth] != variant)
            continue;
        for (uint32_t k = depth + 1; k <= CHUNKS && k * w->L <= w->span; k++) {
            struct chunk *below = chunk_at(w, d, pool, space, v, k);

            if (below->present && below->variant == v)
                chunk_free_pages(w, d, pool, below);
        }
    }
}

static bool chunk_reads(struct sim *w, uint32_t d, uint32_t pool, const struct chunk *c)
{
    for (uint32_t g = 0; g < w->cfg.ngroups; g++)
        for (uint32_t i = 0; i < w->L / w->page_tokens[d][g]; i++) {
            const struct granule *p = chunk_granule(w, d, pool, c, g, i);

            if (p->borrows || p->serves || p->writers)
                return true;
        }
    return false;
}

/* No other granule of the slab may have a page of another group. */
static void check_slab(struct sim *w, uint32_t d, uint32_t pool, uint32_t group, uint32_t at)
{
    uint32_t tenant = w->d[d].pool[pool].tenant;

    for (uint32_t k = at - (at - w->d[d].pool[pool].base) % w->slab, end = k + w->slab; k < end;
         k++) {
        const struct granule *g = &w->d[d].granule[tenant][k];

        EXPECT(g->group == group || g->own == OWN_FREE || g->own == OWN_CHUNK ||
                   g->own == OWN_STATE || g->own == OWN_RESET || g->verified,
               "slab_shared", "granules %u and %u: two groups in one slab", at, k);
    }
}

uint32_t hand_out(struct sim *w, uint32_t d, uint32_t pool, uint32_t group, struct page_ref ref,
                  enum own own, uint32_t owner)
{
    struct granule *p = page_granule(w, d, pool, group, ref.index);
    uint32_t tenant = w->d[d].pool[pool].tenant, n = w->page_granules[group];
    uint32_t at = (uint32_t)(p - w->d[d].granule[tenant]);

    EXPECT(ref.gen != 0, "generation_zero", "group %u index %u", group, ref.index);
    for (uint32_t k = 0; k < n; k++) {
        struct granule *g = p + k;

        if (g->own == OWN_CHUNK) {
            struct chunk *c = &w->d[d].chunk[g->pool][g->chunk];

            EXPECT(!chunk_reads(w, d, g->pool, c), "page_in_use",
                   "granule %u: its prefix is pinned", at + k);
            EXPECT(chunk_visible(w, d, c), "page_pending",
                   "granule %u: its commit's step has not passed", at + k);
            EXPECT(!g->sealing, "page_being_sealed", "granule %u: a checksum job reads it", at + k);
            MARK(extend_evicts);
            if (host_has(c))
                MARK(demoted);
            chunk_drop(w, d, g->pool, c);
        }
        if (g->own == OWN_STATE) {
            struct chunk *c = &w->d[d].chunk[g->pool][g->chunk];

            EXPECT(c->lost[g->group] ||
                       (chunk_visible(w, d, c) && state_visible_of(w, d, c, g->group)),
                   "page_pending", "granule %u: STATE of depth %u whose step has not passed",
                   at + k, c->depth * w->L);
            state_handed_on(w, d, g->pool, c, g->group);
        }
        /* A verified page of a transfer may have been released for an existing one, or be evicted
         * already. */
        EXPECT(g->own == OWN_FREE || (g->own == OWN_RESET && !g->sealing) ||
                   (g->verified && !g->sealing && (g->own == OWN_PULL || g->own == OWN_ORPHAN)),
               "page_owned_twice",
               "daemon %u granule %u is handed out, but has owner %u of kind %u", d, at + k,
               g->owner, g->own);
        EXPECT(!granule_busy(w, d, tenant, g), "page_may_be_written",
               "daemon %u granule %u, last of group %u: engine steps %u/%u/%u are not done (done: "
               "%u/%u/%u)",
               d, at + k, g->group, g->busy[0], g->busy[1], g->busy[2], w->d[d].engine[0].min_done,
               w->d[d].engine[1].min_done, w->d[d].engine[2].min_done);
        EXPECT(!g->writers, "page_may_be_received",
               "granule %u: a receive into it is not proven quiet", at + k);
        EXPECT(!g->borrows && !g->serves, "page_read", "granule %u is read by someone", at + k);
        if (g->gen && g->group == group && g->index == ref.index)
            EXPECT(g->gen != ref.gen, "generation_reused", "group %u index %u gen %u", group,
                   ref.index, ref.gen);
        if (g->gen && g->group != group)
            MARK(slab_changes_group);
        if (g->gen)
            MARK(page_changes_owner);
        g->own = (uint8_t)own;
        g->owner = (uint8_t)owner;
        g->group = (uint8_t)group;
        g->pool = (uint8_t)pool;
        g->index = ref.index;
        g->gen = ref.gen;
        g->verified = g->sealed = g->tries = g->loaded = g->lacks = 0;
    }
    check_slab(w, d, pool, group, at);
    return at;
}

const struct page_ref *find_page(const struct table_run *runs, uint32_t nruns, uint32_t group,
                                 uint32_t at)
{
    for (uint32_t i = 0; i < nruns; i++)
        if (runs[i].group == group && at >= runs[i].first && at < runs[i].first + runs[i].n)
            return &runs[i].refs[at - runs[i].first];
    return NULL;
}

static bool same_pages(struct sim *w, uint32_t d, uint32_t pool, const struct chunk *c,
                       const struct table_run *runs, uint32_t nruns)
{
    for (uint32_t g = 0; g < w->cfg.ngroups; g++)
        for (uint32_t i = 0, per = w->L / w->page_tokens[d][g]; i < per; i++) {
            const struct page_ref *ref = find_page(runs, nruns, g, (c->depth - 1u) * per + i);

            EXPECT(ref, "chunk_incomplete", "depth %u: group %u page %u is missing",
                   c->depth * w->L, g, i);
            if (ref->gen != c->gen[g][i] ||
                page_granule(w, d, pool, g, ref->index) != chunk_granule(w, d, pool, c, g, i))
                return false;
        }
    return true;
}

static void chunk_inherit(struct sim *w, uint32_t d, uint32_t pool, struct chunk *c)
{
    const struct chunk *parent =
        c->depth > 1 ? chunk_at(w, d, pool, c->space, c->variant, c->depth - 1u) : NULL;

    if (!parent || !parent->present || chunk_visible(w, d, parent))
        return;
    if (c->engine == NO)
        c->engine = parent->engine;
    if (c->step < parent->step)
        c->step = parent->step;
}

/* The core names these as a chunk's canonical pages: those that the model knows, or those of a
 * transfer. */
void chunk_publish(struct sim *w, uint32_t d, uint32_t pool, struct chunk *c,
                   const struct table_run *runs, uint32_t nruns)
{
    uint16_t self = (uint16_t)(c - w->d[d].chunk[pool]);

    if (c->present && same_pages(w, d, pool, c, runs, nruns)) {
        c->evictions = w->d[d].pool[pool].evictions;
        return;
    }
    EXPECT(!chunk_certain(w, d, pool, c), "other_pages",
           "depth %u: not the pages that were committed", c->depth * w->L);
    if (c->present)
        chunk_drop(w, d, pool, c);
    c->made = c->must = 0;
    c->passed &= host_has(c); /* a node that is on the host lives on */
    c->engine = NO;
    c->step = 0;
    c->evictions = w->d[d].pool[pool].evictions;
    for (uint32_t g = 0; g < w->cfg.ngroups; g++)
        for (uint32_t i = 0, per = w->L / w->page_tokens[d][g]; i < per; i++) {
            const struct page_ref *ref = find_page(runs, nruns, g, (c->depth - 1u) * per + i);
            struct granule *p;

            EXPECT(ref, "chunk_incomplete", "depth %u: group %u page %u is missing",
                   c->depth * w->L, g, i);
            p = page_granule(w, d, pool, g, ref->index);
            EXPECT(
                p->gen == ref->gen && p->verified && !p->writers &&
                    (p->own == OWN_PULL || p->own == OWN_ORPHAN),
                "published_unknown",
                "depth %u group %u index %u generation %u: nobody committed it (it is of kind %u, "
                "generation %u, verified %u)",
                c->depth * w->L, g, ref->index, ref->gen, p->own, p->gen, p->verified);
            for (uint32_t k = 0; k < w->page_granules[g]; k++) {
                p[k].own = OWN_CHUNK;
                p[k].chunk = self;
                p[k].verified = 0;
            }
            c->granule[g][i] = (uint16_t)(p - w->d[d].granule[w->d[d].pool[pool].tenant]);
            c->gen[g][i] = ref->gen;
        }
    c->present = 1;
    chunk_inherit(w, d, pool, c);
}

/* T7: the session's pages of chunk k become the canonical ones. */
void chunk_commit(struct sim *w, uint32_t d, struct session *s, uint32_t k, uint32_t step)
{
    struct chunk *c = chunk_at(w, d, s->pool, s->space, s->variant, k);
    uint16_t self = (uint16_t)(c - w->d[d].chunk[s->pool]);

    EXPECT(!chunk_certain(w, d, s->pool, c), "committed_twice",
           "depth %u is in the tree already, by the model", k * w->L);
    if (c->present)
        chunk_drop(w, d, s->pool, c);
    c->made = c->must = 0;
    c->passed &= host_has(c); /* a node that is on the host lives on */
    c->present = 1;
    c->engine = s->engine;
    c->step = step;
    c->evictions = w->d[d].pool[s->pool].evictions;
    for (uint32_t g = 0; g < w->cfg.ngroups; g++)
        for (uint32_t i = 0, per = w->L / w->page_tokens[d][g]; i < per; i++) {
            const struct entry *e = &s->table[g][(k - 1) * per + i];
            struct granule *p = &w->d[d].granule[s->tenant][e->granule];

            for (uint32_t j = 0; j < w->page_granules[g]; j++) {
                p[j].own = OWN_CHUNK;
                p[j].chunk = self;
                p[j].borrows++;
            }
            c->granule[g][i] = e->granule;
            c->gen[g][i] = e->gen;
        }
    chunk_inherit(w, d, s->pool, c);
}

void borrow(struct sim *w, uint32_t d, struct session *s, uint32_t group, uint32_t at,
            const struct chunk *c, uint32_t page)
{
    struct granule *g = &w->d[d].granule[s->tenant][c->granule[group][page]];

    EXPECT(at < TABLE, "table", "page %u", at);
    s->table[group][at] =
        (struct entry){.granule = c->granule[group][page], .gen = c->gen[group][page]};
    for (uint32_t k = 0; k < w->page_granules[group]; k++)
        g[k].borrows++;
}

/* Entries [from, to) leave the table; `step` is the last that may touch them. */
void give_back(struct sim *w, uint32_t d, struct session *s, uint32_t group, uint32_t from,
               uint32_t to, uint32_t step)
{
    uint32_t borrowed = s->committed / w->page_tokens[d][group];

    for (uint32_t i = from; i < to; i++) {
        struct granule *g = &w->d[d].granule[s->tenant][s->table[group][i].granule];

        for (uint32_t k = 0; k < w->page_granules[group]; k++) {
            if (i < borrowed)
                g[k].borrows--;
            else
                g[k].own = OWN_FREE;
            if (step > g[k].busy[s->engine])
                g[k].busy[s->engine] = step;
        }
    }
}

static uint32_t pages_of(const struct sim *w, uint32_t d, const struct session *s, uint32_t group)
{
    return (s->allocated + w->page_tokens[d][group] - 1) / w->page_tokens[d][group];
}

void table_forget(struct sim *w, uint32_t d, struct session *s, uint32_t step)
{
    promise_over(w, d, s);
    for (uint32_t g = 0; g < w->cfg.ngroups; g++)
        give_back(w, d, s, g, s->unpinned ? s->committed / w->page_tokens[d][g] : 0,
                  pages_of(w, d, s, g), step);
    state_forget_session(w, d, s, step);
    if ((s->turn == TURN_FETCHING || s->untold || s->piece_holds) &&
        step > w->d[d].engine[s->engine].untold_step)
        w->d[d].engine[s->engine].untold_step = step;
    if (s->turn == TURN_FETCHING)
        for (uint32_t i = 0; i < PULLS * 2; i++)
            if (w->d[d].pull[i].used && !w->d[d].pull[i].over &&
                pull_id_equal(w->d[d].pull[i].id, s->fetch_pull))
                pull_over(w, d, &w->d[d].pull[i], true);
    w->d[d].host_unsure |= s->away == AWAY_HOST && !s->unpinned;
    s->live = s->deaf = s->away = s->unpinned = s->undone = s->lost = 0;
    s->untold = 0;
    s->slid_step = 0;
    s->committed = s->written = s->allocated = 0;
}

void session_forget(struct sim *w, uint32_t d, struct session *s, uint32_t step)
{
    table_forget(w, d, s, step);
    records_session_over(w, d, s);
}

void same_lengths(struct sim *w, const struct session *s, const struct lengths *l, const char *what)
{
    EXPECT(l->committed == s->committed && l->written == s->written && l->allocated == s->allocated,
           what, "session %u.%u: committed %u written %u allocated %u, the model has %u %u %u",
           s->id.slot, s->id.gen, l->committed, l->written, l->allocated, s->committed, s->written,
           s->allocated);
}

void same_tokens(struct sim *w, const struct session *s, uint32_t tokens, const char *what)
{
    EXPECT(tokens == s->ntokens, what, "%u tokens, the model has %u", tokens, s->ntokens);
}

/* --- E4 --- */

enum fate { FATE_FREE, FATE_MAYBE, FATE_SURE, FATE_HELD };

static enum fate fate_of(struct sim *w, uint32_t d, uint32_t pool, const struct granule *g,
                         bool unsure)
{
    const struct chunk *c;

    if (g->own == OWN_PULL || g->own == OWN_ORPHAN)
        return g->verified || g->own == OWN_ORPHAN ? FATE_MAYBE : FATE_HELD;
    if (g->writers || granule_busy(w, d, 0, g) || g->own == OWN_SESSION || g->own == OWN_LEASE)
        return FATE_HELD;
    if (g->own == OWN_FREE)
        return FATE_FREE;
    if (g->own == OWN_RESET)
        return g->sealing || g->borrows || g->serves ? FATE_HELD : FATE_MAYBE;
    c = &w->d[d].chunk[pool][g->chunk];
    if (g->own == OWN_STATE) /* it may have been dropped long ago */
        return g->borrows || g->serves ? FATE_HELD : FATE_MAYBE;
    if (g->borrows || g->serves || g->sealing || !chunk_visible(w, d, c))
        return FATE_HELD;
    return unsure ? FATE_MAYBE : FATE_SURE;
}

bool chunk_held(struct sim *w, uint32_t d, uint32_t pool, const struct chunk *c)
{
    return c->present && fate_of(w, d, pool, chunk_granule(w, d, pool, c, 0, 0), true) == FATE_HELD;
}

/* A transfer in may have reserved pages that it has not asked for yet, and what a fetch pinned is
 * known only from its answer. Called at every event: it looks at the sessions only after one began
 * to wait. */
static bool pulls_now(struct sim *w, uint32_t d)
{
    if (w->d[d].waiting)
        w->d[d].waiting = sessions_waiting(&w->d[d]) != 0;
    return w->d[d].waiting || w->d[d].npulls > 0;
}

void model_before_step(struct sim *w, uint32_t d)
{
    w->d[d].pulled = pulls_now(w, d);
    memset(w->d[d].backing, 0, sizeof w->d[d].backing);
    w->d[d].host_left = w->d[d].follower_left = 0;
}

/* A fetch that a Step cancels is answered before the Step's own operations are checked. */
static bool pulls_active(struct sim *w, uint32_t d)
{
    return w->d[d].pulled || pulls_now(w, d);
}

bool path_held_untold(const struct daemon *m)
{
    for (uint32_t i = 0; i < OPENS; i++)
        if (m->walking[i].gen != 0)
            return true;
    for (uint32_t e = 0; e < ENGINES; e++)
        if (m->engine[e].used && m->engine[e].untold_step > m->engine[e].min_done)
            return true;
    return false;
}

/* May something other than sessions and steps pin prefixes? Jobs and transfers pin whole paths. */
static bool pool_unsure(struct sim *w, uint32_t d, uint32_t pool)
{
    if (pulls_active(w, d) || w->d[d].follower_left ||
        w->cfg.nstate) /* STATE is borrowed by whole nodes */
        return true;
    if (disk_is_on(w, d)) /* stores that wait pin their paths */
        return true;
    if (path_held_untold(&w->d[d]))
        return true;
    if (w->d[d].njobs || w->d[d].spoilt) /* others may wait behind these; who is away is unsure */
        return true;
    for (uint32_t i = 0; i < SESSIONS; i++) /* the core decides when it unpins the device */
        if (w->d[d].session[i].live && (w->d[d].session[i].away || w->d[d].session[i].piece_holds))
            return true;
    (void)pool;
    for (uint32_t i = 0; i < SERVES * 2; i++)
        if (w->d[d].serve[i].used)
            return true;
    return false;
}

struct room {
    uint32_t free[GROUPS], sure[GROUPS], most[GROUPS], retiring[GROUPS], used[GROUPS];
    uint32_t evictable[GROUPS]; /* prefixes' pages that may be evicted */
    uint32_t held[GROUPS];      /* pages that cannot be free */
    uint32_t orphans[GROUPS];   /* free, published or retiring: the model does not know */
    uint32_t slabs_free, slabs_sure, slabs_most;
    uint32_t own_free[GROUPS], own_sure[GROUPS]; /* in slabs that the group must keep */
};

static void room_slab(struct sim *w, uint32_t d, uint32_t pool, uint32_t first, uint32_t n,
                      bool unsure, struct room *r)
{
    uint32_t used = 0, held = 0, maybe = 0, group = NO;
    const struct granule *g = &w->d[d].granule[w->d[d].pool[pool].tenant][first];
    enum fate fates[2] = {FATE_FREE, FATE_FREE}, surest = FATE_FREE;

    for (uint32_t i = 0; i < n; i++) {
        enum fate f = fate_of(w, d, pool, g + i, unsure);

        fates[i] = f;
        held += f == FATE_HELD;
        maybe += f == FATE_MAYBE;
        used += f != FATE_FREE;
        if (f > surest) { /* the slab's group, as far as that is known */
            surest = f;
            group = g[i].group;
        }
        /* Counted for its own group: STATE in the slab may have been dropped long ago, and then
         * does not decide the slab's group. */
        if ((f == FATE_SURE || f == FATE_MAYBE) && i % w->page_granules[g[i].group] == 0)
            r->evictable[g[i].group]++;
        if (g[i].own == OWN_ORPHAN && i % w->page_granules[g[i].group] == 0)
            r->orphans[g[i].group]++;
        if (f == FATE_HELD && g[i].own == OWN_FREE && !g[i].writers &&
            i % w->page_granules[g[i].group] == 0)
            r->retiring[g[i].group]++;
    }
    r->slabs_free += used == 0;
    r->slabs_sure += held == 0 && maybe == 0;
    r->slabs_most += held == 0;
    if (group == NO)
        return;
    for (uint32_t i = 0; i < n; i += w->page_granules[group]) {
        r->free[group] += fates[i] == FATE_FREE;
        r->used[group] += fates[i] == FATE_HELD || fates[i] == FATE_MAYBE;
        r->held[group] += fates[i] == FATE_HELD;
        r->own_free[group] += fates[i] == FATE_FREE;
        if (held || maybe)
            r->own_sure[group] += fates[i] == FATE_FREE || fates[i] == FATE_SURE;
        if (held)
            r->most[group] += fates[i] != FATE_HELD;
    }
}

static void room_count(struct sim *w, uint32_t d, uint32_t pool, struct room *r)
{
    const struct pool *p = &w->d[d].pool[pool];
    uint32_t slab = w->slab;
    bool unsure = pool_unsure(w, d, pool);

    memset(r, 0, sizeof *r);
    for (uint32_t at = slab; at + slab <= p->granules; at += slab) /* the core never uses slab 0 */
        room_slab(w, d, pool, p->base + at, slab, unsure, r);
    for (uint32_t g = 0; g < w->ngroups; g++) {
        uint32_t per = slab / w->page_granules[g];

        r->free[g] += r->slabs_free * per;
        r->sure[g] = r->own_sure[g] + r->slabs_sure * per;
        r->most[g] += r->slabs_most * per;
    }
}

/* Would the model bet that these pages can be allocated? */
static bool room_fits(const struct sim *w, const struct room *r, const uint32_t need[GROUPS])
{
    uint32_t slab = w->slab;
    uint32_t slabs = 0;

    for (uint32_t g = 0; g < w->ngroups; g++) {
        uint32_t per = slab / w->page_granules[g];

        if (need[g] > r->own_sure[g])
            slabs += (need[g] - r->own_sure[g] + per - 1) / per;
    }
    if (w->cfg.cap0 && need[0] + r->used[0] > w->cfg.cap0)
        return false;
    return slabs <= r->slabs_sure;
}

/* Would these pages not fit even an otherwise empty pool? */
static bool never_fits(const struct sim *w, uint32_t d, uint32_t pool, const uint32_t all[GROUPS])
{
    uint32_t slab = w->slab, slabs = 0;

    for (uint32_t g = 0; g < w->ngroups; g++)
        slabs += (all[g] * w->page_granules[g] + slab - 1) / slab;
    return (w->cfg.cap0 && all[0] > w->cfg.cap0) ||
           slabs > w->d[d].pool[pool].granules / slab - 1; /* the core never uses slab 0 */
}

bool check_never(struct sim *w, uint32_t d, uint32_t pool, const struct op_result *r,
                 const uint32_t all[GROUPS])
{
    const struct shortage *sh = &r->shortage;
    bool never = never_fits(w, d, pool, all);

    if (r->err != TERN_QUOTA) {
        EXPECT(!never || (r->err == TERN_BUSY && (!r->text || strcmp(r->text, MAKING_ROOM) != 0)) ||
                   (r->err != TERN_BUSY && r->err != TERN_POOL_EXHAUSTED && r->err != TERN_OK),
               "never_fits", "err %u, and needs %u/%u of %u granules", r->err, all[0], all[1],
               w->d[d].pool[pool].granules);
        return false;
    }
    EXPECT(sh->group < w->ngroups && sh->needed > sh->free &&
               sh->free <= w->d[d].pool[pool].granules / w->page_granules[sh->group],
           "false_never", "group %u needs %u of %u", sh->group, sh->needed, sh->free);
    EXPECT(sh->group >= w->cfg.ngroups || (never && sh->needed == all[sh->group]), "false_never",
           "group %u needs %u, the answer says %u of %u", sh->group, all[sh->group], sh->needed,
           sh->free);
    MARK(never_fits);
    return true;
}

void check_shortage(struct sim *w, uint32_t d, uint32_t pool, const struct shortage *sh,
                    const uint32_t need[GROUPS])
{
    struct room r;

    room_count(w, d, pool, &r);
    TRACE("    short of group %u: needs %u, free %u, evictable %u, retiring %u until %llu\n",
          sh->group, sh->needed, sh->free, sh->evictable, sh->retiring,
          (unsigned long long)sh->until_step);
    EXPECT(sh->group < w->ngroups && sh->needed == need[sh->group] && sh->needed > 0,
           "shortage_needed", "group %u needs %u, the answer says %u", sh->group, need[sh->group],
           sh->needed);
    /* Without retire records STATE stays in a table for longer than it must. */
    EXPECT(pulls_active(w, d) || (w->cfg.nstate && w->cfg.tight == 3) || !room_fits(w, &r, need),
           "false_shortage",
           "needs %u/%u, there are %u/%u sure pages in its slabs and %u slabs that could be had",
           need[0], need[1], r.own_sure[0], r.own_sure[1], r.slabs_sure);
    EXPECT(sh->free <= r.most[sh->group], "shortage_free", "says %u free, at most %u", sh->free,
           r.most[sh->group]);
    /* T11: nothing was evicted for it, so the pool's count of evictions stays as it is. */
    r.evictable[sh->group] += w->d[d].backing[sh->group]; /* since the answer was made */
    EXPECT(sh->evictable <= r.evictable[sh->group], "shortage_evictable", "says %u, at most %u",
           sh->evictable, r.evictable[sh->group]);
    EXPECT((w->cfg.nstate && w->cfg.tight == 3) ||
               (sh->retiring + w->tickets[d]->let_go[sh->group] >= r.retiring[sh->group] &&
                sh->retiring <= r.retiring[sh->group] + r.orphans[sh->group]),
           "shortage_retiring", "says %u, the model counts %u", sh->retiring,
           r.retiring[sh->group]);
    MARK(extend_exhausted);
    if (sh->retiring && sh->until_step)
        MARK(exhausted_by_retiring);
}

/* Would all pages that the session has to recover fit, whatever of them is resident already? */
bool recover_fits(struct sim *w, uint32_t d, const struct session *s)
{
    uint32_t need[GROUPS] = {0};
    struct room r;

    for (uint32_t k = 1; k * w->L <= s->committed; k++)
        for (uint32_t g = 0; g < w->ngroups; g++)
            if (g < w->cfg.ngroups || !recurrent(w, g) || k * w->L == s->committed)
                need[g] += chunk_pages(w, d, g, chunk_at(w, d, s->pool, s->space, s->variant, k));
    room_count(w, d, s->pool, &r);
    return !pulls_active(w, d) && room_fits(w, &r, need);
}

/* The cap of a group bounds its pages that are not free. */
void check_cap(struct sim *w, uint32_t d, uint32_t pool)
{
    struct room r;

    if (!w->cfg.cap0)
        return;
    room_count(w, d, pool, &r);
    EXPECT(r.held[0] <= w->cfg.cap0, "cap_passed", "%u pages of group 0 are in use, its cap is %u",
           r.held[0], w->cfg.cap0);
}

/* Called before these pages are allocated: did that need an eviction? */
void note_need(struct sim *w, uint32_t d, uint32_t pool, const uint32_t need[GROUPS])
{
    struct room r;
    uint32_t slabs = 0;

    /* Possibly: pages that a transfer has reserved and not asked for yet are free in the model. */
    if (w->cfg.cap0 || pulls_active(w, d)) {
        w->d[d].pool[pool].evictions++;
        return;
    }
    room_count(w, d, pool, &r);
    for (uint32_t g = 0; g < w->ngroups; g++) {
        uint32_t per = w->slab / w->page_granules[g];

        if (need[g] > r.own_free[g])
            slabs += (need[g] - r.own_free[g] + per - 1) / per;
    }
    if (slabs > r.slabs_free)
        w->d[d].pool[pool].evictions++;
}
