/* Bodies to structs and back, bounded. wire_decode unpacks one body into a budget and checks every
 * count against the limits of messages.h, so that readers of the struct need not check sizes again;
 * wire_encode packs a struct and its header into the caller's buffer. Neither allocates. The shell
 * and libtern use it.
 *
 * Absent integers read as 0, strings as NULL, bytes as {0, NULL}. Unknown fields are ignored.
 * Arrays of integers are little-endian bytes on the wire and in the struct; use wire_array to read
 * them, and point a bytes field directly at an array to send it. */
#ifndef WIRE_CODEC_H
#define WIRE_CODEC_H

#include <stddef.h>
#include <stdint.h>

#include "base/tern_err.h"
#include "proto/budget.h"
#include "proto/frame.h"
#include "proto/messages.h"
#include "proto/tern.pb-c.h"

/* Versions of the messages that this build supports. N works with N-1. */
#define WIRE_VERSION     1u
#define WIRE_VERSION_MIN 1u

/* The struct of a message, by its name in the table: MESSAGE_STRUCT(pool_open) is
 * Tern__Wire__PoolOpen. The function in the macro is not called. */
#define MESSAGE_STRUCT(message) __typeof__(*tern__wire__##message##__unpack(NULL, 0, NULL))

/* A change of the prefix tree. */
struct wire_event {
    uint64_t number;
    uint64_t chain, parent_chain; /* parent 0: the first chunk of its namespace */
    uint64_t ns_hi, ns_lo;
    uint64_t pool; /* handle */
    uint32_t depth;
    uint16_t tenant;     /* index; 0 on a tenant's socket */
    uint8_t kind, tiers; /* core/query.h's tree_event_kind; bits 1 << enum tier */
};

/* Every decoder of a body calls it first: starts the budget and counts the fields, so that a sender
 * cannot make a decoder run long with fields of two bytes each. UNSUPPORTED, MALFORMED: as for
 * wire_decode. */
enum tern_err wire_begin(struct budget *budget, uint16_t type, const uint8_t *body, size_t n);

/* Unpacks a body. *ret lies in the budget until its next budget_start, which wire_decode calls;
 * cast it to the struct of the type: (const Tern__Wire__Match *)msg. UNSUPPORTED: messages.h has no
 * such type. MALFORMED: the body is no such message, or exceeds a limit or the budget;
 * budget->exceeded is true for the last. */
enum tern_err wire_decode(struct budget *budget, uint16_t type, const uint8_t *body, size_t n,
                          const ProtobufCMessage **ret);

/* Packs header and body. header->length is ignored; the real one is written. A message without any
 * field set gets one padding field that every reader ignores, because a body is never empty.
 * *ret_n: bytes of the whole frame. INVALID, with nothing written: the frame exceeds cap, or its
 * body exceeds body_max. */
enum tern_err wire_encode(const struct frame_header *header, const ProtobufCMessage *msg,
                          uint32_t body_max, uint8_t *out, size_t cap, size_t *ret_n);

/* Returns the bytes of a decoded field as an array of elements of element_bytes (above), aligned
 * for 64-bit loads; in place if already aligned, else copied into the budget. MALFORMED: not a
 * whole number of elements, or no room. */
enum tern_err wire_array(struct budget *budget, const ProtobufCBinaryData *bytes,
                         uint32_t element_bytes, const void **ret, uint32_t *ret_n);

/* Returns a bytes field that points at an array to send; borrowed until wire_encode returns. */
static inline ProtobufCBinaryData wire_bytes(const void *array, size_t n)
{
    return (ProtobufCBinaryData){.len = n, .data = (uint8_t *)(uintptr_t)array};
}

/* Returns the highest version that both sides support. INVALID: an empty range. UNSUPPORTED: none
 * in common.
 */
enum tern_err wire_negotiate(uint32_t their_min, uint32_t their_max, uint32_t *ret_version);

#endif
