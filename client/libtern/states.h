/* The state machines of libtern (base/states.h says how to read a table). */
#ifndef CLIENT_STATES_H
#define CLIENT_STATES_H

#include "base/states.h"

#define CLIENT_SOCKET_STATE_TABLE(X)                                                               \
    X(CLIENT_SOCKET, CLOSED, TO(CLIENT_SOCKET, UP),                                                \
      "no socket: before it is opened, and after it was closed")                                   \
    X(CLIENT_SOCKET, UP, TO(CLIENT_SOCKET, LOST) | TO(CLIENT_SOCKET, CLOSED),                      \
      "frames go both ways")                                                                       \
    X(CLIENT_SOCKET, LOST, TO(CLIENT_SOCKET, CLOSED),                                              \
      "ended by the other side, by an error or by nonsense; only closing is left")

STATE_MACHINE(client_socket, CLIENT_SOCKET, CLIENT_SOCKET_STATE_TABLE)

/* A place in the table of submitted requests. */
#define PENDING_STATE_TABLE(X)                                                                     \
    X(PENDING, FREE, TO(PENDING, WAITING) | TO(PENDING, STREAM), "nobody has it")                  \
    X(PENDING, WAITING, TO(PENDING, KEPT) | TO(PENDING, FREE), "submitted, no answer yet")         \
    X(PENDING, KEPT, TO(PENDING, FREE),                                                            \
      "its answer came while a synchronous call waited, and waits to be polled")                   \
    X(PENDING, STREAM, TO(PENDING, FREE), "a subscription: answers come until it ends")

STATE_MACHINE(pending, PENDING, PENDING_STATE_TABLE)

/* A session of a lease. */
#define LEASE_SLOT_STATE_TABLE(X)                                                                  \
    X(LEASE_SLOT, FREE, TO(LEASE_SLOT, LIVE), "nobody has it")                                     \
    X(LEASE_SLOT, LIVE, TO(LEASE_SLOT, FAILED) | TO(LEASE_SLOT, LEAVING),                          \
      "a session that takes pages from the stock")                                                 \
    X(LEASE_SLOT, FAILED, TO(LEASE_SLOT, LEAVING),                                                 \
      "an operation of it was refused: it can only be removed")                                    \
    X(LEASE_SLOT, LEAVING, TO(LEASE_SLOT, FREE),                                                   \
      "removed; an answer is due or not reported yet, or a stray page is not returned yet")

STATE_MACHINE(lease_slot, LEASE_SLOT, LEASE_SLOT_STATE_TABLE)

#endif
