/* The data path: pulls that write straight into the destination's pages. Bytes move at moments of
 * the simulator's choosing; a receive that was posted may still land after a stop, until the proof
 * that it is quiet. What the source does for them is in serves.c. */
#include "data.h"
#include "disk.h"
#include "tickets.h"

uint32_t pool_of_slot(struct sim *w, uint32_t d, uint32_t slot)
{
    for (uint32_t p = 0; p < POOLS; p++)
        if (w->d[d].pool[p].open && w->d[d].pool[p].id.slot == slot)
            return p;
    violation(w, "unknown_pool", "daemon %u names pool slot %u", d, slot);
}

/* --- the order of pulls --- */

struct opened *opened_of(struct sim *w, uint32_t d, struct pull_id id)
{
    struct opened *o = &w->d[d].opened[id.slot % OPENS];

    return o->order != 0 && pull_id_equal(o->id, id) ? o : NULL;
}

/* The peer was asked for it, perhaps once more: then not before the peer said, and not too often.
 */
void pull_opened(struct sim *w, uint32_t d, const struct peer_msg *msg)
{
    struct opened *o = opened_of(w, d, msg->pull);

    if (o) {
        MARK(source_asked_again);
        EXPECT(w->now >= o->not_before, "asked_too_early", "pull %u.%u", o->id.slot, o->id.gen);
        EXPECT(++o->asks <= PULL_ASKS_MAX, "asked_again_too_often", "%u times", o->asks);
        o->awaits = msg->at_least > msg->from;
        return;
    }
    w->d[d].opened[msg->pull.slot % OPENS] = (struct opened){.id = msg->pull,
                                                             .order = ++w->d[d].nopened,
                                                             .asks = 1,
                                                             .awaits = msg->at_least > msg->from,
                                                             .tenant = msg->tenant,
                                                             .prefetch = msg->prefetch,
                                                             .ns = namespace_number(w, msg->ns)};
    o = opened_of(w, d, msg->pull);
    o->need = w->d[d].own_reset[o->tenant][o->ns];
    for (uint32_t i = 0; i < SESSIONS; i++) {
        struct session *s = &w->d[d].session[i];

        if (!s->used || s->turn != TURN_FETCHING || s->fetch_request != msg->trace_id)
            continue;
        s->fetch_pull = msg->pull;
        EXPECT(msg->prefetch == (s->fetch_prefetch != 0), "class_told",
               "the source is told of session %u's fetch as if it were of another class", i);
        ticket_opened(w, d, msg, s);
    }
}

/* What the peer has is younger than this; what it brings here becomes content here. */
static void fetched_content(struct sim *w, uint32_t d, const struct opened *o)
{
    for (uint32_t i = 0; i < SESSIONS; i++) {
        const struct session *s = &w->d[d].session[i];

        if (s->used && pull_id_equal(s->fetch_pull, o->id) && s->turn == TURN_FETCHING &&
            space_current(w, d, s->tenant, s->space) &&
            w->d[d].content[o->tenant][o->ns] > o->content)
            w->d[d].content[o->tenant][o->ns] = o->content;
    }
}

/* The peer has too little, and was not busy: it is asked again, but not at once. */
static void pull_waits(struct sim *w, uint32_t d, struct opened *o)
{
    MARK(fetch_awaits);
    o->asks = 0;
    o->not_before = w->now + MS;
    for (uint32_t i = 0; i < SESSIONS; i++)
        if (pull_id_equal(w->d[d].session[i].fetch_pull, o->id))
            w->d[d].session[i].fetch_waited = 1;
}

void pull_offered(struct sim *w, uint32_t d, const struct peer_msg *msg)
{
    struct opened *o = opened_of(w, d, msg->pull);

    struct asked *a = ticket_asked(w, d, msg->pull);

    if (a) {
        a->said = msg->err;
        a->offered |= msg->err == TERN_OK;
    }
    if (o && msg->err == TERN_BUSY)
        o->not_before = w->now + msg->retry_ms * MS;
    if (o && msg->err == TERN_OK && msg->to > msg->from)
        fetched_content(w, d, o);
    if (o && msg->err == TERN_OK && msg->to == msg->from && o->awaits)
        pull_waits(w, d, o);
    for (uint32_t i = 0; o && msg->err == TERN_OK && i < msg->nruns; i++)
        o->unasked += msg->runs[i].n;
}

