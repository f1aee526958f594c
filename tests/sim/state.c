/* The model of STATE groups: the logical pages of a session's table, the pages of a chunk's
 * snapshot, and how long the model would bet on them (T5, T7-T10, T17-T19, T21). A WINDOW page's
 * bytes are those of its tokens, as in HISTORY; a RECURRENT page's are the prefix at its depth. The
 * model learns that the core dropped a page when the core allocates it again: then nobody may have
 * been reading it. */
#include "state.h"

#include "oracle/rules.h"

uint32_t window_begin(const struct sim *w, uint32_t d, uint32_t g, uint32_t at)
{
    return recurrent(w, g) ? 0 : rule_window_first(w->window[g], w->page_tokens[d][g], at);
}

uint32_t seg_first(const struct sim *w, uint32_t d, uint32_t g, uint32_t k)
{
    return recurrent(w, g) ? 0
                           : rule_segment_first(w->window[g], w->page_tokens[d][g], w->L, k * w->L);
}

uint32_t seg_end(const struct sim *w, uint32_t d, uint32_t g, uint32_t k)
{
    return recurrent(w, g) ? 1 : k * w->L / w->page_tokens[d][g];
}

uint32_t seg_pages(const struct sim *w, uint32_t d, uint32_t g, uint32_t k)
{
    return seg_end(w, d, g, k) - seg_first(w, d, g, k);
}

bool in_window(const struct sim *w, uint32_t d, uint32_t g, uint32_t k, uint32_t t)
{
    if (recurrent(w, g))
        return k * w->L == t;
    return k * w->L <= t && seg_end(w, d, g, k) > window_begin(w, d, g, t);
}

/* Is a page of the segment in the table, or will it be when the session recovers? */
bool state_counts(const struct sim *w, uint32_t d, const struct session *s, uint32_t g, uint32_t k)
{
    return in_window(w, d, g, k, s->committed) && seg_end(w, d, g, k) > s->first[g] &&
           s->base[g] >= seg_end(w, d, g, k);
}

uint32_t reach_of(const struct sim *w, uint32_t g)
{
    return recurrent(w, g) ? 1 : (w->window[g] + w->L - 1) / w->L;
}

struct granule *at_granule(struct sim *w, uint32_t d, const struct session *s, uint32_t at)
{
    return &w->d[d].granule[s->tenant][at];
}

uint32_t window_skips(const struct sim *w, uint32_t d, uint32_t tenant, const struct window_page *p)
{
    return window_lacks(w, d, p, w->d[d].granule[tenant][p->granule].lacks);
}

uint32_t window_lacks(const struct sim *w, uint32_t d, const struct window_page *p, uint32_t lacks)
{
    uint32_t pt = w->page_tokens[d][p->group], pos = p->at * pt,
             from = p->t > w->window[p->group] ? p->t - w->window[p->group] : 0;

    if (lacks == 0 || from <= pos)
        return 0;
    return from - pos < lacks ? from - pos : lacks;
}

void check_window_page(struct sim *w, uint32_t d, const struct session *s,
                       const struct window_page *p, const char *what)
{
    uint32_t skips = window_skips(w, d, s->tenant, p), pt = w->page_tokens[d][p->group],
             pos = p->at * pt, end = p->t - pos < pt ? p->t - pos : pt;

    check_page_words(
        w, d,
        &(struct words){s->tenant, p->granule, p->group, s->ns, s->variant, pos, skips, end, false},
        what);
}

/* --- the session's table --- */

void state_release_entry(struct sim *w, uint32_t d, struct session *s, uint32_t g, uint32_t at,
                         uint32_t step)
{
    struct entry *e = &s->table[g][at];
    struct granule *p;

    if (e->granule == HOLE)
        return;
    p = at_granule(w, d, s, e->granule);
    TRACE("    group %u page %u (granule %u) leaves the table of %u.%u, step %u%s\n", g, at,
          e->granule, s->id.slot, s->id.gen, step, e->mine ? ", owned" : "");
    for (uint32_t k = 0; k < w->page_granules[g]; k++) {
        if (e->mine)
            p[k].own = OWN_FREE;
        else
            p[k].borrows--;
        if (step > p[k].busy[s->engine])
            p[k].busy[s->engine] = step;
    }
    e->granule = HOLE;
}

