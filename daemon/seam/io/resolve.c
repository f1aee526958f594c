/* See resolve.h. One mutex guards the slots; it is not held during a lookup. What must stay true: a
 * slot's host is written only while no thread reads it; the memory is there while a thread is. */
#include "seam/io/resolve.h"

#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/check.h"
#include "base/fifo.h"
#include "seam/io/resolve_states.h"
#include "seam/own_threads.h"

struct query {
    enum query_state state;
    struct fifo_link link; /* QUEUED, DONE */
    char host[RESOLVE_HOST_BYTES];
    uint16_t port;
    struct resolve_answer answer;
};

struct resolver {
    pthread_mutex_t lock;
    pthread_cond_t wake, left;
    struct query *query; /* owned: slots of them */
    uint32_t slots, threads, looking;
    struct fifo queued, done;
    resolve_lookup *lookup;
    int event_fd;
    enum resolver_state state;
};

static void answer_of(int rc, const struct addrinfo *list, struct resolve_answer *ret)
{
    if (rc != 0) {
        ret->err = rc == EAI_NONAME || rc == EAI_NODATA || rc == EAI_ADDRFAMILY ? TERN_INVALID
                   : rc == EAI_AGAIN                                            ? TERN_TIMED_OUT
                                                                                : TERN_INTERNAL;
        snprintf(ret->text, sizeof ret->text, "%s",
                 rc == EAI_SYSTEM ? strerror(errno) : gai_strerror(rc));
        return;
    }
    for (; list && ret->n < RESOLVE_ADDRS_MAX; list = list->ai_next) {
        memcpy(&ret->addr[ret->n], list->ai_addr, list->ai_addrlen);
        ret->len[ret->n++] = list->ai_addrlen;
    }
}

static void look_up(const char *host, uint16_t port, int flags, struct resolve_answer *ret)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = flags}, *list = NULL;
    char service[8];
    int rc;

    snprintf(service, sizeof service, "%u", port);
    rc = getaddrinfo(host, service, &hints, &list);
    answer_of(rc, list, ret);
    if (rc == 0)
        freeaddrinfo(list);
}

void resolve_system(const char *host, uint16_t port, struct resolve_answer *ret)
{
    look_up(host, port, AI_NUMERICSERV, ret);
}

bool resolve_number(const char *host, uint16_t port, struct resolve_answer *ret)
{
    *ret = (struct resolve_answer){0};
    look_up(host, port, AI_NUMERICSERV | AI_NUMERICHOST, ret);
    return ret->err == TERN_OK;
}

/* ------------------------------------------------------------------ threads */

static void resolver_free(struct resolver *r)
{
    if (r->event_fd >= 0)
        close(r->event_fd);
    pthread_cond_destroy(&r->wake);
    pthread_cond_destroy(&r->left);
    pthread_mutex_destroy(&r->lock);
    free(r->query);
    free(r);
}

/* Called with the lock held; the lock is released during the lookup. */
static void look(struct resolver *r, struct query *q)
{
    struct resolve_answer answer = {0};

    query_state_move(&q->state, QUERY_LOOKING_UP);
    r->looking++;
    pthread_mutex_unlock(&r->lock);
    r->lookup(q->host, q->port, &answer);
    pthread_mutex_lock(&r->lock);
    r->looking--;
    if (q->state == QUERY_CANCELLED) {
        query_state_move(&q->state, QUERY_FREE);
        return;
    }
    q->answer = answer;
    query_state_move(&q->state, QUERY_DONE);
    fifo_push(&r->done, &q->link);
    eventfd_wake(r->event_fd);
}

static void *run(void *ctx)
{
    struct resolver *r = ctx;
    bool last;

    pthread_mutex_lock(&r->lock);
    while (r->state == RESOLVER_RUNNING) {
        struct query *q = fifo_pop(&r->queued, struct query, link);

        if (q)
            look(r, q);
        else
            pthread_cond_wait(&r->wake, &r->lock);
    }
    r->threads--;
    last = r->state == RESOLVER_ORPHANED && r->threads == 0;
    pthread_cond_signal(&r->left);
    pthread_mutex_unlock(&r->lock);
    if (last)
        resolver_free(r);
    return NULL;
}

