/* Engines: processes that join, map, run steps on their devices out of phase, die, and are reaped.
 * A rank's writes land when its device runs the step: some time after the dispatch and before the
 * rank publishes done_step. */
#include "bytes.h"
#include "disk.h"
#include "leases.h"
#include "records.h"
#include "tickets.h"

static uint32_t conn_find(const struct daemon *m)
{
    for (uint32_t i = 1; i < CONNS; i++) /* 0 is the operator's */
        if (!m->conn[i].open)
            return i;
    return NO;
}

static uint32_t leader_seat(const struct engine *g)
{
    return g->nprocs > g->world ? g->world : 0;
}

uint32_t engine_conn(struct sim *w, uint32_t d, uint32_t e)
{
    const struct engine *g = &w->d[d].engine[e];
    const struct proc *p = &g->proc[leader_seat(g)];

    if (!g->used || p->state != PROC_LIVE || p->conn == NO || !(g->joined >> leader_seat(g) & 1))
        return NO;
    return p->conn;
}

static void engine_reset(struct sim *w, uint32_t d, uint32_t e, struct engine *g)
{
    memset(g, 0, offsetof(struct engine, work));
    for (uint32_t i = 0; i < STEPS; i++)
        g->work[i].n = 0;
    g->tenant = (uint8_t)(e == 2 ? w->cfg.tenants - 1 : 0);
    g->world = (uint8_t)w->world[d][e];
    g->nprocs = (uint8_t)(g->world + (w->cfg.scheduler ? 1 : 0));
    g->pool = NO;
    for (uint32_t i = 0; i < PROCS; i++)
        g->proc[i].conn = NO;
    g->used = 1;
}

static bool process_start(struct sim *w, uint32_t d, struct engine *g, uint32_t e, uint32_t seat)
{
    struct daemon *m = &w->d[d];
    struct event ev = {.kind = EV_CONN_OPENED};
    uint32_t conn = conn_find(m);
    struct proc *p = &g->proc[seat];

    if (conn == NO)
        return false;
    if (p->state == PROC_NONE) {
        uint32_t number = 0;

        while (m->procs_used >> number & 1)
            number++;
        m->procs_used |= 1u << number;
        p->state = PROC_LIVE;
        p->number = number;
    }
    p->conn = (uint8_t)conn;
    m->conn[conn] =
        (struct conn){.open = 1, .engine = (uint8_t)e, .seat = (uint8_t)seat, .tenant = g->tenant};
    ev.conn.conn = conn;
    ev.conn.tenant = g->tenant;
    ev.conn.proc = p->number;
    TRACE("  engine %u.%u seat %u: process %u on connection %u\n", d, e, seat, p->number, conn);
    sim_step(w, d, &ev);
    return true;
}

static struct req_join *join_begin(struct sim *w, uint32_t d, uint32_t e, uint32_t seat,
                                   struct event *ev)
{
    const struct engine *g = &w->d[d].engine[e];
    struct req_join *j = &ev->request.join;

    request_init(w, d, ev, OP_ENGINE_JOIN, g->proc[seat].conn);
    memset(j, 0, sizeof *j);
    memcpy(j->name, "engine-", 7);
    j->name[7] = (char)('0' + e);
    j->world = g->world;
    j->rank = seat == g->world ? 0 : seat;
    j->role = seat == g->world       ? ROLE_SCHEDULER
              : g->nprocs > g->world ? ROLE_WORKER
              : seat == 0            ? ROLE_BOTH
                                     : ROLE_WORKER;
    return j;
}

static void process_join(struct sim *w, uint32_t d, struct engine *g, uint32_t e, uint32_t seat)
{
    struct event ev;
    struct req_join *j = join_begin(w, d, e, seat, &ev);

    if (seat < g->world && w->named[d][e])
        j->device = (struct req_device){.named = true, .region = w->region[d][e][seat]};
    sim_ask(w, d, &ev, "join_answer");
    if (g->dying) {
        EXPECT(w->reply->err != TERN_OK, "join_dying",
               "a process joined an engine of which one has died");
        return;
    }
    EXPECT(w->reply->err == TERN_OK, "join_refused", "join of seat %u: err %u %s", seat,
           w->reply->err, w->reply->text);
    if (g->known)
        EXPECT(engine_id_equal(g->id, w->reply->join.engine), "join_other_engine",
               "one name, two engines");
    g->known = 1;
    g->id = w->reply->join.engine;
    g->joined |= (uint8_t)(1u << seat);
    g->seen |= (uint8_t)(1u << seat);
}

