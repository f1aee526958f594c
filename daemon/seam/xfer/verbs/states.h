/* The state machines of the RDMA transport: a path is one end of a queue pair, and a piece is what
 * one request asks for. base/states.h explains the tables. */
#ifndef SEAM_VERBS_STATES_H
#define SEAM_VERBS_STATES_H

#include "base/states.h"

#define PATH_STATE_TABLE(X)                                                                        \
    X(PATH, NONE, TO(PATH, MAKING) | TO(PATH, PAUSED),                                             \
      "there is no queue pair, and none is wanted")                                                \
    X(PATH, MAKING,                                                                                \
      TO(PATH, OFFERED) | TO(PATH, READY) | TO(PATH, ABANDONED) | TO(PATH, STOPPING) |             \
          TO(PATH, NONE),                                                                          \
      "a thread makes the queue pair; the source's is connected at once")                          \
    X(PATH, OFFERED, TO(PATH, CONNECTING) | TO(PATH, STOPPING),                                    \
      "ours is there; the peer's answer is due")                                                   \
    X(PATH, CONNECTING, TO(PATH, READY) | TO(PATH, ABANDONED) | TO(PATH, STOPPING),                \
      "a thread connects it")                                                                      \
    X(PATH, ABANDONED, TO(PATH, STOPPING) | TO(PATH, NONE),                                        \
      "its link ended while a thread makes or connects it: it is of no use when that is done")     \
    X(PATH, READY, TO(PATH, STOPPING), "pages may travel")                                         \
    X(PATH, STOPPING, TO(PATH, DRAINING), "a thread moves the queue pair to the error state")      \
    X(PATH, DRAINING, TO(PATH, ENDING), "its work requests are flushed")                           \
    X(PATH, ENDING, TO(PATH, NONE) | TO(PATH, STUCK), "a thread destroys the queue pair")          \
    X(PATH, STUCK, TO(PATH, NONE),                                                                 \
      "it could not be destroyed, which was told; tried again now and then")                       \
    X(PATH, PAUSED, TO(PATH, MAKING) | TO(PATH, NONE), "it is made again at retry_ns")

STATE_MACHINE(path, PATH, PATH_STATE_TABLE)

/* Usual order: BINDING, BOUND, ASKED, COMING or ARRIVED, CLOSING, CLOSED, CONFIRMING, VERIFYING.
 * When the pull ends, states before CLOSING change to CLOSING; when the path is lost, these and
 * CLOSING change to WAITING. */
#define PIECE_STATE_TABLE(X)                                                                       \
    X(PIECE, FREE, TO(PIECE, BINDING), "no piece has this slot")                                   \
    X(PIECE, BINDING, TO(PIECE, BOUND) | TO(PIECE, CLOSING) | TO(PIECE, WAITING),                  \
      "the device binds memory windows to its runs")                                               \
    X(PIECE, BOUND, TO(PIECE, ASKED) | TO(PIECE, CLOSING) | TO(PIECE, WAITING),                    \
      "waits for room to say REQUEST_WRITE")                                                       \
    X(PIECE, ASKED,                                                                                \
      TO(PIECE, COMING) | TO(PIECE, ARRIVED) | TO(PIECE, CLOSING) | TO(PIECE, WAITING),            \
      "REQUEST_WRITE was queued; its answer is due")                                               \
    X(PIECE, WAITING, TO(PIECE, BINDING) | TO(PIECE, FREE),                                        \
      "for a path, and for what one that was lost still has of it")                                \
    X(PIECE, COMING, TO(PIECE, CLOSING) | TO(PIECE, WAITING),                                      \
      "all its writes were posted; some pages are not there yet")                                  \
    X(PIECE, ARRIVED, TO(PIECE, CLOSING) | TO(PIECE, WAITING),                                     \
      "all pages are there; the answer is due")                                                    \
    X(PIECE, CLOSING, TO(PIECE, CLOSED) | TO(PIECE, WAITING) | TO(PIECE, FREE),                    \
      "the device closes the memory windows")                                                      \
    X(PIECE, CLOSED, TO(PIECE, CONFIRMING) | TO(PIECE, FREE), "waits for room to say CONFIRM")     \
    X(PIECE, CONFIRMING, TO(PIECE, VERIFYING) | TO(PIECE, FREE), "the answer to CONFIRM is due")   \
    X(PIECE, VERIFYING, TO(PIECE, FREE), "a data thread compares its pages with their checksums")

STATE_MACHINE(piece, PIECE, PIECE_STATE_TABLE)

#endif
