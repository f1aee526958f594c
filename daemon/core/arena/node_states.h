/* The state machines of a prefix node, besides its pages' states (page_states.h): its copy to the
 * other tier, its checksums, and two for its STATE segment. */
#ifndef CORE_NODE_STATES_H
#define CORE_NODE_STATES_H

#include "base/states.h"

/* A copy of a node from tier work.copy_from to tier work.copy_to. */
#define COPY_STATE_TABLE(X)                                                                        \
    X(COPY, NONE, TO(COPY, WAITING) | TO(COPY, QUEUED), "nothing is being copied")                 \
    X(COPY, WAITING, TO(COPY, QUEUED) | TO(COPY, NONE),                                            \
      "destination pages are allocated; the copy waits for the checksums of its source pages")     \
    X(COPY, QUEUED, TO(COPY, RUNNING) | TO(COPY, NONE),                                            \
      "destination pages are allocated; the copy waits for a free copy job")                       \
    X(COPY, RUNNING, TO(COPY, DONE) | TO(COPY, CANCELLED) | TO(COPY, NONE),                        \
      "a job reads pages of one tier and writes pages of the other")                               \
    X(COPY, CANCELLED, TO(COPY, RUNNING) | TO(COPY, NONE),                                         \
      "the job still runs, but nobody needs the copy: its destination pages are freed when the "   \
      "job ends")                                                                                  \
    X(COPY, DONE, TO(COPY, NONE),                                                                  \
      "the job has succeeded; the node takes the pages at once, or, for a copy to the device, "    \
      "when its parent is on the device")

STATE_MACHINE_IN(uint8_t, copy, COPY, COPY_STATE_TABLE)

/* The checksums of a node. Each of its pages has its own machine (PAGE_SEAL). */
#define SEAL_STATE_TABLE(X)                                                                        \
    X(SEAL, NONE, TO(SEAL, QUEUED) | TO(SEAL, DONE), "some page of the node has no checksum")      \
    X(SEAL, QUEUED, TO(SEAL, RUNNING), "the node waits for a free checksum job")                   \
    X(SEAL, RUNNING, TO(SEAL, DONE), "a job computes the checksums")                               \
    X(SEAL, DONE, TO(SEAL, NONE), "every page of the node has a checksum, so peers may read them")

STATE_MACHINE_IN(uint8_t, seal, SEAL, SEAL_STATE_TABLE)

#define RESUME_STATE_TABLE(X)                                                                      \
    X(RESUME, NONE, TO(RESUME, POINT) | TO(RESUME, RELEASED), "no commit ended here")              \
    X(RESUME, POINT, TO(RESUME, POINT) | TO(RESUME, RELEASED),                                     \
      "a commit ended here, so the node is a resume point while its whole window is resident")     \
    X(RESUME, RELEASED, TO(RESUME, POINT) | TO(RESUME, RELEASED),                                  \
      "an engine released the snapshot: the node's STATE is superseded if nobody needs it, with "  \
      "or without a successor")

STATE_MACHINE_IN(uint8_t, resume, RESUME, RESUME_STATE_TABLE)

/* A successor of a node is a resume point below it whose window does not reach its segment. */
#define SUCCESSOR_STATE_TABLE(X)                                                                   \
    X(SUCCESSOR, NONE, TO(SUCCESSOR, BELOW), "the node has never had a successor")                 \
    X(SUCCESSOR, BELOW, TO(SUCCESSOR, EARLIER),                                                    \
      "the node has a successor: its STATE is superseded if nobody needs it")                      \
    X(SUCCESSOR, EARLIER, TO(SUCCESSOR, BELOW),                                                    \
      "the node had a successor before it became a resume point again; nodes above it may still "  \
      "have one")

STATE_MACHINE_IN(uint8_t, successor, SUCCESSOR, SUCCESSOR_STATE_TABLE)

#endif
