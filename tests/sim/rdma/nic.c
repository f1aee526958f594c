/* The calls of libibverbs, over a model. The simulator is not linked with libibverbs.
 *
 * The model's assumptions about every NIC, and the behaviour of soft-RoCE (Linux 6.1). The second
 * column is the fact; the third is the result of tests/rdma/facts.c, in a guest with two devices
 * and 2 ms between them.
 *
 *   fact                        | the model                                         | soft-RoCE
 *   flush_in_order              | in ERR what is posted completes in order, flushed | confirmed
 *   flush_unsignaled            | ... also what asked for no completion             | confirmed
 *   flush_after_stop            | nothing lands behind a request's own flush        | confirmed
 *   post_to_error_is_flushed    | what is posted in ERR is taken, and flushed       | confirmed
 *   destroy_keeps_completions   | a destroyed pair's stay, or go, by the seed       | confirmed
 *   dead_peer_exhausts_retries  | RETRY_EXC_ERR after the last repeat, then ERR     | confirmed
 *   write_through_window        | a bound window opens its pages                    | confirmed
 *   bound_window_holds_region   | dereg_mr under a bound window is refused          | confirmed
 *   invalid_window_refused      | a write after LOCAL_INV: remote access error      | confirmed
 *   refused_breaks_both         | ... and both queue pairs are in ERR               | confirmed
 *   window_bounds_checked       | so is a write outside of its window               | refuted
 *   no_receive_is_retried       | a write with immediate waits for a receive        | confirmed
 *   immediate_after_writes      | what was written before it is there with it       | confirmed
 *   taken_away_is_eio           | calls fail with EIO, before its queue pairs end    | see below
 *   taken_away_leaves_sysfs     | ... and its attributes are unreadable after that   | see below
 *
 * soft-RoCE, unlike a card, does not refuse a write outside of its window: so bounds are tested
 * here, and the lab tests revocation alone. soft-RoCE cannot be removed under a process: `rdma link
 * delete` waits until the process has closed it. The model follows the kernel's
 * ib_uverbs_remove_one, for drivers that release at once, and ib_unregister_device, which removes
 * the attributes last.
 */
#include "nic.h"

#include <errno.h>
#include <stdio.h>

#include "base/check.h"

#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_get_device_list

struct ncontext nic_context[NIC_CONTEXTS];
struct nmr nic_mr[NIC_KEYS];
struct nmw nic_mw[NIC_WINDOWS];
uint32_t nic_windows;
struct ncq nic_cq[NIC_CONTEXTS];
struct nqp nic_qp[NIC_PAIRS];
struct nheld nic_held[NIC_HELD];
static struct ndevice device[NIC_CONTEXTS];
static struct npd domain[NIC_DOMAINS];
static struct nchannel channel[NIC_CONTEXTS];

#define FIND_FREE(table, count, i)                                                                 \
    do {                                                                                           \
        (i) = 0;                                                                                   \
        while ((i) < (count) && (table)[i].used)                                                   \
            (i)++;                                                                                 \
        check((i) < (count));                                                                      \
    } while (0)

void rnic_reset(void)
{
    for (uint32_t i = 0; i < NIC_CONTEXTS; i++) {
        nic_context[i].used = channel[i].used = nic_cq[i].used = false;
        nic_context[i].lost = nic_context[i].gone = false;
        nic_context[i].gen = 0;
        nic_cq[i].gen++;
    }
    for (uint32_t i = 0; i < NIC_DOMAINS; i++)
        domain[i].used = false;
    for (uint32_t i = 0; i < NIC_KEYS; i++)
        nic_mr[i].used = false;
    for (uint32_t i = 0; i < NIC_WINDOWS; i++)
        nic_mw[i].used = false;
    nic_windows = 0;
    for (uint32_t i = 0; i < NIC_PAIRS; i++) {
        nic_qp[i].used = false;
        nic_qp[i].gen = 0; /* numbers go on the wire: the same in every run of a seed */
    }
    for (uint32_t i = 0; i < NIC_HELD; i++)
        nic_held[i].used = false;
}

static struct ncontext *context_of(const struct ibv_context *ctx)
{
    struct ncontext *c = (struct ncontext *)(uintptr_t)ctx;

