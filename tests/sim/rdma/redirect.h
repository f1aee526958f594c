/* Included first in each file of the seam that the simulator builds: redirects its system calls to
 * the model. The C library's headers come first, so that only calls are renamed. */
#ifndef RDMA_REDIRECT_H
#define RDMA_REDIRECT_H

#include <fcntl.h>
#include <netdb.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

#include "base/undumped.h"

#define XFER_PIECE_BYTES 4096u /* a batch is several pieces, sometimes of several paths */
#define TCP_PIECE_BYTES  4096u
#define TCP_PATH_BYTES   2048u /* so that a span that waits for room calls another path */
#define XFER_SLOT_BYTES  1024u /* a page has several of them, which may lie apart */
#define XFER_RING_SLOTS  7u    /* and pieces wait for some */
#define XFER_RING_SHARE  5u
#define DATA_RECV_BYTES  1500u /* and a data thread moves each of them in several */
#define DATA_SEND_PIECE  1500u
/* No stretch is so short: the model checks what the kernel writes into pages, by stretches. */
#define DATA_PACKED_STRETCH 1u

void *sim_calloc(size_t n, size_t size);
void sim_free(void *p);
void *sim_mmap(size_t n);

/* A tenant's ring, or a buffer of a data connection. */
static inline void *sim_undumped(size_t n)
{
    return n == (size_t)XFER_RING_SLOTS * XFER_SLOT_BYTES ? sim_mmap(n) : sim_calloc(1, n);
}

int sim_socket(int family, int type, int protocol);
int sim_close(int fd);
int sim_shutdown(int fd, int how);
int sim_bind(int fd, const struct sockaddr *addr, socklen_t len);
int sim_listen(int fd, int backlog);
int sim_getsockname(int fd, struct sockaddr *addr, socklen_t *len);
int sim_getaddrinfo(const char *host, const char *service, const struct addrinfo *hints,
                    struct addrinfo **ret);
ssize_t sim_getrandom(void *buf, size_t n);
int sim_open(const char *path);
ssize_t sim_pread(int fd);

static inline int sim_setsockopt(int fd, const void *at)
{
    (void)fd, (void)at;
    return 0;
}

/* These do nothing in the model. */
static inline int sim_nothing(const void *at)
{
    (void)at;
    return 0;
}

/* Not const: the field that it fills in may be unset. */
static inline int sim_nothing_known(void *at)
{
    (void)at;
    return -1;
}

static inline FILE *sim_no_file(const char *path)
{
    (void)path;
    return NULL;
}

/* clang-format off */
#define calloc(n, size)                        sim_calloc(n, size)
#define free(p)                                sim_free(p)
#define mmap(at, n, ...)                       (sim_nothing(at), sim_mmap(n))
#define munmap(at, n)                          sim_free(at)
#define undumped_take(n, present)              sim_undumped(n)
#define undumped_put(at, n)                    sim_free(at)
#define socket(family, type, protocol)         sim_socket(family, type, protocol)
#define close(fd)                              sim_close(fd)
#define shutdown(fd, how)                      sim_shutdown(fd, how)
#define bind(fd, addr, len)                    sim_bind(fd, addr, len)
#define listen(fd, backlog)                    sim_listen(fd, backlog)
#define getsockname(fd, addr, len)             sim_getsockname(fd, addr, len)
#define getaddrinfo(host, service, hints, ret) sim_getaddrinfo(host, service, hints, ret)
#define freeaddrinfo(list)                     sim_nothing(list)
#define setsockopt(fd, level, name, at, n)     sim_setsockopt(fd, at)
#define fcntl(fd, ...)                         sim_nothing(&(fd))
#define getrandom(buf, n, flags)               sim_getrandom(buf, n)
#define open(path, flags)                      sim_open(path)
#define pread(fd, buf, n, at)                  (sim_nothing_known(buf), sim_pread(fd))
#define syscall(number, pid, n, at, ...)        sim_nothing_known(at)
#define sched_getaffinity(pid, bytes, set)     sim_nothing_known(set)
#define fopen(path, mode)                      sim_no_file(path)
#define getrlimit(which, at)                   (sim_nothing(at) - 1)

/* clang-format on */

#endif
