/* The frame header and the splitter: every length at the edges, every split of a stream, and which
 * bytes are copied. Bytes that must not be read or written lie behind a page without access. */
#include <string.h>

#include "base/prng.h"
#include "testing/test.h"
#include "unit/rig/rig_wire.h"

#define BODY_MAX   300u
#define BUF_BYTES  (FRAME_HEADER_BYTES + BODY_MAX) /* of a frame, at the most */
#define FRAMES_MAX 64

struct stream {
    uint8_t bytes[FRAMES_MAX * BUF_BYTES];
    size_t n, frames;
    uint32_t length[FRAMES_MAX];
};

static void stream_add(struct stream *s, uint32_t length)
{
    struct frame_header h = {.length = length,
                             .version = FRAME_VERSION,
                             .type = (uint16_t)(s->frames + 1),
                             .request_id = 1000 + s->frames,
                             .session = ~(uint64_t)s->frames};

    frame_encode(&h, s->bytes + s->n);
    for (uint32_t i = 0; i < length; i++)
        s->bytes[s->n + FRAME_HEADER_BYTES + i] = (uint8_t)(s->frames * 31 + i);
    s->length[s->frames++] = length;
    s->n += FRAME_HEADER_BYTES + length;
}

static void expect_frame(const struct stream *s, size_t i, const struct frame_header *h,
                         const uint8_t *body)
{
    assert_true(i < s->frames);
    assert_int_equal(h->length, s->length[i]);
    assert_int_equal(h->type, i + 1);
    assert_int_equal(h->request_id, 1000 + i);
    assert_int_equal(h->session, ~(uint64_t)i);
    for (uint32_t b = 0; b < h->length; b++)
        assert_int_equal(body[b], (uint8_t)(i * 31 + b));
}

/* Feeds [from, to) as one piece at the end of guarded memory. Returns the number of frames seen so
 * far. `room`, of BODY_MAX bytes, is guarded, too: a body gets the end of it. NULL: bodies that
 * come in pieces are dropped. */
static size_t feed(const struct stream *s, struct splitter *sp, uint8_t *room, size_t from,
                   size_t to, size_t seen)
{
    size_t n = to - from, left = n;
    uint8_t *piece = rig_guarded(n ? n : 1);
    const uint8_t *in = piece, *body;
    struct frame_header h;
    enum tern_err err;
    enum split split;

    memcpy(piece, s->bytes + from, n);
    while ((split = splitter_next(sp, &in, &left, &h, &body, &err)) != SPLIT_MORE) {
        if (split == SPLIT_FRAME)
            expect_frame(s, seen++, &h, body);
        else if (split == SPLIT_ROOM)
            sp->body = room ? room + BODY_MAX - h.length : NULL;
        else if (split == SPLIT_SKIPPED)
            assert_int_equal(h.length, s->length[seen++]);
        else
            fail_msg("a good header is refused: %d", (int)err);
        assert_true(split != SPLIT_SKIPPED || !room);
    }
    assert_int_equal(left, 0);
    assert_ptr_equal(in, piece + n);
    rig_release(piece, n ? n : 1);
    return seen;
}

static void small_stream(struct stream *s)
{
    static const uint32_t lengths[] = {1, 2, 23, 24, 25, BODY_MAX, 7, BODY_MAX - 1};

    memset(s, 0, sizeof *s);
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++)
        stream_add(s, lengths[i]);
}

TEST(frame_header_is_little_endian_at_fixed_offsets)
{
    static const uint8_t expected[FRAME_HEADER_BYTES] = {
        4,   3,   2, 0, 1,    0,    6,    5,    0xf,  0xe,  0xd,  0xc,
        0xb, 0xa, 9, 8, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11, 0x10};
    struct frame_header h = {.length = 0x00020304,
                             .version = 1,
                             .type = 0x0506,
                             .request_id = 0x08090a0b0c0d0e0f,
                             .session = 0x1011121314151617};
    struct frame_header back = {0};
    uint8_t out[FRAME_HEADER_BYTES];

    frame_encode(&h, out);
    assert_memory_equal(out, expected, sizeof out);
    assert_int_equal(frame_decode(out, UINT32_MAX, &back), TERN_OK);
    assert_memory_equal(&back, &h, sizeof h);
}

TEST(frame_lengths_at_the_edges_are_judged)
{
    static const struct {
        uint32_t length;
        enum tern_err err;
    } cases[] = {
        {0, TERN_MALFORMED},
        {1, TERN_OK},
        {FRAME_BODY_MAX - 1, TERN_OK},
        {FRAME_BODY_MAX, TERN_OK},
        {FRAME_BODY_MAX + 1, TERN_MALFORMED},
        {UINT32_MAX - FRAME_HEADER_BYTES + 1,
         TERN_MALFORMED}, /* with the header added it would wrap to 0 */
        {UINT32_MAX, TERN_MALFORMED},
    };
    uint8_t in[FRAME_HEADER_BYTES];

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct frame_header h = {.length = cases[i].length, .version = FRAME_VERSION, .type = 1};
        struct frame_header ret = {.length = 77};

        frame_encode(&h, in);
        assert_int_equal(frame_decode(in, FRAME_BODY_MAX, &ret), cases[i].err);
        assert_int_equal(ret.length, cases[i].err == TERN_OK ? cases[i].length : 77);
    }
}

