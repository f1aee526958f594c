/* See workers.h. One mutex guards the queues and the jobs' counters; it is held for a few
 * instructions and never while bytes are touched. Each job lies in one of a fixed number of slots,
 * so a full queue is a bug of whoever counts them (the core's own limit of jobs) and not a case to
 * handle. */
#include "seam/workers.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/check.h"
#include "seam/checksum.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

#define SEAL_PIECE_BYTES                                                                           \
    (128u << 10) /* what a thread takes at once, so that a job spreads over all */
#define ZERO_PIECE_BYTES     (4u << 20) /* short enough that a seal never waits long behind zeroing */
#define HUGE_BYTES           (2u << 20)
#define POPULATE_PIECE_BYTES (16u << 20)

enum job_kind { JOB_SEAL = 1, JOB_ZERO, JOB_POPULATE };

struct job {
    enum job_kind kind;
    struct id id; /* SEAL: the job; ZERO: the pool */
    struct pool_place place;
    struct page_at page[SEAL_PAGES_MAX]; /* SEAL */
    uint32_t npages;
    uint64_t *sums;
    uint32_t sums_per_page;
    bool huge, failed;           /* POPULATE */
    uint64_t items, taken, done; /* SEAL: units; else pieces of the range */
    struct job *next;
};

struct job_list {
    struct job *head, *tail;
};

struct workers {
    pthread_mutex_t lock;
    pthread_cond_t wake, populated;
    pthread_t thread[WORKERS_MAX];
    uint32_t threads;
    bool stop;
    int event_fd;
    struct job *jobs; /* owned: njobs of them */
    uint32_t njobs, queued;
    struct job_list unused, seals, ranges, finished; /* ranges: zero and populate */
    struct workers_stats stats;
};

static void list_push(struct job_list *list, struct job *job)
{
    job->next = NULL;
    if (list->tail)
        list->tail->next = job;
    else
        list->head = job;
    list->tail = job;
}

static struct job *list_pop(struct job_list *list)
{
    struct job *job = list->head;

    if (!job)
        return NULL;
    list->head = job->next;
    if (!list->head)
        list->tail = NULL;
    return job;
}

/* ------------------------------------------------------------------ pieces */

/* Items of a seal job count (page, region, unit), unit fastest; groups may differ in units, so an
 * item is found by walking the pages, of which there are at most SEAL_PAGES_MAX. */
static uint64_t seal_items(const struct job *job)
{
    uint64_t items = 0;

    for (uint32_t i = 0; i < job->npages; i++)
        items += (uint64_t)job->place.group[job->page[i].group].units * job->place.regions;
    return items;
}

static void seal_unit(const struct job *job, const struct page_at *page, uint32_t region,
                      uint32_t unit)
{
    const struct group_layout *g = &job->place.group[page->group];
    const uint8_t *bytes = job->place.base[region] + page->index * g->page_bytes;
    uint64_t from, to = checksum_unit_span(g->page_bytes, g->units, unit, &from);

    job->sums[(size_t)page->record * job->sums_per_page + region * g->units + unit] =
        checksum_unit(bytes + from, to - from);
}

static void seal_run(const struct job *job, uint64_t first, uint64_t n)
{
    for (uint32_t i = 0; i < job->npages && n > 0; i++) {
        uint32_t units = job->place.group[job->page[i].group].units;
        uint64_t here = (uint64_t)units * job->place.regions;

        if (first >= here) {
            first -= here;
            continue;
        }
        for (; first < here && n > 0; first++, n--)
            seal_unit(job, &job->page[i], (uint32_t)(first / units), (uint32_t)(first % units));
        first = 0;
    }
}

static uint64_t range_piece_bytes(const struct job *job)
{
    return job->kind == JOB_ZERO ? ZERO_PIECE_BYTES : POPULATE_PIECE_BYTES;
}

static uint64_t range_items(const struct job *job)
{
    uint64_t piece = range_piece_bytes(job);

    return (job->place.bytes + piece - 1) / piece * job->place.regions;
}

static bool populate(uint8_t *at, uint64_t n, bool huge)
{
    if (huge) {
        /* Advice only: what does not become a huge page is populated with small ones, and mem
         * reports it. A page must be there for its surroundings to be collapsed around it. */
        madvise(at, n, MADV_HUGEPAGE);
        for (uint64_t i = 0; i + HUGE_BYTES <= n; i += HUGE_BYTES)
            *(volatile uint8_t *)(at + i) = 0;
        madvise(at, n, MADV_COLLAPSE);
    }
    if (madvise(at, n, MADV_POPULATE_WRITE) == 0)
        return true;
    if (errno != EINVAL)
        return false;
    for (uint64_t i = 0; i < n; i += 4096) /* before Linux 5.14: touch each page */
        *(volatile uint8_t *)(at + i) = 0;
    return true;
}

