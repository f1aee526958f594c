/* The one table of the states of an operation of the ring: name, legal next states, what it means.
 * op_move in io_uring.c checks it; docs/states.md shows it. */
#ifndef SEAM_IO_STATES_H
#define SEAM_IO_STATES_H

/* X(name, legal next, comment) */
#define OP_TO(s) (1u << OP_##s)

/* An operation of the ring (struct io_op), such as a receive or an accept. */
#define OP_STATE_TABLE(X)                                                                          \
    X(IDLE, OP_TO(IN_FLIGHT) | OP_TO(WAITING), "its owner may submit it")                          \
    X(WAITING, OP_TO(IN_FLIGHT) | OP_TO(CANCELLED), "on the list: the submission queue was full")  \
    X(IN_FLIGHT,                                                                                   \
      OP_TO(IDLE) | OP_TO(IN_FLIGHT) | OP_TO(WAITING) | OP_TO(CANCELLED) | OP_TO(CANCEL_WAITING),  \
      "in the ring; submitted again if a signal interrupts it")                                    \
    X(CANCELLED, OP_TO(IDLE), "in the ring or on the list, and its cancel is on the way")          \
    X(CANCEL_WAITING, OP_TO(CANCELLED) | OP_TO(IDLE), "in the ring; its cancel is on the list")

enum op_state {
#define X(name, next, comment) OP_##name,
    OP_STATE_TABLE(X)
#undef X
        OP_STATES
};

#endif
