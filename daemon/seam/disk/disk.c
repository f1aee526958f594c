/* See disk.h: life, the queue of jobs, and the calls of the owner thread. */
#include "seam/disk/disk.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/container.h"
#include "base/err.h"
#include "base/undumped.h"
#include "seam/disk/disk_state.h"
#include "seam/own_threads.h"

#define BLOCKS_BYTES  ((uint64_t)DISK_LANE_PIECES * DISK_BLOCK)
#define DROPS_AT_ONCE 64u /* extents of one file that are dropped with one sync */
#define ROOM_LOOK_S   1   /* seconds between checks for room on a full disk, while nobody stores */

/* ------------------------------------------------------------------ threads */

/* Caller holds the lock, as for all functions up to thread_main. D7: nothing is dropped while an
 * earlier read may use it. Waiting reads go first anyway. */
static bool may_drop(const struct disk *disk, const struct disk_job *job)
{
    for (uint32_t i = 0; job && i < disk->config.threads; i++)
        if (disk->threads[i].reading && disk->threads[i].reading->job.asked < job->asked)
            return false;
    return job != NULL;
}

/* Keeps one of several threads for reads. */
static struct disk_job *take_job(struct disk *disk)
{
    uint32_t writers = disk->config.threads > 1 ? disk->config.threads - 1 : 1;

    if (disk->waiting[JOB_READ].first)
        return fifo_pop(&disk->waiting[JOB_READ], struct disk_job, link);
    if (may_drop(disk, fifo_first(&disk->waiting[JOB_DROP], struct disk_job, link)))
        return fifo_pop(&disk->waiting[JOB_DROP], struct disk_job, link);
    return disk->writing < writers ? fifo_pop(&disk->waiting[JOB_WRITE], struct disk_job, link)
                                   : NULL;
}

static void finish(struct disk *disk, struct disk_job *job)
{
    if (!disk->finished.first)
        eventfd_wake(disk->event_fd);
    fifo_push(&disk->finished, &job->link);
}

static struct pull_state *pull_of(struct disk *disk, struct pull_id id)
{
    check(id.slot < disk->config.pulls);
    return &disk->pulls[id.slot];
}

/* Subtracts `jobs`, which may be 0, from the jobs of the pull. */
static void pull_less(struct disk *disk, struct pull_state *pull, uint32_t jobs)
{
    check(pull->jobs >= jobs);
    pull->jobs -= jobs;
    if (!pull->stopping || pull->jobs > 0)
        return;
    pull->quiet = true;
    disk->quiet++;
    eventfd_wake(disk->event_fd);
}

static void run_read(struct disk_thread *t, struct read_job *job)
{
    struct disk *disk = t->disk;

    t->reading = job;
    pthread_mutex_unlock(&disk->lock);
    disk_read_run(t, job);
    pthread_mutex_lock(&disk->lock);
    t->reading = NULL;
    finish(disk, &job->job);
    pull_less(disk, pull_of(disk, job->pull), 1);
}

static void run_write(struct disk_thread *t, struct write_job *job)
{
    struct disk *disk = t->disk;

    disk->writing++;
    pthread_mutex_unlock(&disk->lock);
    disk_write_run(t, job);
    pthread_mutex_lock(&disk->lock);
    disk->writing--;
    pthread_cond_signal(&disk->wake); /* another write may start now */
    finish(disk, &job->job);
}

/* Runs a drop, and with it the next drops in the queue if they are of extents of the same file. */
static void run_drops(struct disk_thread *t, struct drop_job *first)
{
    struct disk *disk = t->disk;
    struct fifo *waiting = &disk->waiting[JOB_DROP];
    struct drop_job *drop[DROPS_AT_ONCE] = {first}, *next;
    uint32_t n = 1;

    while (first->drop.place.offset != 0 && n < DROPS_AT_ONCE &&
           (next = fifo_first(waiting, struct drop_job, job.link)) != NULL &&
           may_drop(disk, &next->job) && next->drop.place.offset != 0 &&
           next->drop.tenant == first->drop.tenant &&
           next->drop.place.file == first->drop.place.file)
        drop[n++] = fifo_pop(waiting, struct drop_job, job.link);
    pthread_mutex_unlock(&disk->lock);
    disk_drop_run(t, drop, n);
    pthread_mutex_lock(&disk->lock);
    for (uint32_t i = 0; i < n; i++)
        finish(disk, &drop[i]->job);
}

