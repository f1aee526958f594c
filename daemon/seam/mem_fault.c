/* See mem_fault.h. The table is written at start and at the end only; the handler reads it on
 * whatever thread touched the page. Faults outside the table go to the handler that was there
 * before, or kill as they should. */
#include "seam/mem_fault.h"

#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

struct fault_range {
    uintptr_t from, to;
    uint64_t page_bytes;
};

static struct fault_range ranges[MEM_FAULT_RANGES_MAX];
static size_t nranges;
static _Atomic uint64_t faults;
static struct sigaction previous;
static bool installed;

static const struct fault_range *range_of(uintptr_t at)
{
    for (size_t i = 0; i < nranges; i++)
        if (at >= ranges[i].from && at < ranges[i].to)
            return &ranges[i];
    return NULL;
}

/* Only calls that are safe in a handler: mmap is a plain system call. */
static void on_sigbus(int sig, siginfo_t *info, void *context)
{
    uintptr_t at = (uintptr_t)info->si_addr;
    const struct fault_range *range = range_of(at);

    if (range) {
        uintptr_t page = at - (at - range->from) % range->page_bytes;

        if (mmap((void *)page, range->page_bytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED) {
            atomic_fetch_add(&faults, 1);
            return;
        }
    }
    if (previous.sa_flags & SA_SIGINFO) {
        previous.sa_sigaction(sig, info, context);
    } else if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) {
        previous.sa_handler(sig);
    } else {
        signal(sig,
               SIG_DFL); /* the access is repeated and kills the process with the right signal */
    }
}

bool mem_fault_watch(const void *base, uint64_t bytes, uint64_t page_bytes)
{
    if (nranges == MEM_FAULT_RANGES_MAX)
        return false;
    ranges[nranges].from = (uintptr_t)base;
    ranges[nranges].to = (uintptr_t)base + bytes;
    ranges[nranges].page_bytes = page_bytes;
    nranges++;
    if (!installed) {
        struct sigaction action;

        memset(&action, 0, sizeof action);
        action.sa_sigaction = on_sigbus;
        action.sa_flags = SA_SIGINFO | SA_RESTART;
        installed = sigaction(SIGBUS, &action, &previous) == 0;
    }
    return installed;
}

void mem_fault_unwatch(const void *base)
{
    for (size_t i = 0; i < nranges; i++) {
        if (ranges[i].from == (uintptr_t)base) {
            ranges[i] = ranges[--nranges];
            break;
        }
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
