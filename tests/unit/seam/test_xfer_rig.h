/* Two daemons' transfer sides in one process, over one ring: a source with sealed pages and a
 * destination that pulls them. The test plays the core: serve_page looks a generation up in a
 * table, events are collected. A proxy between them can split, delay, alter or cut the stream. */
#ifndef TEST_XFER_RIG_H
#define TEST_XFER_RIG_H

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/prng.h"
#include "seam/mem/mem_touch.h"
#include "seam/xfer/flow/data_wire.h"
#include "seam/xfer/xfer.h"
#include "testing/test.h"
#include "unit/rig/rig_mem.h"

#define RIG_PAGES        1024 /* of each group */
#define RIG_GROUP0_PAGES 400  /* of them used, where there are two groups */
#define RIG_EVENTS       512
#define RIG_WAIT_NS      30000000000u
#define RIG_SRC_INC      0xabcdef0123456789u
#define RIG_TOKEN        0x746f6b656eull /* of link 0; later links have the next numbers */
#define RIG_DST_INC      0x1111111111111111u

/* The transports of both sides of a rig; NULL: those that are built in. */
static const struct transport_ops *const *rig_transports;

struct side {
    struct mem *mem;
    struct xfer *xfer;
    struct event event[RIG_EVENTS];
    uint32_t nevents;
    uint32_t dialled; /* number of log events about the data port */
    int dial_error;   /* the last time */
};

/* Forwards bytes between one client and the source, in the test's own loop. */
struct proxy {
    int listen_fd, client, server;
    uint16_t port;
    uint64_t down_limit; /* source to destination: forward no more than this; UINT64_MAX: all */
    uint64_t down;       /* forwarded so far */
    uint64_t flip_at;    /* flip a bit of this byte of the stream down; UINT64_MAX: none */
    uint32_t chunk;      /* at most so many bytes at once */
    uint64_t pause_ns;   /* between two copies down */
    uint64_t next_ns;    /* when the next copy down may be */
};

/* The only rig. The teardown of a case closes it: test_pulls_rig.h. */
static struct rig {
    struct io *io; /* NULL: not open */
    struct side src, dst;
    uint32_t ngroups, regions, transfer_regions;
    struct group_layout group[2];
    uint32_t base[2];             /* physical index of page 0: the groups' pages may not overlap */
    uint32_t gen[2][RIG_PAGES];   /* the source's generations */
    uint32_t asked[2][RIG_PAGES]; /* how often serve_page was asked */
    uint32_t gone_after;          /* serve_page: this many answers OK, then GONE; 0: no limit */
    uint32_t answers;
    bool other_link;      /* serve_allowed: every serve is another link's */
    uint32_t link;        /* that rig_link and rig_pull use */
    uint32_t pool;        /* that rig_pull uses; each is another tenant's */
    uint64_t layout_hash; /* of the source's pool, that rig_pull names: pages are resharded; 0 */
    uint64_t idle_ns;
    uint16_t port;
    struct proxy proxy;
    uint32_t rkey_xor;                          /* applied to the keys that either side names */
    bool refuses;                               /* the source refuses every offer of a path */
    uint32_t refused;                           /* number of refusals */
    struct xfer_path_msg offer[XFER_RAILS_MAX]; /* the last of each rail */
} rig;

struct rig_options {
    uint64_t page_bytes[2], idle_ns, memory_bytes;
    uint32_t units, regions, corrupt, conns, socket_buffer_bytes;
    uint32_t conns_dst;   /* of the destination alone */
    uint32_t peers;       /* with a share of the connections; 0: first come, first served */
    uint32_t connections; /* that transfers are spread over; 0: one */
    uint32_t tenants;     /* 0 stands for 1; each has a pool */
    bool alike;           /* all regions have equal data */
    bool by_proxy;
    bool rdma;          /* both ends have it, if this machine has */
    bool rdma_unwanted; /* possible, but no peer's transport asks for it */
    uint64_t mr_bytes_max;
    const char *device[XFER_RAILS_MAX];   /* rails of both ends; none: as the machine has */
    const char (*gpus)[MEM_DEVICE_BYTES]; /* that the regions of both ends lie on; NULL: none */
    const char *cuda_library;             /* their driver */
};

