/* Measures on the first two RDMA devices whether the assumptions of the simulator's NIC
 * (tests/sim/rdma/nic.c) hold: prints `fact NAME confirmed` or `refuted`, with what was seen. Run
 * it in a guest of the lab over a slow network; else every request is done before the call that
 * posts it returns:
 *
 *   tests/rdma/lab.sh one '. tests/rdma/two_devices.sh && two_devices &&
 *       two_devices_netem rate 200mbit delay 2ms && "$TERN_BUILD/tests/rdma_facts"'
 *
 * Each fact uses a pair of its own: two queue pairs of this process, connected to each other. A
 * refuted fact is certainly wrong; a confirmed one was not refuted in any of the rounds. */
#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define HALF    (4u << 20) /* written; reads come from behind it */
#define READS   16u        /* each of HALF: together longer than a task of the kernel */
#define MEMORY  (2 * HALF + READS * 4096) /* each reads from 4 KiB further on, so its bytes show */
#define ROUNDS  20
#define WAIT_MS 10000

/* Ours is 0, the peer's 1: another device if there is a second one. */
static struct side {
    struct ibv_context *ctx;
    struct ibv_pd *pd;
    struct ibv_mr *mr;
    union ibv_gid gid;
    struct ibv_port_attr port;
    int gid_index;
} side[2];
static uint8_t *memory, *before;
static int failures;

struct pair {
    struct ibv_cq *cq[2]; /* ours, the peer's */
    struct ibv_qp *qp[2];
};

static void need(bool ok, const char *what)
{
    if (ok)
        return;
    printf("facts: %s: %s\n", what, strerror(errno));
    exit(2);
}

static void fact(const char *name, bool confirmed, const char *seen)
{
    printf("fact %s %s (%s)\n", name, confirmed ? "confirmed" : "refuted", seen);
    fflush(stdout);
}

static void sleep_ms(long ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};

    nanosleep(&t, NULL);
}

/* ------------------------------------------------------------------ the device and its pairs */

static void open_side(struct side *d, struct ibv_device *dev)
{
    d->ctx = ibv_open_device(dev);
    need(d->ctx && ibv_query_port(d->ctx, 1, &d->port) == 0, "a device cannot be opened");
    for (d->gid_index = d->port.gid_tbl_len - 1; d->gid_index > 0; d->gid_index--) {
        if (ibv_query_gid(d->ctx, 1, d->gid_index, &d->gid) == 0 && d->gid.raw[10] == 0xff)
            break; /* IPv4, RoCE v2 */
    }
    need(ibv_query_gid(d->ctx, 1, d->gid_index, &d->gid) == 0, "no GID");
    d->pd = ibv_alloc_pd(d->ctx);
    need(d->pd != NULL, "no protection domain");
    d->mr = (ibv_reg_mr)(d->pd, memory, MEMORY,
                         IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE |
                             IBV_ACCESS_MW_BIND);
    need(d->mr != NULL, "the memory cannot be registered");
}

static void open_devices(void)
{
    int n = 0;
    struct ibv_device **list = ibv_get_device_list(&n);

    need(list && n > 0, "no RDMA device");
    memory = aligned_alloc(4096, MEMORY);
    before = malloc(MEMORY);
    need(memory && before, "no memory");
    memset(memory, 0, MEMORY);
    open_side(&side[0], list[0]);
    open_side(&side[1], list[n > 1]);
    printf("facts: %s to %s\n", ibv_get_device_name(list[0]), ibv_get_device_name(list[n > 1]));
    ibv_free_device_list(list);
}

