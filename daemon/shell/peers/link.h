/* Control connections between daemons, over TCP. Links [0, peers) are outbound, one for each slot
 * of peers: we dial those that there are, again and again with a capped, jittered pause, and all of
 * them together no faster than LINK_DIALS_PER_S (fault 11). Links above are inbound: each names its
 * node, which has to be configured here and, with TLS, named by its certificate. The daemon that
 * dials is the one that pulls, so two daemons that fetch from each other have two links. A link's
 * slot is its id in the core and in the transfer seam. Messages are numbered; a repeated or skipped
 * one ends the link. Owner thread only. */
#ifndef SHELL_LINK_H
#define SHELL_LINK_H

#include <sys/socket.h>

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
    X(PEER_LINK, VACANT, TO(PEER_LINK, IDLE), "an outbound link of a slot of peers that nobody has")

STATE_MACHINE(peer_link, PEER_LINK, PEER_LINK_STATE_TABLE)

#define LINK_BODY_MAX         (FRAME_BODY_MAX + (128u << 10)) /* a PULL_OPEN with its tokens and keys */
#define LINK_SEND_BUFFERS_MAX 256 /* of 16 KiB: messages that wait for one peer */
#define LINK_MESSAGE_BUFFERS                                                                       \
    ((FRAME_HEADER_BYTES + LINK_BODY_MAX) / SEND_BUFFER_BYTES + 2) /* of those: one message */
#define LINK_ADDRS_MAX        RESOLVE_ADDRS_MAX
#define LINK_REDIAL_MIN_NS    100000000u /* doubled up to the cap, plus or minus a quarter */
#define LINK_REDIAL_MAX_NS    5000000000u
#define LINK_DIALS_MAX        1024u        /* attempts under way, over all peers */
#define LINK_DIALS_PER_S      200u         /* attempts that begin in a second, over all peers */
#define LINK_DIAL_NS          5000000000u  /* a connect that takes longer is given up */
#define LINK_RESOLVE_NS       10000000000u /* resolving a name that takes longer has failed */
#define LINK_RESOLVE_AGAIN_NS 1000000000u  /* the same where its last addresses have worked */
#define LINK_PING_NS          1000000000u  /* the dialling side pings that often */
#define LINK_SILENT_NS        5000000000u  /* a link that says nothing for so long is down */
#define LINK_STEADY_NS        5000000000u /* after being up for so long the next pause is small again */
#define LINK_HANDSHAKE_NS     250000000u /* a handshake that lasts longer may have to make way */
#define LINK_CAUSE_BYTES      160        /* of the text that says why a link is not up */

struct daemon;

/* Which inbound links the door looks at. */
enum link_list_kind {
    LINKS_OTHER = 0, /* those that are up, and all that are outbound: in no list */
    LINKS_IDLE,
    LINKS_SHAKING, /* in a handshake, the oldest first */
    LINKS_ENDED,   /* and not yet free */
    LINK_LISTS,
};

struct link_list {
    uint32_t head, tail, n;
};

struct peer_link {
    struct stream stream;
    struct daemon *d;
    enum peer_link_state state;
    uint32_t slot;
    uint32_t peer; /* index in the configuration; NONE until an inbound link said its name */
    bool rdma;     /* the peer has an RDMA device */
    enum link_list_kind list;
    uint32_t prev, next;                  /* in that list */
    uint64_t incarnation, sent, received; /* sent, received: sequence numbers */
    uint64_t heard_ns, pinged_ns, up_ns, opened_ns;
    uint64_t pings;
    struct tls_session *tls; /* NULL: in the clear, or not connected */
    uint64_t data_token;     /* what the dialling side's data connections have to say */

    /* Outbound only: why it is not up, since when, and how many attempts have failed since then. */
    char cause[LINK_CAUSE_BYTES]; /* "": it is up, or nothing has failed yet */
    bool cause_known;             /* the cause was set before this connection ended */
    bool no_data; /* it is up, and its data port could not be reached when it was last called */
    uint32_t attempts;
    uint64_t down_ns;
    int dial_errno[LINK_ADDRS_MAX]; /* of the last connect to each address, as it was logged */

    uint64_t fallen; /* tenants, a bit each, whose pages came by a fallback when it was last up */

    struct io_op dial;
    int dial_fd;
    uint64_t pause_ns; /* the last one between two attempts */
    struct sockaddr_storage addr[LINK_ADDRS_MAX];
    socklen_t addr_len[LINK_ADDRS_MAX];
    uint32_t naddrs, next_addr; /* next_addr == naddrs: a name is resolved again */
    bool named;                 /* the address is a name, resolved at each round of attempts */
    bool moved; /* what is configured of the peer is another: this attempt, or connection, ends */
    char resolve_error[RESOLVE_TEXT]; /* why the name did not resolve, as it was logged */
};

/* How fast peers are dialled, all of them together. */
struct dial_pace {
    uint32_t under_way, may_begin; /* attempts */
    uint64_t filled_ns;            /* may_begin grew up to then */
    uint32_t next;                 /* the link that is looked at first, so that each has its turn */
};

