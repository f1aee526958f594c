/* The interface between transfers and the transports that carry their pages. transfers.h has the
 * parts that all transports share (pulls, serves, batches, deadlines, proofs of quiet); these
 * operations implement the differences. A transport includes no other transport's header and calls
 * none.
 *
 * To add a transport: its own folder of files, its line in transports.c, and its library in
 * daemon/seam/CMakeLists.txt if it needs one. XFER_AUTO then offers it batches in the order of
 * transports.c. If operators are to select it by name, it also needs a row in XFER_TRANSPORT_TABLE
 * of xfer.h. Owner thread only; nothing is allocated after `create`. */
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
    uint32_t lane; /* its index in transports.c, and its lane of every peer link; batches are
                      offered to lower indices first */
    void *own;     /* owned by the transport; NULL: not in use, so offered no batch */
};

#define DATA_SERVICE_FRAMES 2

/* The source's side of data connections, for a transport whose requests are frames. */
struct data_service {
    uint16_t frame[DATA_SERVICE_FRAMES]; /* enum xfer_frame: the requests that it answers */
    /* conn->request has a request of such a frame. Answers it at once or lets it wait. Returns
     * false if it breaks the protocol; the connection ends. */
    bool (*begin)(struct transport *t, struct data_conn *conn);
    /* For a request in state PAGES: adds the next page bytes, after the bytes still in meta. */
    void (*gather)(struct data_conn *conn, struct data_gather *g);
    /* The kernel has taken n of these bytes. Returns true if there are more. */
    bool (*sent)(struct data_conn *conn, uint64_t n);
    /* The kernel has taken all of them. Puts the rest of the answer into meta. */
    void (*end)(struct data_conn *conn);
    /* The serve of the current request ended, or (`lost`) one of its pages has no memory behind it.
     * From here on the transport reads none of its pages. */
    void (*over)(struct transport *t, struct data_conn *conn, bool lost);
};

struct transport_ops {
    const char *name;              /* in views and logs */
    enum xfer_transport asked_for; /* besides AUTO; AUTO: not selectable by name */
    bool rdma;           /* makes paths (xfer.h has functions on them); at most one transport */
    bool reshards;       /* carries pages between pools of different layouts */
    uint32_t conn_bytes; /* of its state for a data connection that it calls; 0: calls none */
    const struct data_service *service; /* NULL: takes no request frames */

    /* Returns the bytes that `create` allocates. NULL: none. */
    uint64_t (*bytes)(const struct xfer_config *config, uint32_t sums_per_page);
    /* Returns how many tasks of plain work (io_threads.h) it may have at a time. NULL: none. */
    uint32_t (*works)(const struct xfer_config *config);
    /* Returns OK and leaves t->own NULL if the transport is not in use here. */
    enum tern_err (*create)(struct transport *t);
    /* Ends all operations: on return nothing reads or writes a page for the transport. Called also
     * if `create` failed. Before the call all data connections have ended, and all tasks have
     * returned. */
    void (*destroy)(struct transport *t);

    /* Returns true if a batch of that pool can use it on that link, now or soon. NULL: always. */
    bool (*takes)(const struct transport *t, uint32_t peer_link, uint32_t pool);
    /* The transport's lane of the peer link has queued batches or new room: requests as much as it
     * can now. The transport reports pages by arrival_* and answered requests by batch_answered,
     * and holds a pull (pull_hold) for each operation that may write its pages. */
    void (*pump)(struct transport *t, uint32_t peer_link);
    /* Forgets all batches of that pull, because their slots may be reused at once. Operations that
     * may still write its pages are cancelled or waited for; the hold is released when none can
     * write any more. */
    void (*drop)(struct transport *t, uint32_t pull);
    /* Returns true if the transport holds that pull. Cross-checks the count of holds. */
    bool (*holds)(const struct transport *t, uint32_t pull);
    bool (*reads)(const struct transport *t, uint32_t serve); /* as holds, for reads; NULL: never */

    /* In the next three, NULL means that there is nothing to do. */
    void (*link_down)(struct transport *t, uint32_t peer_link); /* after the link's pulls broke */
    void (*tick)(struct transport *t, uint64_t now_ns);         /* enforces its own deadlines */
    bool (*poll)(struct transport *t);                          /* like xfer_poll */

    /* Fills in *ret; ret->transport stays NULL if no page uses the transport. NULL: it carries all
     * pages. */
    void (*link_view)(const struct transport *t, uint32_t peer_link, struct xfer_link_view *ret);
};

extern const struct transport_ops local_transport; /* for a daemon's link to itself */
/* All transports of this build, best first; ends with NULL. */
extern const struct transport_ops *const transports_built[];

#endif
