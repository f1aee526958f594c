/* Sample messages of every type, made from the descriptors, and hand-made protobuf bytes: for the
 * tests and fuzzers of the wire. A sample lives in static memory until the next one is made. */
#ifndef TEST_RIG_WIRE_H
#define TEST_RIG_WIRE_H

#include <stddef.h>
#include <stdint.h>

#include "proto/codec.h"

/* Every frame type that this build knows, ascending, with a 0 at the end. */
#define RIG_WIRE_TYPES (2 * MESSAGES_MAX + 1)
extern uint16_t rig_wire_types[RIG_WIRE_TYPES];

/* Fills every field (repeated ones `repeat` times) with values that depend on seed and the
 * field. */
const ProtobufCMessage *rig_wire_sample(uint16_t type, uint64_t seed, size_t repeat);

/* Returns n bytes of memory right in front of a page without access. */
uint8_t *rig_guarded(size_t n);
void rig_release(uint8_t *p, size_t n);

/* For FRAME_BODY_MAX, in front of a guard page. Made by rig_wire_set_up (a cmocka group set-up). */
extern struct budget rig_budget;
extern uint8_t *rig_frame; /* RIG_FRAME_CAP bytes, filled by rig_wire_encode */
#define RIG_FRAME_CAP (FRAME_HEADER_BYTES + FRAME_BODY_MAX)
int rig_wire_set_up(void **state);

/* Encodes into rig_frame; returns the body's bytes. */
size_t rig_wire_encode(uint16_t type, const ProtobufCMessage *msg);
/* Decodes from memory in front of a guard page, which is unmapped afterwards: a message must not
 * point into its body. The budget must be kept, whatever the result. */
enum tern_err rig_wire_decode(uint16_t type, const void *bytes, size_t n,
                              const ProtobufCMessage **ret);
enum tern_err rig_wire_decode_message(uint16_t type, const void *msg);

/* A growing byte string with protobuf's encodings. */
struct rig_bytes {
    uint8_t *v; /* owned */
    size_t n, cap;
};

void rig_bytes_finish(struct rig_bytes *b);
void rig_pb(struct rig_bytes *b, const void *bytes, size_t n);
void rig_pb_varint(struct rig_bytes *b, uint64_t v);
void rig_pb_tag(struct rig_bytes *b, uint32_t field, uint32_t wire_type);
void rig_pb_uint(struct rig_bytes *b, uint32_t field, uint64_t v);
void rig_pb_field(struct rig_bytes *b, uint32_t field, const void *bytes, size_t n);
/* `depth` submessages of field `field`, each inside the one before. */
void rig_pb_nested(struct rig_bytes *b, uint32_t field, size_t depth);
enum tern_err rig_wire_decode_bytes(uint16_t type, const struct rig_bytes *b);

#endif
