/* The fixed header that precedes every message, outside protobuf, so that a check or a limit can
 * refuse before a body is decoded. Little-endian. The daemon splits its streams with the splitter,
 * which takes bytes as they arrive and returns whole frames; it never allocates and rejects a bad
 * header as soon as its 24 bytes have arrived. libtern has all bytes of an answer in one buffer and
 * needs only frame_decode (client/libtern/socket.c). */
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
    uint64_t request_id; /* chosen by the sender of the request, ascending on a connection; the
                            answer repeats it */
    uint64_t session;    /* session id (packed) or 0 */
};

void frame_encode(const struct frame_header *h, uint8_t out[FRAME_HEADER_BYTES]);
/* MALFORMED: length 0 or above body_max. UNSUPPORTED: a version outside [FRAME_VERSION_MIN,
 * FRAME_VERSION]. */
enum tern_err frame_decode(const uint8_t in[FRAME_HEADER_BYTES], uint32_t body_max,
                           struct frame_header *ret);

/* A byte stream that is split into frames. Zeroed, with body_max set, it expects a frame. */
struct splitter {
    uint32_t body_max; /* the largest body accepted from now on */
    uint32_t have;     /* bytes so far of the frame that arrives in pieces, header and body; 0:
                          none */
    uint8_t head[FRAME_HEADER_BYTES];
    struct frame_header header;
    uint8_t *body; /* borrowed: buffer for that frame's body; NULL: the body is dropped */
};

enum split {
    SPLIT_MORE,    /* all bytes were taken, and no frame is complete */
    SPLIT_FRAME,   /* *ret and *ret_body: the body is borrowed until the next call */
    SPLIT_ROOM,    /* *ret arrives in pieces: s->body may be set to a buffer of ret->length bytes */
    SPLIT_SKIPPED, /* the frame without a buffer was dropped */
    SPLIT_BAD,     /* *ret_err: the connection must end */
};

/* Takes bytes from *in. A frame that lies whole inside *in is returned in place, without a copy and
 * without a SPLIT_ROOM before. */
enum split splitter_next(struct splitter *s, const uint8_t **in, size_t *n,
                         struct frame_header *ret, const uint8_t **ret_body,
                         enum tern_err *ret_err);

#endif
