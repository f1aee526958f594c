/* The thread of a connection that has a lease. tern_lease_submit puts a Step into the send buffer
 * and returns; this thread sends it. A send wakes the daemon, which costs more than the rest of a
 * decode step, and the scheduler's thread does not pay for it.
 *
 * The thread polls the buffer at the times that pace.h computes, so a submit makes no system call.
 * After it has found nothing for long it sleeps, and the next Step wakes it. It touches only the
 * socket's out buffer, under its lock, and nothing else of a connection: no answer, no state, no
 * text. */
#include <errno.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

#include "internal.h"
#include "pace.h"

#define SENDER_QUIET_LOOKS 250 /* looks that find nothing before it sleeps */
/* The C library takes all thread-local memory of the process from the stack; if the stack is too
 * small for that, a larger one is tried. */
#define SENDER_STACK_BYTES (128u << 10)
#define SENDER_STACK_MAX   (16u << 20)

struct sender {
    struct client_socket *socket; /* borrowed */
    pthread_t thread;
    sem_t wake;
    _Atomic bool asleep; /* set to false by the thread itself, or by a caller that posts `wake` */
    _Atomic bool ends;
    _Atomic uint64_t queued_ns, pace_ns; /* the last Step, and its distance from the one before */
};

static void sleep_until_next_look(struct sender *s)
{
    uint64_t at = pace_next_look(client_socket_now_ns(), atomic_load(&s->queued_ns),
                                 atomic_load(&s->pace_ns));
    struct timespec until = {.tv_sec = (time_t)(at / 1000000000u),
                             .tv_nsec = (long)(at % 1000000000u)};

    (void)sem_clockwait(&s->wake, CLOCK_MONOTONIC, &until);
}

/* A Step queued before the sleep is seen here; a later one wakes the thread. */
static void sleep_until_told(struct sender *s)
{
    atomic_store(&s->asleep, true);
    if ((client_socket_has_out(s->socket) || atomic_load(&s->ends)) &&
        atomic_exchange(&s->asleep, false))
        return;
    while (sem_wait(&s->wake) != 0 && errno == EINTR)
        ;
}

static void *run(void *arg)
{
    const struct sched_param none = {.sched_priority = 0};
    struct sender *s = arg;
    uint32_t quiet = 0;

    /* With this policy the thread never preempts another one when it wakes, such as the
     * scheduler's. If the policy is not allowed, a look sometimes interrupts a step. */
    (void)sched_setscheduler(0, SCHED_BATCH, &none);
    while (!atomic_load(&s->ends)) {
        quiet = client_socket_push(s->socket) ? 0 : quiet + 1;
        if (quiet < SENDER_QUIET_LOOKS) {
            sleep_until_next_look(s);
        } else {
            sleep_until_told(s);
            quiet = 0;
        }
    }
    return NULL;
}

/* The thread handles no signal of the process. */
static int begin_thread(struct sender *s)
{
    sigset_t all, before;
    pthread_attr_t attr;
    int rc = EINVAL;

    if (pthread_attr_init(&attr) != 0)
        return -1;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    for (size_t bytes = SENDER_STACK_BYTES; rc == EINVAL && bytes <= SENDER_STACK_MAX; bytes *= 2) {
        (void)pthread_attr_setstacksize(&attr, bytes);
        rc = pthread_create(&s->thread, &attr, run, s);
    }
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    (void)pthread_attr_destroy(&attr);
    if (rc == 0)
        (void)pthread_setname_np(s->thread, "tern-lease");
    return rc;
}

enum tern_err sender_start(struct client_socket *c, struct sender **ret)
{
    struct sender *s = calloc(1, sizeof *s);

    if (!s)
        return TERN_INTERNAL;
    s->socket = c;
    if (sem_init(&s->wake, 0, 0) != 0 || begin_thread(s) != 0) {
        free(s);
        return TERN_INTERNAL;
    }
    *ret = s;
    return TERN_OK;
}

void sender_stop(struct sender **sender, bool is_child)
{
    struct sender *s = *sender;

    *sender = NULL;
    if (!s)
        return;
    if (!is_child) {
        atomic_store(&s->ends, true);
        (void)sem_post(&s->wake);
        (void)pthread_join(s->thread, NULL);
        s->socket->out_left = false;
    }
    (void)sem_destroy(&s->wake);
    free(s);
}

void sender_told(struct sender *s)
{
    uint64_t now_ns = client_socket_now_ns(), since_ns = now_ns - atomic_load(&s->queued_ns);

    if (since_ns > PACE_BEHIND_NS) {
        atomic_store_explicit(&s->pace_ns, since_ns, memory_order_relaxed);
        atomic_store_explicit(&s->queued_ns, now_ns, memory_order_relaxed);
    }
    if (atomic_load(&s->asleep) && atomic_exchange(&s->asleep, false))
        (void)sem_post(&s->wake);
}