/* Does the pool lie where the ranks of that engine live? */
static bool pool_suits_engine(const struct sim *w, uint32_t d, const struct pool *p, uint32_t e)
{
    return p->ranks == w->d[d].engine[e].world && memcmp(p->region, w->region[d][e], p->ranks) == 0;
}

/* P3: the range must be free and zero. */
static void pool_take_range(struct sim *w, uint32_t d, struct pool *p, uint64_t offset)
{
    uint32_t base = (uint32_t)(offset / GRANULE_BYTES), pool = (uint32_t)(p - w->d[d].pool);

    EXPECT(offset % GRANULE_BYTES == 0 && base + p->granules <= w->cfg.granules, "pool_range",
           "pool at %llu", (unsigned long long)offset);
    for (uint32_t i = 0; i < POOLS; i++) {
        const struct pool *o = &w->d[d].pool[i];

        if (o == p || !o->open || o->tenant != p->tenant || o->base == UINT32_MAX)
            continue;
        if (pools_meet(o, p))
            EXPECT(apart(base, p->granules, o->base, o->granules, w->cfg.granules), "pool_overlap",
                   "pools %u and %u share memory", i, pool);
        else if (!apart(base, p->granules, o->base, o->granules, w->cfg.granules))
            MARK(pools_side_by_side);
    }
    p->base = base + pool_home(p) * w->cfg.granules;
    for (uint32_t i = p->base; i < p->base + p->granules; i++) {
        struct granule *g = &w->d[d].granule[p->tenant][i];

        EXPECT(g->own == OWN_FREE && !granule_busy(w, d, p->tenant, g) && !g->writers,
               "pool_range_used", "granule %u of a new pool is still in use", i);
        for (uint32_t r = 0; r < p->ranks; r++)
            for (uint32_t s = 0; s < SLOTS; s++)
                EXPECT(tag_at(w, d, pool, r, i)->v[s] == 0, "pool_not_zero",
                       "granule %u rank %u holds bytes", i, r);
        g->gen = g->index = 0;
    }
}

static void pool_map_reply(struct sim *w, uint32_t d, struct engine *g, uint32_t e, uint32_t seat)
{
    struct daemon *m = &w->d[d];
    struct pool *p = &m->pool[g->pool];
    struct event ev;

    request_init(w, d, &ev, OP_POOL_MAP, g->proc[seat].conn);
    ev.request.pool_map.pool = p->id;
    ev.request.pool_map.sums = false;
    sim_ask(w, d, &ev, "map_answer");
    if (g->dying || p->closing) {
        EXPECT(w->reply->err != TERN_OK, "map_dying",
               "mapped a pool that closes, or for a dying engine");
        g->pool = p->closing ? NO : g->pool;
        return;
    }
    if (!pool_suits_engine(w, d, p, e)) {
        EXPECT(w->reply->err == TERN_INVALID, "map_other_regions",
               "err %u: %u ranks map a pool of %u, or one of other regions", w->reply->err,
               g->world, p->ranks);
        MARK(other_world_refused);
        g->pool = NO;
        return;
    }
    EXPECT(w->reply->err == TERN_OK, "map_refused", "err %u %s", w->reply->err, w->reply->text);
    if (p->base == UINT32_MAX) {
        pool_take_range(w, d, p, w->reply->pool_map.offset);
        EXPECT(w->reply->pool_map.bytes == (uint64_t)p->granules * GRANULE_BYTES, "map_bytes",
               "another size");
    }
    EXPECT(w->reply->pool_map.offset == (uint64_t)(p->base % w->cfg.granules) * GRANULE_BYTES,
           "map_moved", "the pool moved");
    EXPECT(w->reply->pool_map.region == w->region[d][e][seat < g->world ? seat : 0], "map_region",
           "region %u", w->reply->pool_map.region);
    g->mapped |= (uint8_t)(1u << seat);
    p->engines |= (uint8_t)(1u << e);
}

