/* The door between transfers and the transports that carry their pages. What all transports share
 * (pulls, serves, batches, deadlines, proofs of quiet) is in transfers.h;
 * what one of them does in its own way it does behind these operations. A transport includes
 * neither the header of another one nor calls it.
 *
 * To add one: its own folder of files, its line in transports.c, and its library in
 * daemon/seam/CMakeLists.txt if it needs one. XFER_AUTO then offers it batches in the order of
 * transports.c. If operators are to ask for it by name, it also needs a row of XFER_TRANSPORT_TABLE
 * in xfer.h. Owner thread only; nothing is allocated after `create`. */
#ifndef SEAM_XFER_TRANSPORT_H
#define SEAM_XFER_TRANSPORT_H

#include "seam/xfer/xfer.h"

struct data_conn;
struct data_gather;
struct transport_ops;

#define XFER_TRANSPORTS_MAX 4

/* One transport of one struct xfer. */
struct transport {
    const struct transport_ops *ops;
    struct xfer *xfer;
    uint32_t lane; /* its place in transports.c: that lane of every peer link is its own, and a
                      batch is offered to lower ones first */
    void *own; /* owned by the transport; NULL: it is not in use, and is never offered a batch */
};

/* The source's side of data connections: a transport whose requests come as frames. */
struct data_service {
    bool (*knows)(uint16_t frame);
    /* A request of such a frame is in conn's request. It is answered at once, or waits. False: it
     * breaks the protocol, and the connection ends. */
    bool (*begin)(struct transport *t, struct data_conn *conn);
    /* Of a request in state PAGES: the next page bytes, behind what meta still holds. */
    void (*gather)(struct data_conn *conn, struct data_gather *g);
    /* So many of them are with the kernel. True: there are more. */
    bool (*sent)(struct data_conn *conn, uint64_t n);
    /* All of them are: what is left to be said goes into meta. */
    void (*end)(struct data_conn *conn);
    /* The serve of the request in work ended, or (`lost`) a page of it has no memory behind it:
     * from here on the transport reads none of its pages. */
    void (*over)(struct transport *t, struct data_conn *conn, bool lost);
};

struct transport_ops {
    const char *name;              /* in views and logs */
    enum xfer_transport asked_for; /* besides AUTO; AUTO: it has no word of its own */
    bool rdma;                     /* it makes paths */
    bool reshards;                 /* it carries pages between pools of different layouts */
    uint32_t conn_bytes; /* that it keeps for a data connection it calls; 0: it calls none */
    const struct data_service *service; /* NULL: nobody asks it by frames */

    /* What `create` will take. NULL: nothing. */
    uint64_t (*bytes)(const struct xfer_config *config, uint32_t sums_per_page);
    /* So many tasks of plain work it may have away (io_threads_work). NULL: none. */
    uint32_t (*works)(const struct xfer_config *config);
    /* OK with t->own left NULL: it is not in use here. */
    enum tern_err (*create)(struct transport *t);
    /* Ends what is under way: on return nothing reads or writes a page for it. Also of one whose
     * `create` failed. Data connections have ended before, and no task is away. */
    void (*destroy)(struct transport *t);

    /* Can a batch of that pool go over it, on that peer link, now or soon? NULL: always. */
    bool (*takes)(const struct transport *t, uint32_t peer_link, uint32_t pool);
    /* Its lane of the peer link has batches in its queue, or room for more: asks for what can be
     * asked for now. A page that arrives is reported by arrival_*, a request that was answered by
     * batch_answered; whatever may write pages of a pull is held by pull_hold. */
    void (*pump)(struct transport *t, uint32_t peer_link);
    /* Forgets all batches of that pull, whose slots may be used again at once. What may still
     * write its pages is cancelled or waited for, and its hold is released only when nothing of
     * that kind can happen any more. */
    void (*drop)(struct transport *t, uint32_t pull);
    /* Does anything of it hold that pull? Asked to cross-check the count of holds. */
    bool (*holds)(const struct transport *t, uint32_t pull);
    bool (*reads)(const struct transport *t, uint32_t serve); /* likewise; NULL: nothing does */
    /* The core stopped a serve: nothing may begin to read its pages. What already reads them is
     * cancelled or waited for, and holds the serve until then. NULL: `over` does it. */
    void (*serve_stopped)(struct transport *t, struct serve_id serve);

    /* From here on NULL means that there is nothing to do. */
    void (*link_down)(struct transport *t, uint32_t peer_link); /* after its pulls broke */
    void (*tick)(struct transport *t, uint64_t now_ns);         /* enforces its own deadlines */
    bool (*poll)(struct transport *t);                          /* as xfer_poll */
    void (*page_in)(struct transport *t, uint64_t bytes); /* a page that it brought was right */

    /* Does it carry pages of a link? If not, ret->transport stays NULL. NULL: it carries all. */
    void (*link_view)(const struct transport *t, uint32_t peer_link, struct xfer_link_view *ret);

    /* Of one with paths: as the functions of xfer.h with these names. */
    void (*link_transport)(struct transport *t, uint32_t peer_link, uint64_t tenants,
                           bool peer_rdma);
    void (*path_msg)(struct transport *t, uint32_t peer_link, const struct xfer_path_msg *msg);
    void (*peer_down)(struct transport *t, uint32_t peer_link);
    bool (*path_view)(const struct transport *t, uint32_t peer_link, uint32_t i,
                      struct xfer_path_view *ret);
    void (*rdma_view)(const struct transport *t, struct xfer_rdma_view *ret);
    /* How its i-th NIC knows ret->region of ret->tenant. False: there are not so many. */
    bool (*registration_view)(const struct transport *t, uint32_t i,
                              struct xfer_registration_view *ret);
};

extern const struct transport_ops local_transport; /* of the link that a daemon has to itself */
/* All that are built in, best first; ends with NULL. */
extern const struct transport_ops *const transports_built[];

#endif