static void connect_to(struct ibv_qp *qp, int ours, uint32_t peer)
{
    struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT,
                               .port_num = 1,
                               .qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE};
    struct ibv_qp_attr rtr = {.qp_state = IBV_QPS_RTR,
                              .path_mtu = side[ours].port.active_mtu,
                              .dest_qp_num = peer,
                              .max_dest_rd_atomic = 8,
                              .min_rnr_timer = 12,
                              .ah_attr = {.is_global = 1,
                                          .port_num = 1,
                                          .grh = {.dgid = side[1 - ours].gid,
                                                  .sgid_index = (uint8_t)side[ours].gid_index,
                                                  .hop_limit = 64}}};
    struct ibv_qp_attr rts = {.qp_state = IBV_QPS_RTS,
                              .timeout = 17,
                              /* 0.5 s: a guest is slow */ .retry_cnt = 3,
                              .rnr_retry = 7,
                              .max_rd_atomic = 8};

    need(ibv_modify_qp(qp, &init,
                       IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0 &&
             ibv_modify_qp(qp, &rtr,
                           IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                               IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) ==
                 0 &&
             ibv_modify_qp(qp, &rts,
                           IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                               IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0,
         "queue pairs cannot be connected");
}

static struct pair pair_make(void)
{
    struct pair p;

    for (int i = 0; i < 2; i++) {
        struct ibv_qp_init_attr init = {
            .qp_type = IBV_QPT_RC,
            .cap = {.max_send_wr = 64, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1}};

        p.cq[i] = ibv_create_cq(side[i].ctx, 256, NULL, NULL, 0);
        init.send_cq = init.recv_cq = p.cq[i];
        p.qp[i] = p.cq[i] ? ibv_create_qp(side[i].pd, &init) : NULL;
        need(p.qp[i] != NULL, "no queue pair");
    }
    connect_to(p.qp[0], 0, p.qp[1]->qp_num);
    connect_to(p.qp[1], 1, p.qp[0]->qp_num);
    return p;
}

static void pair_end(struct pair *p)
{
    for (int i = 0; i < 2; i++) {
        if (p->qp[i])
            ibv_destroy_qp(p->qp[i]);
        ibv_destroy_cq(p->cq[i]);
    }
}

static void to_error(struct ibv_qp *qp)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

    need(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == 0, "no way to the error state");
}

static bool in_error(struct ibv_qp *qp)
{
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;

    return ibv_query_qp(qp, &attr, IBV_QP_STATE, &init) == 0 && attr.qp_state == IBV_QPS_ERR;
}

/* ------------------------------------------------------------------ requests */

static int post(struct ibv_qp *qp, enum ibv_wr_opcode opcode, uint64_t id, uint64_t local,
                uint32_t length, uint64_t remote, uint32_t rkey, bool signaled)
{
    struct ibv_sge sge = {.addr = local, .length = length, .lkey = side[0].mr->lkey};
    struct ibv_send_wr wr = {.wr_id = id,
                             .sg_list = &sge,
                             .num_sge = 1,
                             .opcode = opcode,
                             .send_flags = signaled ? IBV_SEND_SIGNALED : 0},
                       *bad;

    wr.imm_data = htonl(7);
    wr.wr.rdma.remote_addr = remote;
    wr.wr.rdma.rkey = rkey;
    return ibv_post_send(qp, &wr, &bad);
}

static uint64_t at(uint32_t offset)
{
    return (uintptr_t)memory + offset;
}

/* Only the last one asks for a completion. */
static void post_reads(struct ibv_qp *qp)
{
    for (uint32_t i = 0; i < READS; i++)
        need(post(qp, IBV_WR_RDMA_READ, i, at(0), HALF, at(HALF + i * 4096), side[1].mr->rkey,
                  i + 1 == READS) == 0,
             "a read cannot be posted");
}

/* Polls for n completions for at most wait_ms. Returns how many arrived. */
static uint32_t take(struct ibv_cq *cq, struct ibv_wc *wc, uint32_t n, long wait_ms)
{
    uint32_t got = 0;

    for (long ms = 0; got < n && ms <= wait_ms; ms++) {
        int k = ibv_poll_cq(cq, (int)(n - got), wc + got);

        if (k > 0)
            got += (uint32_t)k;
        else
            sleep_ms(1);
    }
    return got;
}

/* ------------------------------------------------------------------ stopping */

/* Fills memory so that each landing byte shows, whatever was there before. */
static void fill(int round)
{
    memset(memory, 0, HALF);
    for (uint32_t i = HALF; i < MEMORY; i++)
        memory[i] = (uint8_t)(1 + (i / 4096 + (uint32_t)round) % 255);
}

