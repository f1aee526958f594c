/* Bodies to structs and back, bounded. wire_decode unpacks one body into a budget and checks every
 * count against the limits below, so that who reads the struct need not look at sizes again;
 * wire_encode packs a struct and its header into the caller's buffer. Neither allocates. Used by
 * the shell, libtern and ternctl.
 *
 * Integers that are absent read as 0, strings as NULL, bytes as {0, NULL}. Unknown fields are
 * ignored. Arrays of integers are little-endian bytes on the wire and in the struct; use wire_array
 * to read them, and point a bytes field straight at the array to send it. */
#ifndef WIRE_CODEC_H
#define WIRE_CODEC_H

#include <stddef.h>
#include <stdint.h>

#include "base/tern_err.h"
#include "proto/budget.h"
#include "proto/frame.h"
#include "proto/tern.pb-c.h"

/* Versions of the messages that this build speaks. N talks to N-1. */
#define WIRE_VERSION     1u
#define WIRE_VERSION_MIN 1u

/* What a decoded message can hold at most; MALFORMED above it. */
#define WIRE_GROUPS_MAX 8u     /* of a PoolOpen */
#define WIRE_AXES_MAX   8u     /* of a group */
#define WIRE_OPS_MAX    1024u  /* of a Step, and results of its answer */
#define WIRE_RUNS_MAX   4096u  /* of one message, all its results together */
#define WIRE_REFS_MAX   65536u /* page references of one message, all its runs together */
#define WIRE_KEYS_MAX   1024u  /* extra keys of one token list */
#define WIRE_ARGS_MAX   16u    /* of an Admin */
#define WIRE_EVENTS_MAX 4096u  /* of a SubscribeReply */
#define WIRE_NAMES_MAX  64u    /* of tenants in a SubscribeReply */
#define WIRE_STRING_MAX 255u   /* bytes of every string but the two below */
#define WIRE_TEXT_MAX                                                                              \
    1023u /* bytes of Status.text; AdminReply.json is bounded by the frame alone */

/* Elements of the byte arrays. */
#define WIRE_TOKEN_BYTES  4u /* Tokens.tokens, PeerMsg.tokens: u32 */
#define WIRE_REF_BYTES    8u /* Run.refs: u32 index, u32 generation */
#define WIRE_GID_BYTES    16
#define WIRE_CHUNK_BYTES  32
#define WIRE_CHUNKS_MAX   64
#define WIRE_WINDOW_BYTES 4
#define WIRE_WINDOWS_MAX  64
#define WIRE_KEY_BYTES    24u /* Tokens.keys, PeerMsg.keys: u32 position, u32 zero, u64 hi, u64 lo */
#define WIRE_EVENT_BYTES  56u /* SubscribeReply.events: struct wire_event */

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

/* The message that a frame type carries: NULL for a type that this build does not know.
 *   POOL_MAP, POOL_CLOSE                             PoolRef
 *   ENGINE_LEAVE_REPLY, POOL_CLOSE_REPLY, FETCH_CANCEL_REPLY,
 *   PING, PING_REPLY, STATS                          Empty
 *   STATS_REPLY                                      AdminReply
 *   every other type                                 the message of its name */
const ProtobufCMessageDescriptor *wire_descriptor(uint16_t type);

/* Unpacks. *ret lies in the budget until its next budget_start (wire_decode calls it); cast it to
 * the struct of the type: (const Tern__Wire__Match *)msg. UNSUPPORTED: wire_descriptor is NULL.
 * MALFORMED: not such a message, or above a limit or the budget; budget->exceeded tells the latter.
 */
enum tern_err wire_decode(struct budget *budget, uint16_t type, const uint8_t *body, size_t n,
                          const ProtobufCMessage **ret);

/* Packs header and body. header->length is ignored; the real one is written. A message without any
 * field set gets one padding field that every reader ignores, since a body is never empty. *ret_n:
 * bytes of the whole frame. INVALID, with nothing written: it does not fit into cap, or its body is
 * above body_max. */
enum tern_err wire_encode(const struct frame_header *header, const ProtobufCMessage *msg,
                          uint32_t body_max, uint8_t *out, size_t cap, size_t *ret_n);

/* The bytes of a decoded field as an array of elements of element_bytes (above), aligned for 64-bit
 * loads; in place if they are, else copied into the budget. MALFORMED: not a whole number of
 * elements, or no room. */
enum tern_err wire_array(struct budget *budget, const ProtobufCBinaryData *bytes,
                         uint32_t element_bytes, const void **ret, uint32_t *ret_n);

/* A bytes field that points at an array to be sent; borrowed until wire_encode returns. */
static inline ProtobufCBinaryData wire_bytes(const void *array, size_t n)
{
    return (ProtobufCBinaryData){.len = n, .data = (uint8_t *)(uintptr_t)array};
}

/* The highest version that both sides speak. INVALID: an empty range. UNSUPPORTED: none in common.
 */
enum tern_err wire_negotiate(uint32_t their_min, uint32_t their_max, uint32_t *ret_version);

#endif