void release_copy(struct sim *w, uint32_t d, struct session *s, uint32_t g, uint32_t step)
{
    struct entry *e = &s->copy[g];
    struct granule *p;

    if (!e->gen)
        return;
    p = at_granule(w, d, s, e->granule);
    for (uint32_t k = 0; k < w->page_granules[g]; k++) {
        p[k].borrows--;
        if (step > p[k].busy[s->engine])
            p[k].busy[s->engine] = step;
    }
    e->gen = 0;
}

void state_trim(struct sim *w, uint32_t d, struct session *s, uint32_t p, uint32_t step)
{
    for (STATE_GROUPS(w, g)) {
        uint32_t end = (p + w->page_tokens[d][g] - 1) / w->page_tokens[d][g];

        if (recurrent(w, g)) {
            if ((p >= s->written && p > 0) || !s->top[g])
                continue;
            release_copy(w, d, s, g, step);
            state_release_entry(w, d, s, g, 0, step);
            s->top[g] = 0;
            continue;
        }
        if (end < s->base[g])
            end = s->base[g];
        while (s->top[g] > end)
            state_release_entry(w, d, s, g, --s->top[g], step);
    }
}

void state_disown(struct sim *w, uint32_t d, struct session *s, uint32_t step)
{
    state_trim(w, d, s, s->committed, step);
    for (STATE_GROUPS(w, g)) {
        if (!recurrent(w, g) || !s->top[g])
            continue;
        release_copy(w, d, s, g, step);
        state_release_entry(w, d, s, g, 0, step);
        s->top[g] = 0;
    }
}

/* The tree may have lost a RECURRENT state at the committed length, unknown to the model. */
bool state_needs_own(const struct sim *w, uint32_t d, const struct session *s)
{
    for (STATE_GROUPS(w, g))
        if (!recurrent(w, g) && s->top[g] > s->base[g] &&
            s->base[g] < s->committed / w->page_tokens[d][g])
            return true;
    return w->cfg.nstate && (has_recurrent_state(w) || !state_window_whole(w, d, s, s->committed));
}

void state_forget_session(struct sim *w, uint32_t d, struct session *s, uint32_t step)
{
    for (STATE_GROUPS(w, g)) {
        for (uint32_t i = s->first[g]; i < s->top[g]; i++)
            state_release_entry(w, d, s, g, i, step);
        release_copy(w, d, s, g, step);
        s->first[g] = s->base[g] = s->top[g] = s->gap[g] = 0;
    }
    s->lame = 0;
    s->resumed = s->whole_from = 0;
}

/* Does the session own pages of a window of several chunks? They leave in whole chunks. */
static bool owns_window(const struct sim *w, uint32_t d, const struct session *s, uint32_t g)
{
    return reach_of(w, g) > 1 && s->base[g] < s->top[g] &&
           s->base[g] * w->page_tokens[d][g] < s->committed;
}

/* T5. Steps up to `step` may still read the pages that leave the table here. */
void state_slide(struct sim *w, uint32_t d, struct session *s, uint32_t next, uint32_t step)
{
    for (STATE_GROUPS(w, g)) {
        uint32_t lower = rule_slide_lower(s->written, next, w->window[g] + w->reserve[g]);

        if (recurrent(w, g))
            continue;
        if (owns_window(w, d, s, g))
            lower -= lower % w->L;
        if (s->first[g] < s->base[g] && s->first[g] < lower / w->page_tokens[d][g] &&
            s->slid_step < step)
            s->slid_step = step;
        while (s->first[g] < s->top[g] && (s->first[g] + 1) * w->page_tokens[d][g] <= lower) {
            if (s->first[g] < s->base[g])
                MARK(slide_borrowed);
            else
                MARK(slide_owned);
            state_release_entry(w, d, s, g, s->first[g]++, step);
            if (s->first[g] * w->page_tokens[d][g] >= LONG_CHUNKS / 4 * w->L)
                MARK(window_far_behind);
        }
        if (s->base[g] < s->first[g])
            s->base[g] = s->first[g];
    }
}

