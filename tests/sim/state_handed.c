/* STATE groups and tickets: the pages that a session releases when it is handed over, and the
 * window of a fetch by ticket, which may end at no multiple of L. Pages of it that no node took are
 * the session's own. */
#include "state.h"
#include "tickets.h"

#include "oracle/oracle.h"

static const struct page_ref *find_own(struct sim *w, uint32_t d, const struct session *s,
                                       uint32_t g, uint32_t at, const struct table_run *runs,
                                       uint32_t nruns)
{
    for (uint32_t i = 0; i < nruns; i++)
        if (runs[i].group == g && at >= runs[i].first && at < runs[i].first + runs[i].n &&
            oracle_session_owns(w->d[d].core, s->id, g, runs[i].refs[at - runs[i].first]))
            return &runs[i].refs[at - runs[i].first];
    violation(w, "ticket_window_incomplete", "group %u: page %u is missing", g, at);
}

/* A page of the transfer becomes the session's own. */
static void arrived_page(struct sim *w, uint32_t d, struct session *s, uint32_t g, uint32_t at,
                         const struct page_ref *ref)
{
    struct granule *p = page_granule(w, d, s->pool, g, ref->index);

    EXPECT(p->own == OWN_PULL && p->verified && p->gen == ref->gen, "fetched_unverified",
           "group %u index %u is of kind %u, verified %u", g, ref->index, p->own, p->verified);
    for (uint32_t k = 0; k < w->page_granules[g]; k++) {
        p[k].own = OWN_SESSION;
        p[k].owner = (uint8_t)(s - w->d[d].session);
        p[k].verified = p[k].sealed = 0; /* it is written again */
    }
    s->table[g][at] = (struct entry){
        .granule = (uint16_t)(p - at_granule(w, d, s, 0)), .gen = ref->gen, .mine = 1};
}

/* A fetch by ticket: see tickets.h. Pages of the window that no node took are the session's. */
static void arrived_window(struct sim *w, uint32_t d, struct session *s, uint32_t g, uint32_t depth,
                           uint32_t at, uint32_t from, const struct table_run *runs, uint32_t nruns)
{
    uint32_t pt = w->page_tokens[d][g], begin = window_begin(w, d, g, at), end = (at + pt - 1) / pt,
             own = end;

    for (uint32_t i = 0; i < nruns; i++)
        if (runs[i].group == g && oracle_session_owns(w->d[d].core, s->id, g, runs[i].refs[0])) {
            own = runs[i].first;
            EXPECT(runs[i].first + runs[i].n == end &&
                       (own >= begin || depth == from ||
                        own == seg_first(w, d, g, begin * pt / w->L + 1)),
                   "ticket_window", "group %u: pages [%u, %u), the window is [%u, %u)", g, own,
                   runs[i].first + runs[i].n, begin, end);
        }
    if (own < begin)
        begin = own; /* the session owns whole segments of chunks whose pages no node took (T7) */
    EXPECT(own * pt <= depth || own == begin, "ticket_window_incomplete",
           "group %u: its own pages begin at %u, the path ends at %u", g, own, depth);
    if (from == 0)
        s->first[g] = begin;
    s->gap[g] = begin;
    for (uint32_t i = s->top[g]; i < end; i++)
        s->table[g][i].granule = HOLE;
    for (uint32_t k = begin * pt / w->L + 1; k * w->L <= depth; k++) {
        struct chunk *c = chunk_at(w, d, s->pool, s->space, s->variant, k);
        uint32_t first = seg_first(w, d, g, k), lacks = first > begin ? first : begin,
                 to = seg_end(w, d, g, k) < own ? seg_end(w, d, g, k) : own;

        if (lacks < s->top[g])
            lacks = s->top[g]; /* it has these */
        if (lacks < to)
            canonical(w, d, s, c, g, runs, nruns, lacks);
        for (uint32_t i = lacks; i < to; i++) {
            borrow_page(w, d, s, g, i, c, i - first);
            if (chunk_visible(w, d, c) && state_visible_of(w, d, c, g))
                check_window_page(w, d, s, &(struct window_page){s->table[g][i].granule, g, i, at},
                                  "ticket_wrong_state");
        }
    }
    for (uint32_t i = own; i < s->top[g] && i < end; i++) /* its own replace the path's */
        if (i >= s->first[g])
            state_release_entry(w, d, s, g, i, s->last_step);
    for (uint32_t i = own; i < end; i++) {
        arrived_page(w, d, s, g, i, find_own(w, d, s, g, i, runs, nruns));
        check_window_page(w, d, s, &(struct window_page){s->table[g][i].granule, g, i, at},
                          "ticket_wrong_state");
    }
    s->base[g] = own;
    s->top[g] = end;
}