/* Nobody joins the threads, because one may still be waiting for a name service at the end. */
static bool start_threads(struct resolver *r)
{
    uint32_t want = r->slots < RESOLVE_THREADS ? r->slots : RESOLVE_THREADS;
    pthread_attr_t attr;
    sigset_t before;
    pthread_t thread;

    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    own_threads_mask(&before);
    pthread_mutex_lock(&r->lock);
    while (r->threads < want && pthread_create(&thread, &attr, run, r) == 0)
        r->threads++;
    want -= r->threads;
    pthread_mutex_unlock(&r->lock);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    return want == 0;
}

/* ------------------------------------------------------------------ owner */

uint64_t resolver_bytes(uint32_t slots)
{
    return sizeof(struct resolver) + slots * sizeof(struct query);
}

enum tern_err resolver_create(uint32_t slots, resolve_lookup *lookup, struct resolver **ret)
{
    struct resolver *r = calloc(1, sizeof *r);

    if (!r)
        return TERN_INTERNAL;
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->wake, NULL);
    pthread_cond_init(&r->left, NULL);
    r->slots = slots;
    r->lookup = lookup;
    r->query = calloc(slots, sizeof *r->query);
    r->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (!r->query || r->event_fd < 0 || !start_threads(r)) {
        resolver_destroy(r);
        return TERN_INTERNAL;
    }
    *ret = r;
    return TERN_OK;
}

void resolver_destroy(struct resolver *r)
{
    bool orphan;

    if (!r)
        return;
    pthread_mutex_lock(&r->lock);
    resolver_state_move(&r->state, RESOLVER_STOPPING);
    pthread_cond_broadcast(&r->wake);
    while (r->threads > r->looking)
        pthread_cond_wait(&r->left, &r->lock);
    orphan = r->threads > 0;
    if (orphan)
        resolver_state_move(&r->state, RESOLVER_ORPHANED);
    pthread_mutex_unlock(&r->lock);
    if (!orphan)
        resolver_free(r);
}

int resolver_event_fd(const struct resolver *r)
{
    return r->event_fd;
}

bool resolver_ask(struct resolver *r, uint32_t slot, const char *host, uint16_t port)
{
    struct query *q = &r->query[slot];
    bool room;

    check(slot < r->slots && strlen(host) < sizeof q->host);
    pthread_mutex_lock(&r->lock);
    check(q->state == QUERY_FREE || q->state == QUERY_CANCELLED); /* one at a time */
    room = q->state == QUERY_FREE;
    if (room) {
        snprintf(q->host, sizeof q->host, "%s", host);
        q->port = port;
        query_state_move(&q->state, QUERY_QUEUED);
        fifo_push(&r->queued, &q->link);
        pthread_cond_signal(&r->wake);
    }
    pthread_mutex_unlock(&r->lock);
    return room;
}

void resolver_cancel(struct resolver *r, uint32_t slot)
{
    struct query *q = &r->query[slot];

    check(slot < r->slots);
    pthread_mutex_lock(&r->lock);
    if (q->state == QUERY_LOOKING_UP) {
        query_state_move(&q->state, QUERY_CANCELLED);
    } else if (q->state == QUERY_QUEUED || q->state == QUERY_DONE) {
        fifo_remove(q->state == QUERY_QUEUED ? &r->queued : &r->done, &q->link);
        query_state_move(&q->state, QUERY_FREE);
    }
    pthread_mutex_unlock(&r->lock);
}

bool resolver_take(struct resolver *r, uint32_t *ret_slot, struct resolve_answer *ret)
{
    struct query *q;

    eventfd_clear(r->event_fd);
    pthread_mutex_lock(&r->lock);
    q = fifo_pop(&r->done, struct query, link);
    if (q) {
        *ret = q->answer;
        *ret_slot = (uint32_t)(q - r->query);
        query_state_move(&q->state, QUERY_FREE);
    }
    pthread_mutex_unlock(&r->lock);
    return q != NULL;
}
