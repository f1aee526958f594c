/* Waits for a step (E10). The connection of an engine's leader waits for one step at a time. The
 * model expects the answer when, by its own count, all ranks have done the step. */
#include "sim.h"

void ask_wait(struct sim *w, uint32_t d, uint32_t e)
{
    struct engine *g = &w->d[d].engine[e];
    uint32_t conn = engine_conn(w, d, e);
    uint32_t before;
    struct event ev;
    struct conn *c;

    if (conn == NO || g->dying || g->seen != (1u << g->nprocs) - 1)
        return;
    c = &w->d[d].conn[conn];
    before = c->wait_step;
    request_init(w, d, &ev, OP_WAIT_PUBLISHED, conn);
    ev.request.wait_published.step = 1 + pick(w, g->step + 2);
    c->replaced = c->wait_request;
    c->wait_request = ev.request.request_id;
    c->wait_step = (uint32_t)ev.request.wait_published.step;
    TRACE("  engine %u.%u waits for step %u\n", d, e, c->wait_step);
    sim_step(w, d, &ev);
    if (c->wait_request == 0 && c->replaced) { /* answered at once: the earlier wait continues */
        c->wait_request = c->replaced;
        c->wait_step = before;
        c->replaced = 0;
    }
    EXPECT(c->replaced == 0, "wait_not_replaced", "connection %u", conn);
    waits_check(w, d);
}

void wait_answered(struct sim *w, uint32_t d, const struct reply *r)
{
    struct conn *c = &w->d[d].conn[r->conn];
    const struct engine *g = &w->d[d].engine[c->engine];

    EXPECT(r->conn < CONNS && c->open, "wait_answer", "for connection %u, which is closed",
           r->conn);
    if (r->request_id == c->replaced) {
        EXPECT(r->err == TERN_CONFLICT, "wait_replaced", "err %u", r->err);
        MARK(wait_replaced);
        c->replaced = 0;
        return;
    }
    EXPECT(r->request_id == c->wait_request, "wait_answer", "connection %u asked nothing", r->conn);
    if (r->err == TERN_GONE) {
        EXPECT(g->dying || !g->used, "wait_gone", "engine %u lives", c->engine);
        MARK(wait_gone);
    } else {
        EXPECT(r->err == TERN_OK, "wait_refused", "err %u %s", r->err, r->text);
        EXPECT(c->wait_step <= g->min_done, "wait_early", "step %u of engine %u: all have done %u",
               c->wait_step, c->engine, g->min_done);
        MARK(wait_answered);
    }
    c->wait_request = 0;
}

/* A wait ends with its process, and nobody receives the answer. */
void waits_check(struct sim *w, uint32_t d)
{
    if (w->cfg.give_back && core_deadline(w->d[d].core) <= w->now)
        return; /* the answer follows the step's releases, which take pieces */
    for (uint32_t i = 0; i < CONNS; i++) {
        const struct conn *c = &w->d[d].conn[i];
        const struct engine *g = &w->d[d].engine[c->engine];

        if (!c->open || c->admin || g->proc[c->seat].conn != i ||
            g->proc[c->seat].state == PROC_NONE)
            continue;
        EXPECT(c->wait_request == 0 || (c->wait_step > g->min_done && !g->dying), "wait_forgotten",
               "connection %u, step %u of engine %u: all have done %u", i, c->wait_step, c->engine,
               g->min_done);
    }
}
