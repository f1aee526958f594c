/* The threads that make, connect and destroy queue pairs. Those calls allocate, and connecting one
 * may sleep for seconds while the kernel looks for the peer's address. So one thread sets queue
 * pairs up, and another one ends them, because pages wait for that. Both are data threads
 * (io_threads.h), of which each is a lane. The owner thread hands a path over and gets it back;
 * meanwhile the path is that thread's. */
#include <errno.h>

#include "base/check.h"
#include "base/container.h"
#include "base/err.h"
#include "seam/xfer/verbs/verbs.h"

#define RNR_TIMER   12 /* 0.64 ms, as InfiniBand counts it; */
#define RNR_RETRIES 6  /* but a receive is always posted */

enum { SETS_UP, ENDS, LANES };

/* ------------------------------------------------------------------ what the threads do */

int qp_make(const struct verbs_rail *rail, const struct qp_wish *wish, struct ibv_qp **ret,
            const char **ret_what)
{
    struct ibv_qp_init_attr init = {.send_cq = wish->cq,
                                    .recv_cq = wish->cq,
                                    .qp_type = IBV_QPT_RC,
                                    .sq_sig_all = 0,
                                    .cap = {.max_send_wr = wish->sends,
                                            .max_recv_wr = VERBS_PIECES,
                                            .max_send_sge = 1,
                                            .max_recv_sge = 1}};
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
                               .pkey_index = (uint16_t)rail->tuning->pkey_index,
                               .port_num = (uint8_t)rail->view.port,
                               .qp_access_flags = wish->access};
    struct ibv_qp *qp;

    *ret_what = "ibv_create_qp";
    qp = ibv_create_qp(wish->pd, &init);
    if (!qp)
        return errno ? errno : EIO;
    *ret = qp;
    *ret_what = "a queue pair to INIT";
    return ibv_modify_qp(qp, &attr,
                         IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

/* The destination allows writes, and no registration does, but what a memory window opens. */
static int make(struct verbs *v, struct verbs_path *p)
{
    struct verbs_rail *rail = rail_of(v, p);
    int rc = qp_make(rail,
                     &(struct qp_wish){.pd = rail->domain[p->tenant].pd,
                                       .cq = rail->cq,
                                       .sends = VERBS_SEND_QUEUE,
                                       .access = p->source ? 0 : IBV_ACCESS_REMOTE_WRITE},
                     &p->qp, &p->job_what);

    if (p->qp)
        p->ours.qpn = p->qp->qp_num;
    return rc == 0 && !p->source ? push_make(v, p) : rc;
}

static uint8_t smaller(uint32_t a, uint32_t b)
{
    return (uint8_t)(a < b ? a : b);
}

static int to_receive(const struct verbs_rail *rail, struct ibv_qp *qp,
                      const struct qp_endpoint *theirs)
{
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = (enum ibv_mtu)smaller(rail->mtu, theirs->mtu),
        .dest_qp_num = theirs->qpn,
        .rq_psn = theirs->psn,
        .max_dest_rd_atomic = 1, /* of the self-test, which reads */
        .min_rnr_timer = RNR_TIMER,
        .ah_attr = {.is_global = 1,
                    .sl = (uint8_t)rail->tuning->service_level,
                    .dlid = (uint16_t)theirs->lid,
                    .port_num = (uint8_t)rail->view.port,
                    .grh = {.dgid = theirs->gid,
                            .sgid_index = (uint8_t)rail->view.gid_index,
                            .traffic_class = (uint8_t)rail->tuning->traffic_class,
                            .hop_limit = 64}}};

    return ibv_modify_qp(qp, &attr,
                         IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                             IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
}

int qp_connect(const struct verbs_rail *rail, struct ibv_qp *qp, const struct qp_endpoint *ours,
               const struct qp_endpoint *theirs, const char **ret_what)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS,
                               .timeout = (uint8_t)rail->tuning->timeout,
                               .retry_cnt = (uint8_t)rail->tuning->retries,
                               .rnr_retry = RNR_RETRIES,
                               .sq_psn = ours->psn,
                               .max_rd_atomic = 1};

    *ret_what = "a queue pair to RTR";
    TRY(to_receive(rail, qp, theirs));
    *ret_what = "a queue pair to RTS";
    return ibv_modify_qp(qp, &attr,
                         IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                             IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

static int connect_both(struct verbs *v, struct verbs_path *p)
{
    return qp_connect(rail_of(v, p), p->qp, &p->ours, &p->theirs, &p->job_what);
}

static int stop(struct verbs_path *p)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

    p->job_what = "a queue pair to ERR";
    return p->qp ? ibv_modify_qp(p->qp, &attr, IBV_QP_STATE) : 0;
}

int setup_end_now(struct verbs_path *p)
{
    int rc = push_unmake(p);

    p->job_what = "ibv_dealloc_mw";
    if (rc == 0 && p->qp) {
        p->job_what = "ibv_destroy_qp";
        rc = ibv_destroy_qp(p->qp);
    }
    if (rc == 0)
        p->qp = NULL; /* else there is no proof that it is quiet */
    return rc;
}

static int work(struct verbs *v, struct verbs_path *p)
{
    switch (p->job) {
    case JOB_NONE: break;
    case JOB_MAKE: return make(v, p);
    case JOB_ACCEPT: TRY(make(v, p)); return connect_both(v, p);
    case JOB_CONNECT: return connect_both(v, p);
    case JOB_STOP: return stop(p);
    case JOB_END: return setup_end_now(p);
    }
    return 0;
}

/* What is queued when the daemon ends is not done. */
static bool run(struct io_task *task, int32_t res)
{
    struct verbs_path *p = container_of(task, struct verbs_path, task);

    (void)res;
    if (!atomic_load(&p->v->closing))
        p->job_errno = work(p->v, p);
    return false;
}

/* ------------------------------------------------------------------ the owner's side */

static void back(struct io_task *task, int32_t res)
{
    struct verbs_path *p = container_of(task, struct verbs_path, task);

    (void)res;
    p->job = JOB_NONE;
    if (!atomic_load(&p->v->closing))
        path_finished(p->v, p);
}

static struct io_threads_config threads_of(struct io *io, uint32_t npaths)
{
    return (struct io_threads_config){
        .io = io, .threads = LANES, .tasks = 1, .works = npaths, .name = "tern-rdma"};
}

uint64_t setup_bytes(uint32_t npaths)
{
    struct io_threads_config config = threads_of(NULL, npaths);

    return io_threads_bytes(&config);
}

enum tern_err setup_start(struct verbs *v)
{
    struct io_threads_config config = threads_of(v->xfer->config.io, v->npaths);
    const char *why;

    return io_threads_create(&config, &v->threads, &why);
}

void setup_stop(struct verbs *v)
{
    check(!v->threads || atomic_load(&v->closing));
    io_threads_end(v->threads, UINT64_MAX); /* a connect takes seconds at the most */
    v->threads = NULL;
}

void setup_give(struct verbs *v, struct verbs_path *p, enum verbs_job job)
{
    check(p->job == JOB_NONE && job != JOB_NONE);
    p->v = v;
    p->job = job;
    p->task.work = run;
    p->task.done = back;
    io_threads_work(v->threads, &p->task, job == JOB_STOP || job == JOB_END ? ENDS : SETS_UP);
}
