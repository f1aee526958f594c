/* The states of a stream (base/states.h says how to read the table). */
#ifndef SHELL_STREAM_STATES_H
#define SHELL_STREAM_STATES_H

#include "base/states.h"

#define STREAM_STATE_TABLE(X)                                                                      \
    X(STREAM, UNUSED, TO(STREAM, OPEN), "its owner may open it")                                   \
    X(STREAM, OPEN, TO(STREAM, FLUSHING) | TO(STREAM, DOOMED) | TO(STREAM, CLOSED),                \
      "frames come and go")                                                                        \
    X(STREAM, FLUSHING, TO(STREAM, DOOMED) | TO(STREAM, CLOSED),                                   \
      "it reads no more and closes when what is queued has been sent")                             \
    X(STREAM, DOOMED, TO(STREAM, CLOSED),                                                          \
      "what it had not begun to send was taken from it: the next flush closes it")                 \
    X(STREAM, CLOSED, TO(STREAM, UNUSED),                                                          \
      "the owner was told; the ring still holds operations of it")

STATE_MACHINE(stream, STREAM, STREAM_STATE_TABLE)

#endif