/* Does the table have the window of p? */
bool state_window_whole(const struct sim *w, uint32_t d, const struct session *s, uint32_t p)
{
    if (p < s->whole_from)
        return false;
    for (STATE_GROUPS(w, g)) {
        if (recurrent(w, g)) {
            if (p != s->written && p != s->committed)
                return false;
            continue;
        }
        if (s->first[g] > window_begin(w, d, g, p) || s->gap[g] > window_begin(w, d, g, p))
            return false;
        for (uint32_t i = window_begin(w, d, g, p); i * w->page_tokens[d][g] < p; i++)
            if (i < s->first[g] || i >= s->top[g] || s->table[g][i].granule == HOLE)
                return false;
    }
    return true;
}

bool state_may_refuse(const struct sim *w, uint32_t d, const struct session *s, uint32_t p)
{
    return w->cfg.nstate &&
           (!state_window_whole(w, d, s, p) || (has_recurrent_state(w) && p != s->written));
}

/* --- the snapshot of a chunk --- */

static void group_gone(struct sim *w, uint32_t d, uint32_t pool, struct chunk *c, uint32_t g)
{
    uint32_t tenant = w->d[d].pool[pool].tenant,
             n = seg_end(w, d, g, c->depth) - seg_first(w, d, g, c->depth);
    uint16_t self = (uint16_t)(c - w->d[d].chunk[pool]);

    for (uint32_t i = 0; c->has[g] && i < n; i++) {
        struct granule *p = &w->d[d].granule[tenant][c->granule[g][i]];

        if (!c->gen[g][i] || p->own != OWN_STATE || p->chunk != self || p->pool != pool ||
            p->gen != c->gen[g][i])
            continue;
        for (uint32_t k = 0; k < w->page_granules[g]; k++) {
            EXPECT(!p[k].borrows && !p[k].serves, "state_in_use",
                   "depth %u: its STATE (granule %u) went, but a session or a transfer reads it",
                   c->depth * w->L, c->granule[g][i] + k);
            EXPECT(!granule_busy(w, d, tenant, &p[k]), "state_may_be_read",
                   "depth %u: its STATE went, but a step that reads it is not done",
                   c->depth * w->L);
            EXPECT(!p[k].sealing, "state_being_sealed", "granule %u", c->granule[g][i] + k);
            p[k].own = OWN_FREE;
        }
    }
    if (c->has[g])
        TRACE("    depth %u group %u: its STATE is gone\n", c->depth * w->L, g);
    c->has[g] = c->maybe[g] = 0;
}

void state_gone(struct sim *w, uint32_t d, uint32_t pool, struct chunk *c)
{
    for (STATE_GROUPS(w, g))
        group_gone(w, d, pool, c, g);
}

void state_handed_on(struct sim *w, uint32_t d, uint32_t pool, struct chunk *c, uint32_t g)
{
    if (c->listed)
        MARK(state_reclaimed_by_need);
    else if (!c->lost[g])
        MARK(state_dropped_under_need);
    c->listed = 0;
    if (c->lost[g])
        group_gone(w, d, pool, c, g);
    else
        state_gone(w, d, pool, c);
}

bool state_visible_of(const struct sim *w, uint32_t d, const struct chunk *c, uint32_t g)
{
    return !c->has[g] || c->state_engine[g] == NO ||
           c->state_step[g] <= w->d[d].engine[c->state_engine[g]].min_done;
}

bool state_visible(const struct sim *w, uint32_t d, const struct chunk *c)
{
    for (STATE_GROUPS(w, g))
        if (!state_visible_of(w, d, c, g))
            return false;
    return true;
}

/* STATE that the engine refilled, and that is not visible yet, goes with it. */
void state_engine_gone(struct sim *w, uint32_t d, uint32_t pool, struct chunk *c, uint32_t e)
{
    for (STATE_GROUPS(w, g)) {
        if (!c->has[g] || c->state_engine[g] != e)
            continue;
        if (!state_visible_of(w, d, c, g))
            group_gone(w, d, pool, c, g);
        c->state_engine[g] = NO;
    }
}

static bool borrowed(struct sim *w, uint32_t d, uint32_t pool, const struct chunk *c, uint32_t g)
{
    const struct granule *at = w->d[d].granule[w->d[d].pool[pool].tenant];

    for (uint32_t i = 0; i < seg_end(w, d, g, c->depth) - seg_first(w, d, g, c->depth); i++)
        if (c->gen[g][i] && at[c->granule[g][i]].borrows)
            return true;
    return false;
}

