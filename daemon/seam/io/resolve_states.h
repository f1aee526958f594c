/* The tables of the states of a query for a name and of the resolver: name, legal next states, what
 * it means. query_move and resolver_move in resolve.c check them; docs/states.md shows them. */
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

#define RESOLVER_TO(s) (1u << RESOLVER_##s)

/* X(name, legal next, comment) */
#define RESOLVER_STATE_TABLE(X)                                                                    \
    X(RUNNING, RESOLVER_TO(STOPPING), "its threads take queries")                                  \
    X(STOPPING, RESOLVER_TO(ORPHANED), "its owner waits for the threads that have no query")       \
    X(ORPHANED, 0, "its owner has left; the last thread frees it when the name service answers")

enum resolver_state {
#define X(name, next, comment) RESOLVER_##name,
    RESOLVER_STATE_TABLE(X)
#undef X
        RESOLVER_STATES
};

#endif
