/* The one table of the states of a connection of a local client: name, legal next states, what it
 * means. conn_move in conn.c checks it; docs/states.md
 * shows it. */
#ifndef SHELL_CLIENT_CONN_STATES_H
#define SHELL_CLIENT_CONN_STATES_H

#define CLIENT_CONN_TO(s) (1u << CLIENT_CONN_##s)

/* X(name, legal next, comment) */
#define CLIENT_CONN_STATE_TABLE(X)                                                                  \
    X(FREE, CLIENT_CONN_TO(REFUSED) | CLIENT_CONN_TO(GREETING), "nobody has the slot")               \
    X(REFUSED, CLIENT_CONN_TO(CLOSED),                                                              \
      "its Hello is answered with a refusal, then it closes; the core does not know it")           \
    X(GREETING, CLIENT_CONN_TO(OPEN) | CLIENT_CONN_TO(CLOSED),                                       \
      "the core knows it; Hello has to come first")                                                \
    X(OPEN, CLIENT_CONN_TO(CLOSED), "it was greeted, and requests may come")                        \
    X(CLOSED, CLIENT_CONN_TO(FREE), "the core was told; the ring still holds operations of it")

enum client_conn_state {
#define X(name, next, comment) CLIENT_CONN_##name,
    CLIENT_CONN_STATE_TABLE(X)
#undef X
        CLIENT_CONN_STATES
};

#endif
