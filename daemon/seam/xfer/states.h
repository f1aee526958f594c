/* The state machines that all transports share: a pull at its destination (inflow), a serve at its
 * source (outflow), a batch of pages, a data connection and the request that its source side works
 * on. Each table is written once: name, legal next states, what it means. A move that the table
 * does not have is a failed check. docs/states.md shows the same. */
#ifndef SEAM_XFER_STATES_H
#define SEAM_XFER_STATES_H

#include <stdint.h>

/* X(name, legal next, comment) */
#define INFLOW_TO(s) (1u << INFLOW_##s)
/* What the seam keeps of a pull at its destination; the core has another machine for it. */
#define INFLOW_STATE_TABLE(X)                                                                      \
    X(IDLE, INFLOW_TO(ACTIVE) | INFLOW_TO(STOPPING), "nothing is asked for and nothing arrives")   \
    X(ACTIVE, INFLOW_TO(BROKEN) | INFLOW_TO(STOPPING) | INFLOW_TO(IDLE),                           \
      "its batches are asked for; idle at once if the slot's next pull begins")                    \
    X(BROKEN, INFLOW_TO(STOPPING) | INFLOW_TO(IDLE),                                               \
      "the core was told that it broke; it asks for nothing more")                                 \
    X(STOPPING, INFLOW_TO(IDLE),                                                                   \
      "the core has stopped it; idle once nothing can write its pages any more")

#define OUTFLOW_TO(s) (1u << OUTFLOW_##s)
/* What the seam keeps of a serve at its source; the core has another machine for it. */
#define OUTFLOW_STATE_TABLE(X)                                                                     \
    X(NONE, OUTFLOW_TO(SERVING) | OUTFLOW_TO(STOPPING), "no serve has this slot")                  \
    X(SERVING, OUTFLOW_TO(STOPPING) | OUTFLOW_TO(NONE), "peers may ask for its pages")             \
    X(STOPPING, OUTFLOW_TO(NONE),                                                                  \
      "the core has stopped it; none once nothing can read its pages any more")

#define BATCH_TO(s) (1u << BATCH_##s)
/* Pages of one pull that the core asked for by one action. */
#define BATCH_STATE_TABLE(X)                                                                       \
    X(FREE, BATCH_TO(QUEUED), "no batch has this slot")                                            \
    X(QUEUED, BATCH_TO(ASKED) | BATCH_TO(MOVING) | BATCH_TO(FREE),                                 \
      "in the queue of a transport, which has not asked for all of its pages")                     \
    X(ASKED, BATCH_TO(VERIFYING) | BATCH_TO(MOVING) | BATCH_TO(FREE),                              \
      "all of its pages were asked for, and not all were answered")                                \
    X(VERIFYING, BATCH_TO(FREE), "all pages were answered; the memory owes verdicts of some")      \
    X(MOVING, BATCH_TO(QUEUED) | BATCH_TO(FREE),                                                   \
      "to be asked for anew by another transport, when the memory has verified what had come")

#define DATA_CONN_TO(s) (1u << DATA_CONN_##s)
/* A connection for frames about pages and, over TCP, for the pages; apart from the control
 * connection between the same daemons. */
#define DATA_CONN_STATE_TABLE(X)                                                                   \
    X(FREE, DATA_CONN_TO(CONNECTING) | DATA_CONN_TO(OPEN), "no connection has this slot")          \
    X(CONNECTING, DATA_CONN_TO(OPEN) | DATA_CONN_TO(CLOSING), "we call a peer")                    \
    X(OPEN, DATA_CONN_TO(CLOSING), "frames and pages may travel")                                  \
    X(CLOSING, DATA_CONN_TO(FREE), "shut down; free once the kernel has none of our memory for it")

#define REQUEST_TO(s) (1u << REQUEST_##s)
/* What a peer asks for on a data connection, seen at the source; no request of the protocol. */
#define REQUEST_STATE_TABLE(X)                                                                     \
    X(HELLO, REQUEST_TO(NONE), "the caller has not said its token")                                \
    X(NONE, REQUEST_TO(PAGES) | REQUEST_TO(META) | REQUEST_TO(WAITS), "no request is in work")     \
    X(PAGES, REQUEST_TO(META), "the answer goes out, page bytes with it")                          \
    X(META, REQUEST_TO(NONE) | REQUEST_TO(PAGES) | REQUEST_TO(META),                               \
      "the rest of an answer goes out, and no page byte; the next request may be begun")           \
    X(WAITS, REQUEST_TO(NONE), "its transport waits for something before it answers")

#define X(name, next, comment) INFLOW_##name,
enum inflow_state { INFLOW_STATE_TABLE(X) INFLOW_STATES };
#undef X
#define X(name, next, comment) OUTFLOW_##name,
enum outflow_state { OUTFLOW_STATE_TABLE(X) OUTFLOW_STATES };
#undef X
#define X(name, next, comment) BATCH_##name,
enum batch_state { BATCH_STATE_TABLE(X) BATCH_STATES };
#undef X
#define X(name, next, comment) DATA_CONN_##name,
enum data_conn_state { DATA_CONN_STATE_TABLE(X) DATA_CONN_STATES };
#undef X
#define X(name, next, comment) REQUEST_##name,
enum request_state { REQUEST_STATE_TABLE(X) REQUEST_STATES };
#undef X

struct inflow;
struct outflow;
struct batch;
struct data_conn;
struct data_request;

/* The only places that write a state. */
void inflow_move(struct inflow *f, enum inflow_state to);
void outflow_move(struct outflow *f, enum outflow_state to);
void batch_move(struct batch *b, enum batch_state to);
void data_conn_move(struct data_conn *conn, enum data_conn_state to);
void request_move(struct data_request *r, enum request_state to);

#endif
