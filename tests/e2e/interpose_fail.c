/* Preloaded into a daemon: its FAIL_NTH-th allocation (malloc and its kin, mmap) fails, counted
 * from the start of main; 0: none. When the daemon is ready it counts no more and is asked to end
 * at once, so that every run ends. One line, FAIL_REPORT: `allocations=N ready=0|1`, whether or not
 * one failed; test_start_fails.sh reads it. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

extern void *__libc_malloc(size_t n);
extern void *__libc_calloc(size_t n, size_t each);
extern void *__libc_realloc(void *p, size_t n);
extern void *__libc_memalign(size_t align, size_t n);

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
    int fd, n;

    counting = 0;
    n = snprintf(line, sizeof line, "allocations=%lu ready=%d\n", (unsigned long)count, (int)ready);
    fd = path ? open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600) : -1;
    if (fd >= 0 && write(fd, line, (size_t)n) != n)
        _exit(99);
    if (fd >= 0)
        close(fd);
}

static int fails(void)
{
    if (!counting || ++count != nth)
        return 0;
    errno = ENOMEM;
    return 1;
}

void *malloc(size_t n)
{
    return fails() ? NULL : __libc_malloc(n);
}

void *calloc(size_t n, size_t each)
{
    return fails() ? NULL : __libc_calloc(n, each);
}

void *realloc(void *p, size_t n)
{
    return fails() ? NULL : __libc_realloc(p, n);
}

void *aligned_alloc(size_t align, size_t n)
{
    return fails() ? NULL : __libc_memalign(align, n);
}

int posix_memalign(void **ret, size_t align, size_t n)
{
    if (fails())
        return ENOMEM;
    *ret = __libc_memalign(align, n);
    return *ret ? 0 : ENOMEM;
}

void *mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset)
{
    return fails() ? MAP_FAILED : (void *)syscall(SYS_mmap, at, n, prot, flags, fd, offset);
}

void *mmap64(void *at, size_t n, int prot, int flags, int fd, off_t offset)
{
    return fails() ? MAP_FAILED : (void *)syscall(SYS_mmap, at, n, prot, flags, fd, offset);
}

ssize_t sendto(int fd, const void *bytes, size_t n, int flags, const struct sockaddr *to,
               socklen_t len)
{
    if (n == 7 && memcmp(bytes, "READY=1", 7) == 0) {
        counting = 0;
        ready = 1;
        kill(getpid(), SIGTERM);
        kill(getpid(), SIGINT); /* twice: at once */
    }
    return syscall(SYS_sendto, fd, bytes, n, flags, to, len);
}
