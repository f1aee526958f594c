/* RDMA: which device, and the memory that it may touch; the figures. Every tenant has a protection
 * domain of its own, and its regions are registered in it once, at start: for remote reads where
 * peers read from us, for our own writes where we read from peers, and never for a remote write.
 * Called by xfer_tcp*.c; see xfer_verbs.h. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/check.h"
#include "base/err.h"
#include "seam/xfer_verbs.h"

#define CAP_IPC_LOCK_BIT 14
#define CHUNK_ALIGN      (2u << 20)

/* ------------------------------------------------------------------ the device */

/* The one for RoCE v2 over IPv4, else for RoCE v2, else whichever there is. */
static bool choose_gid(struct ibv_context *ctx, uint32_t port, int entries, uint32_t *ret_index,
                       union ibv_gid *ret_gid)
{
    static const uint8_t v4[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    static const uint8_t zero[16];
    int best = 0;

    for (int i = 0; i < entries; i++) {
        struct ibv_gid_entry e;
        int worth = 1;

        if (ibv_query_gid_ex(ctx, port, (uint32_t)i, &e, 0) != 0 ||
            memcmp(e.gid.raw, zero, sizeof zero) == 0)
            continue;
        if (e.gid_type == IBV_GID_TYPE_ROCE_V2)
            worth = memcmp(e.gid.raw, v4, sizeof v4) == 0 ? 3 : 2;
        if (worth <= best)
            continue;
        best = worth;
        *ret_index = (uint32_t)i;
        *ret_gid = e.gid;
    }
    return best > 0;
}

static bool try_port(struct verbs *v, struct ibv_context *ctx, uint32_t port, char *state,
                     size_t cap)
{
    struct ibv_port_attr attr;

    if (ibv_query_port(ctx, (uint8_t)port, &attr) != 0) {
        snprintf(state, cap, "port %u cannot be asked", port);
        return false;
    }
    if (attr.state != IBV_PORT_ACTIVE) {
        snprintf(state, cap, "port %u is %s", port, ibv_port_state_str(attr.state));
        return false;
    }
    if (!choose_gid(ctx, port, attr.gid_tbl_len, &v->view.gid_index, &v->gid)) {
        snprintf(state, cap, "port %u has no GID: give its network device an address", port);
        return false;
    }
    snprintf(state, cap, "port %u is active, gid %u", port, v->view.gid_index);
    v->view.port = port;
    v->lid = attr.lid;
    v->mtu = attr.active_mtu;
    v->max_msg = attr.max_msg_sz;
    return true;
}

static bool try_device(struct verbs *v, struct ibv_device *dev, char *state, size_t cap)
{
    struct ibv_context *ctx = ibv_open_device(dev);
    struct ibv_device_attr attr;

    if (!ctx) {
        snprintf(state, cap, "cannot be opened: %s", strerror(errno));
        return false;
    }
    if (ibv_query_device(ctx, &attr) == 0) {
        for (uint32_t port = 1; port <= attr.phys_port_cnt; port++) {
            if (!try_port(v, ctx, port, state, cap))
                continue;
            v->ctx = ctx;
            v->view.max_mr_bytes = attr.max_mr_size;
            v->rd_init = attr.max_qp_init_rd_atom > 0 ? (uint32_t)attr.max_qp_init_rd_atom : 1;
            v->rd_resp = attr.max_qp_rd_atom > 0 ? (uint32_t)attr.max_qp_rd_atom : 1;
            v->view.completion_queue = (uint32_t)attr.max_cqe < VERBS_COMPLETION_QUEUE
                                           ? (uint32_t)attr.max_cqe
                                           : VERBS_COMPLETION_QUEUE;
            return true;
        }
    }
    ibv_close_device(ctx);
    return false;
}

static bool choose_device(struct verbs *v)
{
    const char *wanted = v->xfer->config.rdma.device;
    struct xfer_rdma_view *view = &v->view;
    int n = 0;
    struct ibv_device **list = ibv_get_device_list(&n);

    for (int i = 0; list && i < n && view->ndevices < XFER_DEVICES_MAX; i++) {
        const char *name = ibv_get_device_name(list[i]);
        uint32_t at = view->ndevices++;

        snprintf(view->found[at].name, sizeof view->found[at].name, "%s", name);
        if (*wanted && strcmp(name, wanted) != 0)
            snprintf(view->found[at].state, sizeof view->found[at].state, "not the one asked for");
        else if (v->ctx)
            snprintf(view->found[at].state, sizeof view->found[at].state, "not needed");
        else if (try_device(v, list[i], view->found[at].state, sizeof view->found[at].state))
            snprintf(view->device, sizeof view->device, "%s", name);
    }
    if (list)
        ibv_free_device_list(list);
    if (v->ctx)
        snprintf(view->why, sizeof view->why,
                 *wanted ? "%s: asked for by name" : "%s: the first with an active port",
                 view->device);
    else if (view->ndevices == 0)
        snprintf(view->why, sizeof view->why,
                 "no RDMA device: load its driver (ls /sys/class/infiniband), and give a container "
                 "/dev/infiniband");
    else
        snprintf(view->why, sizeof view->why,
                 *wanted ? "no RDMA device %s with an active port"
                         : "no RDMA device has an active port%s",
                 wanted);
    return v->ctx != NULL;
}

/* ------------------------------------------------------------------ memory */

static void memlock(struct xfer_rdma_view *view)
{
    FILE *f = fopen("/proc/self/status", "re");
    unsigned long long caps = 0;
    struct rlimit limit;
    char line[128];

    view->memlock_bytes = UINT64_MAX;
    if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        view->memlock_bytes = limit.rlim_cur;
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "CapEff: %llx", &caps) == 1)
            break;
    if (f)
        fclose(f);
    view->memlock_exempt = (caps >> CAP_IPC_LOCK_BIT & 1) != 0;
}

