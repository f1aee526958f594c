/* The one table of page states: name, legal next states, what it means. Code, checks and the table
 * in ARCHITECTURE.md come from here. Whether a COMMITTED page may be matched (its step has passed)
 * and read by peers (its checksums are known) is told by its prefix node, since all pages of a node
 * share that fate. */
#ifndef CORE_PAGE_STATES_H
#define CORE_PAGE_STATES_H

#define TO(s) (1u << PAGE_##s)

/* X(name, legal next, comment) */
#define PAGE_STATE_TABLE(X)                                                                        \
    X(FREE, TO(OWNED) | TO(RESERVED) | TO(COPYING),                                                \
      "in its slab's free list; nobody can write it")                                              \
    X(OWNED, TO(COMMITTED) | TO(RETIRING) | TO(FREE),                                              \
      "in one session's table; its engine writes it")                                              \
    X(COMMITTED, TO(FREE), "in one prefix node's snapshot; written no more; sessions borrow it")   \
    X(RESERVED, TO(VERIFIED) | TO(QUARANTINE) | TO(FREE),                                          \
      "arriving in one transfer: our receive writes it")                                           \
    X(VERIFIED, TO(COMMITTED) | TO(OWNED) | TO(QUARANTINE) | TO(FREE),                             \
      "arrived, checksum agrees, not published")                                                   \
    X(RETIRING, TO(FREE), "given back; a step of its engine that is not done may still touch it")  \
    X(QUARANTINE, TO(FREE), "transfer aborted; free only on the proof that nothing can write it")  \
    X(COPYING, TO(COMMITTED) | TO(FREE),                                                           \
      "of one prefix node, on either tier: a copy from the other one writes it, or is about to")

enum page_state {
#define X(name, next, comment) PAGE_##name,
    PAGE_STATE_TABLE(X)
#undef X
        PAGE_STATES
};

#endif
