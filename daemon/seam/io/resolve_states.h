/* The one table of the states of a query for a name: name, legal next states, what it means.
 * query_move in resolve.c checks it; docs/states.md shows it. */
#ifndef SEAM_RESOLVE_STATES_H
#define SEAM_RESOLVE_STATES_H

#define QUERY_TO(s) (1u << QUERY_##s)

/* X(name, legal next, comment) */
#define QUERY_STATE_TABLE(X)                                                                       \
    X(FREE, QUERY_TO(QUEUED), "its asker wants nothing")                                           \
    X(QUEUED, QUERY_TO(LOOKING_UP) | QUERY_TO(FREE), "it waits for a thread")                      \
    X(LOOKING_UP, QUERY_TO(DONE) | QUERY_TO(CANCELLED), "a thread waits for the name service")     \
    X(CANCELLED, QUERY_TO(FREE),                                                                   \
      "a thread still waits for the name service, and nobody for the answer")                      \
    X(DONE, QUERY_TO(FREE), "the answer has not been taken yet")

enum query_state {
#define X(name, next, comment) QUERY_##name,
    QUERY_STATE_TABLE(X)
#undef X
        QUERY_STATES
};

#endif
