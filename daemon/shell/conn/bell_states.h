/* The states of a connection's bell (base/states.h says how to read the table). */
#ifndef SHELL_BELL_STATES_H
#define SHELL_BELL_STATES_H

#include "base/states.h"

#define BELL_STATE_TABLE(X)                                                                        \
    X(BELL, NONE, TO(BELL, LISTENING), "the connection has no bell")                               \
    X(BELL, LISTENING, TO(BELL, DRAINING) | TO(BELL, ENDING) | TO(BELL, CLOSING),                  \
      "the ring polls the socket")                                                                 \
    X(BELL, DRAINING, TO(BELL, LISTENING) | TO(BELL, DEAF) | TO(BELL, ENDING) | TO(BELL, CLOSING), \
      "it rang, and a thread of the kernel reads what came")                                       \
    X(BELL, DEAF, TO(BELL, CLOSING),                                                               \
      "it cannot be read: the steps are looked at every millisecond")                              \
    X(BELL, ENDING, TO(BELL, CLOSING), "the connection ended; the ring still holds the operation") \
    X(BELL, CLOSING, TO(BELL, NONE),                                                               \
      "the ring is done with the socket, which a thread may have to close")

STATE_MACHINE(bell, BELL, BELL_STATE_TABLE)

#endif