/* Checks whether the write that found too little room would have enough now. */
static void look_for_room(struct disk *disk)
{
    uint64_t room;
    int r;

    pthread_mutex_unlock(&disk->lock);
    r = disk->files->room(disk->files->ctx, &room);
    pthread_mutex_lock(&disk->lock);
    if (r < 0 || disk->lacked_bytes == 0)
        return;
    disk->stats.free_bytes = room;
    if (room < disk->lacked_bytes)
        return;
    disk->stats.full = false;
    disk->lacked_bytes = 0;
}

/* Waits for a job. Polls a full disk for room, or it would stay "full" while nobody stores. */
static void rest(struct disk *disk)
{
    struct timespec until;

    if (disk->lacked_bytes == 0) {
        pthread_cond_wait(&disk->wake, &disk->lock);
        return;
    }
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += ROOM_LOOK_S;
    if (pthread_cond_clockwait(&disk->wake, &disk->lock, CLOCK_MONOTONIC, &until) == ETIMEDOUT)
        look_for_room(disk);
}

static void *thread_main(void *arg)
{
    struct disk_thread *t = arg;
    struct disk *disk = t->disk;

    prctl(PR_SET_NAME, "tern-disk");
    pthread_mutex_lock(&disk->lock);
    while (!disk->stop) {
        struct disk_job *job = take_job(disk);

        if (!job)
            rest(disk);
        else if (job->kind == JOB_READ)
            run_read(t, container_of(job, struct read_job, job));
        else if (job->kind == JOB_WRITE)
            run_write(t, container_of(job, struct write_job, job));
        else
            run_drops(t, container_of(job, struct drop_job, job));
    }
    pthread_mutex_unlock(&disk->lock);
    return NULL;
}

/* ------------------------------------------------------------------ life */

static uint64_t staging_bytes(const struct disk_config *c)
{
    return (uint64_t)c->threads * c->depth * DISK_PIECE_BYTES;
}

static uint64_t meta_bytes(const struct disk_config *c)
{
    uint32_t each = c->mem ? mem_sums_per_page(c->mem) : c->sums_per_page;
    struct disk_extent most = {
        .tokens = ALIGN_TOKENS_MAX, .nkeys = EXTRA_KEYS_MAX, .nsums = SEAL_PAGES_MAX * each};

    return disk_meta_bytes(&most);
}

static uint64_t thread_bytes(const struct disk_config *c)
{
    return sizeof(struct disk_thread) + BLOCKS_BYTES + undumped_bytes(meta_bytes(c)) +
           disk_footer_bytes_max() + reader_bytes();
}

uint64_t disk_bytes(const struct disk_config *config)
{
    return sizeof(struct disk) + staging_bytes(config) + config->threads * thread_bytes(config) +
           config->writes * sizeof(struct write_job) + config->reads * sizeof(struct read_job) +
           (uint64_t)config->drops * sizeof(struct drop_job) +
           config->pulls * sizeof(struct pull_state);
}

static bool name_fits(const char *name)
{
    return name && *name && *name != '.' && !strchr(name, '/') && strlen(name) < DISK_TENANT_NAME;
}

static bool create_jobs(struct disk *disk)
{
    const struct disk_config *c = &disk->config;

    disk->writes = calloc(c->writes, sizeof *disk->writes);
    disk->reads = calloc(c->reads, sizeof *disk->reads);
    disk->drops = calloc(c->drops, sizeof *disk->drops);
    disk->pulls = calloc(c->pulls, sizeof *disk->pulls);
    if (!disk->writes || !disk->reads || !disk->drops || !disk->pulls)
        return false;
    for (uint32_t i = 0; i < c->writes; i++) {
        disk->writes[i].job.kind = JOB_WRITE;
        fifo_push(&disk->unused[JOB_WRITE], &disk->writes[i].job.link);
    }
    for (uint32_t i = 0; i < c->reads; i++) {
        disk->reads[i].job.kind = JOB_READ;
        fifo_push(&disk->unused[JOB_READ], &disk->reads[i].job.link);
    }
    for (uint32_t i = 0; i < c->drops; i++) {
        disk->drops[i].job.kind = JOB_DROP;
        fifo_push(&disk->unused[JOB_DROP], &disk->drops[i].job.link);
    }
    return true;
}

