/* Which steps of an engine are done. Each rank publishes a number in its control page, where any
 * value may be written; requests name the steps that matter. Called with each reading and after
 * each request. A connection may wait for a step (E10). Invariant: a step counts as done only if
 * every rank has shown it, or a later one that is no jump (E2, E7); a waiter is answered after what
 * the step published and freed. */
#include "core/session/engines.h"

#include "core/session/retires.h"

bool steps_jumped(const struct engine *e, uint32_t rank)
{
    return e->shown[rank] > e->named && e->shown[rank] - e->named > STEPS_UNNAMED_MAX;
}

/* E7: a reading that jumped proves nothing. If it counted, everything that waits would be freed,
 * since every step was named. */
void steps_count(struct core *c, struct engine *e)
{
    uint64_t min = UINT64_MAX;

    for (uint32_t r = 0; r < e->world; r++) {
        if (!steps_jumped(e, r))
            e->done[r] = e->shown[r];
        if (e->done[r] < min)
            min = e->done[r];
    }
    if (min == e->passed)
        return;
    c->nbehind += e->passed == e->done_min;
    e->passed = min;
    e->waits_since_ns = c->now_ns;
    touch(c);
    piece_begin(c);
    retire_advance(c, e, give_back_end(c));
}

void steps_shown(struct core *c, struct engine *e, uint32_t rank, uint64_t step)
{
    if (step == e->shown[rank] || step < e->done[rank]) /* E2: numbers never go back */
        return;
    e->shown[rank] = step;
    e->jumps += steps_jumped(e, rank);
    touch(c);
    steps_count(c, e);
}

static void wait_answer(struct actions *out, const struct conn *cn, enum tern_err err,
                        const char *text)
{
    reply_late(out, cn->wait, OP_WAIT_PUBLISHED, err, text);
}

void wait_end(struct core *c, struct conn *cn)
{
    struct engine *e;

    if (cn->wait_step == 0)
        return;
    e = engine_at(c, cn->engine);
    waits_look(c, e); /* its step may have been the lowest */
    cn->wait_step = 0;
    e->nwaits--;
    c->nwaits--;
}

void wait_gone(struct core *c, struct actions *out, struct conn *cn)
{
    if (cn->wait_step > 0)
        wait_answer(out, cn, TERN_GONE,
                    "this process left the engine, or the engine ended, which ended the wait");
    wait_end(c, cn);
}

/* Only the newest wait of a connection counts: a client that timed out asks again. */
enum tern_err wait_published(struct core *c, struct call *call, struct reply *ret)
{
    uint64_t step = call->req->wait_published.step;
    struct conn *cn = call->conn;

    (void)ret;
    step_named(c, call->engine, step);
    if (step <= call->engine->done_min)
        return TERN_OK;
    if (cn->wait_step > 0)
        wait_answer(call->out, cn, TERN_CONFLICT,
                    "a later wait of this connection replaced this one");
    wait_end(c, cn);
    cn->wait_step = step;
    cn->wait = call_later(call);
    call->engine->nwaits++;
    c->nwaits++;
    waits_look(c, call->engine);
    return TERN_OK;
}

/* A follower of one of its sessions (Y4) waits for the next step, whatever its number. */
static uint64_t followers_want(const struct engine *e)
{
    return e->nfollowed > 0 && e->named > e->done_min ? e->done_min + 1 : 0;
}

/* Answers due waits; *ret_lowest: the lowest step of the others. Returns false without room. */
static bool waits_answer(struct core *c, struct actions *out, struct engine *e,
                         uint64_t *ret_lowest)
{
    uint64_t lowest = followers_want(e);

    for (uint32_t seat = 0; seat < PROCS_PER_ENGINE_MAX && e->nwaits > 0; seat++) {
        struct conn *cn = e->conns[seat] == NONE ? NULL : conn_at(c, e->conns[seat]);

        if (!cn || cn->wait_step == 0)
            continue;
        if (e->state != ENGINE_DYING && cn->wait_step > e->done_min) {
            lowest = lowest == 0 || cn->wait_step < lowest ? cn->wait_step : lowest;
            continue;
        }
        if (actions_room(out) == 0)
            return false;
        if (e->state == ENGINE_DYING) {
            wait_gone(c, out, cn);
        } else {
            wait_answer(out, cn, TERN_OK, "");
            wait_end(c, cn);
        }
    }
    *ret_lowest = lowest;
    return true;
}

bool waits_flush(struct core *c, struct actions *out)
{
    for (uint32_t i = 0; i < c->limits.engines && c->waits_changed; i++) {
        struct engine *e = engine_at(c, i);
        uint64_t lowest;

        if (!e->waits_changed)
            continue;
        if (!waits_answer(c, out, e, &lowest) || actions_room(out) == 0)
            return false;
        e->waits_changed = 0;
        if (lowest != e->wanted) {
            struct action *a = action_add(out, ACT_STEP_WANTED);

            a->wanted.engine = engine_id(c, e);
            a->wanted.step = e->wanted = lowest;
        }
        touch(c);
    }
    c->waits_changed = 0;
    return true;
}
