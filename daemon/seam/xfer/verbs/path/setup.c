/* The threads that make, connect and destroy queue pairs. These calls allocate, and connecting may
 * sleep for seconds while the kernel resolves the peer's address. One thread makes and connects;
 * another one destroys, because pages wait for that. Both are data threads (io_threads.h), one lane
 * each. A thread owns a path from the owner thread's setup_give until path_back. */
#include <errno.h>

#include "base/check.h"
#include "base/container.h"
#include "base/err.h"
#include "seam/xfer/verbs/verbs.h"

enum { SETS_UP, ENDS, LANES };

/* ------------------------------------------------------------------ on the threads */

int windows_make(struct verbs *v, struct verbs_path *p)
{
    p->job_what = "ibv_alloc_mw";
    for (uint32_t i = 0; i < VERBS_MWS; i++) {
        p->mw[i] = ibv_alloc_mw(p->qp->pd, IBV_MW_TYPE_2);
        if (!p->mw[i])
            return errno ? errno : EIO;
    }
    p->job_what = "ibv_post_recv";
    for (uint32_t i = 0; i < VERBS_PIECES; i++)
        TRY(receive_post(v, p));
    return 0;
}

/* A freed memory window gives no access. Bound windows must be freed before their queue pair. */
static int windows_unmake(struct verbs_path *p)
{
    for (uint32_t i = 0; i < VERBS_MWS; i++) {
        TRY(p->mw[i] ? ibv_dealloc_mw(p->mw[i]) : 0);
        p->mw[i] = NULL;
    }
    return 0;
}

/* A destination's pair allows remote writes, but only memory windows open memory to them. */
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
    return rc == 0 && !p->source ? windows_make(v, p) : rc;
}

static int connect_both(struct verbs *v, struct verbs_path *p)
{
    return qp_connect(rail_of(v, p), p->qp, &p->ours, &p->theirs, &p->job_what);
}

static int stop(struct verbs_path *p)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

    p->job_what = "moving a queue pair to ERR";
    return p->qp ? ibv_modify_qp(p->qp, &attr, IBV_QP_STATE) : 0;
}

int setup_end_now(struct verbs_path *p)
{
    int rc = windows_unmake(p);

    p->job_what = "ibv_dealloc_mw";
    if (rc == 0 && p->qp) {
        p->job_what = "ibv_destroy_qp";
        rc = ibv_destroy_qp(p->qp);
    }
    if (rc == 0)
        p->qp = NULL; /* otherwise keep it: nothing proves that it is quiet */
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

/* Jobs still queued when the daemon ends are skipped. */
static bool run(struct io_task *task, int32_t res)
{
    struct verbs_path *p = container_of(task, struct verbs_path, task);

    (void)res;
    if (!atomic_load(&p->v->closing))
        p->job_errno = work(p->v, p);
    return false;
}

/* ------------------------------------------------------------------ the owner's side */

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
    io_threads_end(v->threads, UINT64_MAX); /* a connect takes seconds at most */
    v->threads = NULL;
}

void setup_give(struct verbs *v, struct verbs_path *p, enum verbs_job job)
{
    check(p->job == JOB_NONE && job != JOB_NONE);
    p->job = job;
    p->task.work = run;
    io_threads_submit(v->threads, &p->task, IO_TASK_WORK,
                      job == JOB_STOP || job == JOB_END ? ENDS : SETS_UP, -1);
}
