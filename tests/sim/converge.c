/* The end of every history: faults stop, and everything must come to rest (P5). Only here does the
 * model read the core's own views: they must be empty. */
#include "disk.h"
#include "leases.h"
#include "records.h"
#include "tickets.h"

#define ROUNDS 400

static void heal(struct sim *w)
{
    for (uint32_t c = 0; c < DAEMONS; c++) {
        struct link *l = &w->link[c];

        if (l->one_way || !l->alive) {
            net_notice(w, c, 0);
            net_notice(w, c, 1);
        }
    }
    net_connect(w, 0);
    net_connect(w, 1);
}

/* An engine that lost a process, or never got its pool, ends; the others get their connections
 * back. */
static void settle_engine(struct sim *w, uint32_t d, uint32_t e)
{
    struct engine *g = &w->d[d].engine[e];
    bool broken = g->dying;

    if (!g->used)
        return;
    for (uint32_t s = 0; s < g->nprocs; s++)
        broken |= g->proc[s].state != PROC_LIVE;
    if (!broken)
        engine_advance(w, d, e);
    if (!broken)
        return;
    engine_kill(w, d, e, 0xff);
    for (uint32_t s = 0; s < PROCS && g->used; s++)
        if (g->proc[s].state == PROC_DEAD)
            engine_reap(w, d, e, s);
    EXPECT(!g->used, "sim_engine", "engine %u.%u has processes left", d, e);
}

/* A live engine runs all the steps that it has named, as for a wait for a step ahead. */
static void step_on(struct sim *w, uint32_t d, uint32_t e)
{
    struct engine *g = &w->d[d].engine[e];
    struct engine_view v;

    if (!g->used || g->dying || !g->known || !core_engine_view(w->d[d].core, g->id.slot, &v))
        return;
    while (g->step < v.named) {
        engine_make_room(w, d, e);
        engine_dispatch(w, d, e);
    }
}

static void run_devices(struct sim *w, uint32_t d)
{
    for (uint32_t e = 0; e < ENGINES; e++) {
        struct engine *g = &w->d[d].engine[e];

        step_on(w, d, e);
        for (uint32_t r = 0; g->used && r < g->world; r++) {
            while (g->exec[r] < g->step)
                engine_exec(w, d, e, r);
            engine_publish(w, d, e, r);
        }
    }
}

static bool work_left(struct sim *w)
{
    for (uint32_t d = 0; d < DAEMONS; d++)
        if (w->d[d].njobs || records_pending(w, d) || data_pending(w, d) || w->link[d].n[0] ||
            w->link[d].n[1] || disk_pending(w, d))
            return true;
    return false;
}

static bool waiting(const struct sim *w)
{
    for (uint32_t d = 0; d < DAEMONS; d++)
        for (uint32_t s = 0; s < SESSIONS; s++)
            if (w->d[d].session[s].live &&
                (w->d[d].session[s].turn == TURN_FETCHING ||
                 w->d[d].session[s].turn == TURN_LOADING) &&
                !w->d[d].session[s].deaf)
                return true;
    return false;
}

/* A store waits for the next try of the disk, or gave way to a request and pins nothing for a
 * while. */
static bool disk_waits(struct sim *w)
{
    for (uint32_t d = 0; d < DAEMONS; d++) {
        if (disk_is_on(w, d) && disk_pause(w, d) > w->now) {
            w->now = disk_pause(w, d);
            return true;
        }
        if (disk_is_on(w, d) && !core_disk_idle(w->d[d].core) &&
            core_deadline(w->d[d].core) <= w->now + DISK_PUT_OFF_MS * MS) {
            w->now += DISK_PUT_OFF_MS * MS;
            return true;
        }
    }
    return false;
}

static void quiesce(struct sim *w)
{
    for (uint32_t round = 0;; round++) {
        EXPECT(round < ROUNDS, "no_rest", "work is left after %u rounds", ROUNDS);
        for (uint32_t d = 0; d < DAEMONS; d++) {
            while (w->d[d].njobs)
                job_finish(w, d, 0);
            while (record_work(w, d, 0))
                ;
            while (disk_work(w, d))
                ;
            while (w->link[d].n[0])
                net_deliver(w, d, 0);
            while (w->link[d].n[1])
                net_deliver(w, d, 1);
            data_move(w, d, false);
            data_quiet(w, d);
            data_quiet(w, d);
            sim_timers(w, d);
        }
        if (work_left(w))
            continue;
        if (!waiting(w) && !disk_waits(w))
            return;
        w->now += w->limits.transfer_deadline_ns / 4; /* lost transfers end by their deadline */
    }
}

