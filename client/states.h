/* The state machines of libtern as tables: name, legal next states, what it means. Whoever changes
 * a state calls its *_move, which checks the table; nothing else assigns one. */
#ifndef CLIENT_STATES_H
#define CLIENT_STATES_H

#include "base/check.h"

#define TO(s) (1u << CLIENT_##s)

/* X(name, legal next, comment) */
#define CLIENT_SOCKET_STATE_TABLE(X)                                                               \
    X(CLOSED, TO(UP), "no socket: before it is opened, and after it was closed")                   \
    X(UP, TO(LOST) | TO(CLOSED), "frames go both ways")                                            \
    X(LOST, TO(CLOSED), "ended by the other side, by an error or by nonsense; only closing is left")

enum client_socket_state {
#define X(name, next, comment) CLIENT_##name,
    CLIENT_SOCKET_STATE_TABLE(X)
#undef X
        CLIENT_SOCKET_STATES
};

static inline void client_socket_state_move(enum client_socket_state *state,
                                            enum client_socket_state to)
{
    static const unsigned next[CLIENT_SOCKET_STATES] = {
#define X(name, next, comment) [CLIENT_##name] = (next),
        CLIENT_SOCKET_STATE_TABLE(X)
#undef X
    };

    check(next[*state] & 1u << to);
    *state = to;
}

#undef TO
#define TO(s) (1u << PENDING_##s)

/* A place in the table of submitted requests. X as above */
#define PENDING_STATE_TABLE(X)                                                                     \
    X(FREE, TO(WAITING) | TO(STREAM), "nobody has it")                                             \
    X(WAITING, TO(KEPT) | TO(FREE), "submitted, no answer yet")                                    \
    X(KEPT, TO(FREE), "its answer came while a synchronous call waited, and waits to be polled")   \
    X(STREAM, TO(FREE), "a subscription: answers come until it ends")

enum pending_state {
#define X(name, next, comment) PENDING_##name,
    PENDING_STATE_TABLE(X)
#undef X
        PENDING_STATES
};

static inline void pending_state_move(enum pending_state *state, enum pending_state to)
{
    static const unsigned next[PENDING_STATES] = {
#define X(name, next, comment) [PENDING_##name] = (next),
        PENDING_STATE_TABLE(X)
#undef X
    };

    check(next[*state] & 1u << to);
    *state = to;
}

#undef TO

#endif
