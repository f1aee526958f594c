/* The fixed header and the cutting of a byte stream into frames. The bytes come from the other side
 * of a connection: nothing in here may trust one, allocate, or copy more than a header's worth
 * beyond the body cap. */
#include "proto/frame.h"

#include <assert.h>
#include <string.h>

#include "base/check.h"

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

void splitter_init(struct splitter *s, uint8_t *buf, uint32_t cap)
{
    check(cap > FRAME_HEADER_BYTES);
    *s = (struct splitter){.buf = buf, .cap = cap, .body_max = cap - FRAME_HEADER_BYTES};
}

/* Moves bytes from the input until the buffer holds `want`; false if the input ended first. */
static int fill(struct splitter *s, uint32_t want, const uint8_t **in, size_t *n)
{
    size_t take = want > s->have ? want - s->have : 0;

    check(want <= s->cap);
    if (take > *n)
        take = *n;
    if (take > 0)
        memcpy(s->buf + s->have, *in, take);
    s->have += (uint32_t)take;
    *in += take;
    *n -= take;
    return s->have >= want;
}

int splitter_next(struct splitter *s, const uint8_t **in, size_t *n, struct frame_header *ret,
                  const uint8_t **ret_body, enum tern_err *ret_err)
{
    struct frame_header h;
    enum tern_err err;

    if (s->have == 0 && *n >= FRAME_HEADER_BYTES) {
        err = frame_decode(*in, s->body_max, &h);
        if (err != TERN_OK) {
            *ret_err = err;
            return -1;
        }
        if (*n - FRAME_HEADER_BYTES >= h.length) {
            *ret = h;
            *ret_body = *in + FRAME_HEADER_BYTES;
            *in += FRAME_HEADER_BYTES + h.length;
            *n -= FRAME_HEADER_BYTES + h.length;
            return 1;
        }
    }
    if (!fill(s, FRAME_HEADER_BYTES, in, n))
        return 0;
    err = frame_decode(s->buf, s->body_max, &h);
    if (err != TERN_OK) {
        *ret_err = err;
        return -1;
    }
    if (!fill(s, FRAME_HEADER_BYTES + h.length, in, n))
        return 0;
    s->have = 0; /* the bytes stay where they are until the next call */
    *ret = h;
    *ret_body = s->buf + FRAME_HEADER_BYTES;
    return 1;
}
