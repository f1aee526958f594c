/* The states of a link between two daemons (base/states.h says how to read the table). */
#ifndef SHELL_PEER_LINK_STATES_H
#define SHELL_PEER_LINK_STATES_H

#include "base/states.h"

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

#endif
