/* Encodes answers to frames. The core's answers are written by hand straight into the caller's
 * buffer: a Step has up to a thousand results, and its latency needs one pass without intermediate
 * structs. proto/messages.h lists the fields of each answer; tests/unit/shell/test_shell_wire.c
 * compares every field with the generated decoder. The shell's own answers use wire_out_message. */
#ifndef SHELL_WIRE_OUT_H
#define SHELL_WIRE_OUT_H

#include "core/core.h"
#include "proto/codec.h"
#include "seam/mem/mem.h"

/* The frame type of an operation's answer; 0: none, operators get text. */
uint16_t wire_out_type(enum op op);

struct config_peer;

/* The shell's part of an answer: the region for a PoolMap, and the peers that it names. */
struct wire_region {
    const struct config_peer *peers;
    uint64_t bytes;
    const char *device;      /* UUID of a GPU; NULL: memory of the host */
    struct mem_brought sums; /* `fd` -1: no memory for checksums, or not requested */
};

/* Encodes the whole frame of a reply; `out` has room for FRAME_HEADER_BYTES + body_max. region: for
 * a PoolMap, and for an answer that names peers. Returns the frame's bytes; 0 if the body would
 * exceed body_max. */
size_t wire_out_reply(const struct reply *r, const struct wire_region *region, uint32_t body_max,
                      uint8_t *out);

/* Encodes the frame of a message that the shell itself makes. `out` and the result are as for
 * wire_out_reply. */
size_t wire_out_message(uint16_t type, uint64_t request_id, const ProtobufCMessage *m,
                        uint32_t body_max, uint8_t *out);

/* Returns the status of such an answer, in `status`; NULL (no status) if err is OK. `text` may be
 * "". */
Tern__Wire__Status *wire_out_status_in(Tern__Wire__Status *status, enum tern_err err,
                                       const char *text);
/* Encodes the failure of any request: Status is field 1 of each answer type. */
size_t wire_out_status(const struct frame_header *request, enum tern_err err, const char *text,
                       uint32_t body_max, uint8_t *out);

/* Layouts of one of our pools in a message, borrowed. n 0: none. */
struct reshard_layout;
struct wire_layouts {
    const struct reshard_layout *v;
    uint32_t n;
};

/* tenant: the name of msg->tenant; NULL: none. */
size_t wire_out_peer_msg(const struct peer_msg *msg, const char *tenant,
                         const struct wire_layouts *layouts, uint64_t sequence, uint32_t body_max,
                         uint8_t *out);

#define WIRE_OUT_WORDS 320
/* The text of an answer with its numbers filled in: in `buf`, or `text` itself without numbers. */
const char *wire_out_text(const char *text, const uint64_t number[REPLY_NUMBERS],
                          char buf[WIRE_OUT_WORDS]);

#endif
