/* See io_threads.h. A data thread sleeps in its ring. The owner wakes it by an eventfd that the
 * ring polls, and only if it sleeps or is about to; the threads wake the owner by another eventfd,
 * once for all tasks that returned since the owner last checked.
 *
 * Invariant: a queue has room for all items that can be in it: for a task, its submission and a
 * cancel, and a cancel left over from its last submission; for plain work, the submission alone. A
 * full queue is our bug. */
#include "seam/io/io_threads.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/check.h"
#include "base/container.h"
#include "seam/own_threads.h"

#define RING_ENTRIES   256u /* of a thread's ring; further operations wait in it */
#define QUEUE_PER_TASK 4u
#define LINE_BYTES     64 /* of a cache line: words of two writers lie apart */

/* A request to a thread, or a task that returned. */
struct item {
    struct io_task *task;
    bool cancel;
};

struct queue {
    _Alignas(LINE_BYTES) _Atomic uint32_t written; /* by its writer alone; both wrap */
    _Alignas(LINE_BYTES) _Atomic uint32_t taken;   /* by its reader alone */
    _Alignas(LINE_BYTES) struct item *item;        /* owned, mask + 1 */
    uint32_t mask;
};

struct io_thread {
    struct io_threads *all;
    pthread_t thread;
    bool started;
    struct queue asked, back;
    struct io *io; /* the thread's own, made and ended by it */
    struct io_op wake_op;
    int wake_fd;
    _Atomic bool asleep; /* it sleeps or is about to, and needs a wake */
    _Atomic bool stop;
    const char *why; /* why it did not start */
    sem_t ready;
};

struct io_threads {
    struct io_threads_config config; /* threads: those that exist */
    struct io_op told_op;
    int told_fd;
    _Atomic bool told; /* the owner was woken and has not checked yet */
    uint32_t away;
    uint64_t done;
    struct io_thread thread[]; /* as many as were configured */
};

static uint32_t queue_items(const struct io_threads_config *config)
{
    uint32_t n = 1;

    while (n < QUEUE_PER_TASK * config->tasks + config->works)
        n *= 2;
    return n;
}

static bool queue_create(struct queue *q, const struct io_threads_config *config)
{
    q->mask = queue_items(config) - 1;
    q->item = calloc((size_t)q->mask + 1, sizeof *q->item);
    return q->item != NULL;
}

static void queue_push(struct queue *q, struct item item)
{
    uint32_t at = atomic_load_explicit(&q->written, memory_order_relaxed);

    check(at - atomic_load_explicit(&q->taken, memory_order_acquire) <= q->mask);
    q->item[at & q->mask] = item;
    /* All threads must see this, `asleep` and `told` in one order, or a sleeper would miss the
     * item. */
    atomic_store_explicit(&q->written, at + 1, memory_order_seq_cst);
}

static bool queue_pop(struct queue *q, struct item *ret)
{
    uint32_t at = atomic_load_explicit(&q->taken, memory_order_relaxed);

    if (at == atomic_load_explicit(&q->written, memory_order_seq_cst))
        return false;
    *ret = q->item[at & q->mask];
    atomic_store_explicit(&q->taken, at + 1, memory_order_release);
    return true;
}

static bool queue_empty(const struct queue *q)
{
    return atomic_load_explicit(&q->taken, memory_order_relaxed) ==
           atomic_load_explicit(&q->written, memory_order_seq_cst);
}

/* ------------------------------------------------------------------ a data thread */

static void give_back(struct io_thread *t, struct io_task *task, int32_t res)
{
    task->res = res;
    queue_push(&t->back, (struct item){.task = task});
    if (!atomic_exchange(&t->all->told, true))
        eventfd_wake(t->all->told_fd);
}

static void post(struct io_thread *t, struct io_task *task)
{
    if (task->ready && !task->ready(task))
        give_back(t, task, -EFAULT);
    else if (task->kind == IO_TASK_RECEIVE)
        io_recvmsg(t->io, &task->op, task->fd, &task->msg);
    else
        io_sendmsg(t->io, &task->op, task->fd, &task->msg);
}

