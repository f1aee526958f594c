/* The states of a query for a name (base/states.h says how to read a table). */
#ifndef SEAM_RESOLVE_STATES_H
#define SEAM_RESOLVE_STATES_H

#include "base/states.h"

#define QUERY_STATE_TABLE(X)                                                                       \
    X(QUERY, FREE, TO(QUERY, QUEUED), "its asker wants nothing")                                   \
    X(QUERY, QUEUED, TO(QUERY, LOOKING_UP) | TO(QUERY, FREE), "it waits for a thread")             \
    X(QUERY, LOOKING_UP, TO(QUERY, FREE) | TO(QUERY, CANCELLED),                                   \
      "a thread waits for the name service")                                                       \
    X(QUERY, CANCELLED, TO(QUERY, FREE),                                                           \
      "a thread still waits for the name service, and nobody for the answer")

STATE_MACHINE(query, QUERY, QUERY_STATE_TABLE)

#endif
