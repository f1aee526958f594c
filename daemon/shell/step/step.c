/* One step of the core: the queue of what the seams report meanwhile, the step itself, and what the
 * engines have finished since the last look. What follows from a step is carried out above, by what
 * the daemon registered as `carry_out`. See daemon.h. What must stay true: the actions of one step
 * are all carried out before the next step. */
#include <string.h>

#include "base/check.h"
#include "shell/daemon.h"

void daemon_move(struct daemon *d, enum daemon_phase to)
{
    static const uint32_t next[DAEMON_STATES] = {
#define X(name, next, comment) next,
        DAEMON_STATE_TABLE(X)
#undef X
    };

    check(next[d->phase] >> to & 1);
    d->phase = to;
}

/* ---- the queue ---- */

uint32_t daemon_queue_bound(const struct core_limits *l, uint32_t procs)
{
    /* Each thing outstanding reports each kind at most once before the core has heard of it: a pull
     * its batches, broken and quiet (or, before any of them, that the link is full); a serve quiet;
     * a job, of checksums or of a copy, done; a pool zeroed; a connection, a link and a process
     * their end. */
    return l->pulls * (PULL_BATCHES_MAX + 2) + l->serves + l->seal_jobs + l->copy_jobs + l->pools +
           l->conns + l->links + procs;
}

void daemon_later(struct daemon *d, const struct event *ev)
{
    struct event_queue *q = &d->queue;

    check(q->n < q->cap);
    q->v[(q->head + q->n) % q->cap] = *ev;
    q->n++;
}

/* ---- stepping ---- */

static void step(struct daemon *d, struct event *ev)
{
    uint64_t now = io_now_ns();

    if (d->phase == DAEMON_STOPPED)
        return;
    check(!d->queue.stepping);
    ev->now_ns = now > d->last_ns ? now : d->last_ns;
    d->last_ns = ev->now_ns;
    tape_record(d->tape, ev);
    d->queue.stepping = true;
    core_step(d->core, ev, d->actions);
    d->carry_out(d);
    d->queue.stepping = false;
}

void daemon_run_queue(struct daemon *d)
{
    struct event_queue *q = &d->queue;

    while (q->n > 0) {
        struct event *ev = &q->v[q->head];

        /* The slot may be written again only after the step, so it leaves the ring behind it. */
        step(d, ev);
        q->head = (q->head + 1) % q->cap;
        q->n--;
    }
}

void daemon_event(struct daemon *d, struct event *ev)
{
    if (d->queue.n)
        daemon_run_queue(d);
    step(d, ev);
    if (d->queue.n)
        daemon_run_queue(d);
}

/* ---- done_step ---- */

void daemon_poll_engine(struct daemon *d, uint32_t slot)
{
    struct engine_watch *w = &d->engines[slot];

    for (uint32_t r = 0; w->gen && r < w->world; r++) {
        uint64_t done = mem_done_step(d->mem, w->tenant, slot, r);
        struct event ev = {.kind = EV_STEP_DONE};

        if (done <= w->last[r])
            continue; /* E2: numbers never go back; one that does is not believed */
        w->last[r] = done;
        ev.step_done.engine = (struct engine_id){.slot = slot, .gen = w->gen};
        ev.step_done.rank = r;
        ev.step_done.step = done;
        daemon_event(d, &ev);
    }
}

void daemon_poll_engines(struct daemon *d)
{
    for (uint32_t i = 0; i < d->limits.engines; i++) {
        if (d->engines[i].gen)
            daemon_poll_engine(d, i);
    }
}
