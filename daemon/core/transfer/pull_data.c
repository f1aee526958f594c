/* The pages of transfers in: asked for in batches within the limits of X8, checked in as they
 * arrive, published chunk by chunk in order (X3). Beginning and ending are in pulls.c. */
#include "core/arena/machine.h"
#include "core/tree/state.h"

/* --- arriving and publishing --- */

static bool chunk_has(const struct pool *pool, const struct pull *p, uint32_t group, uint32_t depth)
{
    return depth > transfer_pages(pool, &pool->group[group],
                                  (struct transfer_span){p->from, p->history, p->to})
                       .below;
}

/* Are all pages of the chunk that ends at `depth` here? */
static bool chunk_verified(const struct core *c, const struct pull *p, uint32_t depth)
{
    const struct pool *pool = pool_at(c, p->pool);

    for (uint32_t g = 0; g < pool->ngroups; g++) {
        uint32_t at = p->pages[g].head;

        for (uint32_t i = 0; chunk_has(pool, p, g, depth) && i < pool->group[g].segment;
             i++, at = page_list_next(c, at))
            if (at == NONE || page_at(c, at)->state != PAGE_VERIFIED)
                return false;
    }
    return true;
}

/* Another engine is about to publish this very chunk: what arrived becomes the session's own,
 * uncommitted. */
static void chunk_own(struct core *c, struct pull *p, struct session *s)
{
    const struct pool *pool = pool_at(c, p->pool);

    for (uint32_t g = 0; g < pool->ngroups; g++) {
        if (!chunk_has(pool, p, g, s->allocated + pool->align))
            continue;
        if (s->owned[g].n == 0)
            s->base[g] = p->base[g];
        for (uint32_t i = 0; i < pool->group[g].segment; i++) {
            uint32_t record = page_list_pop(c, &p->pages[g]);

            page_move(c, page_at(c, record), PAGE_OWNED, session_slot(c, s));
            page_list_push(c, &s->owned[g], record);
        }
    }
    p->owning = 1;
    s->written = s->allocated = s->allocated + pool->align;
}

void pull_publish(struct core *c, struct pull *p)
{
    struct session *s = session_at(c, p->session);
    struct engine *e = engine_at(c, s->engine);

    while (s->allocated < p->to &&
           chunk_verified(c, p, s->allocated + pool_at(c, p->pool)->align)) {
        struct list duplicates;
        uint32_t pending = NONE;
        uint64_t step = 0;
        struct chunk_source src = {.pages = p->pages,
                                   .base = p->base,
                                   .duplicates = &duplicates,
                                   .pending = &pending,
                                   .step = &step,
                                   .state_at = p->to,
                                   .arriving = true};
        enum tern_err err = TERN_GONE;
        bool adopted = false;

        duplicates = LIST_EMPTY;
        if (c->free_retires.n == 0 && !node_visible(node_at(c, s->node))) {
            pull_doom(c, p, TERN_BUSY);
            return;
        }
        if (!p->owning)
            err = chunk_attach(c, s, &src, &adopted);
        if (err == TERN_GONE) {
            chunk_own(c, p, s);
            continue;
        }
        if (err != TERN_OK) {
            pull_doom(c, p, err);
            return;
        }
        s->written = s->allocated = s->committed;
        for (uint32_t g = 0; g < pool_at(c, p->pool)->ngroups; g++)
            s->base[g] = s->committed / pool_at(c, p->pool)->group[g].layout.page_tokens;
        c->dup_chunks += adopted;
        pages_free(c, &duplicates); /* verified copies that no engine has seen */
        retire_publish(c, e, step, pending);
    }
    if (s->allocated < p->to)
        return;
    if (s->committed == p->to && state_resumable(c, s->node)) /* else it steps back from there */
        state_terminal(c, s->node);
    pull_doom(c, p, TERN_OK);
}

static void page_arrived(struct core *c, struct pull *p, uint32_t record, bool ok)
{
    struct page *pg = page_at(c, record);

    if (ok) {
        page_move(c, pg, PAGE_VERIFIED, pg->owner);
        p->done_pages++;
        p->arrived_bytes +=
            pool_at(c, p->pool)->group[pg->group].layout.page_bytes * p->transfer_regions;
        c->pages_pulled++;
        return;
    }
    c->corrupt_detected++;
    if (++pg->tries >= PULL_TRIES_MAX) {
        pull_doom(c, p, TERN_CORRUPT);
        return;
    }
    pg->chain = p->retry;
    p->retry = record;
}

void pull_arrived(struct core *c, const struct event *ev)
{
    struct pull *p = pull_find(c, ev->pulled.pull);
    struct batch *b = NULL;

    if (!p || p->state != PULL_RUNNING || p->ending)
        return;
    for (uint32_t i = 0; i < PULL_BATCHES_MAX && !b; i++)
        if (p->batch[i].used && p->batch[i].no == ev->pulled.batch)
            b = &p->batch[i];
    if (!b)
        return;
    for (uint32_t i = 0, at = b->head, next; i < b->n; i++, at = next) {
        next = page_at(c, at)->chain;
        page_at(c, at)->chain = NONE;
        page_arrived(c, p, at, ev->pulled.ok[i / 64] >> (i % 64) & 1);
    }
    link_at(c, p->link)->bytes_in_flight -= b->bytes;
    tenant_at(c, p->tenant)->bytes_in_flight -= b->bytes;
    b->used = 0;
    touch(c);
    if (!p->ending)
        pull_publish(c, p);
}