static bool range_run(const struct job *job, uint64_t item)
{
    uint64_t piece = range_piece_bytes(job);
    uint64_t per_region = (job->place.bytes + piece - 1) / piece;
    uint64_t from = item % per_region * piece;
    uint64_t n = job->place.bytes - from < piece ? job->place.bytes - from : piece;
    uint8_t *at = job->place.base[item / per_region] + from;

    if (job->kind == JOB_POPULATE)
        return populate(at, n, job->huge);
    memset(at, 0, n);
    return true;
}

/* How many items a thread takes at once. */
static uint64_t run_length(const struct job *job)
{
    uint64_t left = job->items - job->taken, n = 1;

    if (job->kind == JOB_SEAL) {
        const struct group_layout *g = &job->place.group[job->page[0].group];
        uint64_t unit_bytes = g->page_bytes / g->units;

        n = unit_bytes < SEAL_PIECE_BYTES ? SEAL_PIECE_BYTES / unit_bytes : 1;
    }
    return n < left ? n : left;
}

/* ------------------------------------------------------------------ threads */

/* With the lock held: the job that is next, and which of its items the caller does. */
static struct job *take_run(struct workers *w, uint64_t *ret_first, uint64_t *ret_n)
{
    struct job_list *list = w->seals.head ? &w->seals : &w->ranges;
    struct job *job = list->head;

    if (!job)
        return NULL;
    *ret_first = job->taken;
    *ret_n = run_length(job);
    job->taken += *ret_n;
    if (job->taken == job->items)
        list_pop(list);
    return job;
}

static void wake_owner(struct workers *w)
{
    uint64_t one = 1;

    /* An eventfd takes every write but one that would pass 2^64; a full one is readable all the
     * same. */
    while (write(w->event_fd, &one, sizeof one) < 0 && errno == EINTR)
        ;
}

/* With the lock held. */
static void finish_run(struct workers *w, struct job *job, uint64_t n, bool ok)
{
    job->failed = job->failed || !ok;
    job->done += n;
    if (job->done < job->items)
        return;
    if (job->kind == JOB_POPULATE) {
        pthread_cond_signal(&w->populated);
        return;
    }
    if (!w->finished.head)
        wake_owner(w);
    list_push(&w->finished, job);
}

