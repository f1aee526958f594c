/* Connections of local clients: the processes of engines, and operators. They are accepted on Unix
 * sockets, greeted and counted; an engine's connection is tied to its process. A connection's slot
 * number is its id in the core. conn.c moves a connection through its states; the layer above
 * (request.c) processes frames. Owner thread only. */
#ifndef SHELL_CONN_H
#define SHELL_CONN_H

#include "base/states.h"
#include "core/core.h"
#include "seam/io/door.h"
#include "shell/config/config.h"
#include "shell/stream/listen.h"
#include "shell/stream/stream.h"

/* The states of a local client's connection. */
#define CLIENT_CONN_STATE_TABLE(X)                                                                 \
    X(CLIENT_CONN, FREE, TO(CLIENT_CONN, REFUSED) | TO(CLIENT_CONN, GREETING),                     \
      "no connection has the slot")                                                                \
    X(CLIENT_CONN, REFUSED, TO(CLIENT_CONN, CLOSED),                                               \
      "its Hello is refused, and then it is closed; the core does not know it")                    \
    X(CLIENT_CONN, GREETING, TO(CLIENT_CONN, OPEN) | TO(CLIENT_CONN, CLOSED),                      \
      "the core knows it; its Hello is due")                                                       \
    X(CLIENT_CONN, OPEN, TO(CLIENT_CONN, CLOSED),                                                  \
      "its Hello was accepted, and it may send requests")                                          \
    X(CLIENT_CONN, CLOSED, TO(CLIENT_CONN, FREE),                                                  \
      "the core knows that it ended; the ring still has operations of it, or its last answer "     \
      "with descriptors is unread")

STATE_MACHINE(client_conn, CLIENT_CONN, CLIENT_CONN_STATE_TABLE)

#define HELLO_BODY_MAX         4096 /* body size limit before the greeting */
#define CONN_SEND_BUFFERS_MAX  160  /* buffers of 16 KiB for answers that wait for one connection */
#define ADMIN_SEND_BUFFERS_MAX 320  /* an operator's answer is larger */

struct daemon;
struct client_conn;

/* The states of a connection's bell. */
#define BELL_STATE_TABLE(X)                                                                        \
    X(BELL, NONE, TO(BELL, LISTENING), "the connection has no bell")                               \
    X(BELL, LISTENING, TO(BELL, DRAINING) | TO(BELL, ENDING) | TO(BELL, CLOSING),                  \
      "the ring polls the socket")                                                                 \
    X(BELL, DRAINING,                                                                              \
      TO(BELL, LISTENING) | TO(BELL, RESTING) | TO(BELL, DEAF) | TO(BELL, ENDING) |                \
          TO(BELL, CLOSING),                                                                       \
      "the bell rang, and a kernel thread reads the bytes")                                        \
    X(BELL, RESTING, TO(BELL, LISTENING) | TO(BELL, CLOSING),                                      \
      "its tenant's time for reading is used up: the steps are read every millisecond until the "  \
      "next tick")                                                                                 \
    X(BELL, DEAF, TO(BELL, CLOSING),                                                               \
      "the bell cannot be read: the steps are read every millisecond")                             \
    X(BELL, ENDING, TO(BELL, CLOSING), "the connection ended; the ring still holds the operation") \
    X(BELL, CLOSING, TO(BELL, NONE),                                                               \
      "the ring has finished with the socket, and a thread may still have to close it")

STATE_MACHINE(bell, BELL, BELL_STATE_TABLE)

#define BELL_WHY_BYTES 192 /* size of the reason why there is no bell */
/* The most time between two ticks, by the owner's clock, in which reads of a tenant's bells are in
 * progress. One read may exceed it. */
#define BELL_TICK_NS 5000000u

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

struct client_conn {
    struct stream stream;
    struct daemon *d;
    enum client_conn_state state;
    struct conn_share *share; /* of its tenant, or of the operators */
    uint32_t slot, tenant;    /* tenant NONE: an operator */
    uint32_t proc;            /* NONE: an operator */
    int32_t pid;              /* its process, for the log; 0: not visible */
    uint32_t uid;             /* the user of that process */
    uint32_t engine;          /* slot of the engine that it joined; NONE */
    struct client_bell bell;
    struct conn_fds fds;
    uint64_t last_request;
    uint64_t drain_request;  /* request that waits for the end of a drain; 0: none */
    uint64_t reload_request; /* request that waits for a reload; 0: none */
    enum tern_err refusal;
    const char *refusal_text; /* static */
    struct client_conn *next_free;
};

/* The connections of a tenant, or those of the operators. No tenant uses slots of another. */
struct conn_share {
    struct daemon *d;
    uint32_t tenant;         /* NONE: the operators */
    uint32_t open;           /* connections */
    uint32_t held;           /* slots in use: open, or ended and not free yet */
    uint32_t unread;         /* ended connections with an unread answer: see conn_fds_end */
    struct bell_reads reads; /* of their bells */
    struct listener listener;
    struct door *door;       /* owned; clients wait there until their Hello has arrived whole */
    struct door_stats shown; /* counts of the door that the log has reported */
    bool again;              /* a slot became free: clients that wait for a slot must try again */
};