static enum tern_err create_files(struct disk *disk, const char **ret_why)
{
    const struct disk_config *c = &disk->config;
    struct file_ops_config config = {
        .dir = disk->dir,
        .lanes = c->threads,
        .staging = disk->staging,
        .lane_bytes = (uint64_t)c->depth * DISK_PIECE_BYTES,
        .lock = true,
    };

    disk->files = c->files;
    disk->stats.direct = true;
    if (c->files)
        return TERN_OK;
    TRY(file_ops_create(&config, &disk->own_files, ret_why));
    disk->files = disk->config.files = disk->own_files;
    disk->stats.direct = disk->files->direct;
    return TERN_OK;
}

static enum tern_err create_thread(struct disk *disk, uint32_t i, const char **ret_why)
{
    struct disk_thread *t = &disk->threads[i];
    const struct disk_config *c = &disk->config;

    t->disk = disk;
    t->blocks = undumped_take(BLOCKS_BYTES, true);
    t->meta = undumped_take(disk->meta_bytes, true);
    t->footer = undumped_take(disk_footer_bytes_max(), true);
    t->reader = calloc(1, reader_bytes());
    if (!t->blocks || !t->meta || !t->footer || !t->reader)
        return TERN_INTERNAL;
    pieces_init(&t->pieces, disk->files, i, c->depth,
                disk->staging + (uint64_t)i * c->depth * DISK_PIECE_BYTES, t->blocks);
    if (c->encrypt)
        TRY(disk_crypt_create(c->key, &t->crypt, ret_why));
    t->started = own_thread_start(&t->thread, thread_main, t) == 0;
    return t->started ? TERN_OK : TERN_INTERNAL;
}

static enum tern_err create_all(struct disk *disk, const char **ret_why)
{
    const char *memory = "the threads of the disk tier cannot be started, for lack of memory, "
                         "descriptors or permission: lower spill.threads";

    *ret_why = memory;
    disk->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    disk->threads = calloc(disk->config.threads, sizeof *disk->threads);
    disk->staging = undumped_take(staging_bytes(&disk->config), true);
    if (disk->event_fd < 0 || !disk->threads || !disk->staging || !create_jobs(disk))
        return TERN_INTERNAL;
    TRY(create_files(disk, ret_why));
    *ret_why = memory;
    for (uint32_t i = 0; i < disk->config.threads; i++)
        TRY(create_thread(disk, i, ret_why));
    return TERN_OK;
}

enum tern_err disk_create(const struct disk_config *config, struct disk **ret, const char **ret_why)
{
    struct disk *disk;
    enum tern_err err;

    check(config->threads >= 1 && config->threads <= DISK_THREADS_MAX);
    check(config->depth >= 1 && config->depth <= DISK_LANE_PIECES);
    check(config->tenants <= MEM_TENANTS_MAX);
    disk = calloc(1, sizeof *disk);
    if (!disk) {
        *ret_why = "no memory for the tables of the disk tier";
        return TERN_INTERNAL;
    }
    disk->config = *config;
    disk->event_fd = -1;
    disk->meta_bytes = meta_bytes(config);
    disk->dir = config->dir ? strdup(config->dir) : NULL;
    disk->config.dir = disk->dir;
    for (uint32_t i = 0; i < config->tenants; i++) {
        check(*config->tenant[i] == '\0' || name_fits(config->tenant[i]));
        strcpy(disk->tenant[i], config->tenant[i]);
        disk->config.tenant[i] = disk->tenant[i];
    }
    pthread_mutex_init(&disk->lock, NULL);
    pthread_cond_init(&disk->wake, NULL);
    err = create_all(disk, ret_why);
    if (err != TERN_OK) {
        disk_destroy(disk);
        return err;
    }
    *ret_why = NULL;
    *ret = disk;
    return TERN_OK;
}

