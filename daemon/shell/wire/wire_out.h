/* Answers to frames. What the core answers is written straight into the caller's buffer, by hand: a
 * Step has up to a thousand results, and one pass without intermediate structs is what its latency
 * needs. What each answer says is listed in proto/messages.h; tests/unit/shell/test_shell_wire.c
 * holds every field against the generated decoder. What the shell answers itself goes through
 * wire_encode. */
#ifndef SHELL_WIRE_OUT_H
#define SHELL_WIRE_OUT_H

#include "core/core.h"
#include "proto/codec.h"
#include "seam/mem/mem.h"

/* The type of the frame that answers an operation; 0: it has none, operators are told in text. */
uint16_t wire_out_type(enum op op);

struct config_peer;

/* The shell's part of an answer: the region that a PoolMap is answered with, and the peers that an
 * answer names. */
struct wire_region {
    const struct config_peer *peers;
    uint64_t bytes;
    const char *device;      /* UUID of a GPU; NULL: memory of the host */
    struct mem_brought sums; /* `fd` -1: there is no place for them, or it was not asked for */
};

/* The whole frame of a reply of such an operation; `out` has room for FRAME_HEADER_BYTES +
 * body_max. region: of a PoolMap, and of an answer that names peers. Returns the frame's bytes, 0
 * if the body would pass body_max. */
size_t wire_out_reply(const struct reply *r, const struct wire_region *region, uint32_t body_max,
                      uint8_t *out);

/* "This request failed": fits each answer type, as Status is its field 1. `text` may be "". */
size_t wire_out_status(const struct frame_header *request, enum tern_err err, const char *text,
                       uint32_t body_max, uint8_t *out);

/* Layouts of one pool of ours that a message tells of, borrowed. n 0: none. */
struct reshard_layout;
struct wire_layouts {
    const struct reshard_layout *v;
    uint32_t n;
};

/* tenant: the name that stands for msg->tenant; NULL where there is none. */
size_t wire_out_peer_msg(const struct peer_msg *msg, const char *tenant,
                         const struct wire_layouts *layouts, uint64_t sequence, uint32_t body_max,
                         uint8_t *out);

#define WIRE_OUT_WORDS 320
/* The text of an answer, with its numbers: in `buf`, or as it is where it has none. */
const char *wire_out_text(const char *text, const uint64_t number[REPLY_NUMBERS],
                          char buf[WIRE_OUT_WORDS]);

#endif
