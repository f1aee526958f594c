/* Match, the request that every turn of every session begins with, read without protobuf-c. */
#ifndef PROTO_MATCH_H
#define PROTO_MATCH_H

#include "base/tern_err.h"
#include "proto/budget.h"

struct wire_match {
    uint64_t step, trace_id;
    uint32_t kept, ntokens, nkeys;
    const void *tokens; /* WIRE_TOKEN_BYTES each, aligned to 8; of the body or of the budget */
    const void *keys;   /* WIRE_KEY_BYTES each, the same */
};

/* MALFORMED: no such message, or larger than codec.h lets it be. */
enum tern_err wire_match(struct budget *budget, const uint8_t *body, size_t n,
                         struct wire_match *ret);

#endif
