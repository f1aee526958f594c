/* The send buffers of streams: a client that reads nothing ends itself, and neither another
 * tenant's connection nor a reading one of its own tenant. */
#include "unit/shell/test_stream_rig.h"

#define SILENT   8 /* of tenant A, that read nothing */
#define STREAMS  (SILENT + 2)
#define READS    SILENT       /* of tenant A, too */
#define OTHER    (SILENT + 1) /* of tenant B */
#define COMMON   64
#define RESERVED 16
#define MOST     60 /* of one stream */
#define FRAME    60000

static uint8_t frame[FRAME];

FIXTURE(set_up)
{
    struct stream_config config = {.streams = STREAMS,
                                   .send_buffers = COMMON,
                                   .send_buffers_reserved = {RESERVED, RESERVED},
                                   .shares = 2,
                                   .big_bytes = 65536,
                                   .partial_ns = 1000 * (uint64_t)WAIT_NS,
                                   .slow_ns = 1000 * (uint64_t)WAIT_NS};

    streams_open(&config, 1, MOST);
    return 0;
}

FIXTURE(tear_down)
{
    struct stream_share share;

    streams_close(STREAMS);
    for (uint32_t i = 0; i < 2; i++) { /* all of them were returned to their owners */
        stream_share_view(pool, i, &share);
        assert_int_equal(share.used, 0);
        assert_int_equal(share.common_used, 0);
    }
    return streams_gone();
}

/* Reads all bytes under way to that client. */
static void drain(uint32_t i)
{
    uint8_t bytes[65536];
    uint64_t end = io_now_ns() + WAIT_NS;

    while (side[i].s.first && !side[i].closed && io_now_ns() < end) {
        turn(0);
        while (recv(far_end[i], bytes, sizeof bytes, MSG_DONTWAIT) > 0)
            ;
    }
}

/* Answers each silent client in turn, and the one that reads. Returns the most buffers that tenant
 * A had; A always leaves as many common ones as it takes. */
static uint32_t answer_silent(uint32_t rounds, uint32_t reader)
{
    struct stream_share share;
    uint32_t most = 0;

    for (uint32_t round = 0; round < rounds; round++) {
        for (uint32_t i = 0; i < SILENT; i++)
            if (!side[i].closed)
                stream_put(&side[i].s, frame, 16000, NULL, 0);
        stream_share_view(pool, 0, &share);
        assert_true(share.common_used <= COMMON / 2);
        most = share.used > most ? share.used : most;
        assert_true(stream_put(&side[reader].s, frame, FRAME, NULL, 0));
        drain(reader);
        assert_int_equal(side[reader].closed, 0);
    }
    return most;
}

TEST_WITH(stream_of_another_tenant_has_its_buffers_however_many_are_unread, set_up, tear_down)
{
    assert_true(answer_silent(200, OTHER) >= RESERVED + COMMON / 2 - 1);
    for (uint32_t i = 0; i < SILENT; i++)
        if (side[i].closed)
            assert_true(strstr(side[i].why, "reads too slowly") ||
                        strstr(side[i].why, "limits.send_buffers"));
}

TEST_WITH(stream_that_reads_outlives_those_of_its_tenant_that_do_not, set_up, tear_down)
{
    struct stream_share share;
    uint32_t closed = 0;

    assert_true(answer_silent(200, READS) > RESERVED);
    for (uint32_t i = 0; i < SILENT; i++)
        closed += side[i].closed;
    stream_share_view(pool, 0, &share);
    assert_true(closed > 0);
    assert_true(share.doomed > 0);
}

/* Exactly the reserved part and half of the rest: not one buffer more for either. */
TEST_WITH(stream_share_takes_what_is_reserved_and_half_of_the_rest, set_up, tear_down)
{
    uint32_t taken = 0;

    for (uint32_t i = 0; i < SILENT; i++)
        while (!side[i].closed && side[i].s.send_buffers < 8 &&
               stream_put(&side[i].s, frame, SEND_BUFFER_BYTES, NULL, 0))
            ;
    for (uint32_t i = 0; i < SILENT; i++)
        taken += side[i].closed ? 0 : side[i].s.send_buffers - 1;
    assert_true(taken <= RESERVED + COMMON / 2);
    assert_true(stream_fits(&side[OTHER].s, SEND_BUFFER_BYTES * (RESERVED + 1)));
    assert_false(stream_fits(&side[OTHER].s, SEND_BUFFER_BYTES * (RESERVED + COMMON)));
}
