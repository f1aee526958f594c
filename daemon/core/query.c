/* Read-only views. See query.h. */
#include "core/query.h"

#include <assert.h>
#include <string.h>

#include "core/disk/entries.h"
#include "core/memory/pages.h"
#include "core/session/engines.h"
#include "core/session/record.h"
#include "core/tree/nodes.h"
#include "core/tree/state.h"

static void group_fill(const struct pool *p, uint32_t g, struct group_view *ret)
{
    const struct group *gr = &p->group[g];

    ret->layout = gr->layout;
    ret->total = group_total(p, g);
    ret->free = group_free(p, g);
    ret->leased = gr->count[PAGE_LEASED];
    ret->session = gr->count[PAGE_OWNED];
    ret->ticket = gr->count[PAGE_HANDED];
    ret->snapshot = gr->count[PAGE_COMMITTED] - gr->reclaimable;
    ret->reclaimable = gr->reclaimable;
    ret->evictable = gr->obtainable;
    ret->transfer = gr->count[PAGE_RESERVED] + gr->count[PAGE_VERIFIED] + gr->count[PAGE_COPYING];
    ret->retiring = gr->count[PAGE_RETIRING];
    ret->quarantine = gr->count[PAGE_QUARANTINE];
    ret->peak_session = gr->peak_owned;
    ret->peak_snapshot = gr->peak_committed;
    if (p->state == POOL_ZEROING) {
        ret->zeroing = ret->free;
        ret->free = 0;
    }
}

bool core_pool_view(const struct core *c, uint32_t slot, struct pool_view *ret)
{
    const struct pool *p;

    if (slot >= c->limits.pools || pool_at(c, slot)->state == POOL_EMPTY)
        return false;
    p = pool_at(c, slot);
    memset(ret, 0, sizeof *ret);
    ret->id = (struct pool_id){.slot = slot, .gen = p->gen};
    ret->tenant = p->tenant;
    ret->engine = p->opener;
    ret->ngroups = p->ngroups;
    ret->align_tokens = p->align;
    ret->regions = p->regions;
    memcpy(ret->region, p->region, sizeof ret->region);
    ret->moved = p->transfer_regions;
    ret->slabs = p->nslabs - 1;
    ret->slabs_free = p->free_slabs.n;
    ret->nodes = p->nodes;
    ret->offset = p->offset;
    ret->bytes = p->bytes;
    ret->slab_bytes = p->slab_bytes;
    ret->layout_hash = p->layout_hash;
    ret->closing = p->state == POOL_CLOSING;
    ret->zeroing = p->state == POOL_ZEROING;
    ret->supersede = p->supersede;
    ret->tier = (enum tier)p->tier;
    ret->other = p->tiers[p->tier == TIER_DEVICE ? TIER_HOST : TIER_DEVICE];
    for (uint32_t g = 0; g < p->ngroups; g++)
        group_fill(p, g, &ret->group[g]);
    return true;
}

