/* See serve_early.h. */
#include "core/transfer/serve_early.h"

#include <string.h>

#include "core/arena/actions.h"
#include "core/transfer/ahead.h"
#include "core/transfer/pull_early.h"
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
    return (pg->state == PAGE_OWNED || pg->state == PAGE_HANDED) && pg->owner == s->handed.slot &&
           session_at(c, s->handed.slot)->gen == s->handed.gen;
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

/* Of what was written, the pages that the transfer moves and has not offered, and that were not
 * looked at. The last page counts when all of it is there that the peer will get. */
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

    if (range.end > range.first + early_pages_max(c))
        range.end = range.first + early_pages_max(c);
    if (range.first < w->from)
        range.first = w->from;
    if (range.end > t->base[w->group] + 2 * EARLY_PAGES_MAX) /* they come with their commit */
        range.end = t->base[w->group] + 2 * EARLY_PAGES_MAX;
    if (w->until < s->to && range.end > w->until / g->layout.page_tokens)
        range.end = w->until / g->layout.page_tokens;
    if (range.end > has)
        range.end = has;
    return range;
}

/* The records of the session's pages of the range, of its path and behind it. */
static void find_pages(struct core *c, const struct session *t, const struct group *g,
                       struct stretch range, uint32_t ret_records[PULL_BATCH_PAGES])
{
    const uint32_t align = pool_at(c, t->pool)->align,
                   depth = div_up(range.end * g->layout.page_tokens, align) * align;
    const struct node *n = node_at(c, node_above(c, (struct path){t->node, depth}));
    uint32_t at = t->owned[g->index].head;

    for (; segment_end(g, n->depth) > range.first; n = node_at(c, n->parent), c->visits++) {
        uint32_t i = segment_end(g, n->depth) - g->segment,
                 page = n->group[g->index].pages[TIER_DEVICE];

        for (; i < range.end && i < segment_end(g, n->depth); i++, c->visits++) {
            if (i >= range.first)
                ret_records[i - range.first] = page;
            page = page_list_next(c, page);
        }
    }
    for (uint32_t i = t->base[g->index]; i < range.end; i++, c->visits++) {
        if (i >= range.first)
            ret_records[i - range.first] = at;
        at = page_list_next(c, at);
    }
}

/* A run of pages of which the peer lacks the same units. */
struct untold {
    uint64_t units;
    uint32_t at, n; /* in the records; n 0: it knows all */
};

/* The first of them. */
static struct untold first_untold(const struct core *c, const struct ahead *w,
                                  const uint32_t *records, uint32_t n)
{
    struct untold run = {.at = 0};

    for (; run.at < n && !run.units; run.at += !run.units)
        run.units = w->units & ~page_at(c, records[run.at])->units;
    while (run.at + run.n < n && run.units &&
           (w->units & ~page_at(c, records[run.at + run.n])->units) == run.units)
        run.n++;
    return run;
}

static void tell(struct core *c, struct actions *out, struct serve *s, uint64_t units,
                 const struct table_run *run, const uint32_t *records)
{
    struct page_ref *refs;
    struct peer_msg *m;

    if (s->state == SERVE_SEALING) {
        serve_start(c, out, s);
        s->wants = 1; /* the first offer, which it need not ask for */
    }
    m = serve_msg_add(c, out, s, PEER_PULL_EARLY);
    m->units = units;
    m->runs = out->runs + out->nruns;
    m->nruns = 1;
    refs = run_add(out, *run);
    for (uint32_t i = 0; i < run->n; i++) {
        struct page *pg = page_at(c, records[i]);

        refs[i] = (struct page_ref){.index = pg->index, .gen = pg->gen};
        pg->units |= units;
    }
    s->units_out = 1;
    c->early_told += run->n;
    serve_follow_time(c, s, true);
    touch(c);
}

/* Looks at the next pages of what was written first, and tells of those that can go together. */
static void tell_next(struct core *c, struct actions *out, struct serve *s, struct session *t)
{
    const struct ahead w = t->ahead[0];
    struct stretch range = wanted(c, s, t, &w), piece = range;
    uint32_t records[PULL_BATCH_PAGES];
    struct untold run;

    if (range.first < range.end) {
        if (piece.end - piece.first > PULL_BATCH_PAGES)
            piece.end = piece.first + PULL_BATCH_PAGES;
        find_pages(c, t, &pool_at(c, t->pool)->group[w.group], piece, records);
        run = first_untold(c, &w, records, piece.end - piece.first);
        t->ahead[0].from = piece.first + run.at + run.n;
        if (run.n > 0)
            tell(c, out, s, run.units,
                 &(struct table_run){.group = w.group, .first = piece.first + run.at, .n = run.n},
                 records + run.at);
    }
    if (range.first >= range.end || t->ahead[0].from >= range.end)
        memmove(t->ahead, t->ahead + 1, --t->nahead * sizeof *t->ahead);
}

/* False: no room, or this step has looked at enough. */
static bool tell_all(struct core *c, struct actions *out, struct serve *s)
{
    struct session *t;

    while ((t = teller(c, s)) != NULL && has_passed(c, t)) {
        if (piece_over(c) || actions_room(out) < 2 ||
            !refs_fit(out, (struct runs_wanted){.runs = 1, .refs = PULL_BATCH_PAGES}))
            return false;
        ahead_join(t, engine_at(c, t->engine)->done_min);
        tell_next(c, out, s, t);
    }
    return true;
}

bool serve_early_flush(struct core *c, struct actions *out)
{
    bool all = true;

    piece_begin(c);
    for (uint32_t i = c->serves_active.head; i != NONE; i = serve_list_next(c, i))
        all = tell_all(c, out, serve_at(c, i)) && all;
    return all;
}
