/* tern_block_queue: calls on a set, made one after the other by a thread. A call is in `waiting`,
 * under way (`now`), or in `ended` until its result is taken; the lock guards all three and the
 * flags. Only the thread uses the set, except `cancelled`. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/err.h"
#include "blocks.h"

struct queued {
    struct queued *next;
    struct tern_block_call call;
    uint64_t id, deadline_ns;
    enum tern_err err;
    uint32_t count;
    char text[sizeof((struct tern_block_result *)0)->text];
};

struct calls { /* a FIFO list */
    struct queued *first, **last;
};

struct tern_block_queue {
    struct tern_block_set *set; /* owned */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t work;
    struct calls waiting, ended; /* owned */
    struct queued *now;          /* owned */
    uint64_t ids;
    uint32_t n; /* calls in all three */
    bool closes;
    int fd; /* owned; its count is 1 while `ended` has calls */
};

static void append(struct calls *l, struct queued *q)
{
    q->next = NULL;
    *l->last = q;
    l->last = &q->next;
}

/* Removes *at from the list. */
static struct queued *take_out(struct calls *l, struct queued **at)
{
    struct queued *q = *at;

    *at = q->next;
    if (l->last == &q->next)
        l->last = at;
    return q;
}

static void free_calls(struct calls *l)
{
    while (l->first)
        free(take_out(l, &l->first));
}

/* ---- the thread ---- */

static uint32_t ones(const struct tern_block_call *c)
{
    uint32_t n = 0;

    for (uint32_t i = 0; c->marks && i < c->n; i++)
        n += c->marks[i];
    return n;
}

static enum tern_err make(struct tern_block_set *set, const struct tern_block_call *c, uint32_t ms,
                          uint32_t *ret_count)
{
    enum tern_err err;

    switch (c->what) {
    case TERN_BLOCKS_FIND: return tern_blocks_find(set, c->keys, c->n, ms, c->marks, ret_count);
    case TERN_BLOCKS_TOUCH: return tern_blocks_touch(set, c->keys, c->n, ms, ret_count);
    case TERN_BLOCKS_REMOVE: return tern_blocks_remove(set, c->keys, c->n, ms, ret_count);
    case TERN_BLOCKS_GET:
    case TERN_BLOCKS_PUT: break;
    }
    /* If the list is refused the marks are not written. */
    if (c->marks && c->n > 0 && c->n <= TERN_BLOCKS_LIST_MAX)
        memset(c->marks, 0, c->n);
    err = c->what == TERN_BLOCKS_GET ? tern_blocks_get(set, c->keys, c->values, c->n, ms, c->marks)
                                     : tern_blocks_put(set, c->keys, c->values, c->n, ms, c->marks);
    *ret_count = c->n <= TERN_BLOCKS_LIST_MAX ? ones(c) : 0;
    return err;
}

static void fail(struct queued *q, enum tern_err err, const char *text)
{
    q->err = err;
    snprintf(q->text, sizeof q->text, "%s", text);
}

static void run(struct tern_block_set *set, struct queued *q)
{
    enum tern_err err;

    if (client_socket_now_ns() >= q->deadline_ns) {
        fail(q, TERN_TIMED_OUT, "the call timed out while it waited for its turn");
        return;
    }
    err = make(set, &q->call, blocks_left_ms(q->deadline_ns), &q->count);
    if (err == TERN_OK)
        return;
    if (atomic_load_explicit(&set->cancelled, memory_order_relaxed) && err != TERN_DAEMON_LOST)
        fail(q, TERN_GONE, "the call was cancelled");
    else
        fail(q, err, tern_blocks_error_text(set));
}

static void end(struct tern_block_queue *u, struct queued *q)
{
    const uint64_t one = 1;

    if (!u->ended.first)
        (void)!write(u->fd, &one, sizeof one);
    append(&u->ended, q);
}

static void *run_thread(void *queue)
{
    struct tern_block_queue *u = queue;

    pthread_mutex_lock(&u->lock);
    while (!u->closes) {
        if (!u->waiting.first) {
            pthread_cond_wait(&u->work, &u->lock);
            continue;
        }
        u->now = take_out(&u->waiting, &u->waiting.first);
        atomic_store_explicit(&u->set->cancelled, false, memory_order_relaxed);
        pthread_mutex_unlock(&u->lock);
        run(u->set, u->now);
        pthread_mutex_lock(&u->lock);
        end(u, u->now);
        u->now = NULL;
    }
    pthread_mutex_unlock(&u->lock);
    return NULL;
}

/* Signals are left to threads of the caller. */
static enum tern_err begin_thread(struct tern_block_queue *u)
{
    sigset_t all, before;
    int failed;

    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    failed = pthread_create(&u->thread, NULL, run_thread, u);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed)
        return TERN_INTERNAL;
    (void)pthread_setname_np(u->thread, "tern-queue");
    return TERN_OK;
}

/* ---- its callers ---- */