    if (!c->used)
        rw_fail("device_used_after_close", "a call for a device that was closed");
    return c;
}

/* ------------------------------------------------------------------ devices */

struct ibv_device **ibv_get_device_list(int *n)
{
    static struct ibv_device *list[NIC_RAILS + 1];
    uint32_t rails = rw.cfg.rails[rw.current], count = rails == 1 ? 2 : rails;

    for (uint32_t i = 0; i < count; i++) {
        struct ndevice *d = &device[rw.current * NIC_RAILS + i];

        d->node = rw.current;
        d->rail = i;
        snprintf(d->dev.name, sizeof d->dev.name, "sim%u", i);
        snprintf(d->dev.ibdev_path, sizeof d->dev.ibdev_path, "%u", i);
        list[i] = &d->dev;
    }
    list[count] = NULL;
    *n = (int)count;
    return list;
}

void ibv_free_device_list(struct ibv_device **list)
{
    (void)list;
}

const char *ibv_get_device_name(struct ibv_device *dev)
{
    return dev->name;
}

static void heard(const struct ibv_wc *wc, uint64_t of)
{
    struct nqp *q = of ? &nic_qp[(of >> 32) - 1] : NULL;

    if (q && q->used && nqp_id(q) == of && wc->status == IBV_WC_SUCCESS &&
        wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM)
        q->heard_ns = rw.now_ns;
}

static int poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
    struct ncq *q = (struct ncq *)(void *)cq;
    int took = 0;

    check(q->used);
    for (; took < n && q->n > 0; took++, q->n--) {
        wc[took] = q->wc[q->head];
        heard(&wc[took], q->of[q->head]);
        q->strays -= q->of[q->head] == 0;
        q->head = (q->head + 1) % NIC_CQE;
    }
    return took;
}

static int req_notify_cq(struct ibv_cq *cq, int solicited)
{
    struct ncq *q = (struct ncq *)(void *)cq;

    (void)solicited;
    check(q->used);
    if (context_of(cq->context)->lost && !context_of(cq->context)->careless)
        return EIO;
    q->armed = true;
    return 0;
}

static struct ibv_mw *alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
    uint32_t i;

    if (context_of(pd->context)->lost) {
        errno = EIO;
        return NULL;
    }
    FIND_FREE(nic_mw, NIC_WINDOWS, i);
    nic_mw[i] = (struct nmw){.used = true};
    nic_windows = nic_windows > i ? nic_windows : i + 1;
    nic_mw[i].mw = (struct ibv_mw){
        .context = pd->context, .pd = pd, .type = type, .rkey = NIC_WINDOW_KEY + (i << 8)};
    return &nic_mw[i].mw;
}

static int dealloc_mw(struct ibv_mw *mw)
{
    struct nmw *w = (struct nmw *)(void *)mw;

    check(w->used);
    if (context_of(mw->context)->lost)
        return EIO;
    if (rw_fault(RF_destroy_fails))
        return ETIMEDOUT;
    w->used = false;
    return 0;
}

struct ibv_context *ibv_open_device(struct ibv_device *dev)
{
    struct ndevice *d = (struct ndevice *)(void *)dev;
    struct ncontext *c = &nic_context[d->node * NIC_RAILS + d->rail];

    check(!c->used);
    *c = (struct ncontext){
        .used = true, .gen = c->gen + 1, .node = d->node, .rail = d->rail, .alive_fd = -1};
    c->ctx.device = dev;
    c->ctx.async_fd = rnet_event_fd(d->node);
    c->ctx.num_comp_vectors = 1;
    c->ctx.ops.poll_cq = poll_cq;
    c->ctx.ops.req_notify_cq = req_notify_cq;
    c->ctx.ops.post_send = nic_post_send;
    c->ctx.ops.post_recv = nic_post_recv;
    c->ctx.ops.alloc_mw = alloc_mw;
    c->ctx.ops.dealloc_mw = dealloc_mw;
    return &c->ctx;
}

int ibv_close_device(struct ibv_context *ctx)
{
    struct ncontext *c = context_of(ctx);

    rnet_close(ctx->async_fd);
    c->used = false;
    return 0;
}