static void close_sessions(struct sim *w, uint32_t d)
{
    for (uint32_t e = 0; e < ENGINES; e++)
        for (uint32_t i = 0; i < SESSIONS * 2; i++) {
            bool any = false;

            for (uint32_t s = 0; s < SESSIONS; s++)
                any |= w->d[d].session[s].live && w->d[d].session[s].engine == e &&
                       w->d[d].session[s].turn != TURN_HANDED;
            if (!any)
                break;
            sim_timers(w, d); /* a close may wait for pages that are freed in pieces */
            w->rng = i + 1;
            step_request(w, d, e, WANT_CLOSE);
        }
    for (uint32_t s = 0; s < SESSIONS; s++)
        EXPECT(!w->d[d].session[s].live || w->d[d].session[s].turn == TURN_HANDED, "session_left",
               "session %u of daemon %u cannot be closed", s, d);
}

static void check_group(struct sim *w, uint32_t d, uint32_t p, const struct group_view *v,
                        uint32_t g)
{
    EXPECT(v->free == v->total, "pages_left",
           "daemon %u pool %u group %u: %u of %u free (session %u, snapshot %u, transfer %u, "
           "retiring %u, zeroing %u, "
           "quarantine %u)",
           d, p, g, v->free, v->total, v->session, v->snapshot, v->transfer, v->retiring,
           v->zeroing, v->quarantine);
    EXPECT(v->free + v->leased + v->session + v->snapshot + v->reclaimable + v->transfer +
                   v->ticket + v->retiring + v->zeroing + v->quarantine ==
               v->total,
           "view_sum", "group %u of pool %u does not add up", g, p);
}

static void check_rest(struct sim *w, uint32_t d)
{
    const struct core *core = w->d[d].core;
    struct core_view v;
    struct pool_view p;

    core_view(core, &v);
    EXPECT(v.sessions == 0 && v.pulls == 0 && v.serves == 0, "left_over",
           "daemon %u: %u sessions, %u pulls, %u serves", d, v.sessions, v.pulls, v.serves);
    EXPECT(v.nodes == 0 && v.nodes_free == w->limits.nodes, "nodes_left",
           "daemon %u: %u nodes, %u of %u records free", d, v.nodes, v.nodes_free, w->limits.nodes);
    EXPECT(v.token_blocks_free == w->limits.token_blocks, "tokens_left",
           "daemon %u: %u of %u blocks free", d, v.token_blocks_free, w->limits.token_blocks);
    EXPECT(v.retires_free == w->limits.retires, "retires_left", "daemon %u: %u of %u free", d,
           v.retires_free, w->limits.retires);
    EXPECT(v.oldest_quarantine_ns == 0, "quarantine_left", "daemon %u", d);
    for (uint32_t i = 0; i < w->limits.pools; i++)
        if (core_pool_view(core, i, &p))
            for (uint32_t g = 0; g < p.ngroups; g++)
                check_group(w, d, i, &p.group[g], g);
}

/* Only where the model knows every node, and no two share a window. */
static void check_superseded(struct sim *w, uint32_t d)
{
    struct pool_view v;

    if (!w->cfg.nstate || w->reach > 1 || w->cfg.tight || w->cfg.supersede == SUPERSEDE_OFF ||
        w->d[d].resets)
        return;
    for (uint32_t t = 0; t < w->cfg.tenants; t++)
        for (uint32_t i = 0; i < w->granules; i++)
            if (w->d[d].granule[t][i].own == OWN_ORPHAN || w->d[d].granule[t][i].own == OWN_PULL)
                return;
    for (uint32_t p = 0; p < POOLS; p++) {
        if (!w->d[d].pool[p].open || w->d[d].pool[p].closing || w->d[d].pool[p].unheard ||
            !core_pool_view(w->d[d].core, w->d[d].pool[p].id.slot, &v))
            continue;
        for (STATE_GROUPS(w, g))
            EXPECT(v.group[g].snapshot <= state_most(w, d, p, g), "state_kept",
                   "pool %u group %u: %u pages in use, at most %u are needed", p, g,
                   v.group[g].snapshot, state_most(w, d, p, g));
    }
}