static void moved(struct io_op *op, int32_t res, uint32_t flags, uint32_t buffer)
{
    struct io_task *task = container_of(op, struct io_task, op);
    struct io_thread *t = task->thread;
    bool more = res > 0 && task->work && task->work(task, res);

    (void)flags, (void)buffer;
    if (more && !task->called_back)
        post(t, task);
    else
        give_back(t, task, res);
}

static void take(struct io_thread *t, const struct item *item)
{
    struct io_task *task = item->task;

    task->called_back = item->cancel;
    if (item->cancel) {
        io_cancel(t->io, &task->op); /* no effect if its operation has just ended */
    } else if (task->kind == IO_TASK_WORK) {
        task->work(task, 0);
        give_back(t, task, 0);
    } else {
        task->op.done = moved;
        post(t, task);
    }
}

static void on_wake(struct io_op *op, int32_t res, uint32_t flags, uint32_t buffer)
{
    struct io_thread *t = container_of(op, struct io_thread, wake_op);

    (void)res, (void)flags, (void)buffer;
    eventfd_clear(t->wake_fd);
}

static bool thread_begin(struct io_thread *t)
{
    struct io_config config = {.entries = RING_ENTRIES};

    prctl(PR_SET_NAME, t->all->config.name);
    if (t->all->config.begin && (t->why = t->all->config.begin()) != NULL)
        return false;
    if (io_create(&config, &t->io, &t->why) != TERN_OK)
        return false;
    t->wake_op.done = on_wake;
    io_poll_in(t->io, &t->wake_op, t->wake_fd, true);
    return true;
}

static void *thread_main(void *arg)
{
    struct io_thread *t = arg;
    bool begun = thread_begin(t);

    sem_post(&t->ready);
    while (begun && !atomic_load(&t->stop)) {
        struct item item;
        bool idle;

        while (queue_pop(&t->asked, &item))
            take(t, &item);
        atomic_store(&t->asleep, true);
        idle = queue_empty(&t->asked) && !atomic_load(&t->stop);
        io_run(t->io, idle ? UINT64_MAX : 0);
        atomic_store(&t->asleep, false);
    }
    io_destroy(t->io);
    return NULL;
}

/* ------------------------------------------------------------------ owner: life */

uint64_t io_threads_bytes(const struct io_threads_config *config)
{
    return sizeof(struct io_threads) +
           config->threads *
               (sizeof(struct io_thread) + 2ull * queue_items(config) * sizeof(struct item));
}

static bool thread_start(struct io_thread *t)
{
    t->started = own_thread_start(&t->thread, thread_main, t) == 0;
    if (t->started)
        (void)TEMP_FAILURE_RETRY(sem_wait(&t->ready));
    return t->started && !t->why;
}

static bool thread_create(struct io_threads *threads, uint32_t i, const char **ret_why)
{
    struct io_thread *t = &threads->thread[i];

    t->all = threads;
    t->wake_fd = -1;
    sem_init(&t->ready, 0, 0);
    if (!queue_create(&t->asked, &threads->config) || !queue_create(&t->back, &threads->config))
        return false;
    t->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (t->wake_fd >= 0 && thread_start(t))
        return true;
    if (t->why)
        *ret_why = t->why;
    return false;
}

static void thread_destroy(struct io_thread *t)
{
    if (t->started) {
        atomic_store(&t->stop, true);
        eventfd_wake(t->wake_fd);
        pthread_join(t->thread, NULL);
    }
    if (t->wake_fd >= 0)
        close(t->wake_fd);
    sem_destroy(&t->ready);
    free(t->asked.item);
    free(t->back.item);
}

static void on_told(struct io_op *op, int32_t res, uint32_t flags, uint32_t buffer);

