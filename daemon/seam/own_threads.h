/* Shared by the daemon's own threads: which signals they take, and how they wake the thread that
 * waits for an eventfd. Used by the workers (seam/mem), the data threads (io_threads.c) and
 * others. */
#ifndef SEAM_OWN_THREADS_H
#define SEAM_OWN_THREADS_H

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <unistd.h>

/* Threads started from here on take only the signals that their own access raises: the owner thread
 * handles the rest. *ret_before is the caller's mask, to be restored afterwards. */
static inline void own_threads_mask(sigset_t *ret_before)
{
    static const int own[] = {SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGABRT};
    sigset_t blocked;

    sigfillset(&blocked);
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
        sigdelset(&blocked, own[i]);
    pthread_sigmask(SIG_SETMASK, &blocked, ret_before);
}

/* Starts such a thread. Returns 0, or an errno. */
static inline int own_thread_start(pthread_t *ret, void *(*run)(void *ctx), void *ctx)
{
    sigset_t before;
    int rc;

    own_threads_mask(&before);
    rc = pthread_create(ret, NULL, run, ctx);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

/* An eventfd refuses only a write past 2^64; a full one is still readable. */
static inline void eventfd_wake(int fd)
{
    uint64_t one = 1;

    (void)TEMP_FAILURE_RETRY(write(fd, &one, sizeof one));
}

static inline void eventfd_clear(int fd)
{
    uint64_t count;

    (void)TEMP_FAILURE_RETRY(read(fd, &count, sizeof count));
}

#endif
