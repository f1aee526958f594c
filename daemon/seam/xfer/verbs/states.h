/* The state machines of the RDMA transport: a path, which is one end of a queue pair, and a piece,
 * which is what is asked for at once. Each table is written once: name, legal next states, what it
 * means. docs/states.md shows the same. */
#ifndef SEAM_VERBS_STATES_H
#define SEAM_VERBS_STATES_H

#include <stdint.h>

/* X(name, legal next, comment) */
#define PATH_TO(s) (1u << PATH_##s)
#define PATH_STATE_TABLE(X)                                                                        \
    X(NONE, PATH_TO(MAKING) | PATH_TO(PAUSED), "there is no queue pair, and none is wanted")       \
    X(MAKING,                                                                                      \
      PATH_TO(OFFERED) | PATH_TO(READY) | PATH_TO(ABANDONED) | PATH_TO(STOPPING) | PATH_TO(NONE),  \
      "a thread makes the queue pair; the source's is connected at once")                          \
    X(OFFERED, PATH_TO(CONNECTING) | PATH_TO(STOPPING), "ours is there; the peer's answer is due") \
    X(CONNECTING, PATH_TO(READY) | PATH_TO(ABANDONED) | PATH_TO(STOPPING), "a thread connects it") \
    X(ABANDONED, PATH_TO(STOPPING) | PATH_TO(NONE),                                                \
      "its link ended while a thread makes or connects it: it is of no use when that is done")     \
    X(READY, PATH_TO(STOPPING), "pages may travel")                                                \
    X(STOPPING, PATH_TO(DRAINING), "a thread moves the queue pair to the error state")             \
    X(DRAINING, PATH_TO(ENDING), "its work requests are flushed")                                  \
    X(ENDING, PATH_TO(NONE) | PATH_TO(STUCK), "a thread destroys the queue pair")                  \
    X(STUCK, PATH_TO(NONE), "it could not be destroyed, which was told; tried again now and then") \
    X(PAUSED, PATH_TO(MAKING) | PATH_TO(NONE), "it is made again at retry_ns")

/* Read:   ASKED, WAITING, READING, READ, CONFIRMING.
 * Pushed: BINDING, BOUND, ASKED, READING or ARRIVED, CLOSING, READ, CONFIRMING; to CLOSING from
 * each of the first ones when its pull has ended. */
#define PIECE_TO(s) (1u << PIECE_##s)
#define PIECE_STATE_TABLE(X)                                                                       \
    X(FREE, PIECE_TO(BINDING) | PIECE_TO(ASKED), "no piece has this slot")                         \
    X(BINDING, PIECE_TO(BOUND) | PIECE_TO(CLOSING) | PIECE_TO(WAITING),                            \
      "the device binds memory windows to its runs")                                               \
    X(BOUND, PIECE_TO(ASKED) | PIECE_TO(CLOSING) | PIECE_TO(WAITING),                              \
      "waits for room to say REQUEST_WRITE")                                                       \
    X(ASKED,                                                                                       \
      PIECE_TO(READING) | PIECE_TO(ARRIVED) | PIECE_TO(CLOSING) | PIECE_TO(WAITING) |              \
          PIECE_TO(FREE),                                                                          \
      "REQUEST_READ or REQUEST_WRITE was queued; its answer is due")                               \
    X(WAITING, PIECE_TO(BINDING) | PIECE_TO(READING) | PIECE_TO(FREE),                             \
      "for a path, and for what one that was lost still has of it")                                \
    X(READING, PIECE_TO(READ) | PIECE_TO(CLOSING) | PIECE_TO(WAITING) | PIECE_TO(FREE),            \
      "some pages are not asked of the device yet, or not there yet")                              \
    X(ARRIVED, PIECE_TO(CLOSING) | PIECE_TO(WAITING), "all pages are there; the answer is due")    \
    X(CLOSING, PIECE_TO(READ) | PIECE_TO(WAITING) | PIECE_TO(FREE),                                \
      "the device closes the memory windows")                                                      \
    X(READ, PIECE_TO(CONFIRMING) | PIECE_TO(FREE), "waits for room to say CONFIRM")                \
    X(CONFIRMING, PIECE_TO(FREE), "the answer to CONFIRM is due")

#define X(name, next, comment) PATH_##name,
enum path_state { PATH_STATE_TABLE(X) PATH_STATES };
#undef X
#define X(name, next, comment) PIECE_##name,
enum piece_state { PIECE_STATE_TABLE(X) PIECE_STATES };
#undef X

#endif
