/* Engines: their processes and connections, and the steps that their ranks have finished. An engine
 * is gone when the exit of its last process is proven, or that process reported that it unmapped
 * everything (E1). After the first of its processes died, it gets no more work done, and nothing
 * that it had is reused until it is gone. Then everything is freed in pieces (T20). */
#include "core/session/engines.h"

#include <string.h>

#include "core/memory/record_pages.h"
#include "core/session/retires.h"
#include "core/session/sessions.h"
#include "core/transfer/pulls.h"
#include "core/tree/nodes.h"

enum tern_err engine_of_conn(const struct core *c, const struct conn *cn,
                             struct engine **ret_engine, struct reply *ret)
{
    struct engine *e;

    if (cn->engine == NONE)
        return refuse(ret, TERN_INVALID, "join an engine on this connection first");
    e = engine_at(c, cn->engine);
    if (e->state == ENGINE_DYING)
        return refuse(ret, TERN_GONE,
                      "a process of this engine died or left: restart the engine; its pages are "
                      "released when its last process has exited");
    if (e->state != ENGINE_LIVE)
        return refuse(ret, TERN_BUSY, "not every rank of the engine has joined yet");
    *ret_engine = e;
    return TERN_OK;
}

static struct engine *by_name(const struct core *c, uint32_t tenant, const char *name)
{
    for (uint32_t i = 0; i < c->limits.engines; i++) {
        struct engine *e = engine_at(c, i);

        if (e->state != ENGINE_EMPTY && e->tenant == tenant &&
            strncmp(e->name, name, ENGINE_NAME_MAX) == 0)
            return e;
    }
    return NULL;
}

static struct engine *engine_create(struct core *c, uint32_t tenant, const struct req_join *join)
{
    struct engine *e = NULL;
    uint32_t gen;

    if (share_room(c, SHARE_ENGINES, tenant) == 0)
        return NULL;
    share_take(c, SHARE_ENGINES, tenant);
    for (uint32_t i = 0; !e; i++) /* a share includes a record */
        if (engine_at(c, i)->state == ENGINE_EMPTY)
            e = engine_at(c, i);
    gen = gen_next(e->gen);
    memset(e, 0, sizeof *e);
    e->gen = gen;
    engine_state_move(&e->state, ENGINE_JOINING);
    e->tenant = tenant;
    e->world = join->world;
    memcpy(e->name, join->name, ENGINE_NAME_MAX);
    e->sessions = e->retires = e->held_records = e->leased = LIST_EMPTY;
    for (uint32_t i = 0; i < PROCS_PER_ENGINE_MAX; i++)
        e->conns[i] = NONE;
    c->nengines++;
    touch(c);
    return e;
}

static uint32_t seat_of(const struct req_join *j)
{
    return j->role == ROLE_SCHEDULER ? RANKS_MAX : j->rank;
}

/* Returns true if the connection repeats its join. */
static bool same_seat(const struct core *c, const struct conn *cn, const struct req_join *j)
{
    const struct engine *e = engine_at(c, cn->engine);

    return strncmp(e->name, j->name, ENGINE_NAME_MAX) == 0 && e->world == j->world &&
           cn->seat == seat_of(j);
}

static enum tern_err join_check(const struct core *c, const struct conn *cn,
                                const struct req_join *j, struct reply *ret)
{
    if (cn->admin)
        return refuse(ret, TERN_DENIED,
                      "this is the admin socket: engines connect to a tenant's socket");
    if (j->world <= RANKS_MAX && j->world > tenant_at(c, cn->tenant)->config.regions)
        return refuse_numbers(
            ret, TERN_INVALID,
            "the engine has # ranks, the tenant has only # regions, and each rank needs one: raise "
            "`regions` of the tenant, or join with a smaller world",
            j->world, tenant_at(c, cn->tenant)->config.regions);
    if (j->world == 0 || j->world > RANKS_MAX ||
        (j->role != ROLE_SCHEDULER && j->rank >= j->world) || j->role > ROLE_BOTH ||
        j->name[0] == 0 || memchr(j->name, 0, ENGINE_NAME_MAX) == NULL)
        return refuse(ret, TERN_INVALID,
                      "world must be 1 to 64, rank below world, and the name not empty");
    if (j->role != ROLE_SCHEDULER && j->device.named &&
        j->device.region >= tenant_at(c, cn->tenant)->config.regions)
        return refuse(ret, TERN_INVALID,
                      "the tenant has no region on that device: name a device of the tenant's "
                      "`devices` in the daemon's configuration");
    if (cn->engine != NONE && !same_seat(c, cn, j))
        return refuse(ret, TERN_CONFLICT,
                      "this connection has already joined as another engine or rank: use one "
                      "connection for each rank");
    return TERN_OK;
}

/* Each rank has its own region: in a shared one, one page index would be two ranks' page. So all
 * ranks name their devices, or none does and region r is rank r's. */