static void fill_layout(const struct sim *w, uint32_t d, uint32_t e, struct req_pool_open *o)
{
    memset(o, 0, sizeof *o);
    o->ngroups = w->ngroups;
    o->supersede = (enum supersede)w->cfg.supersede;
    for (uint32_t i = 0; i < o->ngroups; i++)
        o->group[i] =
            (struct group_layout){.family = i < w->cfg.ngroups ? FAMILY_HISTORY
                                            : recurrent(w, i)  ? FAMILY_RECURRENT
                                                               : FAMILY_WINDOW,
                                  .page_tokens = w->page_tokens[d][i],
                                  .window = i < w->cfg.ngroups ? 0 : w->window[i],
                                  .reserve = i < w->cfg.ngroups ? 0 : w->reserve[i],
                                  .units = 1,
                                  .cap_pages = i == 0 ? w->cfg.cap0 : 0,
                                  .page_bytes = (uint64_t)w->page_granules[i] * GRANULE_BYTES};
    o->shard = pool_whole(w, d) ? SHARD_REPLICATED : SHARD_HEADS;
    if (w->cfg.heads == 0)
        return;
    o->fields_hash = w->cfg.heads;
    o->align_tokens = w->L;
    o->copies = w->cfg.heads < w->world[d][e];
}

/* A pool of this engine would share a region with that pool. The tenants' reserved part of the
 * table of pools may keep it out as well. */
static bool in_the_way(const struct sim *w, uint32_t d, uint32_t e, const struct pool *p)
{
    const struct engine *g = &w->d[d].engine[e];
    struct pool mine = {.tenant = g->tenant, .ranks = g->world};

    memcpy(mine.region, w->region[d][e], sizeof mine.region);
    return p->open && p->tenant == g->tenant && (w->cfg.reserved > 0 || pools_meet(p, &mine));
}

/* T22: a pool takes one record, and its host tier another one. */
static void check_pools_full(struct sim *w, uint32_t d, uint32_t tenant)
{
    uint32_t used[TENANTS] = {0}, each = w->cfg.host ? 2 : 1;
    bool full;

    for (uint32_t i = 0; i < POOLS; i++)
        if (w->d[d].pool[i].open)
            used[w->d[d].pool[i].tenant] += each;
    full = share_used_up(w, w->limits.pools, used, tenant);
    used[tenant] += each - 1; /* the tenant's first one may come from its own part */
    EXPECT(full || share_used_up(w, w->limits.pools, used, tenant), "pool_share",
           "tenant %u is refused a pool, %u and %u of %u are in use", tenant, used[0], used[1],
           w->limits.pools);
}