TEST(frame_versions_outside_the_range_are_unsupported)
{
    static const uint16_t bad[] = {0, FRAME_VERSION_MIN - 1, FRAME_VERSION + 1, UINT16_MAX};
    uint8_t in[FRAME_HEADER_BYTES];
    struct frame_header ret;

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        frame_encode(&(struct frame_header){.length = 1, .version = bad[i], .type = 1}, in);
        assert_int_equal(frame_decode(in, FRAME_BODY_MAX, &ret), TERN_UNSUPPORTED);
    }
}

TEST(splitter_every_split_in_two_gives_the_same_frames)
{
    static struct stream s;

    small_stream(&s);
    for (size_t cut = 0; cut <= s.n; cut++) {
        uint8_t *room = rig_guarded(BODY_MAX);
        struct splitter sp = {.body_max = BODY_MAX};
        size_t seen = feed(&s, &sp, room, 0, cut, 0);

        seen = feed(&s, &sp, room, cut, s.n, seen);
        assert_int_equal(seen, s.frames);
        assert_int_equal(sp.have, 0);
        rig_release(room, BODY_MAX);
    }
}

TEST(splitter_byte_by_byte_gives_the_same_frames)
{
    static struct stream s;
    uint8_t *room = rig_guarded(BODY_MAX);
    struct splitter sp = {.body_max = BODY_MAX};
    size_t seen = 0;

    small_stream(&s);
    for (size_t i = 0; i < s.n; i++)
        seen = feed(&s, &sp, room, i, i + 1, seen);
    assert_int_equal(seen, s.frames);
    rig_release(room, BODY_MAX);
}

TEST(splitter_random_pieces_give_the_same_frames)
{
    static struct stream s;
    struct prng p;

    prng_init(&p, 1);
    for (int round = 0; round < 200; round++) {
        uint8_t *room = rig_guarded(BODY_MAX);
        struct splitter sp = {.body_max = BODY_MAX};
        size_t at = 0, seen = 0;

        memset(&s, 0, sizeof s);
        for (int i = 0; i < FRAMES_MAX; i++)
            stream_add(&s, 1 + prng_below(&p, BODY_MAX));
        while (at < s.n) {
            size_t n = prng_below(&p, 3 * BUF_BYTES) + 1;

            n = n < s.n - at ? n : s.n - at;
            seen = feed(&s, &sp, room, at, at + n, seen);
            at += n;
        }
        assert_int_equal(seen, s.frames);
        rig_release(room, BODY_MAX);
    }
}

TEST(splitter_without_room_skips_what_comes_in_pieces_and_no_byte_more)
{
    static struct stream s;

    small_stream(&s);
    for (size_t cut = 0; cut <= s.n; cut++) {
        struct splitter sp = {.body_max = BODY_MAX};
        size_t seen = feed(&s, &sp, NULL, 0, cut, 0);

        seen = feed(&s, &sp, NULL, cut, s.n, seen);
        assert_int_equal(seen, s.frames);
        assert_int_equal(sp.have, 0);
    }
}

TEST(splitter_whole_frame_is_handed_out_in_place)
{
    static struct stream s;
    struct splitter sp = {.body_max = BODY_MAX};
    const uint8_t *in, *body;
    struct frame_header h;
    enum tern_err err;
    size_t n;

    small_stream(&s);
    in = s.bytes;
    n = s.n;
    assert_int_equal(splitter_next(&sp, &in, &n, &h, &body, &err), SPLIT_FRAME);
    assert_ptr_equal(body, s.bytes + FRAME_HEADER_BYTES);
    assert_int_equal(sp.have, 0);
}

/* A bad header ends the connection when its last byte has come, and not one byte earlier. */
static void bad_header(uint32_t length, uint16_t version, enum tern_err expected)
{
    uint8_t header[FRAME_HEADER_BYTES];

    frame_encode(&(struct frame_header){.length = length, .version = version, .type = 1}, header);
    for (size_t cut = 0; cut <= FRAME_HEADER_BYTES; cut++) {
        struct splitter sp = {.body_max = BODY_MAX};
        struct frame_header h;
        const uint8_t *in = header, *body;
        enum tern_err err = TERN_OK;
        size_t n = cut;

        if (cut < FRAME_HEADER_BYTES) {
            assert_int_equal(splitter_next(&sp, &in, &n, &h, &body, &err), SPLIT_MORE);
            n = FRAME_HEADER_BYTES - cut;
        }
        assert_int_equal(splitter_next(&sp, &in, &n, &h, &body, &err), SPLIT_BAD);
        assert_int_equal(err, expected);
    }
}

TEST(splitter_bad_header_is_refused_at_its_last_byte)
{
    bad_header(0, FRAME_VERSION, TERN_MALFORMED);
    bad_header(BODY_MAX + 1, FRAME_VERSION, TERN_MALFORMED);
    bad_header(UINT32_MAX, FRAME_VERSION, TERN_MALFORMED);
    bad_header(UINT32_MAX - FRAME_HEADER_BYTES + 1, FRAME_VERSION, TERN_MALFORMED);
    bad_header(1, FRAME_VERSION + 1, TERN_UNSUPPORTED);
}

TEST(splitter_empty_input_is_no_frame)
{
    uint8_t nothing[1] = {0};
    struct splitter sp = {.body_max = BODY_MAX};
    struct frame_header h;
    const uint8_t *in = nothing, *body;
    enum tern_err err;
    size_t n = 0;

    assert_int_equal(splitter_next(&sp, &in, &n, &h, &body, &err), SPLIT_MORE);
    assert_int_equal(sp.have, 0);
}