enum tern_err io_threads_create(const struct io_threads_config *config, struct io_threads **ret,
                                const char **ret_why)
{
    const size_t bytes = sizeof(struct io_threads) + config->threads * sizeof(struct io_thread);
    struct io_threads *threads = aligned_alloc(LINE_BYTES, bytes);

    check(config->threads >= 1 && config->threads <= IO_THREADS_MAX && config->tasks >= 1);
    *ret_why =
        "the data threads cannot be started, for lack of memory, descriptors or permission: lower "
        "`data_threads`, or raise RLIMIT_NOFILE (ulimit -n, LimitNOFILE=) or the limit of "
        "threads (ulimit -u, TasksMax=)";
    if (!threads)
        return TERN_INTERNAL;
    memset(threads, 0, bytes);
    threads->config = *config;
    threads->config.threads = 0; /* those that were begun */
    threads->told_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (threads->told_fd < 0)
        goto out_destroy;
    while (threads->config.threads < config->threads)
        if (!thread_create(threads, threads->config.threads++, ret_why))
            goto out_destroy;
    threads->told_op.done = on_told;
    io_poll_in(config->io, &threads->told_op, threads->told_fd, true);
    *ret_why = NULL;
    *ret = threads;
    return TERN_OK;

out_destroy:
    io_threads_destroy(threads);
    return TERN_INTERNAL;
}

void io_threads_destroy(struct io_threads *threads)
{
    if (!threads)
        return;
    for (uint32_t i = 0; i < threads->config.threads; i++)
        thread_destroy(&threads->thread[i]);
    threads->config.threads = 0;
    io_stop(threads->config.io, &threads->told_op);
    if (threads->told_fd >= 0)
        close(threads->told_fd);
    free(threads);
}

bool io_threads_end(struct io_threads *threads, uint64_t until_ns)
{
    while (threads && threads->away > 0 && io_now_ns() < until_ns)
        io_run(threads->config.io, until_ns);
    if (threads && threads->away > 0)
        return false;
    io_threads_destroy(threads);
    return true;
}

/* ------------------------------------------------------------------ owner: tasks */

/* `done` may submit another task, whose return is for the next round. */
static void take_back(struct io_threads *threads, struct io_thread *t)
{
    struct item item;

    for (uint32_t n = 0; n <= t->back.mask && queue_pop(&t->back, &item); n++) {
        io_task_state_move(&item.task->state, IO_TASK_HOME);
        threads->away--;
        threads->done++;
        item.task->done(item.task, item.task->res);
    }
    if (!queue_empty(&t->back) && !atomic_exchange(&threads->told, true))
        eventfd_wake(threads->told_fd);
}

static void on_told(struct io_op *op, int32_t res, uint32_t flags, uint32_t buffer)
{
    struct io_threads *threads = container_of(op, struct io_threads, told_op);

    (void)res, (void)flags, (void)buffer;
    if (threads->config.threads == 0)
        return; /* destroy is under way */
    eventfd_clear(threads->told_fd);
    atomic_store(&threads->told, false);
    for (uint32_t i = 0; i < threads->config.threads; i++)
        take_back(threads, &threads->thread[i]);
}

static void ask(struct io_thread *t, struct item item)
{
    queue_push(&t->asked, item);
    if (atomic_exchange(&t->asleep, false))
        eventfd_wake(t->wake_fd);
}

void io_threads_submit(struct io_threads *threads, struct io_task *task, enum io_task_kind kind,
                       uint32_t lane, int fd)
{
    io_task_state_move(&task->state, IO_TASK_AWAY);
    task->kind = kind;
    task->fd = fd;
    task->thread = &threads->thread[lane % threads->config.threads];
    threads->away++;
    ask(task->thread, (struct item){.task = task});
}

void io_threads_cancel(struct io_task *task)
{
    if (task->state != IO_TASK_AWAY)
        return;
    io_task_state_move(&task->state, IO_TASK_CALLED_BACK);
    ask(task->thread, (struct item){.task = task, .cancel = true});
}

void io_threads_stats(const struct io_threads *threads, struct io_threads_stats *ret)
{
    *ret = (struct io_threads_stats){
        .threads = threads->config.threads, .away = threads->away, .done = threads->done};
}