static bool nodes_left(const struct sim *w)
{
    struct core_view v;
    uint32_t n = 0;

    for (uint32_t d = 0; d < DAEMONS; d++) {
        core_view(w->d[d].core, &v);
        n += v.nodes;
    }
    return n > 0;
}

/* A hand-over may have named a later step. */
static void run_named(struct sim *w)
{
    for (uint32_t d = 0; d < DAEMONS; d++) {
        for (uint32_t e = 0; e < ENGINES; e++)
            if (w->d[d].engine[e].used) {
                engine_make_room(w, d, e);
                engine_dispatch(w, d, e);
            }
        run_devices(w, d);
    }
    quiesce(w);
}

/* Y2: fetches the standing tickets; they arrive whole, unless the pool has no room or lies on other
 * ranks. */
static void tickets_come(struct sim *w)
{
    for (uint32_t d = 0; d < DAEMONS; d++)
        for (uint32_t i = 0; i < SESSIONS; i++) {
            uint32_t by = ticket_fetch_last(w, d, i);

            quiesce(w);
            if (by != NO)
                ticket_came_last(w, d, i, by);
            close_sessions(w, sim_far(w, d));
        }
    for (uint32_t d = 0; d < DAEMONS; d++)
        run_devices(w, d);
    quiesce(w);
}

/* Y3, P5: a ticket that nobody has fetched ends at its deadline. */
static void tickets_pass(struct sim *w)
{
    for (uint32_t d = 0; d < DAEMONS; d++)
        tickets_check(w, d);
    if (w->now < tickets_until(w))
        w->now = tickets_until(w);
    quiesce(w);
    for (uint32_t d = 0; d < DAEMONS; d++)
        tickets_check(w, d);
    EXPECT(tickets_until(w) == 0, "tickets_left", "a ticket stands for ever");
}

/* Everything ends: engines release all they have; cached prefixes are stored and evicted. `ends`:
 * the daemons are shut down before. */
static void come_to_rest(struct sim *w, bool ends)
{
    turns_near(w);
    for (uint32_t d = 0; d < DAEMONS; d++)
        for (uint32_t e = 0; e < ENGINES; e++)
            settle_engine(w, d, e);
    for (uint32_t d = 0; d < DAEMONS; d++)
        turns_end(w, d);
    heal(w);
    quiesce(w);
    for (uint32_t d = 0; d < DAEMONS; d++) {
        run_devices(w, d);
        close_sessions(w, d);
        leases_end(w, d);
        run_devices(w, d);
    }
    quiesce(w);
    if (w->cfg.ticket_ms) {
        run_named(w);
        tickets_come(w);
        tickets_pass(w);
    }
    for (uint32_t d = 0; d < DAEMONS; d++) {
        check_superseded(w, d);
        unpin_all(w, d);
    }
    quiesce(w); /* pinned pages may be copied to the host now */
    if (ends) {
        for (uint32_t d = 0; d < DAEMONS; d++)
            disk_told_to_end(w, d);
        quiesce(w);
        for (uint32_t d = 0; d < DAEMONS; d++)
            disk_check_ended(w, d);
    }
    for (uint32_t i = 0; i == 0 || (w->cfg.disk && nodes_left(w)); i++) {
        EXPECT(i < ROUNDS, "nodes_left", "after %u rounds", ROUNDS);
        for (uint32_t d = 0; d < DAEMONS; d++)
            evict(w, d, true);
        quiesce(w); /* with a disk, what leaves memory is stored first */
    }
    for (uint32_t d = 0; d < DAEMONS; d++) {
        check_rest(w, d);
        disk_check_rest(w, d);
    }
}

void converge(struct sim *w)
{
    w->quiet_phase = 1;
    w->rng = 12345;
    TRACE("faults stop\n");
    for (uint32_t d = 0; d < DAEMONS; d++)
        if (disk_shutting(w, d))
            daemon_restart(w, d);
    come_to_rest(w, w->cfg.disk && w->cfg.seed_tokens >> 1 & 1);
    if (!w->cfg.disk)
        return;
    TRACE("the disks are read once more\n");
    for (uint32_t d = 0; d < DAEMONS; d++)
        disk_last_start(w, d);
    come_to_rest(w, false);
}