static inline void rig_emit(void *ctx, struct event *event)
{
    struct side *side = ctx;

    assert_true(side->nevents < RIG_EVENTS);
    side->event[side->nevents++] = *event;
}

static inline void rig_dialled(void *ctx, uint32_t link, uint16_t port, int error)
{
    struct side *side = ctx;

    (void)link;
    (void)port;
    side->dialled++;
    side->dial_error = error;
}

static inline enum tern_err rig_serve_page(void *ctx, struct serve_id serve, uint32_t group,
                                           struct page_ref ref, uint32_t *ret_record)
{
    (void)ctx;
    (void)serve;
    if (group >= rig.ngroups || ref.index - rig.base[group] >= RIG_PAGES)
        return TERN_GONE;
    ref.index -= rig.base[group];
    rig.asked[group][ref.index]++;
    rig.answers++;
    if (rig.gen[group][ref.index] != ref.gen || (rig.gone_after && rig.answers > rig.gone_after))
        return TERN_GONE;
    *ret_record = group * RIG_PAGES + ref.index;
    return TERN_OK;
}

/* Pages follow each other by their index. */
static inline enum tern_err rig_serve_next(void *ctx, struct serve_id serve, uint32_t group,
                                           struct page_ref ref, struct page_ref *ret)
{
    (void)ctx;
    (void)serve;
    if (ref.index - rig.base[group] + 1 >= RIG_PAGES)
        return TERN_GONE;
    *ret = (struct page_ref){ref.index + 1, rig.gen[group][ref.index - rig.base[group] + 1]};
    return TERN_OK;
}

static inline bool rig_serve_allowed(void *ctx, struct serve_id serve, uint32_t link)
{
    (void)ctx;
    (void)serve;
    assert_true(link <= rig.link); /* rig_side admitted all, rig_link brought these up */
    return !rig.other_link;
}

static inline uint8_t rig_byte(uint32_t region, uint32_t group, uint32_t index, uint64_t at)
{
    uint64_t x = at * 0x9e3779b97f4a7c15u + index * 0xd6e8feb86659fd93u + region * 77u + group;

    return (uint8_t)((x ^ (x >> 29)) >> 7);
}

static inline void rig_write(struct mem *mem, uint32_t r, uint32_t g, uint32_t i)
{
    uint8_t *bytes = malloc(rig.group[g].page_bytes);

    assert_non_null(bytes);
    for (uint64_t b = 0; b < rig.group[g].page_bytes; b++)
        bytes[b] = rig_byte(r % rig.transfer_regions, g, i, b);
    assert_true(
        mem_put(mem, mem_page(mem, 0, r, g, rig.base[g] + i), bytes, rig.group[g].page_bytes));
    free(bytes);
}

static inline void rig_fill_source(uint32_t pages)
{
    struct page_at at[SEAL_PAGES_MAX];
    uint32_t n = 0, jobs = 0, done = 0;

    for (uint32_t g = 0; g < rig.ngroups; g++) {
        for (uint32_t i = 1; i < pages; i++) {
            for (uint32_t r = 0; r < rig.regions; r++)
                rig_write(rig.src.mem, r, g, i);
            at[n++] = (struct page_at){
                .group = g, .index = rig.base[g] + i, .gen = 1, .record = g * RIG_PAGES + i};
            if (n == SEAL_PAGES_MAX || (g + 1 == rig.ngroups && i + 1 == pages)) {
                mem_seal(rig.src.mem, (struct seal_id){jobs++, 1}, 0, at, n);
                n = 0;
                while (done < jobs) {
                    mem_wait(rig.src.mem);
                    rig.src.nevents = 0;
                    mem_poll(rig.src.mem, rig_emit, &rig.src);
                    done += rig.src.nevents;
                }
            }
        }
    }
    rig.src.nevents = 0;
}

