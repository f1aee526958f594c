/* The fixed header that precedes every message, outside protobuf, so that a gate or a limit can
 * answer before a body is decoded. Little-endian. The splitter is fed bytes as they come and yields
 * whole frames; it never allocates and rejects a bad header as soon as its 24 bytes are there. */
#ifndef WIRE_FRAME_H
#define WIRE_FRAME_H

#include <stddef.h>
#include <stdint.h>

#include "base/tern_err.h"

#define FRAME_HEADER_BYTES 24
#define FRAME_VERSION      1u /* of the header's layout; message versions are negotiated in Hello */
#define FRAME_VERSION_MIN  1u
#define FRAME_BODY_MAX     (1u << 20) /* default cap of a body */

struct frame_header {
    uint32_t
        length; /* of the body; 0 is rejected: every message has a body of at least one field */
    uint16_t version;
    uint16_t type;       /* enum frame_type */
    uint64_t request_id; /* chosen by the asker; the answer repeats it. Ascending on a connection */
    uint64_t session;    /* session id (packed) or 0 */
};

/* Requests are odd, their answers the next even number. An error of any request is answered by its
 * own answer type with the `status` field set. */
enum frame_type {
    FRAME_HELLO = 1,
    FRAME_HELLO_REPLY = 2,
    FRAME_ENGINE_JOIN = 3,
    FRAME_ENGINE_JOIN_REPLY = 4,
    FRAME_ENGINE_LEAVE = 5,
    FRAME_ENGINE_LEAVE_REPLY = 6,
    FRAME_POOL_OPEN = 7,
    FRAME_POOL_OPEN_REPLY = 8,
    FRAME_POOL_MAP = 9,
    FRAME_POOL_MAP_REPLY = 10, /* the reply carries two fds: region, control page */
    FRAME_POOL_CLOSE = 11,
    FRAME_POOL_CLOSE_REPLY = 12,
    FRAME_SESSION_OPEN = 13,
    FRAME_SESSION_OPEN_REPLY = 14,
    FRAME_PEEK = 15,
    FRAME_PEEK_REPLY = 16,
    FRAME_MATCH = 17,
    FRAME_MATCH_REPLY = 18,
    FRAME_STEP = 19,
    FRAME_STEP_REPLY = 20,
    FRAME_FETCH = 21,
    FRAME_FETCH_REPLY = 22,
    FRAME_FETCH_CANCEL = 23,
    FRAME_FETCH_CANCEL_REPLY = 24,
    FRAME_PING = 25,
    FRAME_PING_REPLY = 26,
    FRAME_STATS = 27,
    FRAME_STATS_REPLY = 28, /* what a tenant may see: its own pools and the error counters */
    FRAME_RETRACT = 29,
    FRAME_RETRACT_REPLY = 30,
    FRAME_RECOVER = 31,
    FRAME_RECOVER_REPLY = 32, /* comes late, as FETCH_REPLY does */
    FRAME_NAMESPACE_RESET = 33,
    FRAME_NAMESPACE_RESET_REPLY = 34,
    FRAME_SUBSCRIBE = 35,
    FRAME_SUBSCRIBE_REPLY = 36, /* a stream: further ones with the same request id follow */
    FRAME_ADMIN = 65,
    FRAME_ADMIN_REPLY = 66, /* on the admin socket only */
    FRAME_PEER_HELLO = 129,
    FRAME_PEER_HELLO_REPLY = 130,
    FRAME_PEER_MSG = 131,  /* no answer type: both sides send it */
    FRAME_PEER_PATH = 133, /* likewise; only to a peer that said rdma in its hello */
};

void frame_encode(const struct frame_header *h, uint8_t out[FRAME_HEADER_BYTES]);
/* MALFORMED: length 0 or above body_max. UNSUPPORTED: a version outside [FRAME_VERSION_MIN,
 * FRAME_VERSION]. */
enum tern_err frame_decode(const uint8_t in[FRAME_HEADER_BYTES], uint32_t body_max,
                           struct frame_header *ret);

/* A byte stream cut into frames inside one caller-owned buffer of FRAME_HEADER_BYTES + body_max
 * bytes. */
struct splitter {
    uint8_t *buf; /* borrowed for the splitter's life */
    uint32_t cap, have;
    uint32_t body_max;
};

void splitter_init(struct splitter *s, uint8_t *buf, uint32_t cap);
/* Takes bytes from *in; returns 1 with a whole frame (body borrowed until the next call), 0 when
 * all bytes were taken and no frame is complete, -1 with *ret_err for a header that must end the
 * connection. A frame that lies whole inside *in is handed out in place, without a copy. */
int splitter_next(struct splitter *s, const uint8_t **in, size_t *n, struct frame_header *ret,
                  const uint8_t **ret_body, enum tern_err *ret_err);

#endif