bool core_session_view(const struct core *c, uint32_t slot, struct session_view *ret)
{
    static const char *const words[] = {SESSION_STATE_TABLE(STATE_WORD)};
    static const char *const turn_words[] = {GATE_STATE_TABLE(STATE_WORD)};
    static const char *const ticket_words[] = {TICKET_STATE_TABLE(STATE_WORD)};
    const struct session *s;

    if (slot >= c->limits.sessions || session_at(c, slot)->state == SESSION_EMPTY)
        return false;
    s = session_at(c, slot);
    memset(ret, 0, sizeof *ret);
    ret->id = (struct session_id){.slot = slot, .gen = s->gen};
    ret->engine = s->engine == NONE /* a ticket outlives its engine */
                      ? (struct engine_id){.slot = NONE}
                      : engine_id(c, engine_at(c, s->engine));
    ret->pool = (struct pool_id){.slot = s->pool, .gen = pool_at(c, s->pool)->gen};
    ret->tenant = pool_at(c, s->pool)->tenant;
    ret->ns = space_at(c, s->space)->ns;
    ret->state_word = words[s->state];
    ret->lengths = session_lengths(s);
    ret->tokens = s->tokens.end;
    ret->node = s->node;
    ret->ref = (enum ref_kind)s->held;
    ret->ref_since_ns = s->ref_since_ns;
    ret->last_use_ns = s->last_use_ns;
    ret->records = s->records.n;
    if (s->records.n > 0)
        ret->recorded = turn_record_at(c, record_list_last(c, &s->records))->body.length;
    ret->record_pages = s->record_pages;
    ret->blob_pages = s->blob_pages;
    ret->ticket_word = s->ticket_state != TICKET_NONE ? ticket_words[s->ticket_state] : "";
    if (s->ticket_state != TICKET_NONE && s->ticket_until_ns > c->now_ns)
        ret->ticket_left_ns = s->ticket_until_ns - c->now_ns;
    ret->blob_bytes = s->blob_bytes;
    ret->turn_word = s->gate == GATE_FREE ? "" : turn_words[s->gate];
    if (s->gate == GATE_CLAIMED || s->gate == GATE_CLOSING)
        ret->turn_begun_ns = s->turn_begun_ns;
    return true;
}

bool core_engine_view(const struct core *c, uint32_t slot, struct engine_view *ret)
{
    static const char *const words[] = {ENGINE_STATE_TABLE(STATE_WORD)};
    const struct engine *e;

    if (slot >= c->limits.engines || engine_at(c, slot)->state == ENGINE_EMPTY)
        return false;
    e = engine_at(c, slot);
    memset(ret, 0, sizeof *ret);
    ret->id = engine_id(c, e);
    memcpy(ret->name, e->name, sizeof ret->name);
    ret->state_word = words[e->state];
    ret->dying = e->state == ENGINE_DYING;
    ret->tenant = e->tenant;
    ret->world = e->world;
    ret->procs_alive = e->alive;
    ret->sessions = e->sessions.n;
    for (uint32_t i = 0; i < PROCS_PER_ENGINE_MAX; i++)
        ret->procs[i] = e->procs[i].alive ? e->procs[i].proc : NONE;
    memcpy(ret->done_step, e->shown, sizeof ret->done_step);
    ret->named = e->named;
    ret->jumps = e->jumps;
    ret->waits_since_ns = e->retires.n == 0 ? 0 : e->waits_since_ns;
    for (uint32_t r = 1; r < e->world; r++)
        if (e->done[r] < e->done[ret->rank_behind])
            ret->rank_behind = r;
    ret->jumped = steps_jumped(e, ret->rank_behind);
    ret->retiring_until =
        e->retires.n == 0 ? 0 : retire_at(c, retire_list_last(c, &e->retires))->step;
    return true;
}

/* The pages still in its lists were not published. */
static void pull_amounts(const struct core *c, const struct pull *p, struct transfer_view *ret)
{
    uint64_t left_bytes = 0;
    uint32_t left = 0;

    for (uint32_t g = 0; g < pool_at(c, p->pool)->ngroups; g++) {
        left += p->pages[g].n;
        left_bytes +=
            p->pages[g].n * pool_at(c, p->pool)->group[g].layout.page_bytes * p->transfer_regions;
    }
    ret->pages = p->npages;
    ret->bytes = p->taken_bytes;
    ret->pages_asked = p->asked_pages;
    ret->bytes_asked = p->asked_bytes;
    ret->pages_verified = p->done_pages;
    ret->bytes_verified = p->arrived_bytes;
    ret->pages_published = p->npages - left;
    ret->bytes_published = p->taken_bytes - left_bytes;
    ret->quarantined = p->quarantined_ns ? left : 0;
}

