/* Carries out a plan over memory: the reference for transports and device kernels. Pieces of long
 * rows are copied directly. Pieces of short rows are packed at the source into a slot of a staging
 * ring, move as one, and are unpacked at the destination. Both ends derive the same parcels from
 * the plan and two numbers. */
#ifndef ORACLE_CARRY_H
#define ORACLE_CARRY_H

#include "reshard/plan.h"

/* Makes one plan, whatever it costs. */
static inline enum reshard_refusal reshard_plan(const struct reshard_pair *pair, uint64_t span,
                                                struct reshard_plan *io)
{
    struct reshard_ready ready;
    enum reshard_refusal refusal = reshard_prepare(pair, UINT64_MAX, &ready);

    return refusal != RESHARD_NONE ? refusal : reshard_plan_ready(&ready, span, io);
}

/* The pages of a span: the one of `rank` is page[page * ranks + rank], with the ranks of all
 * stages. A page that no piece names may be NULL. Borrowed. */
struct reshard_pages {
    uint8_t *const *page;
    uint32_t ranks;
};

struct reshard_memory {
    struct reshard_pages from, to;
};

/* Copies all pieces directly, in their order. */
void reshard_carry(const struct reshard_plan *p, const struct reshard_memory *m);

struct reshard_staging {
    uint64_t direct_row_bytes; /* rows of at least so many bytes are copied directly */
    uint64_t slot_bytes;       /* of the ring; longer rows are also copied directly */
};

static inline bool piece_is_staged(const struct reshard_staging *s, const struct reshard_piece *p)
{
    return p->kind == PIECE_MOVE && p->shape.row_bytes < s->direct_row_bytes &&
           p->shape.row_bytes <= s->slot_bytes;
}

/* The content of one slot: the staged rows from `first` up to `end`, in the order of the plan. */
struct reshard_place {
    uint32_t piece;
    uint64_t row; /* of that piece */
};

struct reshard_parcel {
    struct reshard_place first, end;
    uint64_t bytes; /* packed */
};

/* Advances *io to the next parcel; zeros stand before the first. Returns false if there is none. */
bool reshard_parcel_next(const struct reshard_plan *p, const struct reshard_staging *s,
                         struct reshard_parcel *io);
/* slot: at least parcel->bytes bytes. */
void reshard_pack(const struct reshard_plan *p, const struct reshard_staging *s,
                  const struct reshard_parcel *parcel, const struct reshard_pages *from,
                  uint8_t *slot);
void reshard_unpack(const struct reshard_plan *p, const struct reshard_staging *s,
                    const struct reshard_parcel *parcel, const struct reshard_pages *to,
                    const uint8_t *slot);
/* Copies all pieces, through one slot of s->slot_bytes. Pieces that are spread come last. */
void reshard_carry_staged(const struct reshard_plan *p, const struct reshard_staging *s,
                          const struct reshard_memory *m, uint8_t *slot);

#endif
