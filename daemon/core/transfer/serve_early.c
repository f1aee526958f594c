/* See serve_early.h. */
#include "core/transfer/serve_early.h"

#include <string.h>

#include "core/arena/actions.h"
#include "core/transfer/ahead.h"
#include "core/transfer/serve_follow.h"
#include "core/transfer/serve_record.h"
#include "core/tree/nodes.h"
#include "core/tree/state.h"

/* Logical pages [first, end) of a group. */
struct stretch {
    uint32_t first, end;
};

bool serve_early_page(const struct core *c, const struct serve *s, const struct page *pg)
{
    if (pg->state == PAGE_COMMITTED)
        return node_at(c, pg->owner)->space == node_at(c, s->node)->space;
    return (pg->state == PAGE_OWNED || pg->state == PAGE_HANDED) && pg->owner == s->handed.slot;
}

void serve_early_took(struct core *c, struct serve *s, const struct peer_msg *m)
{
    if (!s->units_out)
        return; /* it was repeated */
    s->units_out = 0;
    s->whole |= m->err != TERN_OK;
    touch(c);
}

/* The session whose units it tells, if there are any; NULL. */
static struct session *teller(const struct core *c, const struct serve *s)
{
    struct session *t;

    if (!s->follow || (s->state != SERVE_SEALING && s->state != SERVE_OPEN) || s->served ||
        s->units_out || s->whole || s->layout_hash != 0)
        return NULL;
    t = serve_follow_session(c, s);
    if (!t || t->nahead == 0 || t->engine == NONE)
        return NULL;
    return t->state == SESSION_TURN || t->state == SESSION_IDLE || t->state == SESSION_HANDED
               ? t
               : NULL; /* its pages are on their way */
}

static bool has_passed(const struct core *c, const struct session *t)
{
    return t->ahead[0].step <= engine_at(c, t->engine)->done_min;
}

bool serve_early_awaits(const struct core *c)
{
    for (uint32_t i = c->serves_active.head; i != NONE; i = serve_list_next(c, i)) {
        const struct session *t = teller(c, serve_at(c, i));

        if (t && !has_passed(c, t))
            return true;
    }
    return false;
}

/* Of what was written, the pages that the transfer moves and has not offered. The last page counts
 * when all of it is there that the peer will get. */
static struct stretch wanted(const struct core *c, const struct serve *s, const struct session *t,
                             const struct ahead *w)
{
    const struct pool *p = pool_at(c, s->pool);
    const struct group *g = &p->group[w->group];
    const struct transfer_range moved =
        transfer_pages(p, g, (struct transfer_span){s->from, s->asked_history, s->to});
    const uint32_t told = s->told / g->layout.page_tokens,
                   has = t->base[w->group] + t->owned[w->group].n;
    struct stretch range = {.first = moved.first > told ? moved.first : told,
                            .end = moved.first + moved.n};

    if (w->until < s->to && range.end > w->until / g->layout.page_tokens)
        range.end = w->until / g->layout.page_tokens;
    if (range.end > has)
        range.end = has;
    return range;
}

/* The records of the session's pages of the range, of its path and behind it. */
static void find_pages(const struct core *c, const struct session *t, const struct group *g,
                       struct stretch range, uint32_t ret_records[PULL_BATCH_PAGES])
{
    const struct node *n = node_at(c, t->node);
    uint32_t at = t->owned[g->index].head;

    for (; segment_end(g, n->depth) > range.first; n = node_at(c, n->parent)) {
        uint32_t page = n->group[g->index].pages[TIER_DEVICE];

        for (uint32_t i = segment_end(g, n->depth) - g->segment; i < segment_end(g, n->depth);
             i++, page = page_list_next(c, page))
            if (i >= range.first && i < range.end)
                ret_records[i - range.first] = page;
    }
    for (uint32_t i = t->base[g->index]; i < range.end; i++, at = page_list_next(c, at))
        if (i >= range.first)
            ret_records[i - range.first] = at;
}

/* How many pages of the range, from the first on of which the peer does not know these units,
 * follow each other, and their records. *io begins with them then; or is empty, where it knows
 * them all. */
static uint32_t untold(const struct core *c, const struct session *t, const struct ahead *w,
                       struct stretch *io, uint32_t ret_records[PULL_BATCH_PAGES])
{
    const struct group *g = &pool_at(c, t->pool)->group[w->group];

    while (io->first < io->end) {
        struct stretch piece = *io;
        uint32_t first = 0, end, n;

        if (piece.end - piece.first > PULL_BATCH_PAGES)
            piece.end = piece.first + PULL_BATCH_PAGES;
        n = piece.end - piece.first;
        find_pages(c, t, g, piece, ret_records);
        while (first < n && !(w->units & ~page_at(c, ret_records[first])->units))
            first++;
        for (end = first; end < n && (w->units & ~page_at(c, ret_records[end])->units);)
            end++;
        io->first += first;
        if (end == first)
            continue;
        memmove(ret_records, ret_records + first, (end - first) * sizeof *ret_records);
        return end - first;
    }
    return 0;
}

static void tell(struct core *c, struct actions *out, struct serve *s, const struct ahead *w,
                 const struct table_run *run, const uint32_t *records)
{
    struct page_ref *refs;
    struct peer_msg *m;

    if (s->state == SERVE_SEALING) {
        serve_start(c, out, s);
        s->wants = 1; /* the first offer, which it need not ask for */
    }
    m = serve_msg_add(c, out, s, PEER_PULL_EARLY);
    m->units = w->units;
    m->runs = out->runs + out->nruns;
    m->nruns = 1;
    refs = run_add(out, *run);
    for (uint32_t i = 0; i < run->n; i++) {
        struct page *pg = page_at(c, records[i]);

        refs[i] = (struct page_ref){.index = pg->index, .gen = pg->gen};
        pg->units |= w->units;
    }
    s->units_out = 1;
    c->early_told += run->n;
    serve_follow_time(c, s, true);
    touch(c);
}

/* False: no room. */
static bool tell_all(struct core *c, struct actions *out, struct serve *s)
{
    uint32_t records[PULL_BATCH_PAGES];
    struct session *t;

    while ((t = teller(c, s)) != NULL && has_passed(c, t)) {
        struct stretch range;
        struct table_run run;
        struct ahead w;

        if (actions_room(out) < 2 ||
            !refs_fit(out, (struct runs_wanted){.runs = 1, .refs = PULL_BATCH_PAGES}))
            return false;
        ahead_join(t, engine_at(c, t->engine)->done_min);
        w = t->ahead[0];
        range = wanted(c, s, t, &w);
        run = (struct table_run){.group = w.group};
        run.n = untold(c, t, &w, &range, records);
        run.first = range.first;
        if (run.n > 0)
            tell(c, out, s, &w, &run, records);
        if (range.first + run.n >= range.end)
            memmove(t->ahead, t->ahead + 1, --t->nahead * sizeof *t->ahead);
    }
    return true;
}

bool serve_early_flush(struct core *c, struct actions *out)
{
    bool all = true;

    for (uint32_t i = c->serves_active.head; i != NONE; i = serve_list_next(c, i))
        all = tell_all(c, out, serve_at(c, i)) && all;
    return all;
}