/* The control connection, in one process. */
static inline void rig_path_send(void *ctx, uint32_t link, const struct xfer_path_msg *msg)
{
    struct side *side = ctx;
    struct xfer_path_msg copy = *msg;

    for (uint32_t i = 0; i < copy.nmrs; i++)
        copy.mr[i].rkey ^= rig.rkey_xor;
    for (uint32_t i = 0; i < copy.nmws; i++)
        copy.mw_rkey[i] ^= rig.rkey_xor;
    if (copy.kind == XFER_PATH_OFFER)
        rig.offer[copy.rail] = copy;
    if (copy.kind == XFER_PATH_OFFER && rig.refuses) {
        rig.refused++;
        copy.kind = XFER_PATH_REFUSE;
        xfer_path_msg(side->xfer, link, &copy);
        return;
    }
    xfer_path_msg(side == &rig.src ? rig.dst.xfer : rig.src.xfer, link, &copy);
}

/* Each place where a page may begin has an entry for brought checksums: fewer need less memory. */
static inline uint64_t rig_page_bytes_min(const struct rig_options *o)
{
    return o->page_bytes[1] && o->page_bytes[1] < o->page_bytes[0] ? o->page_bytes[1]
                                                                   : o->page_bytes[0];
}

static inline void rig_side(struct side *side, const struct rig_options *o, uint64_t incarnation,
                            uint32_t corrupt)
{
    uint32_t tenants = o->tenants ? o->tenants : 1;
    struct mem_config m = {.tenants = tenants,
                           .engines = 1,
                           .pools = tenants,
                           .page_records = 2 * RIG_PAGES,
                           .sums_per_page = o->units * o->regions,
                           .page_bytes_min = rig_page_bytes_min(o),
                           .workers = 1,
                           .jobs = 16,
                           .incarnation = incarnation};
    struct xfer_config x = {.io = rig.io,
                            .links = 3,
                            .pulls = 8,
                            .serves = 8,
                            .pools = tenants,
                            .pairs = RESHARD_PAIRS_MAX,
                            .data_threads = 2,
                            .data_conns_max = side == &rig.dst && o->conns_dst ? o->conns_dst
                                              : o->conns                       ? o->conns
                                                                               : 8,
                            .peers = o->peers,
                            .connections = o->connections,
                            .idle_ns = o->idle_ns,
                            .fault_corrupt_pages = corrupt,
                            .socket_buffer_bytes = o->socket_buffer_bytes,
                            .incarnation = incarnation,
                            .transports = rig_transports,
                            .emit = rig_emit,
                            .serve_page = rig_serve_page,
                            .serve_next = rig_serve_next,
                            .serve_allowed = rig_serve_allowed,
                            .data_dialled = rig_dialled,
                            .ctx = side};
    static const uint8_t turned[] = {1, 0}; /* the source's ranks live in reverse order */
    const char *why = "";

    if (o->rdma)
        x.rdma = (struct xfer_rdma_config){.pulls = side == &rig.dst ? 3 : 0,
                                           .serves = side == &rig.src,
                                           .tenants = 1,
                                           .mr_bytes_max = o->mr_bytes_max,
                                           .path_send = rig_path_send};
    if (o->rdma_unwanted)
        x.rdma.tenants = 1;
    for (; o->rdma && x.rdma.ndevices < XFER_RAILS_MAX && o->device[x.rdma.ndevices];
         x.rdma.ndevices++)
        snprintf(x.rdma.device[x.rdma.ndevices], XFER_DEVICE_BYTES, "%s",
                 o->device[x.rdma.ndevices]);
    for (uint32_t t = 0; t < tenants; t++) {
        m.tenant[t] =
            (struct tenant_config){.memory_bytes = o->memory_bytes, .regions = o->regions};
        m.device[t] = o->gpus;
    }
    if (o->gpus) {
        m.cuda_library = o->cuda_library;
        m.device_wait_ms = 10000;
    }
    if (mem_create(&m, &side->mem, &why) != TERN_OK)
        fail_msg("%s", why);
    for (uint32_t t = 0; t < tenants; t++)
        mem_pool_set(side->mem, t, TIER_DEVICE, t, 0, o->memory_bytes, o->regions,
                     o->regions == 2 && side == &rig.src ? turned : NULL, rig.transfer_regions,
                     rig.ngroups, rig.group);
    x.mem = side->mem;
    assert_int_equal(xfer_create(&x, &side->xfer, &why), TERN_OK);
    for (uint32_t i = 0; i < x.links; i++)
        xfer_admit(side->xfer, i, RIG_TOKEN + i);
}