/* The engine's own pool, or the pool of another engine of the tenant if there is one. */
static void pool_choose(struct sim *w, uint32_t d, struct engine *g, uint32_t e)
{
    struct daemon *m = &w->d[d];
    uint32_t slot, granules = w->cfg.granules, host = w->cfg.host, seat = leader_seat(g);
    struct event ev;
    struct pool *p;

    for (slot = 0; slot < POOLS; slot++)
        if (m->pool[slot].open && !m->pool[slot].closing && m->pool[slot].tenant == g->tenant &&
            m->pool[slot].base != UINT32_MAX && (m->pool[slot].engines || chance(w, 50)) &&
            (pool_suits_engine(w, d, &m->pool[slot], e) || chance(w, 20))) {
            g->pool = (uint8_t)slot;
            return;
        }
    for (slot = 0; slot < POOLS && m->pool[slot].open; slot++)
        ;
    if (slot == POOLS)
        return;
    if (chance(w, 15)) { /* half of the tenant's memory, if that has room for two chunks */
        granules = granules / 2 > 10 ? granules / 2 : granules;
        host = host / 2 >= 2 * w->slab ? host / 2 : host;
    }
    request_init(w, d, &ev, OP_POOL_OPEN, g->proc[seat].conn);
    fill_layout(w, d, e, &ev.request.pool_open);
    ev.request.pool_open.bytes = (uint64_t)granules * GRANULE_BYTES;
    ev.request.pool_open.host_bytes = (uint64_t)host * GRANULE_BYTES;
    sim_ask(w, d, &ev, "pool_answer");
    if (w->reply->err != TERN_OK) {
        bool taken = false;

        if (strstr(w->reply->text, "share of the pools"))
            check_pools_full(w, d, g->tenant);
        for (uint32_t i = 0; i < POOLS; i++)
            taken |= in_the_way(w, d, e, &m->pool[i]);
        for (uint32_t i = 0; i < POOLS; i++) /* an unmapped pool may have to go */
            if (in_the_way(w, d, e, &m->pool[i]) && m->pool[i].engines == 0)
                m->pool[i].closing = 1;
        EXPECT(taken || g->dying || g->joined != (1u << g->nprocs) - 1, "pool_refused", "err %u %s",
               w->reply->err, w->reply->text);
        return;
    }
    EXPECT(!g->dying, "pool_dying", "a pool for a dying engine");
    EXPECT(w->reply->pool_open.align_tokens == w->L, "align", "L is %u",
           w->reply->pool_open.align_tokens);
    for (uint32_t i = 0; i < POOLS; i++) /* a pool that no engine mapped any more */
        if (m->pool[i].open && pool_id_equal(m->pool[i].id, w->reply->pool_open.pool)) {
            EXPECT(m->pool[i].engines == 0 && m->pool[i].tenant == g->tenant &&
                       pool_suits_engine(w, d, &m->pool[i], e),
                   "pool_shared", "pool %u has engines %x", i, m->pool[i].engines);
            m->pool[i].engines = (uint8_t)(1u << e);
            m->pool[i].closing = 0;
            g->pool = (uint8_t)i;
            return;
        }
    p = &m->pool[slot];
    memset(p, 0, sizeof *p);
    p->open = 1;
    p->tenant = g->tenant;
    p->ranks = g->world;
    memcpy(p->region, w->region[d][e], sizeof p->region);
    p->id = w->reply->pool_open.pool;
    p->granules = (uint32_t)(w->reply->pool_open.bytes / GRANULE_BYTES);
    p->base = UINT32_MAX;
    p->engines = (uint8_t)(1u << e);
    host_open(w, d, p, host);
    EXPECT(p->granules <= granules && granules - p->granules < 2, "pool_bytes", "%u of %u granules",
           p->granules, granules);
    g->pool = (uint8_t)slot;
}

void engine_advance(struct sim *w, uint32_t d, uint32_t e)
{
    struct engine *g = &w->d[d].engine[e];
    uint32_t seat;

    if (!g->used)
        engine_reset(w, d, e, g);
    if (g->dying)
        return;
    for (seat = 0; seat < g->nprocs; seat++) {
        if (g->proc[seat].state == PROC_DEAD)
            continue;
        if (g->proc[seat].conn == NO && !process_start(w, d, g, e, seat))
            return;
        if (!(g->joined >> seat & 1))
            process_join(w, d, g, e, seat);
    }
    if (g->joined != (1u << g->nprocs) - 1)
        return;
    if (g->pool == NO)
        pool_choose(w, d, g, e);
    if (g->pool == NO)
        return;
    for (seat = 0; seat < g->nprocs && g->pool != NO; seat++)
        if (!(g->mapped >> seat & 1))
            pool_map_reply(w, d, g, e, seat);
}

/* The same rank on another device, or on none. */
static void join_elsewhere(struct sim *w, uint32_t d, uint32_t e, uint32_t seat)
{
    struct event ev;
    struct req_join *j = join_begin(w, d, e, seat, &ev);

    if (!w->named[d][e] || chance(w, 50))
        j->device = (struct req_device){.named = true,
                                        .region = (w->region[d][e][seat] + 1) % (w->regions + 1)};
    sim_ask(w, d, &ev, "join_answer");
    EXPECT(w->reply->err == TERN_CONFLICT ||
               (w->reply->err == TERN_INVALID && j->device.region == w->regions),
           "join_elsewhere", "err %u %s", w->reply->err, w->reply->text);
}

