/* The bounded JSON writer: jansson can read its output, which at every buffer size is either whole
 * or marked as cut. */
#include <stdio.h>
#include <string.h>

#include <jansson.h>
#include <math.h>

#include "shell/admin/text_out.h"
#include "testing/test.h"

static void write_sample(struct text_out *out)
{
    TEXT(out, OPEN_OBJECT(NULL), STR("name", "a \"quoted\" \\ line\nand\ttab \x01 \xc3\xa9"),
         U64("largest", UINT64_MAX), text_u63("chosen", UINT64_MAX), HEX("id", 0xff),
         F64("age", 1.5), F64("never", INFINITY), BOOL("yes", true), STR("nothing", NULL),
         text_or_null(false, U64("absent", 1)), text_or_null(true, U64("present", 1)));
    TEXT(out, OPEN_ARRAY("list"), U64(NULL, 1), OPEN_OBJECT(NULL), CLOSE_OBJECT, OPEN_ARRAY(NULL),
         CLOSE_ARRAY, STR(NULL, "x"), CLOSE_ARRAY);
    TEXT(out, OBJECT("inner", U64("a", 1), U64("b", 2)), CLOSE_OBJECT);
}

TEST(text_out_sample_is_read_back)
{
    struct text_out out;
    char buf[1024];
    json_t *json;

    text_init(&out, buf, sizeof buf);
    write_sample(&out);
    assert_true(text_whole(&out));
    assert_int_equal(strlen(buf), out.len);
    json = json_loads(buf, JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL, NULL);
    assert_non_null(json);
    assert_string_equal(json_string_value(json_object_get(json, "name")),
                        "a \"quoted\" \\ line\\x0aand\\x09tab \\x01 \xc3\xa9");
    assert_string_equal(json_string_value(json_object_get(json, "id")), "00000000000000ff");
    assert_true(json_real_value(json_object_get(json, "age")) == 1.5);
    assert_true(json_is_null(json_object_get(json, "never")));
    assert_true(json_is_null(json_object_get(json, "nothing")));
    assert_true(json_is_true(json_object_get(json, "yes")));
    assert_true(json_is_null(json_object_get(json, "absent")));
    assert_int_equal(json_real_value(json_object_get(json, "present")), 1);
    assert_non_null(strstr(buf, "\"chosen\":9223372036854775807,"));
    assert_int_equal(json_array_size(json_object_get(json, "list")), 4);
    assert_int_equal(json_object_size(json_object_get(json, "inner")), 2);
    assert_non_null(strstr(buf, "\"largest\":18446744073709551615"));
    json_decref(json);
}

/* At each size: whole and equal to the full text, or cut, terminated, and a prefix of it; bytes
 * behind it are untouched. */
TEST(text_out_every_size_is_whole_or_says_so)
{
    char full[1024], buf[1024];
    struct text_out out;
    size_t n;

    text_init(&out, full, sizeof full);
    write_sample(&out);
    n = out.len;
    for (size_t cap = 1; cap <= n + 2; cap++) {
        memset(buf, 'Z', sizeof buf);
        text_init(&out, buf, cap);
        write_sample(&out);
        assert_int_equal(text_whole(&out), cap > n);
        assert_int_equal(strlen(buf), out.len);
        assert_true(out.len < cap);
        assert_int_equal(memcmp(buf, full, out.len), 0);
        for (size_t i = cap; i < sizeof buf; i++)
            assert_int_equal(buf[i], 'Z');
    }
}

TEST(text_out_number_is_not_cut_in_half)
{
    struct text_out out;
    char buf[8];

    text_init(&out, buf, sizeof buf);
    TEXT(&out, OPEN_ARRAY(NULL));
    TEXT(&out, U64(NULL, 123456789));
    assert_true(out.overflow);
    assert_string_equal(buf, "[");
    TEXT(&out, U64(NULL, 1)); /* would fit, but comes after the cut */
    assert_string_equal(buf, "[");
}

/* The string as jansson reads it, valid until the next call. */
static const char *read_back(const char *string)
{
    static char text[128];
    struct text_out out;
    char buf[128];
    json_t *json;

    text_init(&out, buf, sizeof buf);
    TEXT(&out, OPEN_ARRAY(NULL));
    TEXT(&out, STR(NULL, string));
    TEXT(&out, CLOSE_ARRAY);
    json = json_loads(buf, 0, NULL);
    assert_non_null(json);
    snprintf(text, sizeof text, "%s", json_string_value(json_array_get(json, 0)));
    json_decref(json);
    return text;
}

TEST(text_out_bytes_that_are_no_utf8_are_escaped)
{
    static const char *const bad[] = {
        "\xff",
        "\x80",
        "\xc0\x80",
        "\xc1\xbf",
        "\xe0\x9f\xbf",
        "\xed\xa0\x80",
        "\xf0\x8f\xbf\xbf",
        "\xf4\x90\x80\x80",
        "\xf5\x80\x80\x80",
        "\xe2\x82",
        "\xf0\x9f\x98",
        "\xc3",
    };
    static const char *const good[] = {"\xc2\xa0",        "\xdf\xbf",     "\xe0\xa0\x80",
                                       "\xed\x9f\xbf",    "\xee\x80\x80", "\xf0\x90\x80\x80",
                                       "\xf4\x8f\xbf\xbd"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(strncmp(read_back(bad[i]), "\\x", 2), 0);
    assert_string_equal(read_back("a\xe2\x80\xae\x1b"), "a\\u202e\\x1b");
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_string_equal(read_back(good[i]), good[i]);
}

TEST(text_out_unclosed_object_is_not_whole)
{
    struct text_out out;
    char buf[64];

    text_init(&out, buf, sizeof buf);
    TEXT(&out, OPEN_OBJECT(NULL));
    assert_false(text_whole(&out));
    TEXT(&out, CLOSE_OBJECT);
    assert_true(text_whole(&out));
    assert_string_equal(buf, "{}");
}
