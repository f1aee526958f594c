/* The states of a query for a name and of the resolver (base/states.h says how to read a table). */
#ifndef SEAM_RESOLVE_STATES_H
#define SEAM_RESOLVE_STATES_H

#include "base/states.h"

#define QUERY_STATE_TABLE(X)                                                                       \
    X(QUERY, FREE, TO(QUERY, QUEUED), "its asker wants nothing")                                   \
    X(QUERY, QUEUED, TO(QUERY, LOOKING_UP) | TO(QUERY, FREE), "it waits for a thread")             \
    X(QUERY, LOOKING_UP, TO(QUERY, DONE) | TO(QUERY, CANCELLED),                                   \
      "a thread waits for the name service")                                                       \
    X(QUERY, CANCELLED, TO(QUERY, FREE),                                                           \
      "a thread still waits for the name service, and nobody for the answer")                      \
    X(QUERY, DONE, TO(QUERY, FREE), "the answer has not been taken yet")

STATE_MACHINE(query, QUERY, QUERY_STATE_TABLE)

#define RESOLVER_STATE_TABLE(X)                                                                    \
    X(RESOLVER, RUNNING, TO(RESOLVER, STOPPING), "its threads take queries")                       \
    X(RESOLVER, STOPPING, TO(RESOLVER, ORPHANED),                                                  \
      "its owner waits for the threads that have no query")                                        \
    X(RESOLVER, ORPHANED, 0,                                                                       \
      "its owner has left; the last thread frees it when the name service answers")

STATE_MACHINE(resolver, RESOLVER, RESOLVER_STATE_TABLE)

#endif
