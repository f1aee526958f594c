/* Descriptors and mappings in tests of libtern: answers that carry descriptors, and those that this
 * process has afterwards. Header only. */
#ifndef TEST_RIG_FDS_H
#define TEST_RIG_FDS_H

#include <dirent.h>
#include <inttypes.h>

#include "unit/rig/rig_client.h"

#define RIG_FDS 8

/* Sends bytes of the script with at most RIG_FDS descriptors. */
static inline void send_fds(struct fake *f, const uint8_t *frame, size_t n, const int *fds,
                            size_t nfds)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(RIG_FDS * sizeof(int))];
    } control = {0};
    struct iovec iov = {.iov_base = (void *)(uintptr_t)frame, .iov_len = n};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

    check(nfds <= RIG_FDS);
    if (nfds) {
        struct cmsghdr *c;

        msg.msg_control = control.bytes;
        msg.msg_controllen = CMSG_SPACE(nfds * sizeof(int));
        c = CMSG_FIRSTHDR(&msg);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(nfds * sizeof(int));
        memcpy(CMSG_DATA(c), fds, nfds * sizeof(int));
    }
    check(sendmsg(f->fd, &msg, MSG_NOSIGNAL) == (ssize_t)n);
}

static inline uint32_t open_fds(void)
{
    DIR *d = opendir("/proc/self/fd");
    uint32_t n = 0;

    assert_non_null(d);
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

/* The VmFlags of the mapping that contains `at`, which the kernel may have merged with a neighbour;
 * "" if there is none. */
static inline const char *flags_of(const void *at)
{
    static char line[512];
    FILE *maps = fopen("/proc/self/smaps", "r");
    bool inside = false;

    assert_non_null(maps);
    while (fgets(line, sizeof(line), maps)) {
        uintptr_t from, to;

        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " ", &from, &to) == 2)
            inside = from <= (uintptr_t)at && (uintptr_t)at < to;
        if (inside && strncmp(line, "VmFlags:", 8) == 0) {
            fclose(maps);
            return line;
        }
    }
    fclose(maps);
    return "";
}

#endif