bool state_certain(struct sim *w, uint32_t d, uint32_t pool, const struct chunk *c, uint32_t g)
{
    if (!c->present || !c->has[g])
        return false;
    if (borrowed(w, d, pool, c, g))
        return true;
    if (c->depth * w->L + w->window_max <= w->d[d].pool[pool].unheard)
        return false; /* a fetch with an unknown outcome may have passed it */
    return !c->lost[g] && space_current(w, d, w->d[d].pool[pool].tenant, c->space) &&
           c->state_evictions[g] == w->d[d].pool[pool].evictions && w->ample;
}

bool state_resumes(struct sim *w, uint32_t d, uint32_t pool, uint32_t space, uint32_t variant,
                   uint32_t k)
{
    for (STATE_GROUPS(w, g))
        for (uint32_t i = 0; i < reach_of(w, g) && i < k; i++) {
            const struct chunk *c = chunk_at(w, d, pool, space, variant, k - i);

            if (!state_certain(w, d, pool, c, g) || !state_visible_of(w, d, c, g))
                return false;
        }
    return true;
}

/* Pages of a group have gone: a node loses all of its STATE at once, so the other groups may have
 * gone too. */
static void group_lost(struct sim *w, uint32_t d, uint32_t pool, struct chunk *c, uint32_t g)
{
    if (!c->has[g])
        return;
    group_gone(w, d, pool, c, g);
    memset(c->lost, 1, sizeof c->lost);
}

static void set_state(struct sim *w, uint32_t d, struct session *s, struct chunk *c, uint32_t g,
                      uint32_t i, uint32_t granule)
{
    struct granule *p = at_granule(w, d, s, granule);

    TRACE("    depth %u group %u: granule %u is its STATE\n", c->depth * w->L, g, granule);
    for (uint32_t k = 0; k < w->page_granules[g]; k++) {
        p[k].own = OWN_STATE;
        p[k].chunk = (uint16_t)(c - w->d[d].chunk[s->pool]);
        p[k].pool = s->pool;
        p[k].verified = 0;
    }
    c->granule[g][i] = (uint16_t)granule;
    c->gen[g][i] = p->gen;
}

/* The pages of a group become known. The node may have lost all its STATE before, without an answer
 * that shows it: STATE of other groups that the model would not bet on went before these came. */
static void first_seen(struct sim *w, uint32_t d, uint32_t pool, struct chunk *c, uint32_t g,
                       uint32_t engine, uint32_t step)
{
    for (STATE_GROUPS(w, o))
        if (o != g && !c->has[g] && c->has[o] && state_visible_of(w, d, c, o) &&
            !state_certain(w, d, pool, c, o))
            c->lost[o] = 1;
    c->state_engine[g] = (uint8_t)engine;
    c->state_step[g] = step;
    c->lost[g] = c->listed = 0;
    c->state_evictions[g] = w->d[d].pool[pool].evictions;
}

/* Are the pages that the core names the known ones, as far as the model knows them? */
static bool named_as_known(struct sim *w, uint32_t d, const struct session *s,
                           const struct chunk *c, uint32_t g, const struct table_run *runs,
                           uint32_t nruns, uint32_t from)
{
    uint32_t first = seg_first(w, d, g, c->depth), end = seg_end(w, d, g, c->depth);

    for (uint32_t at = first > from ? first : from; at < end; at++) {
        const struct page_ref *ref = find_page(runs, nruns, g, at);
        uint32_t i = at - first;

        if (ref && c->gen[g][i] &&
            (c->gen[g][i] != ref->gen ||
             at_granule(w, d, s, c->granule[g][i]) != page_granule(w, d, s->pool, g, ref->index)))
            return false;
    }
    return true;
}

