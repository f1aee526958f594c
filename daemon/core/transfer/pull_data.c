/* The pages of transfers in: requested in batches within the limits of X8, checked in as they
 * arrive. pulls.c has a transfer's record; fetch/fetch_publish.c publishes what arrived. */
#include "core/transfer/pulls.h"

#include "core/arena/actions.h"
#include "core/disk/entries.h"
#include "core/memory/pages.h"
#include "core/tree/nodes.h"
#include "core/tree/state.h"

/* --- the extents of transfers in from this daemon's own disk --- */

/* Gives each reserved page its chunk, and its number in its group's segment, from 1, in place of a
 * peer's page. */
void pull_told_disk(struct core *c, struct pull *p)
{
    const struct pool *pool = pool_at(c, p->pool);

    for (uint32_t g = 0; g < pool->ngroups; g++) {
        uint32_t at = page_list_last(c, &p->pages[g]), chunk = p->chunk,
                 left = pool->group[g].segment;

        for (; at != NONE; at = page_list_before(c, &p->pages[g], at)) {
            page_at(c, at)->source = (struct page_ref){.index = chunk, .gen = left};
            page_at(c, at)->named = 1;
            if (--left > 0)
                continue;
            left = pool->group[g].segment;
            chunk = disk_chunk_at(c, chunk)->parent;
        }
    }
    p->told = p->to;
    touch(c);
}

/* Finds the `number`-th page of the group's segment in its extent. */
static void find(const struct core *c, const struct pool *pool, uint32_t group, struct page_ref at,
                 struct disk_page *ret)
{
    const struct disk_chunk *k = disk_chunk_at(c, at.index);
    enum disk_part part = group_is_state(&pool->group[group]) ? DISK_STATE : DISK_HISTORY;

    *ret = (struct disk_page){.zero = 0};
    check(k->kept & DISK_HAS(part) && k->part[part].groups & 1u << group);
    disk_extent_of(c, at.index, part, &k->part[part], &ret->extent);
    ret->body_at = disk_meta_bytes(&ret->extent);
    for (uint32_t g = 0; g <= group; g++) {
        const struct group *of = &pool->group[g];
        uint32_t pages = g < group ? of->segment : at.gen - 1;

        if (!(k->part[part].groups & 1u << g))
            continue;
        ret->body_at += pages * of->layout.page_bytes * pool->transfer_regions;
        ret->sum_at += pages * of->layout.units * pool->transfer_regions;
    }
}

/* Returns the locations of a batch's n pages, in `out`. Requires room. */
static const struct disk_page *disk_from(const struct core *c, struct actions *out,
                                         const struct pull *p, const struct page_at *pages,
                                         const struct page_ref *refs, uint32_t n)
{
    struct disk_page *from = out->reads + out->nreads;

    for (uint32_t i = 0; i < n; i++)
        find(c, pool_at(c, p->pool), pages[i].group, refs[i], &from[i]);
    out->nreads += n;
    return from;
}

/* Every read of this page differed from what was written. STATE rewritten since the transfer began
 * is exempt: it may have been read at its former place. */
static void disk_bad(struct core *c, const struct pull *p, const struct page *pg)
{
    const struct disk_chunk *k = disk_chunk_at(c, pg->source.index);

    if (k->renewed_ns >= p->started_ns && group_is_state(&pool_at(c, p->pool)->group[pg->group]))
        return;
    disk_chunk_bad(c, pg->source.index);
}

/* --- arrival --- */

void pull_chunk_pages(const struct pool *pool, const struct pull *p, uint32_t depth,
                      uint32_t ret_pages[GROUPS_MAX])
{
    const struct transfer_span span = {p->from, p->history, p->to};

    for (uint32_t i = 0; i < pool->ngroups; i++) {
        const struct group *g = &pool->group[i];
        struct transfer_range range = transfer_pages(pool, g, span);

        ret_pages[i] = depth > range.below ? segment_end(g, depth) - p->base[i] : 0;
    }
}

