/* The state machines that all transports share: a pull at its destination, a serve at its source, a
 * batch of pages, a data connection, and the request that a connection's source side works on.
 * base/states.h explains the tables. */
#ifndef SEAM_XFER_STATES_H
#define SEAM_XFER_STATES_H

#include "base/states.h"

/* The seam's pull at its destination; the core has another machine for it. */
#define XFER_PULL_STATE_TABLE(X)                                                                   \
    X(XFER_PULL, IDLE, TO(XFER_PULL, ACTIVE) | TO(XFER_PULL, STOPPING),                            \
      "nothing is asked for and nothing arrives")                                                  \
    X(XFER_PULL, ACTIVE, TO(XFER_PULL, BROKEN) | TO(XFER_PULL, STOPPING) | TO(XFER_PULL, IDLE),    \
      "its batches are asked for; idle at once if the slot's next pull begins")                    \
    X(XFER_PULL, BROKEN, TO(XFER_PULL, STOPPING) | TO(XFER_PULL, IDLE),                            \
      "the core was told that it broke; it asks for nothing more")                                 \
    X(XFER_PULL, STOPPING, TO(XFER_PULL, IDLE),                                                    \
      "the core has stopped it; idle once nothing can write its pages any more")

STATE_MACHINE(xfer_pull, XFER_PULL, XFER_PULL_STATE_TABLE)

/* The seam's serve at its source; the core has another machine for it. */
#define XFER_SERVE_STATE_TABLE(X)                                                                  \
    X(XFER_SERVE, NONE, TO(XFER_SERVE, SERVING) | TO(XFER_SERVE, STOPPING),                        \
      "no serve has this slot")                                                                    \
    X(XFER_SERVE, SERVING, TO(XFER_SERVE, STOPPING) | TO(XFER_SERVE, NONE),                        \
      "peers may ask for its pages")                                                               \
    X(XFER_SERVE, STOPPING, TO(XFER_SERVE, NONE),                                                  \
      "the core has stopped it; none once nothing can read its pages any more")

STATE_MACHINE(xfer_serve, XFER_SERVE, XFER_SERVE_STATE_TABLE)

/* Pages of one pull that the core requested by one action. */
#define BATCH_STATE_TABLE(X)                                                                       \
    X(BATCH, FREE, TO(BATCH, QUEUED), "no batch has this slot")                                    \
    X(BATCH, QUEUED, TO(BATCH, ASKED) | TO(BATCH, QUEUED) | TO(BATCH, FREE),                       \
      "in the queue of a transport, which has not asked for all of its pages; queued again if "    \
      "another one is to ask for them anew")                                                       \
    X(BATCH, ASKED, TO(BATCH, FREE) | TO(BATCH, QUEUED),                                           \
      "all of its pages were asked for, and not all were answered; queued again if some were "     \
      "lost with their connection, or another transport is to ask for them anew")

STATE_MACHINE(batch, BATCH, BATCH_STATE_TABLE)

/* A connection for frames about pages and, over TCP, for the pages; separate from the control
 * connection between the same daemons. */
#define DATA_CONN_STATE_TABLE(X)                                                                   \
    X(DATA_CONN, FREE, TO(DATA_CONN, CONNECTING) | TO(DATA_CONN, OPEN),                            \
      "no connection has this slot")                                                               \
    X(DATA_CONN, CONNECTING, TO(DATA_CONN, OPEN) | TO(DATA_CONN, CLOSING), "we call a peer")       \
    X(DATA_CONN, OPEN, TO(DATA_CONN, CLOSING), "frames and pages may travel")                      \
    X(DATA_CONN, CLOSING, TO(DATA_CONN, FREE),                                                     \
      "shut down; free once the kernel has none of our memory for it")

STATE_MACHINE(data_conn, DATA_CONN, DATA_CONN_STATE_TABLE)

/* A place for one of a transport's data connections to a peer, whichever connection is in it. */
#define DATA_PATH_STATE_TABLE(X)                                                                   \
    X(DATA_PATH, NONE, TO(DATA_PATH, CALLING), "not called: nothing has needed it")                \
    X(DATA_PATH, CALLING, TO(DATA_PATH, UP) | TO(DATA_PATH, RETIRED) | TO(DATA_PATH, NONE),        \
      "its connection is being made")                                                              \
    X(DATA_PATH, UP, TO(DATA_PATH, RETIRED) | TO(DATA_PATH, NONE), "what is asked may go over it") \
    X(DATA_PATH, RETIRED, TO(DATA_PATH, CALLING) | TO(DATA_PATH, NONE),                            \
      "it failed: the other paths go on, and it is called again after a pause")

STATE_MACHINE(data_path, DATA_PATH, DATA_PATH_STATE_TABLE)

/* A peer's request on a data connection, at the source; not a request of the protocol. */
#define DATA_REQUEST_STATE_TABLE(X)                                                                \
    X(DATA_REQUEST, HELLO, TO(DATA_REQUEST, NONE), "the caller has not said its token")            \
    X(DATA_REQUEST, NONE,                                                                          \
      TO(DATA_REQUEST, PAGES) | TO(DATA_REQUEST, META) | TO(DATA_REQUEST, WAITS),                  \
      "no request is in work")                                                                     \
    X(DATA_REQUEST, PAGES, TO(DATA_REQUEST, META), "the answer goes out, page bytes with it")      \
    X(DATA_REQUEST, META,                                                                          \
      TO(DATA_REQUEST, NONE) | TO(DATA_REQUEST, PAGES) | TO(DATA_REQUEST, META),                   \
      "the rest of an answer goes out, and no page byte; the next request may be begun")           \
    X(DATA_REQUEST, WAITS, TO(DATA_REQUEST, NONE),                                                 \
      "its transport waits for something before it answers")

STATE_MACHINE(data_request, DATA_REQUEST, DATA_REQUEST_STATE_TABLE)

#endif