int ibv_query_device(struct ibv_context *ctx, struct ibv_device_attr *attr)
{
    (void)context_of(ctx);
    *attr = (struct ibv_device_attr){.max_mr_size = 1ull << 40,
                                     .max_cqe = (int)rw.cfg.cqe,
                                     .max_qp_wr = (int)NIC_QUEUE,
                                     .max_mw = (int)NIC_WINDOWS,
                                     .max_qp = 64,
                                     .phys_port_cnt = 1,
                                     .device_cap_flags = IBV_DEVICE_MEM_WINDOW_TYPE_2B};
    return 0;
}

int ibv_query_port(struct ibv_context *ctx, uint8_t port, struct _compat_ibv_port_attr *ret)
{
    struct ibv_port_attr *attr = (struct ibv_port_attr *)(void *)ret;

    (void)context_of(ctx), (void)port;
    attr->state = IBV_PORT_ACTIVE;
    attr->active_mtu = NIC_PORT_MTU;
    attr->gid_tbl_len = 2;
    attr->pkey_tbl_len = 1;
    attr->max_msg_sz = rw.cfg.max_msg;
    return 0;
}

int ibv_query_pkey(struct ibv_context *ctx, uint8_t port, int index, __be16 *ret)
{
    (void)context_of(ctx), (void)port, (void)index;
    *ret = 0xffff;
    return 0;
}

int _ibv_query_gid_ex(struct ibv_context *ctx, uint32_t port, uint32_t index,
                      struct ibv_gid_entry *entry, uint32_t flags, size_t bytes)
{
    const struct ncontext *c = context_of(ctx);

    (void)port, (void)flags;
    memset(entry, 0, bytes);
    entry->gid.raw[0] = index == 0 ? 0xfe : 0;
    entry->gid_type = index == 0 ? IBV_GID_TYPE_ROCE_V1 : IBV_GID_TYPE_ROCE_V2;
    if (index == 1)
        entry->gid.raw[10] = entry->gid.raw[11] = 0xff;
    entry->gid.raw[12] = 10;
    entry->gid.raw[14] = (uint8_t)c->rail;
    entry->gid.raw[15] = (uint8_t)c->node;
    return 0;
}

const char *ibv_port_state_str(enum ibv_port_state state)
{
    return state == IBV_PORT_ACTIVE ? "active" : "down";
}

const char *ibv_wc_status_str(enum ibv_wc_status status)
{
    return status == IBV_WC_SUCCESS ? "success" : "error";
}

/* ------------------------------------------------------------------ memory */

struct ibv_pd *ibv_alloc_pd(struct ibv_context *ctx)
{
    uint32_t i;

    FIND_FREE(domain, NIC_DOMAINS, i);
    domain[i] = (struct npd){.used = true, .pd = {.context = &context_of(ctx)->ctx, .handle = i}};
    return &domain[i].pd;
}

int ibv_dealloc_pd(struct ibv_pd *pd)
{
    struct npd *p = (struct npd *)(void *)pd;

    if (context_of(pd->context)->lost)
        return EIO;
    for (uint32_t i = 0; i < NIC_KEYS; i++)
        if (nic_mr[i].used && nic_mr[i].mr.pd == pd)
            rw_fail("domain_in_use", "a protection domain goes before its regions");
    for (uint32_t i = 0; i < NIC_PAIRS; i++)
        if (nic_qp[i].used && nic_qp[i].qp.pd == pd)
            rw_fail("domain_in_use", "a protection domain goes before its queue pairs");
    p->used = false;
    return 0;
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
    uint32_t i;

    if ((access & IBV_ACCESS_MW_BIND) && rmem_is_far(addr))
        rw_fail("windows_over_a_gpu", "%zu bytes", length);
    if (rmem_is_far(addr) && rw.cfg.bare[context_of(pd->context)->node]) {
        errno = EOPNOTSUPP;
        return NULL;
    }
    FIND_FREE(nic_mr, NIC_KEYS, i);
    nic_mr[i] = (struct nmr){.used = true, .access = access};
    nic_mr[i].mr = (struct ibv_mr){.context = pd->context,
                                   .pd = pd,
                                   .addr = addr,
                                   .length = length,
                                   .lkey = 0x100000u + i,
                                   .rkey = 0x200000u + i};
    return &nic_mr[i].mr;
}

struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova,
                                 int fd, int access)
{
    (void)pd, (void)offset, (void)length, (void)iova, (void)fd, (void)access;
    errno = EOPNOTSUPP; /* its memory is host memory alone */
    return NULL;
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
    struct nmr *m = (struct nmr *)(void *)mr;

    check(m->used);
    if (context_of(mr->context)->lost)
        return EIO;
    for (uint32_t i = 0; i < NIC_WINDOWS; i++)
        if (nic_mw[i].used && nic_mw[i].bound && nic_mw[i].mr == m)
            return EINVAL;
    m->used = false;
    return 0;
}

/* ------------------------------------------------------------------ queues */

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *ctx)
{
    uint32_t i;

    FIND_FREE(channel, NIC_CONTEXTS, i);
    channel[i] = (struct nchannel){.used = true};
    channel[i].channel.context = &context_of(ctx)->ctx;
    channel[i].channel.fd = rnet_event_fd(context_of(ctx)->node);
    return &channel[i].channel;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *ch)
{
    struct nchannel *c = (struct nchannel *)(void *)ch;

    check(c->used);
    rnet_close(ch->fd);
    c->used = false;
    return 0;
}

struct ibv_cq *ibv_create_cq(struct ibv_context *ctx, int depth, void *cq_context,
                             struct ibv_comp_channel *ch, int vector)
{
    struct ncq *q;
    uint32_t i;

    (void)vector;
    FIND_FREE(nic_cq, NIC_CONTEXTS, i);
    q = &nic_cq[i];
    if (depth < 1 || (uint32_t)depth > NIC_CQE || (uint32_t)depth > rw.cfg.cqe) {
        errno = EINVAL;
        return NULL;
    }
    q->used = true;
    q->armed = false;
    q->gen++;
    q->head = q->n = q->strays = 0;
    q->depth = (uint32_t)depth;
    q->cq = (struct ibv_cq){
        .context = &context_of(ctx)->ctx, .channel = ch, .cq_context = cq_context, .cqe = depth};
    return &q->cq;
}

int ibv_destroy_cq(struct ibv_cq *cq)
{
    struct ncq *q = (struct ncq *)(void *)cq;

    check(q->used);
    if (context_of(cq->context)->lost)
        return EIO;
    for (uint32_t i = 0; i < NIC_PAIRS; i++)
        if (nic_qp[i].used && (nic_qp[i].qp.send_cq == cq || nic_qp[i].qp.recv_cq == cq))
            return EBUSY;
    q->used = false;
    return 0;
}

int ibv_get_cq_event(struct ibv_comp_channel *ch, struct ibv_cq **cq, void **cq_context)
{
    struct nchannel *c = (struct nchannel *)(void *)ch;

    check(c->used);
    if (c->events == 0) {
        rnet_clear(ch->fd);
        errno = EAGAIN;
        return -1;
    }
    *cq = c->cq[--c->events];
    *cq_context = (*cq)->cq_context;
    return 0;
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int n)
{
    (void)cq, (void)n;
}

/* Places that are reserved for posted receives. */
static uint32_t receives_of(const struct ibv_cq *cq)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < NIC_PAIRS; i++)
        n += nic_qp[i].used && nic_qp[i].qp.recv_cq == cq ? nic_qp[i].rn : 0;
    return n;
}

void nic_complete(struct nqp *q, struct ibv_cq *cq, const struct ibv_wc *wc)
{
    struct ncq *to = (struct ncq *)(void *)cq;
    uint32_t at = (to->head + to->n) % NIC_CQE, receives = receives_of(cq);

    /* Fault 12: the seam never has more outstanding than the queue has places. */
    if (q && to->n - to->strays + receives >= to->depth)
        rw_fail("cq_overrun", "node %u: a completion finds %u of %u taken, and %u receives posted",
                q->node, to->n, to->depth, receives);
    to->wc[at] = *wc;
    to->of[at] = q ? nqp_id(q) : 0;
    to->n++;
    to->strays += q == NULL;
    if (to->n + receives == to->depth)
        rw_mark(RM_cq_full_of_credit);
    if (to->armed && to->cq.channel) {
        struct nchannel *c = (struct nchannel *)(void *)to->cq.channel;

        to->armed = false;
        check(c->events < 8);
        c->cq[c->events++] = cq;
        rnet_signal(c->channel.fd);
    }
}