static enum tern_err region_check(const struct engine *e, const struct req_join *j, uint32_t region,
                                  struct reply *ret)
{
    if (e->joined > 0 && j->device.named != (e->devices_named == 1))
        return refuse(
            ret, TERN_CONFLICT,
            "only some ranks of the engine name their devices: let all of them do so, or none");
    if (e->procs[j->rank].alive)
        return e->region[j->rank] == region
                   ? TERN_OK
                   : refuse(ret, TERN_CONFLICT, "this rank has already joined on another device");
    if (e->region_set >> region & 1)
        return refuse(ret, TERN_CONFLICT,
                      "another rank of this engine uses that device: each rank needs its own");
    return TERN_OK;
}

static enum tern_err seat_take(struct core *c, struct engine *e, uint32_t conn,
                               const struct req_join *j, struct reply *ret)
{
    struct conn *cn = conn_at(c, conn);
    uint32_t seat = seat_of(j), region = j->device.named ? j->device.region : j->rank;
    struct proc_of *proc = &e->procs[seat];

    if (e->state == ENGINE_DYING)
        return refuse(ret, TERN_BUSY,
                      "a process of this engine died or left: wait until its other processes have "
                      "exited, then join again");
    if (e->state == ENGINE_ENDING)
        return refuse(ret, TERN_BUSY,
                      "the daemon is still releasing the pages of a former engine of that name: "
                      "join again in a moment");
    if (e->world != j->world)
        return refuse(
            ret, TERN_CONFLICT,
            "the engine's other ranks joined with another world size: join with the same one");
    if (proc->alive &&
        (proc->proc != cn->proc || (e->conns[seat] != NONE && e->conns[seat] != conn)))
        return refuse(ret, TERN_CONFLICT,
                      "that rank has already joined, from another process or over another "
                      "connection of this process");
    if (seat < RANKS_MAX)
        TRY(region_check(e, j, region, ret));
    if (!proc->alive && seat < RANKS_MAX) {
        e->joined++;
        e->devices_named = j->device.named;
        e->region[seat] = (uint8_t)region;
        e->region_set |= 1ull << region;
    }
    if (!proc->alive) {
        proc->proc = cn->proc;
        proc->alive = 1;
        e->alive++;
    }
    if (e->state == ENGINE_JOINING && e->joined == e->world)
        engine_state_move(&e->state, ENGINE_LIVE);
    e->conns[seat] = conn;
    cn->engine = engine_slot(c, e);
    cn->seat = seat;
    touch(c);
    return TERN_OK;
}

enum tern_err engine_join(struct core *c, struct call *call, struct reply *ret)
{
    const struct req_join *j = &call->req->join;
    struct conn *cn = call->conn;
    struct engine *e;

    TRY(join_check(c, cn, j, ret));
    e = by_name(c, cn->tenant, j->name);
    if (!e)
        e = engine_create(c, cn->tenant, j);
    if (!e)
        return refuse(ret, TERN_BUSY, share_refused(SHARE_ENGINES));
    ret->join.engine = engine_id(c, e);
    return seat_take(c, e, call->req->conn, j, ret);
}

void engine_attach(struct core *c, struct engine *e, uint32_t pool)
{
    struct pool *p = pool_at(c, pool);

    if (e->pools & 1ull << pool)
        return;
    e->pools |= 1ull << pool;
    p->engines++;
    if (p->opener == NONE)
        p->opener = engine_slot(c, e);
    touch(c);
}

/* The slot may be reused by another engine, so the pool names an engine that still maps it. */
static void engine_detach(struct core *c, const struct engine *e, uint32_t pool)
{
    struct pool *p = pool_at(c, pool);

    p->engines--;
    if (p->opener != engine_slot(c, e))
        return;
    p->opener = NONE;
    for (uint32_t i = 0; i < c->limits.engines && p->opener == NONE; i++) {
        const struct engine *other = engine_at(c, i);

        if (other != e && other->state != ENGINE_EMPTY && other->pools & 1ull << pool)
            p->opener = i;
    }
}

/* Leaves the engine's records to engines_flush. Its connections may join another engine; its name,
 * its pools and their regions stay taken until the end. */
static void engine_begin_end(struct core *c, struct engine *e)
{
    for (uint32_t i = 0; i < PROCS_PER_ENGINE_MAX; i++)
        if (e->conns[i] != NONE) {
            wait_end(c, conn_at(c, e->conns[i])); /* its process is gone */
            conn_at(c, e->conns[i])->engine = NONE;
        }
    pull_engine_gone(c, engine_slot(c, e));
    c->nbehind -= e->done_min < e->passed;
    e->passed = e->done_min;
    e->drop_at = e->retires.head;
    engine_state_move(&e->state, ENGINE_ENDING);
    c->nending++;
}