void canonical(struct sim *w, uint32_t d, struct session *s, struct chunk *c, uint32_t g,
               const struct table_run *runs, uint32_t nruns, uint32_t from)
{
    uint32_t first = seg_first(w, d, g, c->depth), end = seg_end(w, d, g, c->depth);

    if (c->has[g] && !named_as_known(w, d, s, c, g, runs, nruns, from)) {
        EXPECT(!state_certain(w, d, s->pool, c, g), "state_replaced",
               "depth %u group %u: not the STATE that is there", c->depth * w->L, g);
        group_lost(w, d, s->pool, c, g);
    }
    if (!c->has[g])
        memset(c->gen[g], 0, sizeof c->gen[g]); /* pages that no answer names are unknown */
    for (uint32_t at = first > from ? first : from; at < end; at++) {
        const struct page_ref *ref = find_page(runs, nruns, g, at);
        uint32_t i = at - first;
        struct granule *p;

        EXPECT(ref, "window_incomplete", "depth %u group %u: page %u is missing", c->depth * w->L,
               g, at);
        if (c->gen[g][i])
            continue;
        p = page_granule(w, d, s->pool, g, ref->index);
        EXPECT(p->verified && p->gen == ref->gen && !p->writers, "state_unknown",
               "depth %u group %u index %u: nobody committed it (kind %u)", c->depth * w->L, g,
               ref->index, p->own);
        first_seen(w, d, s->pool, c, g, NO, 0);
        c->lost[g] = c->passed; /* superseded again when its last borrower goes */
        set_state(w, d, s, c, g, i, (uint32_t)(p - at_granule(w, d, s, 0)));
    }
    c->has[g] = 1;
    EXPECT(state_visible_of(w, d, c, g) || c->state_engine[g] == s->engine, "state_pending",
           "depth %u: its STATE waits for a step of another engine", c->depth * w->L);
}

void borrow_page(struct sim *w, uint32_t d, struct session *s, uint32_t g, uint32_t at,
                 const struct chunk *c, uint32_t i)
{
    struct granule *p = at_granule(w, d, s, c->granule[g][i]);

    EXPECT(at < TABLE, "table", "page %u", at);
    s->table[g][at] = (struct entry){.granule = c->granule[g][i], .gen = c->gen[g][i]};
    for (uint32_t k = 0; k < w->page_granules[g]; k++)
        p[k].borrows++;
}

void state_resumed(struct sim *w, uint32_t d, struct session *s, uint32_t depth)
{
    s->resumed = depth;
    if (depth > 0)
        memset(chunk_at(w, d, s->pool, s->space, s->variant, depth / w->L)->maybe, 1, GROUPS);
}

void state_borrow(struct sim *w, uint32_t d, struct session *s, uint32_t from, uint32_t depth,
                  const struct table_run *runs, uint32_t nruns)
{
    state_resumed(w, d, s, depth);
    if (from == 0)
        s->whole_from = 0;
    for (STATE_GROUPS(w, g)) {
        uint32_t pt = w->page_tokens[d][g], begin = window_begin(w, d, g, depth);

        if (recurrent(w, g))
            continue;
        if (from == 0)
            s->first[g] = begin;
        for (uint32_t i = s->top[g]; i < depth / pt; i++) /* pages between are in no window */
            s->table[g][i].granule = HOLE;
        for (uint32_t k = from / w->L + 1; k * w->L <= depth; k++) {
            struct chunk *c = chunk_at(w, d, s->pool, s->space, s->variant, k);
            uint32_t first = seg_first(w, d, g, k);

            if (seg_end(w, d, g, k) <= begin)
                continue;
            if (c->listed && c->has[g])
                MARK(state_taken_back);
            c->listed = 0;
            if (begin <= first)
                canonical(w, d, s, c, g, runs, nruns, 0);
            else
                canonical(w, d, s, c, g, runs, nruns, begin);
            for (uint32_t at = first > begin ? first : begin; at < seg_end(w, d, g, k); at++) {
                borrow_page(w, d, s, g, at, c, at - first);
                if (chunk_visible(w, d, c) && state_visible_of(w, d, c, g))
                    check_window_page(w, d, s,
                                      &(struct window_page){s->table[g][at].granule, g, at, depth},
                                      "match_wrong_state");
            }
        }
        s->base[g] = s->top[g] = depth / pt;
    }
}

/* --- commit --- */

