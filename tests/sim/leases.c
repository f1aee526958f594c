/* Leases (E5): pages that an engine owns ahead of need, writes at will, assigns to its sessions in
 * place of an extend, and unleases behind a step. In the model each of them stays the engine's own
 * until the core is informed otherwise, or the engine is gone. */
#include "leases.h"
#include "causes.h"
#include "disk.h"

static bool has_lease(const struct sim *w, const struct daemon *m, uint32_t e)
{
    return w->cfg.leases && m->engine[e].used && !m->engine[e].dying && m->engine[e].pool != NO;
}

static void own_by(struct sim *w, uint32_t d, uint32_t tenant, const struct leased *l, enum own own,
                   uint32_t owner)
{
    struct granule *g = &w->d[d].granule[tenant][l->granule];

    for (uint32_t k = 0; k < w->page_granules[l->group]; k++) {
        EXPECT(g[k].own == OWN_LEASE, "lease_lost", "granule %u is of kind %u", l->granule + k,
               g[k].own);
        g[k].own = (uint8_t)own;
        g[k].owner = (uint8_t)owner;
    }
}

static void lease_forget(struct engine *g, uint32_t i)
{
    g->past = g->lease[i];
    g->lease[i] = g->lease[--g->nlease];
}

/* ---- PageLease ---- */

static void lease_busy(struct sim *w, uint32_t d, const struct pool *p)
{
    EXPECT(w->cfg.give_back || busy_for_stores(w, d, p->tenant, w->reply->text) ||
               w->d[d].njobs > 0,
           "lease_busy", "BUSY, and nothing is copied, stored or given back");
}

static void leased(struct sim *w, uint32_t d, uint32_t e, uint32_t group, uint32_t n)
{
    struct engine *g = &w->d[d].engine[e];
    const struct table_run *run = w->reply->runs;

    EXPECT(w->reply->nruns == 1 && run->group == group && run->n == n && run->first == 0,
           "lease_runs", "%u runs for %u pages", w->reply->nruns, n);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = hand_out(w, d, g->pool, group, run->refs[i], OWN_LEASE, e);

        g->lease[g->nlease++] =
            (struct leased){.granule = (uint16_t)at, .group = (uint8_t)group, .ref = run->refs[i]};
    }
    EXPECT(w->reply->page_lease.leased == g->nlease, "lease_count", "%u, the model has %u",
           w->reply->page_lease.leased, g->nlease);
    check_cap(w, d, g->pool);
    MARK(leased);
}

static void ask_more(struct sim *w, uint32_t d, uint32_t e, uint32_t conn)
{
    struct daemon *m = &w->d[d];
    struct engine *g = &m->engine[e];
    struct pool *p = &m->pool[g->pool];
    uint32_t group = pick(w, w->ngroups + (chance(w, 3) ? 1 : 0)), n = pick(w, 4),
             need[GROUPS] = {0};
    struct event ev;

    n += n > 0 || chance(w, 90);
    request_init(w, d, &ev, OP_PAGE_LEASE, conn);
    ev.request.page_lease = (struct req_page_lease){.pool = p->id, .group = group, .pages = n};
    TRACE("  engine %u.%u leases %u pages of group %u, has %u\n", d, e, n, group, g->nlease);
    sim_ask(w, d, &ev, "lease_answer");
    if (group >= w->ngroups || n == 0 || (group >= w->cfg.ngroups && recurrent(w, group))) {
        EXPECT(w->reply->err == TERN_INVALID, "lease_invalid", "err %u", w->reply->err);
        return;
    }
    if (g->nlease + n > w->limits.lease_pages) {
        EXPECT(w->reply->err == TERN_QUOTA, "lease_quota", "err %u", w->reply->err);
        MARK(lease_full);
        return;
    }
    need[group] = n;
    if (check_never(w, d, g->pool,
                    &(struct op_result){.err = w->reply->err, .shortage = w->reply->shortage},
                    need))
        return;
    if (w->reply->err == TERN_POOL_EXHAUSTED) {
        check_shortage(w, d, g->pool, &w->reply->shortage, need);
        MARK(lease_exhausted);
        return;
    }
    note_need(w, d, g->pool, need);
    if (w->reply->err == TERN_BUSY) {
        lease_busy(w, d, p);
        return;
    }
    EXPECT(w->reply->err == TERN_OK, "lease_refused", "err %u %s", w->reply->err, w->reply->text);
    leased(w, d, e, group, n);
}