void pull_ended(struct sim *w, uint32_t d, struct pull_id id)
{
    struct opened *o = opened_of(w, d, id);

    if (o)
        *o = (struct opened){.order = 0};
}

static uint32_t batches_used(const struct sim *w, uint32_t d, struct pull_id id)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < PULLS * 2; i++)
        for (uint32_t k = 0; k < BATCHES && w->d[d].pull[i].used; k++)
            n += pull_id_equal(w->d[d].pull[i].id, id) && w->d[d].pull[i].batch[k].used;
    return n;
}

/* X8: a prefetch asks before a fetch that a decode waits for only where so many batches in a row
 * were of no prefetch; and it is not made to wait for more. */
static void check_pull_class(struct sim *w, uint32_t d, const struct opened *mine,
                             const struct opened *o)
{
    uint32_t row = w->d[d].urgent_row[mine->tenant];

    if (o->unasked == 0 || batches_used(w, d, o->id) == BATCHES)
        return;
    if (mine->prefetch) {
        EXPECT(row + 1 >= w->limits.prefetch_every, "prefetch_first",
               "prefetch %u.%u asks for pages before %u.%u, which a decode waits for",
               mine->id.slot, mine->id.gen, o->id.slot, o->id.gen);
        MARK(prefetch_due);
    } else {
        EXPECT(row + 1 < w->limits.prefetch_every, "prefetch_starved",
               "%u batches in a row were none of prefetch %u.%u", row + 1, o->id.slot, o->id.gen);
        MARK(prefetch_waits);
    }
}

/* X8: between two daemons a tenant's transfers are served in the order in which they began, those
 * that a decode waits for before prefetches. */
static void check_pull_order(struct sim *w, uint32_t d, struct pull_id id)
{
    const struct opened *mine = opened_of(w, d, id);

    EXPECT(mine, "pull_unopened", "pages asked for pull %u.%u, which is over", id.slot, id.gen);
    if (mine->disk)
        return; /* how much it has left to ask for, nobody says */
    for (uint32_t i = 0; i < OPENS; i++) {
        const struct opened *o = &w->d[d].opened[i];

        if (o->order == 0 || o->tenant != mine->tenant || o == mine || o->disk)
            continue;
        if (o->prefetch != mine->prefetch) {
            check_pull_class(w, d, mine, o);
            continue;
        }
        if (o->unasked > 0 && o->order > mine->order)
            MARK(pull_first_in);
        EXPECT(o->order > mine->order || o->unasked == 0 || batches_used(w, d, o->id) == BATCHES,
               "pull_overtakes", "pull %u.%u asks for pages before %u.%u, which began earlier",
               id.slot, id.gen, o->id.slot, o->id.gen);
    }
}

/* --- pulls --- */

static struct pull *pull_by_id(struct sim *w, uint32_t d, struct pull_id id)
{
    for (uint32_t i = 0; i < PULLS * 2; i++)
        if (w->d[d].pull[i].used && pull_id_equal(w->d[d].pull[i].id, id))
            return &w->d[d].pull[i];
    return NULL;
}

static struct pull *pull_slot(struct sim *w, uint32_t d, struct pull_id id)
{
    struct daemon *m = &w->d[d];
    struct pull *p = NULL;

    for (uint32_t i = 0; i < PULLS * 2 && !p; i++)
        if (!m->pull[i].used)
            p = &m->pull[i];
    EXPECT(p, "too_many_pulls", "more than %u", PULLS * 2);
    memset(p, 0, offsetof(struct pull, batch));
    for (uint32_t i = 0; i < BATCHES; i++)
        p->batch[i].used = 0;
    p->used = 1;
    m->npulls++;
    p->id = id;
    return p;
}

static struct pull *pull_new(struct sim *w, uint32_t d, const struct action *act)
{
    struct daemon *m = &w->d[d];
    struct pull *p = pull_slot(w, d, act->pull.pull);

    p->serve = act->pull.serve;
    p->pool = (uint8_t)pool_of_slot(w, d, act->pull.pool);
    p->tenant = (uint8_t)tenant_of(w, d, p->pool);
    p->source_incarnation = w->d[1 - d].incarnation;
    for (uint32_t i = 0; i < SESSIONS; i++)
        if (m->session[i].live && m->session[i].turn == TURN_FETCHING &&
            pull_id_equal(m->session[i].fetch_pull, p->id))
            p->space = m->session[i].space;
    m->pool[p->pool].evictions++; /* making room may have evicted */
    return p;
}