bool pull_chunk_verified(const struct core *c, const struct pull *p, uint32_t depth)
{
    const struct pool *pool = pool_at(c, p->pool);
    uint32_t pages[GROUPS_MAX];

    pull_chunk_pages(pool, p, depth, pages);
    for (uint32_t g = 0; g < pool->ngroups; g++) {
        uint32_t at = p->pages[g].head;

        for (uint32_t n = pages[g]; n > 0; n--, at = page_list_next(c, at))
            if (at == NONE || page_at(c, at)->state != PAGE_VERIFIED)
                return false;
    }
    return true;
}

/* The bytes of one span, in all regions that a transfer moves; 0 for group NONE. */
static uint64_t span_bytes(const struct core *c, const struct pull *p, uint32_t group)
{
    if (group == NONE)
        return 0;
    return pool_at(c, p->pool)->group[group].layout.page_bytes * p->transfer_regions *
           pull_span_shape(c, p, group).ours;
}

static void bytes_arrived(const struct core *c, struct pull *p, uint64_t bytes)
{
    p->arrived_bytes += bytes;
    rate_add(&p->rate, c->now_ns, bytes);
}

/* `record` is the first page of its span. */
static void span_arrived(struct core *c, struct pull *p, uint32_t record, bool ok)
{
    struct page *pg = page_at(c, record);

    if (ok) {
        const uint32_t pages = pull_span_shape(c, p, pg->group).ours;

        for (uint32_t i = 0, at = record; i < pages; i++, at = page_list_next(c, at))
            page_move(c, page_at(c, at), PAGE_VERIFIED, pg->owner);
        p->done_pages += pages;
        c->counts.pages_pulled += pages;
        return;
    }
    c->counts.corrupt_detected++;
    if (++pg->tries >= PULL_TRIES_MAX) {
        if (p->chunk != NONE)
            disk_bad(c, p, pg);
        pull_set_ending(c, p, TERN_CORRUPT);
        return;
    }
    pg->chain = p->retry;
    p->retry = record;
}

struct pull *pull_check_in(struct core *c, const struct event *ev)
{
    struct pull *p = pull_find(c, ev->pulled.pull);
    struct pull_batch *b = NULL;

    if (!p || p->state != PULL_RUNNING)
        return NULL;
    for (uint32_t i = 0; i < PULL_BATCHES_MAX && !b; i++)
        if (p->batch[i].used && p->batch[i].no == ev->pulled.batch)
            b = &p->batch[i];
    if (!b)
        return NULL;
    for (uint32_t i = 0, at = b->head, next; i < b->n; i++, at = next) {
        const bool ok = ev->pulled.ok[i / 64] >> (i % 64) & 1;

        next = page_at(c, at)->chain;
        page_at(c, at)->chain = NONE;
        if (ok)
            bytes_arrived(c, p, span_bytes(c, p, page_at(c, at)->group));
        span_arrived(c, p, at, ok);
    }
    if (p->done_pages == p->told_pages)
        pull_time(c, p);
    pull_bytes_add(c, p, -b->bytes);
    tenant_at(c, p->tenant)->batches--;
    p->batches--;
    b->used = 0;
    touch(c);
    return p->state == PULL_RUNNING ? p : NULL;
}

/* --- requests for pages --- */

/* Returns true if the group has a page to request that the source has named. */
static bool group_has_next(const struct core *c, const struct pull *p, uint32_t g)
{
    return p->cursor[g] != NONE && page_at(c, p->cursor[g])->named;
}

static uint32_t next_group(const struct core *c, const struct pull *p)
{
    const struct pool *pool = pool_at(c, p->pool);

    if (p->cursor_left > 0 && group_has_next(c, p, p->cursor_group))
        return p->cursor_group;
    for (uint32_t i = 1; i <= pool->ngroups; i++) {
        uint32_t g = (p->cursor_group + i) % pool->ngroups;

        if (group_has_next(c, p, g))
            return g;
    }
    return NONE;
}

/* Returns the first page of the next span. Spans go chunk by chunk: the first chunk can be
 * published while the last is in flight. */
