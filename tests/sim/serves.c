/* Transfers out: the starts, stops and requests at the source's data path, and the proof that it
 * reads no more. */
#include "data.h"
#include "disk.h"
#include "reshard.h"
#include "tickets.h"

const struct serve *serve_by_id(const struct sim *w, uint32_t d, struct serve_id id)
{
    for (uint32_t i = 0; i < SERVES * 2; i++)
        if (w->d[d].serve[i].used && serve_id_equal(w->d[d].serve[i].id, id))
            return &w->d[d].serve[i];
    return NULL;
}

void take_serve_start(struct sim *w, uint32_t d, const struct action *act)
{
    struct daemon *m = &w->d[d];
    struct serve *s = NULL;

    for (uint32_t i = 0; i < SERVES * 2 && !s; i++)
        if (!m->serve[i].used)
            s = &m->serve[i];
    EXPECT(s && !serve_by_id(w, d, act->serve.serve), "serve_start", "serve %u.%u",
           act->serve.serve.slot, act->serve.serve.gen);
    s->used = 1;
    s->stopping = 0;
    s->npages = 0;
    s->id = act->serve.serve;
    s->pool = (uint8_t)pool_of_slot(w, d, act->serve.pool);
    s->resharded = act->serve.layout_hash != 0;
}

/* Are pages resharded between more than one pair of layouts? */
static bool several_layouts(const struct sim *w)
{
    return w->cfg.heads > 0 &&
           (w->world[0][1] != w->world[0][0] || w->world[1][1] != w->world[1][0]);
}

/* T22: a source may be busy for a tenant only when the tenant uses its reserved part of the
 * transfers out: at most one for each that the peer has not given up, and those that are not quiet
 * yet. */
static void check_source_busy(struct sim *w, uint32_t d, const struct opened *asked)
{
    const struct link *l = &w->link[sim_far(w, d)];
    uint32_t n = 0;

    for (uint32_t i = 0; i < l->n[0]; i++)
        if (l->queue[0][(l->head[0] + i) % QUEUE].msg.kind == PEER_PULL_DONE)
            return;
    if (l->lossy || several_layouts(w)) /* pairs of them may have run out instead */
        return;
    for (uint32_t i = 0; i < OPENS; i++) {
        const struct opened *o = &w->d[sim_far(w, d)].opened[i];

        n += o != asked && o->order != 0 && o->tenant == asked->tenant;
    }
    for (uint32_t i = 0; i < SERVES * 2; i++)
        n += w->d[d].serve[i].used && tenant_of(w, d, w->d[d].serve[i].pool) == asked->tenant;
    EXPECT(n >= share_each(w, w->cfg.lim_serves), "serve_share",
           "tenant %u has at most %u transfers out, %u are reserved for it", asked->tenant, n,
           share_each(w, w->cfg.lim_serves));
}

/* The page that a run names at place k: the first of the range, then the first of each span. */
static uint32_t page_named(const struct sim *w, uint32_t d, const struct table_run *run, uint32_t k)
{
    uint32_t each = span_pages_at(w, d, run->group);

    return k == 0 ? run->first : (run->first / each + k) * each;
}

/* X4 and E3: a page in an offer is committed, its step has passed, and it stays while the transfer
 * lives. */
void serve_offered(struct sim *w, uint32_t d, uint32_t link, const struct peer_msg *msg)
{
    struct serve *s = NULL;
    struct opened *o = opened_of(w, sim_far(w, d), msg->pull);
    bool by_ticket;

    (void)link;
    if (msg->err == TERN_BUSY)
        MARK(source_busy);
    by_ticket = ticket_offered(w, d, msg);
    if (msg->err == TERN_BUSY && o && !by_ticket)
        check_source_busy(w, d, o);
    if (msg->err != TERN_OK || msg->nruns == 0)
        return;
    if (o) {
        o->content = w->d[d].content[o->tenant][o->ns];
        EXPECT(o->content >= o->need, "offer_of_old",
               "content from after reset %u, but reset %u came before the fetch", o->content,
               o->need);
    }
    for (uint32_t i = 0; i < SERVES * 2 && !s; i++)
        if (w->d[d].serve[i].used && serve_id_equal(w->d[d].serve[i].id, msg->serve))
            s = &w->d[d].serve[i];
    EXPECT(s, "offer_before_start", "serve %u.%u", msg->serve.slot, msg->serve.gen);
    for (uint32_t i = 0; i < msg->nruns; i++)
        for (uint32_t k = 0; k < msg->runs[i].n; k++) {
            struct page_ref ref = msg->runs[i].refs[k];
            struct granule *g = page_granule(w, d, s->pool, msg->runs[i].group, ref.index);
            uint32_t at = page_named(w, d, &msg->runs[i], k);

            EXPECT(!by_ticket || ticket_page(w, d, msg->pull, g, msg->runs[i].group, at),
                   "offer_other_page", "group %u page %u, index %u: not the ticket's",
                   msg->runs[i].group, at, ref.index);
            if (g->verified &&
                (g->own == OWN_PULL || g->own == OWN_ORPHAN)) { /* published by a fetch under way */
                EXPECT(g->gen == ref.gen, "offer_stale", "group %u index %u", msg->runs[i].group,
                       ref.index);
            } else if (by_ticket && g->own == OWN_SESSION) {
                EXPECT(g->gen == ref.gen, "offer_stale", "group %u index %u", msg->runs[i].group,
                       ref.index);
            } else {
                const struct chunk *c = &w->d[d].chunk[g->pool][g->chunk];

                EXPECT((g->own == OWN_CHUNK || g->own == OWN_STATE) && g->gen == ref.gen,
                       "offer_foreign_page", "group %u index %u is of kind %u", msg->runs[i].group,
                       ref.index, g->own);
                EXPECT(w->d[d].open_resets[msg->pull.slot % OPENS] != w->d[d].resets ||
                           space_current(w, d, w->d[d].pool[s->pool].tenant, c->space),
                       "offer_of_reset", "group %u index %u: its namespace was reset",
                       msg->runs[i].group, ref.index);
                EXPECT(chunk_visible(w, d, c) &&
                           (g->own == OWN_CHUNK || state_visible_of(w, d, c, msg->runs[i].group)),
                       "offer_pending", "group %u index %u: its step has not passed",
                       msg->runs[i].group, ref.index);
            }
            EXPECT(g->sealed, "offer_unsealed", "group %u index %u: its checksum is not known",
                   msg->runs[i].group, ref.index);
            w->d[d].backing[msg->runs[i].group] += g->serves == 0;
            for (uint32_t n = 0; n < w->page_granules[msg->runs[i].group]; n++)
                g[n].serves++;
            s->group[s->npages] = (uint8_t)msg->runs[i].group;
            s->ref[s->npages++] = ref;
        }
}