static void batch_page(struct sim *w, uint32_t d, struct pull *p, struct batch *b,
                       const struct action *act, uint32_t i)
{
    const struct page_at *at = &act->pull.pages[i];
    struct granule *g = page_granule(w, d, p->pool, at->group, at->index);
    uint32_t slot = (uint32_t)(p - w->d[d].pull), granule = at_of(w, d, p->pool, g);
    struct page_ref ref = {.index = at->index, .gen = at->gen};

    EXPECT(at->record < RECORDS, "record", "record %u", at->record);
    fetch_waits_page(w, d, p->id, at->group, ref);
    if (g->own == OWN_PULL && g->owner == slot && g->gen == at->gen && !g->verified &&
        !g->writers) {
        MARK(fetch_corrupt_retry);
        EXPECT(++g->tries < PULL_TRIES_MAX, "asked_too_often", "granule %u: %u times", granule,
               g->tries + 1);
    } else {
        hand_out(w, d, p->pool, at->group, ref, OWN_PULL, slot);
    }
    for (uint32_t k = 0; k < w->page_granules[at->group]; k++) {
        g[k].writers = 1;
        g[k].space = p->space;
    }
    b->granule[i] = (uint16_t)granule;
    b->record[i] = (uint16_t)at->record;
    b->group[i] = (uint8_t)at->group;
    b->ref[i] = act->pull.refs[i];
    b->seen[i] = 0;
    if (p->disk)
        disk_batch_page(w, d, p, b, act, i);
}

static uint64_t batch_bytes(const struct sim *w, uint32_t d, const struct pull *p,
                            const struct batch *b)
{
    uint64_t n = 0;

    for (uint32_t i = 0; i < b->n; i++)
        n += w->page_granules[b->group[i]];
    return n * w->d[d].pool[p->pool].ranks * GRANULE_BYTES;
}

/* What is under way under one limit. */
struct in_flight {
    uint64_t bytes;
    uint32_t spans;
};

static void count_in_flight(struct in_flight *f, bool counts, uint64_t bytes, uint32_t spans)
{
    f->bytes += counts ? bytes : 0;
    f->spans += counts ? spans : 0;
}

/* One span that is larger than the limit goes alone. */
static void check_limit(struct sim *w, const char *name, const struct in_flight *f, uint64_t limit)
{
    EXPECT(f->spans == 1 || f->bytes <= limit, name, "%llu bytes in %u spans (limit %llu)",
           (unsigned long long)f->bytes, f->spans, (unsigned long long)limit);
}

/* X8: no more bytes under way than the limits allow. And no more batches, of which those of a
 * transfer that was stopped count until it is quiet. */
static void check_in_flight(struct sim *w, uint32_t d, uint32_t tenant, bool disk)
{
    struct in_flight peer = {0}, flow = {0}, of_tenant = {0};
    uint32_t batches = 0;

    for (uint32_t i = 0; i < PULLS * 2; i++) {
        const struct pull *p = &w->d[d].pull[i];

        for (uint32_t k = 0; p->used && k < BATCHES; k++)
            batches += p->batch[k].used && tenant_of(w, d, p->pool) == tenant;
        if (!p->used || p->over || p->stopping)
            continue;
        for (uint32_t k = 0; k < BATCHES; k++)
            if (p->batch[k].used) {
                uint64_t bytes = batch_bytes(w, d, p, &p->batch[k]);
                bool mine = tenant_of(w, d, p->pool) == tenant;

                count_in_flight(&peer, p->disk == disk, bytes, p->batch[k].n);
                count_in_flight(&flow, p->disk == disk && mine, bytes, p->batch[k].n);
                count_in_flight(&of_tenant, mine, bytes, p->batch[k].n);
            }
    }
    check_limit(w, "peer_in_flight", &peer, w->limits.peer_bytes_in_flight);
    check_limit(w, "tenant_in_flight", &of_tenant, w->limits.tenant_bytes_in_flight);
    if (w->limits.flow_bytes_in_flight > 0)
        check_limit(w, "flow_in_flight", &flow, w->limits.flow_bytes_in_flight);
    EXPECT(w->limits.tenant_batches == 0 || batches <= w->limits.tenant_batches,
           "batches_in_flight", "%u batches of the tenant (limit %u)", batches,
           w->limits.tenant_batches);
}

