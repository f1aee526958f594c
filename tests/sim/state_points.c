/* The model of resume points (T9, T10): which are passed, what is certainly superseded, and what
 * may be in use when everything is at rest. */
#include "state.h"

uint32_t chunk_children(struct sim *w, uint32_t d, uint32_t pool, const struct chunk *c)
{
    uint32_t n = 0;

    for (uint32_t v = c->variant; v < w->cfg.variants; v++) {
        const struct chunk *below;

        if (w->canon[v][c->depth] != c->variant || w->canon[v][c->depth + 1] != v)
            continue;
        below = chunk_at(w, d, pool, c->space, v, c->depth + 1u);
        n += chunk_certain(w, d, pool, below);
    }
    return n;
}

static uint32_t node_perhaps(const struct chunk *c)
{
    return c->present || host_has(c);
}

static uint32_t children_most(struct sim *w, uint32_t d, uint32_t pool, const struct chunk *c)
{
    uint32_t n = 0;

    for (uint32_t v = c->variant; v < w->cfg.variants; v++)
        if (w->canon[v][c->depth] == c->variant && w->canon[v][c->depth + 1] == v)
            n += node_perhaps(chunk_at(w, d, pool, c->space, v, c->depth + 1u));
    return n;
}

/* Does another resume point have a whole window that reaches into this chunk? */
static bool needed(struct sim *w, uint32_t d, uint32_t pool, const struct chunk *c)
{
    for (uint32_t v = c->variant; v < w->cfg.variants; v++) {
        if (w->canon[v][c->depth] != c->variant)
            continue;
        for (uint32_t k = c->depth + 1u; k < c->depth + w->reach && k * w->L <= w->span; k++) {
            const struct chunk *y = chunk_at(w, d, pool, c->space, v, k);

            if (y->present && y->made && y->variant == v &&
                state_resumes(w, d, pool, c->space, v, k))
                return true;
        }
    }
    return false;
}

/* This chunk was passed and must stay: Peeks look for it, and for the resume points behind it. */
static void keep_looking(struct sim *w, uint32_t d, const struct session *s, uint32_t k)
{
    w->d[d].kept = (struct kept){.used = 1,
                                 .engine = s->engine,
                                 .pool = s->pool,
                                 .ns = s->ns,
                                 .variant = s->variant,
                                 .depth = (uint8_t)k};
}

void state_look(struct sim *w, uint32_t d)
{
    const struct kept *k = &w->d[d].kept;

    if (!w->cfg.nstate || !k->used || !w->d[d].pool[k->pool].open ||
        w->d[d].engine[k->engine].pool != k->pool)
        return;
    for (uint32_t v = 0; v < w->cfg.variants; v++)
        if (w->canon[v][k->depth] == w->canon[k->variant][k->depth])
            for (uint32_t i = 0; i < w->reach; i++)
                peek_at(w, d, k->engine, k->ns, v, w->L * (k->depth + i));
}

/* Goes through the chunks of a path from the deepest up: no bets on those that may be
 * superseded. */
static void settle_path(struct sim *w, uint32_t d, const struct session *s, uint32_t from)
{
    for (uint32_t k = from; k > 0; k--) {
        struct chunk *c = chunk_at(w, d, s->pool, s->space, s->variant, k);

        if (!c->present || !c->passed || w->cfg.supersede == SUPERSEDE_OFF)
            continue;
        if (chunk_children(w, d, s->pool, c) >= 2) {
            MARK(fork_kept);
            keep_looking(w, d, s, k);
            continue;
        }
        if (needed(w, d, s->pool, c)) {
            MARK(sibling_window_kept);
            keep_looking(w, d, s, k);
            continue;
        }
        c->made = 0;
        if (w->cfg.supersede == SUPERSEDE_EAGER) {
            memset(c->lost, 1, sizeof c->lost);
            MARK(state_superseded_eager);
        } else {
            c->listed = 1;
            MARK(state_superseded_lazy);
        }
    }
}

void state_ended(struct sim *w, uint32_t d, const struct session *s)
{
    uint32_t t = s->committed / w->L;
    bool whole;

    if (!w->cfg.nstate || t == 0)
        return;
    whole = state_resumes(w, d, s->pool, s->space, s->variant, t) &&
            chunk_visible(w, d, chunk_at(w, d, s->pool, s->space, s->variant, t));
    if (state_resumes(w, d, s->pool, s->space, s->variant, t))
        chunk_at(w, d, s->pool, s->space, s->variant, t)->made = 1;
    chunk_at(w, d, s->pool, s->space, s->variant, t)->must = 0;
    for (uint32_t k = 1; k < t; k++)
        if (k * w->L + w->window_max <= s->committed) {
            chunk_at(w, d, s->pool, s->space, s->variant, k)->passed = 1;
            chunk_at(w, d, s->pool, s->space, s->variant, k)->must |= whole;
        }
    settle_path(w, d, s, t);
}

/* The end of a fetch is a resume point, too (T9), and passes the ones above it. */
void state_fetched(struct sim *w, uint32_t d, const struct session *s, uint32_t t)
{
    for (uint32_t k = 1; k <= t && w->cfg.nstate; k++) {
        struct chunk *c = chunk_at(w, d, s->pool, s->space, s->variant, k);

        c->must = 0;
        if (k * w->L + w->window_max > t * w->L)
            continue;
        c->passed = 1;
        memset(c->lost, 1, sizeof c->lost);
    }
}

void state_release_point(struct sim *w, uint32_t d, const struct session *s)
{
    struct chunk *c;

    if (!w->cfg.nstate || s->committed == 0)
        return;
    c = chunk_at(w, d, s->pool, s->space, s->variant, s->committed / w->L);
    c->made = 0;
    c->passed = 1;
    settle_path(w, d, s, s->committed / w->L);
}

/* The most pages of a group in use. T10, T17: no session runs any more, so a resume point that was
 * passed, is no fork point and is in no other window is not in use. */
uint32_t state_most(struct sim *w, uint32_t d, uint32_t pool, uint32_t g)
{
    uint32_t n = 0;

    for (KNOWN_CHUNKS(&w->d[d], pool, i)) {
        struct chunk *c = &w->d[d].chunk[pool][i];

        if (!c->present)
            continue;
        if (!c->must || children_most(w, d, pool, c) >= 2)
            n += seg_pages(w, d, g, c->depth);
    }
    return n;
}
