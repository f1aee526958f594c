/* See resolve.h. A lookup is plain work of a data thread (io_threads.h). A thread gets the next
 * lookup only when idle, so a silent name service delays only one lookup. Invariant: while a lane
 * is away, its answer and the host of its query belong to the thread. */
#include "seam/io/resolve.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/container.h"
#include "base/fifo.h"
#include "seam/io/io_threads.h"

struct query {
    enum query_state state;
    struct fifo_link link; /* QUEUED */
    char host[RESOLVE_HOST_BYTES];
    uint16_t port;
};

/* One of the threads. */
struct lane {
    struct io_task task;
    struct resolver *resolver;
    struct query *query; /* being looked up; NULL: none */
    struct resolve_answer answer;
};

struct resolver {
    struct resolver_config config;
    struct io_threads *threads; /* owned */
    struct query *query;        /* owned: config.slots of them */
    struct fifo queued;
    bool ended;
    struct lane lane[RESOLVE_THREADS];
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

static bool look_up_on_thread(struct io_task *task, int32_t res)
{
    struct lane *lane = container_of(task, struct lane, task);

    (void)res;
    lane->answer = (struct resolve_answer){0};
    lane->resolver->config.lookup(lane->query->host, lane->query->port, &lane->answer);
    return false;
}

/* Hands queued lookups to idle threads. */
static void go_on(struct resolver *r)
{
    for (uint32_t i = 0; i < RESOLVE_THREADS && r->queued.first; i++) {
        struct lane *lane = &r->lane[i];

        if (lane->query)
            continue;
        lane->query = fifo_pop(&r->queued, struct query, link);
        query_state_move(&lane->query->state, QUERY_LOOKING_UP);
        io_threads_submit(r->threads, &lane->task, IO_TASK_WORK, i, -1);
    }
}

static void looked_up(struct io_task *task, int32_t res)
{
    struct lane *lane = container_of(task, struct lane, task);
    struct resolver *r = lane->resolver;
    struct query *q = lane->query;
    const struct resolve_answer answer = lane->answer;
    bool wanted = q->state == QUERY_LOOKING_UP;

    (void)res;
    if (r->ended)
        return;
    query_state_move(&q->state, QUERY_FREE);
    lane->query = NULL;
    go_on(r);
    if (wanted)
        r->config.answered(r->config.ctx, (uint32_t)(q - r->query), &answer);
}

static struct io_threads_config threads_of(struct io *io)
{
    return (struct io_threads_config){
        .io = io, .threads = RESOLVE_THREADS, .tasks = 1, .works = 1, .name = "tern-resolve"};
}

uint64_t resolver_bytes(uint32_t slots)
{
    const struct io_threads_config threads = threads_of(NULL);

    return sizeof(struct resolver) + slots * sizeof(struct query) + io_threads_bytes(&threads);
}

enum tern_err resolver_create(const struct resolver_config *config, struct resolver **ret)
{
    const struct io_threads_config threads = threads_of(config->io);
    struct resolver *r = calloc(1, sizeof *r);
    const char *unused;

    if (!r)
        return TERN_INTERNAL;
    r->config = *config;
    r->query = calloc(config->slots, sizeof *r->query);
    for (uint32_t i = 0; i < RESOLVE_THREADS; i++) {
        r->lane[i].resolver = r;
        r->lane[i].task.work = look_up_on_thread;
        r->lane[i].task.done = looked_up;
    }
    if (!r->query || io_threads_create(&threads, &r->threads, &unused) != TERN_OK) {
        resolver_destroy(r);
        return TERN_INTERNAL;
    }
    *ret = r;
    return TERN_OK;
}

void resolver_destroy(struct resolver *r)
{
    if (!r)
        return;
    r->ended = true;
    if (!io_threads_end(r->threads, 0))
        return; /* the system's resolver still uses a thread */
    free(r->query);
    free(r);
}

bool resolver_ask(struct resolver *r, uint32_t slot, const char *host, uint16_t port)
{
    struct query *q = &r->query[slot];

    check(slot < r->config.slots && strlen(host) < sizeof q->host);
    check(q->state == QUERY_FREE || q->state == QUERY_CANCELLED); /* one at a time */
    if (q->state == QUERY_CANCELLED)
        return false;
    snprintf(q->host, sizeof q->host, "%s", host);
    q->port = port;
    query_state_move(&q->state, QUERY_QUEUED);
    fifo_push(&r->queued, &q->link);
    go_on(r);
    return true;
}

void resolver_cancel(struct resolver *r, uint32_t slot)
{
    struct query *q = &r->query[slot];

    check(slot < r->config.slots);
    if (q->state == QUERY_LOOKING_UP) {
        query_state_move(&q->state, QUERY_CANCELLED);
    } else if (q->state == QUERY_QUEUED) {
        fifo_remove(&r->queued, &q->link);
        query_state_move(&q->state, QUERY_FREE);
    }
}
