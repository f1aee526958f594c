/* The fixed header that precedes every message, outside protobuf, so that a gate or a limit can
 * answer before a body is decoded. Little-endian. The daemon's streams are cut by the splitter,
 * which is fed bytes as they come and yields whole frames; it never allocates and rejects a bad
 * header as soon as its 24 bytes are there. libtern has all bytes of an answer in one buffer and
 * needs frame_decode alone (client/libtern/socket.c). */
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

/* A byte stream that is cut into frames. Zeroed, with body_max set, it stands before a frame. */
struct splitter {
    uint32_t body_max; /* what may come from now on */
    uint32_t have;     /* bytes of the frame that comes in pieces, header and body; 0: none does */
    uint8_t head[FRAME_HEADER_BYTES];
    struct frame_header header;
    uint8_t *body; /* borrowed: where that frame's body goes. NULL: it is thrown away */
};

enum split {
    SPLIT_MORE,    /* all bytes were taken, and no frame is whole */
    SPLIT_FRAME,   /* *ret and *ret_body: the body is borrowed until the next call */
    SPLIT_ROOM,    /* *ret comes in pieces: s->body may be set, to room for ret->length bytes */
    SPLIT_SKIPPED, /* the frame that had no room has passed */
    SPLIT_BAD,     /* *ret_err: the connection must end */
};

/* Takes bytes from *in. A frame that lies whole inside *in is handed out in place, without a copy
 * and without a SPLIT_ROOM before. */
enum split splitter_next(struct splitter *s, const uint8_t **in, size_t *n,
                         struct frame_header *ret, const uint8_t **ret_body,
                         enum tern_err *ret_err);

#endif
