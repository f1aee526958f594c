/* Restricts and enables a ring: liburing 2.3 (Debian 12) does not export the calls for that. */
#ifndef SEAM_URING_COMPAT_H
#define SEAM_URING_COMPAT_H

#include <errno.h>
#include <liburing.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/check.h"

#define URING_OPCODES_MAX 32u /* of one ring */

/* Restricts a ring that was made disabled to these operations and flags, because seccomp does not
 * see the operations inside a ring, and enables it. No register operation is allowed afterwards.
 * Returns 0 or -errno. */
static inline int uring_enable(const struct io_uring *ring, const uint8_t *opcodes, size_t n,
                               uint8_t flags)
{
    struct io_uring_restriction res[URING_OPCODES_MAX + 1] = {
        {.opcode = IORING_RESTRICTION_SQE_FLAGS_ALLOWED, .sqe_flags = flags}};
    const int fd = ring->ring_fd;

    check(n <= URING_OPCODES_MAX);
    for (size_t i = 0; i < n; i++) {
        res[i + 1].opcode = IORING_RESTRICTION_SQE_OP;
        res[i + 1].sqe_op = opcodes[i];
    }
    return syscall(SYS_io_uring_register, fd, IORING_REGISTER_RESTRICTIONS, res, n + 1) < 0 ||
                   syscall(SYS_io_uring_register, fd, IORING_REGISTER_ENABLE_RINGS, NULL, 0) < 0
               ? -errno
               : 0;
}

#endif