void state_arrived_at(struct sim *w, uint32_t d, struct session *s, uint32_t from, uint32_t depth,
                      uint32_t at, const struct table_run *runs, uint32_t nruns)
{
    state_resumed(w, d, s, depth);
    for (STATE_GROUPS(w, g)) {
        if (!recurrent(w, g)) {
            arrived_window(w, d, s, g, depth, at, from, runs, nruns);
            continue;
        }
        s->copy[g].gen = 0;
        s->top[g] = at > depth || find_page(runs, nruns, g, 0);
        if (!s->top[g])
            continue;
        arrived_page(w, d, s, g, 0, find_own(w, d, s, g, 0, runs, nruns));
        check_page(w, d, s->tenant, s->table[g][0].granule, g, s->ns, s->variant, at - 1, 1,
                   "ticket_wrong_state");
    }
    if (w->cfg.nstate)
        MARK(fetch_with_state);
}

/* If a page here spans several of the source's, only those that the last window reaches into have
 * arrived: an earlier window may need the missing ones. */
void state_whole_from(struct sim *w, uint32_t d, struct session *s, uint32_t from, uint32_t at)
{
    s->whole_from = 0;
    for (STATE_GROUPS(w, g)) {
        uint32_t here = window_begin(w, d, g, at) * w->page_tokens[d][g],
                 came = window_begin(w, sim_far(w, d), g, at) * w->page_tokens[sim_far(w, d)][g];

        here = here > from ? here : from;
        came = came > from ? came : from;
        if (at % w->L == 0 && reach_of(w, g) > 1)
            continue; /* whole chunks arrived */
        if (here >= came || came + w->window[g] <= s->whole_from)
            continue;
        s->whole_from = came + w->window[g];
        MARK(ticket_lacks_beginning);
    }
}

void state_hand_over(struct sim *w, uint32_t d, struct session *s, uint32_t step)
{
    for (STATE_GROUPS(w, g)) {
        const struct entry *e = &s->table[g][0];
        const struct granule *p;
        const struct chunk *c;
        const uint32_t pt = w->page_tokens[d][g];

        if (!recurrent(w, g)) {
            uint32_t begin = window_begin(w, d, g, s->written), k = begin * pt / w->L;

            if (s->written % w->L == 0 && begin > seg_first(w, d, g, k + 1))
                begin = seg_first(w, d, g, k + 1); /* the fetching session gives these to chunks */
            while (s->base[g] < s->top[g] && s->base[g] < begin) {
                state_release_entry(w, d, s, g, s->base[g], step);
                s->base[g]++;
            }
            continue;
        }
        if (!s->top[g] || s->written > s->committed)
            continue;
        p = at_granule(w, d, s, e->granule);
        c = chunk_at(w, d, s->pool, s->space, s->variant, s->committed / w->L);
        /* The page is a copy of the tree's and goes; if the session still owns it, the tree has
         * lost its own. */
        if (oracle_session_owns(w->d[d].core, s->id, g, (struct page_ref){p->index, e->gen})) {
            EXPECT(!state_certain(w, d, s->pool, c, g) || !state_visible_of(w, d, c, g),
                   "ticket_keeps_copy", "group %u of session %u.%u", g, s->id.slot, s->id.gen);
            continue;
        }
        release_copy(w, d, s, g, step);
        state_release_entry(w, d, s, g, 0, step);
        s->top[g] = 0;
    }
}