static uint32_t next_page(const struct core *c, struct pull *p)
{
    const struct pool *pool = pool_at(c, p->pool);
    uint32_t record = p->retry, g, pages;

    if (record != NONE) {
        p->retry = page_at(c, record)->chain;
        page_at(c, record)->chain = NONE;
        return record;
    }
    g = next_group(c, p);
    check(g != NONE);
    if (p->cursor_left == 0 || g != p->cursor_group)
        p->cursor_left = pool->group[g].segment;
    p->cursor_group = g;
    record = p->cursor[g];
    pages = pull_span_shape(c, p, g).ours;
    p->cursor[g] = pull_span_after(c, p, record);
    p->cursor_left -= p->cursor_left < pages ? p->cursor_left : pages;
    return record;
}

/* Group of the page that next_page would return; NONE: no page is left. */
static uint32_t group_wanted(const struct core *c, const struct pull *p)
{
    return p->retry == NONE ? next_group(c, p) : page_at(c, p->retry)->group;
}

/* Bytes of the next span; 0: none is left. */
static uint64_t next_bytes(const struct core *c, const struct pull *p)
{
    return span_bytes(c, p, group_wanted(c, p));
}

/* X8: bytes that may still be requested. */
struct pull_room {
    uint64_t link, tenant, flow;
};

/* Order of a tenant's transfers: first a prefetch that is due, since enough batches in a row were
 * none; then transfers that a decode waits for; then other prefetches. */
enum rank { RANK_DUE, RANK_URGENT, RANK_LATE };

static enum rank rank_of(const struct core *c, const struct pull *p)
{
    uint32_t every = c->limits.prefetch_every ? c->limits.prefetch_every : PREFETCH_EVERY;

    if (!p->prefetch)
        return RANK_URGENT;
    return tenant_at(c, p->tenant)->urgent_run + 1 >= every ? RANK_DUE : RANK_LATE;
}

/* A limit in bytes, the bytes in flight under it, and those of the next span. */
struct pull_limit {
    uint64_t bytes, in_flight, next;
};

/* Rest of the limit, less a part that prefetches may not use. Only a span larger than the limit
 * exceeds it, when nothing else is in flight under the limit. */
static uint64_t bytes_left(enum rank rank, struct pull_limit l)
{
    if (rank == RANK_LATE)
        l.bytes -= l.bytes / PREFETCH_LEAVES;
    if (l.in_flight == 0)
        return l.bytes > l.next ? l.bytes : l.next;
    return l.bytes > l.in_flight ? l.bytes - l.in_flight : 0;
}

static struct pull_room room_of(const struct core *c, const struct pull *p)
{
    const struct core_limits *limits = &c->limits;
    const uint64_t next = next_bytes(c, p), flow = limits->flow_bytes_in_flight;
    const enum rank rank = rank_of(c, p);

    return (struct pull_room){
        .link = bytes_left(rank, (struct pull_limit){limits->peer_bytes_in_flight,
                                                     link_at(c, p->link)->bytes_in_flight, next}),
        .tenant =
            bytes_left(rank, (struct pull_limit){limits->tenant_bytes_in_flight,
                                                 tenant_at(c, p->tenant)->bytes_in_flight, next}),
        .flow = bytes_left(rank, (struct pull_limit){flow ? flow : UINT64_MAX,
                                                     flow_at(c, p->holder)->bytes_in_flight, next}),
    };
}

/* Contents of a batch: local pages, and pages of the source. */
struct filled {
    uint32_t pages, theirs;
};

/* Adds the span that begins with the page. */
static void batch_add(struct core *c, struct actions *out, const struct pull *p,
                      struct pull_batch *b, uint32_t record, struct filled *io)
{
    const struct pull_span span = pull_span_at(c, p, record);

    for (uint32_t i = 0, at = record; i < span.pages; i++, at = page_list_next(c, at))
        out->pages[out->npages + io->pages++] = page_place(c, at);
    out->refs[out->nrefs + b->n] = page_at(c, record)->source;
    out->spans[out->nspans + b->n] = span;
    io->theirs += span.n;
    b->n++;
}