bool core_pull_view(const struct core *c, uint32_t slot, struct transfer_view *ret)
{
    static const char *const words[] = {PULL_STATE_TABLE(STATE_WORD)};
    const struct pull *p;

    if (slot >= c->limits.pulls || pull_at(c, slot)->state == PULL_EMPTY)
        return false;
    p = pull_at(c, slot);
    memset(ret, 0, sizeof *ret);
    ret->pull = pull_id(c, p);
    ret->state_word = words[p->state];
    ret->link = p->link;
    ret->from = p->from;
    ret->to = p->to;
    ret->published = p->session == NONE ? p->from : session_at(c, p->session)->allocated;
    ret->node = p->history_node;
    ret->tenant = p->tenant;
    ret->peer = p->link < c->limits.peers ? p->link : NONE;
    ret->ticket = p->ticket.id.gen != 0;
    ret->prefetch = p->prefetch;
    ret->trace_id = p->reply.trace_id;
    pull_amounts(c, p, ret);
    ret->quarantined_ns = p->quarantined_ns;
    ret->rate = p->rate;
    ret->times = p->times;
    ret->started_ns = p->started_ns;
    ret->deadline_ns = p->deadline_ns;
    return true;
}

bool core_peer_used(const struct core *c, uint32_t peer)
{
    bool used = false;

    for (uint32_t i = 0; i < c->limits.links && !used; i++)
        used = link_at(c, i)->up && link_at(c, i)->peer == peer;
    for (uint32_t i = 0; i < c->limits.pulls && !used; i++)
        used = pull_at(c, i)->state != PULL_EMPTY && pull_at(c, i)->link == peer;
    for (uint32_t i = 0; i < c->limits.serves && !used; i++)
        used = serve_at(c, i)->state != SERVE_EMPTY &&
               serve_at(c, i)->holder % c->limits.peers == peer;
    return used;
}

static void serve_amounts(const struct core *c, const struct serve *s, struct transfer_view *ret)
{
    const struct pool *pool = pool_at(c, s->pool);
    const struct transfer_span span = {s->from, s->asked_history, s->to};

    for (uint32_t g = 0; g < pool->ngroups; g++) {
        uint32_t n = transfer_pages(pool, &pool->group[g], span).n;

        ret->pages += n;
        ret->bytes += n * pool->group[g].layout.page_bytes * pool->transfer_regions;
    }
}

bool core_serve_view(const struct core *c, uint32_t slot, struct transfer_view *ret)
{
    static const char *const words[] = {SERVE_STATE_TABLE(STATE_WORD)};
    const struct serve *s;

    if (slot >= c->limits.serves || serve_at(c, slot)->state == SERVE_EMPTY)
        return false;
    s = serve_at(c, slot);
    memset(ret, 0, sizeof *ret);
    ret->serve = serve_id(c, s);
    ret->node = s->node;
    ret->outgoing = true;
    ret->state_word = words[s->state];
    ret->link = s->link;
    ret->from = s->from;
    ret->to = s->to;
    ret->tenant = pool_at(c, s->pool)->tenant;
    ret->peer = link_at(c, s->link)->peer;
    ret->ticket = s->handed.gen != 0;
    ret->prefetch = s->prefetch;
    ret->trace_id = s->trace_id;
    serve_amounts(c, s, ret);
    ret->times = s->times;
    ret->started_ns = s->started_ns;
    ret->deadline_ns = s->deadline_ns;
    return true;
}

static void node_pages_fill(const struct core *c, const struct node *n, struct node_view *ret)
{
    const struct pool *p = pool_at(c, n->pool);

    for (uint32_t g = 0; g < p->ngroups && n->depth > 0; g++) {
        ret->host_pages += n->group[g].pages[TIER_HOST] == NONE ? 0 : p->group[g].segment;
        if (n->group[g].pages[TIER_DEVICE] == NONE)
            continue;
        ret->pages += p->group[g].segment;
        if (group_is_state(&p->group[g]))
            ret->state_pages += p->group[g].segment;
    }
}

