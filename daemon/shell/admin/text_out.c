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
#include "proto/shown.h"

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

/* JSON wants no more escaped than what is shown anyway, but for its own two characters. */
static void put_string(struct text_out *out, const char *s)
{
    char one[SHOWN_CHAR_BYTES];

    put_char(out, '"');
    while (*s != '\0' && !out->overflow) {
        size_t n = shown_plain(s, "\"\\");

        put(out, s, n);
        s += n;
        if (*s == '\0')
            break;
        if (*s == '"' || *s == '\\')
            put_char(out, '\\');
        s += shown_char(s, one);
        if (one[0] == '\\' && one[1] != '\0')
            put_char(out, '\\'); /* the escape is a part of the text, not of its JSON */
        put_text(out, one);
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
