/* See closer.h. The threads are data threads (io_threads.h), one a lane, each with a timer that
 * sends it a signal while it closes. A wait that a signal can interrupt, such as the linger of a
 * TCP socket, ends with the first signal. Each descriptor that the close releases may wait anew. */
#include "seam/io/closer.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/container.h"
#include "seam/io/io_threads.h"

#define CUT_NS      1000000     /* how often a waiting close is interrupted */
#define STOP_MAX_NS 2000000000u /* at the end, for the closes in progress */
#define CUT_SIGNAL  (SIGRTMIN + 1)

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

struct word { /* free: n 0 */
    int fd;
    uint32_t n;
    uint8_t bytes[CLOSER_WORD_BYTES];
};

struct socket {
    struct io_task task;
    struct closer *closer;
    struct socket *next; /* free */
    int fd;
    struct word *word; /* sent before the close; NULL: none */
    void (*done)(void *ctx);
    void *ctx;
};

struct closer {
    struct closer_config config;
    struct io_threads *threads; /* owned; NULL: ended */
    struct socket *socket;      /* owned, config.sockets */
    struct socket *free;
    bool ended;
    struct closer_stats stats;
    struct word word[CLOSER_WORDS];
};

/* ------------------------------------------------------------------ the threads */

static _Thread_local timer_t cut;

static void ignore(int signal)
{
    (void)signal;
}

static const char *begin(void)
{
    struct sigevent to = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = CUT_SIGNAL};
    struct sigaction act = {.sa_handler = ignore}; /* no SA_RESTART: the wait must end */
    sigset_t set;

    to.sigev_notify_thread_id = gettid();
    sigemptyset(&set);
    sigaddset(&set, CUT_SIGNAL);
    if (sigaction(CUT_SIGNAL, &act, NULL) != 0 || pthread_sigmask(SIG_UNBLOCK, &set, NULL) != 0 ||
        timer_create(CLOCK_MONOTONIC, &to, &cut) != 0)
        return "no timer";
    return NULL;
}

static void set_timer(long ns)
{
    struct itimerspec every = {.it_interval.tv_nsec = ns, .it_value.tv_nsec = ns};

    timer_settime(cut, 0, &every, NULL);
}

static void send_word(int fd, const void *bytes, size_t n)
{
    (void)!send(fd, bytes, n, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static bool close_it(struct io_task *task, int32_t res)
{
    const struct socket *s = container_of(task, struct socket, task);

    (void)res;
    if (s->word)
        send_word(s->fd, s->word->bytes, s->word->n);
    set_timer(CUT_NS);
    close(s->fd);
    set_timer(0);
    return false;
}

/* ------------------------------------------------------------------ the owner */

static void closed(struct io_task *task, int32_t res)
{
    struct socket *s = container_of(task, struct socket, task);
    struct closer *closer = s->closer;

    (void)res;
    if (s->word)
        s->word->n = 0;
    s->next = closer->free;
    closer->free = s;
    closer->stats.closing--;
    closer->stats.closed++;
    if (s->done && !closer->ended)
        s->done(s->ctx);
}

static bool is_unix(int fd)
{
    int family = AF_UNSPEC;
    socklen_t n = sizeof family;

    return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &n) != 0 || family == AF_UNIX;
}

static struct word *word_of(struct closer *closer, int fd)
{
    for (uint32_t i = 0; i < CLOSER_WORDS; i++)
        if (closer->word[i].n > 0 && closer->word[i].fd == fd)
            return &closer->word[i];
    return NULL;
}

bool closer_say(struct closer *closer, int fd, const void *bytes, size_t n)
{
    check(n <= CLOSER_WORD_BYTES);
    if (!closer || !is_unix(fd)) {
        send_word(fd, bytes, n);
        return true;
    }
    for (uint32_t i = 0; i < CLOSER_WORDS; i++)
        if (closer->word[i].n == 0) {
            closer->word[i].fd = fd;
            closer->word[i].n = (uint32_t)n;
            memcpy(closer->word[i].bytes, bytes, n);
            return true;
        }
    return false;
}

bool closer_close(struct closer *closer, uint32_t lane, int fd, void (*done)(void *ctx), void *ctx)
{
    struct socket *s;

    if (!closer || !is_unix(fd)) {
        close(fd);
        return true;
    }
    if (closer->ended)
        return true;
    s = closer->free;
    check(closer->threads && s && lane < closer->config.lanes);
    closer->free = s->next;
    s->fd = fd;
    s->word = word_of(closer, fd);
    if (s->word)
        s->word->fd = -1; /* another socket may get the number before the word is free */
    s->done = done;
    s->ctx = ctx;
    closer->stats.closing++;
    io_threads_submit(closer->threads, &s->task, IO_TASK_WORK, lane, -1);
    return false;
}

void closer_stats(const struct closer *closer, struct closer_stats *ret)
{
    *ret = closer->stats;
}

static struct io_threads_config threads_of(const struct closer_config *config)
{
    return (struct io_threads_config){.io = config->io,
                                      .threads = config->lanes,
                                      .tasks = 1,
                                      .works = config->lane_sockets,
                                      .name = "tern-close",
                                      .begin = begin};
}

uint64_t closer_bytes(const struct closer_config *config)
{
    struct io_threads_config threads = threads_of(config);

    return sizeof(struct closer) + config->sockets * sizeof(struct socket) +
           io_threads_bytes(&threads);
}

enum tern_err closer_create(const struct closer_config *config, struct closer **ret,
                            const char **ret_why)
{
    struct io_threads_config threads = threads_of(config);
    struct closer *closer = calloc(1, sizeof *closer);
    const char *why;

    *ret_why = "the threads that close sockets, one for each tenant, cannot be started, for lack "
               "of memory, descriptors or permission: raise RLIMIT_NOFILE (ulimit -n, "
               "LimitNOFILE=), the limit of threads "
               "(ulimit -u, TasksMax=) or RLIMIT_SIGPENDING (ulimit -i, LimitSIGPENDING=)";
    if (!closer)
        return TERN_INTERNAL;
    closer->config = *config;
    closer->socket = calloc(config->sockets, sizeof *closer->socket);
    for (uint32_t i = 0; closer->socket && i < config->sockets; i++) {
        struct socket *s = &closer->socket[i];

        s->closer = closer;
        s->task.work = close_it;
        s->task.done = closed;
        s->next = i + 1 < config->sockets ? s + 1 : NULL;
    }
    closer->free = closer->socket;
    if (!closer->socket || io_threads_create(&threads, &closer->threads, &why) != TERN_OK) {
        closer_destroy(closer);
        return TERN_INTERNAL;
    }
    *ret = closer;
    return TERN_OK;
}

void closer_end(struct closer *closer)
{
    if (!closer)
        return;
    closer->ended = true;
    if (io_threads_end(closer->threads, io_now_ns() + STOP_MAX_NS))
        closer->threads = NULL;
}

/* A close that never ends keeps its thread and the thread's memory; the process exits soon. */
void closer_destroy(struct closer *closer)
{
    if (!closer || closer->stats.closing > 0)
        return;
    free(closer->socket);
    free(closer);
}
