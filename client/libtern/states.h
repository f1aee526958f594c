/* The state machines of libtern (base/states.h says how to read a table). */
#ifndef CLIENT_STATES_H
#define CLIENT_STATES_H

#include "base/states.h"

#define CLIENT_SOCKET_STATE_TABLE(X)                                                               \
    X(CLIENT_SOCKET, CLOSED, TO(CLIENT_SOCKET, UP),                                                \
      "there is no socket: not opened yet, or closed")                                             \
    X(CLIENT_SOCKET, UP, TO(CLIENT_SOCKET, LOST) | TO(CLIENT_SOCKET, CLOSED),                      \
      "frames go both ways")                                                                       \
    X(CLIENT_SOCKET, LOST, TO(CLIENT_SOCKET, CLOSED),                                              \
      "ended by the other side, by an error or by invalid data; it can only be closed")

STATE_MACHINE(client_socket, CLIENT_SOCKET, CLIENT_SOCKET_STATE_TABLE)

/* A place in the table of submitted requests. */
#define PENDING_STATE_TABLE(X)                                                                     \
    X(PENDING, FREE, TO(PENDING, WAITING) | TO(PENDING, STREAM), "no request has the place")       \
    X(PENDING, WAITING, TO(PENDING, KEPT) | TO(PENDING, FREE), "submitted; the answer is due")     \
    X(PENDING, KEPT, TO(PENDING, FREE),                                                            \
      "its answer arrived while a synchronous call waited, and is kept until it is polled")        \
    X(PENDING, STREAM, TO(PENDING, FREE), "a subscription: answers arrive until it ends")

STATE_MACHINE(pending, PENDING, PENDING_STATE_TABLE)

/* A session of a lease. */
#define LEASE_SLOT_STATE_TABLE(X)                                                                  \
    X(LEASE_SLOT, FREE, TO(LEASE_SLOT, LIVE), "no session has the slot")                           \
    X(LEASE_SLOT, LIVE, TO(LEASE_SLOT, FAILED) | TO(LEASE_SLOT, LEAVING),                          \
      "its session takes pages from the stock")                                                    \
    X(LEASE_SLOT, FAILED, TO(LEASE_SLOT, LEAVING),                                                 \
      "an operation of the session was refused: it can only be removed")                           \
    X(LEASE_SLOT, LEAVING, TO(LEASE_SLOT, FREE),                                                   \
      "removed; an answer is due or not yet reported, or a stray page has not been returned")

STATE_MACHINE(lease_slot, LEASE_SLOT, LEASE_SLOT_STATE_TABLE)

#endif
