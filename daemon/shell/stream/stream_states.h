/* The one table of the states of a stream: name, legal next states, what it means. stream_move
 * checks it; docs/states.md shows it. */
#ifndef SHELL_STREAM_STATES_H
#define SHELL_STREAM_STATES_H

#define STREAM_TO(s) (1u << STREAM_##s)

/* X(name, legal next, comment) */
#define STREAM_STATE_TABLE(X)                                                                      \
    X(UNUSED, STREAM_TO(OPEN), "its owner may open it")                                            \
    X(OPEN, STREAM_TO(FLUSHING) | STREAM_TO(CLOSED), "frames come and go")                         \
    X(FLUSHING, STREAM_TO(CLOSED),                                                                 \
      "it reads no more and closes when what is queued has been sent")                             \
    X(CLOSED, STREAM_TO(UNUSED), "the owner was told; the ring still holds operations of it")

enum stream_state {
#define X(name, next, comment) STREAM_##name,
    STREAM_STATE_TABLE(X)
#undef X
        STREAM_STATES
};

#endif