static inline int rig_listen(uint16_t *ret_port)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof addr;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    assert_int_equal(bind(fd, (struct sockaddr *)&addr, len), 0);
    assert_int_equal(listen(fd, 8), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&addr, &len), 0);
    *ret_port = ntohs(addr.sin_port);
    return fd;
}

static inline int rig_dial(uint16_t port)
{
    struct sockaddr_in addr = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_int_equal(connect(fd, (struct sockaddr *)&addr, sizeof addr), 0);
    return fd;
}

static inline void rig_link(uint16_t port, uint64_t incarnation)
{
    struct sockaddr_in addr = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(port)};

    assert_int_equal(xfer_link_up(rig.dst.xfer, rig.link, (struct sockaddr *)&addr, sizeof addr,
                                  incarnation, RIG_TOKEN + rig.link),
                     TERN_OK);
}

static inline void rig_serve(uint32_t slot)
{
    struct action act = {.kind = ACT_SERVE_START};

    act.serve.serve = (struct serve_id){slot, 7};
    xfer_serve_start(rig.src.xfer, &act);
}

#define RIG_MEMORY_MAX (32u << 20)

/* Bytes of a region: as many pages as a case may use, because unused memory takes longest. */
static inline uint64_t rig_memory_bytes(const struct rig_options *o)
{
    uint64_t bytes = o->page_bytes[1]
                         ? RIG_GROUP0_PAGES * o->page_bytes[0] + RIG_PAGES * o->page_bytes[1]
                         : RIG_PAGES * o->page_bytes[0];

    return bytes < RIG_MEMORY_MAX ? bytes : RIG_MEMORY_MAX;
}

static inline void rig_open(const struct rig_options *options)
{
    struct io_config c = {.entries = 64};
    struct rig_options o = *options;
    const char *why = "";

    memset(&rig, 0, sizeof rig);
    if (o.units == 0)
        o.units = 1;
    if (o.regions == 0)
        o.regions = 1;
    if (o.memory_bytes == 0)
        o.memory_bytes = rig_memory_bytes(&o);
    if (o.idle_ns == 0)
        o.idle_ns = 5000000000u;
    rig.idle_ns = o.idle_ns;
    rig.regions = o.regions;
    rig.transfer_regions = o.alike ? 1 : o.regions;
    for (; rig.ngroups < 2 && o.page_bytes[rig.ngroups]; rig.ngroups++)
        rig.group[rig.ngroups] = (struct group_layout){
            .page_tokens = 64, .units = o.units, .page_bytes = o.page_bytes[rig.ngroups]};
    if (rig.ngroups == 2)
        rig.base[1] = (uint32_t)(RIG_GROUP0_PAGES * o.page_bytes[0] / o.page_bytes[1] + 1);
    for (uint32_t i = 0; i < RIG_PAGES; i++)
        rig.gen[0][i] = rig.gen[1][i] = 100 + i;
    if (io_create(&c, &rig.io, &why) != TERN_OK)
        fail_msg("%s", why);
    rig_side(&rig.src, &o, RIG_SRC_INC, 0);
    rig_side(&rig.dst, &o, RIG_DST_INC, o.corrupt);
    assert_int_equal(xfer_listen(rig.src.xfer, "127.0.0.1", 0, &rig.port, &why), TERN_OK);
    rig.proxy = (struct proxy){.client = -1,
                               .server = -1,
                               .listen_fd = -1,
                               .down_limit = UINT64_MAX,
                               .flip_at = UINT64_MAX,
                               .chunk = 65536};
    if (o.by_proxy)
        rig.proxy.listen_fd = rig_listen(&rig.proxy.port);
    rig_link(o.by_proxy ? rig.proxy.port : rig.port, RIG_SRC_INC);
    rig_serve(0);
}

/* The source has sealed pages below `pages`. */
static inline void rig_open_filled(const struct rig_options *options, uint32_t pages)
{
    rig_open(options);
    rig_fill_source(pages);
}

