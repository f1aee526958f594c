/* See pieces.h. The sender waits for the kind of a pass, sends all pages, and waits again. The
 * first bytes of a piece identify it: its page, and its number in the stream. */
#include "pieces.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "engine/proc.h"
#include "engine/stats.h"
#include "raw_stream.h"

#define PACKED_BYTES (256u << 10) /* as much as a data thread receives at a time */
#define STRETCHES    1000u        /* as many as a data thread names at a time */

static size_t pieces_of_page(const struct pieces *p)
{
    return PIECES_PAGE_BYTES / p->piece_bytes;
}

static size_t side_of(const struct pieces *p)
{
    size_t side = 1;

    while (side * side < pieces_of_page(p))
        side *= 2;
    return side;
}

/* Returns the address of piece number i of the stream. */
static uint8_t *piece_at(const struct pieces *p, enum pieces_end end, uint64_t i)
{
    uint64_t n = pieces_of_page(p), side = side_of(p), k = i % n;

    if (end != PIECES_PLAIN)
        k = k % side * side + k / side;
    return p->region + i / n * PIECES_PAGE_BYTES + k * p->piece_bytes;
}

static uint64_t pieces_all(const struct pieces *p)
{
    return (uint64_t)p->pages * pieces_of_page(p);
}

static void number_all(const struct pieces *p, enum pieces_end end)
{
    for (uint64_t i = 0; i < pieces_all(p); i++)
        memcpy(piece_at(p, end, i), &i, sizeof i);
}

uint64_t pieces_wrong(const struct pieces *p, struct pieces_way way)
{
    uint64_t wrong = 0;

    for (uint64_t i = 0; i < pieces_all(p); i++)
        wrong += memcmp(piece_at(p, way.receives, i), &i, sizeof i) != 0;
    return wrong;
}

static bool region_make(struct pieces *p)
{
    size_t bytes = (size_t)p->pages * PIECES_PAGE_BYTES;

    p->region = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p->region == MAP_FAILED) {
        p->region = NULL;
        return false;
    }
    madvise(p->region, bytes, MADV_HUGEPAGE);
    memset(p->region, 1, bytes);
    p->packed = mem_need(1, PACKED_BYTES);
    return true;
}

/* ---- an end moves everything ---- */

/* Moves what the last call left undone. */
static bool move_rest(int fd, struct iovec *iov, size_t n, bool send, size_t done)
{
    for (size_t i = 0; i < n; i++) {
        size_t skip = done < iov[i].iov_len ? done : iov[i].iov_len, left = iov[i].iov_len - skip;
        uint8_t *at = (uint8_t *)iov[i].iov_base + skip;

        done -= skip;
        if (left > 0 && !(send ? proc_send(fd, at, left) : proc_recv(fd, at, left)))
            return false;
    }
    return true;
}

static bool move_stretches(const struct pieces *p, bool send)
{
    struct iovec iov[STRETCHES];
    uint64_t all = pieces_all(p);

    for (uint64_t i = 0; i < all;) {
        struct msghdr msg = {.msg_iov = iov};
        size_t bytes = 0, n = 0;
        ssize_t did;

        for (; i < all && n < STRETCHES && bytes + p->piece_bytes <= PACKED_BYTES; i++) {
            iov[n++] = (struct iovec){piece_at(p, PIECES_STRETCHES, i), p->piece_bytes};
            bytes += p->piece_bytes;
        }
        msg.msg_iovlen = n;
        did = send ? sendmsg(p->fd, &msg, MSG_NOSIGNAL) : recvmsg(p->fd, &msg, MSG_WAITALL);
        if (did <= 0 || ((size_t)did < bytes && !move_rest(p->fd, iov, n, send, (size_t)did)))
            return false;
    }
    return true;
}

