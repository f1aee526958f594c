/* The data path: pulls that write straight into the destination's pages. Bytes move at moments that
 * the simulator chooses; a receive that was posted may still write after a stop, until the proof
 * that it is quiet. The source's part is in serves.c. */
#include "data.h"
#include "disk.h"
#include "reshard.h"
#include "tickets.h"

#define PATH_DIES   15 /* of a hundred batches that have arrived in part */
#define SOURCE_LAGS 85 /* of a hundred times that a slow source could send */

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

/* The peer was asked for the transfer, perhaps again: then not before the time that the peer named,
 * and not too often. */
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
                                                             .order = msg->trace_id,
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

/* The peer's content is younger than this reset; what is fetched becomes content here. */
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

/* The peer has too few tokens and was not busy: it is asked again, but not at once. */
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

    if (a)
        a->said = msg->err;
    if (o && msg->err == TERN_BUSY)
        o->not_before = w->now + msg->retry_ms * MS;
    for (uint32_t i = 0; i < SESSIONS && msg->err == TERN_BUSY; i++)
        if (pull_id_equal(w->d[d].session[i].fetch_pull, msg->pull))
            w->d[d].session[i].fetch_source_busy = 1;
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

/* X8: a prefetch asks before a fetch that a decode waits for only after that many batches in a row
 * without a prefetch, and then it need not wait any longer. */
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

static struct pull *pull_by_id(struct sim *w, uint32_t d, struct pull_id id)
{
    for (uint32_t i = 0; i < PULLS * 2; i++)
        if (w->d[d].pull[i].used && pull_id_equal(w->d[d].pull[i].id, id))
            return &w->d[d].pull[i];
    return NULL;
}

/* A broken pull asks for nothing more until it is over. */
static bool pull_broke(struct sim *w, uint32_t d, struct pull_id id)
{
    const struct pull *p = pull_by_id(w, d, id);

    return p && p->broken;
}

/* X8: between two daemons a tenant's transfers are served in the order in which they began, those
 * that a decode waits for before prefetches. */
static void check_pull_order(struct sim *w, uint32_t d, struct pull_id id)
{
    const struct opened *mine = opened_of(w, d, id);

    EXPECT(mine, "pull_unopened", "pages asked for pull %u.%u, which is over", id.slot, id.gen);
    if (mine->disk)
        return; /* no message names its number of unasked pages */
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
        EXPECT(o->order > mine->order || o->unasked == 0 || batches_used(w, d, o->id) == BATCHES ||
                   pull_broke(w, d, o->id),
               "pull_overtakes", "pull %u.%u asks for pages before %u.%u, which began earlier",
               id.slot, id.gen, o->id.slot, o->id.gen);
    }
}

/* --- pulls --- */

/* A page of the source at the moment of sending. */
struct sent {
    uint32_t pool, granule, record;
};

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
    p->source_incarnation = w->d[sim_far(w, d)].incarnation;
    for (uint32_t i = 0; i < SESSIONS; i++)
        if (m->session[i].live && m->session[i].turn == TURN_FETCHING &&
            pull_id_equal(m->session[i].fetch_pull, p->id))
            p->space = m->session[i].space;
    m->pool[p->pool].evictions++; /* making room may have evicted */
    return p;
}

/* From now on the page may be written. */
static void batch_page(struct sim *w, uint32_t d, const struct pull *p, const struct page_at *at)
{
    struct granule *g = page_granule(w, d, p->pool, at->group, at->index);
    uint32_t slot = (uint32_t)(p - w->d[d].pull), granule = at_of(w, d, p->pool, g);
    struct page_ref ref = {.index = at->index, .gen = at->gen};

    EXPECT(at->record < RECORDS, "record", "record %u", at->record);
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
}