bool core_node_view(const struct core *c, uint32_t slot, struct node_view *ret)
{
    const struct node *n;

    if (slot >= c->limits.nodes || !node_at(c, slot)->used)
        return false;
    n = node_at(c, slot);
    memset(ret, 0, sizeof *ret);
    ret->id = (struct node_id){.slot = slot, .gen = n->gen};
    ret->slot = slot;
    ret->parent = n->parent;
    if (n->parent != NONE)
        ret->parent_id = (struct node_id){.slot = n->parent, .gen = node_at(c, n->parent)->gen};
    ret->depth = n->depth;
    ret->children = n->children.n;
    node_pages_fill(c, n, ret);
    ret->borrowers = n->state.borrowers;
    ret->reclaimable = reclaim_list_has(c, slot);
    ret->resumable =
        n->depth > 0 && node_visible(n) && node_on_device(n) && state_resumable(c, slot);
    memcpy(ret->refs, n->refs, sizeof ret->refs);
    ret->on_device = node_on_device(n);
    ret->on_host = node_on_host(n);
    ret->copying = n->work.copy != COPY_NONE;
    ret->admin_since_ns = n->refs[REF_ADMIN] ? n->admin_ns : 0;
    ret->chain = n->chain;
    ret->pool = n->pool;
    ret->ns = space_at(c, n->space)->ns;
    ret->visible = node_visible(n);
    ret->sealed = n->work.seal == SEAL_DONE;
    ret->last_use_ns = n->last_use_ns;
    return true;
}

static void oldest_quarantine(const struct core *c, struct core_view *ret)
{
    for (uint32_t i = c->pulls_active.head; i != NONE; i = pull_list_next(c, i)) {
        const struct pull *p = pull_at(c, i);

        if (!p->quarantined_ns ||
            (ret->oldest_quarantine_ns && ret->oldest_quarantine_ns <= p->quarantined_ns))
            continue;
        ret->oldest_quarantine_ns = p->quarantined_ns;
        ret->oldest_quarantine = pull_id(c, p);
    }
}

void core_view(const struct core *c, struct core_view *ret)
{
    *ret = c->counts;
    ret->incarnation = c->incarnation;
    ret->now_ns = c->now_ns;
    ret->pools = c->npools;
    ret->engines = c->nengines;
    ret->sessions = c->limits.sessions - c->free_sessions.n;
    ret->nodes = c->limits.nodes - c->free_nodes.n;
    ret->pulls = c->pulls_active.n;
    ret->serves = c->serves_active.n;
    for (uint32_t i = 0; i < c->limits.links; i++)
        ret->links_up += link_at(c, i)->up;
    ret->token_blocks_free = c->limits.token_blocks;
    for (uint32_t i = 0; i < c->limits.tenants; i++)
        ret->token_blocks_free -= share_holder(c, SHARE_TOKEN_BLOCKS, i)->used;
    ret->nodes_free = c->free_nodes.n;
    ret->retires_free = c->free_retires.n;
    ret->draining = c->draining;
    ret->resets_spreading = c->nspreading;
    oldest_quarantine(c, ret);
    for (uint32_t i = 0; i < c->limits.tenants; i++) {
        const struct tenant *t = tenant_at(c, i);

        ret->retracts_undone += t->undone;
        ret->evicted_nodes += t->figures.v[FIGURE_EVICTED_NODES];
        ret->evicted_pages += t->figures.v[FIGURE_EVICTED_PAGES];
    }
    ret->copies = c->copies_queued + c->copies_running;
    core_event_range(c, &ret->event_first, &ret->event_next);
    ret->event_first += core_event_base(c);
    ret->event_next += core_event_base(c);
}

struct tenant_view core_tenant_view(const struct core *c, uint32_t tenant)
{
    const struct tenant *t = tenant_at(c, tenant);

