/* Control connections between daemons, over TCP. Links [0, peers) are outbound, one for each slot
 * of peers. This daemon redials each peer with a capped, jittered pause, and dials all peers
 * together no faster than LINK_DIALS_PER_S (fault 11). The other links are inbound: each names its
 * node, which must be configured here and, with TLS, be named by its certificate. The daemon that
 * dials pulls, so two daemons that fetch from each other have two links. A link's slot is its id in
 * the core and in the transfer seam. Messages are numbered; a repeated or skipped number ends the
 * link. Owner thread only. */
#ifndef SHELL_LINK_H
#define SHELL_LINK_H

#include <sys/socket.h>

#include "base/fifo.h"
#include "base/prng.h"
#include "base/states.h"
#include "core/core.h"
#include "seam/io/door.h"
#include "seam/io/resolve.h"
#include "seam/xfer/xfer.h"
#include "shell/config/config.h"
#include "shell/stream/listen.h"
#include "shell/stream/stream.h"

/* The states of a link between two daemons. */
#define PEER_LINK_STATE_TABLE(X)                                                                   \
    X(PEER_LINK, IDLE,                                                                             \
      TO(PEER_LINK, RESOLVING) | TO(PEER_LINK, DIALLING) | TO(PEER_LINK, SECURING) |               \
          TO(PEER_LINK, VACANT),                                                                   \
      "an outbound link waits for its next attempt; an inbound one is free")                       \
    X(PEER_LINK, RESOLVING, TO(PEER_LINK, DIALLING) | TO(PEER_LINK, IDLE),                         \
      "the name of the peer is being resolved")                                                    \
    X(PEER_LINK, DIALLING,                                                                         \
      TO(PEER_LINK, SECURING) | TO(PEER_LINK, CANCELLING) | TO(PEER_LINK, IDLE),                   \
      "a connect is under way")                                                                    \
    X(PEER_LINK, CANCELLING, TO(PEER_LINK, SECURING) | TO(PEER_LINK, IDLE),                        \
      "the connect took too long and is being cancelled; it may still succeed")                    \
    X(PEER_LINK, SECURING, TO(PEER_LINK, GREETING) | TO(PEER_LINK, CLOSED),                        \
      "connected; the TLS handshake is under way")                                                 \
    X(PEER_LINK, GREETING, TO(PEER_LINK, UP) | TO(PEER_LINK, CLOSED),                              \
      "the other side's hello is due")                                                             \
    X(PEER_LINK, UP, TO(PEER_LINK, OVERFLOWED) | TO(PEER_LINK, CLOSED), "the core knows the link") \
    X(PEER_LINK, OVERFLOWED, TO(PEER_LINK, CLOSED),                                                \
      "as UP, but a message of an RDMA path found no room: the next tick closes the link")         \
    X(PEER_LINK, CLOSED, TO(PEER_LINK, IDLE),                                                      \
      "the stream has ended; the ring still holds its operations")                                 \
    X(PEER_LINK, VACANT, TO(PEER_LINK, IDLE), "an outbound link whose slot has no peer")

STATE_MACHINE(peer_link, PEER_LINK, PEER_LINK_STATE_TABLE)

#define LINK_BODY_MAX         (FRAME_BODY_MAX + (128u << 10)) /* PULL_OPEN with tokens and keys */
#define LINK_SEND_BUFFERS_MAX 256 /* buffers of 16 KiB for messages that wait for one peer */
#define LINK_MESSAGE_BUFFERS                                                                       \
    ((FRAME_HEADER_BYTES + LINK_BODY_MAX) / SEND_BUFFER_BYTES + 2) /* of those: one message */