void take_pull(struct sim *w, uint32_t d, const struct action *act)
{
    struct pull *p = pull_by_id(w, d, act->pull.pull);
    bool disk = act->pull.link == LINKS;
    struct daemon *m = &w->d[d];
    struct batch *b = NULL;

    if (!p && disk)
        disk_pull_begins(w, d, act);
    if (!p)
        p = pull_new(w, d, act);
    p->disk = disk;
    EXPECT(!p->stopping && !p->over, "pull_after_stop",
           "pages asked for by a transfer that is over");
    EXPECT((act->pull.link == 0 || disk) && act->pull.n > 0 && act->pull.n <= BATCH_PAGES,
           "pull_shape", "link %u, %u pages", act->pull.link, act->pull.n);
    for (uint32_t i = 0; i < BATCHES && !b; i++)
        if (!p->batch[i].used)
            b = &p->batch[i];
    EXPECT(b, "too_many_batches", "more than %u", BATCHES);
    EXPECT(act->pull.prefetch == (opened_of(w, d, p->id)->prefetch != 0), "pull_class",
           "pages are asked for as if pull %u.%u were of another class", p->id.slot, p->id.gen);
    check_pull_order(w, d, p->id);
    m->urgent_row[opened_of(w, d, p->id)->tenant] =
        act->pull.prefetch ? 0 : m->urgent_row[opened_of(w, d, p->id)->tenant] + 1;
    opened_of(w, d, p->id)->unasked -= act->pull.n;
    b->used = 1;
    b->number = act->pull.batch;
    b->n = (uint8_t)act->pull.n;
    b->moved = 0;
    b->ok = 0;
    for (uint32_t i = 0; i < act->pull.n; i++)
        batch_page(w, d, p, b, act, i);
    check_in_flight(w, d, tenant_of(w, d, p->pool), disk);
    TRACE("  daemon %u pulls %u pages, batch %u of %u.%u\n", d, act->pull.n, act->pull.batch,
          p->id.slot, p->id.gen);
}

void take_pull_stop(struct sim *w, uint32_t d, const struct action *act)
{
    struct pull *p = pull_by_id(w, d, act->pull_stop.pull);

    if (!p) { /* it never asked for a page, but the core wants the proof all the same */
        const struct opened *o = opened_of(w, d, act->pull_stop.pull);

        p = pull_slot(w, d, act->pull_stop.pull);
        p->disk = act->pull_stop.link == LINKS;
        p->over = 1;
        p->tenant = o ? (uint8_t)o->tenant : TENANTS;
    }
    pull_ended(w, d, act->pull_stop.pull);
    EXPECT(!p->stopping, "stopped_twice", "pull %u.%u", p->id.slot, p->id.gen);
    p->stopping = 1;
}

static bool in_flight(const struct pull *p)
{
    for (uint32_t i = 0; i < BATCHES; i++)
        if (p->batch[i].used)
            return true;
    return false;
}

/* Its answer came, or nobody waits for it. What was not published is the core's again once it is
 * quiet. `orphaned`: the model was not told how much was published. */
void pull_over(struct sim *w, uint32_t d, struct pull *p, bool orphaned)
{
    struct granule *g = w->d[d].granule[tenant_of(w, d, p->pool)];
    uint32_t slot = (uint32_t)(p - w->d[d].pull);

    for (uint32_t i = 0; i < w->granules; i++)
        if (g[i].own == OWN_PULL && g[i].owner == slot)
            g[i].own = OWN_ORPHAN;
    p->over = 1;
    p->orphaned = orphaned;
}

static void batch_done(struct sim *w, uint32_t d, struct pull *p, struct batch *b, bool tell)
{
    struct granule *g = w->d[d].granule[tenant_of(w, d, p->pool)];
    struct event ev = {.kind = EV_PULLED};
    struct opened *o = opened_of(w, d, p->id);

    for (uint32_t i = 0; o && tell && i < b->n; i++)
        o->unasked += !(b->ok >> i & 1);
    for (uint32_t i = 0; p->disk && tell && i < b->n; i++)
        if (!(b->ok >> i & 1))
            disk_page_wrong(w, d, p, b, i);
    for (uint32_t i = 0; i < b->n; i++)
        for (uint32_t k = 0; k < w->page_granules[b->group[i]]; k++) {
            struct granule *at = &g[b->granule[i] + k];

            at->writers = 0;
            if (tell && (b->ok >> i & 1))
                at->verified = at->sealed = 1;
        }
    b->used = 0;
    ev.pulled.pull = p->id;
    ev.pulled.batch = b->number;
    ev.pulled.ok[0] = b->ok;
    if (tell && w->cfg.early && ticket_asked(w, d, p->id) && ticket_asked(w, d, p->id)->follow)
        follow_goes_on(w, d, p->id);
    if (tell)
        sim_step(w, d, &ev);
}

