/* See resolve.h. One mutex guards the slots; it is not held during a lookup. What must stay true:
 * a slot's host is written only while no thread reads it; the memory is there for as long as a
 * thread is. */
#include "seam/io/resolve.h"

#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/check.h"

enum ask_state {
    ASK_FREE = 0,
    ASK_QUEUED,
    ASK_LOOKING,   /* a thread has it */
    ASK_FORGOTTEN, /* a thread has it, and nobody waits */
    ASK_DONE,
};

struct ask {
    enum ask_state state;
    uint64_t turn; /* the least goes next */
    char host[RESOLVE_HOST_BYTES];
    uint16_t port;
    struct resolve_answer answer;
};

struct resolver {
    pthread_mutex_t lock;
    pthread_cond_t wake, left;
    struct ask *ask; /* owned: slots of them */
    uint32_t slots, threads, looking;
    uint64_t turns;
    resolve_lookup *lookup;
    int event_fd;
    bool stop, orphan; /* orphan: the last thread frees it */
};

/* ------------------------------------------------------------------ the system's resolver */

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
    free(r->ask);
    free(r);
}

static struct ask *next_ask(struct resolver *r)
{
    struct ask *next = NULL;

    for (uint32_t i = 0; i < r->slots; i++)
        if (r->ask[i].state == ASK_QUEUED && (!next || r->ask[i].turn < next->turn))
            next = &r->ask[i];
    return next;
}

static void wake_owner(struct resolver *r)
{
    uint64_t one = 1;

    (void)!write(r->event_fd, &one, sizeof one); /* a full counter is readable, too */
}

/* With the lock held, but for the lookup. */
static void look(struct resolver *r, struct ask *a)
{
    struct resolve_answer answer = {0};

    a->state = ASK_LOOKING;
    r->looking++;
    pthread_mutex_unlock(&r->lock);
    r->lookup(a->host, a->port, &answer);
    pthread_mutex_lock(&r->lock);
    r->looking--;
    if (a->state == ASK_FORGOTTEN) {
        a->state = ASK_FREE;
        return;
    }
    a->answer = answer;
    a->state = ASK_DONE;
    wake_owner(r);
}

static void *run(void *ctx)
{
    struct resolver *r = ctx;
    bool last;

    pthread_mutex_lock(&r->lock);
    while (!r->stop) {
        struct ask *a = next_ask(r);

        if (a)
            look(r, a);
        else
            pthread_cond_wait(&r->wake, &r->lock);
    }
    r->threads--;
    last = r->orphan && r->threads == 0;
    pthread_cond_signal(&r->left);
    pthread_mutex_unlock(&r->lock);
    if (last)
        resolver_free(r);
    return NULL;
}

/* Nobody joins them: one may be waiting for a name service at the end. */
static bool start_threads(struct resolver *r)
{
    uint32_t want = r->slots < RESOLVE_THREADS ? r->slots : RESOLVE_THREADS;
    pthread_attr_t attr;
    sigset_t all, before;
    pthread_t thread;

    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
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
    return sizeof(struct resolver) + slots * sizeof(struct ask);
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
    r->ask = calloc(slots, sizeof *r->ask);
    r->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (!r->ask || r->event_fd < 0 || !start_threads(r)) {
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
    r->stop = true;
    pthread_cond_broadcast(&r->wake);
    while (r->threads > r->looking)
        pthread_cond_wait(&r->left, &r->lock);
    r->orphan = orphan = r->threads > 0;
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
    struct ask *a = &r->ask[slot];
    bool room;

    check(slot < r->slots && strlen(host) < sizeof a->host);
    pthread_mutex_lock(&r->lock);
    check(a->state == ASK_FREE || a->state == ASK_FORGOTTEN); /* one at a time */
    room = a->state == ASK_FREE;
    if (room) {
        snprintf(a->host, sizeof a->host, "%s", host);
        a->port = port;
        a->turn = r->turns++;
        a->state = ASK_QUEUED;
        pthread_cond_signal(&r->wake);
    }
    pthread_mutex_unlock(&r->lock);
    return room;
}

void resolver_forget(struct resolver *r, uint32_t slot)
{
    struct ask *a = &r->ask[slot];

    check(slot < r->slots);
    pthread_mutex_lock(&r->lock);
    if (a->state == ASK_LOOKING)
        a->state = ASK_FORGOTTEN;
    else if (a->state != ASK_FORGOTTEN)
        a->state = ASK_FREE;
    pthread_mutex_unlock(&r->lock);
}

bool resolver_take(struct resolver *r, uint32_t *ret_slot, struct resolve_answer *ret)
{
    uint64_t count;
    bool found = false;

    (void)!read(r->event_fd, &count, sizeof count);
    pthread_mutex_lock(&r->lock);
    for (uint32_t i = 0; i < r->slots && !found; i++) {
        if (r->ask[i].state != ASK_DONE)
            continue;
        *ret = r->ask[i].answer;
        *ret_slot = i;
        r->ask[i].state = ASK_FREE;
        found = true;
    }
    pthread_mutex_unlock(&r->lock);
    return found;
}