/* Join and map once more, on the same connection. */
void engine_repeat(struct sim *w, uint32_t d, uint32_t e)
{
    struct engine *g = &w->d[d].engine[e];
    uint32_t seat = pick(w, PROCS);

    if (!g->used || g->dying || seat >= g->nprocs || !(g->joined >> seat & 1))
        return;
    process_join(w, d, g, e, seat);
    if (g->pool != NO && (g->mapped >> seat & 1))
        pool_map_reply(w, d, g, e, seat);
    if (w->cfg.places && seat < g->world && !g->dying)
        join_elsewhere(w, d, e, seat);
}

/* --- steps --- */

struct work *engine_dispatch(struct sim *w, uint32_t d, uint32_t e)
{
    struct engine *g = &w->d[d].engine[e];
    struct work *k = &g->work[++g->step % STEPS];

    k->n = 0;
    return k;
}

static void run_touch(struct sim *w, uint32_t d, const struct engine *g, uint32_t rank,
                      const struct touch *t)
{
    struct tag *all = w->d[d].tag[g->tenant][w->region[d][g - w->d[d].engine][rank]];
    struct tag *tag = all + t->granule % w->cfg.granules;
    const uint32_t *want = w->prefix[g->tenant][t->ns][t->variant] + t->pos + 1;
    const struct tag_form form = tag_form(w, (struct holder){d, t->group, g->world, rank});
    uint32_t n = w->page_granules[t->group];

    if (t->copy) {
        for (uint32_t k = 0; k < n; k++)
            tag[k] = all[t->from % w->cfg.granules + k];
        return;
    }

    for (uint32_t k = 0; k < n; k++, tag++) {
        for (uint32_t i = t->read_from; i < t->read_to; i++)
            EXPECT(tag_is(&form, tag->v[i], want[i]), "wrong_bytes_read",
                   "daemon %u rank %u reads granule %u slot %u (token %u): not what its session "
                   "wrote or matched",
                   d, rank, t->granule + k, i, t->pos + i);
        for (uint32_t i = t->write_from; i < t->write_to; i++)
            tag->v[i] = t->junk ? 0x5eed5eed ^ i : tag_word(&form, want[i]);
    }
}

void engine_exec(struct sim *w, uint32_t d, uint32_t e, uint32_t rank)
{
    struct engine *g = &w->d[d].engine[e];
    const struct work *k;

    rank %= g->world ? g->world : 1;
    /* A device continues after its process was killed, until the exit is proven. */
    if (!g->used || g->proc[rank].state == PROC_NONE || g->exec[rank] >= g->step)
        return;
    if (g->dying)
        FAULT(write_after_kill);
    k = &g->work[++g->exec[rank] % STEPS];
    TRACE("  engine %u.%u rank %u runs step %u\n", d, e, rank, g->exec[rank]);
    for (uint32_t i = 0; i < k->n; i++)
        run_touch(w, d, g, rank, &k->touch[i]);
}

void engine_make_room(struct sim *w, uint32_t d, uint32_t e)
{
    struct engine *g = &w->d[d].engine[e];

    for (uint32_t r = 0; r < g->world; r++)
        while (g->step - g->exec[r] >= STEPS)
            engine_exec(w, d, e, r);
}

void engine_publish(struct sim *w, uint32_t d, uint32_t e, uint32_t rank)
{
    struct engine *g = &w->d[d].engine[e];
    struct event ev;
    uint32_t least = UINT32_MAX;

    rank %= g->world ? g->world : 1;
    if (!g->used || !(g->seen >> rank & 1) || g->proc[rank].state == PROC_NONE ||
        (g->done[rank] >= g->exec[rank] && !(g->jumped >> rank & 1)))
        return;
    if (g->jumped >> rank & 1)
        MARK(jump_repaired);
    g->jumped &= (uint8_t) ~(1u << rank);
    g->done[rank] = g->exec[rank];
    for (uint32_t r = 0; r < g->world; r++)
        if (g->done[r] < least)
            least = g->done[r];
    if (least == g->min_done && g->world > 1)
        MARK(retire_waits_rank);
    g->min_done = least;
    away_settle(w, d);
    ev = (struct event){.kind = EV_STEP_DONE};
    ev.step_done.engine = g->id;
    ev.step_done.rank = rank;
    ev.step_done.step = g->done[rank];
    TRACE("  engine %u.%u rank %u has done %u\n", d, e, rank, g->done[rank]);
    sim_step(w, d, &ev);
}

