/* Memory for one decoded message at a time: a bump arena over memory that the caller owns, behind
 * protobuf-c's allocator interface. The memory of a message is bounded by the size of its body, so
 * a small body cannot make the daemon touch much memory: protobuf-c alone turns 1 MiB of empty
 * submessages into 64 MiB. Pieces are not freed one by one; the next message reuses the arena from
 * its beginning.
 */
#ifndef WIRE_BUDGET_H
#define WIRE_BUDGET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <protobuf-c/protobuf-c.h>

#include "proto/frame.h"

/* A body of n bytes may take BUDGET_BASE + BUDGET_FACTOR * n bytes. The base admits a Step (or its
 * answer) with the largest number of small operations; the factor admits messages that consist of
 * byte arrays. */
#define BUDGET_BASE   (768u << 10)
#define BUDGET_FACTOR 3u
#define BUDGET_ALIGN  16u /* of each piece: arrays in a decoded message can be used in place */

/* Bytes of an arena that can decode every body up to body_max. */
#define BUDGET_BYTES(body_max) (BUDGET_BASE + (size_t)BUDGET_FACTOR * (body_max))

struct budget {
    uint8_t *mem; /* borrowed for the budget's life; BUDGET_ALIGN aligned */
    size_t cap;
    size_t limit; /* for the message being decoded, at most cap */
    size_t used;
    size_t high_water; /* over all messages */
    bool exceeded;     /* the last message needed more than its limit */
    ProtobufCAllocator allocator;
};

void budget_init(struct budget *b, void *mem, size_t cap);
/* Frees all pieces and sets the limit for a body of that size. */
void budget_start(struct budget *b, size_t body_bytes);
/* Allocates n bytes. Returns NULL and sets `exceeded` if that exceeds the limit. */
void *budget_take(struct budget *b, size_t n);

#endif
