/* How foreign texts are shown: bytes that control a terminal, end a line or reverse it are never
 * shown as they are; all others are. */
#include <string.h>

#include "proto/shown.h"
#include "testing/test.h"

static const char *of(const char *text)
{
    static char ret[256];

    return shown(ret, sizeof ret, text);
}

TEST(shown_text_without_surprises_stays)
{
    static const char *const plain[] = {"",
                                        "engine-1",
                                        "a b=\"c\"\\",
                                        "Zo\xc3\xab",
                                        "\xe6\x9d\xb1\xe4\xba\xac",
                                        "\xf0\x9f\x98\x80",
                                        "\xed\x9f\xbf",
                                        "\xee\x80\x80",
                                        "\xf4\x8f\xbf\xbd",
                                        "<script>",
                                        "%s%n"};

    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        assert_string_equal(of(plain[i]), plain[i]);
}

TEST(shown_controls_directions_and_strays_are_escaped)
{
    static const struct {
        const char *text, *shown;
    } rows[] = {
        {"x\ny", "x\\x0ay"},
        {"a\rb\t", "a\\x0db\\x09"},
        {"\x1b[31mred", "\\x1b[31mred"},
        {"\x7f", "\\x7f"},
        {"\x9b"
         "31m",
         "\\x9b31m"},
        {"\xc2\x9b"
         "31m",
         "\\u009b31m"},
        {"\xc2\xad", "\\u00ad"},
        {"\xd8\x9c", "\\u061c"},
        {"\xe2\x80\x8b", "\\u200b"},
        {"\xe2\x80\x8e\xe2\x80\x8f", "\\u200e\\u200f"},
        {"\xe2\x80\xa8\xe2\x80\xa9", "\\u2028\\u2029"},
        {"\xe2\x80\xaa\xe2\x80\xae", "\\u202a\\u202e"},
        {"\xe2\x81\xa6\xe2\x81\xa9", "\\u2066\\u2069"},
        {"\xef\xbb\xbf", "\\ufeff"},
        {"\xef\xbf\xbf", "\\uffff"},
        {"\xf3\xa0\x81\x81", "\\U000e0041"},
        {"\xff\xfe", "\\xff\\xfe"},
        {"\xc0\x80", "\\xc0\\x80"},
        {"\xed\xa0\x80", "\\xed\\xa0\\x80"},
        {"\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80"},
        {"\xe2\x82", "\\xe2\\x82"},
        {"\xc3", "\\xc3"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char once[64];

        assert_string_equal(of(rows[i].text), rows[i].shown);
        strcpy(once, of(rows[i].text));
        assert_string_equal(of(once), once);
    }
}

/* For every pair of bytes the result has no control character and is UTF-8. */
TEST(shown_bytes_of_any_kind_are_utf8_without_controls)
{
    for (unsigned i = 1; i < 65536; i++) {
        const char text[] = {(char)(i >> 8), (char)i, '\0'};
        const char *out = of(text);

        while (*out != '\0') {
            char one[SHOWN_CHAR_BYTES];
            size_t n = shown_char(out, one);

            assert_int_equal(strlen(one), n);
            assert_memory_equal(one, out, n);
            out += n;
        }
    }
}

TEST(shown_text_that_does_not_fit_ends_at_a_character)
{
    char ret[6];

    assert_string_equal(shown(ret, sizeof ret, "abcd\xc3\xab"), "abcd");
    assert_string_equal(shown(ret, sizeof ret, "abc\xc3\xab"), "abc\xc3\xab");
    assert_string_equal(shown(ret, sizeof ret, "ab\x1b"), "ab");
    assert_string_equal(shown(ret, 1, "ab"), "");
}

TEST(shown_quoted_text_cannot_end_its_quotes)
{
    char ret[32];

    assert_string_equal(shown_quoted(ret, sizeof ret, "a\"b\\\n"), "a\\\"b\\\\\\x0a");
    assert_string_equal(shown_quoted(ret, 3, "a\""), "a");
}

TEST(shown_columns_are_characters)
{
    assert_int_equal(shown_width("a\xc3\xab\xe6\x9d\xb1z"), 4);
    assert_int_equal(shown_bytes("a\xc3\xab\xe6\x9d\xb1z", 2), 3);
    assert_int_equal(shown_bytes("a\xc3\xab\xe6\x9d\xb1z", 3), 6);
    assert_int_equal(shown_bytes("ab", 9), 2);
    assert_int_equal(shown_bytes("\xc3\xab", 0), 0);
}
