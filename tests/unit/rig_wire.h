/* Sample messages of every type, made from the descriptors, and hand-made protobuf bytes: for the
 * tests and fuzzers of the wire. A sample lives in static memory until the next one is made. */
#ifndef TEST_RIG_WIRE_H
#define TEST_RIG_WIRE_H

#include <stddef.h>
#include <stdint.h>

#include "proto/codec.h"

/* Every frame type that this build knows, ascending; 0 ends it. */
extern const uint16_t rig_wire_types[];

/* Fills every field (repeated ones `repeat` times) with values that follow from seed and the
 * field's place. */
const ProtobufCMessage *rig_wire_sample(uint16_t type, uint64_t seed, size_t repeat);

/* A growing byte string with protobuf's encodings. */
struct rig_bytes {
    uint8_t *v; /* owned */
    size_t n, cap;
};

void rig_bytes_finish(struct rig_bytes *b);
void rig_put(struct rig_bytes *b, const void *bytes, size_t n);
void rig_put_varint(struct rig_bytes *b, uint64_t v);
void rig_put_tag(struct rig_bytes *b, uint32_t field, uint32_t wire_type);
void rig_put_uint(struct rig_bytes *b, uint32_t field, uint64_t v);
void rig_put_field(struct rig_bytes *b, uint32_t field, const void *bytes, size_t n);
/* `depth` submessages of field `field`, each inside the one before. */
void rig_put_nested(struct rig_bytes *b, uint32_t field, size_t depth);

#endif