struct client_conns {
    /* The layer above, set before the first connection: processes a frame of a greeted connection;
     * header and body are borrowed for the call. */
    void (*frame)(struct client_conn *c, const struct frame_header *h, const uint8_t *body);
    void (*closed)(struct client_conn *c); /* called once, when no further frame follows */
    struct client_conn *v;                 /* owned; [0, n) */
    uint32_t n, open;
    void (*quiet)(struct client_conn *c); /* frees an ended one's slot if nothing uses it */
    struct client_conn *free;
    struct client_conn *giving; /* list: their answers with a bell's client end are unsent */
    struct conn_share share[CONFIG_TENANTS_MAX + 1]; /* the operators' follows the tenants' */
    uint64_t brought;  /* connections ended because their client sent descriptors */
    uint64_t refused;  /* connections refused since the start: above a limit, or with a `refusal` */
    uint32_t internal; /* the core's connection for requests of the daemon itself: slot n */
};

enum tern_err conns_init(struct daemon *d);
enum tern_err conns_listen(struct daemon *d, char *why, size_t cap);
/* Makes the socket of a tenant that joins. On failure the tenant's slot is unchanged. */
enum tern_err conns_join(struct daemon *d, uint32_t tenant, const struct config_tenant *with,
                         char *why, size_t cap);
void conns_tick(struct daemon *d, uint64_t now_ns);
void conns_finish(struct daemon *d);
/* Text, static, for the log: how descriptors that clients send are refused (client_fds.h). */
const char *conns_descriptors(const struct daemon *d);

/* Returns NULL unless the core may answer on that connection. */
struct client_conn *conn_for_reply(struct daemon *d, uint32_t slot);
/* Closes the connections of a process. Call this before the core receives EV_PROC_GONE. */
void conns_close_proc(struct daemon *d, uint32_t proc);

static inline bool conn_is_admin(const struct client_conn *c)
{
    return c->tenant == NONE;
}

void conn_doors_destroy(struct daemon *d); /* runs the ring: call it before conns_finish */
void conn_doors_again(struct daemon *d);   /* call it outside a step of the core */
/* The name of the tenant, or "admin". */
const char *conn_share_name(const struct conn_share *s);
/* Logs the door's changes since `shown`. */
void door_log_change(const struct door_stats *now, const char *name, struct door_stats *shown);
/* Logs that processes of that tenant (or "admin") sent descriptors and were disconnected. */
void log_descriptors_sent(const char *name, uint64_t connections, int32_t pid);
/* Decides from the first bytes on a socket whether its first frame is whole. */
enum door_verdict frame_at_door(void *ctx, const uint8_t *bytes, uint32_t n);

/* Sends the frame in d->frame. Returns false if the connection is closed now. */
bool conn_send(struct client_conn *c, size_t n, const int *fds, uint32_t nfds);
bool conn_send_status(struct client_conn *c, const struct frame_header *request, enum tern_err err,
                      const char *text);
/* Decodes a request that the shell itself answers (wire_in_message). A malformed one is answered
 * and ends the connection; then this returns NULL. */
const void *conn_decode(struct client_conn *c, const struct frame_header *h, const uint8_t *body);

/* ---- bell.c: the bell of a connection, and the descriptors that an answer carries. A rank rings
 * by one byte on a socket of its own: the daemon keeps one end, the client gets the other with its
 * first PoolMap. conn.c, dispatch.c and request.c call this. Invariants: the daemon shares no open
 * file description with a client; a connection has at most one unread answer that carries
 * descriptors, also after the connection has ended. ---- */

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

/* ---- tenant_join.c: a tenant that joins while the daemon runs takes a free slot of the reserve
 * (shell/config/config_derive.c). The slot's memory, shares and tables exist from the start, so the
 * tenant needs only a name and a socket. ---- */

#define TENANT_WHY_BYTES 1024

/* Returns why a new configuration's tenant needs a restart, maybe in `text`; NULL: no restart. */
const char *tenant_needs_restart(const struct daemon *d, const struct config_change *change,
                                 char text[TENANT_WHY_BYTES]);
/* tenant_may_join checks, without changes, whether the tenant could join; tenant_join adds it. On
 * failure its slot stays free, and `why` receives what to do before the next attempt. */
enum tern_err tenant_may_join(const struct daemon *d, const struct config_tenant *tenant,
                              char why[TENANT_WHY_BYTES]);
enum tern_err tenant_join(struct daemon *d, uint32_t slot, const struct config_tenant *tenant,
                          char why[TENANT_WHY_BYTES]);

#endif
