/* What we need and liburing 2.3 (Debian 12) lacks: the set-up of a ring of provided buffers, which
 * later versions do in one call. Only io_uring.c includes this. */
#ifndef SEAM_URING_COMPAT_H
#define SEAM_URING_COMPAT_H

#include <errno.h>
#include <liburing.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Flags of newer kernels that older headers do not name. */
#ifndef IORING_SETUP_SINGLE_ISSUER
#define IORING_SETUP_SINGLE_ISSUER (1U << 12)
#endif
#ifndef IORING_SETUP_DEFER_TASKRUN
#define IORING_SETUP_DEFER_TASKRUN (1U << 13)
#endif

static inline int uring_register(const struct io_uring *ring, unsigned opcode, const void *arg,
                                 unsigned n)
{
    long r = syscall(__NR_io_uring_register, ring->ring_fd, opcode, arg, n);

    return r < 0 ? -errno : (int)r;
}

static inline int uring_restrict(const struct io_uring *ring,
                                 const struct io_uring_restriction *res, unsigned n)
{
    return uring_register(ring, IORING_REGISTER_RESTRICTIONS, res, n);
}

static inline int uring_enable(const struct io_uring *ring)
{
    return uring_register(ring, IORING_REGISTER_ENABLE_RINGS, NULL, 0);
}

/* The ring's memory is mapped, since it has to start on a page. Returns 0 or -errno. */
static inline int uring_buf_ring_setup(struct io_uring *ring, unsigned entries,
                                       unsigned short group, struct io_uring_buf_ring **ret)
{
    struct io_uring_buf_reg reg = {.ring_entries = entries, .bgid = group};
    void *mem = mmap(NULL, entries * sizeof(struct io_uring_buf), PROT_READ | PROT_WRITE,
                     MAP_ANONYMOUS | MAP_PRIVATE | MAP_POPULATE, -1, 0);
    int r;

    if (mem == MAP_FAILED)
        return -errno;
    reg.ring_addr = (unsigned long)mem;
    r = io_uring_register_buf_ring(ring, &reg, 0);
    if (r < 0) {
        munmap(mem, entries * sizeof(struct io_uring_buf));
        return r;
    }
    *ret = mem;
    io_uring_buf_ring_init(*ret);
    return 0;
}

static inline void uring_buf_ring_unmap(struct io_uring_buf_ring *br, unsigned entries)
{
    munmap(br, entries * sizeof(struct io_uring_buf));
}

#endif