static void drop_head(struct sim *w, uint32_t d, struct session *s, uint32_t g, uint32_t below,
                      uint32_t step)
{
    while (s->base[g] < s->top[g] && s->base[g] < below) {
        state_release_entry(w, d, s, g, s->base[g], step);
        s->base[g]++;
    }
    if (s->first[g] < below) {
        if (s->first[g] < s->base[g] && s->slid_step < step)
            s->slid_step = step;
        for (uint32_t i = s->first[g]; i < below && i < s->base[g]; i++)
            state_release_entry(w, d, s, g, i, step);
        s->first[g] = below < s->base[g] ? below : s->base[g];
    }
}

static void fill(struct sim *w, uint32_t d, struct session *s, struct chunk *c, uint32_t g,
                 uint32_t step)
{
    uint32_t first = seg_first(w, d, g, c->depth), end = seg_end(w, d, g, c->depth);

    first_seen(w, d, s->pool, c, g, s->engine, step);
    for (uint32_t at = first; at < end; at++) {
        struct entry *e = &s->table[g][at];

        set_state(w, d, s, c, g, at - first, e->granule);
        for (uint32_t k = 0; k < w->page_granules[g]; k++)
            at_granule(w, d, s, e->granule)[k].borrows++;
        e->mine = 0;
    }
    c->has[g] = 1;
    s->base[g] = end;
}

/* Are these the session's own pages? */
static bool own_pages(struct sim *w, uint32_t d, struct session *s, uint32_t g, uint32_t first,
                      uint32_t end, const struct table_run *runs, uint32_t nruns)
{
    for (uint32_t at = first; at < end; at++) {
        const struct page_ref *ref = find_page(runs, nruns, g, at);

        EXPECT(ref, "window_incomplete", "group %u: page %u is missing", g, at);
        if (at < s->base[g] || at >= s->top[g] || s->table[g][at].gen != ref->gen ||
            page_granule(w, d, s->pool, g, ref->index) !=
                at_granule(w, d, s, s->table[g][at].granule))
            return false;
    }
    return true;
}

/* The session's first page may have arrived in part. Does no window that ends at the chunk or
 * behind it need the missing part? */
static bool gives(const struct sim *w, uint32_t d, const struct session *s, const struct chunk *c,
                  uint32_t g)
{
    return c->depth * w->L >= s->whole_from ||
           s->base[g] * w->page_tokens[d][g] + w->window[g] >= s->whole_from;
}

/* The answer names the pages of the chunk's segment: the session's own, which move to the chunk, or
 * those that the chunk has. */
static void take_segment(struct sim *w, uint32_t d, struct session *s, struct chunk *c, uint32_t g,
                         uint32_t step, const struct table_run *runs, uint32_t nruns)
{
    uint32_t first = seg_first(w, d, g, c->depth), end = seg_end(w, d, g, c->depth);

    if (own_pages(w, d, s, g, first, end, runs, nruns)) {
        EXPECT(!state_certain(w, d, s->pool, c, g), "state_overwritten",
               "depth %u group %u: a refill of what is there", c->depth * w->L, g);
        if (c->has[g])
            group_lost(w, d, s->pool, c, g);
        fill(w, d, s, c, g, step);
        c->lost[g] = c->passed && w->cfg.supersede != SUPERSEDE_OFF &&
                     chunk_children(w, d, s->pool, c) < 2; /* as in canonical, but a fork stays */
        MARK(refill);
        return;
    }
    canonical(w, d, s, c, g, runs, nruns, 0);
    for (uint32_t at = first; at < end; at++) {
        if (at < s->first[g])
            continue; /* has left the table already */
        if (at < s->top[g])
            state_release_entry(w, d, s, g, at, step);
        borrow_page(w, d, s, g, at, c, at - first);
    }
    if (s->base[g] < end)
        s->base[g] = end;
    if (s->top[g] < end)
        s->top[g] = end;
}