void disk_name_tenant(struct disk *disk, uint32_t tenant, const char *name)
{
    check(tenant < disk->config.tenants && !disk->tenant[tenant][0] && name_fits(name));
    strcpy(disk->tenant[tenant], name);
}

static void destroy_thread(struct disk_thread *t)
{
    if (t->started)
        pthread_join(t->thread, NULL);
    disk_crypt_destroy(t->crypt);
    undumped_put(t->blocks, BLOCKS_BYTES);
    undumped_put(t->meta, t->disk->meta_bytes);
    undumped_put(t->footer, disk_footer_bytes_max());
    free(t->reader);
}

void disk_destroy(struct disk *disk)
{
    if (!disk)
        return;
    pthread_mutex_lock(&disk->lock);
    disk->stop = true;
    pthread_cond_broadcast(&disk->wake);
    pthread_mutex_unlock(&disk->lock);
    for (uint32_t i = 0; disk->threads && i < disk->config.threads && disk->threads[i].disk; i++)
        destroy_thread(&disk->threads[i]);
    file_ops_destroy(disk->own_files);
    pthread_cond_destroy(&disk->wake);
    pthread_mutex_destroy(&disk->lock);
    if (disk->event_fd >= 0)
        close(disk->event_fd);
    explicit_bzero(disk->config.key, sizeof disk->config.key);
    undumped_put(disk->staging, staging_bytes(&disk->config));
    free(disk->threads);
    free(disk->writes);
    free(disk->reads);
    free(disk->drops);
    free(disk->pulls);
    free(disk->dir);
    free(disk);
}

/* ------------------------------------------------------------------ requests of the core */

/* Caller holds the lock. */
static struct disk_job *job_take(struct disk *disk, enum job_kind kind)
{
    struct disk_job *job = fifo_pop(&disk->unused[kind], struct disk_job, link);

    check(job); /* the core counts its jobs against the same limit */
    job->err = TERN_OK;
    return job;
}

static void job_start(struct disk *disk, struct disk_job *job)
{
    job->asked = ++disk->asked;
    fifo_push(&disk->waiting[job->kind], &job->link);
    pthread_cond_signal(&disk->wake);
}

static int fault_of(const struct disk_config *c, uint64_t number)
{
    if (c->fault_full_after && number > c->fault_full_after)
        return ENOSPC;
    return c->fault_write_every && number % c->fault_write_every == 0 ? EIO : 0;
}

void disk_write(struct disk *disk, const struct disk_write *write)
{
    struct write_job *job;

    check(write->nextents >= 1 && write->nextents <= DISK_WRITE_EXTENTS);
    check(write->npages <= DISK_WRITE_PAGES && write->ntokens <= OPEN_TOKENS_MAX);
    check(write->nkeys <= EXTRA_KEYS_MAX && write->tenant < disk->config.tenants);
    pthread_mutex_lock(&disk->lock);
    job = container_of(job_take(disk, JOB_WRITE), struct write_job, job);
    pthread_mutex_unlock(&disk->lock);
    job->write = *write;
    job->write.extents =
        memcpy(job->extent, write->extents, write->nextents * sizeof *write->extents);
    job->write.pages = job->page;
    job->write.tokens = job->token;
    job->write.keys = job->key;
    if (write->npages)
        memcpy(job->page, write->pages, write->npages * sizeof *write->pages);
    if (write->ntokens)
        memcpy(job->token, write->tokens, write->ntokens * sizeof *write->tokens);
    if (write->nkeys)
        memcpy(job->key, write->keys, write->nkeys * sizeof *write->keys);
    job->fault = fault_of(&disk->config, ++disk->written);
    pthread_mutex_lock(&disk->lock);
    disk->changes++;
    job_start(disk, &job->job);
    pthread_mutex_unlock(&disk->lock);
}

