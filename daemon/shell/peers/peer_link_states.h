/* The one table of the states of a link between two daemons: name, legal next states, what it
 * means. link_move checks it; docs/states.md shows it. */
#ifndef SHELL_PEER_LINK_STATES_H
#define SHELL_PEER_LINK_STATES_H

#define PEER_LINK_TO(s) (1u << PEER_LINK_##s)

/* X(name, legal next, comment) */
#define PEER_LINK_STATE_TABLE(X)                                                                   \
    X(IDLE, PEER_LINK_TO(RESOLVING) | PEER_LINK_TO(DIALLING) | PEER_LINK_TO(SECURING),             \
      "an outbound link waits for its next attempt; an inbound one is free")                       \
    X(RESOLVING, PEER_LINK_TO(DIALLING) | PEER_LINK_TO(IDLE),                                      \
      "the name of the peer is being resolved")                                                    \
    X(DIALLING, PEER_LINK_TO(SECURING) | PEER_LINK_TO(CANCELLING) | PEER_LINK_TO(IDLE),            \
      "a connect is under way")                                                                    \
    X(CANCELLING, PEER_LINK_TO(SECURING) | PEER_LINK_TO(IDLE),                                     \
      "the connect took too long and is being cancelled; it may still succeed")                    \
    X(SECURING, PEER_LINK_TO(GREETING) | PEER_LINK_TO(CLOSED),                                     \
      "connected; the TLS handshake is under way")                                                 \
    X(GREETING, PEER_LINK_TO(UP) | PEER_LINK_TO(CLOSED), "the other side's hello is due")          \
    X(UP, PEER_LINK_TO(OVERFLOWED) | PEER_LINK_TO(CLOSED), "the core knows the link")              \
    X(OVERFLOWED, PEER_LINK_TO(CLOSED),                                                            \
      "as UP, but a message of an RDMA path found no room: the next tick closes the link")         \
    X(CLOSED, PEER_LINK_TO(IDLE), "the stream has ended; the ring still holds its operations")

enum peer_link_state {
#define X(name, next, comment) PEER_LINK_##name,
    PEER_LINK_STATE_TABLE(X)
#undef X
        PEER_LINK_STATES
};

#endif