static void async_event(struct ibv_context *ctx, enum ibv_event_type type)
{
    struct ncontext *c = context_of(ctx);

    if (c->nasync == NIC_ASYNC && type != IBV_EVENT_DEVICE_FATAL)
        return;
    if (c->nasync == NIC_ASYNC)
        c->nasync--;
    c->async[c->nasync++] = (struct ibv_async_event){.event_type = type};
    rnet_signal(ctx->async_fd);
}

int ibv_get_async_event(struct ibv_context *ctx, struct ibv_async_event *event)
{
    struct ncontext *c = context_of(ctx);

    if (c->nasync == 0) {
        rnet_clear(ctx->async_fd);
        errno = EAGAIN;
        return -1;
    }
    *event = c->async[--c->nasync];
    return 0;
}

void ibv_ack_async_event(struct ibv_async_event *event)
{
    (void)event;
}

/* ------------------------------------------------------------------ queue pairs */

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *init)
{
    const struct ncontext *c = context_of(pd->context);
    struct nqp *q;
    uint32_t i, gen;

    if (c->lost) {
        errno = EIO;
        return NULL;
    }
    if (rw_fault(RF_job_fails) || init->cap.max_send_wr > NIC_QUEUE ||
        init->cap.max_recv_wr > NIC_QUEUE) {
        errno = ENOMEM;
        return NULL;
    }
    FIND_FREE(nic_qp, NIC_PAIRS, i);
    q = &nic_qp[i];
    gen = q->gen + 1;
    memset(q, 0, offsetof(struct nqp, send));
    q->used = true;
    q->gen = gen;
    q->node = c->node;
    q->rail = c->rail;
    q->state = IBV_QPS_RESET;
    q->send_max = init->cap.max_send_wr;
    q->recv_max = init->cap.max_recv_wr;
    q->qp = (struct ibv_qp){.context = pd->context,
                            .pd = pd,
                            .send_cq = init->send_cq,
                            .recv_cq = init->recv_cq,
                            .qp_context = init->qp_context,
                            .qp_num = (i + 1) << 8 | (gen & 0xff),
                            .qp_type = init->qp_type};
    return &q->qp;
}

static int modify(struct nqp *q, const struct ibv_qp_attr *attr)
{
    switch (attr->qp_state) {
    case IBV_QPS_INIT:
        if (q->state != IBV_QPS_RESET)
            return EINVAL;
        q->access = attr->qp_access_flags;
        break;
    case IBV_QPS_RTR:
        if (q->state != IBV_QPS_INIT)
            return EINVAL;
        q->dest_qpn = attr->dest_qp_num;
        q->dest_node = attr->ah_attr.grh.dgid.raw[15];
        q->dest_rail = attr->ah_attr.grh.dgid.raw[14];
        break;
    case IBV_QPS_RTS:
        if (q->state != IBV_QPS_RTR)
            return EINVAL;
        q->rnr_retries = attr->rnr_retry;
        q->timeout_ns = (4096ull << attr->timeout) * (attr->retry_cnt + 1u);
        break;
    default: return EINVAL;
    }
    q->state = attr->qp_state;
    return 0;
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
    struct nqp *q = nqp_of(qp);

    check(q->used && (mask & IBV_QP_STATE));
    if (attr->qp_state == IBV_QPS_RTR && rw_fault(RF_slow_connect))
        tasks_sleep(MS * rw_between(1000, 3000));
    if (context_of(qp->context)->lost)
        return EIO;
    if (rw_fault(RF_job_fails))
        return ETIMEDOUT;
    if (attr->qp_state != IBV_QPS_ERR)
        return modify(q, attr);
    if (q->state != IBV_QPS_ERR)
        nic_error(q);
    return 0;
}

static void drop_completions(struct ncq *cq, uint64_t of)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < cq->n; i++) {
        uint32_t from = (cq->head + i) % NIC_CQE, to = (cq->head + kept) % NIC_CQE;

        if (cq->of[from] == of)
            continue;
        cq->wc[to] = cq->wc[from];
        cq->of[to] = cq->of[from];
        kept++;
    }
    cq->n = kept;
}