/* ---- Unlease ---- */

/* Unleases some of them, or all, at one step. */
static void give_some(struct sim *w, uint32_t d, uint32_t e, uint32_t conn, uint32_t n,
                      uint32_t step)
{
    struct engine *g = &w->d[d].engine[e];
    struct table_run run[GROUPS];
    struct page_ref ref[GROUPS][LEASES];
    struct step_op op = {.kind = STEP_UNLEASE, .pool = w->d[d].pool[g->pool].id, .step = step};
    const struct op_result *r;
    struct event ev;

    for (uint32_t group = 0; group < w->ngroups; group++) {
        uint32_t of = 0;

        for (uint32_t i = g->nlease - n; i < g->nlease; i++)
            if (g->lease[i].group == group)
                ref[group][of++] = g->lease[i].ref;
        if (of > 0)
            run[op.nruns++] = (struct table_run){.group = group, .n = of, .refs = ref[group]};
    }
    op.runs = run;
    request_init(w, d, &ev, OP_STEP, conn);
    ev.request.step.ops = &op;
    ev.request.step.n = 1;
    TRACE("  engine %u.%u gives %u leased pages back at step %u\n", d, e, n, step);
    sim_ask(w, d, &ev, "unlease_answer");
    EXPECT(w->reply->err == TERN_OK && w->reply->step.n == 1, "unlease_step", "err %u",
           w->reply->err);
    r = &w->reply->step.results[0];
    if (r->err == TERN_BUSY) {
        EXPECT(step > g->min_done || w->cfg.give_back, "unlease_busy", "step %u, all have done %u",
               step, g->min_done);
        return;
    }
    EXPECT(r->err == TERN_OK, "unlease_refused", "err %u %s", r->err, r->text ? r->text : "");
    for (; n > 0; n--) {
        const struct leased *l = &g->lease[g->nlease - 1];
        struct granule *at = &w->d[d].granule[g->tenant][l->granule];

        own_by(w, d, g->tenant, l, OWN_FREE, 0);
        for (uint32_t k = 0; k < w->page_granules[l->group]; k++)
            if (step > at[k].busy[e])
                at[k].busy[e] = step;
        lease_forget(g, g->nlease - 1);
    }
    MARK(lease_given_back);
    if (step > g->min_done)
        MARK(lease_retires);
}

/* Unleases pages that the engine no longer leases, or never did. */
static void give_wrong(struct sim *w, uint32_t d, uint32_t e, uint32_t conn)
{
    struct engine *g = &w->d[d].engine[e];
    struct page_ref ref[2] = {g->past.ref, g->past.ref};
    struct table_run run = {.group = g->past.group, .n = 1, .refs = ref};
    struct step_op op = {.kind = STEP_UNLEASE,
                         .pool = w->d[d].pool[g->pool].id,
                         .step = g->step,
                         .nruns = 1,
                         .runs = &run};
    struct event ev;

    if (g->nlease > 0 && chance(w, 40)) {
        run.group = g->lease[0].group;
        ref[0] = ref[1] = g->lease[0].ref;
        run.n = 2;
    } else if (g->past.ref.gen == 0) {
        return;
    }
    request_init(w, d, &ev, OP_STEP, conn);
    ev.request.step.ops = &op;
    ev.request.step.n = 1;
    sim_ask(w, d, &ev, "unlease_answer");
    EXPECT(w->reply->step.n == 1 && (w->reply->step.results[0].err == TERN_GONE ||
                                     w->reply->step.results[0].err == TERN_CONFLICT ||
                                     w->reply->step.results[0].err == TERN_BUSY),
           "unlease_wrong", "err %u", w->reply->step.results[0].err);
    MARK(lease_wrong_page);
}

void ask_lease(struct sim *w, uint32_t d, uint32_t e)
{
    struct engine *g = &w->d[d].engine[e];
    uint32_t conn = has_lease(w, &w->d[d], e) ? engine_conn(w, d, e) : NO;

    if (conn == NO || !(w->d[d].pool[g->pool].engines >> e & 1) || g->seen != (1u << g->nprocs) - 1)
        return;
    if (chance(w, 6))
        give_wrong(w, d, e, conn);
    else if (g->nlease > 0 && chance(w, 25))
        give_some(w, d, e, conn, 1 + pick(w, g->nlease), chance(w, 70) ? g->step : g->lease_step);
    else
        ask_more(w, d, e, conn);
}

