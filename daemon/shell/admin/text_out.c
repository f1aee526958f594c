/* The bounded writer behind every JSON answer. One invariant: after `overflow` is set nothing more
 * is written, so `buf` holds a prefix of the text and its NUL, whatever the caller goes on to ask
 * for. */
#include "shell/admin/text_out.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"

static void put(struct text_out *out, const char *bytes, size_t n)
{
    if (out->overflow)
        return;
    if (n >= out->cap - out->len) {
        out->overflow = true;
        return;
    }
    memcpy(out->buf + out->len, bytes, n);
    out->len += n;
    out->buf[out->len] = '\0';
}

static void put_char(struct text_out *out, char c)
{
    if (out->overflow || out->cap - out->len <= 1) {
        out->overflow = true;
        return;
    }
    out->buf[out->len++] = c;
    out->buf[out->len] = '\0';
}

static void put_text(struct text_out *out, const char *text)
{
    put(out, text, strlen(text));
}

void text_init(struct text_out *out, char *buf, size_t cap)
{
    check(cap > 0);
    *out = (struct text_out){.buf = buf, .cap = cap};
    buf[0] = '\0';
}

void text_printf(struct text_out *out, const char *format, ...)
{
    size_t room = out->cap - out->len;
    va_list args;
    int n;

    if (out->overflow)
        return;
    va_start(args, format);
    n = vsnprintf(out->buf + out->len, room, format, args);
    va_end(args);
    if (n < 0 || (size_t)n >= room) {
        /* A number that is cut in half would be read as another number, so the whole piece is taken
         * back. */
        out->buf[out->len] = '\0';
        out->overflow = true;
        return;
    }
    out->len += (size_t)n;
}

/* Length of the UTF-8 sequence at s, 0 if there is none. Overlong forms, surrogates and anything
 * above U+10FFFF are none, as RFC 3629 has it. Never looks past the NUL, since that is no
 * continuation byte. */
static size_t utf8_length(const unsigned char *s)
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
    for (size_t i = 2; i < n; i++)
        if (s[i] < 0x80 || s[i] > 0xbf)
            return 0;
    return n;
}

/* Writes the next character of the string, escaped if needed, and returns how many bytes of the
 * string it used. */
static size_t put_escaped(struct text_out *out, const unsigned char *s)
{
    static const char short_form[] = {
        ['\b'] = 'b', ['\t'] = 't', ['\n'] = 'n', ['\f'] = 'f', ['\r'] = 'r'};
    size_t n;

    if (*s == '"' || *s == '\\') {
        put(out, (const char[]){'\\', (char)*s}, 2);
        return 1;
    }
    if (*s < 0x20 || *s == 0x7f) {
        if (*s < sizeof short_form && short_form[*s] != 0)
            put(out, (const char[]){'\\', short_form[*s]}, 2);
        else
            text_printf(out, "\\u%04x", *s);
        return 1;
    }
    n = utf8_length(s);
    if (n == 0) {
        put_text(out, "\xef\xbf\xbd");
        return 1;
    }
    put(out, (const char *)s, n);
    return n;
}

/* How many characters from here on need no escape: most strings are such, and are put whole. */
static size_t plain_length(const unsigned char *s)
{
    size_t n = 0;

    while (s[n] >= 0x20 && s[n] < 0x7f && s[n] != '"' && s[n] != '\\')
        n++;
    return n;
}

static void put_string(struct text_out *out, const char *value)
{
    const unsigned char *s = (const unsigned char *)value;

    put_char(out, '"');
    while (*s != '\0' && !out->overflow) {
        size_t n = plain_length(s);

        put(out, (const char *)s, n);
        s += n;
        if (*s != '\0')
            s += put_escaped(out, s);
    }
    put_char(out, '"');
}

/* The comma before this member and its key. */
static void member(struct text_out *out, const char *key)
{
    uint32_t bit = 1u << out->depth;

    if (out->filled & bit)
        put_char(out, ',');
    out->filled |= bit;
    if (key != NULL) {
        put_string(out, key);
        put_char(out, ':');
    }
}

static void open_level(struct text_out *out, const char *key, const char *bracket)
{
    member(out, key);
    put_text(out, bracket);
    check(out->depth < TEXT_DEPTH_MAX);
    out->depth++;
    out->filled &= ~(1u << out->depth);
}

static void close_level(struct text_out *out, const char *bracket)
{
    check(out->depth > 0);
    out->depth--;
    put_text(out, bracket);
}

void text_object(struct text_out *out, const char *key)
{
    open_level(out, key, "{");
}

void text_object_end(struct text_out *out)
{
    close_level(out, "}");
}

void text_array(struct text_out *out, const char *key)
{
    open_level(out, key, "[");
}

void text_array_end(struct text_out *out)
{
    close_level(out, "]");
}

void text_str(struct text_out *out, const char *key, const char *value)
{
    member(out, key);
    if (value == NULL)
        put_text(out, "null");
    else
        put_string(out, value);
}

void text_u64(struct text_out *out, const char *key, uint64_t value)
{
    char digits[20]; /* of 2^64 - 1 */
    size_t at = sizeof digits;

    member(out, key);
    do
        digits[--at] = (char)('0' + value % 10);
    while ((value /= 10) > 0);
    put(out, digits + at, sizeof digits - at);
}

void text_u63(struct text_out *out, const char *key, uint64_t value)
{
    text_u64(out, key, value < INT64_MAX ? value : INT64_MAX);
}

void text_u64_str(struct text_out *out, const char *key, uint64_t value)
{
    member(out, key);
    text_printf(out, "\"%" PRIu64 "\"", value);
}

void text_hex(struct text_out *out, const char *key, uint64_t value)
{
    member(out, key);
    text_printf(out, "\"%016" PRIx64 "\"", value);
}

void text_f64(struct text_out *out, const char *key, double value)
{
    member(out, key);
    if (isfinite(value))
        text_printf(out, "%.3f", value);
    else
        put_text(out, "null");
}

void text_bool(struct text_out *out, const char *key, bool value)
{
    member(out, key);
    put_text(out, value ? "true" : "false");
}

bool text_whole(const struct text_out *out)
{
    return !out->overflow && out->depth == 0;
}
