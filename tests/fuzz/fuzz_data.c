/* Fuzz target: what comes on a data connection. The first byte chooses the side. At the source the
 * input is what a caller says, behind a good HELLO or in place of it; at the destination it is the
 * answer to a request for a few pages. Real sockets, one connection for each input, both sides over
 * one ring. The connection has to end once the input has, each pull has to end once, and a
 * destination writes no page but those it asked for. */
#include "base/check.h"
#include "unit/seam/test_xfer_rig.h"

#define PAGE_BYTES 512u
#define PULLED     4u /* pages that a pull asks for: 1 to PULLED */
#define GUARDS     4u /* pages behind them, that nobody may write */
#define SILENCE_NS 20000000000u
#define GUARD_BYTE 0x5a

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static int listener = -1;
static uint32_t pulls, callers;

static void set_up(void)
{
    static const struct rig_options options = {
        .page_bytes = {PAGE_BYTES}, .memory_bytes = 1u << 20, .idle_ns = 3600000000000u};
    uint16_t port;

    if (listener >= 0)
        return;
    rig_open_filled(&options, 40);
    listener = rig_listen(&port);
    rig.link = 1;
    rig_link(port, RIG_SRC_INC);
}

static void turn(uint64_t deadline)
{
    rig_step();
    check(io_now_ns() < deadline);
}

/* Each caller has an address of its own for a while: a port is not free at once when its connection
 * has ended. */
static int dial(void)
{
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
static void talk(int fd, const uint8_t *bytes, size_t n)
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

static void until_quiet(struct xfer *xfer)
{
    uint64_t deadline = io_now_ns() + SILENCE_NS;
    struct xfer_stats stats;

    for (xfer_stats(xfer, &stats); stats.conns > 0; xfer_stats(xfer, &stats))
        turn(deadline);
}

static void at_the_source(bool hello, const uint8_t *bytes, size_t n)
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

static uint8_t *page(uint32_t i)
{
    return mem_page(rig.dst.mem, 0, 0, 0, rig.base[0] + i);
}

static void at_the_destination(const uint8_t *bytes, size_t n)
{
    uint64_t deadline = io_now_ns() + SILENCE_NS;
    struct pull_id pull = {pulls % 8, pulls + 1};
    int fd;

    memset(page(PULLED + 1), GUARD_BYTE, GUARDS * PAGE_BYTES);
    rig.dst.nevents = 0;
    pulls++;
    rig_pull(pull, 0, 0, 1, PULLED);
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
    for (uint32_t i = 0; i < GUARDS * PAGE_BYTES; i++)
        check(page(PULLED + 1)[i] == GUARD_BYTE);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n == 0)
        return 0;
    set_up();
    if (data[0] & 1)
        at_the_destination(data + 1, n - 1);
    else if (!(data[0] & 2) ||
             n > XFER_HEAD_BYTES) /* with less it stands at the door for a while */
        at_the_source(!(data[0] & 2), data + 1, n - 1);
    return 0;
}