#define LINK_ADDRS_MAX        RESOLVE_ADDRS_MAX
#define LINK_REDIAL_MIN_NS    100000000u /* doubled up to the cap, plus or minus a quarter */
#define LINK_REDIAL_MAX_NS    5000000000u
#define LINK_DIALS_MAX        1024u        /* attempts under way, over all peers */
#define LINK_DIALS_PER_S      200u         /* attempts that begin in a second, over all peers */
#define LINK_DIAL_NS          5000000000u  /* timeout of a connect */
#define LINK_RESOLVE_NS       10000000000u /* timeout of resolving */
#define LINK_RESOLVE_AGAIN_NS 1000000000u  /* the same, if the last addresses have worked */
#define LINK_PING_NS          1000000000u  /* interval between pings of the dialling side */
#define LINK_SILENT_NS        5000000000u  /* a link is down after so long without a message */
#define LINK_STEADY_NS        5000000000u  /* up for so long: the next pause is short again */
#define LINK_HANDSHAKE_NS     250000000u   /* a longer handshake may be closed for others */
#define LINK_CAUSE_BYTES      160          /* size of the text that explains why a link is not up */

struct daemon;

/* The lists of inbound links for the door. */
enum link_list_kind {
    LINKS_OTHER = 0, /* links that are up and all outbound links: in no list */
    LINKS_IDLE,
    LINKS_SHAKING, /* in a handshake, the oldest first */
    LINKS_ENDED,   /* ended and not yet free; only counted */
    LINK_LISTS,
};

struct link_list {
    struct fifo links;
    uint32_t n;
};

/* Faults of a peer, or of callers that have named no node. */
struct link_faults {
    uint64_t refused[TLS_REFUSALS]; /* refused connections */
    uint64_t breaches; /* of the protocol: ended connections, and errors that a peer may not send */
};

struct peer_link {
    struct stream stream;
    struct daemon *d;
    enum peer_link_state state;
    uint32_t slot;
    uint32_t peer; /* index in the configuration; NONE until an inbound link has named its node */
    bool rdma;     /* the peer has an RDMA device */
    enum link_list_kind list;
    struct fifo_link listed; /* in that list */
    uint64_t incarnation;    /* of the peer; 0 unless the link is up */
    uint64_t sent, received; /* sequence numbers */
    uint64_t heard_ns, pinged_ns, up_ns, opened_ns;
    uint64_t pings;
    struct tls_session *tls; /* NULL: in the clear, or not connected */
    uint64_t data_token;     /* token that the dialling side's data connections must present */

    /* Outbound only: why the link is not up, since when, and the attempts that failed since. */
    char cause[LINK_CAUSE_BYTES]; /* "": the link is up, or nothing has failed yet */
    bool cause_known;             /* the cause was set before this connection ended */
    bool no_data;                 /* the link is up, and the last call of its data port failed */
    uint32_t attempts;
    uint64_t down_ns;
    int dial_errno[LINK_ADDRS_MAX]; /* errno of the last connect to each address, as logged */

    uint64_t fallen; /* bits of tenants whose pages used a fallback when the link was last up */

    struct io_op dial;
    int dial_fd;
    uint64_t pause_ns; /* last pause between two attempts */
    struct sockaddr_storage addr[LINK_ADDRS_MAX];
    socklen_t addr_len[LINK_ADDRS_MAX];
    uint32_t naddrs, next_addr; /* next_addr == naddrs: the name is resolved next */
    bool named;                 /* the address is a name, resolved before each round of attempts */
    bool moved; /* the peer's configuration changed: this attempt or connection ends */
    char resolve_error[RESOLVE_TEXT]; /* why the name did not resolve, as logged */
};

/* The rate of dialling, over all peers. */
struct dial_pace {
    uint32_t under_way, may_begin; /* attempts */
    uint64_t filled_ns;            /* may_begin counts the time up to this */
    uint32_t next; /* the link that the next tick examines first, so that all get a turn */
};