static void pull_break(struct sim *w, uint32_t d, struct pull *p, enum tern_err err)
{
    struct event ev = {.kind = EV_PULL_BROKEN};

    if (p->broken)
        return;
    p->broken = 1;
    ev.broken.pull = p->id;
    ev.broken.err = err;
    TRACE("  daemon %u: the data path of pull %u.%u breaks\n", d, p->id.slot, p->id.gen);
    sim_step(w, d, &ev);
}

/* What the source's data path sends for one page: only what is committed, sealed and of the
 * generation asked for. */
static bool source_page(struct sim *w, uint32_t s, const struct pull *p, const struct batch *b,
                        uint32_t i, uint32_t *ret_pool, uint32_t *ret_granule, uint32_t *ret_record)
{
    const struct serve *serve = serve_by_id(w, s, p->serve);
    enum tern_err err = core_serve_page(w->d[s].core, p->serve, b->group[i], b->ref[i], ret_record);
    struct granule *g;

    if (err != TERN_OK || p->source_incarnation != w->d[s].incarnation) {
        TRACE("  daemon %u does not send group %u index %u for serve %u.%u: err %u\n", s,
              b->group[i], b->ref[i].index, p->serve.slot, p->serve.gen, err);
        return false;
    }
    EXPECT(serve && serve->pool != NO, "served_unknown", "serve %u.%u was never started",
           p->serve.slot, p->serve.gen);
    EXPECT(*ret_record < RECORDS && w->d[s].sum_known[*ret_record], "served_unsealed", "record %u",
           *ret_record);
    g = page_granule(w, s, serve->pool, b->group[i], b->ref[i].index);
    EXPECT((g->own == OWN_CHUNK || g->own == OWN_STATE || g->verified ||
            (g->own == OWN_SESSION && ticket_serves(w, s, p->serve, g))) &&
               g->gen == b->ref[i].gen,
           "served_foreign_page",
           "group %u index %u generation %u: that page is now of kind %u, generation %u",
           b->group[i], b->ref[i].index, b->ref[i].gen, g->own, g->gen);
    EXPECT(w->d[s].pool[serve->pool].ranks == w->d[1 - s].pool[p->pool].ranks, "served_other_world",
           "%u regions for %u", w->d[s].pool[serve->pool].ranks, w->d[1 - s].pool[p->pool].ranks);
    *ret_pool = serve->pool;
    *ret_granule = at_of(w, s, serve->pool, g);
    for (uint32_t r = 0; r < w->d[s].pool[serve->pool].ranks; r++)
        EXPECT(memcmp(&w->d[s].sum[*ret_record][r], tag_at(w, s, serve->pool, r, *ret_granule),
                      w->page_tokens[b->group[i]] * sizeof(uint32_t)) == 0,
               "served_torn", "record %u: the page is not what its checksum says", *ret_record);
    return true;
}

/* One page arrives. False: the source refused it. */
static bool page_move(struct sim *w, uint32_t d, struct pull *p, struct batch *b, uint32_t i,
                      bool corrupt)
{
    uint32_t s = 1 - d, sp, sg, record;
    uint32_t ranks = w->d[d].pool[p->pool].ranks, flip = corrupt ? pick(w, ranks) : NO;

    if (p->disk) {
        disk_page_move(w, d, p, b, i, corrupt);
        return true;
    }
    if (!source_page(w, s, p, b, i, &sp, &sg, &record))
        return false;
    for (uint32_t r = 0; r < ranks; r++) {
        for (uint32_t k = 0; k < w->page_granules[b->group[i]]; k++)
            *tag_at(w, d, p->pool, r, b->granule[i] + k) = *tag_at(w, s, sp, r, sg + k);
        w->d[d].sum[b->record[i]][r] = w->d[s].sum[record][r];
    }
    w->d[d].sum_known[b->record[i]] = 1;
    if (corrupt) {
        tag_at(w, d, p->pool, flip, b->granule[i])->v[pick(w, w->page_tokens[b->group[i]])] ^=
            1u << pick(w, 32);
        FAULT(page_corrupt);
    } else {
        b->ok |= 1ull << i;
    }
    b->seen[i] = 1;
    b->moved++;
    if (p->stopping)
        FAULT(late_receive);
    return true;
}