    return (struct tenant_view){
        .sessions = t->sessions,
        .retracts_undone = t->undone,
        .turns = t->turns,
        .tickets = t->tickets,
        .records = {.total = t->record_pages,
                    .used = t->record_used,
                    .held = t->record_held,
                    .records = share_holder(c, SHARE_TURN_RECORDS, tenant)->used},
        .figures = &t->figures};
}

const struct figure_counts *core_pool_figures(const struct core *core, uint32_t slot)
{
    struct pool_view unused;

    return core_pool_view(core, slot, &unused) ? &pool_at(core, slot)->figures : NULL;
}

bool core_space_view(const struct core *core, uint32_t slot, struct space_view *ret)
{
    const struct space *s = slot < core->limits.namespaces ? space_at(core, slot) : NULL;

    if (!s || !s->used)
        return false;
    *ret = (struct space_view){.tenant = pool_at(core, s->pool)->tenant,
                               .pool = s->pool,
                               .ns = s->ns,
                               .nodes = s->nodes,
                               .held = s->held > 0,
                               .reset = s->reset,
                               .figures = s->figures};
    return true;
}

const struct histogram *core_latency(const struct core *core, enum latency latency)
{
    return &core->latency[latency];
}

const struct steps_over *core_steps_over(const struct core *core)
{
    return &core->over;
}

const struct peer_figures *core_peer_figures(const struct core *core, uint32_t peer)
{
    return &link_at(core, peer)->figures;
}

static void add_borrowed(const struct pool *p, const struct node *n, uint32_t ret[GROUPS_MAX])
{
    for (uint32_t g = 0; g < p->ngroups; g++)
        if (n->group[g].pages[TIER_DEVICE] != NONE &&
            (!group_is_state(&p->group[g]) || n->state.borrowers > n->state.host_borrowers))
            ret[g] += p->group[g].segment;
}

/* A walk over what an engine's sessions borrow in a pool. A counted node's bit is `seen`. */
struct borrowed_walk {
    uint32_t pool;
    bool seen;
    uint64_t *bits;
    uint32_t *visits, *ret; /* ret: GROUPS_MAX counters */
};

static bool walk_path(const struct core *c, const struct session *s, const struct borrowed_walk *w)
{
    for (uint32_t at = s->node;
         node_at(c, at)->depth > 0 && (w->bits[at / 64] >> at % 64 & 1) != w->seen;
         at = node_at(c, at)->parent) {
        if (*w->visits == 0)
            return false;
        --*w->visits;
        w->bits[at / 64] ^= UINT64_C(1) << at % 64;
        add_borrowed(pool_at(c, w->pool), node_at(c, at), w->ret);
    }
    return true;
}

/* Visits each node of the sessions' paths once. The same walk with the opposite `seen` restores the
 * bits. Skips engines without the pool, since operators query all pools at a time. Returns false if
 * the walk stopped before the end of the paths. */
static bool walk_paths(const struct core *c, const struct borrowed_walk *w)
{
    for (uint32_t i = 0; i < c->limits.engines; i++) {
        const struct engine *e = engine_at(c, i);

        if (e->state == ENGINE_EMPTY || !(e->pools >> w->pool & 1))
            continue;
        for (uint32_t at = e->sessions.head; at != NONE; at = session_at(c, at)->in_engine.next) {
            const struct session *s = session_at(c, at);

            if (s->pool == w->pool && s->held == REF_DEVICE && !walk_path(c, s, w))
                return false;
        }
    }
    return true;
}

bool core_pool_borrowed(const struct core *c, uint32_t pool, uint64_t *bits, uint32_t *visits,
                        uint32_t ret[GROUPS_MAX])
{
    uint32_t unused[GROUPS_MAX] = {0}, again = *visits;
    const struct borrowed_walk back = {pool, false, bits, &again, unused};
    bool all;

    all = walk_paths(c, &(struct borrowed_walk){pool, true, bits, visits, ret});
    if (*visits != again)
        walk_paths(c, &back);
    return all;
}

