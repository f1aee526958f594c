/* Shared by the fuzz targets of data connections: a peer that dials or is dialled, sends all of the
 * input, reads all answers, and hangs up. Header only. */
#ifndef FUZZ_DATA_TALK_H
#define FUZZ_DATA_TALK_H

#include "base/check.h"
#include "fuzz/passed.h"
#include "unit/seam/test_xfer_rig.h"

#define SILENCE_NS 20000000000u

static inline void turn(uint64_t deadline)
{
    rig_step();
    check(io_now_ns() < deadline);
}

/* Each caller has an address of its own for a while: a port is not free at once after its
 * connection has ended. */
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

/* Sends everything, reads all answers, and waits until the other side has hung up too. */
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

/* Reads the first frames of a dialled connection: HELLO, and a request, whose head is returned. */
static inline void hear_request(int fd, uint64_t deadline, struct xfer_head *ret)
{
    uint8_t heard[2 * XFER_HEAD_BYTES];
    size_t have = 0;

    while (have < sizeof heard) {
        ssize_t got = recv(fd, heard + have, sizeof heard - have, MSG_DONTWAIT);

        check(got > 0 || (got < 0 && errno == EAGAIN));
        have += got > 0 ? (size_t)got : 0;
        turn(deadline);
    }
    check(xfer_get_head(heard + XFER_HEAD_BYTES, ret));
}

/* Makes the answer's head agree with its statuses, for pages of so many bytes and sums: the bytes
 * behind the head are the input's. Returns false if the input is too short for a head. */
static inline bool right_answer(const struct xfer_head *request, uint8_t *bytes, size_t n,
                                uint64_t page_bytes, uint64_t sums)
{
    struct xfer_head head = {.type = XFER_ANSWER, .n = request->n, .seq = request->seq};

    if (n < XFER_HEAD_BYTES + XFER_STATUS_BYTES(request->n))
        return false;
    for (uint32_t i = 0; i < request->n; i++) {
        uint8_t *status = bytes + XFER_HEAD_BYTES + 4 * i;

        if (!(status[0] & 1)) { /* half of all pages arrive */
            memset(status, 0, 4);
            head.a += page_bytes;
            head.b += sums * sizeof(uint64_t);
        }
    }
    xfer_put_head(bytes, &head);
    return true;
}

/* Answers a pull that was just begun, in place of its source; then the pull is stopped, and ends.
 * page_bytes, sums: of a page in the answer; 0: the input's head is sent unchanged. */
static inline void answered(struct pull_id pull, int listener, const uint8_t *bytes, size_t n,
                            uint64_t page_bytes, uint64_t sums)
{
    uint64_t deadline = io_now_ns() + SILENCE_NS;
    uint8_t *answer = malloc(n ? n : 1);
    struct xfer_head request;
    int fd;

    check(answer);
    memcpy(answer, bytes, n);
    while ((fd = accept(listener, NULL, NULL)) < 0)
        turn(deadline);
    hear_request(fd, deadline, &request);
    if (page_bytes && right_answer(&request, answer, n, page_bytes, sums))
        fuzz_passed();
    talk(fd, answer, n);
    free(answer);
    while (rig.dst.nevents == 0)
        turn(deadline);
    check(rig.dst.event[0].kind == EV_PULLED || rig.dst.event[0].kind == EV_PULL_BROKEN);
    rig_stop(pull);
    while (rig.dst.nevents < 2)
        turn(deadline);
    check(rig.dst.nevents == 2 && rig.dst.event[1].kind == EV_PULL_QUIET);
    until_quiet(rig.dst.xfer);
}

/* Sends the input behind a good HELLO, or in place of it. Behind one the first head becomes a
 * request for pages of a serve, unless `raw`; each request names its own serve and pages. */
static inline void at_the_source(bool hello, bool raw, const uint8_t *bytes, size_t n)
{
    static const uint16_t types[] = {XFER_REQUEST, XFER_REQUEST_PLAN};
    uint8_t *all = malloc(XFER_HEAD_BYTES + n);
    size_t head = hello ? XFER_HEAD_BYTES : 0;
    struct xfer_head first;

    check(all);
    xfer_put_head(all, &(struct xfer_head){.type = XFER_HELLO, .a = RIG_SRC_INC, .b = RIG_TOKEN});
    if (n > 0)
        memcpy(all + head, bytes, n);
    if (hello && !raw && n >= XFER_HEAD_BYTES) {
        xfer_put32(all + head, XFER_MAGIC);
        xfer_put32(all + head + 4, XFER_VERSION | (uint32_t)types[all[head + 6] % 2] << 16);
    }
    if (hello && n >= XFER_HEAD_BYTES && xfer_get_head(all + head, &first))
        fuzz_passed();
    talk(dial(), all, head + n);
    free(all);
    until_quiet(rig.src.xfer);
    check(rig.src.nevents == 0);
}

#endif