struct peer_links {
    struct peer_link *v; /* owned */
    uint64_t *due_ns;    /* owned; when the tick examines that link: link_due */
    uint32_t n, peers;
    uint32_t leaving; /* peers */
    struct dial_pace pace;
    struct link_list list[LINK_LISTS]; /* see link_listed */
    struct tls *tls;                   /* owned; NULL: in the clear */
    uint32_t expiry_told;      /* EXPIRY_STAGES of our certificate that the log has reported */
    struct resolver *resolver; /* owned; NULL: no peer's address is a name */
    void (*connected)(struct peer_link *l, int fd); /* called when a dial succeeds; takes over fd */
    const char *names[CONFIG_PEERS_MAX];
    uint64_t lives[CONFIG_PEERS_MAX]
                  [2]; /* incarnations that dialled us: the last one and the one before */
    struct link_faults faults[CONFIG_PEERS_MAX + 1]; /* by peer; the last: callers without a name */
    /* Logged data connections: refused, over their link's share, and the door's. */
    uint64_t data_refused, data_over_share;
    struct door_stats data_door_shown;
    struct listener listener;
    struct door *door; /* owned; callers without a whole first message; NULL: no listener */
    struct door_stats door_shown; /* counts that the log has reported */
    bool door_again;              /* an inbound link became free */
    struct prng prng;
};

enum tern_err links_init(struct daemon *d, char *why, size_t cap);
enum tern_err links_listen(struct daemon *d, char *why, size_t cap);
void links_tick(struct daemon *d, uint64_t now_ns);
/* link_door.c: callers wait at the door until their first message is whole. */
enum tern_err links_door_create(struct daemon *d);
void links_names_finish(struct daemon *d); /* before links_finish; waits for no name service */
void links_door_again(struct daemon *d);   /* outside a step of the core */
void links_door_tick(struct daemon *d, uint64_t now_ns);
void links_finish(struct daemon *d);

/* link_members.c: peers that join, change and leave while the daemon runs. */
/* Returns why that peer needs a restart or cannot join now (static), or NULL if it can join. */
const char *links_unfit(const struct daemon *d, const struct config_peer *peer);
uint32_t links_free(const struct daemon *d); /* number of free slots */
/* Adds a peer that links_unfit accepted and whose name no peer has. There must be a free slot. */
void links_join(struct daemon *d, const struct config_peer *peer);
/* Applies a changed entry of the peer: ends its links, which are then made anew. */
void links_change(struct daemon *d, uint32_t slot, const struct config_peer *to);
/* Ends the peer's links; the slot is free when nothing refers to it any more. */
void links_leave(struct daemon *d, uint32_t slot);
void links_members_init(struct daemon *d); /* after links_init */
void links_members_tick(struct daemon *d);

void link_send(struct daemon *d, uint32_t slot,
               const struct peer_msg *msg); /* the message is dropped unless the link is up */
void link_close(struct daemon *d, uint32_t slot, const char *why);
bool link_up(const struct peer_link *l);
bool link_serves(const struct peer_link *l); /* up, and pages can be fetched from the peer */
/* Logs whether the data port of that peer can be reached. */
void link_data_dialled(void *ctx, uint32_t slot, uint16_t port, int error);
/* link_path.c: messages between xfer and the peer's xfer. */
void link_path_send(void *ctx, uint32_t slot, const struct xfer_path_msg *msg);
void link_path_note(void *ctx, uint32_t slot, const struct xfer_note *note);
/* Returns true if a tenant's pages come from that peer by another transport than RDMA although the
 * peer's transport is `auto`, which tries RDMA first. */
bool link_falls_back(const struct daemon *d, uint32_t peer);
void link_path_changed(void *ctx, uint32_t slot, const struct xfer_path_view *path);

/* The state of an outbound link, for operators. */
const char *link_state_name(const struct peer_link *l);
/* peer NONE: callers that had not named their node. */
struct link_faults *links_faults(struct daemon *d, uint32_t peer);
/* Reads the certificates that `from` names again; links that are up stay up. Does nothing if peers
 * talk in the clear. On an error, and after a dry run, the certificates in force stay. *ret: the
 * certificate read; unchanged if peers talk in the clear. */
enum tern_err links_reload(struct daemon *d, const struct config *from, bool dry_run,
                           struct tls_own *ret, char *why, size_t cap);
/* TLS of the outbound link to that peer. Returns false if the link is not up or in the clear. */
bool link_tls_peer(struct daemon *d, uint32_t peer, struct tls_peer *ret);

#endif
