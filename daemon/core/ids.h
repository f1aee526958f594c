/* The ids of the core: a struct for each kind, never a bare int, and never an address. */
#ifndef CORE_IDS_H
#define CORE_IDS_H

#include <stdbool.h>
#include <stdint.h>

#define NONE UINT32_MAX /* "no such slot" for every index in the arena */

/* A handle to a record of the core, as a client, a peer or a worker has it: the record's slot, and
 * the slot's generation when the handle was made. A handle of a past generation is answered GONE.
 * Each kind has its own type, so that no other kind can be passed. Packed, as on the wire: gen <<
 * 32 | slot. {0, 0} names nothing. */
#define HANDLE(kind)                                                                               \
    struct kind##_id {                                                                             \
        uint32_t slot, gen;                                                                        \
    };                                                                                             \
    static inline uint64_t kind##_id_pack(struct kind##_id id)                                     \
    {                                                                                              \
        return (uint64_t)id.gen << 32 | id.slot;                                                   \
    }                                                                                              \
    static inline struct kind##_id kind##_id_unpack(uint64_t packed)                               \
    {                                                                                              \
        return (struct kind##_id){.slot = (uint32_t)packed, .gen = (uint32_t)(packed >> 32)};      \
    }                                                                                              \
    static inline bool kind##_id_equal(struct kind##_id a, struct kind##_id b)                     \
    {                                                                                              \
        return a.slot == b.slot && a.gen == b.gen;                                                 \
    }

HANDLE(engine)
HANDLE(pool)
HANDLE(session)
HANDLE(node)
HANDLE(pull)   /* a transfer in */
HANDLE(serve)  /* a transfer out */
HANDLE(seal)   /* a job that computes the checksums of a node's pages */
HANDLE(copy)   /* a job that copies a node's pages from one tier to the other */
HANDLE(record) /* a turn record */

/* A session that was handed over, or will be, as its ticket names it (Y1). */
struct ticket {
    struct session_id id;  /* gen 0: no ticket */
    uint64_t key[2];       /* random, sent only with the ticket: proves that its bearer has the
                              ticket */
    uint64_t incarnation;  /* of the daemon that has the session */
    uint32_t length, zero; /* tokens; 0: the session still ran when the ticket was made */
};

/* A page within its group: the index is the engine's block id. Each group reserves index 0. */
struct page_ref {
    uint32_t index, gen;
};

/* Identity of content: the shell hashes (model, weights revision, KV dtype, LoRA, salt). */
struct namespace_id {
    uint64_t hi, lo;
};

/* Belongs to the token at an absolute position of the sequence, and is compared like a token. */
struct extra_key {
    uint32_t position;
    uint32_t zero; /* explicit padding, always 0 */
    uint64_t hi, lo;
};

#endif
