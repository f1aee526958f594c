/* An operator's ends: sessions, engines, pools. The core may end them only where nothing can still
 * touch the freed pages: a session in use is left alone, a kicked engine keeps its pages until its
 * processes have exited, and a pool is closed only when nobody has mapped it. */
#include "leases.h"
#include "tickets.h"

/* --- a session --- */

static bool idle(const struct session *s)
{
    return s->gate == GATE_OPEN &&
           (s->turn == TURN_NEW || s->turn == TURN_FINISHED || s->turn == TURN_AWAY);
}

static void end_session(struct sim *w, uint32_t d)
{
    struct daemon *m = &w->d[d];
    struct session *s = &m->session[pick(w, SESSIONS)];
    const struct engine *g = &m->engine[s->engine];
    struct engine_view e;
    struct event ev;

    if (!s->live || s->turn == TURN_HANDED || s->deaf || may_be_undone(w, d, s))
        return;
    request_init(w, d, &ev, OP_SESSION_END, 0);
    ev.request.session_end.session = s->id;
    s->ending = 1;
    sim_ask(w, d, &ev, "session_end_answer");
    s->ending = 0;
    if (w->reply->err != TERN_OK) {
        EXPECT(w->reply->err == TERN_BUSY || w->reply->err == TERN_CONFLICT, "session_end_refused",
               "err %u %s", w->reply->err, w->reply->text);
        EXPECT(w->reply->err == TERN_BUSY || g->dying || w->cfg.leases || s->piece_end || !idle(s),
               "session_end_refused", "an idle session: %s", w->reply->text);
        MARK(session_end_refused);
        return;
    }
    EXPECT(idle(s) && !g->dying, "session_end_in_use", "session %u.%u, turn %u, gate %u",
           s->id.slot, s->id.gen, s->turn, s->gate);
    EXPECT(core_engine_view(m->core, g->id.slot, &e) &&
               (s->last_step <= e.named || s->last_step <= g->min_done),
           "session_end_step", "step %llu, and step %u touches it", (unsigned long long)e.named,
           s->last_step);
    TRACE("  daemon %u: an operator closes session %u.%u at step %llu\n", d, s->id.slot, s->id.gen,
          (unsigned long long)e.named);
    session_forget(w, d, s, (uint32_t)e.named);
    MARK(session_ended);
}

/* --- an engine --- */

static void kick_engine(struct sim *w, uint32_t d, uint32_t e)
{
    struct engine *g = &w->d[d].engine[e];
    uint32_t alive = 0;
    struct event ev;

    if (!g->used || !g->known)
        return;
    for (uint32_t s = 0; s < g->nprocs; s++)
        alive += (g->seen >> s & 1) && g->proc[s].state != PROC_NONE;
    request_init(w, d, &ev, OP_ENGINE_KICK, 0);
    ev.request.engine_kick.engine = g->id;
    TRACE("  daemon %u: an operator kicks engine %u\n", d, e);
    g->dying = 1;
    sim_ask(w, d, &ev, "engine_kick_answer");
    EXPECT(w->reply->err == TERN_OK && w->reply->engine_kick.alive == alive, "engine_kick_refused",
           "err %u, %u processes, the model has %u", w->reply->err, w->reply->engine_kick.alive,
           alive);
    for (uint32_t s = 0; s < g->nprocs; s++)
        if (g->proc[s].conn != NO)
            conn_close(w, d, g->proc[s].conn);
    MARK(engine_kicked);
}

/* --- a pool --- */

static void end_pool(struct sim *w, uint32_t d, uint32_t p)
{
    struct daemon *m = &w->d[d];
    struct pool *pl = &m->pool[p];
    uint32_t sessions = 0;
    struct event ev;

    if (!pl->open || pl->closing)
        return;
    for (uint32_t s = 0; s < SESSIONS; s++)
        sessions += m->session[s].live && m->session[s].pool == p;
    request_init(w, d, &ev, OP_POOL_END, 0);
    ev.request.pool_end.pool = pl->id;
    TRACE("  daemon %u: an operator closes pool %u\n", d, p);
    sim_ask(w, d, &ev, "pool_end_answer");
    if (w->reply->err != TERN_OK) {
        EXPECT(w->reply->err == TERN_CONFLICT || w->reply->err == TERN_GONE, "pool_end_refused",
               "err %u %s", w->reply->err, w->reply->text);
        MARK(pool_end_refused);
        return;
    }
    EXPECT(pl->engines == 0 && sessions == 0, "pool_end_in_use", "engines %x, %u sessions",
           pl->engines, sessions);
    pl->closing = 1;
    pl->evictions++;
    MARK(pool_ended);
}

/* A pool that nobody has mapped; NO: none. */
static uint32_t pool_unmapped(const struct sim *w, uint32_t d)
{
    for (uint32_t i = 0; i < POOLS; i++)
        if (w->d[d].pool[i].open && !w->d[d].pool[i].closing && w->d[d].pool[i].engines == 0)
            return i;
    return NO;
}

void operator_ends(struct sim *w, uint32_t d)
{
    uint32_t r = pick(w, 100), unmapped = pool_unmapped(w, d);

    if (unmapped != NO && r % 2 == 0)
        end_pool(w, d, unmapped);
    else if (r < 50)
        end_session(w, d);
    else if (r < 60)
        kick_engine(w, d, pick(w, ENGINES));
    else
        end_pool(w, d, pick(w, POOLS));
}
