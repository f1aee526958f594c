/* The threads that make and destroy queue pairs, with a device that is played here: which job waits
 * for which. */

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "seam/xfer/verbs/verbs.h"
#include "testing/test.h"

#define PATHS 6u

/* ------------------------------------------------------------------ the device */

struct done {
    char what; /* C: connected, S: stopped, E: destroyed */
    uint32_t path;
};

static struct ibv_qp pairs[PATHS];
static struct verbs_path paths[PATHS];
static struct verbs v;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct done begun[4 * PATHS]; /* in the order in which the device got them */
static uint32_t nbegun;
static bool asleep; /* a connect does not return */
static int destroy_errno;
static struct ibv_mw windows[VERBS_MWS];
static uint32_t nwindows, nreceives, receives_max;
static struct ibv_qp_attr moved[IBV_QPS_ERR + 1]; /* by the state that a pair was moved to */
static struct ibv_pd domain_pd;
static struct verbs_domain domain = {.pd = &domain_pd};

static struct ibv_mw *alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
    (void)pd;
    assert_int_equal(type, IBV_MW_TYPE_2);
    return &windows[nwindows++];
}

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    (void)qp, (void)wr, (void)bad;
    nreceives++;
    return nreceives > receives_max ? ENOMEM : 0;
}

static void hear(char what, const struct ibv_qp *qp)
{
    pthread_mutex_lock(&lock);
    begun[nbegun++] = (struct done){what, (uint32_t)(qp - pairs)};
    pthread_cond_broadcast(&changed);
    while (what == 'C' && asleep)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
    (void)mask;
    moved[attr->qp_state] = *attr;
    if (attr->qp_state != IBV_QPS_RTS)
        hear(attr->qp_state == IBV_QPS_ERR ? 'S' : 'C', qp);
    return 0;
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *init)
{
    (void)init;
    assert_ptr_equal(pd, &domain_pd);
    return &pairs[0];
}

int ibv_destroy_qp(struct ibv_qp *qp)
{
    hear('E', qp);
    return destroy_errno;
}

/* ------------------------------------------------------------------ the rig */

static struct io *io;
static struct xfer xfer;
static struct verbs_path *finished[PATHS]; /* by a thread, and not collected yet */
static uint32_t nfinished;

void __wrap_path_finished(struct verbs *of, struct verbs_path *p);

void __wrap_path_finished(struct verbs *of, struct verbs_path *p)
{
    assert_ptr_equal(of, &v);
    assert_int_equal(p->job, JOB_NONE);
    finished[nfinished++] = p;
}

FIXTURE(start)
{
    struct io_config config = {.entries = 64};
    const char *why = "";

    if (io_create(&config, &io, &why) != TERN_OK)
        fail_msg("%s", why);
    nfinished = 0;
    xfer.config.io = io;
    v = (struct verbs){.xfer = &xfer, .npaths = PATHS, .nrails = 1, .path = paths};
    v.rail[0] = (struct verbs_rail){.tuning = &xfer_rdma_tuning_initial, .domain = &domain};
    for (uint32_t i = 0; i < PATHS; i++)
        paths[i] = (struct verbs_path){.qp = &pairs[i], .v = &v, .task.done = path_back};
    nbegun = 0;
    asleep = false;
    destroy_errno = 0;
    return setup_start(&v) == TERN_OK ? 0 : -1;
}