void take_serve_stop(struct sim *w, uint32_t d, const struct action *act)
{
    for (uint32_t i = 0; i < SERVES * 2; i++)
        if (w->d[d].serve[i].used && serve_id_equal(w->d[d].serve[i].id, act->serve.serve)) {
            w->d[d].serve[i].stopping = 1;
            return;
        }
    violation(w, "serve_stop_unknown", "serve %u.%u", act->serve.serve.slot, act->serve.serve.gen);
}

void quiet_serve(struct sim *w, uint32_t d, struct serve *s)
{
    struct event ev = {.kind = EV_SERVE_QUIET};

    for (uint32_t i = 0; i < s->npages; i++) {
        struct granule *g = page_granule(w, d, s->pool, s->group[i], s->ref[i].index);

        for (uint32_t n = 0; n < w->page_granules[s->group[i]]; n++)
            g[n].serves--;
    }
    s->used = 0;
    ticket_quiet(w, d, s->id);
    ev.serve_quiet.serve = s->id;
    TRACE("  daemon %u: serve %u.%u is quiet\n", d, s->id.slot, s->id.gen);
    sim_step(w, d, &ev);
}

/* Asks an open transfer for a page of another prefix that has no checksum yet. */
static void ask_unsealed(struct sim *w, uint32_t d, const struct serve *s)
{
    const struct pool *p = &w->d[d].pool[s->pool];
    uint32_t record;

    for (uint32_t i = p->base; i < p->base + p->granules; i++) {
        const struct granule *g = &w->d[d].granule[p->tenant][i];

        if (g->own != OWN_CHUNK || g->sealed)
            continue;
        EXPECT(core_serve_page(w->d[d].core, s->id, g->group, (struct page_ref){g->index, g->gen},
                               &record) != TERN_OK,
               "unsealed_page_served", "group %u index %u", g->group, g->index);
        MARK(unsealed_page_refused);
        return;
    }
}

/* Asks the source for a page of an old generation, or by a serve that has ended. */
void data_stale(struct sim *w, uint32_t d)
{
    struct daemon *m = &w->d[d];
    uint32_t at = pick(w, SERVES * 2), record, one;
    const struct serve *s = &m->serve[at];
    struct page_ref ref;
    struct serve_id id;

    for (uint32_t i = 0; i < SERVES * 2 && !s->npages; i++)
        s = &m->serve[(at + i) % (SERVES * 2)];
    for (uint32_t i = 0; i < SERVES * 2 && !s->used && chance(w, 50); i++)
        if (m->serve[i].used && m->serve[i].npages)
            s = &m->serve[i];
    if (!s->npages)
        return;
    one = pick(w, s->npages);
    ref = s->ref[one];
    id = s->id;
    if (s->used && chance(w, 50)) {
        ask_unsealed(w, d, s);
        return;
    }
    if (s->used) {
        if (chance(w, 50))
            id.gen--;
        else
            ref.gen--;
    }
    FAULT(stale_page_asked);
    EXPECT(core_serve_page(m->core, id, s->group[one], ref, &record) != TERN_OK,
           "stale_page_served", "serve %u.%u group %u index %u generation %u", id.slot, id.gen,
           s->group[one], ref.index, ref.gen);
    MARK(stale_page_refused);
}
