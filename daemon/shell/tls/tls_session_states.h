/* The one table of the states of a TLS session: name, legal next states, what it means.
 * session_move in tls_session.c checks it; docs/states.md shows it. */
#ifndef SHELL_TLS_SESSION_STATES_H
#define SHELL_TLS_SESSION_STATES_H

#define TLS_SESSION_TO(s) (1u << TLS_SESSION_##s)

/* X(name, legal next, comment) */
#define TLS_SESSION_STATE_TABLE(X)                                                                 \
    X(UNUSED, TLS_SESSION_TO(HANDSHAKING), "in the list of free sessions")                         \
    X(HANDSHAKING, TLS_SESSION_TO(OPEN) | TLS_SESSION_TO(BROKEN) | TLS_SESSION_TO(UNUSED),         \
      "who the other side is has not been proved")                                                 \
    X(OPEN, TLS_SESSION_TO(BROKEN) | TLS_SESSION_TO(UNUSED),                                       \
      "the other side is who it must be; records go both ways")                                    \
    X(BROKEN, TLS_SESSION_TO(UNUSED), "refused, failed or ended: it can only be closed")

enum tls_session_state {
#define X(name, next, comment) TLS_SESSION_##name,
    TLS_SESSION_STATE_TABLE(X)
#undef X
        TLS_SESSION_STATES
};

#endif