/* --- ends --- */

/* A load or fetch without a receiver of its answer makes resume points up to this depth; they pass
 * those above (T10). */
static void unheard_to(struct daemon *m, const struct session *s)
{
    uint32_t depth = s->turn == TURN_LOADING ? s->committed : s->fetch_depth;
    struct pool *p = &m->pool[s->pool];

    if (p->unheard < depth || p->unheard == 0)
        p->unheard = (uint8_t)(depth ? depth : 1);
}

void conn_close(struct sim *w, uint32_t d, uint32_t conn)
{
    struct daemon *m = &w->d[d];
    struct conn *c = &m->conn[conn];
    struct engine *g = &m->engine[c->engine];
    struct event ev = {.kind = EV_CONN_CLOSED};

    if (!c->open || c->admin)
        return;
    c->open = 0;
    g->joined &= (uint8_t) ~(1u << c->seat);
    g->proc[c->seat].conn = NO;
    for (uint32_t s = 0; s < SESSIONS; s++)
        if (m->session[s].live &&
            (m->session[s].turn == TURN_FETCHING || m->session[s].turn == TURN_LOADING) &&
            m->session[s].fetch_conn == conn) {
            m->session[s].deaf = 1;
            unheard_to(m, &m->session[s]);
        }
    turns_conn_left(w, d, conn, true);
    disk_conn_left(w, d, conn);
    fetch_waits_conn_left(w, d, conn);
    ev.conn.conn = conn;
    TRACE("  connection %u.%u closed\n", d, conn);
    sim_step(w, d, &ev);
}

void engine_kill(struct sim *w, uint32_t d, uint32_t e, uint32_t seats)
{
    struct engine *g = &w->d[d].engine[e];

    if (!g->used)
        return;
    for (uint32_t s = 0; s < g->nprocs; s++)
        if ((seats >> s & 1) && g->proc[s].state == PROC_LIVE) {
            TRACE("  engine %u.%u seat %u killed\n", d, e, s);
            g->proc[s].state = PROC_DEAD;
        }
}

/* All processes of the engine have ended, by the model's own count. */
void engine_gone(struct sim *w, uint32_t d, uint32_t e)
{
    struct daemon *m = &w->d[d];
    struct engine *g = &m->engine[e];
    uint32_t tenant = g->tenant;

    disk_engine_died(w, d);
    for (uint32_t s = 0; s < SESSIONS; s++)
        if (m->session[s].live && m->session[s].engine == e && !ticket_outlives(w, d, s))
            session_forget(w, d, &m->session[s], 0);
    records_engine_gone(w, d, e);
    leases_gone(w, d, e);
    for (uint32_t i = 0; i < w->granules; i++)
        m->granule[tenant][i].busy[e] = 0;
    for (uint32_t p = 0; p < POOLS; p++) {
        struct pool *pl = &m->pool[p];

        pl->engines &= (uint8_t) ~(1u << e);
        if (!pl->open || pl->tenant != tenant)
            continue;
        for (KNOWN_CHUNKS(m, p, i)) {
            struct chunk *c = &m->chunk[p][i];

            if (c->present && c->engine == e && !chunk_visible(w, d, c)) {
                MARK(pending_dropped_engine_died);
                chunk_drop(w, d, p, c);
                continue;
            }
            if (c->engine == e)
                c->engine = NO; /* long visible; the name may return with other steps */
            if (c->present)
                state_engine_gone(w, d, p, c, e);
        }
    }
    if (g->dying)
        MARK(engine_stuck_then_gone);
    g->used = 0;
}

static bool last_one(const struct engine *g)
{
    for (uint32_t s = 0; s < g->nprocs; s++)
        if (g->proc[s].state != PROC_NONE && (g->seen >> s & 1))
            return false;
    return true;
}