static struct pull *pull_choose(struct sim *w, uint32_t d, bool stopping)
{
    uint32_t at = pick(w, PULLS * 2);

    for (uint32_t i = 0; i < PULLS * 2 && w->d[d].npulls > 0; i++, at = (at + 1) % (PULLS * 2)) {
        struct pull *p = &w->d[d].pull[at];

        if (p->used && (stopping ? p->stopping : in_flight(p)))
            return p;
    }
    return NULL;
}

void data_move(struct sim *w, uint32_t d, bool corrupt)
{
    struct pull *p = pull_choose(w, d, false);
    uint32_t at = pick(w, BATCHES), n;
    struct batch *b;

    if (!p)
        return;
    while (!p->batch[at].used)
        at = (at + 1) % BATCHES;
    b = &p->batch[at];
    n = chance(w, 60) ? b->n : 1 + pick(w, b->n);
    for (uint32_t i = 0; i < b->n && n > 0; i++) {
        if (b->seen[i])
            continue;
        n--;
        if (!page_move(w, d, p, b, i, corrupt && chance(w, 60))) {
            if (p->stopping)
                return;
            pull_break(w, d, p, TERN_GONE);
            return;
        }
    }
    if (b->moved == b->n && !p->broken && (!p->stopping || chance(w, 30)))
        batch_done(w, d, p, b, true);
}

void data_break(struct sim *w, uint32_t d)
{
    struct pull *p = pull_choose(w, d, false);

    if (!p || p->stopping || p->broken)
        return;
    FAULT(pull_broken);
    disk_read_broke(w, d, p->disk);
    pull_break(w, d, p, p->disk ? TERN_DISK : TERN_PEER_LOST);
}

static void quiet_pull(struct sim *w, uint32_t d, struct pull *p)
{
    struct event ev = {.kind = EV_PULL_QUIET};
    struct granule *g = w->d[d].granule[tenant_of(w, d, p->pool)];
    uint32_t slot = (uint32_t)(p - w->d[d].pull);
    bool held = in_flight(p);

    for (uint32_t i = 0; i < BATCHES; i++)
        if (p->batch[i].used)
            batch_done(w, d, p, &p->batch[i], false);
    for (uint32_t i = 0; i < w->granules; i++)
        if ((g[i].own == OWN_ORPHAN || g[i].own == OWN_PULL) && g[i].owner == slot) {
            g[i].own = g[i].verified && (p->orphaned || !p->over) ? OWN_ORPHAN : OWN_FREE;
            g[i].owner = NO; /* the next transfer in this slot is another one */
        }
    if (held)
        MARK(quarantine_then_quiet);
    ev.pull_quiet.pull = p->id;
    p->stopping = 0;
    w->d[d].npulls--;
    p->used = 0; /* over: the core stops a pull when it answers */
    TRACE("  daemon %u: pull %u.%u is quiet\n", d, p->id.slot, p->id.gen);
    sim_step(w, d, &ev);
}

/* --- proofs --- */

void data_quiet(struct sim *w, uint32_t d)
{
    struct pull *p = pull_choose(w, d, true);
    uint32_t at = pick(w, SERVES * 2);

    if (p && chance(w, 60)) {
        quiet_pull(w, d, p);
        return;
    }
    for (uint32_t i = 0; i < SERVES * 2; i++, at = (at + 1) % (SERVES * 2))
        if (w->d[d].serve[at].used && w->d[d].serve[at].stopping) {
            quiet_serve(w, d, &w->d[d].serve[at]);
            return;
        }
    if (p)
        quiet_pull(w, d, p);
}

uint32_t data_pending(struct sim *w, uint32_t d)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < PULLS * 2; i++)
        n += w->d[d].pull[i].used &&
             (w->d[d].pull[i].stopping || (in_flight(&w->d[d].pull[i]) && !w->d[d].pull[i].broken));
    for (uint32_t i = 0; i < SERVES * 2; i++)
        n += w->d[d].serve[i].used && w->d[d].serve[i].stopping;
    return n;
}