static void free_queue(struct tern_block_queue *u)
{
    free_calls(&u->waiting);
    free_calls(&u->ended);
    free(u->now);
    if (u->fd >= 0)
        (void)close(u->fd);
    tern_blocks_close(u->set);
    free(u);
}

enum tern_err tern_block_queue_open(const char *socket_path, const struct tern_block_config *config,
                                    uint32_t deadline_ms, struct tern_block_queue **ret)
{
    struct tern_block_set *set;
    struct tern_block_queue *u;

    TRY(tern_blocks_open(socket_path, config, deadline_ms, &set));
    u = calloc(1, sizeof *u);
    if (!u) {
        tern_blocks_close(set);
        return blocks_not_open(TERN_INTERNAL, "no memory");
    }
    u->set = set;
    u->waiting.last = &u->waiting.first;
    u->ended.last = &u->ended.first;
    u->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    (void)pthread_mutex_init(&u->lock, NULL);
    (void)pthread_cond_init(&u->work, NULL);
    if (u->fd < 0 || begin_thread(u) != TERN_OK) {
        free_queue(u);
        return blocks_not_open(TERN_INTERNAL,
                               "this process has no descriptor or no thread for a queue");
    }
    *ret = u;
    return TERN_OK;
}

void tern_block_queue_close(struct tern_block_queue *queue)
{
    if (!queue)
        return;
    if (is_owner(queue->set->t)) { /* a forked child has no such thread */
        pthread_mutex_lock(&queue->lock);
        queue->closes = true;
        atomic_store_explicit(&queue->set->cancelled, true, memory_order_relaxed);
        pthread_cond_signal(&queue->work);
        pthread_mutex_unlock(&queue->lock);
        (void)pthread_join(queue->thread, NULL);
        (void)pthread_cond_destroy(&queue->work);
        (void)pthread_mutex_destroy(&queue->lock);
    }
    free_queue(queue);
}

int tern_block_queue_fd(const struct tern_block_queue *queue)
{
    return queue->fd;
}

enum tern_err tern_block_queue_submit(struct tern_block_queue *queue,
                                      const struct tern_block_call *call, uint64_t *ret_id)
{
    struct queued *q;

    if (!is_owner(queue->set->t))
        return TERN_DAEMON_LOST;
    if (call->what < TERN_BLOCKS_FIND || call->what > TERN_BLOCKS_REMOVE ||
        (call->what == TERN_BLOCKS_GET && call->n > 0 && !call->marks))
        return TERN_INVALID;
    q = calloc(1, sizeof *q);
    if (!q)
        return TERN_INTERNAL;
    q->call = *call;
    q->deadline_ns = deadline_at(call->deadline_ms);
    pthread_mutex_lock(&queue->lock);
    if (queue->n == TERN_BLOCKS_QUEUED_MAX) {
        pthread_mutex_unlock(&queue->lock);
        free(q);
        return TERN_BUSY;
    }
    queue->n++;
    q->id = ++queue->ids;
    if (ret_id)
        *ret_id = q->id;
    append(&queue->waiting, q);
    pthread_cond_signal(&queue->work);
    pthread_mutex_unlock(&queue->lock);
    return TERN_OK;
}

static enum tern_err cancel(struct tern_block_queue *u, uint64_t id)
{
    if (u->now && u->now->id == id) {
        atomic_store_explicit(&u->set->cancelled, true, memory_order_relaxed);
        return TERN_OK;
    }
    for (struct queued **at = &u->waiting.first; *at; at = &(*at)->next)
        if ((*at)->id == id) {
            struct queued *q = take_out(&u->waiting, at);

            if (q->call.marks && q->call.n <= TERN_BLOCKS_LIST_MAX)
                memset(q->call.marks, 0, q->call.n);
            fail(q, TERN_GONE, "the call was cancelled before its turn came");
            end(u, q);
            return TERN_OK;
        }
    return TERN_GONE;
}

enum tern_err tern_block_queue_cancel(struct tern_block_queue *queue, uint64_t id)
{
    enum tern_err err;

    if (!is_owner(queue->set->t))
        return TERN_DAEMON_LOST;
    pthread_mutex_lock(&queue->lock);
    err = cancel(queue, id);
    pthread_mutex_unlock(&queue->lock);
    return err;
}

uint32_t tern_block_queue_take(struct tern_block_queue *queue, struct tern_block_result *ret,
                               uint32_t most)
{
    uint64_t counted;
    uint32_t n = 0;

    if (!is_owner(queue->set->t))
        return 0;
    pthread_mutex_lock(&queue->lock);
    for (; n < most && queue->ended.first; n++) {
        struct queued *q = take_out(&queue->ended, &queue->ended.first);

        ret[n] = (struct tern_block_result){
            .id = q->id, .tag = q->call.tag, .err = q->err, .count = q->count};
        memcpy(ret[n].text, q->text, sizeof q->text);
        free(q);
        queue->n--;
    }
    if (!queue->ended.first)
        (void)!read(queue->fd, &counted, sizeof counted);
    pthread_mutex_unlock(&queue->lock);
    return n;
}