static void *worker_main(void *arg)
{
    struct workers *w = arg;

    prctl(PR_SET_NAME, "tern-worker");
    pthread_mutex_lock(&w->lock);
    while (!w->stop) {
        uint64_t first = 0, n = 0;
        struct job *job = take_run(w, &first, &n);
        bool ok = true;

        if (!job) {
            pthread_cond_wait(&w->wake, &w->lock);
            continue;
        }
        pthread_mutex_unlock(&w->lock);
        if (job->kind == JOB_SEAL)
            seal_run(job, first, n);
        else
            ok = range_run(job, first);
        pthread_mutex_lock(&w->lock);
        finish_run(w, job, n, ok);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

/* ------------------------------------------------------------------ owner */

/* The threads take no signal but those that their own access raises: the owner thread handles the
 * rest. */
static bool start_threads(struct workers *w, uint32_t threads)
{
    sigset_t blocked, before;
    bool ok = true;

    sigfillset(&blocked);
    sigdelset(&blocked, SIGBUS);
    sigdelset(&blocked, SIGSEGV);
    sigdelset(&blocked, SIGFPE);
    sigdelset(&blocked, SIGILL);
    sigdelset(&blocked, SIGABRT);
    pthread_sigmask(SIG_SETMASK, &blocked, &before);
    for (; ok && w->threads < threads; w->threads += ok ? 1 : 0)
        ok = pthread_create(&w->thread[w->threads], NULL, worker_main, w) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return ok;
}

enum tern_err workers_create(uint32_t threads, uint32_t jobs, int event_fd, struct workers **ret,
                             const char **ret_why)
{
    struct workers *w = calloc(1, sizeof *w);

    *ret_why = "no memory or no right to start the worker threads: lower `workers`";
    if (!w)
        return TERN_INTERNAL;
    w->event_fd = event_fd;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->wake, NULL);
    pthread_cond_init(&w->populated, NULL);
    w->njobs = jobs + 1; /* one to populate with */
    w->jobs = calloc(w->njobs, sizeof *w->jobs);
    if (!w->jobs)
        goto out_destroy;
    for (uint32_t i = 0; i < w->njobs; i++)
        list_push(&w->unused, &w->jobs[i]);
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

static struct job *job_take(struct workers *w, enum job_kind kind, struct id id)
{
    struct job *job = list_pop(&w->unused);

    check(job); /* the core counts its jobs against the same limit */
    job->kind = kind;
    job->id = id;
    job->taken = job->done = job->items = 0;
    job->huge = job->failed = false;
    w->queued++;
    if (w->queued > w->stats.queue_high_water)
        w->stats.queue_high_water = w->queued;
    return job;
}

static void job_start(struct workers *w, struct job *job)
{
    if (job->items == 0) { /* nothing to do is done at once */
        job->items = 1;
        job->taken = 1;
        finish_run(w, job, 1, true);
        return;
    }
    list_push(job->kind == JOB_SEAL ? &w->seals : &w->ranges, job);
    pthread_cond_broadcast(&w->wake);
}

void workers_seal(struct workers *w, struct id id, const struct pool_place *place,
                  const struct page_at *pages, uint32_t n, uint64_t *sums, uint32_t sums_per_page)
{
    struct job *job;

    check(n <= SEAL_PAGES_MAX);
    pthread_mutex_lock(&w->lock);
    job = job_take(w, JOB_SEAL, id);
    job->place = *place;
    memcpy(job->page, pages, n * sizeof *pages);
    job->npages = n;
    job->sums = sums;
    job->sums_per_page = sums_per_page;
    job->items = seal_items(job);
    job_start(w, job);
    pthread_mutex_unlock(&w->lock);
}

void workers_zero(struct workers *w, struct id pool, const struct pool_place *place)
{
    struct job *job;

    pthread_mutex_lock(&w->lock);
    job = job_take(w, JOB_ZERO, pool);
    job->place = *place;
    job->items = range_items(job);
    job_start(w, job);
    pthread_mutex_unlock(&w->lock);
}

bool workers_populate(struct workers *w, uint8_t *base, uint64_t bytes, bool huge)
{
    struct job *job;
    bool ok;

    if (bytes == 0)
        return true;
    pthread_mutex_lock(&w->lock);
    job = job_take(w, JOB_POPULATE, (struct id){0});
    job->place = (struct pool_place){.base = {base}, .bytes = bytes, .regions = 1};
    job->huge = huge;
    job->items = range_items(job);
    job_start(w, job);
    while (job->done < job->items)
        pthread_cond_wait(&w->populated, &w->lock);
    ok = !job->failed;
    list_push(&w->unused, job);
    w->queued--;
    pthread_mutex_unlock(&w->lock);
    return ok;
}

static void job_event(struct workers *w, const struct job *job, struct event *ret)
{
    memset(ret, 0, sizeof *ret);
    if (job->kind == JOB_SEAL) {
        ret->kind = EV_SEALED;
        ret->sealed.job = job->id;
        w->stats.sealed_pages += job->npages;
    } else {
        ret->kind = EV_ZEROED;
        ret->zeroed.pool = job->id;
        w->stats.zeroed_bytes += job->place.bytes * job->place.regions;
    }
}

void workers_poll(struct workers *w, void (*emit)(void *ctx, struct event *event), void *ctx)
{
    struct event event;
    uint64_t count;
    ssize_t got;

    do
        got = read(w->event_fd, &count, sizeof count);
    while (got < 0 && errno == EINTR);
    for (uint32_t i = 0; i < w->njobs;
         i++) { /* a callback may submit another: bounded all the same */
        struct job *job;

        pthread_mutex_lock(&w->lock);
        job = list_pop(&w->finished);
        if (job) {
            job_event(w, job, &event);
            list_push(&w->unused, job);
            w->queued--;
        }
        pthread_mutex_unlock(&w->lock);
        if (!job)
            return;
        emit(ctx, &event);
    }
    wake_owner(w); /* more may be there: come back */
}

void workers_stats(struct workers *w, struct workers_stats *ret)
{
    pthread_mutex_lock(&w->lock);
    *ret = w->stats;
    pthread_mutex_unlock(&w->lock);
}