static uint64_t memory_of_all(const struct verbs *v)
{
    const struct mem *mem = v->xfer->config.mem;
    uint64_t bytes, all = 0;

    for (uint32_t t = 0; t < v->tenants; t++)
        for (uint32_t r = 0; r < mem_region_count(mem, t); r++) {
            mem_region_base(mem, t, r, &bytes);
            all += bytes;
        }
    return all;
}

static bool memlock_suffices(struct verbs *v)
{
    uint64_t need = memory_of_all(v);

    memlock(&v->view);
    if (v->view.memlock_exempt || v->view.memlock_bytes >= need)
        return true;
    snprintf(v->view.why, sizeof v->view.why,
             "RLIMIT_MEMLOCK is %llu bytes and the tenants' memory %llu: ulimit -l unlimited, "
             "LimitMEMLOCK=infinity in the service, --ulimit memlock=-1 for a container",
             (unsigned long long)v->view.memlock_bytes, (unsigned long long)need);
    return false;
}

static uint64_t chunk_bytes(const struct verbs *v)
{
    uint64_t most = v->view.max_mr_bytes, asked = v->xfer->config.rdma.mr_bytes_max;

    if (asked > 0 && asked < most)
        most = asked;
    return most > CHUNK_ALIGN ? most - most % CHUNK_ALIGN : most;
}

static bool register_region(struct verbs *v, uint32_t tenant, uint32_t region)
{
    const struct xfer_rdma_config *c = &v->xfer->config.rdma;
    struct verbs_domain *d = &v->domain[tenant];
    uint64_t bytes, chunk = chunk_bytes(v), n;
    uint8_t *base = mem_region_base(v->xfer->config.mem, tenant, region, &bytes);
    int access = (c->serves ? (int)IBV_ACCESS_REMOTE_READ : 0) |
                 (c->pulls > 0 ? (int)IBV_ACCESS_LOCAL_WRITE : 0);

    for (uint64_t at = 0; at < bytes; at += n) {
        struct verbs_mr *mr = &d->mr[d->n];

        n = bytes - at < chunk ? bytes - at : chunk;
        if (d->n == XFER_CHUNKS_MAX) {
            snprintf(v->view.why, sizeof v->view.why,
                     "a tenant's memory takes more than %u registrations of %llu bytes",
                     XFER_CHUNKS_MAX, (unsigned long long)chunk);
            return false;
        }
        *mr = (struct verbs_mr){.region = region, .offset = at, .bytes = n, .base = base + at};
        mr->mr = (ibv_reg_mr)(d->pd, mr->base, n, access); /* the function: the macro does not
                                                                compile with -Wsign-conversion */
        if (!mr->mr) {
            snprintf(v->view.why, sizeof v->view.why, "%llu bytes cannot be registered: %s%s",
                     (unsigned long long)n, strerror(errno),
                     errno == ENOMEM ? ": raise RLIMIT_MEMLOCK (ulimit -l, LimitMEMLOCK=)" : "");
            return false;
        }
        d->n++;
        v->view.registrations++;
        v->view.registered_bytes += n;
    }
    return true;
}