static void engine_end(struct core *c, struct actions *out, struct engine *e)
{
    for (uint32_t i = 0; i < c->limits.pools; i++)
        if (e->pools & 1ull << i)
            engine_detach(c, e, i);
    action_add(out, ACT_ENGINE_GONE)->engine.engine = engine_id(c, e);
    engine_state_move(&e->state, ENGINE_EMPTY);
    share_put(c, SHARE_ENGINES, e->tenant);
    c->nending--;
    c->nengines--;
    ticket_looks(c); /* records of the tenant are free, and the engine's refills are over */
    touch(c);
}

/* Returns false if more is left to do. */
static bool give_back(struct core *c, struct actions *out, struct engine *e, uint32_t end)
{
    while (e->sessions.n > 0) {
        struct session *s = session_at(c, e->sessions.head);

        if (!session_close_told(c, out, s, TERN_OK))
            return false;
        if (s->state != SESSION_CLOSING)
            session_close(c, s, 0, true);
        if (!session_give_back(c, s, end))
            return false;
    }
    while (c->visits < end && engine_record_drop(c, e))
        ;
    if (!leases_drop(c, e, end))
        return false;
    return c->visits < end && retire_drop_all(c, e, end);
}

bool engines_flush(struct core *c, struct actions *out)
{
    bool all = true;

    for (uint32_t i = 0; i < c->limits.engines && c->nending > 0; i++) {
        struct engine *e = engine_at(c, i);

        if (e->state != ENGINE_ENDING)
            continue;
        touch(c);
        if (give_back(c, out, e, give_back_begin(c)) && actions_room(out) > 0)
            engine_end(c, out, e);
        else
            all = false;
    }
    return all;
}

static void seat_leave(struct core *c, struct actions *out, struct engine *e, uint32_t seat,
                       bool died)
{
    struct proc_of *proc = &e->procs[seat];

    if (!proc->alive)
        return;
    proc->alive = 0;
    e->alive--;
    touch(c);
    if (e->alive == 0) {
        engine_begin_end(c, e);
        return;
    }
    if (died && e->state != ENGINE_DYING) /* no alarm for an orderly shutdown of several ranks */
        action_add(out, ACT_ENGINE_STUCK)->engine.engine = engine_id(c, e);
    if (e->state != ENGINE_DYING)
        engine_state_move(&e->state, ENGINE_DYING);
    waits_look(c, e);
}

void engine_proc_gone(struct core *c, struct actions *out, uint32_t proc)
{
    for (uint32_t i = 0; i < c->limits.engines; i++) {
        struct engine *e = engine_at(c, i);

        for (uint32_t s = 0; s < PROCS_PER_ENGINE_MAX && e->state != ENGINE_EMPTY; s++)
            if (e->procs[s].alive && e->procs[s].proc == proc)
                seat_leave(c, out, e, s, true);
    }
}

enum tern_err engine_leave(struct core *c, struct call *call, struct reply *ret)
{
    struct conn *cn = call->conn;
    struct engine *e;

    if (cn->engine == NONE)
        return refuse(ret, TERN_INVALID, "this connection has joined no engine");
    e = engine_at(c, cn->engine);
    wait_gone(c, call->out, cn);
    session_turns_lost(c, call->req->conn);
    e->conns[cn->seat] = NONE;
    cn->engine = NONE;
    seat_leave(c, call->out, e, cn->seat, false);
    return TERN_OK;
}

/* An operator's kick: as if a process of the engine had died. The shell closes its connections. */
enum tern_err request_engine_kick(struct core *c, struct call *call, struct reply *ret)
{
    struct engine_id id = call->req->engine_kick.engine;
    struct engine *e = engine_find(c, id);

    if (!e)
        return refuse(ret, TERN_GONE,
                      "no such engine: it has ended; `ternctl engines` lists the others");
    if (e->state == ENGINE_ENDING)
        return refuse(ret, TERN_CONFLICT,
                      "that engine has already ended, and the daemon is releasing its pages");
    if (e->state != ENGINE_DYING) {
        action_add(call->out, ACT_ENGINE_STUCK)->engine.engine = id;
        engine_state_move(&e->state, ENGINE_DYING);
        touch(c);
    }
    waits_look(c, e);
    ret->engine_kick.engine = id;
    ret->engine_kick.alive = e->alive;
    return TERN_OK;
}

void engine_conn_closed(struct core *c, uint32_t conn)
{
    struct conn *cn = conn_at(c, conn);

    if (cn->engine != NONE)
        engine_at(c, cn->engine)->conns[cn->seat] = NONE;
    cn->engine = NONE;
    cn->open = 0;
    touch(c);
}

void engine_step_done(struct core *c, struct engine_id engine, uint32_t rank, uint64_t step)
{
    struct engine *e = engine_find(c, engine);

    if (e && rank < e->world && e->procs[rank].alive)
        steps_shown(c, e, rank, step);
}
