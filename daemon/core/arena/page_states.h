/* The states of a page and of its checksum (base/states.h explains the tables). The prefix node of
 * a COMMITTED page records whether the page may be matched (its step has passed) and read by peers
 * (its checksums are known), since both are the same for all pages of a node. */
#ifndef CORE_PAGE_STATES_H
#define CORE_PAGE_STATES_H

#include "base/states.h"

#define PAGE_STATE_TABLE(X)                                                                        \
    X(PAGE, FREE, TO(PAGE, LEASED) | TO(PAGE, OWNED) | TO(PAGE, RESERVED) | TO(PAGE, COPYING),     \
      "in its slab's free list; nobody can write it")                                              \
    X(PAGE, LEASED, TO(PAGE, OWNED) | TO(PAGE, RETIRING) | TO(PAGE, FREE),                         \
      "leased to one engine, which may write it; in no session's table that the daemon knows")     \
    X(PAGE, OWNED, TO(PAGE, COMMITTED) | TO(PAGE, HANDED) | TO(PAGE, RETIRING) | TO(PAGE, FREE),   \
      "in one session's table; its engine writes it")                                              \
    X(PAGE, HANDED, TO(PAGE, OWNED) | TO(PAGE, RETIRING) | TO(PAGE, FREE),                         \
      "behind the committed length of a session that was handed over; no longer written")          \
    X(PAGE, COMMITTED, TO(PAGE, FREE),                                                             \
      "in one prefix node's snapshot; no longer written; sessions borrow it")                      \
    X(PAGE, RESERVED, TO(PAGE, VERIFIED) | TO(PAGE, QUARANTINE) | TO(PAGE, FREE),                  \
      "allocated for one transfer, which writes the arriving bytes to it")                         \
    X(PAGE, VERIFIED,                                                                              \
      TO(PAGE, COMMITTED) | TO(PAGE, OWNED) | TO(PAGE, QUARANTINE) | TO(PAGE, FREE),               \
      "arrived, and its bytes match the checksum; not published yet")                              \
    X(PAGE, RETIRING, TO(PAGE, FREE),                                                              \
      "released; an unfinished step of its engine may still touch it")                             \
    X(PAGE, QUARANTINE, TO(PAGE, FREE),                                                            \
      "its transfer was aborted; free only on the proof that nothing can write it")                \
    X(PAGE, COPYING, TO(PAGE, COMMITTED) | TO(PAGE, FREE),                                         \
      "allocated for one prefix node, on either tier; a copy from the other tier writes it now "   \
      "or later")

STATE_MACHINE_IN(uint8_t, page, PAGE, PAGE_STATE_TABLE)

/* The checksum of a page. Its node has one machine for all its pages (SEAL). */
#define PAGE_SEAL_STATE_TABLE(X)                                                                   \
    X(PAGE_SEAL, NONE, TO(PAGE_SEAL, NONE) | TO(PAGE_SEAL, RUNNING) | TO(PAGE_SEAL, DONE),         \
      "unknown, as in every newly allocated page")                                                 \
    X(PAGE_SEAL, RUNNING, TO(PAGE_SEAL, DONE), "a job computes the checksum")                      \
    X(PAGE_SEAL, DONE, TO(PAGE_SEAL, NONE), "known")

STATE_MACHINE_IN(uint8_t, page_seal, PAGE_SEAL, PAGE_SEAL_STATE_TABLE)

#endif
