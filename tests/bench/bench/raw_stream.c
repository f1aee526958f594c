/* The raw stream: see raw_stream.h. The sender waits for one byte, sends all pages, and waits
 * again; the receiver measures from that byte to the last page. */
#include "raw_stream.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/prng.h"
#include "engine/bytes.h"
#include "engine/proc.h"
#include "engine/stats.h"

const size_t raw_read_sizes[RAW_READ_SIZES] = {64 << 10, 256 << 10, 1 << 20};

static uint8_t *make_region(size_t bytes, uint64_t seed)
{
    uint8_t *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED)
        return NULL;
    madvise(p, bytes, MADV_HUGEPAGE);
    page_fill(p, bytes, seed);
    return p;
}

static uint32_t *make_order(uint32_t n, uint64_t seed)
{
    uint32_t *order = malloc(n * sizeof *order);
    struct prng prng;

    prng_init(&prng, seed);
    for (uint32_t i = 0; order && i < n; i++) {
        uint32_t j = prng_below(&prng, i + 1);

        order[i] = order[j];
        order[j] = i;
    }
    return order;
}

_Noreturn static void send_pages(int fd, size_t page_bytes, uint32_t pages)
{
    uint8_t *region = make_region(page_bytes * pages, 1);
    uint32_t *order = make_order(pages, 1);
    char go;

    if (!region || !order || !proc_send(fd, "r", 1))
        _exit(1);
    while (proc_recv(fd, &go, 1)) {
        for (uint32_t i = 0; i < pages; i++) {
            if (!proc_send(fd, region + order[i] * page_bytes, page_bytes))
                _exit(1);
        }
    }
    _exit(0);
}

bool raw_stream_pair(int pair[2])
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

    pair[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    pair[1] = -1;
    if (listener >= 0 && pair[0] >= 0 && bind(listener, (struct sockaddr *)&at, sizeof at) == 0 &&
        listen(listener, 1) == 0 && getsockname(listener, (struct sockaddr *)&at, &len) == 0 &&
        connect(pair[0], (struct sockaddr *)&at, sizeof at) == 0)
        pair[1] = accept(listener, NULL, NULL);
    if (listener >= 0)
        close(listener);
    if (pair[1] < 0) {
        close(pair[0]);
        return false;
    }
    setsockopt(pair[0], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(pair[1], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return true;
}

bool raw_stream_start(struct raw_stream *s, size_t page_bytes, uint32_t pages)
{
    int pair[2];
    char ready;

    *s = (struct raw_stream){.pid = -1, .fd = -1, .page_bytes = page_bytes, .pages = pages};
    s->order = make_order(pages, 2);
    if (!s->order || !raw_stream_pair(pair))
        return false;
    s->fd = pair[0];
    s->pid = proc_fork();
    if (s->pid == 0) {
        close(pair[0]);
        proc_pin(proc_core(0));
        send_pages(pair[1], page_bytes, pages);
    }
    close(pair[1]);
    /* Allocated after the fork: shared memory would be copied on write, in small pages. */
    s->region = make_region(page_bytes * pages, 2);
    return s->region && s->pid > 0 && proc_recv(s->fd, &ready, 1);
}

void raw_stream_stop(struct raw_stream *s)
{
    if (s->fd >= 0)
        close(s->fd);
    s->fd = -1;
    proc_end(&s->pid);
    if (s->region)
        munmap(s->region, s->page_bytes * s->pages);
    free(s->order);
    s->region = NULL;
    s->order = NULL;
}

static bool read_page(struct raw_stream *s, uint8_t *at, size_t read_bytes)
{
    size_t have = 0;

    while (have < s->page_bytes) {
        size_t want = s->page_bytes - have < read_bytes ? s->page_bytes - have : read_bytes;
        ssize_t got = recv(s->fd, at + have, want, 0);

        if (got <= 0)
            return false;
        have += (size_t)got;
    }
    return true;
}

bool raw_stream_pass(struct raw_stream *s, size_t read_bytes, double *ret_gb_s)
{
    bool ok = proc_pin(proc_core(1)); /* sender and receiver on a core each, as the two daemons */
    uint64_t start = clock_ns();

    ok = ok && proc_send(s->fd, "g", 1);
    for (uint32_t i = 0; ok && i < s->pages; i++)
        ok = read_page(s, s->region + s->order[i] * s->page_bytes, read_bytes);
    *ret_gb_s = (double)s->page_bytes * s->pages / (double)(clock_ns() - start);
    return proc_pin(-1) && ok;
}