static void commit_window(struct sim *w, uint32_t d, struct session *s, struct chunk *c, uint32_t g,
                          uint32_t step, bool adopted, const struct table_run *runs, uint32_t nruns)
{
    uint32_t first = seg_first(w, d, g, c->depth), end = seg_end(w, d, g, c->depth);
    uint32_t below = window_begin(w, d, g, c->depth * w->L);
    bool told = adopted && find_page(runs, nruns, g, end - 1);

    if (owns_window(w, d, s, g))
        below = below * w->page_tokens[d][g] / w->L * w->L / w->page_tokens[d][g];
    drop_head(w, d, s, g, below, step);
    if (!adopted) {
        if (s->base[g] == first && s->top[g] >= end && gives(w, d, s, c, g))
            fill(w, d, s, c, g, step);
        return;
    }
    if (s->base[g] < first)
        return; /* state_give handles pages that no node took */
    if (!told && !state_visible_of(w, d, c, g))
        return; /* a refill waits for its step: the session keeps its own */
    EXPECT(told || !state_certain(w, d, s->pool, c, g), "state_lost",
           "depth %u group %u: its STATE was there, and cannot have gone", c->depth * w->L, g);
    if (!told) {
        if (c->has[g])
            group_lost(w, d, s->pool, c, g);
        return;
    }
    take_segment(w, d, s, c, g, step, runs, nruns);
}

void state_commit(struct sim *w, uint32_t d, struct session *s, struct chunk *c, uint32_t step,
                  bool adopted, const struct table_run *runs, uint32_t nruns)
{
    if (!adopted) {
        memset(&c->has[w->cfg.ngroups], 0, GROUPS - w->cfg.ngroups);
        memset(c->maybe, 0, sizeof c->maybe);
        c->made = c->must = 0; /* a node on the host is still passed */
    }
    for (STATE_GROUPS(w, g))
        if (!recurrent(w, g))
            commit_window(w, d, s, c, g, step, adopted, runs, nruns);
}

/* T18: may the chunk refuse a segment that the session has completely? Not if the answer had room
 * for it, and nothing of the chunk waits for a step or is being loaded. */
static bool may_refuse_segment(const struct sim *w, uint32_t d, const struct session *s,
                               const struct chunk *c, uint32_t g, bool whole_answer)
{
    return !whole_answer || w->cfg.give_back || !gives(w, d, s, c, g) || !chunk_visible(w, d, c) ||
           !state_visible(w, d, c) || chunk_loading(w, d, s->pool, c);
}

void state_give(struct sim *w, uint32_t d, struct session *s, uint32_t step, bool whole_answer,
                const struct table_run *runs, uint32_t nruns)
{
    for (STATE_GROUPS(w, g)) {
        uint32_t pt = w->page_tokens[d][g], below;

        while (owns_window(w, d, s, g) && s->base[g] * pt % w->L == 0) {
            uint32_t k = s->base[g] * pt / w->L + 1, end = seg_end(w, d, g, k);
            struct chunk *c = chunk_at(w, d, s->pool, s->space, s->variant, k);

            if (!find_page(runs, nruns, g, end - 1)) {
                EXPECT(may_refuse_segment(w, d, s, c, g, whole_answer), "window_kept",
                       "depth %u group %u: the session keeps what the chunk lacks, committed %u",
                       k * w->L, g, s->committed);
                break;
            }
            take_segment(w, d, s, c, g, step, runs, nruns);
            MARK(window_given);
        }
        if (recurrent(w, g))
            continue;
        below = window_begin(w, d, g, s->committed);
        drop_head(w, d, s, g, below < s->base[g] ? below : s->base[g], step);
    }
}