static void batch_span(struct sim *w, uint32_t d, struct pull *p, struct batch *b,
                       const struct action *act, uint32_t i)
{
    const struct page_at *at = &act->pull.pages[b->npages];
    const struct pull_span of = act->pull.spans ? act->pull.spans[i] : (struct pull_span){1, 0, 1};
    uint32_t pages = p->disk ? 1 : span_pages_at(w, d, at->group),
             there = p->disk ? 1 : span_pages_at(w, sim_far(w, d), at->group);

    EXPECT(of.pages == pages && of.n > 0 && of.first + of.n <= there, "span_shape",
           "group %u: %u pages for [%u, +%u) of the source's, a span is %u for %u", at->group,
           of.pages, of.first, of.n, pages, there);
    EXPECT(b->npages + pages <= BATCH_PAGES, "batch_pages", "more than %u", BATCH_PAGES);
    b->span[i] = (struct span){.at = b->npages,
                               .pages = of.pages,
                               .group = (uint8_t)at->group,
                               .first = of.first,
                               .n = of.n,
                               .ref = act->pull.refs[i]};
    for (uint32_t k = 0; k < pages; k++, at++, b->npages++) {
        EXPECT(at->group == b->span[i].group, "span_groups", "span %u is of two groups", i);
        batch_page(w, d, p, at);
        b->granule[b->npages] =
            (uint16_t)at_of(w, d, p->pool, page_granule(w, d, p->pool, at->group, at->index));
        b->record[b->npages] = (uint16_t)at->record;
        b->group[b->npages] = (uint8_t)at->group;
        if (pages == 1) /* of a span, some pages may belong to no engine */
            fetch_waits_page(w, d, p->id, at->group, (struct page_ref){at->index, at->gen});
    }
    if (p->disk)
        disk_batch_page(w, d, p, b, act, i);
}

static uint64_t batch_bytes(const struct sim *w, uint32_t d, const struct pull *p,
                            const struct batch *b)
{
    uint64_t n = 0;

    for (uint32_t i = 0; i < b->npages; i++)
        n += w->page_granules[b->group[i]] * GRANULE_BYTES;
    return n * pool_moves(w, (struct pool_at){d, p->pool});
}

/* Bytes and spans under way under one limit. */
struct in_flight {
    uint64_t bytes;
    uint32_t spans;
};

static void count_in_flight(struct in_flight *f, bool counts, uint64_t bytes, uint32_t spans)
{
    f->bytes += counts ? bytes : 0;
    f->spans += counts ? spans : 0;
}

/* A span that is larger than the limit moves alone. */
static void check_limit(struct sim *w, const char *name, const struct in_flight *f, uint64_t limit)
{
    EXPECT(f->spans == 1 || f->bytes <= limit, name, "%llu bytes in %u spans (limit %llu)",
           (unsigned long long)f->bytes, f->spans, (unsigned long long)limit);
}

/* X8: the bytes under way are within the limits. So are the batches; those of a stopped transfer
 * count until it is quiet. */
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
    if (w->limits.flow_bytes_in_flight > 0 && of_tenant.bytes > flow.bytes &&
        of_tenant.bytes - flow.bytes + GRANULE_BYTES > w->limits.flow_bytes_in_flight)
        MARK(source_full_beside_another);
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
    p->resharded = act->pull.layout_hash != 0;
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
    b->npages = b->moved = 0;
    b->ok = 0;
    for (uint32_t i = 0; i < act->pull.n; i++)
        batch_span(w, d, p, b, act, i);
    check_in_flight(w, d, tenant_of(w, d, p->pool), disk);
    TRACE("  daemon %u pulls %u pages, batch %u of %u.%u\n", d, act->pull.n, act->pull.batch,
          p->id.slot, p->id.gen);
}