static bool move_packed(const struct pieces *p, bool send)
{
    uint64_t all = pieces_all(p), each = PACKED_BYTES / p->piece_bytes;

    for (uint64_t i = 0; i < all; i += each) {
        uint64_t n = all - i < each ? all - i : each;

        if (!send && !proc_recv(p->fd, p->packed, n * p->piece_bytes))
            return false;
        for (uint64_t k = 0; k < n; k++) {
            uint8_t *at = piece_at(p, PIECES_PACKED, i + k), *in = p->packed + k * p->piece_bytes;

            memcpy(send ? in : at, send ? at : in, p->piece_bytes);
        }
        if (send && !proc_send(p->fd, p->packed, n * p->piece_bytes))
            return false;
    }
    return true;
}

static bool move_plain(const struct pieces *p, bool send)
{
    size_t all = (size_t)p->pages * PIECES_PAGE_BYTES;

    for (size_t at = 0; at < all; at += PACKED_BYTES) {
        size_t n = all - at < PACKED_BYTES ? all - at : PACKED_BYTES;

        if (!(send ? proc_send(p->fd, p->region + at, n) : proc_recv(p->fd, p->region + at, n)))
            return false;
    }
    return true;
}

static bool move_all(const struct pieces *p, enum pieces_end end, bool send)
{
    switch (end) {
    case PIECES_STRETCHES: return move_stretches(p, send);
    case PIECES_PACKED: return move_packed(p, send);
    default: return move_plain(p, send);
    }
}

/* ---- the two ends ---- */

static uint64_t cpu_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

_Noreturn static void send_pages(struct pieces *p)
{
    enum pieces_end end;
    uint64_t cpu_ns;

    if (!region_make(p) || !proc_send(p->fd, "r", 1))
        _exit(1);
    while (proc_recv(p->fd, &end, sizeof end)) {
        number_all(p, end);
        if (!proc_send(p->fd, "n", 1))
            _exit(1);
        cpu_ns = cpu_now();
        if (!move_all(p, end, true))
            _exit(1);
        cpu_ns = cpu_now() - cpu_ns;
        if (!proc_send(p->fd, &cpu_ns, sizeof cpu_ns))
            _exit(1);
    }
    _exit(0);
}

bool pieces_start(struct pieces *p, size_t piece_bytes, uint32_t pages)
{
    int pair[2];
    char ready;

    *p = (struct pieces){.pid = -1, .fd = -1, .piece_bytes = piece_bytes, .pages = pages};
    if (!raw_stream_pair(pair))
        return false;
    p->fd = pair[0];
    p->pid = proc_fork();
    if (p->pid == 0) {
        close(pair[0]);
        p->fd = pair[1];
        proc_pin(proc_core(0));
        send_pages(p);
    }
    close(pair[1]);
    return p->pid > 0 && region_make(p) && proc_recv(p->fd, &ready, 1);
}

void pieces_stop(struct pieces *p)
{
    if (p->fd >= 0)
        close(p->fd);
    p->fd = -1;
    proc_end(&p->pid);
    if (p->region)
        munmap(p->region, (size_t)p->pages * PIECES_PAGE_BYTES);
    free(p->packed);
    p->region = p->packed = NULL;
}

bool pieces_pass(struct pieces *p, struct pieces_way way, struct pieces_speed *ret)
{
    bool ok = proc_pin(proc_core(1)); /* a core for each process, as for the two daemons */
    double bytes = (double)p->pages * PIECES_PAGE_BYTES;
    uint64_t start, cpu, sender_ns = 0;
    char ready;

    memset(p->region, 1, (size_t)p->pages * PIECES_PAGE_BYTES);
    ok = ok && proc_send(p->fd, &way.sends, sizeof way.sends) && proc_recv(p->fd, &ready, 1);
    start = clock_ns();
    cpu = cpu_now();
    ok = ok && move_all(p, way.receives, false);
    cpu = cpu_now() - cpu;
    ret->gb_s = bytes / (double)(clock_ns() - start);
    ok = ok && proc_recv(p->fd, &sender_ns, sizeof sender_ns);
    ret->gb_core_s = bytes / (double)(way.sends == PIECES_PLAIN ? cpu : sender_ns);
    return proc_pin(-1) && ok;
}
