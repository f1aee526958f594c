/* The bell of a connection, and the descriptors that an answer carries. A rank rings by one byte on
 * a socket of its own: the daemon keeps one end, the client gets the other with its first PoolMap.
 * conn.c, dispatch.c and request.c call this; owner thread only. Invariants: the daemon shares no
 * open file description with a client; a connection has at most one unread answer that carries
 * descriptors, also after the connection has ended. */
#ifndef SHELL_BELL_H
#define SHELL_BELL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/states.h"
#include "base/tern_err.h"
#include "seam/io/io.h"

/* The states of a connection's bell. */
#define BELL_STATE_TABLE(X)                                                                        \
    X(BELL, NONE, TO(BELL, LISTENING), "the connection has no bell")                               \
    X(BELL, LISTENING, TO(BELL, DRAINING) | TO(BELL, ENDING) | TO(BELL, CLOSING),                  \
      "the ring polls the socket")                                                                 \
    X(BELL, DRAINING,                                                                              \
      TO(BELL, LISTENING) | TO(BELL, RESTING) | TO(BELL, DEAF) | TO(BELL, ENDING) |                \
          TO(BELL, CLOSING),                                                                       \
      "the bell rang, and a thread of the kernel reads the bytes")                                 \
    X(BELL, RESTING, TO(BELL, LISTENING) | TO(BELL, CLOSING),                                      \
      "reading used up its tenant's time: the steps are read every millisecond until the tick")    \
    X(BELL, DEAF, TO(BELL, CLOSING),                                                               \
      "the bell cannot be read: the steps are read every millisecond")                             \
    X(BELL, ENDING, TO(BELL, CLOSING), "the connection ended; the ring still holds the operation") \
    X(BELL, CLOSING, TO(BELL, NONE),                                                               \
      "the ring has finished with the socket, which a thread may have to close")

STATE_MACHINE(bell, BELL, BELL_STATE_TABLE)

#define BELL_WHY_BYTES 192 /* size of the reason why there is no bell */
/* Between two ticks, reads of a tenant's bells are in progress for at most so long, as the owner
 * measures it, plus one read. */
#define BELL_TICK_NS 5000000u

struct client_conn;
struct daemon;

/* The reads of a tenant's bells. Several at once count as one. */
struct bell_reads {
    uint32_t n;         /* in progress */
    uint64_t since_ns;  /* n > 0: start of the continuous reads, or the last tick */
    uint64_t passed_ns; /* time of earlier reads since the tick */
};

struct client_bell {
    struct io_op op;
    enum bell_state state;
    int fd;       /* owned; -1: none */
    uint8_t byte; /* first byte of a packet, ignored; the kernel drops the rest */
};

/* The last answer with descriptors. */
struct conn_fds {
    uint64_t unread_at; /* end of that answer in the stream's queued_bytes; 0: it was read */
    int given;          /* the client's end, owned until the kernel has accepted the answer; -1 */
    int ended;          /* owned socket of an ended connection with an unread answer; -1 */
    bool closing;       /* the closer has that socket */
    struct client_conn *next; /* in client_conns.giving */
};

/* Returns the third descriptor of a PoolMap's answer: the client's end of a new bell or, if the
 * client still has this connection's bell, /dev/null. We own it until the answer is sent. On
 * failure `why` receives what is missing. */
enum tern_err bell_give(struct client_conn *c, int *ret_fd, char why[BELL_WHY_BYTES]);
/* Ends the bell of a connection that has ended. */
void bell_end(struct client_conn *c);
/* Polls a rested bell again. */
void bell_tick(struct client_conn *c);

/* Call when an answer with descriptors was queued as the stream's last frame. */
void conn_fds_queued(struct client_conn *c);
/* Call when that answer was not sent after all. */
void conn_fds_unsent(struct client_conn *c);
/* Returns true if the other side has not read the last answer with descriptors. */
bool conn_fds_unread(struct client_conn *c);
/* Closes the ends that clients have received. Call it once a turn. */
void conn_fds_sent(struct daemon *d);
/* Keeps the socket of an ended connection while its answer is unread. The kernel counts the
 * descriptors in the socket for us, and only the socket shows when they are gone. */
void conn_fds_end(struct client_conn *c);
/* Checks whether the answer of an ended connection has been read. */
void conn_fds_look(struct client_conn *c);

#endif