static void sleep_in_connects(bool on)
{
    pthread_mutex_lock(&lock);
    asleep = on;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

FIXTURE(stop)
{
    sleep_in_connects(false); /* a failed case may have left one there */
    atomic_store(&v.closing, true);
    setup_stop(&v);
    io_destroy(io);
    return 0;
}

static void wait_begun(uint32_t n)
{
    pthread_mutex_lock(&lock);
    while (nbegun < n)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

static struct verbs_path *take(void)
{
    uint64_t until = io_now_ns() + 60000000000u;
    struct verbs_path *p;

    while (nfinished == 0 && io_now_ns() < until)
        io_run(io, until);
    assert_true(nfinished > 0);
    p = finished[0];
    memmove(finished, finished + 1, --nfinished * sizeof finished[0]);
    return p;
}

/* ------------------------------------------------------------------ cases */

/* Pages wait for the end of a queue pair, and no end waits for a connect, even if one sleeps. */
TEST_WITH(verbs_setup_an_end_does_not_wait_behind_connects, start, stop)
{
    sleep_in_connects(true);
    for (uint32_t i = 0; i < 4; i++)
        setup_give(&v, &paths[i], JOB_CONNECT);
    wait_begun(1);
    setup_give(&v, &paths[4], JOB_STOP);
    setup_give(&v, &paths[5], JOB_END);
    assert_ptr_equal(take(), &paths[4]);
    assert_ptr_equal(take(), &paths[5]);
    assert_int_equal(nbegun, 3);
    assert_int_equal(begun[0].path, 0);
    assert_int_equal(begun[1].what, 'S');
    assert_int_equal(begun[2].what, 'E');
    sleep_in_connects(false);
    for (uint32_t i = 0; i < 4; i++) /* those that may sleep keep their order */
        assert_ptr_equal(take(), &paths[i]);
    assert_int_equal(nbegun, PATHS);
}

/* As many jobs as there are paths: none is lost where the ring wraps. */
TEST_WITH(verbs_setup_every_job_is_done_once, start, stop)
{
    uint32_t times[PATHS] = {0};

    for (uint32_t round = 0; round < 100; round++) {
        sleep_in_connects(true);
        setup_give(&v, &paths[round % PATHS], JOB_CONNECT);
        wait_begun(1);
        for (uint32_t i = 1; i < PATHS; i++)
            setup_give(&v, &paths[(round + i) % PATHS],
                       (round >> (i % 5) & 1) ? JOB_STOP : JOB_CONNECT);
        sleep_in_connects(false);
        for (uint32_t i = 0; i < PATHS; i++)
            times[take() - paths]++;
        assert_int_equal(nbegun, PATHS);
        nbegun = 0;
    }
    for (uint32_t i = 0; i < PATHS; i++)
        assert_int_equal(times[i], 100);
}

/* The owner decides about pages whose queue pair still exists. */
TEST_WITH(verbs_setup_a_pair_that_is_not_destroyed_is_kept, start, stop)
{
    destroy_errno = ETIMEDOUT;
    setup_give(&v, &paths[2], JOB_END);
    assert_ptr_equal(take(), &paths[2]);
    assert_int_equal(paths[2].job_errno, ETIMEDOUT);
    assert_ptr_equal(paths[2].qp, &pairs[2]);
    destroy_errno = 0;
    setup_give(&v, &paths[2], JOB_END);
    assert_ptr_equal(take(), &paths[2]);
    assert_int_equal(paths[2].job_errno, 0);
    assert_null(paths[2].qp);
}

/* All pieces may arrive at once, and each takes a receive. A receive that cannot be posted fails
 * the path. */
TEST_WITH(verbs_setup_a_destination_posts_a_receive_for_each_piece, start, stop)
{
    struct ibv_context device = {.ops = {.alloc_mw = alloc_mw, .post_recv = post_recv}};
    struct ibv_pd pd = {.context = &device};
    struct ibv_qp qp = {.context = &device, .pd = &pd};

    paths[0].qp = &qp;
    receives_max = VERBS_PIECES;
    assert_int_equal(windows_make(&v, &paths[0]), 0);
    assert_int_equal(nwindows, VERBS_MWS);
    assert_int_equal(nreceives, VERBS_PIECES);
    nwindows = nreceives = 0;
    receives_max = VERBS_PIECES - 1;
    assert_int_equal(windows_make(&v, &paths[0]), ENOMEM);
    assert_string_equal(paths[0].job_what, "ibv_post_recv");
    paths[0].qp = NULL;
}

/* Each queue pair has the fabric's settings, on either end. */
TEST_WITH(verbs_setup_a_pair_has_what_the_fabric_asks_for, start, stop)
{
    static const struct xfer_rdma_tuning asked = {.gid_index = 3,
                                                  .pkey_index = 2,
                                                  .traffic_class = 106,
                                                  .service_level = 5,
                                                  .timeout = 18,
                                                  .retries = 7};

    v.rail[0].tuning = &asked;
    v.rail[0].view.port = 1;
    v.rail[0].view.gid_index = 3; /* as port.c has found it */
    v.rail[0].mtu = IBV_MTU_4096;
    paths[0].source = true;
    paths[0].theirs.mtu = IBV_MTU_512;
    paths[0].qp = NULL;
    setup_give(&v, &paths[0], JOB_ACCEPT);
    assert_ptr_equal(take(), &paths[0]);
    assert_int_equal(paths[0].job_errno, 0);
    assert_int_equal(moved[IBV_QPS_INIT].pkey_index, 2);
    assert_int_equal(moved[IBV_QPS_RTR].path_mtu, IBV_MTU_512);
    assert_int_equal(moved[IBV_QPS_RTR].min_rnr_timer, 12);
    assert_int_equal(moved[IBV_QPS_RTR].ah_attr.sl, 5);
    assert_int_equal(moved[IBV_QPS_RTR].ah_attr.grh.traffic_class, 106);
    assert_int_equal(moved[IBV_QPS_RTR].ah_attr.grh.sgid_index, 3);
    assert_int_equal(moved[IBV_QPS_RTS].timeout, 18);
    assert_int_equal(moved[IBV_QPS_RTS].retry_cnt, 7);
    assert_int_equal(moved[IBV_QPS_RTS].rnr_retry, 6);
}

/* At the end of the daemon the running job is waited for, and queued ones are not done; neither is
 * reported. */
TEST_WITH(verbs_setup_what_is_queued_at_the_end_is_not_done, start, stop)
{
    sleep_in_connects(true);
    for (uint32_t i = 0; i < 3; i++)
        setup_give(&v, &paths[i], JOB_CONNECT);
    wait_begun(1);
    atomic_store(&v.closing, true);
    sleep_in_connects(false);
    setup_stop(&v);
    assert_int_equal(nbegun, 1);
    assert_int_equal(nfinished, 0);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(paths[i].job, JOB_NONE);
}
