/* The states of a local client's connection (base/states.h says how to read the table). */
#ifndef SHELL_CLIENT_CONN_STATES_H
#define SHELL_CLIENT_CONN_STATES_H

#include "base/states.h"

#define CLIENT_CONN_STATE_TABLE(X)                                                                 \
    X(CLIENT_CONN, FREE, TO(CLIENT_CONN, REFUSED) | TO(CLIENT_CONN, GREETING),                     \
      "nobody has the slot")                                                                       \
    X(CLIENT_CONN, REFUSED, TO(CLIENT_CONN, CLOSED),                                               \
      "its Hello is answered with a refusal, then it closes; the core does not know it")           \
    X(CLIENT_CONN, GREETING, TO(CLIENT_CONN, OPEN) | TO(CLIENT_CONN, CLOSED),                      \
      "the core knows it; Hello has to come first")                                                \
    X(CLIENT_CONN, OPEN, TO(CLIENT_CONN, CLOSED), "it was greeted, and requests may come")         \
    X(CLIENT_CONN, CLOSED, TO(CLIENT_CONN, FREE),                                                  \
      "the core was told; the ring still holds operations of it, or its last answer with "         \
      "descriptors is unread")

STATE_MACHINE(client_conn, CLIENT_CONN, CLIENT_CONN_STATE_TABLE)

#endif