/* An arrived write lands before its queue pair is gone, or never. */
static void drop_held(const struct nqp *q)
{
    for (uint32_t i = 0; i < NIC_HELD; i++)
        if (nic_held[i].used && nic_held[i].qp == nqp_id(q))
            nic_held[i].used = false;
}

int ibv_destroy_qp(struct ibv_qp *qp)
{
    struct nqp *q = nqp_of(qp);
    struct ncq *cq = (struct ncq *)(void *)qp->send_cq;

    check(q->used);
    if (context_of(qp->context)->lost) {
        if (!context_of(qp->context)->gone)
            rw_mark(RM_refused_before_it_ended);
        return EIO;
    }
    if (rw_fault(RF_destroy_fails))
        return ETIMEDOUT;
    if (rw.cfg.purge)
        drop_completions(cq, nqp_id(q));
    if (q->last_id && rw_fault(RF_stale_completion)) {
        cq->stale_id = q->last_id;
        rw_post(rw_soon() + 1000ull * rw_below(1000), T_STALE, (uint32_t)(cq - nic_cq), cq->gen);
    }
    drop_held(q);
    for (uint32_t i = 0; i < NIC_WINDOWS; i++)
        if (nic_mw[i].used && nic_mw[i].qp == q)
            nic_mw[i].bound = false;
    if (q->dest_qpn && q->state == IBV_QPS_RTS && rw_one_in(4))
        async_event(qp->context, IBV_EVENT_COMM_EST);
    q->used = false;
    return 0;
}

/* ------------------------------------------------------------------ a device that is taken away */

static bool is_of(const struct ibv_context *ctx, const struct ncontext *c)
{
    return ctx == &c->ctx;
}

/* The driver of the device is removed: from now on the kernel refuses every call, and later
 * destroys all objects, at its own time. The event may come with either. */
void rnic_lose(uint32_t node, uint32_t rail)
{
    struct ncontext *c = &nic_context[node * NIC_RAILS + rail];

    if (!c->used || c->lost)
        return;
    rw.fault[RF_device_lost]++;
    c->lost = true;
    c->careless = rw_one_in(2);
    if (rw_one_in(2))
        async_event(&c->ctx, IBV_EVENT_DEVICE_FATAL);
    rw_post(1000ull * rw_below(rw_one_in(2) ? 500000 : 5000000), T_GONE,
            (uint32_t)(c - nic_context), c->gen);
}

void rnic_gone(uint32_t number, uint32_t gen)
{
    struct ncontext *c = &nic_context[number];

    if (!c->used || c->gen != gen)
        return;
    c->gone = true;
    for (uint32_t i = 0; i < NIC_WINDOWS; i++)
        if (nic_mw[i].used && is_of(nic_mw[i].mw.context, c))
            nic_mw[i].bound = false;
    for (uint32_t i = 0; i < NIC_PAIRS; i++)
        if (nic_qp[i].used && is_of(nic_qp[i].qp.context, c)) {
            drop_held(&nic_qp[i]);
            nic_qp[i].state = IBV_QPS_RESET;
            nic_qp[i].n = nic_qp[i].rn = nic_qp[i].nimm = 0;
        }
    rw_mark(RM_device_lost);
    async_event(&c->ctx, IBV_EVENT_DEVICE_FATAL);
}

bool rnic_is_lost(uint32_t node, uint32_t rail)
{
    return nic_context[node * NIC_RAILS + rail].lost;
}

bool rnic_is_going(uint32_t node)
{
    for (uint32_t i = 0; i < NIC_RAILS; i++) {
        const struct ncontext *c = &nic_context[node * NIC_RAILS + i];

        if (c->used && c->lost && !c->gone)
            return true;
    }
    return false;
}

int sim_open(const char *path)
{
    struct ncontext *c = &nic_context[rw.current * NIC_RAILS + (uint32_t)(path[0] - '0')];

    c->alive_fd = rnet_event_fd(rw.current);
    return c->alive_fd;
}

