/* Units of pages that come ahead of their commit (Y4), as the model has them. Unit k of a page is
 * its slots k, k + UNITS, ...: what an engine said of them, what its daemon may tell a follower,
 * and what the rest of a page is asked for. How they move is in data.c. */
#include "data.h"
#include "tickets.h"

bool plays_units(const struct sim *w)
{
    return w->cfg.early && w->cfg.heads == 0 &&
           memcmp(w->page_tokens[0], w->page_tokens[1],
                  w->cfg.ngroups * sizeof w->page_tokens[0][0]) == 0; /* the rest is of others */
}

void step_written(struct sim *w, uint32_t d, uint32_t i)
{
    struct session *s = &w->d[d].session[i];
    uint32_t group = pick(w, w->cfg.ngroups), first = pick(w, UNITS);
    struct step_op op = {.kind = STEP_WRITTEN,
                         .session = s->handle,
                         .step = s->last_step,
                         .group = group,
                         .unit_first = first,
                         .unit_n = 1 + pick(w, UNITS - first),
                         .length = s->allocated};

    if (!plays_units(w) || !s->live || s->lame || s->allocated == 0 || s->nsaid == SAID ||
        (s->turn != TURN_OPEN && s->turn != TURN_FINISHED) || engine_conn(w, d, s->engine) == NO ||
        w->d[d].engine[s->engine].dying)
        return;
    if (chance(w, 30))
        op.length = 1 + pick(w, s->allocated + 1);
    if (chance(w, 5))
        op.unit_n = UNITS + 1;
    if (op.length <= s->allocated && op.unit_n <= UNITS)
        s->said[s->nsaid++] = (struct said){.step = (uint32_t)op.step,
                                            .until = op.length,
                                            .group = (uint8_t)group,
                                            .units = (uint8_t)(((1u << op.unit_n) - 1) << first)};
    step_one(w, d, i, &op);
}

void said_cut(struct session *s, uint32_t length)
{
    uint32_t n = 0;

    for (; n < s->nsaid && length > 0; n++)
        if (s->said[n].until > length)
            s->said[n].until = length;
    s->nsaid = (uint8_t)n;
}

void did_written(struct sim *w, const struct session *s, const struct step_op *op,
                 const struct op_result *r)
{
    bool fits = op->length <= s->allocated && op->unit_n <= UNITS;

    EXPECT(r->err == (fits ? TERN_OK : TERN_INVALID), "written", "err %u: %u units up to %u of %u",
           r->err, op->unit_n, op->length, s->allocated);
}

/* Was it said, by a step that has passed, that these units of the page are written? */
static uint32_t units_said(const struct sim *w, uint32_t d, const struct session *s, uint32_t group,
                           uint32_t page, uint32_t to)
{
    uint32_t units = 0;

    for (uint32_t i = 0; i < s->nsaid; i++) {
        const struct said *at = &s->said[i];

        if (at->group == group && at->step <= w->d[d].engine[s->engine].min_done &&
            (at->until >= to || at->until / w->page_tokens[d][group] > page))
            units |= at->units;
    }
    return units;
}

void early_told(struct sim *w, uint32_t d, const struct peer_msg *msg)
{
    const struct table_run *run = msg->runs;
    const struct tk *t = ticket_early(w, d, msg);
    struct asked *a = ticket_asked(w, sim_far(w, d), msg->pull);
    const struct session *s = t ? ticket_session(w, d, t) : NULL;
    const struct serve *serve = serve_by_id(w, d, msg->serve);

    if (!a)
        return; /* who asked has been restarted since */
    EXPECT(msg->nruns == 1 && run->n > 0 && run->group < w->cfg.ngroups && a->follow, "early_shape",
           "%u runs", msg->nruns);
    EXPECT(serve && s, "early_unknown", "serve %u.%u", msg->serve.slot, msg->serve.gen);
    for (uint32_t k = 0; k < run->n; k++) {
        const struct granule *g = page_granule(w, d, serve->pool, run->group, run->refs[k].index);

        EXPECT(
            g->gen == run->refs[k].gen &&
                (g->own == OWN_CHUNK || (g->own == OWN_SESSION && g->owner == s - w->d[d].session)),
            "early_page", "group %u index %u generation %u is of kind %u, generation %u",
            run->group, run->refs[k].index, run->refs[k].gen, g->own, g->gen);
        EXPECT(
            (msg->units & ~(uint64_t)units_said(w, d, s, run->group, run->first + k, a->led.to)) ==
                0,
            "early_unwritten",
            "group %u page %u: units %llx are told, %x are written (%u were said, the last up to "
            "%u by step %u; all have done %u)",
            run->group, run->first + k, (unsigned long long)msg->units,
            units_said(w, d, s, run->group, run->first + k, a->led.to), s->nsaid,
            s->nsaid ? s->said[s->nsaid - 1].until : 0, s->nsaid ? s->said[s->nsaid - 1].step : 0,
            w->d[d].engine[s->engine].min_done);
    }
    a->led.since = w->now;
    MARK(early_told);
    if (s->committed > run->first * w->page_tokens[d][run->group])
        MARK(early_told_pending);
}