void leases_end(struct sim *w, uint32_t d)
{
    for (uint32_t e = 0; e < ENGINES; e++) {
        struct engine *g = &w->d[d].engine[e];

        if (g->used && g->nlease > 0)
            give_some(w, d, e, engine_conn(w, d, e), g->nlease, 0);
    }
}

void leases_gone(struct sim *w, uint32_t d, uint32_t e)
{
    struct engine *g = &w->d[d].engine[e];

    if (g->nlease > 0)
        MARK(lease_of_a_dead_engine);
    while (g->nlease > 0) {
        own_by(w, d, g->tenant, &g->lease[g->nlease - 1], OWN_FREE, 0);
        g->nlease--;
    }
    g->past = (struct leased){.ref = {0, 0}};
    g->lease_step = 0;
}

/* The dispatched step writes into some of them, as speculation. */
void leases_touch(struct sim *w, uint32_t d, uint32_t e, struct work *k)
{
    struct engine *g = &w->d[d].engine[e];

    if (!w->cfg.leases || g->nlease == 0 || !chance(w, 40))
        return;
    for (uint32_t i = 0; i < g->nlease && i < 8; i++) {
        EXPECT(k->n < TOUCHES, "sim_touches", "%u", k->n);
        k->touch[k->n++] = (struct touch){.granule = g->lease[i].granule,
                                          .group = g->lease[i].group,
                                          .write_to = (uint8_t)w->page_tokens[d][g->lease[i].group],
                                          .junk = 1};
    }
    g->lease_step = g->step;
}

/* ---- Assign ---- */

enum { ODD_NONE, ODD_STALE, ODD_TWICE, ODD_PLACE, ODD_FEW, ODD_FOREIGN, ODD_KINDS };

static uint32_t table_end(const struct sim *w, uint32_t d, const struct session *s, uint32_t g)
{
    return g < w->cfg.ngroups ? (s->allocated + w->page_tokens[d][g] - 1) / w->page_tokens[d][g]
                              : s->top[g];
}

bool assign_need(const struct sim *w, uint32_t d, const struct session *s, uint32_t length,
                 uint32_t need[GROUPS])
{
    bool recurrents = false;

    memset(need, 0, GROUPS * sizeof *need);
    for (uint32_t g = 0; g < w->ngroups; g++) {
        uint32_t end = table_end(w, d, s, g), to;

        if (g >= w->cfg.ngroups && recurrent(w, g)) {
            need[g] = length > 0 && !s->top[g];
            recurrents |= need[g] > 0;
            continue;
        }
        to = (length + w->page_tokens[d][g] - 1) / w->page_tokens[d][g];
        need[g] = to > end ? to - end : 0;
    }
    return !recurrents;
}

static void make_odd(struct sim *w, uint32_t d, const struct session *s, struct assign *a,
                     struct step_op *op)
{
    struct table_run *run = &a->run[0];
    const struct engine *other = &w->d[d].engine[pick(w, ENGINES)];

    a->odd = (uint8_t)(chance(w, 12) ? 1 + pick(w, ODD_KINDS - 1) : ODD_NONE);
    if ((a->odd == ODD_TWICE && run->n < 2) ||
        (a->odd == ODD_FOREIGN &&
         (other == &w->d[d].engine[s->engine] || !other->used || other->pool != s->pool ||
          other->nlease == 0 || other->lease[0].group != run->group)))
        a->odd = ODD_STALE;
    switch (a->odd) {
    case ODD_STALE: a->ref[0].gen ^= 0x40000000u; break;
    case ODD_TWICE: a->ref[1] = a->ref[0]; break;
    case ODD_PLACE: run->first++; break;
    case ODD_FEW:
        run->n--;
        op->nruns -= run->n == 0;
        op->runs += run->n == 0;
        break;
    case ODD_FOREIGN: a->ref[0] = other->lease[0].ref; break;
    default: break;
    }
}

/* Pages of the lease that no earlier operation of the request names. */
static uint32_t take_group(const struct engine *e, uint32_t group, uint32_t n, uint32_t *taken,
                           struct page_ref *ret)
{
    uint32_t got = 0;