struct peer_links {
    struct peer_link *v; /* owned */
    uint64_t *due_ns;    /* owned; when the tick has to look at that link: link_due */
    uint32_t n, peers;
    uint32_t leaving; /* peers */
    struct dial_pace pace;
    struct link_list list[LINK_LISTS]; /* see link_listed */
    struct tls *tls;                   /* owned; NULL: in the clear */
    uint32_t expiry_told;      /* how many EXPIRY_STAGES of our certificate the log has shown */
    struct resolver *resolver; /* owned; NULL: no peer's address is a name */
    void (*connected)(struct peer_link *l, int fd); /* a dial has succeeded; it takes fd over */
    const char *names[CONFIG_PEERS_MAX];
    uint64_t lives[CONFIG_PEERS_MAX]
                  [2]; /* incarnations that dialled us: the last, the one before */
    /* Connections that were refused, a row for each peer; the last row counts inbound ones that had
     * not said their name. */
    uint64_t refused[CONFIG_PEERS_MAX + 1][TLS_REFUSALS];
    /* Connections that were ended for what the peer sent, and errors that it may not say; the last
     * row counts those that had not said their name. */
    uint64_t protocol_errors[CONFIG_PEERS_MAX + 1];
    /* Data connections that the log has shown: refused, over their link's share; and the door's. */
    uint64_t data_refused, data_over_share;
    struct door_stats data_door_shown;
    struct listener listener;
    struct door *door; /* owned; who dials us and has said nothing whole; NULL: no listener */
    struct door_stats door_shown; /* what the log has told */
    bool door_again;              /* an inbound link is free */
    struct prng prng;
};

enum tern_err links_init(struct daemon *d, char *why, size_t cap);
enum tern_err links_listen(struct daemon *d, char *why, size_t cap);
void links_tick(struct daemon *d, uint64_t now_ns);
/* link_door.c: who dials us waits there until it has said something whole. */
enum tern_err links_door_create(struct daemon *d);
void links_door_destroy(struct daemon *d); /* before any link: it runs the ring */
void links_names_finish(struct daemon *d); /* likewise, and it waits for no name service */
void links_door_again(struct daemon *d);   /* outside a step of the core */
void links_door_tick(struct daemon *d, uint64_t now_ns);
void links_finish(struct daemon *d);

/* link_members.c: peers that join, change and leave while the daemon runs. */
/* Why that peer cannot be one without a restart, or now; static. NULL: it can. */
const char *links_unfit(const struct daemon *d, const struct config_peer *peer);
uint32_t links_free(const struct daemon *d); /* slots that nobody has */
/* A peer that links_unfit found fit, of a name that no peer has; there is a slot. */
void links_join(struct daemon *d, const struct config_peer *peer);
/* The peer's entry says something else now: its links end, and are made anew. */
void links_change(struct daemon *d, uint32_t slot, const struct config_peer *to);
/* Its links end; the slot is free when nothing refers to it any more. */
void links_leave(struct daemon *d, uint32_t slot);
void links_members_init(struct daemon *d); /* after links_init */
void links_members_tick(struct daemon *d);

void link_send(struct daemon *d, uint32_t slot,
               const struct peer_msg *msg); /* the message is dropped unless the link is up */
void link_close(struct daemon *d, uint32_t slot, const char *why);
bool link_up(const struct peer_link *l);
bool link_serves(const struct peer_link *l); /* it is up, and pages can be fetched from the peer */
/* For the log: whether the data port of that peer can be reached. */
void link_data_dialled(void *ctx, uint32_t slot, uint16_t port, int error);
/* link_path.c: the messages between xfer and the peer's xfer. */
void link_path_send(void *ctx, uint32_t slot, const struct xfer_path_msg *msg);
void link_path_note(void *ctx, uint32_t slot, const struct xfer_note *note);
/* Pages of some tenant come from that peer by another way than RDMA, which `auto` asks first. */
bool link_falls_back(const struct daemon *d, uint32_t peer);
void link_path_changed(void *ctx, uint32_t slot, const struct xfer_path_view *path);

/* The state of the outbound link to that peer, as operators see it. */
const char *link_state_name(struct daemon *d, uint32_t peer, uint64_t *ret_incarnation);
/* Why the same link is not up. NULL: it is up, or nothing has failed yet; both results are 0. */
const char *link_down_cause(const struct daemon *d, uint32_t peer, uint32_t *ret_attempts,
                            uint64_t *ret_since_ns);
/* How often a connection was ended for what the peer sent, or it said what it may not; peer NONE:
 * before it said its name. */
uint64_t links_protocol_errors(const struct daemon *d, uint32_t peer);
/* Reads the certificates anew that `from` names; links that are up stay. Nothing is done where
 * peers talk in the clear. On an error, and after a dry run, those in force stay. *ret: what was
 * read; as it was where peers talk in the clear. */
enum tern_err links_reload(struct daemon *d, const struct config *from, bool dry_run,
                           struct tls_own *ret, char *why, size_t cap);
/* TLS of the outbound link to that peer. False: the link is not up, or in the clear. */
bool link_tls_peer(struct daemon *d, uint32_t peer, struct tls_peer *ret);
/* Refused connections, [TLS_REFUSALS]; peer NONE: of those who dialled us and are unknown. */
const uint64_t *links_refused(const struct daemon *d, uint32_t peer);

#endif
