/* What the fuzz targets of data connections have in common: a peer that calls or is called, says
 * all of the input, takes whatever it is answered, and hangs up. Header only. */
#ifndef FUZZ_DATA_TALK_H
#define FUZZ_DATA_TALK_H

#include "base/check.h"
#include "unit/seam/test_xfer_rig.h"

#define SILENCE_NS 20000000000u

static inline void turn(uint64_t deadline)
{
    rig_step();
    check(io_now_ns() < deadline);
}

/* Each caller has an address of its own for a while: a port is not free at once when its connection
 * has ended. */
static inline int dial(void)
{
    static uint32_t callers;
    struct sockaddr_in from = {.sin_family = AF_INET}, to = from;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    callers++;
    from.sin_addr.s_addr = htonl(INADDR_LOOPBACK + (callers % 60000 + 1) * 256);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    to.sin_port = htons(rig.port);
    check(bind(fd, (struct sockaddr *)&from, sizeof from) == 0);
    while (connect(fd, (struct sockaddr *)&to, sizeof to) != 0 && errno != EISCONN)
        if (errno != EINTR && errno != EALREADY) /* the fuzzer's own timer */
            fail_msg("connect: %s", strerror(errno));
    return fd;
}

/* Says everything, takes whatever is answered, and waits until the other side has hung up too. */
static inline void talk(int fd, const uint8_t *bytes, size_t n)
{
    uint64_t deadline = io_now_ns() + SILENCE_NS;
    static uint8_t heard[65536];
    size_t said = 0;
    bool over = false;
    ssize_t got;

    for (;;) {
        if (!over) {
            ssize_t put = send(fd, bytes + said, n - said, MSG_NOSIGNAL | MSG_DONTWAIT);

            said += put >= 0 ? (size_t)put : 0;
            over = said == n || (put < 0 && errno != EAGAIN);
            if (over)
                shutdown(fd, SHUT_WR);
        }
        got = recv(fd, heard, sizeof heard, MSG_DONTWAIT);
        if (got == 0 || (got < 0 && errno != EAGAIN))
            break;
        turn(deadline);
    }
    close(fd);
}

static inline void until_quiet(struct xfer *xfer)
{
    uint64_t deadline = io_now_ns() + SILENCE_NS;
    struct xfer_stats stats;

    for (xfer_stats(xfer, &stats); stats.conns > 0; xfer_stats(xfer, &stats))
        turn(deadline);
}

/* What a pull that was just begun is answered by whoever it called; then it is stopped, and ends.
 */
static inline void answered(struct pull_id pull, int listener, const uint8_t *bytes, size_t n)
{
    uint64_t deadline = io_now_ns() + SILENCE_NS;
    int fd;

    while ((fd = accept(listener, NULL, NULL)) < 0)
        turn(deadline);
    talk(fd, bytes, n);
    while (rig.dst.nevents == 0)
        turn(deadline);
    check(rig.dst.event[0].kind == EV_PULLED || rig.dst.event[0].kind == EV_PULL_BROKEN);
    rig_stop(pull);
    while (rig.dst.nevents < 2)
        turn(deadline);
    check(rig.dst.nevents == 2 && rig.dst.event[1].kind == EV_PULL_QUIET);
    until_quiet(rig.dst.xfer);
}

/* Behind a good HELLO, or in place of it. */
static inline void at_the_source(bool hello, const uint8_t *bytes, size_t n)
{
    uint8_t *all = malloc(XFER_HEAD_BYTES + n);
    size_t head = hello ? XFER_HEAD_BYTES : 0;

    check(all);
    xfer_put_head(all, &(struct xfer_head){.type = XFER_HELLO, .a = RIG_SRC_INC, .b = RIG_TOKEN});
    if (n > 0)
        memcpy(all + head, bytes, n);
    talk(dial(), all, head + n);
    free(all);
    until_quiet(rig.src.xfer);
    check(rig.src.nevents == 0);
}

#endif
