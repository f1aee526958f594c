/* Preloaded into a daemon: counts what its owner thread allocates between "ready" and the end of
 * its service. The daemon's messages READY=1 and STOPPING=1 to its service manager identify that
 * thread and that time. The report goes to INTERPOSE_REPORT, one line: `ready=1 before=N count=N
 * malloc=N ...` and the origin of the first allocation; noalloc.sh reads it. */
#define _GNU_SOURCE
#include <execinfo.h>

#include "interpose.h"

#define FRAMES_MAX 12

static const char *const names[KINDS] = {"malloc", "calloc", "realloc", "memalign",
                                         "mmap",   "mremap", "brk"};

/* Set in the owner thread alone, from ready on. The TLS model keeps the access from allocating. */
static __thread int counting __attribute__((tls_model("initial-exec")));
static unsigned long before, counts[KINDS];
static int ready;
static void *first[FRAMES_MAX];
static int nfirst;

static int refuses(enum kind kind)
{
    before += !counting && !ready;
    if (!counting)
        return 0;
    counts[kind]++;
    if (nfirst == 0) {
        counting = 0;
        nfirst = backtrace(first, FRAMES_MAX);
        counting = 1;
    }
    return 0;
}

static void report(void)
{
    const char *folder = getenv("INTERPOSE_REPORT");
    unsigned long sum = 0;
    char path[4096], line[1024];
    size_t n = 0;
    int fd;

    if (!folder)
        return;
    for (int i = 0; i < KINDS; i++)
        sum += counts[i];
    n += (size_t)snprintf(line, sizeof line, "ready=%d before=%lu count=%lu", ready, before, sum);
    for (int i = 0; i < KINDS; i++)
        n += (size_t)snprintf(line + n, sizeof line - n, " %s=%lu", names[i], counts[i]);
    n += (size_t)snprintf(line + n, sizeof line - n, "\n");
    snprintf(path, sizeof path, "%s/%d", folder, (int)getpid());
    fd = leave(path, line, n);
    backtrace_symbols_fd(first, nfirst, fd);
    close(fd);
}

static void is_told(const char *what)
{
    void *warm[1];

    counting = 0;
    if (what[0] == 'S') {
        report();
        return;
    }
    backtrace(warm, 1); /* the first backtrace loads a library */
    ready = 1;
    counting = 1;
}
