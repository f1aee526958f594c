/* See shown.h. */
#include "proto/shown.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Unicode characters without a shape of their own, besides control characters. */
static const struct {
    uint32_t first, last;
} unseen[] = {
    {0x80, 0x9f},     {0xad, 0xad},     {0x61c, 0x61c},     {0x180e, 0x180e},
    {0x200b, 0x200f}, {0x2028, 0x202e}, {0x2060, 0x206f},   {0xfeff, 0xfeff},
    {0xfff9, 0xfffb}, {0xfffe, 0xffff}, {0x1d173, 0x1d17a}, {0xe0000, 0xe0fff},
};

/* Decodes the UTF-8 character at s, which is not ASCII. Returns its bytes, or 0 if it is invalid:
 * overlong forms, surrogates and values above U+10FFFF are invalid (RFC 3629). Never reads past the
 * NUL, because a NUL is no continuation byte. */
static size_t decode(const unsigned char *s, uint32_t *ret)
{
    unsigned char low = 0x80, high = 0xbf;
    size_t n;

    if (s[0] >= 0xc2 && s[0] <= 0xdf) {
        n = 2;
    } else if (s[0] >= 0xe0 && s[0] <= 0xef) {
        n = 3;
        low = s[0] == 0xe0 ? 0xa0 : 0x80;
        high = s[0] == 0xed ? 0x9f : 0xbf;
    } else if (s[0] >= 0xf0 && s[0] <= 0xf4) {
        n = 4;
        low = s[0] == 0xf0 ? 0x90 : 0x80;
        high = s[0] == 0xf4 ? 0x8f : 0xbf;
    } else {
        return 0;
    }
    if (s[1] < low || s[1] > high)
        return 0;
    *ret = s[0] & (0xffu >> (n + 1));
    for (size_t i = 1; i < n; i++) {
        if (s[i] < 0x80 || s[i] > 0xbf)
            return 0;
        *ret = *ret << 6 | (s[i] & 0x3fu);
    }
    return n;
}

static bool has_shape(uint32_t c)
{
    for (size_t i = 0; i < sizeof unseen / sizeof *unseen; i++)
        if (c >= unseen[i].first && c <= unseen[i].last)
            return false;
    return true;
}

static void put_code(char *ret, char letter, uint32_t c, uint32_t digits)
{
    *ret++ = '\\';
    *ret++ = letter;
    while (digits-- > 0)
        *ret++ = "0123456789abcdef"[c >> (4 * digits) & 0xf];
    *ret = '\0';
}

size_t shown_char(const char *text, char ret[SHOWN_CHAR_BYTES])
{
    const unsigned char *s = (const unsigned char *)text;
    const bool ascii = *s < 0x80;
    uint32_t c = *s;
    const size_t n = ascii ? 1 : decode(s, &c);

    if (n == 0 || (ascii && (c < ' ' || c == 0x7f))) {
        put_code(ret, 'x', *s, 2);
        return 1;
    }
    if (has_shape(c)) {
        for (size_t i = 0; i < n; i++)
            ret[i] = text[i];
        ret[n] = '\0';
    } else {
        put_code(ret, c > 0xffff ? 'U' : 'u', c, c > 0xffff ? 8 : 4);
    }
    return n;
}

size_t shown_plain(const char *text, const char *but)
{
    size_t n = 0;

    while (text[n] >= ' ' && text[n] < 0x7f && !strchr(but, text[n]))
        n++;
    return n;
}

static const char *fill(char *ret, size_t cap, const char *text, bool quoted)
{
    char one[SHOWN_CHAR_BYTES + 1] = "\\";
    size_t at = 0;

    while (*text != '\0') {
        bool escape = quoted && (*text == '"' || *text == '\\');
        size_t taken = shown_char(text, one + 1), n = strlen(one + 1) + escape;

        if (n >= cap - at)
            break;
        memcpy(ret + at, one + !escape, n);
        at += n;
        text += taken;
    }
    ret[at] = '\0';
    return ret;
}

const char *shown(char *ret, size_t cap, const char *text)
{
    return fill(ret, cap, text, false);
}

const char *shown_quoted(char *ret, size_t cap, const char *text)
{
    return fill(ret, cap, text, true);
}

size_t shown_width(const char *text)
{
    size_t n = 0;

    for (; *text != '\0'; text++)
        n += ((unsigned char)*text & 0xc0) != 0x80;
    return n;
}

size_t shown_bytes(const char *text, size_t columns)
{
    size_t n = 0;

    while (text[n] != '\0' && columns + (((unsigned char)text[n] & 0xc0) == 0x80) > 0) {
        columns -= ((unsigned char)text[n] & 0xc0) != 0x80;
        n++;
    }
    return n;
}