void take_pull_stop(struct sim *w, uint32_t d, const struct action *act)
{
    struct pull *p = pull_by_id(w, d, act->pull_stop.pull);

    if (!p) { /* it asked for no page, but the core still wants the proof */
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

/* The fetch was answered, or nobody waits for it. Unpublished pages belong to the core again once
 * the pull is quiet. `orphaned`: no answer named how much was published. */
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
        for (uint32_t n = b->span[i].at; n < b->span[i].at + b->span[i].pages; n++)
            for (uint32_t k = 0; k < w->page_granules[b->group[n]]; k++) {
                struct granule *at = &g[b->granule[n] + k];

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
    if (err == TERN_GONE)
        ticket_page_refused(w, d, p->id);
    ev.broken.pull = p->id;
    ev.broken.err = err;
    TRACE("  daemon %u: the data path of pull %u.%u breaks\n", d, p->id.slot, p->id.gen);
    sim_step(w, d, &ev);
}

/* The page that the source's data path sends: only a committed, sealed one of the generation in the
 * request. */
static bool source_page(struct sim *w, uint32_t s, const struct pull *p, uint32_t group,
                        struct page_ref ref, struct sent *ret)
{
    const struct serve *serve = serve_by_id(w, s, p->serve);
    enum tern_err err = core_serve_page(w->d[s].core, p->serve, group, ref, &ret->record);
    struct granule *g;

    if (err != TERN_OK || p->source_incarnation != w->d[s].incarnation) {
        TRACE("  daemon %u does not send group %u index %u for serve %u.%u: err %u\n", s, group,
              ref.index, p->serve.slot, p->serve.gen, err);
        return false;
    }
    EXPECT(serve && serve->pool != NO, "served_unknown", "serve %u.%u was never started",
           p->serve.slot, p->serve.gen);
    EXPECT(ret->record < RECORDS && w->d[s].sum_known[ret->record], "served_unsealed", "record %u",
           ret->record);
    g = page_granule(w, s, serve->pool, group, ref.index);
    EXPECT((g->own == OWN_CHUNK || g->own == OWN_STATE || g->verified ||
            (g->own == OWN_SESSION && ticket_serves(w, s, p->serve, g))) &&
               g->gen == ref.gen,
           "served_foreign_page",
           "group %u index %u generation %u: that page is now of kind %u, generation %u", group,
           ref.index, ref.gen, g->own, g->gen);
    ret->pool = serve->pool;
    ret->granule = at_of(w, s, serve->pool, g);
    for (uint32_t r = 0; r < w->d[s].pool[serve->pool].ranks; r++)
        EXPECT(memcmp(&w->d[s].sum[ret->record][r], tag_at(w, s, serve->pool, r, ret->granule),
                      w->page_tokens[s][group] * sizeof(uint32_t)) == 0,
               "served_torn", "record %u: the page is not what its checksum says", ret->record);
    return true;
}

/* The existing pages of the source's part of the span. */
static bool source_span(struct sim *w, uint32_t s, const struct pull *p, const struct span *of,
                        struct sent sent[SLOTS])
{
    struct page_ref ref = of->ref;

    for (uint32_t k = of->first; k < of->first + of->n; k++) {
        if (k > of->first &&
            core_serve_next(w->d[s].core, p->serve, of->group, ref, &ref) != TERN_OK)
            return false;
        if (!source_page(w, s, p, of->group, ref, &sent[k]))
            return false;
    }
    return true;
}

/* Copies pages unchanged; when all ranks have equal data, from the first of them. */
static void page_copy(struct sim *w, uint32_t d, const struct pull *p, const struct batch *b,
                      uint32_t at, const struct sent *from)
{
    struct pool_at to = {d, p->pool};

    EXPECT(!w->cfg.own || from->pool != p->pool, "served_its_own", "pool %u fetches from itself",
           p->pool);
    EXPECT(w->d[sim_far(w, d)].pool[from->pool].ranks == w->d[d].pool[p->pool].ranks,
           "served_other_world", "%u regions for %u", w->d[sim_far(w, d)].pool[from->pool].ranks,
           w->d[d].pool[p->pool].ranks);
    for (uint32_t r = 0; r < w->d[d].pool[p->pool].ranks; r++)
        for (uint32_t k = 0; k < w->page_granules[b->group[at]]; k++)
            *tag_at(w, d, p->pool, r, b->granule[at] + k) =
                *tag_at(w, sim_far(w, d), from->pool, r % pool_moves(w, to), from->granule + k);
    for (uint32_t k = 0; k < w->page_granules[b->group[at]]; k++)
        w->d[d].granule[tenant_of(w, d, p->pool)][b->granule[at] + k].lacks =
            w->d[sim_far(w, d)]
                .granule[tenant_of(w, sim_far(w, d), from->pool)][from->granule]
                .lacks;
}

static void span_reshard(struct sim *w, uint32_t d, const struct pull *p, const struct batch *b,
                         const struct span *of, const struct sent sent[SLOTS])
{
    struct span_move m = {.from = {sim_far(w, d), sent[of->first].pool},
                          .to = {d, p->pool},
                          .group = of->group,
                          .number = b->number + of->at,
                          .first = of->first,
                          .n = of->n};

    for (uint32_t k = of->first; k < of->first + of->n; k++)
        m.there[k] = sent[k].granule;
    for (uint32_t k = 0; k < of->pages; k++)
        m.here[k] = b->granule[of->at + k];
    span_carry(w, &m);
}

/* Stores the checksums of the received bytes; only a later bit flip makes them wrong. */
static void span_sums(struct sim *w, uint32_t d, const struct pull *p, const struct batch *b,
                      const struct span *of)
{
    for (uint32_t at = of->at; at < of->at + of->pages; at++) {
        for (uint32_t r = 0; r < w->d[d].pool[p->pool].ranks; r++)
            w->d[d].sum[b->record[at]][r] = *tag_at(w, d, p->pool, r, b->granule[at]);
        w->d[d].sum_known[b->record[at]] = 1;
    }
}

static void span_spoil(struct sim *w, uint32_t d, const struct pull *p, const struct batch *b,
                       const struct span *of, uint32_t rank)
{
    uint32_t at = of->at + (of->pages > 1 ? pick(w, of->pages) : 0);

    tag_at(w, d, p->pool, rank, b->granule[at])->v[pick(w, w->page_tokens[d][of->group])] ^=
        1u << pick(w, 32);
    FAULT(page_corrupt);
}

/* One span arrives. Returns false if the source refused it. */
static bool span_move(struct sim *w, uint32_t d, struct pull *p, struct batch *b, uint32_t i,
                      bool corrupt)
{
    uint32_t flip = corrupt ? pick(w, w->d[d].pool[p->pool].ranks) : NO;
    struct span *of = &b->span[i];
    struct sent sent[SLOTS];

    if (p->disk) {
        disk_page_move(w, d, p, b, i, corrupt);
        return true;
    }
    if (!source_span(w, sim_far(w, d), p, of, sent))
        return false;
    EXPECT(pools_reshard(w, (struct pool_at){sim_far(w, d), sent[of->first].pool},
                         (struct pool_at){d, p->pool}) == (p->resharded != 0) &&
               p->resharded == serve_by_id(w, sim_far(w, d), p->serve)->resharded,
           "reshard_told", "pages go by a plan: %u here, %u there", p->resharded,
           serve_by_id(w, sim_far(w, d), p->serve)->resharded);
    if (p->resharded)
        span_reshard(w, d, p, b, of, sent);
    else
        page_copy(w, d, p, b, of->at, &sent[0]);
    span_sums(w, d, p, b, of);
    if (corrupt)
        span_spoil(w, d, p, b, of, flip);
    else
        b->ok |= 1ull << i;
    of->seen = 1;
    b->moved++;
    if (p->stopping)
        FAULT(late_receive);
    return true;
}

static bool moves(const struct sim *w, const struct pull *p)
{
    return in_flight(p) && (!p->silent || w->quiet_phase);
}

static struct pull *pull_choose(struct sim *w, uint32_t d, bool stopping)
{
    uint32_t at = pick(w, PULLS * 2);

    for (uint32_t i = 0; i < PULLS * 2 && w->d[d].npulls > 0; i++, at = (at + 1) % (PULLS * 2)) {
        struct pull *p = &w->d[d].pull[at];

        if (p->used && (stopping ? p->stopping : moves(w, p)))
            return p;
    }
    return NULL;
}

/* A path of several fails half way: its spans are requested on another one, and arrive once
 * more. */
static void path_lost(struct sim *w, const struct pull *p, struct batch *b)
{
    if (p->disk || p->stopping || p->broken || w->quiet_phase || !chance(w, PATH_DIES))
        return;
    for (uint32_t i = 0; i < b->n; i++)
        b->span[i].seen = 0;
    b->moved = 0;
    b->ok = 0;
    FAULT(path_lost);
    MARK(path_lost_half_way);
}

/* In some histories one of two sources is slow: its requests keep their part of the limits (X8),
 * and the other source continues. */
static bool lags(struct sim *w, const struct pull *p)
{
    return w->cfg.slow == (p->disk ? SLOW_DISK : SLOW_PEER) && !w->quiet_phase &&
           chance(w, SOURCE_LAGS);
}

void data_move(struct sim *w, uint32_t d, bool corrupt)
{
    struct pull *p = pull_choose(w, d, false);
    uint32_t at = pick(w, BATCHES), n;
    struct batch *b;

    if (!p || lags(w, p))
        return;
    while (!p->batch[at].used)
        at = (at + 1) % BATCHES;
    b = &p->batch[at];
    n = chance(w, 60) ? b->n : 1 + pick(w, b->n);
    for (uint32_t i = 0; i < b->n && n > 0; i++) {
        if (b->span[i].seen)
            continue;
        n--;
        if (!span_move(w, d, p, b, i, corrupt && chance(w, 60))) {
            if (p->stopping)
                return;
            pull_break(w, d, p, TERN_GONE);
            return;
        }
    }
    if (b->moved == b->n && !p->broken && (!p->stopping || chance(w, 30)))
        batch_done(w, d, p, b, true);
    else if (b->moved < b->n)
        path_lost(w, p, b);
}

/* Nothing more arrives: the transfer ends by its deadline, and delays no other. */
static void path_silent(struct sim *w, struct pull *p)
{
    p->silent = 1;
    FAULT(path_silent);
}

bool data_break(struct sim *w, uint32_t d)
{
    struct pull *p = pull_choose(w, d, false);

    if (!p || p->stopping || p->broken)
        return false;
    if (!p->disk && chance(w, 40)) {
        path_silent(w, p);
        return true;
    }
    FAULT(pull_broken);
    disk_read_broke(w, d, p->disk);
    pull_break(w, d, p, p->disk ? TERN_DISK : TERN_PEER_LOST);
    return false;
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