/* Returns true if the next span fits into the allowance and into a batch. */
static bool batch_takes(const struct core *c, const struct pull *p, const struct pull_batch *b,
                        const struct filled *f, uint64_t allowed)
{
    const uint32_t group = group_wanted(c, p);
    struct span_shape next;

    if (group == NONE)
        return false;
    next = pull_span_shape(c, p, group);
    return f->pages + next.ours <= PULL_BATCH_PAGES &&
           f->theirs + next.theirs <= PULL_BATCH_PAGES && b->bytes + next_bytes(c, p) <= allowed;
}

static bool in_spans(const struct core *c, const struct pull *p)
{
    for (uint32_t g = 0; g < pool_at(c, p->pool)->ngroups; g++) {
        const struct span_shape shape = pull_span_shape(c, p, g);

        if (shape.ours > 1 || shape.theirs > 1)
            return true;
    }
    return false;
}

static void issue_batch(struct core *c, struct actions *out, struct pull *p, struct pull_batch *b,
                        uint64_t allowed)
{
    struct action *a = action_add(out, ACT_PULL);
    struct page_at *pages = out->pages + out->npages;
    struct page_ref *refs = out->refs + out->nrefs;
    struct filled f = {0};
    uint32_t last = NONE;

    b->n = 0;
    b->bytes = 0;
    b->head = NONE;
    while (batch_takes(c, p, b, &f, allowed)) {
        const uint32_t record = next_page(c, p);

        b->bytes += span_bytes(c, p, page_at(c, record)->group);
        if (last == NONE)
            b->head = record;
        else
            page_at(c, last)->chain = record;
        last = record;
        batch_add(c, out, p, b, record, &f);
    }
    b->used = 1;
    b->no = p->next_batch++;
    p->asked_pages += f.pages;
    p->asked_bytes += b->bytes;
    if (in_spans(c, p))
        a->pull.spans = out->spans + out->nspans;
    out->npages += f.pages;
    out->nrefs += b->n;
    out->nspans += b->n;
    pull_bytes_add(c, p, b->bytes);
    tenant_at(c, p->tenant)->batches++;
    p->batches++;
    a->pull.pull = pull_id(c, p);
    a->pull.serve = p->serve;
    a->pull.link = p->link;
    a->pull.pool = p->pool;
    a->pull.batch = b->no;
    a->pull.layout_hash = p->layout_hash;
    a->pull.prefetch = p->prefetch;
    a->pull.n = b->n;
    a->pull.pages = pages;
    a->pull.refs = refs;
    if (p->chunk != NONE)
        a->pull.from = disk_from(c, out, p, pages, refs, b->n);
    touch(c);
}

/* pulls_issue has already let every eligible pull request all that it can. */
bool pull_lacks_credit(const struct core *c, const struct pull *p)
{
    if (p->state != PULL_RUNNING || next_bytes(c, p) == 0)
        return false;
    for (uint32_t i = 0; i < PULL_BATCHES_MAX; i++)
        if (!p->batch[i].used)
            return true;
    return false;
}

/* --- order of transfers --- */

/* If its tenant has all its batches, the end of one gives the next in turn. */
static struct pull_batch *batch_unused(const struct core *c, struct pull *p)
{
    uint32_t most = c->limits.tenant_batches;

    if (rank_of(c, p) == RANK_LATE)
        most -= most / PREFETCH_LEAVES;
    if (most > 0 && tenant_at(c, p->tenant)->batches >= most)
        return NULL;
    for (uint32_t i = 0; i < PULL_BATCHES_MAX; i++)
        if (!p->batch[i].used)
            return &p->batch[i];
    return NULL;
}

/* Turns in a circle: who had the last turn, and the number of participants. */
struct turns {
    uint32_t last, n;
};

/* Number of turns before that of `who`: none if it follows the last one. */
static uint32_t turns_before(struct turns t, uint32_t who)
{
    return (who + t.n - 1 - t.last) % t.n;
}