static bool register_all(struct verbs *v)
{
    if (!memlock_suffices(v))
        return false;
    for (uint32_t t = 0; t < v->tenants; t++) {
        v->domain[t].pd = ibv_alloc_pd(v->ctx);
        if (!v->domain[t].pd) {
            snprintf(v->view.why, sizeof v->view.why, "no protection domain: %s", strerror(errno));
            return false;
        }
        for (uint32_t r = 0; r < mem_region_count(v->xfer->config.mem, t); r++)
            if (!register_region(v, t, r))
                return false;
    }
    return true;
}

bool verbs_exposes(const struct xfer *xfer, uint32_t pool, uint64_t *ret_offset)
{
    uint32_t tenant;

    return xfer->verbs && xfer->verbs->ctx && xfer->config.rdma.serves &&
           mem_pool_place(xfer->config.mem, pool, &tenant, ret_offset);
}

/* ------------------------------------------------------------------ what the device says */

static void cq_ready(struct io_op *op, int32_t res, uint32_t flags, uint32_t buffer)
{
    struct verbs *v = (struct verbs *)(void *)((char *)op - offsetof(struct verbs, cq_op));
    struct ibv_cq *cq;
    unsigned events = 0;
    void *ctx;

    (void)res, (void)buffer;
    if (flags & IO_LAST)
        v->cq_polling = false;
    if (v->closing)
        return;
    while (ibv_get_cq_event(v->channel, &cq, &ctx) == 0)
        events++;
    if (events > 0) {
        ibv_ack_cq_events(v->cq, events);
        check(ibv_req_notify_cq(v->cq, 0) == 0);
    }
    cq_drain(v);
    if (!v->cq_polling) {
        v->cq_polling = true;
        io_poll_in(v->xfer->config.io, &v->cq_op, v->channel->fd, true);
    }
}

/* Events of queue pairs are told by their completions, too; what matters is that each is taken, or
 * the pair could not be destroyed. */
static void async_ready(struct io_op *op, int32_t res, uint32_t flags, uint32_t buffer)
{
    struct verbs *v = (struct verbs *)(void *)((char *)op - offsetof(struct verbs, async_op));
    struct ibv_async_event event;

    (void)res, (void)buffer;
    if (flags & IO_LAST)
        v->async_polling = false;
    if (v->closing)
        return;
    while (ibv_get_async_event(v->ctx, &event) == 0)
        ibv_ack_async_event(&event);
    if (!v->async_polling) {
        v->async_polling = true;
        io_poll_in(v->xfer->config.io, &v->async_op, v->ctx->async_fd, true);
    }
}

static void setup_ready(struct io_op *op, int32_t res, uint32_t flags, uint32_t buffer)
{
    struct verbs *v = (struct verbs *)(void *)((char *)op - offsetof(struct verbs, setup_op));
    uint64_t n;

    (void)res, (void)buffer;
    if (flags & IO_LAST)
        v->setup_polling = false;
    if (v->closing)
        return;
    if (read(v->event_fd, &n, sizeof n) == (ssize_t)sizeof n)
        paths_finished(v);
    if (!v->setup_polling) {
        v->setup_polling = true;
        io_poll_in(v->xfer->config.io, &v->setup_op, v->event_fd, true);
    }
}

static bool nonblocking(int fd)
{
    int flags = fcntl(fd, F_GETFL);

    return flags >= 0 && fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0;
}

static bool open_queues(struct verbs *v)
{
    v->channel = ibv_create_comp_channel(v->ctx);
    if (v->channel)
        v->cq = ibv_create_cq(v->ctx, (int)v->view.completion_queue, NULL, v->channel, 0);
    if (!v->cq || ibv_req_notify_cq(v->cq, 0) != 0 || !nonblocking(v->channel->fd) ||
        !nonblocking(v->ctx->async_fd)) {
        snprintf(v->view.why, sizeof v->view.why, "no completion queue of %u: %s",
                 v->view.completion_queue, strerror(errno));
        return false;
    }
    v->cq_op.done = cq_ready;
    v->async_op.done = async_ready;
    v->setup_op.done = setup_ready;
    v->cq_polling = v->async_polling = v->setup_polling = true;
    io_poll_in(v->xfer->config.io, &v->cq_op, v->channel->fd, true);
    io_poll_in(v->xfer->config.io, &v->async_op, v->ctx->async_fd, true);
    io_poll_in(v->xfer->config.io, &v->setup_op, v->event_fd, true);
    return true;
}

/* ------------------------------------------------------------------ life */