    for (uint32_t i = 0; i < e->nlease && got < n; i++)
        if (e->lease[i].group == group && !(*taken >> i & 1)) {
            *taken |= 1u << i;
            ret[got++] = e->lease[i].ref;
        }
    return got;
}

void plan_assign(struct sim *w, uint32_t d, const struct session *s, struct step_op *op,
                 struct assign *a, uint32_t *taken)
{
    const struct engine *e = &w->d[d].engine[s->engine];
    uint32_t need[GROUPS], n = 0, mine = *taken, runs = 0;

    if (e->nlease == 0 || e->pool != s->pool || !chance(w, 80) ||
        !assign_need(w, d, s, op->length ? op->length : s->allocated, need))
        return;
    for (uint32_t g = 0; g < w->ngroups; g++) {
        if (need[g] == 0)
            continue;
        if (need[g] > LEASES || take_group(e, g, need[g], &mine, a->ref + n) < need[g])
            return;
        a->run[runs++] = (struct table_run){
            .group = g, .first = table_end(w, d, s, g), .n = need[g], .refs = a->ref + n};
        n += need[g];
    }
    if (n == 0)
        return;
    *taken = mine;
    op->kind = STEP_ASSIGN;
    op->runs = a->run;
    op->nruns = runs;
    memcpy(a->need, need, sizeof a->need);
    make_odd(w, d, s, a, op);
}

static void assigned(struct sim *w, uint32_t d, struct session *s, const struct table_run *run)
{
    struct engine *e = &w->d[d].engine[s->engine];

    for (uint32_t k = 0; k < run->n; k++) {
        uint32_t i = 0;

        while (i < e->nlease &&
               (e->lease[i].group != run->group || e->lease[i].ref.index != run->refs[k].index))
            i++;
        EXPECT(i < e->nlease && run->first + k < TABLE, "assigned_unleased",
               "group %u index %u is in no lease of engine %u", run->group, run->refs[k].index,
               s->engine);
        own_by(w, d, s->tenant, &e->lease[i], OWN_SESSION, (uint32_t)(s - w->d[d].session));
        s->table[run->group][run->first + k] =
            (struct entry){.granule = e->lease[i].granule, .gen = e->lease[i].ref.gen, .mine = 1};
        lease_forget(e, i);
    }
    if (run->group >= w->cfg.ngroups)
        s->top[run->group] += run->n;
}

void did_assign(struct sim *w, uint32_t d, struct session *s, const struct step_op *op,
                const struct assign *a, uint32_t variant, const struct op_result *r)
{
    uint32_t to = op->length ? op->length : s->allocated,
             c = op->written ? op->written : s->written, need[GROUPS];
    bool fits = assign_need(w, d, s, to, need) && memcmp(need, a->need, sizeof need) == 0;

    if (op->tokens.n > 0 && op->tokens.base != s->ntokens) {
        EXPECT(r->err == TERN_CONFLICT, "assign_base", "err %u", r->err);
        return;
    }
    if (to < s->allocated || c < s->written || c > to || c > s->ntokens + op->tokens.n || !fits ||
        a->odd == ODD_PLACE || a->odd == ODD_FEW) {
        EXPECT(r->err == TERN_INVALID, "assign_lengths", "err %u", r->err);
        return;
    }
    if (r->err == TERN_BUSY) {
        EXPECT(op->tokens.n > 0, "assign_busy", "BUSY for an assign without tokens");
        check_store_full(w, d, s, s->ntokens + op->tokens.n);
        return;
    }
    if (a->odd != ODD_NONE) {
        EXPECT(r->err == (a->odd == ODD_STALE ? TERN_GONE : TERN_CONFLICT), "assign_wrong",
               "err %u for pages that are not its own", r->err);
        MARK(lease_wrong_page);
        return;
    }
    EXPECT(r->err == TERN_OK && r->nruns == 0, "assign_refused", "err %u %s", r->err,
           r->text ? r->text : "");
    for (uint32_t i = 0; i < op->nruns; i++)
        assigned(w, d, s, &op->runs[i]);
    MARK(assigned);
    s->allocated = to;
    s->written = c;
    s->ntokens += op->tokens.n;
    s->variant = (uint8_t)variant;
    s->turn = TURN_OPEN;
}