static uint64_t turn_of(const struct core *c, const struct pull *p)
{
    struct turns tenants = {c->pull_turn, c->limits.tenants},
                 links = {tenant_at(c, p->tenant)->pull_turn, c->limits.links + 1};

    return (uint64_t)turns_before(tenants, p->tenant) << 34 | (uint64_t)rank_of(c, p) << 32 |
           turns_before(links, p->link);
}

/* Returns true if the transfer may request its next page. If not, the present room is reserved for
 * it: transfers that began later do not use that room. If its tenant has too much in flight from
 * its source, others continue: so a slow source never takes more than its part. */
static bool room_for_next(struct core *c, const struct pull *p)
{
    struct pull_room room = room_of(c, p);
    struct link *link = link_at(c, p->link);
    struct tenant *tenant = tenant_at(c, p->tenant);
    struct flow *flow = flow_at(c, p->holder);
    uint64_t next = next_bytes(c, p);

    if (flow->room_kept)
        return false;
    flow->room_kept = next > room.flow;
    if (flow->room_kept || link->room_kept || tenant->room_kept)
        return false;
    link->room_kept = next > room.link;
    tenant->room_kept = next > room.tenant;
    return !link->room_kept && !tenant->room_kept;
}

/* The first in turn of `first` and of that rank's transfers that may request something. */
static struct pull *first_of(struct core *c, enum rank rank, struct pull *first)
{
    for (uint32_t i = c->pulls_active.head; i != NONE; i = pull_list_next(c, i)) {
        struct pull *p = pull_at(c, i);

        if (p->state != PULL_RUNNING || rank_of(c, p) != rank || !batch_unused(c, p) ||
            next_bytes(c, p) == 0 || !room_for_next(c, p))
            continue;
        if (!first || turn_of(c, p) < turn_of(c, first))
            first = p;
    }
    return first;
}

/* The next transfer to request pages: tenants in turn; within a tenant transfers that a decode
 * waits for before prefetches; then the tenant's peers in turn, and for a tenant and a peer the
 * transfer that began first. Prefetches leave room that an urgent transfer waits for, and urgent
 * ones leave room that a due prefetch waits for: their pages may be smaller than its next. NULL:
 * none may request anything. */
static struct pull *pull_whose_turn(struct core *c)
{
    for (uint32_t i = c->pulls_active.head; i != NONE; i = pull_list_next(c, i)) {
        link_at(c, pull_at(c, i)->link)->room_kept = 0;
        tenant_at(c, pull_at(c, i)->tenant)->room_kept = 0;
        flow_at(c, pull_at(c, i)->holder)->room_kept = 0;
    }
    return first_of(c, RANK_LATE, first_of(c, RANK_URGENT, first_of(c, RANK_DUE, NULL)));
}

/* The pull's tenant and, within the tenant, its source had their turn. */
static void turn_taken(struct core *c, const struct pull *p)
{
    struct tenant *t = tenant_at(c, p->tenant);

    c->pull_turn = p->tenant;
    t->pull_turn = p->link;
    if (p->prefetch)
        t->urgent_run = 0;
    else if (t->urgent_run < UINT32_MAX)
        t->urgent_run++;
}

bool pulls_issue(struct core *c, struct actions *out)
{
    struct pull *p;

    while ((p = pull_whose_turn(c)) != NULL) {
        struct pull_room room = room_of(c, p);

        if (actions_room(out) == 0 ||
            !refs_fit(out, (struct runs_wanted){.refs = PULL_BATCH_PAGES}) ||
            out->nreads + PULL_BATCH_PAGES > sizeof out->reads / sizeof out->reads[0] ||
            out->nspans + PULL_BATCH_PAGES > sizeof out->spans / sizeof out->spans[0] ||
            out->npages + PULL_BATCH_PAGES > sizeof out->pages / sizeof out->pages[0])
            return false;
        if (room.link > room.tenant)
            room.link = room.tenant;
        issue_batch(c, out, p, batch_unused(c, p), room.link < room.flow ? room.link : room.flow);
        turn_taken(c, p);
    }
    return true;
}
