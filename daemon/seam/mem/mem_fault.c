/* See mem_fault.h. The table is written only at start and at the end; the handler reads it on the
 * thread that touched the page. The signal comes from the thread's own load or store, so the jump
 * out of the handler interrupts only that touch. Faults outside the table or outside mem_fault_try
 * go to the previous handler, or kill the process. */
#include "seam/mem/mem_fault.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#include "base/check.h"
#include "base/undumped.h"

struct fault_range {
    uintptr_t from, to;
    uint64_t page_bytes;
    bool shared;
};

static struct fault_range ranges[MEM_FAULT_RANGES_MAX];
static size_t nranges;
static _Atomic uint64_t faults;
static struct sigaction previous;
static bool installed;
static _Thread_local sigjmp_buf *volatile landing; /* of this thread's current touch */
static _Thread_local bool decides;                 /* this is the owner thread */

static const struct fault_range *range_of(uintptr_t at)
{
    for (size_t i = 0; i < nranges; i++)
        if (at >= ranges[i].from && at < ranges[i].to)
            return &ranges[i];
    return NULL;
}

static void fresh_page(const struct fault_range *range, uintptr_t at)
{
    uintptr_t page = at - (at - range->from) % range->page_bytes;

    mmap((void *)page, range->page_bytes, PROT_READ | PROT_WRITE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0); /* on failure the next touch fails */
    undumped((void *)page, range->page_bytes);
}

static void end_touch(void)
{
    sigjmp_buf *to = landing;
    sigset_t bus;

    landing = NULL;
    sigemptyset(&bus); /* blocked in its handler, which does not return */
    sigaddset(&bus, SIGBUS);
    pthread_sigmask(SIG_UNBLOCK, &bus, NULL);
    siglongjmp(*to, 1);
}

/* Only calls that are safe in a handler: mmap is a plain system call. */
static void on_sigbus(int sig, siginfo_t *info, void *context)
{
    const struct fault_range *range = range_of((uintptr_t)info->si_addr);

    if (range && info->si_code == BUS_MCEERR_AO)
        return; /* an early report: nobody has touched it yet */
    if (range && landing) {
        atomic_fetch_add(&faults, 1);
        if (!range->shared)
            fresh_page(range, (uintptr_t)info->si_addr);
        end_touch();
    }
    if (previous.sa_flags & SA_SIGINFO)
        previous.sa_sigaction(sig, info, context);
    else if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN)
        previous.sa_handler(sig);
    else
        signal(sig, SIG_DFL); /* the access repeats and kills the process with the right signal */
}

bool mem_fault_watch(const void *base, uint64_t bytes, uint64_t page_bytes, bool shared)
{
    if (nranges == MEM_FAULT_RANGES_MAX)
        return false;
    ranges[nranges].from = (uintptr_t)base;
    ranges[nranges].to = (uintptr_t)base + bytes;
    ranges[nranges].page_bytes = page_bytes;
    ranges[nranges].shared = shared;
    nranges++;
    if (!installed) {
        struct sigaction action = {.sa_sigaction = on_sigbus, .sa_flags = SA_SIGINFO | SA_RESTART};

        installed = sigaction(SIGBUS, &action, &previous) == 0;
    }
    return installed;
}

void mem_fault_unwatch(const void *base)
{
    for (size_t i = 0; i < nranges; i++)
        if (ranges[i].from == (uintptr_t)base) {
            ranges[i] = ranges[--nranges];
            break;
        }
    if (nranges == 0 && installed) {
        sigaction(SIGBUS, &previous, NULL);
        installed = false;
    }
}

uint64_t mem_fault_count(void)
{
    return atomic_load(&faults);
}

bool mem_fault_try(void (*touch)(void *ctx), void *ctx)
{
    sigjmp_buf here;

    check(!landing);
    if (sigsetjmp(here, 0)) /* without the mask, to save a system call: see end_touch */
        return false;
    landing = &here;
    touch(ctx);
    landing = NULL;
    return true;
}

void mem_fault_decides(void)
{
    decides = true;
}

void mem_fault_not_owner(void)
{
    check(!decides);
}

bool mem_fault_bytes(void (*touch)(void *ctx), void *ctx)
{
    mem_fault_not_owner();
    return mem_fault_try(touch, ctx);
}

struct feed {
    struct checksum *sum;
    const void *bytes;
    size_t n;
};

static void feed_touch(void *ctx)
{
    struct feed *f = ctx;

    checksum_feed(f->sum, f->bytes, f->n);
}

bool mem_fault_feed(struct checksum *sum, const void *bytes, size_t n)
{
    struct feed f = {.sum = sum, .bytes = bytes, .n = n};

    return mem_fault_bytes(feed_touch, &f);
}