static void facts_of_flushing(void)
{
    bool in_order = true, all = true, landed_after = false;
    uint32_t flushed = 0;
    char seen[96];

    for (int round = 0; round < ROUNDS; round++) {
        struct pair p = pair_make();
        struct ibv_wc wc[READS];
        uint32_t n;

        fill(round);
        post_reads(p.qp[0]);
        sleep_ms(2 * round);
        to_error(p.qp[0]);
        n = take(p.cq[0], wc, READS, 1000);
        memcpy(before, memory, HALF);
        sleep_ms(30);
        landed_after = landed_after || memcmp(before, memory, HALF) != 0;
        for (uint32_t i = 0; i < n; i++) {
            flushed += wc[i].status == IBV_WC_WR_FLUSH_ERR;
            in_order = in_order && (i == 0 || wc[i].wr_id > wc[i - 1].wr_id);
        }
        /* Reads done before the stop complete silently; every later one must be reported. */
        all = all && n > 0 && wc[n - 1].wr_id == READS - 1 && n == READS - wc[0].wr_id;
        pair_end(&p);
    }
    snprintf(seen, sizeof seen, "%u of %u reads flushed in %d rounds", flushed, READS * ROUNDS,
             ROUNDS);
    fact("flush_in_order", flushed > 0 && in_order, seen);
    fact("flush_unsignaled", flushed > 0 && all, seen);
    fact("flush_after_stop", flushed > 0 && !landed_after, "nothing landed behind the last flush");
}

static void facts_of_ends(void)
{
    struct pair p = pair_make();
    struct ibv_wc wc[READS];
    uint32_t n;
    int rc;

    post(p.qp[0], IBV_WR_RDMA_READ, 1, at(0), 4096, at(HALF), side[1].mr->rkey, true);
    sleep_ms(500);
    ibv_destroy_qp(p.qp[0]);
    p.qp[0] = NULL;
    n = take(p.cq[0], wc, READS, 100);
    fact("destroy_keeps_completions", n > 0, n ? "they stay in the queue" : "they are gone");
    pair_end(&p);

    p = pair_make();
    to_error(p.qp[0]);
    rc = post(p.qp[0], IBV_WR_RDMA_READ, 1, at(0), 4096, at(HALF), side[1].mr->rkey, false);
    n = rc == 0 ? take(p.cq[0], wc, 1, 500) : 0;
    fact("post_to_error_is_flushed", n == 1 && wc[0].status == IBV_WC_WR_FLUSH_ERR,
         rc ? "it is not taken" : "it is taken");
    pair_end(&p);

    p = pair_make();
    ibv_destroy_qp(p.qp[1]);
    p.qp[1] = NULL;
    post(p.qp[0], IBV_WR_RDMA_READ, 1, at(0), 4096, at(HALF), side[1].mr->rkey, true);
    n = take(p.cq[0], wc, 1, WAIT_MS);
    fact("dead_peer_exhausts_retries",
         n == 1 && wc[0].status == IBV_WC_RETRY_EXC_ERR && in_error(p.qp[0]),
         n ? ibv_wc_status_str(wc[0].status) : "no completion");
    pair_end(&p);
}

/* ------------------------------------------------------------------ windows */

static int window_bind(struct ibv_qp *qp, struct ibv_mw *mw, uint32_t rkey, uint32_t offset,
                       uint32_t n)
{
    struct ibv_send_wr wr = {.wr_id = 90,
                             .opcode = IBV_WR_BIND_MW,
                             .send_flags = IBV_SEND_SIGNALED},
                       *bad;

    wr.bind_mw.mw = mw;
    wr.bind_mw.rkey = rkey;
    wr.bind_mw.bind_info = (struct ibv_mw_bind_info){.mr = side[1].mr,
                                                     .addr = at(offset),
                                                     .length = n,
                                                     .mw_access_flags = IBV_ACCESS_REMOTE_WRITE};
    return ibv_post_send(qp, &wr, &bad);
}

static int invalidate(struct ibv_qp *qp, uint32_t rkey)
{
    struct ibv_send_wr wr = {.wr_id = 91,
                             .opcode = IBV_WR_LOCAL_INV,
                             .send_flags = IBV_SEND_SIGNALED},
                       *bad;

    wr.invalidate_rkey = rkey;
    return ibv_post_send(qp, &wr, &bad);
}

static bool done(struct ibv_cq *cq, enum ibv_wc_status *ret)
{
    struct ibv_wc wc;
    bool there = take(cq, &wc, 1, WAIT_MS) == 1;

    *ret = there ? wc.status : IBV_WC_GENERAL_ERR;
    return there && wc.status == IBV_WC_SUCCESS;
}

