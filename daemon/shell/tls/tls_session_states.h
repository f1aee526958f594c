/* The states of a TLS session (base/states.h says how to read the table). */
#ifndef SHELL_TLS_SESSION_STATES_H
#define SHELL_TLS_SESSION_STATES_H

#include "base/states.h"

#define TLS_SESSION_STATE_TABLE(X)                                                                 \
    X(TLS_SESSION, UNUSED, TO(TLS_SESSION, HANDSHAKING), "in the list of free sessions")           \
    X(TLS_SESSION, HANDSHAKING,                                                                    \
      TO(TLS_SESSION, OPEN) | TO(TLS_SESSION, BROKEN) | TO(TLS_SESSION, UNUSED),                   \
      "who the other side is has not been proved")                                                 \
    X(TLS_SESSION, OPEN, TO(TLS_SESSION, BROKEN) | TO(TLS_SESSION, UNUSED),                        \
      "the other side is who it must be; records go both ways")                                    \
    X(TLS_SESSION, BROKEN, TO(TLS_SESSION, UNUSED),                                                \
      "refused, failed or ended: it can only be closed")

STATE_MACHINE(tls_session, TLS_SESSION, TLS_SESSION_STATE_TABLE)

#endif
