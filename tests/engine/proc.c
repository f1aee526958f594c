/* Processes of the benchmarks: see proc.h. A child asks the kernel to be killed with its parent, so
 * no run, however it ends, leaves a process behind. */
#include "engine/proc.h"

#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "engine/stats.h"

pid_t proc_fork(void)
{
    pid_t parent = getpid(), pid;

    fflush(NULL);
    pid = fork();
    if (pid != 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1); /* the parent died before the prctl */
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    signal(SIGPIPE, SIG_IGN);
    return 0;
}

pid_t proc_fork_linked(int *ret_fd)
{
    int pair[2];
    pid_t pid;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
        return -1;
    pid = proc_fork();
    close(pair[pid == 0 ? 0 : 1]);
    *ret_fd = pair[pid == 0 ? 1 : 0];
    return pid;
}

/* The cores of this process at the first call, so that a pinned process can be released again. */
static const cpu_set_t *own_cores(void)
{
    static cpu_set_t set;
    static bool known;

    if (!known)
        known = sched_getaffinity(0, sizeof set, &set) == 0;
    return known ? &set : NULL;
}

bool proc_pin(int core)
{
    const cpu_set_t *own = own_cores();
    cpu_set_t set;

    if (!own)
        return false;
    if (core < 0)
        return sched_setaffinity(0, sizeof *own, own) == 0;
    CPU_ZERO(&set);
    CPU_SET((size_t)core, &set);
    return sched_setaffinity(0, sizeof set, &set) == 0;
}

int proc_core(uint32_t n)
{
    const cpu_set_t *own = own_cores();

    for (int core = 0; own && core < CPU_SETSIZE; core++) {
        if (CPU_ISSET((size_t)core, own) && n-- == 0)
            return core;
    }
    return -1;
}

void proc_end(pid_t *pid)
{
    if (*pid <= 0)
        return;
    kill(*pid, SIGKILL);
    while (waitpid(*pid, NULL, 0) < 0 && errno == EINTR)
        ;
    *pid = -1;
}

bool proc_wait(pid_t *pid, uint32_t wait_ms, int *ret_status)
{
    uint64_t until = clock_ns() + (uint64_t)wait_ms * 1000000u;

    while (*pid > 0) {
        pid_t got = waitpid(*pid, ret_status, WNOHANG);

        if (got == *pid) {
            *pid = -1;
            return true;
        }
        if ((got < 0 && errno != EINTR) || clock_ns() >= until)
            return false;
        sleep_ms(2);
    }
    return false;
}

bool proc_send(int fd, const void *bytes, size_t n)
{
    const char *at = bytes;

    while (n > 0) {
        ssize_t got = send(fd, at, n, MSG_NOSIGNAL);

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        at += got;
        n -= (size_t)got;
    }
    return true;
}

bool proc_recv(int fd, void *bytes, size_t n)
{
    char *at = bytes;

    while (n > 0) {
        ssize_t got = recv(fd, at, n, 0);

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        at += got;
        n -= (size_t)got;
    }
    return true;
}

static void *got(void *p, size_t n)
{
    if (p || n == 0)
        return p;
    fprintf(stderr, "no memory for %zu bytes\n", n);
    _exit(2);
}

void *mem_need(size_t n, size_t each)
{
    return got(calloc(n, each), n * each);
}

void *mem_grow(void *p, size_t n, size_t each)
{
    return got(reallocarray(p, n, each), n * each);
}

void *proc_shared(size_t n)
{
    void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    return got(p == MAP_FAILED ? NULL : p, n);
}

void sleep_ms(uint32_t ms)
{
    struct timespec ts = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};

    nanosleep(&ts, NULL);
}

bool tempdir_make(char *path, size_t cap, const char *prefix)
{
    const char *tmp = getenv("TMPDIR");
    int n = snprintf(path, cap, "%s/%s.XXXXXX", tmp && *tmp ? tmp : "/tmp", prefix);

    if (n < 0 || (size_t)n >= cap) {
        errno = ENAMETOOLONG;
        return false;
    }
    return mkdtemp(path) != NULL;
}

void tempdir_remove(const char *path)
{
    DIR *dir = opendir(path);
    struct dirent *e;

    if (!dir)
        return;
    while ((e = readdir(dir)) != NULL) {
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            unlinkat(dirfd(dir), e->d_name, 0);
    }
    closedir(dir);
    rmdir(path);
}
