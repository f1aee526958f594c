/* The ids of the core: one-field structs, never bare ints, and never an address. */
#ifndef CORE_IDS_H
#define CORE_IDS_H

#include <stdbool.h>
#include <stdint.h>

#define NONE UINT32_MAX /* "no such slot" for every index in the arena */

/* What a client or a peer holds: a slot and the generation that it had when it was handed out. A
 * handle whose generation has passed is answered GONE. On the wire: gen << 32 | slot. {0,0} names
 * nothing. */
struct id {
    uint32_t slot, gen;
};

/* A page within its group: the index is the engine's block id. Index 0 is reserved in every group.
 */
struct page_ref {
    uint32_t index, gen;
};

/* The identity of content, hashed by the shell from (model, weights revision, KV dtype, LoRA,
 * salt). */
struct namespace_id {
    uint64_t hi, lo;
};

/* Stands beside the tokens at an absolute position of the sequence and is compared like one. */
struct extra_key {
    uint32_t position;
    uint32_t zero; /* explicit padding, always 0 */
    uint64_t hi, lo;
};

static inline uint64_t id_pack(struct id id)
{
    return (uint64_t)id.gen << 32 | id.slot;
}

static inline struct id id_unpack(uint64_t wire)
{
    return (struct id){.slot = (uint32_t)wire, .gen = (uint32_t)(wire >> 32)};
}

static inline bool id_equal(struct id a, struct id b)
{
    return a.slot == b.slot && a.gen == b.gen;
}

#endif