bool core_share_plan(const struct core_limits *limits, const struct tenant_config *tenants,
                     struct share_of of, struct share_view *ret)
{
    struct share_of_table laid[SHARE_TABLES];
    uint32_t each;

    if (of.table >= SHARE_TABLES || of.tenant >= limits->tenants)
        return false;
    shares_layout(limits, laid);
    each = laid[of.table].holders / limits->tenants;
    *ret = (struct share_view){.setting = share_setting(of.table),
                               .records = share_records(of.table),
                               .limit = share_limit(limits, of.table)};
    for (uint32_t i = 0; i < each; i++)
        ret->reserved += share_reserved(limits, tenants, of.table, of.tenant * each + i);
    return true;
}

static_assert(CORE_SHARES == SHARE_TABLES, "one for each table");

bool core_share_refusal(const char *text, uint32_t *ret_table)
{
    for (uint32_t i = 0; i < SHARE_TABLES; i++) {
        if (share_refused(i) != text)
            continue;
        *ret_table = i;
        return true;
    }
    return false;
}

bool core_share_view(const struct core *c, struct share_of of, struct share_view *ret)
{
    uint32_t each;

    if (of.table >= SHARE_TABLES || of.tenant >= c->limits.tenants)
        return false;
    each = c->share[of.table].holders / c->limits.tenants;
    *ret = (struct share_view){.setting = share_setting(of.table),
                               .records = share_records(of.table),
                               .limit = share_limit(&c->limits, of.table),
                               .rest = c->share[of.table].rest};
    for (uint32_t i = 0; i < each; i++) {
        const struct share_holder *h = share_holder(c, of.table, of.tenant * each + i);

        ret->used += h->used;
        ret->reserved += h->reserved;
    }
    return true;
}

void core_disk(const struct core *core, uint32_t tenant, struct disk_view *ret)
{
    const struct tenant *t = tenant_at(core, tenant);

    *ret = (struct disk_view){.budget = t->config.disk_bytes,
                              .used = t->disk_used,
                              .entries = t->disk_entries.n,
                              .chunks = share_holder(core, SHARE_DISK_CHUNKS, tenant)->used -
                                        t->disk_roots.n,
                              .files = share_holder(core, SHARE_DISK_FILES, tenant)->used,
                              .stores = t->disk_due.n + t->disk_late.n,
                              .counts = t->disk};
    for (uint32_t at = core->disk_stores.head; at != NONE; at = disk_store_list_next(core, at))
        ret->stores += disk_store_at(core, at)->tenant == tenant;
}

bool core_disk_entry_view(const struct core *core, uint32_t slot, struct disk_entry_view *ret)
{
    const struct disk_chunk *k;

    if (slot >= core->limits.disk_chunks || !disk_is_entry(disk_chunk_at(core, slot)))
        return false;
    k = disk_chunk_at(core, slot);
    *ret = (struct disk_entry_view){.tenant = k->tenant,
                                    .ns = k->ns,
                                    .layout_hash = k->layout_hash,
                                    .chain = k->chain,
                                    .depth = k->depth,
                                    .reason = (enum disk_reason)k->reason,
                                    .hits = k->hits,
                                    .bytes = disk_entry_bytes(core, slot),
                                    .own_bytes = disk_entry_own(core, slot),
                                    .score = disk_entry_score(core, slot),
                                    .read = k->pins > 0};
    if (disk_served(core) > k->used_ns)
        ret->age_ns = disk_served(core) - k->used_ns;
    return true;
}

bool core_disk_idle(const struct core *core)
{
    bool swept = true;

    for (uint32_t i = 0; i < core->limits.tenants; i++)
        swept = swept && tenant_at(core, i)->disk_sweep == NONE;
    return swept && core->disk_stores.n == 0 && core->disk_gone_first == NONE;
}
