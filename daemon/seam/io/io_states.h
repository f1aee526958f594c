/* The states of an operation of the ring, of a task of the data threads, of a place of a door and
 * of a query for a name (base/states.h explains the tables). */
#ifndef SEAM_IO_STATES_H
#define SEAM_IO_STATES_H

#include "base/states.h"

/* An operation of the ring (struct io_op), such as a receive or an accept. */
#define IO_OP_STATE_TABLE(X)                                                                       \
    X(IO_OP, IDLE, TO(IO_OP, IN_FLIGHT) | TO(IO_OP, WAITING),                                      \
      "not in use; its owner may submit it")                                                       \
    X(IO_OP, WAITING, TO(IO_OP, IN_FLIGHT) | TO(IO_OP, CANCELLED),                                 \
      "on a list, because the submission queue was full")                                          \
    X(IO_OP, IN_FLIGHT,                                                                            \
      TO(IO_OP, IDLE) | TO(IO_OP, IN_FLIGHT) | TO(IO_OP, WAITING) | TO(IO_OP, CANCELLED) |         \
          TO(IO_OP, CANCEL_WAITING),                                                               \
      "in the ring; submitted again if a signal interrupts it")                                    \
    X(IO_OP, CANCELLED, TO(IO_OP, IDLE),                                                           \
      "in the ring or on the list, and its cancel is on the way")                                  \
    X(IO_OP, CANCEL_WAITING, TO(IO_OP, CANCELLED) | TO(IO_OP, IDLE),                               \
      "in the ring; its cancel is on the list")

STATE_MACHINE_IN(uint64_t, io_op, IO_OP, IO_OP_STATE_TABLE)

/* Page bytes that a data thread moves (struct io_task): the receive or the send of a data
 * connection. The task's memory and its end of the stream belong to the task's current owner. */
#define IO_TASK_STATE_TABLE(X)                                                                     \
    X(IO_TASK, HOME, TO(IO_TASK, AWAY), "the owner thread has the task, and may hand it over")     \
    X(IO_TASK, AWAY, TO(IO_TASK, HOME) | TO(IO_TASK, CALLED_BACK),                                 \
      "a data thread has the task, until that thread returns it")                                  \
    X(IO_TASK, CALLED_BACK, TO(IO_TASK, HOME),                                                     \
      "the data thread still has the task; its cancel is on the way, and the thread returns it "   \
      "soon")

STATE_MACHINE(io_task, IO_TASK, IO_TASK_STATE_TABLE)

/* A place of a door (door.h), and the connection in it. */
#define DOOR_PLACE_STATE_TABLE(X)                                                                  \
    X(DOOR_PLACE, FREE, TO(DOOR_PLACE, WAITING) | TO(DOOR_PLACE, CLOSING),                         \
      "no connection has the place")                                                               \
    X(DOOR_PLACE, WAITING, TO(DOOR_PLACE, HELD) | TO(DOOR_PLACE, CLOSING) | TO(DOOR_PLACE, FREE),  \
      "its first message is not complete yet")                                                     \
    X(DOOR_PLACE, HELD, TO(DOOR_PLACE, WAITING) | TO(DOOR_PLACE, CLOSING) | TO(DOOR_PLACE, FREE),  \
      "its first message is complete; it waits for room behind the door, or for its rate")         \
    X(DOOR_PLACE, CLOSING, TO(DOOR_PLACE, FREE), "it was refused, and is being closed")

STATE_MACHINE(door_place, DOOR_PLACE, DOOR_PLACE_STATE_TABLE)

/* A query for a name (resolve.c). */
#define QUERY_STATE_TABLE(X)                                                                       \
    X(QUERY, FREE, TO(QUERY, QUEUED), "no query is under way")                                     \
    X(QUERY, QUEUED, TO(QUERY, LOOKING_UP) | TO(QUERY, FREE), "the query waits for a thread")      \
    X(QUERY, LOOKING_UP, TO(QUERY, FREE) | TO(QUERY, CANCELLED),                                   \
      "a thread waits for the name service")                                                       \
    X(QUERY, CANCELLED, TO(QUERY, FREE),                                                           \
      "a thread still waits for the name service, but nobody needs the answer")

STATE_MACHINE(query, QUERY, QUERY_STATE_TABLE)

#endif