void disk_drop(struct disk *disk, const struct disk_drop *drop)
{
    struct drop_job *job;

    check(drop->tenant < disk->config.tenants);
    pthread_mutex_lock(&disk->lock);
    job = container_of(job_take(disk, JOB_DROP), struct drop_job, job);
    job->drop = *drop;
    disk->changes++;
    job_start(disk, &job->job);
    pthread_mutex_unlock(&disk->lock);
}

/* Caller holds the lock. Removes the pull's waiting reads, and stops its running ones. */
static void pull_cancel(struct disk *disk, struct pull_state *pull)
{
    struct fifo waiting = disk->waiting[JOB_READ];
    struct read_job *job;
    uint32_t taken = 0;

    disk->waiting[JOB_READ] = (struct fifo){0};
    while ((job = fifo_pop(&waiting, struct read_job, job.link)) != NULL) {
        bool of_it = pull_id_equal(job->pull, pull->id);

        fifo_push(of_it ? &disk->unused[JOB_READ] : &disk->waiting[JOB_READ], &job->job.link);
        taken += of_it ? 1 : 0;
    }
    for (uint32_t i = 0; i < disk->config.threads; i++) {
        struct read_job *reading = disk->threads[i].reading;

        if (reading && pull_id_equal(reading->pull, pull->id))
            atomic_store(&reading->stop, true);
    }
    pull_less(disk, pull, taken);
}

/* Caller holds the lock. Returns the pull's state, reset if the pull is new. */
static struct pull_state *pull_begin(struct disk *disk, struct pull_id id)
{
    struct pull_state *pull = pull_of(disk, id);

    if (!pull_id_equal(pull->id, id)) {
        check(pull->jobs == 0 && !pull->stopping);
        *pull = (struct pull_state){.id = id};
    }
    return pull;
}

void disk_read(struct disk *disk, const struct action *act)
{
    struct pull_state *pull;
    struct read_job *job;
    uint32_t n = act->pull.n;

    check(n >= 1 && n <= PULL_BATCH_PAGES);
    pthread_mutex_lock(&disk->lock);
    pull = pull_begin(disk, act->pull.pull);
    check(!pull->stopping);
    if (pull->broken) { /* the core has not received EV_PULL_BROKEN yet */
        pthread_mutex_unlock(&disk->lock);
        return;
    }
    job = container_of(job_take(disk, JOB_READ), struct read_job, job);
    job->pull = act->pull.pull;
    job->batch = act->pull.batch;
    job->pool = act->pull.pool;
    job->n = n;
    atomic_store(&job->stop, false);
    memcpy(job->page, act->pull.pages, n * sizeof *job->page);
    memcpy(job->from, act->pull.from, n * sizeof *job->from);
    pull->jobs++;
    job_start(disk, &job->job);
    pthread_mutex_unlock(&disk->lock);
}

void disk_read_stop(struct disk *disk, struct pull_id id)
{
    struct pull_state *pull;

    pthread_mutex_lock(&disk->lock);
    pull = pull_begin(disk, id);
    if (!pull->stopping) {
        pull->stopping = true;
        pull_cancel(disk, pull);
    }
    pthread_mutex_unlock(&disk->lock);
}

/* ------------------------------------------------------------------ events */

int disk_event_fd(const struct disk *disk)
{
    return disk->event_fd;
}

/* Caller holds the lock, as for the next ones. Returns false if there is no event to report. */
static bool read_event(struct disk *disk, const struct read_job *job, struct event *ret)
{
    struct pull_state *pull = pull_of(disk, job->pull);

    if (!pull_id_equal(pull->id, job->pull) || pull->stopping || pull->broken)
        return false;
    if (job->job.err != TERN_OK) {
        pull->broken = true;
        ret->kind = EV_PULL_BROKEN;
        ret->broken.pull = job->pull;
        ret->broken.err = job->job.err;
        pull_cancel(disk, pull);
        return true;
    }
    ret->kind = EV_PULLED;
    ret->pulled.pull = job->pull;
    ret->pulled.batch = job->batch;
    memcpy(ret->pulled.ok, job->ok, sizeof job->ok);
    return true;
}

