/* See workers.h. One mutex guards the queues and the jobs' counters; it is held for a few
 * instructions and never while bytes are touched. The owner takes the mutex once a turn for all
 * jobs that its steps queued, because threads that finish small jobs take it all the time. Jobs lie
 * in a fixed number of slots. The core limits its jobs, so a full queue is a bug of the core. */
#include "seam/mem/workers.h"

#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "base/check.h"
#include "base/container.h"
#include "seam/io/io.h"
#include "seam/mem/mem_fault.h"
#include "seam/mem/record_check.h"
#include "seam/mem/workers_job.h"
#include "seam/own_threads.h"

#define FIRST_TIMES 7u /* times the time of others: see note_time */
/* Finished jobs that the owner receives in a turn, before it takes requests again. */
#define JOBS_A_TURN SEALED_JOBS_MAX

struct workers {
    pthread_mutex_t lock;
    pthread_cond_t wake, populated;
    pthread_t thread[MEM_WORKERS_MAX];
    uint32_t threads;
    bool stop;
    int event_fd;
    struct job *jobs; /* owned: njobs of them */
    uint32_t njobs, queued;
    struct fifo unused, fresh; /* the owner's alone. fresh: until workers_start */
    struct fifo finished, seals, copies, others;
    uint64_t first_ns;    /* for this long seals and copies go before waiting others */
    uint32_t others_runs; /* under way: at most one is begun before a seal or a copy */
    uint64_t turns, turn[2 * MEM_TENANTS_MAX]; /* of others: each holder's last turn */
    struct mem_stats *stats;                   /* borrowed; the owner's alone */
};

/* ------------------------------------------------------------------ threads */

/* Transfers wait for seals, and sessions that resume wait for copies. */
static struct fifo *list_of(struct workers *w, enum job_kind kind)
{
    return kind == JOB_SEAL ? &w->seals : kind == JOB_COPY ? &w->copies : &w->others;
}

/* Each tenant has a turn for its records, and one for the zeroing of its memory. */
static uint64_t *turn_of(struct workers *w, const struct job *job)
{
    return job->kind == JOB_RECORD ? &w->turn[2 * job->record.tenant]
                                   : &w->turn[2 * job->place.tenant + 1];
}

/* Picks the holder that has waited longest, so that a tenant delays another by one piece and not by
 * all of its memory. */
static struct job *next_other(struct workers *w)
{
    struct job *next = NULL;

    for (struct fifo_link *at = w->others.first; at; at = at->next) {
        struct job *job = container_of(at, struct job, link);

        if (!next || *turn_of(w, job) < *turn_of(w, next))
            next = job;
    }
    if (next)
        *turn_of(w, next) = ++w->turns;
    return next;
}

/* Caller holds the lock. Returns the next job, and the items of it that the caller must do. */
static struct job *take_run(struct workers *w, uint64_t *ret_first, uint64_t *ret_n)
{
    bool other = w->others.first && w->others_runs == 0 && w->first_ns == 0;
    struct fifo *list = other             ? &w->others
                        : w->seals.first  ? &w->seals
                        : w->copies.first ? &w->copies
                                          : &w->others;
    struct job *job = list == &w->others ? next_other(w) : fifo_first(list, struct job, link);

    if (!job)
        return NULL;
    w->others_runs += list == &w->others;
    *ret_first = job->taken;
    *ret_n = job_run_length(job);
    job->taken += *ret_n;
    if (job->taken == job->items)
        fifo_remove(list, &job->link);
    return job;
}

/* Caller holds the lock. Seals and copies get at most FIRST_TIMES the time of waiting others: a
 * tenant that always copies could otherwise keep another from its memory for ever. */
static void note_time(struct workers *w, const struct job *job, uint64_t took_ns)
{
    if (list_of(w, job->kind) == &w->others) {
        w->others_runs--;
        w->first_ns = FIRST_TIMES * took_ns;
    } else {
        w->first_ns -= w->first_ns < took_ns ? w->first_ns : took_ns;
    }
}

/* Caller holds the lock. Returns true if the caller must then wake the owner, after releasing the
 * lock, which the owner takes first of all. */
static bool finish_run(struct workers *w, struct job *job, uint64_t n, bool ok)
{
    const bool first = !w->finished.first;

    job->failed = job->failed || !ok;
    job->done += n;
    if (job->done < job->items)
        return false;
    if (job->kind == JOB_POPULATE) {
        pthread_cond_signal(&w->populated);
        return false;
    }
    fifo_push(&w->finished, &job->link);
    return first;
}