static enum tern_err create_tables(struct verbs *v)
{
    const struct xfer_config *c = &v->xfer->config;
    uint32_t per_page = mem_sums_per_page(c->mem);

    v->tenants = c->rdma.tenants;
    v->npaths = c->links * v->tenants;
    v->piece_sums = per_page > VERBS_PIECE_SUMS ? per_page : VERBS_PIECE_SUMS;
    v->domain = calloc(v->tenants, sizeof *v->domain);
    v->path = calloc(v->npaths, sizeof *v->path);
    v->link = calloc(c->links, sizeof *v->link);
    if (!v->domain || !v->path || !v->link)
        return TERN_INTERNAL;
    for (uint32_t i = 0; i < v->npaths; i++) {
        v->path[i].link = i / v->tenants;
        v->path[i].tenant = i % v->tenants;
    }
    for (uint32_t i = 0; i < c->rdma.pulls && i < c->links; i++)
        if (!link_pieces(v, i))
            return TERN_INTERNAL;
    return TERN_OK;
}

static void close_device(struct verbs *v)
{
    for (uint32_t t = 0; v->domain && t < v->tenants; t++) {
        struct verbs_domain *d = &v->domain[t];

        for (uint32_t i = 0; i < d->n; i++)
            ibv_dereg_mr(d->mr[i].mr);
        d->n = 0;
        if (d->pd)
            ibv_dealloc_pd(d->pd);
        d->pd = NULL;
    }
    if (v->cq)
        ibv_destroy_cq(v->cq);
    if (v->channel)
        ibv_destroy_comp_channel(v->channel);
    if (v->ctx)
        ibv_close_device(v->ctx);
    v->cq = NULL;
    v->channel = NULL;
    v->ctx = NULL;
}

enum tern_err verbs_create(struct xfer *xfer)
{
    const struct xfer_rdma_config *c = &xfer->config.rdma;
    struct verbs *v;

    if (c->tenants == 0 || (c->pulls == 0 && !c->serves))
        return TERN_OK;
    v = calloc(1, sizeof *v);
    if (!v)
        return TERN_INTERNAL;
    xfer->verbs = v;
    v->xfer = xfer;
    v->event_fd = -1;
    v->view.built = true;
    v->view.send_queue = VERBS_SEND_QUEUE;
    if (create_tables(v) != TERN_OK)
        return TERN_INTERNAL;
    if (choose_device(v)) {
        TRY(setup_start(v));
        if (!register_all(v) || !open_queues(v))
            close_device(v);
    }
    v->view.open = v->ctx != NULL;
    v->view.rd_atomic = v->rd_init;
    v->view.mtu = v->ctx ? 128u << v->mtu : 0;
    memlock(&v->view);
    return TERN_OK;
}

static void stop_polling(struct verbs *v)
{
    uint64_t deadline = io_now_ns() + 2000000000u;
    struct io *io = v->xfer->config.io;

    v->closing = true;
    if (v->cq_polling)
        io_cancel(io, &v->cq_op);
    if (v->async_polling)
        io_cancel(io, &v->async_op);
    if (v->setup_polling)
        io_cancel(io, &v->setup_op);
    while ((v->cq_polling || v->async_polling || v->setup_polling) && io_now_ns() < deadline)
        io_run(io, deadline);
    check(!v->cq_polling && !v->async_polling && !v->setup_polling);
}

void verbs_destroy(struct xfer *xfer)
{
    struct verbs *v = xfer->verbs;

    if (!v)
        return;
    stop_polling(v);
    setup_stop(v);
    for (uint32_t i = 0; v->path && i < v->npaths; i++)
        setup_end_now(&v->path[i]);
    close_device(v);
    for (uint32_t i = 0; v->link && i < xfer->config.links; i++) {
        for (uint32_t k = 0; v->link[i].piece && k < VERBS_PIECES; k++)
            free(v->link[i].piece[k].sums);
        free(v->link[i].piece);
    }
    if (v->event_fd >= 0)
        close(v->event_fd);
    free(v->todo);
    free(v->finished);
    free(v->domain);
    free(v->path);
    free(v->link);
    free(v);
    xfer->verbs = NULL;
}

void xfer_rdma_view(const struct xfer *xfer, struct xfer_rdma_view *ret)
{
    memset(ret, 0, sizeof *ret);
    ret->built = true;
    if (xfer->verbs)
        *ret = xfer->verbs->view;
    else
        snprintf(ret->why, sizeof ret->why, "not asked for: no peer's transport is auto or verbs");
}