static bool job_event(struct disk *disk, struct disk_job *job, struct event *ret)
{
    memset(ret, 0, sizeof *ret);
    if (job->kind == JOB_READ)
        return read_event(disk, container_of(job, struct read_job, job), ret);
    disk->changes--;
    if (job->kind == JOB_WRITE) {
        ret->kind = EV_DISK_WRITTEN;
        ret->written.store = container_of(job, struct write_job, job)->write.store;
        ret->written.err = job->err;
        return true;
    }
    ret->kind = EV_DISK_DROPPED;
    ret->dropped.file = container_of(job, struct drop_job, job)->drop.place.file;
    return container_of(job, struct drop_job, job)->drop.place.offset == 0 && job->err == TERN_OK;
}

/* Called when the list of finished jobs is empty, so no job of such a pull is left in it. */
static bool quiet_event(struct disk *disk, struct event *ret)
{
    struct pull_state *pull = disk->pulls;

    if (disk->quiet == 0)
        return false;
    while (!pull->quiet)
        pull++;
    disk->quiet--;
    pull->quiet = pull->stopping = false;
    memset(ret, 0, sizeof *ret);
    ret->kind = EV_PULL_QUIET;
    ret->pull_quiet.pull = pull->id;
    return true;
}

/* Lost files are reported ahead of the read that found them, and of everything else. */
static bool lost_event(struct disk *disk, struct disk_job *job, struct event *ret)
{
    struct read_job *read =
        job && job->kind == JOB_READ ? container_of(job, struct read_job, job) : NULL;

    if (!disk->lost_all && !(read && read->lost_file))
        return false;
    memset(ret, 0, sizeof *ret);
    ret->kind = EV_DISK_DROPPED;
    ret->dropped.file = disk->lost_all ? 0 : read->lost_file;
    if (!disk->lost_all)
        read->lost_file = 0;
    disk->lost_all = false;
    return true;
}

/* Returns false if there is nothing more. *ret_tell: *ret is to be emitted. */
static bool next_event(struct disk *disk, struct event *ret, bool *ret_tell)
{
    struct disk_job *job = fifo_first(&disk->finished, struct disk_job, link);

    *ret_tell = lost_event(disk, job, ret);
    if (*ret_tell)
        return true;
    job = fifo_pop(&disk->finished, struct disk_job, link);
    if (!job) {
        *ret_tell = quiet_event(disk, ret);
        return *ret_tell;
    }
    *ret_tell = job_event(disk, job, ret);
    fifo_push(&disk->unused[job->kind], &job->link);
    return true;
}

void disk_poll(struct disk *disk, void (*emit)(void *ctx, struct event *event), void *ctx)
{
    uint64_t rounds = 1 + (uint64_t)disk->config.writes + 2ull * disk->config.reads +
                      disk->config.drops + disk->config.pulls;

    eventfd_clear(disk->event_fd);
    for (; rounds > 0; rounds--) { /* bounded, because a callback may add jobs */
        struct event event;
        bool more, tell;

        pthread_mutex_lock(&disk->lock);
        more = next_event(disk, &event, &tell);
        pthread_mutex_unlock(&disk->lock);
        if (!more)
            return;
        if (tell)
            emit(ctx, &event);
    }
    eventfd_wake(disk->event_fd);
}

bool disk_idle(const struct disk *disk)
{
    struct disk *d = (struct disk *)(uintptr_t)disk; /* only to lock its mutex */
    bool idle;

    pthread_mutex_lock(&d->lock);
    idle = disk->changes == 0;
    pthread_mutex_unlock(&d->lock);
    return idle;
}

void disk_stats(const struct disk *disk, struct disk_stats *ret)
{
    struct disk *d = (struct disk *)(uintptr_t)disk; /* only to lock its mutex */

    pthread_mutex_lock(&d->lock);
    *ret = disk->stats;
    ret->failing = disk->write_failing || disk->read_failing || ret->gone;
    pthread_mutex_unlock(&d->lock);
}
