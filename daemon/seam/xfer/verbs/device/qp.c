/* Makes and connects queue pairs, on a thread that may wait. Called by setup.c for the paths, and
 * by the self-test. */
#include <errno.h>

#include "base/err.h"
#include "seam/xfer/verbs/verbs.h"

#define RNR_TIMER   12 /* 0.64 ms in InfiniBand's code; */
#define RNR_RETRIES 6  /* not expected: a receive is always posted */

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
    *ret_what = "moving a queue pair to INIT";
    return ibv_modify_qp(qp, &attr,
                         IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
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
        .max_dest_rd_atomic = 1, /* for the self-test, which reads */
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

    *ret_what = "moving a queue pair to RTR";
    TRY(to_receive(rail, qp, theirs));
    *ret_what = "moving a queue pair to RTS";
    return ibv_modify_qp(qp, &attr,
                         IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                             IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}
