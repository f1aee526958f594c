/* The words of a tape's records: a reader stops where they end. */
#include "shell/tape/tape_codec.h"
#include "testing/test.h"

TEST(codec_reads_no_further_than_its_words)
{
    uint32_t words[3] = {11, 12, 13}, v = 7;
    struct codec c = {.reading = true, .words = words, .n = 2};

    codec_u32(&c, &v);
    assert_int_equal(v, 11);
    codec_u32(&c, &v);
    assert_int_equal(v, 12);
    assert_false(c.bad);
    codec_u32(&c, &v);
    assert_true(c.bad);
    assert_true(v == 0 && c.at == 2);
}