static inline void proxy_cut(struct proxy *p)
{
    if (p->client >= 0)
        close(p->client);
    if (p->server >= 0)
        close(p->server);
    p->client = p->server = -1;
    p->down = 0;
}

static inline void rig_close(void)
{
    xfer_destroy(rig.dst.xfer);
    xfer_destroy(rig.src.xfer);
    mem_destroy(rig.dst.mem);
    mem_destroy(rig.src.mem);
    proxy_cut(&rig.proxy);
    if (rig.proxy.listen_fd >= 0)
        close(rig.proxy.listen_fd);
    io_destroy(rig.io);
    rig.io = NULL;
}

/* One direction. Returns false if that end closed. */
static inline bool proxy_copy(struct proxy *p, int from, int to, bool down)
{
    uint8_t buf[65536];
    uint64_t room = down ? p->down_limit - p->down : UINT64_MAX;
    size_t want = p->chunk < sizeof buf ? p->chunk : sizeof buf;
    ssize_t n, sent = 0;

    if (room < want)
        want = (size_t)room;
    if (want == 0 || (down && p->pause_ns > 0 && io_now_ns() < p->next_ns))
        return true;
    n = recv(from, buf, want, MSG_DONTWAIT);
    if (n < 0)
        return errno == EAGAIN;
    if (n == 0)
        return false;
    if (down && p->flip_at >= p->down && p->flip_at < p->down + (uint64_t)n)
        buf[p->flip_at - p->down] ^= 0x10;
    if (down) {
        p->down += (uint64_t)n;
        p->next_ns = io_now_ns() + p->pause_ns;
    }
    while (sent < n) {
        ssize_t s = send(to, buf + sent, (size_t)(n - sent), MSG_NOSIGNAL);

        if (s < 0)
            return false;
        sent += s;
    }
    return true;
}

/* Otherwise every piece waits 40 ms for the acknowledgement of the one before it. */
static inline void proxy_no_delay(int fd)
{
    assert_int_equal(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int)), 0);
}

static inline void proxy_step(void)
{
    struct proxy *p = &rig.proxy;

    if (p->listen_fd < 0)
        return;
    if (p->client < 0) {
        p->client = accept(p->listen_fd, NULL, NULL);
        if (p->client < 0)
            return;
        p->server = rig_dial(rig.port);
        proxy_no_delay(p->client);
        proxy_no_delay(p->server);
    }
    if (!proxy_copy(p, p->client, p->server, false) || !proxy_copy(p, p->server, p->client, true))
        proxy_cut(p);
}

/* Does all possible work at once, without a tick. */
static inline void rig_step(void)
{
    if (rig.src.xfer)
        xfer_poll(rig.src.xfer);
    if (rig.dst.xfer)
        xfer_poll(rig.dst.xfer);
    io_run(rig.io, 0);
}

static inline void rig_turn(void)
{
    bool proxied = rig.proxy.listen_fd >= 0, spin;

    proxy_step();
    spin = xfer_poll(rig.src.xfer);
    spin = xfer_poll(rig.dst.xfer) || spin;
    io_run(rig.io, proxied || spin ? 0 : io_now_ns() + 1000000u);
    xfer_tick(rig.src.xfer, io_now_ns());
    xfer_tick(rig.dst.xfer, io_now_ns());
}

/* The destination processes the bytes of an operation so far, as with a slow peer. */
static inline void rig_take_all(void)
{
    uint64_t deadline = io_now_ns() + RIG_WAIT_NS;
    struct xfer_stats stats;

    for (;;) {
        xfer_stats(rig.dst.xfer, &stats);
        if (stats.socket_bytes_in == rig.proxy.down)
            return;
        if (io_now_ns() > deadline)
            fail_msg("%lu of %lu bytes taken after 30 s", stats.socket_bytes_in, rig.proxy.down);
        xfer_tick(rig.dst.xfer, io_now_ns() + rig.idle_ns / 4 * 3);
        rig_turn();
    }
}

