/* Holes in memory that clients map: threads that may refuse them, as a daemon with
 * CAP_LINUX_IMMUTABLE does, and a tenant that maps a page very often and punches it out in a loop.
 * Only unprivileged processes lack the capability, so a test that runs as root drops it for the
 * thread that creates the memory. */
#ifndef UNIT_RIG_HOLES_H
#define UNIT_RIG_HOLES_H

#include <fcntl.h>
#include <linux/capability.h>
#include <linux/falloc.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "testing/test.h"

#define HOLE (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE)

/* Returns true if this thread can refuse holes. `refuse`: it does from now on, if it may at all. */
static inline bool holes_refused(bool refuse)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct caps[2];
    const uint32_t bit = 1u << CAP_LINUX_IMMUTABLE;

    assert_int_equal(syscall(SYS_capget, &head, caps), 0);
    caps[0].effective &= ~bit;
    if (refuse)
        caps[0].effective |= caps[0].permitted & bit;
    assert_int_equal(syscall(SYS_capset, &head, caps), 0);
    return (caps[0].effective & bit) != 0;
}

#define HOLERS 3 /* the first one punches */
#define MAPS   15000u

struct holer {
    pid_t child[HOLERS];
    struct holer_shared {
        atomic_uint mapped, punched, refused;
    } * shared;
};

static inline void holer_child(struct holer_shared *s, int fd, uint64_t bytes, bool punches)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (uint32_t i = 0; i < MAPS; i++)
        /* Every other mapping has another protection, or the kernel would merge neighbours. */
        (void)mmap(NULL, bytes, PROT_READ | (i % 2 ? PROT_WRITE : 0), MAP_SHARED, fd, 0);
    atomic_fetch_add(&s->mapped, 1);
    while (!punches || atomic_load(&s->mapped) < HOLERS)
        usleep(1000);
    for (;;)
        atomic_fetch_add(fallocate(fd, HOLE, 0, (off_t)bytes) == 0 ? &s->punched : &s->refused, 1);
}

/* Returns when the first hole was punched or refused. */
static inline void holer_start(struct holer *h, int fd, uint64_t bytes)
{
    h->shared =
        mmap(NULL, sizeof *h->shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(h->shared, MAP_FAILED);
    for (uint32_t i = 0; i < HOLERS; i++) {
        h->child[i] = fork();
        if (h->child[i] == 0)
            holer_child(h->shared, fd, bytes, i == 0);
    }
    while (atomic_load(&h->shared->punched) + atomic_load(&h->shared->refused) == 0)
        usleep(1000);
}

static inline void holer_end(struct holer *h)
{
    for (uint32_t i = 0; i < HOLERS; i++) {
        kill(h->child[i], SIGKILL);
        waitpid(h->child[i], NULL, 0);
    }
    munmap(h->shared, sizeof *h->shared);
}

#endif
