/* The fixed header that precedes every message, outside protobuf, so that a gate or a limit can
 * answer before a body is decoded. Little-endian. The splitter is fed bytes as they come and yields
 * whole frames; it never allocates and rejects a bad header as soon as its 24 bytes are there. Only
 * tests use it: the daemon cuts its streams in shell/stream/stream_recv.c and libtern in
 * client/socket.c, both by frame_decode. */
#ifndef WIRE_FRAME_H
#define WIRE_FRAME_H

#include <stddef.h>
#include <stdint.h>

#include "base/tern_err.h"
#include "proto/messages.h"

#define FRAME_HEADER_BYTES 24
#define FRAME_VERSION      1u /* of the header's layout; message versions are negotiated in Hello */
#define FRAME_VERSION_MIN  1u
#define FRAME_BODY_MAX     (1u << 20) /* default cap of a body */

struct frame_header {
    uint32_t
        length; /* of the body; 0 is rejected: every message has a body of at least one field */
    uint16_t version;
    uint16_t type;       /* enum frame_type, of messages.h */
    uint64_t request_id; /* chosen by the asker; the answer repeats it. Ascending on a connection */
    uint64_t session;    /* session id (packed) or 0 */
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