static void *worker_main(void *arg)
{
    struct workers *w = arg;

    prctl(PR_SET_NAME, "tern-worker");
    /* Best effort: a worker that wakes then preempts no thread that answers requests. */
    (void)sched_setscheduler(0, SCHED_BATCH, &(struct sched_param){0});
    pthread_mutex_lock(&w->lock);
    while (!w->stop) {
        uint64_t first = 0, n = 0, begun_ns;
        struct job *job = take_run(w, &first, &n);
        bool ok;

        if (!job) {
            pthread_cond_wait(&w->wake, &w->lock);
            continue;
        }
        pthread_mutex_unlock(&w->lock);
        begun_ns = io_now_ns();
        ok = job_run(job, first, n);
        pthread_mutex_lock(&w->lock);
        note_time(w, job, io_now_ns() - begun_ns);
        if (finish_run(w, job, n, ok)) {
            pthread_mutex_unlock(&w->lock);
            eventfd_wake(w->event_fd);
            pthread_mutex_lock(&w->lock);
        }
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

/* ------------------------------------------------------------------ owner */

static bool start_threads(struct workers *w, uint32_t threads)
{
    while (w->threads < threads && own_thread_start(&w->thread[w->threads], worker_main, w) == 0)
        w->threads++;
    return w->threads == threads;
}

uint64_t workers_bytes(uint32_t jobs)
{
    return sizeof(struct workers) + ((uint64_t)jobs + 1) * sizeof(struct job);
}

enum tern_err workers_create(uint32_t threads, uint32_t jobs, int event_fd, struct mem_stats *stats,
                             struct workers **ret, const char **ret_why)
{
    struct workers *w = calloc(1, sizeof *w);

    *ret_why =
        "the worker threads cannot be started, for lack of memory or permission: lower `workers`";
    if (!w)
        return TERN_INTERNAL;
    w->event_fd = event_fd;
    w->stats = stats;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->wake, NULL);
    pthread_cond_init(&w->populated, NULL);
    w->njobs = jobs + 1; /* one for populating */
    w->jobs = calloc(w->njobs, sizeof *w->jobs);
    if (!w->jobs)
        goto out_destroy;
    for (uint32_t i = 0; i < w->njobs; i++)
        fifo_push(&w->unused, &w->jobs[i].link);
    if (!start_threads(w, threads))
        goto out_destroy;
    *ret_why = NULL;
    *ret = w;
    return TERN_OK;

out_destroy:
    workers_destroy(w);
    return TERN_INTERNAL;
}

void workers_destroy(struct workers *w)
{
    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    w->stop = true;
    pthread_cond_broadcast(&w->wake);
    pthread_mutex_unlock(&w->lock);
    for (uint32_t i = 0; i < w->threads; i++)
        pthread_join(w->thread[i], NULL);
    pthread_cond_destroy(&w->populated);
    pthread_cond_destroy(&w->wake);
    pthread_mutex_destroy(&w->lock);
    free(w->jobs);
    free(w);
}

static struct job *job_take(struct workers *w, enum job_kind kind)
{
    struct job *job = fifo_pop(&w->unused, struct job, link);

    check(job); /* the core counts its jobs against the same limit */
    job->kind = kind;
    job->taken = job->done = job->items = 0;
    job->huge = job->spoil = job->failed = false;
    job->brought = 0;
    w->queued++;
    if (w->queued > w->stats->queue_high_water)
        w->stats->queue_high_water = w->queued;
    return job;
}

/* Copies the entries in use: a whole place is 2 KiB, most of it for ranks that few pools have. */
static void place_copy(struct pool_place *to, const struct pool_place *from)
{
    const uint32_t n = from->regions;

    memcpy(to, from, offsetof(struct pool_place, base));
    memcpy(to->base, from->base, n * sizeof *to->base);
    memcpy(to->region, from->region, n * sizeof *to->region);
    memcpy(to->brought, from->brought, n * sizeof *to->brought);
    memcpy(to->group, from->group, from->ngroups * sizeof *to->group);
}

static void job_queue(struct workers *w, struct job *job)
{
    job->items = job_items(job);
    fifo_push(&w->fresh, &job->link);
}

bool workers_has_unstarted(const struct workers *w)
{
    return w->fresh.first != NULL;
}

void workers_start(struct workers *w)
{
    uint64_t wanted = 0;
    bool finished = false;
    struct job *job;

    if (!w->fresh.first)
        return;
    pthread_mutex_lock(&w->lock);
    while ((job = fifo_pop(&w->fresh, struct job, link))) {
        if (job->done == job->items) { /* it has no items, or the owner did them */
            finished = finish_run(w, job, 0, true) || finished;
        } else {
            fifo_push(list_of(w, job->kind), &job->link);
            wanted += job->items > 1 ? w->threads : 1;
        }
    }
    pthread_mutex_unlock(&w->lock);
    if (finished)
        eventfd_wake(w->event_fd);
    if (wanted >= w->threads)
        pthread_cond_broadcast(&w->wake);
    else
        while (wanted-- > 0)
            pthread_cond_signal(&w->wake);
}

void workers_seal(struct workers *w, struct seal_id id, const struct pool_place *place,
                  const struct page_at *pages, uint32_t n, uint64_t *sums, uint32_t sums_per_page)
{
    struct job *job;

    check(n <= SEAL_PAGES_MAX);
    job = job_take(w, JOB_SEAL);
    job->seal = id;
    place_copy(&job->place, place);
    memcpy(job->page, pages, n * sizeof *pages);
    job->npages = n;
    job->sums = sums;
    job->sums_per_page = sums_per_page;
    job_queue(w, job);
}

void workers_copy(struct workers *w, struct copy_id id, const struct pool_place *from_place,
                  const struct pool_place *to_place, const struct page_at *from,
                  const struct page_at *to, uint32_t n, uint64_t *sums, uint32_t sums_per_page,
                  bool spoil)
{
    struct job *job;

    check(n <= SEAL_PAGES_MAX);
    job = job_take(w, JOB_COPY);
    job->copy = id;
    place_copy(&job->place, from_place);
    place_copy(&job->target, to_place);
    memcpy(job->page, from, n * sizeof *from);
    memcpy(job->to, to, n * sizeof *to);
    job->npages = n;
    job->sums = sums;
    job->sums_per_page = sums_per_page;
    job->spoil = spoil;
    job_queue(w, job);
}

void workers_check_record(struct workers *w, const struct record_job *record, const uint8_t *memory,
                          bool here)
{
    struct job *job = job_take(w, JOB_RECORD);

    job->record = *record;
    job->memory = memory;
    job_queue(w, job);
    if (here) {
        record_check(&job->record, memory, mem_fault_try, &job->checked);
        job->done = job->items;
    }
}

void workers_zero(struct workers *w, struct pool_id pool, const struct pool_place *place)
{
    struct job *job = job_take(w, JOB_ZERO);

    job->zero = pool;
    place_copy(&job->place, place);
    job_queue(w, job);
}

bool workers_populate(struct workers *w, uint8_t *base, uint64_t bytes, bool huge)
{
    struct job *job;
    bool ok;

    if (bytes == 0)
        return true;
    job = job_take(w, JOB_POPULATE);
    job->place = (struct pool_place){.base = {base}, .bytes = bytes, .regions = 1};
    job->huge = huge;
    job_queue(w, job);
    workers_start(w);
    pthread_mutex_lock(&w->lock);
    while (job->done < job->items)
        pthread_cond_wait(&w->populated, &w->lock);
    ok = !job->failed;
    pthread_mutex_unlock(&w->lock);
    fifo_push(&w->unused, &job->link);
    w->queued--;
    return ok;
}

static void count_copy(struct mem_stats *stats, const struct job *job)
{
    if (job->failed) {
        stats->copies_corrupt++;
        return;
    }
    stats->copied_pages += job->npages;
    for (uint32_t i = 0; i < job->npages; i++)
        stats->copied_bytes += job->place.group[job->page[i].group].page_bytes * job->place.regions;
}

static void job_event(struct workers *w, const struct job *job, struct event *ret)
{
    if (job->kind == JOB_SEAL) {
        ret->kind = EV_SEALED;
        ret->sealed.job[ret->sealed.n++] = job->seal;
        w->stats->sealed_pages += job->npages;
        w->stats->work.sums_by_engine += job->brought;
    } else if (job->kind == JOB_COPY) {
        ret->kind = EV_COPIED;
        ret->copied.job = job->copy;
        ret->copied.err = job->failed ? TERN_CORRUPT : TERN_OK;
        count_copy(w->stats, job);
    } else if (job->kind == JOB_RECORD) {
        ret->kind = EV_RECORD_CHECKED;
        ret->checked = job->checked;
        w->stats->records_checked++;
    } else {
        ret->kind = EV_ZEROED;
        ret->zeroed.pool = job->zero;
        w->stats->zeroed_bytes += job->place.bytes * job->place.regions;
    }
}

/* Takes the first finished job and, if it is a seal, the seals right after it: at most `most` jobs.
 * Returns how many. */
static uint32_t next_event(struct workers *w, uint32_t most, struct event *ret)
{
    struct job *job;
    uint32_t n = 0;

    memset(ret, 0, sizeof *ret);
    pthread_mutex_lock(&w->lock);
    while (n < most && (job = fifo_first(&w->finished, struct job, link)) &&
           (n == 0 || (ret->kind == EV_SEALED && job->kind == JOB_SEAL))) {
        fifo_pop(&w->finished, struct job, link);
        job_event(w, job, ret);
        fifo_push(&w->unused, &job->link);
        w->queued--;
        n++;
    }
    pthread_mutex_unlock(&w->lock);
    return n;
}

void workers_poll(struct workers *w, void (*emit)(void *ctx, struct event *event), void *ctx)
{
    struct event event;

    for (uint32_t jobs = 0, n; jobs < JOBS_A_TURN; jobs += n) {
        n = next_event(w, JOBS_A_TURN - jobs, &event);
        if (n == 0)
            return;
        emit(ctx, &event);
    }
    eventfd_wake(w->event_fd); /* more may be left: poll again */
}
