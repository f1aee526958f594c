/* One step of the core (core_step, not an engine's), and the queue of events that seams report
 * meanwhile. `carry_out`, in the daemon dispatch_actions of shell/loop/dispatch.c, carries out the
 * actions of a step. See daemon.h. Invariant: all actions of one step are carried out before the
 * next step. */
#include "base/check.h"
#include "shell/daemon.h"

uint32_t daemon_batches_bound(const struct core_limits *l)
{
    uint64_t batches = (uint64_t)l->pulls * PULL_BATCHES_MAX,
             most = (uint64_t)l->tenants * l->tenant_batches;

    return (uint32_t)(most > 0 && most < batches ? most : batches);
}

uint32_t daemon_queue_bound(const struct core_limits *l, uint32_t procs)
{
    /* Each outstanding operation reports each kind of event at most once before the core has
     * received it. A batch: it arrived. A pull: it broke, it is quiet (or, before these, its link
     * is full). A serve: it is quiet. A job of checksums, of a copy or of a turn record: it is
     * done. A pool: it is zeroed. A connection, a link, a process: it ended. A file: it is written,
     * it is gone. */
    return daemon_batches_bound(l) + l->pulls * 2 + l->serves + l->seal_jobs + l->copy_jobs +
           l->record_jobs + l->pools + l->conns + l->links + l->disk_stores + l->disk_files + procs;
}

void daemon_later(struct daemon *d, const struct event *ev)
{
    struct event_queue *q = &d->queue;

    check(q->n < q->cap);
    q->v[(q->head + q->n) % q->cap] = *ev;
    q->n++;
}

void daemon_emit(void *daemon, struct event *ev)
{
    daemon_later(daemon, ev);
}

static void step(struct daemon *d, struct event *ev)
{
    uint64_t now = io_now_ns();

    if (d->state == DAEMON_STOPPED)
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

        /* The step still reads the slot, so the slot leaves the ring after the step. */
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