/* A seat that the core knew is empty: the engine is dying, or gone. */
static void seat_empty(struct sim *w, uint32_t d, uint32_t e, uint32_t seat)
{
    struct engine *g = &w->d[d].engine[e];

    g->proc[seat].state = PROC_NONE;
    g->joined &= (uint8_t) ~(1u << seat);
    if (!(g->seen >> seat & 1)) /* the core never knew it */
        return;
    g->dying = 1;
    if (last_one(g)) {
        for (uint32_t s = 0; s < g->nprocs; s++)
            if (g->proc[s].conn != NO && g->proc[s].state != PROC_NONE)
                g->joined = 0;
        engine_gone(w, d, e);
    }
}

/* The connection ends first, or the pidfd does. */
void engine_reap(struct sim *w, uint32_t d, uint32_t e, uint32_t seat)
{
    struct daemon *m = &w->d[d];
    struct engine *g = &m->engine[e];
    struct proc *p = &g->proc[seat];
    uint32_t conn = p->conn, number = p->number;
    bool conn_first = chance(w, 50);
    struct event ev = {.kind = EV_PROC_GONE};

    if (!g->used || seat >= g->nprocs || p->state != PROC_DEAD)
        return;
    if (conn != NO && conn_first)
        conn_close(w, d, conn);
    TRACE("  engine %u.%u seat %u: process %u gone\n", d, e, seat, number);
    seat_empty(w, d, e, seat);
    ev.proc.proc = number;
    sim_step(w, d, &ev);
    if (conn != NO && !conn_first)
        conn_close(w, d, conn);
    m->procs_used &= ~(1u << number);
}

/* The process has unmapped everything and announces its exit, then exits. */
void engine_depart(struct sim *w, uint32_t d, uint32_t e, uint32_t seat)
{
    struct engine *g = &w->d[d].engine[e];
    struct proc *p = &g->proc[seat];
    struct event ev;

    if (!g->used || seat >= g->nprocs || p->state != PROC_LIVE || p->conn == NO ||
        !(g->joined >> seat & 1))
        return;
    request_init(w, d, &ev, OP_ENGINE_LEAVE, p->conn);
    TRACE("  engine %u.%u seat %u leaves\n", d, e, seat);
    p->state = PROC_DEAD; /* its device is idle: it never runs the rest of its steps */
    if (seat < g->world)
        g->exec[seat] = g->step;
    {
        uint32_t conn = p->conn, number = p->number;

        seat_empty(w, d, e, seat);
        turns_conn_left(w, d, conn, false);
        sim_step(w, d, &ev);
        EXPECT(w->reply && w->reply->err == TERN_OK, "leave_refused", "a process may not leave");
        conn_close(w, d, conn);
        ev = (struct event){.kind = EV_PROC_GONE};
        ev.proc.proc = number;
        sim_step(w, d, &ev);
        w->d[d].procs_used &= ~(1u << number);
    }
}

/* Only its last engine may close a pool, and only without sessions. */
void pool_shut(struct sim *w, uint32_t d, uint32_t p)
{
    struct daemon *m = &w->d[d];
    struct pool *pl = &m->pool[p];
    uint32_t e = 0, sessions = 0, conn;
    struct event ev;

    if (!pl->open || pl->closing || pl->engines == 0)
        return;
    while (!(pl->engines >> e & 1))
        e++;
    conn = engine_conn(w, d, e);
    for (uint32_t s = 0; s < SESSIONS; s++)
        sessions += m->session[s].live && m->session[s].pool == p;
    if (conn == NO || m->engine[e].dying || (sessions && !chance(w, 20)))
        return;
    request_init(w, d, &ev, OP_POOL_CLOSE, conn);
    ev.request.pool_close.pool = pl->id;
    TRACE("  daemon %u engine %u closes pool %u\n", d, e, p);
    sim_ask(w, d, &ev, "pool_close_answer");
    if (sessions || pl->engines & (pl->engines - 1) || m->engine[e].nlease > 0) {
        EXPECT(w->reply->err == TERN_CONFLICT, "pool_close_used",
               "err %u with %u sessions, engines %x", w->reply->err, sessions, pl->engines);
        return;
    }
    EXPECT(w->reply->err == TERN_OK, "pool_close_refused", "err %u %s", w->reply->err,
           w->reply->text);
    pl->closing = 1;
    pl->evictions++;
    m->engine[e].pool = NO;
    m->engine[e].mapped = 0;
    m->engine[e].past = (struct leased){.ref = {0, 0}}; /* of that pool */
}