/* The peer (qp[1]) binds and revokes; we write. */
static void facts_of_windows(void)
{
    struct ibv_mw *mw = ibv_alloc_mw(side[1].pd, IBV_MW_TYPE_2);
    struct pair p = pair_make();
    enum ibv_wc_status status;
    struct ibv_mr *held;
    char seen[128];
    uint32_t rkey;
    bool bound;

    if (!mw) {
        printf("facts: the device has no windows\n");
        failures++;
        return;
    }
    memset(memory, 0, MEMORY);
    memset(memory + HALF, 0xc3, 4096);
    rkey = ibv_inc_rkey(mw->rkey);
    bound = window_bind(p.qp[1], mw, rkey, 8192, 4096) == 0 && done(p.cq[1], &status);
    post(p.qp[0], IBV_WR_RDMA_WRITE, 1, at(HALF), 4096, at(8192), rkey, true);
    fact("write_through_window", bound && done(p.cq[0], &status) && memory[8192] == 0xc3,
         "as it was bound");
    held = side[1].mr;
    fact("bound_window_holds_region", ibv_dereg_mr(held) != 0, strerror(errno));
    invalidate(p.qp[1], rkey);
    done(p.cq[1], &status);
    memset(memory + 8192, 0, 4096);
    post(p.qp[0], IBV_WR_RDMA_WRITE, 2, at(HALF), 4096, at(8192), rkey, true);
    done(p.cq[0], &status);
    fact("invalid_window_refused", status == IBV_WC_REM_ACCESS_ERR && memory[8192] == 0,
         ibv_wc_status_str(status));
    sleep_ms(50);
    fact("refused_breaks_both", in_error(p.qp[0]) && in_error(p.qp[1]),
         in_error(p.qp[1]) ? "both in ERR" : "the writer's alone");
    pair_end(&p);

    p = pair_make();
    ibv_dealloc_mw(mw);
    mw = ibv_alloc_mw(side[1].pd, IBV_MW_TYPE_2);
    need(mw != NULL, "no second window");
    rkey = ibv_inc_rkey(mw->rkey);
    bound = window_bind(p.qp[1], mw, rkey, 8192, 4096) == 0 && done(p.cq[1], &status);
    if (!bound)
        printf("facts: the second window cannot be bound: %s\n", ibv_wc_status_str(status));
    post(p.qp[0], IBV_WR_RDMA_WRITE, 3, at(HALF), 4096, at(0), rkey, true);
    done(p.cq[0], &status);
    snprintf(seen, sizeof seen, "%s; below the window's start %s", ibv_wc_status_str(status),
             memory[0] == 0xc3 ? "it lands" : "nothing lands");
    fact("window_bounds_checked", bound && status == IBV_WC_REM_ACCESS_ERR && memory[0] == 0, seen);
    pair_end(&p);
    ibv_dealloc_mw(mw);
}

/* ------------------------------------------------------------------ immediates */

static void post_receive(struct ibv_qp *qp)
{
    struct ibv_recv_wr wr = {.wr_id = 50}, *bad;

    need(ibv_post_recv(qp, &wr, &bad) == 0, "no receive can be posted");
}

static void facts_of_immediates(void)
{
    struct pair p = pair_make();
    enum ibv_wc_status status;
    struct ibv_wc wc;
    bool early, told, there = true;

    post(p.qp[0], IBV_WR_RDMA_WRITE_WITH_IMM, 1, at(HALF), 4096, at(0), side[1].mr->rkey, true);
    early = take(p.cq[0], &wc, 1, 300) > 0;
    post_receive(p.qp[1]);
    told = done(p.cq[0], &status) && done(p.cq[1], &status);
    fact("no_receive_is_retried", !early && told,
         early ? ibv_wc_status_str(wc.status) : "it waited, and arrived");
    pair_end(&p);
    p = pair_make();
    for (int round = 0; round < ROUNDS; round++) {
        memset(memory, 0, HALF);
        memset(memory + HALF, 0x30 + round, HALF);
        post_receive(p.qp[1]);
        post(p.qp[0], IBV_WR_RDMA_WRITE, 2, at(HALF), 1u << 20, at(0), side[1].mr->rkey, false);
        post(p.qp[0], IBV_WR_RDMA_WRITE_WITH_IMM, 3, at(HALF), 4096, at(1u << 20), side[1].mr->rkey,
             true);
        there = there && done(p.cq[1], &status) &&
                memcmp(memory, memory + HALF, (1u << 20) + 4096) == 0;
        done(p.cq[0], &status);
    }
    fact("immediate_after_writes", there, "what was written before it is there with it");
    pair_end(&p);
}

int main(void)
{
    open_devices();
    facts_of_flushing();
    facts_of_ends();
    facts_of_windows();
    facts_of_immediates();
    printf("facts: done\n");
    return failures;
}