/* T21: the session's page moves to the snapshot, and the session continues with a copy. */
void state_handed(struct sim *w, uint32_t d, struct session *s, const struct table_run *runs,
                  uint32_t nruns)
{
    struct chunk *c = chunk_at(w, d, s->pool, s->space, s->variant, s->committed / w->L);

    for (uint32_t i = 0; i < nruns; i++) /* the former page is free, or allocated anew here */
        if (runs[i].group >= w->cfg.ngroups && recurrent(w, runs[i].group)) {
            EXPECT(!state_certain(w, d, s->pool, c, runs[i].group), "state_overwritten",
                   "depth %u group %u", s->committed, runs[i].group);
            group_lost(w, d, s->pool, c, runs[i].group);
        }
    for (uint32_t i = 0; i < nruns; i++) {
        uint32_t g = runs[i].group, at;
        struct granule *p;

        if (g < w->cfg.ngroups || !recurrent(w, g))
            continue;
        EXPECT(runs[i].n == 1 && runs[i].first == 0 && runs[i].from.index && s->top[g],
               "handed_shape", "group %u", g);
        p = page_granule(w, d, s->pool, g, runs[i].from.index);
        EXPECT(p == at_granule(w, d, s, s->table[g][0].granule) && p->gen == runs[i].from.gen,
               "handed_other", "group %u: not the session's page", g);
        EXPECT(s->written == s->committed, "handed_depth",
               "group %u: the state is that of %u, not of %u", g, s->written, s->committed);
        first_seen(w, d, s->pool, c, g, s->engine, s->last_step);
        release_copy(w, d, s, g, s->last_step);
        set_state(w, d, s, c, g, 0, s->table[g][0].granule);
        c->has[g] = 1;
        s->copy[g] = (struct entry){.granule = s->table[g][0].granule, .gen = p->gen};
        for (uint32_t k = 0; k < w->page_granules[g]; k++)
            p[k].borrows++;
        at = hand_out(w, d, s->pool, g, runs[i].refs[0], OWN_SESSION,
                      (uint32_t)(s - w->d[d].session));
        s->table[g][0] =
            (struct entry){.granule = (uint16_t)at, .gen = runs[i].refs[0].gen, .mine = 1};
        MARK(recurrent_copied);
    }
}

/* A fresh page of a RECURRENT group starts as a copy of the resume point's at T. */
void state_take_from(struct sim *w, uint32_t d, struct session *s, const struct table_run *run)
{
    uint32_t g = run->group;
    struct chunk *c;
    struct granule *p;

    s->copy[g].gen = 0;
    if (s->committed == 0) {
        EXPECT(run->from.index == 0, "recurrent_from", "T is 0, but there is a state to copy");
        return;
    }
    EXPECT(run->from.index, "recurrent_from_nothing", "committed %u, but there is no state to copy",
           s->committed);
    c = chunk_at(w, d, s->pool, s->space, s->variant, s->committed / w->L);
    p = page_granule(w, d, s->pool, g, run->from.index);
    EXPECT(p->gen == run->from.gen, "recurrent_from_stale", "index %u", run->from.index);
    if (!c->has[g] || at_granule(w, d, s, c->granule[g][0]) != p || c->gen[g][0] != p->gen) {
        EXPECT(!state_certain(w, d, s->pool, c, g), "state_replaced", "depth %u", s->committed);
        EXPECT(p->verified && !p->writers, "state_unknown",
               "depth %u group %u index %u: nobody committed it (kind %u)", s->committed, g,
               run->from.index, p->own);
        if (c->has[g])
            group_lost(w, d, s->pool, c, g);
        first_seen(w, d, s->pool, c, g, NO, 0);
        c->lost[g] = c->passed;
        set_state(w, d, s, c, g, 0, (uint32_t)(p - at_granule(w, d, s, 0)));
        c->has[g] = 1;
    }
    s->copy[g] = (struct entry){.granule = c->granule[g][0], .gen = p->gen};
    for (uint32_t k = 0; k < w->page_granules[g]; k++)
        p[k].borrows++;
    MARK(recurrent_resumed);
}

static struct touch *touch_page(struct sim *w, struct work *k, const struct session *s, uint32_t g,
                                uint32_t depth)
{
    EXPECT(k->n < TOUCHES, "sim_touches", "%u", k->n);
    k->touch[k->n] = (struct touch){.granule = s->table[g][0].granule,
                                    .group = (uint8_t)g,
                                    .ns = s->ns,
                                    .variant = s->variant,
                                    .pos = (uint16_t)(depth - 1)};
    return &k->touch[k->n++];
}

/* The state of `filled` becomes that of `to`, in place. */
void state_touch_recurrent(struct sim *w, uint32_t d, struct work *k, struct session *s, uint32_t g,
                           uint32_t to, uint32_t step)
{
    if (!s->top[g])
        return;
    if (s->copy[g].gen) {
        struct touch *t = touch_page(w, k, s, g, 1);

        t->copy = 1;
        t->from = s->copy[g].granule;
        release_copy(w, d, s, g, step);
    }
    if (s->filled > 0)
        touch_page(w, k, s, g, s->filled)->read_to = 1;
    if (to > s->filled)
        touch_page(w, k, s, g, to)->write_to = 1;
}