ssize_t sim_pread(int fd)
{
    for (uint32_t i = 0; i < NIC_CONTEXTS; i++)
        if (nic_context[i].used && nic_context[i].alive_fd == fd && nic_context[i].gone) {
            errno = ENODEV;
            return -1;
        }
    return 1;
}

/* ------------------------------------------------------------------ for the driver */

void rnic_kill(uint32_t node)
{
    for (uint32_t i = 0; i < NIC_PAIRS; i++)
        if (nic_qp[i].used && nic_qp[i].node == node) {
            drop_held(&nic_qp[i]);
            nic_qp[i].used = false;
        }
    for (uint32_t i = 0; i < NIC_CONTEXTS; i++) {
        if (channel[i].used && ((struct ncontext *)channel[i].channel.context)->node == node)
            channel[i].used = false;
        if (nic_cq[i].used && ((struct ncontext *)nic_cq[i].cq.context)->node == node)
            nic_cq[i].used = false;
        if (nic_context[i].node == node)
            nic_context[i].used = nic_context[i].lost = false;
    }
    for (uint32_t i = 0; i < NIC_KEYS; i++)
        if (nic_mr[i].used && ((struct ncontext *)nic_mr[i].mr.context)->node == node)
            nic_mr[i].used = false;
    for (uint32_t i = 0; i < NIC_WINDOWS; i++)
        if (nic_mw[i].used && ((struct ncontext *)nic_mw[i].mw.context)->node == node)
            nic_mw[i].used = false;
    for (uint32_t i = 0; i < NIC_DOMAINS; i++)
        if (domain[i].used && ((struct ncontext *)domain[i].pd.context)->node == node)
            domain[i].used = false;
}

/* Objects of a removed device cannot be freed, and do not count. */
static bool counts(const struct ibv_context *ctx, uint32_t node)
{
    const struct ncontext *c = (const struct ncontext *)(const void *)ctx;

    return c->node == node && !c->lost;
}

uint32_t rnic_objects(uint32_t node)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < NIC_PAIRS; i++)
        n += nic_qp[i].used && counts(nic_qp[i].qp.context, node);
    for (uint32_t i = 0; i < NIC_CONTEXTS; i++) {
        n += nic_context[i].used && nic_context[i].node == node;
        n += channel[i].used && counts(channel[i].channel.context, node);
        n += nic_cq[i].used && counts(nic_cq[i].cq.context, node);
    }
    for (uint32_t i = 0; i < NIC_KEYS; i++)
        n += nic_mr[i].used && counts(nic_mr[i].mr.context, node);
    for (uint32_t i = 0; i < NIC_WINDOWS; i++)
        n += nic_mw[i].used && counts(nic_mw[i].mw.context, node);
    for (uint32_t i = 0; i < NIC_DOMAINS; i++)
        n += domain[i].used && counts(domain[i].pd.context, node);
    return n;
}

bool rnic_may_write(uint64_t owner)
{
    for (uint32_t i = 0; i < NIC_WINDOWS; i++)
        if (nic_mw[i].used && nic_mw[i].bound && nic_mw[i].owner == owner)
            return true;
    for (uint32_t i = 0; i < NIC_PAIRS; i++)
        for (uint32_t k = 0; nic_qp[i].used && k < nic_qp[i].n; k++)
            if (nic_qp[i].send[(nic_qp[i].head + k) % NIC_QUEUE].owner == owner)
                return true;
    return false;
}

uint32_t rnic_windows_open(uint32_t node)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < NIC_WINDOWS; i++)
        n += nic_mw[i].used && nic_mw[i].bound &&
             ((const struct ncontext *)nic_mw[i].mw.context)->node == node;
    return n;
}

uint32_t rnic_outstanding(uint32_t node)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < NIC_PAIRS; i++)
        n += nic_qp[i].used && nic_qp[i].node == node ? nic_qp[i].n : 0;
    return n;
}

bool rnic_has_just_begun(uint32_t node, uint64_t ns)
{
    for (uint32_t i = 0; i < NIC_PAIRS; i++) {
        const struct nqp *q = &nic_qp[i];

        if (q->used && q->node == node && q->n > 0 && rw.now_ns < q->begun_ns + ns)
            return true;
    }
    return false;
}

void rnic_receive(const void *to, size_t n)
{
    nic_one_writer(to, n, NULL, "a receive");
}
