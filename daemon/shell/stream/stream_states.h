/* The states of a stream, and of what arrives on it (base/states.h says how to read the tables). */
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
    X(STREAM, CLOSED, TO(STREAM, UNUSED) | TO(STREAM, CLOSING),                                    \
      "the owner was told; the ring still holds operations of it")                                 \
    X(STREAM, CLOSING, TO(STREAM, UNUSED), "a thread closes its descriptor")

STATE_MACHINE(stream, STREAM, STREAM_STATE_TABLE)

/* What arrives on a stream: it receives again only when it has handed out what had come. */
#define STREAM_INPUT_STATE_TABLE(X)                                                                \
    X(STREAM_INPUT, NONE, TO(STREAM_INPUT, ASKED),                                                 \
      "nothing: it is not open, or the other side has ended it")                                   \
    X(STREAM_INPUT, ASKED,                                                                         \
      TO(STREAM_INPUT, READY) | TO(STREAM_INPUT, STARVED) | TO(STREAM_INPUT, NONE),                \
      "the ring receives when there is something to read")                                         \
    X(STREAM_INPUT, READY, TO(STREAM_INPUT, SERVED),                                               \
      "its bytes wait in a receive buffer for their turn; or it was closed, and waits to be told") \
    X(STREAM_INPUT, SERVED,                                                                        \
      TO(STREAM_INPUT, READY) | TO(STREAM_INPUT, ASKED) | TO(STREAM_INPUT, NONE),                  \
      "its frames are being handed out")                                                           \
    X(STREAM_INPUT, STARVED, TO(STREAM_INPUT, ASKED) | TO(STREAM_INPUT, READY),                    \
      "has something to read, and waits for a receive buffer of its share")

STATE_MACHINE(stream_input, STREAM_INPUT, STREAM_INPUT_STATE_TABLE)

#endif
