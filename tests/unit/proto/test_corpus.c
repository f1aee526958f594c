/* The seed corpus of the wire's fuzzers is made here from the schema, and committed. The test fails
 * if a committed file differs from what it would write; TERN_WRITE_CORPUS=1 writes the files. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "testing/test.h"
#include "unit/rig/rig_wire.h"

#define FRAME_CAP (FRAME_HEADER_BYTES + (64u << 10))

static uint8_t frame[FRAME_CAP];

static size_t encode(uint16_t type, size_t repeat)
{
    struct frame_header h = {.version = FRAME_VERSION,
                             .type = type,
                             .request_id = type + 1000u,
                             .session = 1ull << 32 | 5};
    size_t n = 0;

    assert_int_equal(
        wire_encode(&h, rig_wire_sample(type, type, repeat), FRAME_BODY_MAX, frame, FRAME_CAP, &n),
        TERN_OK);
    return n;
}

static void keep(const char *folder, const char *name, const struct rig_bytes *b)
{
    const char *source = getenv("TERN_SOURCE");
    static uint8_t there[1u << 20];
    char path[4096];
    size_t n;
    FILE *f;

    assert_non_null(source);
    snprintf(path, sizeof path, "%s/tests/fuzz/corpus/%s", source, folder);
    if (getenv("TERN_WRITE_CORPUS"))
        mkdir(path, 0777);
    snprintf(path, sizeof path, "%s/tests/fuzz/corpus/%s/%s", source, folder, name);
    if (getenv("TERN_WRITE_CORPUS")) {
        f = fopen(path, "wb");
        assert_non_null(f);
        assert_int_equal(fwrite(b->v, 1, b->n, f), b->n);
        assert_int_equal(fclose(f), 0);
    }
    f = fopen(path, "rb");
    if (!f)
        fail_msg("%s is not there: run this test with TERN_WRITE_CORPUS=1", path);
    n = fread(there, 1, sizeof there, f);
    fclose(f);
    if (n != b->n || memcmp(there, b->v, n) != 0)
        fail_msg("%s is old: run this test with TERN_WRITE_CORPUS=1", path);
}

TEST(corpus_of_messages_is_current)
{
    static const size_t repeats[] = {0, 1, 3};

    for (const uint16_t *type = rig_wire_types; *type; type++) {
        for (size_t i = 0; i < 3; i++) {
            size_t n = encode(*type, repeats[i]);
            struct rig_bytes b = {0};
            uint8_t first = (uint8_t)*type;
            char name[64];

            assert_true(*type <= UINT8_MAX);
            rig_pb(&b, &first, 1);
            rig_pb(&b, frame + FRAME_HEADER_BYTES, n - FRAME_HEADER_BYTES);
            snprintf(name, sizeof name, "%s-%u-%zu", wire_descriptor(*type)->short_name, first,
                     repeats[i]);
            keep("wire", name, &b);
            rig_bytes_finish(&b);
        }
    }
}

TEST(corpus_of_hostile_messages_is_current)
{
    static const uint8_t types[] = {FRAME_STEP, FRAME_STEP_REPLY, FRAME_POOL_OPEN, FRAME_PEER_MSG};

    for (size_t i = 0; i < sizeof types; i++) {
        struct rig_bytes nested = {0}, empty = {0};
        char name[64];

        rig_pb(&nested, &types[i], 1);
        rig_pb_nested(&nested, 1, 2000);
        snprintf(name, sizeof name, "nested-%u", types[i]);
        keep("wire", name, &nested);
        rig_pb(&empty, &types[i], 1);
        for (int k = 0; k < 2000; k++)
            rig_pb_field(&empty, types[i] == FRAME_PEER_MSG ? 15 : 1, "", 0);
        snprintf(name, sizeof name, "empty-%u", types[i]);
        keep("wire", name, &empty);
        rig_bytes_finish(&nested);
        rig_bytes_finish(&empty);
    }
}

TEST(corpus_of_streams_is_current)
{
    for (uint8_t seed = 0; seed < 4; seed++) {
        struct rig_bytes b = {0};
        char name[64];

        rig_pb(&b, &seed, 1);
        for (const uint16_t *type = rig_wire_types; *type; type++) {
            size_t n = encode(*type, seed % 2);

            if (n <= FRAME_HEADER_BYTES + 512)
                rig_pb(&b, frame, n);
        }
        if (seed == 3)
            rig_pb(&b, "\0\0\0\0\1\0\1\0", 8); /* the beginning of an invalid header */
        snprintf(name, sizeof name, "stream-%u", seed);
        keep("frame", name, &b);
        rig_bytes_finish(&b);
    }
}