void early_heard(struct sim *w, uint32_t d, const struct peer_msg *msg)
{
    struct opened *o = opened_of(w, d, msg->pull);

    if (!o)
        return;
    o->early += msg->runs->n;
    follow_goes_on(w, d, msg->pull);
}

/* ---- what comes ---- */

void early_move(struct sim *w, uint32_t d, struct pull *p, struct batch *b, uint32_t i,
                bool corrupt)
{
    uint32_t s = sim_far(w, d), record, from;
    const struct serve *serve = serve_by_id(w, s, p->serve);
    struct granule *g;

    b->span[i].seen = 1;
    b->moved++;
    if (p->source_incarnation != w->d[s].incarnation ||
        core_serve_units(w->d[s].core, p->serve, b->group[i], b->span[i].ref, b->units, &record) !=
            TERN_OK) {
        MARK(early_refused);
        return;
    }
    EXPECT(serve && serve->pool != NO, "served_unknown", "serve %u.%u was never started",
           p->serve.slot, p->serve.gen);
    g = page_granule(w, s, serve->pool, b->group[i], b->span[i].ref.index);
    EXPECT(g->gen == b->span[i].ref.gen, "served_foreign_page", "generation %u, not %u", g->gen,
           b->span[i].ref.gen);
    from = at_of(w, s, serve->pool, g);
    units_copy(w, d, p, b, i, (struct place){s, serve->pool, from});
    if (corrupt || chance(w, 8)) { /* or what was sent is of before it was written again */
        uint32_t slot = (b->units & 1) ? 0 : 1;

        tag_at(w, d, p->pool, 0, b->granule[i])->v[slot] ^= 1;
        w->d[d].sum[b->record[i]][0].v[slot] ^= 1; /* what came is hashed */
        FAULT(page_corrupt);
    }
    b->ok |= 1ull << i;
    MARK(early_came);
    if (p->stopping)
        FAULT(late_receive);
}

void units_copy(struct sim *w, uint32_t d, const struct pull *p, const struct batch *b, uint32_t i,
                struct place from)
{
    for (uint32_t r = 0; r < w->d[d].pool[p->pool].ranks; r++)
        for (uint32_t slot = 0; slot < w->page_tokens[d][b->group[i]]; slot++) {
            if (!(b->units >> slot % UNITS & 1))
                continue;
            for (uint32_t k = 0; k < w->page_granules[b->group[i]]; k++)
                tag_at(w, d, p->pool, r, b->granule[i] + k)->v[slot] =
                    tag_at(w, from.d, from.pool, r, from.granule + k)->v[slot];
            w->d[d].sum[b->record[i]][r].v[slot] =
                tag_at(w, from.d, from.pool, r, from.granule)->v[slot];
        }
}

bool rest_agrees(struct sim *w, uint32_t d, const struct pull *p, const struct batch *b, uint32_t i,
                 const struct tag *sums)
{
    for (uint32_t r = 0; r < w->d[d].pool[p->pool].ranks; r++)
        for (uint32_t slot = 0; slot < w->page_tokens[d][b->group[i]]; slot++)
            if (w->d[d].sum[b->record[i]][r].v[slot] != sums[r].v[slot]) {
                MARK(early_again);
                return false;
            }
    MARK(early_rest);
    return true;
}
