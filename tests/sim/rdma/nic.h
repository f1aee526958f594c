/* The objects of the modelled NIC, for nic.c (the calls of libibverbs) and nic_run.c (what a NIC
 * does by itself). */
#ifndef RDMA_NIC_H
#define RDMA_NIC_H

#include <infiniband/verbs.h>

#include "world.h"

#define NIC_RAILS      RAILS
#define NIC_CONTEXTS   (NODES * NIC_RAILS)
#define NIC_DOMAINS    32u
#define NIC_KEYS       1024u
#define NIC_WINDOWS    4096u
#define NIC_WINDOW_KEY 0x800000u /* and its number << 8, and a part that each binding changes */
#define NIC_PAIRS      128u
#define NIC_QUEUE      256u /* of a queue pair, sent and received */
#define NIC_CQE        4096u
#define NIC_IMMS       16u
#define NIC_HELD       64u
#define NIC_ASYNC      16u
#define NIC_PORT_MTU   IBV_MTU_1024

struct ndevice {
    struct ibv_device dev;
    uint32_t node, rail;
};

struct ncontext {
    struct ibv_context ctx;
    bool used;
    bool lost, gone; /* calls are refused; then its objects are destroyed */
    bool careless;   /* its library does not notice: requests are accepted */
    uint32_t gen, node, rail, nasync;
    int alive_fd; /* of its attribute in sysfs */
    struct ibv_async_event async[NIC_ASYNC];
};

struct npd {
    struct ibv_pd pd;
    bool used;
};

struct nmr {
    struct ibv_mr mr;
    bool used;
    int access;
};

struct nmw {
    struct ibv_mw mw;
    bool used, bound;
    const struct nmr *mr;
    struct nqp *qp; /* the only queue pair that may use it (type 2B) */
    uint64_t addr, length, owner;
    uint32_t key; /* the one that opens it; the seam writes the field in mw */
    unsigned access;
    uint64_t revoked[4]; /* a bit for each of 256 keys that was closed under a slow writer */
};

struct nchannel {
    struct ibv_comp_channel channel;
    bool used;
    uint32_t events;
    struct ibv_cq *cq[8];
};

struct ncq {
    struct ibv_cq cq;
    bool used, armed;
    uint32_t gen, head, n, depth;
    struct ibv_wc wc[NIC_CQE];
    uint64_t of[NIC_CQE]; /* number and generation of the completion's queue pair */
    uint64_t stale_id;
    uint32_t strays; /* completions of nobody among the n: they use no credit */
};

struct nwr {
    enum ibv_wr_opcode opcode;
    uint64_t wr_id, remote, owner;
    uint8_t *local;
    uint32_t length, moved, rkey, imm;
    bool signaled, started, revokes;
    enum ibv_wc_status failed;
    struct nmw *mw;
    struct ibv_mw_bind_info bind;
};

struct nqp {
    struct ibv_qp qp;
    bool used, due, stuck;
    enum ibv_qp_state state;
    uint32_t gen, node, rail, dest_qpn, dest_node, dest_rail, access, send_max, recv_max;
    uint32_t head, n, rhead, rn;
    uint32_t nimm, imm[NIC_IMMS]; /* arrived, and not yet completed */
    uint32_t told, last_imm;      /* immediates so far, and the last of them */
    bool landed;                  /* bytes of a page have arrived over it, at its node */
    uint64_t begun_ns;            /* when it last got a request while idle */
    uint64_t heard_ns;            /* when its node polled the last completion */
    uint64_t silent_ns;           /* since when the peer is silent; 0: it answers */
    uint64_t timeout_ns, last_id;
    uint32_t rnr_retries, rnr_tries; /* 7: for ever */
    struct nwr send[NIC_QUEUE];
    uint64_t recv[NIC_QUEUE];
};

/* Bytes that have arrived and are not visible yet. */
struct nheld {
    bool used;
    uint32_t gen, n;
    uint8_t *to;
    uint64_t owner;
    uint64_t qp; /* of a write: its completions must wait; 0: none */
    uint8_t bytes[4096];
};

extern struct ncontext nic_context[NIC_CONTEXTS];
extern struct nmr nic_mr[NIC_KEYS];
extern struct nmw nic_mw[NIC_WINDOWS];
extern uint32_t nic_windows; /* number of those ever used in this history */
extern struct ncq nic_cq[NIC_CONTEXTS];
extern struct nqp nic_qp[NIC_PAIRS];
extern struct nheld nic_held[NIC_HELD];

static inline struct nqp *nqp_of(struct ibv_qp *qp)
{
    return (struct nqp *)(void *)qp;
}

static inline uint64_t nqp_id(const struct nqp *q)
{
    return (uint64_t)(q - nic_qp + 1) << 32 | q->gen;
}

/* nic_run.c */
int nic_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int nic_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
void nic_error(struct nqp *q); /* to the error state: flushes all posted requests */
void nic_due(struct nqp *q, uint64_t delay);
void nic_complete(struct nqp *q, struct ibv_cq *cq, const struct ibv_wc *wc);
void nic_one_writer(const void *to, uint64_t n, const struct nqp *but, const char *by);
void nic_held_now(const struct nqp *q); /* makes bytes written over it visible */

#endif