static inline void rig_until(const struct side *side, uint32_t events)
{
    uint64_t deadline = io_now_ns() + RIG_WAIT_NS;

    while (side->nevents < events) {
        if (io_now_ns() > deadline)
            fail_msg("%u of %u events after 30 s", side->nevents, events);
        rig_turn();
    }
}

/* `part` names the serve and the part of the pages. Page i of a batch goes from the source's index
 * i to the destination's index i, group by parity. */
static inline void rig_pull_part(struct pull_id pull, uint32_t batch, uint32_t first, uint32_t n,
                                 struct action *part)
{
    struct page_at pages[PULL_BATCH_PAGES];
    struct page_ref refs[PULL_BATCH_PAGES];
    struct action act = *part;

    for (uint32_t i = 0; i < n; i++) {
        uint32_t g = rig.ngroups == 2 ? (first + i) & 1 : 0;

        pages[i] = (struct page_at){.group = g,
                                    .index = rig.base[g] + first + i,
                                    .gen = pull.gen,
                                    .record = g * RIG_PAGES + first + i};
        refs[i] = (struct page_ref){rig.base[g] + first + i, 100 + first + i};
    }
    act.kind = ACT_PULL;
    act.pull.pull = pull;
    act.pull.serve.gen = 7;
    act.pull.link = rig.link;
    act.pull.pool = rig.pool;
    act.pull.layout_hash = rig.layout_hash;
    act.pull.batch = batch;
    act.pull.n = n;
    act.pull.pages = pages;
    act.pull.refs = refs;
    xfer_pull(rig.dst.xfer, &act);
}

static inline void rig_pull(struct pull_id pull, uint32_t serve, uint32_t batch, uint32_t first,
                            uint32_t n)
{
    struct action act = {.kind = ACT_PULL};

    act.pull.serve.slot = serve;
    rig_pull_part(pull, batch, first, n, &act);
}

static inline void rig_stop(struct pull_id pull)
{
    struct action act = {.kind = ACT_PULL_STOP};

    act.pull_stop.pull = pull;
    xfer_pull_stop(rig.dst.xfer, &act);
}

static inline void rig_serve_stop(uint32_t slot)
{
    struct action act = {.kind = ACT_SERVE_STOP};

    act.serve.serve = (struct serve_id){slot, 7};
    xfer_serve_stop(rig.src.xfer, &act);
}

/* Does that stretch of the destination's page, in every region, equal the source's? */
static inline bool rig_stretch_right(uint32_t group, uint32_t index, uint64_t from, uint64_t to)
{
    uint8_t *bytes = malloc(to - from);
    bool right = true;

    assert_non_null(bytes);
    for (uint32_t r = 0; r < rig.regions; r++) {
        const uint8_t *page = mem_page(rig.dst.mem, 0, r, group, rig.base[group] + index);

        assert_true(mem_get(rig.dst.mem, bytes, page + from, to - from));
        for (uint64_t b = from; b < to; b++)
            right = right && bytes[b - from] == rig_byte(r % rig.transfer_regions, group, index, b);
    }
    free(bytes);
    return right;
}

static inline bool rig_page_right(uint32_t group, uint32_t index)
{
    return rig_stretch_right(group, index, 0, rig.group[group].page_bytes);
}

static inline uint32_t rig_group_of(uint32_t index)
{
    return rig.ngroups == 2 ? index & 1 : 0;
}

/* Every page that the event reports as right is right, with its sums; returns their number. */
static inline uint32_t rig_check_pulled(const struct event *e, uint32_t first, uint32_t n)
{
    uint32_t ok = 0;

    assert_int_equal(e->kind, EV_PULLED);
    for (uint32_t i = 0; i < PULL_BATCH_PAGES; i++) {
        uint32_t g = rig_group_of(first + i);

        if (!xfer_bit(e->pulled.ok, i))
            continue;
        assert_true(i < n);
        assert_true(rig_page_right(g, first + i));
        assert_memory_equal(mem_sums(rig.dst.mem, g * RIG_PAGES + first + i),
                            mem_sums(rig.src.mem, g * RIG_PAGES + first + i),
                            8 * rig.group[g].units * rig.regions);
        ok++;
    }
    return ok;
}

#endif