/* --- asking for pages --- */

static uint32_t next_group(const struct pool *pool, const struct pull *p)
{
    if (p->cursor_left > 0 && p->cursor[p->cursor_group] != NONE)
        return p->cursor_group;
    for (uint32_t i = 1; i <= pool->ngroups; i++) {
        uint32_t g = (p->cursor_group + i) % pool->ngroups;

        if (p->cursor[g] != NONE)
            return g;
    }
    return NONE;
}

/* Chunk by chunk, so that the first can be published while the last is on its way. */
static uint32_t next_page(const struct core *c, struct pull *p)
{
    const struct pool *pool = pool_at(c, p->pool);
    uint32_t record = p->retry, g;

    if (record != NONE) {
        p->retry = page_at(c, record)->chain;
        page_at(c, record)->chain = NONE;
        return record;
    }
    g = next_group(pool, p);
    if (g == NONE)
        return NONE;
    if (p->cursor_left == 0 || g != p->cursor_group)
        p->cursor_left = pool->group[g].segment;
    p->cursor_group = g;
    record = p->cursor[g];
    p->cursor[p->cursor_group] = page_list_next(c, record);
    p->cursor_left--;
    return record;
}

/* Bytes of the page that next_page would give; 0 for none. */
static uint64_t next_bytes(const struct core *c, const struct pull *p)
{
    const struct pool *pool = pool_at(c, p->pool);
    uint32_t g = p->retry == NONE ? next_group(pool, p) : page_at(c, p->retry)->group;

    if (g == NONE)
        return 0;
    return pool->group[g].layout.page_bytes * p->transfer_regions;
}

/* X8, never exceeded but by one page that is larger than a limit: it goes alone. */
static uint64_t bytes_allowed(const struct core *c, const struct pull *p)
{
    uint64_t peer = link_at(c, p->link)->bytes_in_flight,
             tenant = tenant_at(c, p->tenant)->bytes_in_flight;
    uint64_t a = c->limits.peer_bytes_in_flight, b = c->limits.tenant_bytes_in_flight;

    a = a > peer ? a - peer : 0;
    b = b > tenant ? b - tenant : 0;
    a = a < b ? a : b;
    return peer == 0 && tenant == 0 && a < next_bytes(c, p) ? next_bytes(c, p) : a;
}

static void issue_batch(struct core *c, struct actions *out, struct pull *p, struct batch *b,
                        uint64_t allowed)
{
    const struct pool *pool = pool_at(c, p->pool);
    struct action *a = action_add(out, ACT_PULL);
    struct page_at *pages = out->pages + out->npages;
    struct page_ref *refs = out->refs + out->nrefs;
    uint32_t last = NONE, record;

    b->n = 0;
    b->bytes = 0;
    b->head = NONE;
    while (b->n < PULL_BATCH_PAGES && b->bytes + next_bytes(c, p) <= allowed &&
           (record = next_page(c, p)) != NONE) {
        struct page *pg = page_at(c, record);

        if (last == NONE)
            b->head = record;
        else
            page_at(c, last)->chain = record;
        last = record;
        pages[b->n] = (struct page_at){
            .group = pg->group, .index = pg->index, .gen = pg->gen, .record = record};
        refs[b->n++] = pg->source;
        b->bytes += pool->group[pg->group].layout.page_bytes * p->transfer_regions;
    }
    b->used = 1;
    b->no = p->next_batch++;
    out->npages += b->n;
    out->nrefs += b->n;
    link_at(c, p->link)->bytes_in_flight += b->bytes;
    tenant_at(c, p->tenant)->bytes_in_flight += b->bytes;
    a->pull.pull = pull_id(c, p);
    a->pull.serve = p->serve;
    a->pull.link = p->link;
    a->pull.pool = p->pool;
    a->pull.batch = b->no;
    a->pull.n = b->n;
    a->pull.pages = pages;
    a->pull.refs = refs;
    touch(c);
}

/* False: there is no room in `out` for what could be asked now. */
bool pull_issue(struct core *c, struct actions *out, struct pull *p)
{
    for (uint32_t i = 0; i < PULL_BATCHES_MAX; i++) {
        uint64_t next = next_bytes(c, p), allowed = bytes_allowed(c, p);

        if (p->batch[i].used)
            continue;
        if (next == 0 || next > allowed)
            return true;
        if (actions_room(out) == 0 || !refs_fit(out, 0, PULL_BATCH_PAGES) ||
            out->npages + PULL_BATCH_PAGES > sizeof out->pages / sizeof out->pages[0])
            return false;
        issue_batch(c, out, p, &p->batch[i], allowed);
    }
    return true;
}
