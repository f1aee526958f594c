/* The fixed header, and the splitting of a byte stream into frames. The bytes come from the other
 * side of a connection. Invariant: this file trusts none of them, never allocates, and copies at
 * most a header and the body that it announces. */
#include "proto/frame.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>

static_assert(sizeof(struct frame_header) == FRAME_HEADER_BYTES, "the header has no padding");
static_assert(offsetof(struct frame_header, length) == 0, "wire offset");
static_assert(offsetof(struct frame_header, version) == 4, "wire offset");
static_assert(offsetof(struct frame_header, type) == 6, "wire offset");
static_assert(offsetof(struct frame_header, request_id) == 8, "wire offset");
static_assert(offsetof(struct frame_header, session) == 16, "wire offset");

static void put_le(uint8_t *out, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++)
        out[i] = (uint8_t)(v >> (8 * i));
}

static uint64_t get_le(const uint8_t *in, int bytes)
{
    uint64_t v = 0;

    for (int i = 0; i < bytes; i++)
        v |= (uint64_t)in[i] << (8 * i);
    return v;
}

void frame_encode(const struct frame_header *h, uint8_t out[FRAME_HEADER_BYTES])
{
    put_le(out, h->length, 4);
    put_le(out + 4, h->version, 2);
    put_le(out + 6, h->type, 2);
    put_le(out + 8, h->request_id, 8);
    put_le(out + 16, h->session, 8);
}

enum tern_err frame_decode(const uint8_t in[FRAME_HEADER_BYTES], uint32_t body_max,
                           struct frame_header *ret)
{
    struct frame_header h = {
        .length = (uint32_t)get_le(in, 4),
        .version = (uint16_t)get_le(in + 4, 2),
        .type = (uint16_t)get_le(in + 6, 2),
        .request_id = get_le(in + 8, 8),
        .session = get_le(in + 16, 8),
    };

    if (h.length == 0 || h.length > body_max)
        return TERN_MALFORMED;
    if (h.version < FRAME_VERSION_MIN || h.version > FRAME_VERSION)
        return TERN_UNSUPPORTED;
    *ret = h;
    return TERN_OK;
}

static void advance(const uint8_t **in, size_t *n, size_t by)
{
    *in += by;
    *n -= by;
}

/* Moves bytes from the input to `to` (NULL: drops them) until the frame has `want` of them. Returns
 * false if the input ended first. */
static bool fill(struct splitter *s, uint8_t *to, uint32_t want, const uint8_t **in, size_t *n)
{
    size_t take = want - s->have < *n ? want - s->have : *n;

    if (to && take > 0)
        memcpy(to, *in, take);
    s->have += (uint32_t)take;
    advance(in, n, take);
    return s->have == want;
}

/* Completes the header of a frame that arrives in pieces. */
static enum split split_header(struct splitter *s, const uint8_t **in, size_t *n,
                               struct frame_header *ret, enum tern_err *ret_err)
{
    if (!fill(s, s->head + s->have, FRAME_HEADER_BYTES, in, n))
        return SPLIT_MORE;
    *ret_err = frame_decode(s->head, s->body_max, &s->header);
    if (*ret_err != TERN_OK)
        return SPLIT_BAD;
    s->body = NULL;
    *ret = s->header;
    return SPLIT_ROOM;
}

static enum split split_body(struct splitter *s, const uint8_t **in, size_t *n,
                             struct frame_header *ret, const uint8_t **ret_body)
{
    uint8_t *to = s->body ? s->body + (s->have - FRAME_HEADER_BYTES) : NULL;

    if (!fill(s, to, FRAME_HEADER_BYTES + s->header.length, in, n))
        return SPLIT_MORE;
    s->have = 0;
    *ret = s->header;
    *ret_body = s->body;
    return s->body ? SPLIT_FRAME : SPLIT_SKIPPED;
}

enum split splitter_next(struct splitter *s, const uint8_t **in, size_t *n,
                         struct frame_header *ret, const uint8_t **ret_body, enum tern_err *ret_err)
{
    if (s->have >= FRAME_HEADER_BYTES)
        return split_body(s, in, n, ret, ret_body);
    if (s->have == 0 && *n >= FRAME_HEADER_BYTES) {
        *ret_err = frame_decode(*in, s->body_max, ret);
        if (*ret_err != TERN_OK)
            return SPLIT_BAD;
        if (*n - FRAME_HEADER_BYTES >= ret->length) {
            *ret_body = *in + FRAME_HEADER_BYTES;
            advance(in, n, FRAME_HEADER_BYTES + (size_t)ret->length);
            return SPLIT_FRAME;
        }
    }
    return split_header(s, in, n, ret, ret_err);
}
