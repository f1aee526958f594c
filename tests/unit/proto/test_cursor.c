/* The reader and the writer of fields that the generated code does not handle: the reader reads
 * what the writer wrote, sizes are those of the written bytes, neither goes beyond its end, and an
 * error stays. */
#include <string.h>

#include "proto/reader.h"
#include "proto/writer.h"
#include "testing/test.h"
#include "unit/rig/rig_wire.h"

TEST(cursor_numbers_of_every_length_come_back)
{
    for (uint32_t bits = 0; bits <= 64; bits++) {
        for (uint32_t less = 0; less < 2; less++) {
            uint64_t v = (bits == 64 ? 0 : 1ull << bits) - less;
            size_t n = number_size(v) + fixed64_size();
            uint8_t *body = rig_guarded(n);
            struct writer w = writer_of(body, n);
            struct reader r = reader_of(body, n);
            struct field f;
            uint64_t back = 0;

            put_number(&w, 3, v);
            put_fixed64(&w, 15, v);
            assert_true(writer_ok(&w));
            assert_ptr_equal(w.p, body + n);
            if (v) {
                assert_true(reader_next(&r, &f));
                assert_int_equal(f.number, 3);
                reader_u64(&r, &f, &back);
                assert_true(back == v);
            }
            assert_true(reader_next(&r, &f));
            assert_int_equal(f.number, 15);
            assert_int_equal(f.type, FIELD_FIXED64);
            assert_true(f.v == v);
            assert_false(reader_next(&r, &f));
            assert_true(reader_ok(&r));
            rig_release(body, n);
        }
    }
}

/* Writes everything into each room that is too small: no byte beyond it, and no success. */
TEST(writer_without_room_fails_and_stays_so)
{
    static const uint8_t bytes[300];
    const size_t inner = number_size(1u << 20) + bytes_size(sizeof bytes);
    const size_t whole = bytes_size(inner) + fixed64_size();

    for (size_t room = 0; room <= whole; room++) {
        uint8_t *body = rig_guarded(room ? room : 1);
        struct writer w = writer_of(body, room);

        put_message(&w, 1, inner);
        put_number(&w, 2, 1u << 20);
        put_bytes(&w, 3, bytes, sizeof bytes);
        put_fixed64(&w, 4, 7);
        assert_int_equal(writer_ok(&w), room == whole);
        put_number(&w, 5, 0); /* although it would fit */
        put_pad(&w, w.p);
        assert_false(writer_ok(&w));
        rig_release(body, room ? room : 1);
    }
}

/* The same bytes as by put_message, whatever size was guessed, in the same room. */
TEST(writer_sizes_a_message_by_what_was_written)
{
    static const size_t lengths[] = {0, 1, 125, 126, 127, 128, 16379, 16380, 16381, 20000};
    static uint8_t bytes[20000], want[20100];

    memset(bytes, 0xa5, sizeof bytes);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        const size_t n = lengths[i], inner = bytes_size(n), whole = bytes_size(inner);
        struct writer w = writer_of(want, whole);

        put_message(&w, 3, inner);
        put_bytes(&w, 2, bytes, n);
        assert_true(writer_ok(&w));
        for (size_t room = whole - 1; room <= whole; room++)
            for (size_t about = 0; about <= n; about += n > 0 ? n : 1) {
                uint8_t *body = rig_guarded(room), *from;

                w = writer_of(body, room);
                from = put_begin(&w, 3, about);
                put_bytes(&w, 2, bytes, n);
                put_end(&w, from, about);
                assert_int_equal(writer_ok(&w), room == whole);
                if (room == whole)
                    assert_memory_equal(body, want, whole);
                rig_release(body, room);
            }
    }
}

TEST(writer_pads_a_body_that_is_empty)
{
    uint8_t body[WRITER_PAD_BYTES + 3];
    struct writer w = writer_of(body, sizeof body);
    struct reader r;
    struct field f;

    put_number(&w, 1, 0);
    put_pad(&w, body);
    assert_ptr_equal(w.p, body + WRITER_PAD_BYTES);
    put_pad(&w, body); /* no longer at the beginning */
    assert_ptr_equal(w.p, body + WRITER_PAD_BYTES);
    r = reader_of(body, WRITER_PAD_BYTES);
    assert_true(reader_next(&r, &f));
    assert_int_equal(f.number, 100);
    assert_false(reader_next(&r, &f));
    assert_true(reader_ok(&r));
}

static bool reads(const void *bytes, size_t n)
{
    uint8_t *body = rig_guarded(n ? n : 1);
    struct reader r, inside;
    struct field f, g;

    memcpy(body, bytes, n);
    r = reader_of(body, n);
    while (reader_next(&r, &f)) {
        if (f.number != 1)
            continue;
        inside = reader_enter(&r, &f);
        while (reader_next(&inside, &g)) {
            uint32_t v;

            reader_u32(&inside, &g, &v);
        }
        reader_leave(&r, &inside);
    }
    assert_false(reader_next(&r, &f));
    rig_release(body, n ? n : 1);
    return reader_ok(&r);
}

TEST(reader_refuses_what_is_no_message)
{
    assert_true(reads("", 0));
    assert_true(reads("\x0a\x02\x08\x05", 4));
    assert_true(reads("\x0a\x00", 2));
    assert_false(reads("\x0a\x03\x08\x05", 4));                 /* beyond its message */
    assert_false(reads("\x0a\x01\x08", 3));                     /* truncated */
    assert_false(reads("\x08\x05", 2));                         /* a number in place of a message */
    assert_false(reads("\x0a\x02\x0a\x00", 4));                 /* bytes in place of a number */
    assert_false(reads("\x0a\x06\x08\xff\xff\xff\xff\x1f", 8)); /* beyond 32 bits */
    assert_false(reads("\x00\x00", 2));                         /* field 0 */
    assert_false(reads("\x13", 1));                             /* a group */
    assert_false(reads("\x11\x01\x02\x03", 4));                 /* 64 bits, truncated */
    assert_false(reads("\x15\x01\x02\x03", 4));                 /* 32 bits, truncated */
    assert_false(reads("\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 12)); /* no end */
    assert_false(reads("\xff\xff\xff\xff\xff\x01\x00", 7)); /* a tag of six bytes */
}
