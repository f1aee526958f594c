/* Preloaded into a daemon: its FAIL_NTH-th allocation fails, counted from the start of main; 0:
 * none. Once the daemon is ready, the count stops and the daemon is asked to end at once, so that
 * every run ends. One line in FAIL_REPORT, `allocations=N ready=0|1`, whether or not one failed;
 * test_start_fails.sh reads it. */
#define _GNU_SOURCE
#include <stdatomic.h>

#include "interpose.h"

static atomic_ulong count;
static unsigned long nth;
static atomic_int counting, ready;

__attribute__((constructor)) static void begin(void)
{
    const char *text = getenv("FAIL_NTH");

    nth = text ? strtoul(text, NULL, 10) : 0;
    counting = 1;
}

__attribute__((destructor)) static void report(void)
{
    const char *path = getenv("FAIL_REPORT");
    char line[64];
    int n;

    counting = 0;
    n = snprintf(line, sizeof line, "allocations=%lu ready=%d\n", (unsigned long)count, (int)ready);
    if (path)
        close(leave(path, line, (size_t)n));
}

static int refuses(enum kind kind)
{
    (void)kind;
    if (!counting || ++count != nth)
        return 0;
    errno = ENOMEM;
    return 1;
}

static void is_told(const char *what)
{
    if (what[0] != 'R')
        return;
    counting = 0;
    ready = 1;
    kill(getpid(), SIGTERM);
    kill(getpid(), SIGINT); /* twice: at once */
}
