/* The states of a page (states.h says how to read the table). Whether a COMMITTED page may be
 * matched (its step has passed) and read by peers (its checksums are known) is told by its prefix
 * node, since all pages of a node share that fate. */
#ifndef CORE_PAGE_STATES_H
#define CORE_PAGE_STATES_H

#include "core/arena/states.h"

#define PAGE_STATE_TABLE(X)                                                                        \
    X(PAGE, FREE, TO(PAGE, OWNED) | TO(PAGE, RESERVED) | TO(PAGE, COPYING),                        \
      "in its slab's free list; nobody can write it")                                              \
    X(PAGE, OWNED, TO(PAGE, COMMITTED) | TO(PAGE, RETIRING) | TO(PAGE, FREE),                      \
      "in one session's table; its engine writes it")                                              \
    X(PAGE, COMMITTED, TO(PAGE, FREE),                                                             \
      "in one prefix node's snapshot; written no more; sessions borrow it")                        \
    X(PAGE, RESERVED, TO(PAGE, VERIFIED) | TO(PAGE, QUARANTINE) | TO(PAGE, FREE),                  \
      "arriving in one transfer: our receive writes it")                                           \
    X(PAGE, VERIFIED,                                                                              \
      TO(PAGE, COMMITTED) | TO(PAGE, OWNED) | TO(PAGE, QUARANTINE) | TO(PAGE, FREE),               \
      "arrived, checksum agrees, not published")                                                   \
    X(PAGE, RETIRING, TO(PAGE, FREE),                                                              \
      "given back; a step of its engine that is not done may still touch it")                      \
    X(PAGE, QUARANTINE, TO(PAGE, FREE),                                                            \
      "transfer aborted; free only on the proof that nothing can write it")                        \
    X(PAGE, COPYING, TO(PAGE, COMMITTED) | TO(PAGE, FREE),                                         \
      "of one prefix node, on either tier: a copy from the other one writes it, or is about to")

STATE_MACHINE(page, PAGE, PAGE_STATE_TABLE)

#endif
