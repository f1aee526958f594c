/* STATE of a session that is retracted to the host, and of its recovery (T16). */
#include "state.h"

static struct chunk *chunk_of_entry(struct sim *w, uint32_t d, const struct session *s, uint32_t g,
                                    uint32_t at)
{
    return chunk_at(w, d, s->pool, s->space, s->variant, at * w->page_tokens[d][g] / w->L + 1);
}

/* Is the borrowed part of its window on the host? */
bool state_copied(struct sim *w, uint32_t d, const struct session *s, uint32_t g)
{
    uint32_t begin = window_begin(w, d, g, s->committed);

    for (uint32_t i = begin > s->first[g] ? begin : s->first[g]; i < s->base[g]; i++) {
        const struct chunk *c = chunk_of_entry(w, d, s, g, i);

        if (s->table[g][i].granule != HOLE && !s->table[g][i].mine && (!c->hhas[g] || c->hbad))
            return false;
    }
    return true;
}

/* The borrowed pages may leave the device: the host has them, or the session is never recovered. */
void state_leave_device(struct sim *w, uint32_t d, struct session *s, uint32_t g)
{
    for (uint32_t i = s->first[g]; i < s->base[g]; i++)
        if (!s->table[g][i].mine)
            state_release_entry(w, d, s, g, i, 0);
}

/* Borrows the pages that had left the device again, as the answer names them. */
void state_come_back(struct sim *w, uint32_t d, struct session *s, uint32_t g,
                     const struct table_run *runs, uint32_t nruns)
{
    uint32_t pt = w->page_tokens[d][g], begin = window_begin(w, d, g, s->committed);

    if (begin < s->first[g])
        begin = s->first[g];
    if (begin < s->gap[g])
        begin = s->gap[g];
    for (uint32_t at = begin; at < s->committed / pt && at < s->base[g]; at++) {
        struct chunk *c = chunk_of_entry(w, d, s, g, at);
        uint32_t first = seg_first(w, d, g, c->depth);

        if (s->table[g][at].granule != HOLE)
            continue;
        if (at < first) {
            begin = at + 1; /* in no segment: the tree never had it */
            continue;
        }
        canonical(w, d, s, c, g, runs, nruns, at);
        borrow_page(w, d, s, g, at, c, at - first);
        if (chunk_visible(w, d, c) && state_visible_of(w, d, c, g))
            check_window_page(w, d, s,
                              &(struct window_page){s->table[g][at].granule, g, at, s->committed},
                              "recover_wrong_state");
    }
}
