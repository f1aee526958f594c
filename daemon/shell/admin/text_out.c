/* The bounded writer behind every JSON answer. Invariant: once `overflow` is set nothing more is
 * written, so `buf` holds a prefix of the text and its NUL, whatever the caller asks for. */
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
    put(out, &c, 1);
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

__attribute__((format(printf, 2, 3))) static void put_format(struct text_out *out,
                                                             const char *format, ...)
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
        /* Half a number would be read as another number, so the whole piece is removed. */
        out->buf[out->len] = '\0';
        out->overflow = true;
        return;
    }
    out->len += (size_t)n;
}

/* Beside the escapes of shown text, JSON needs only its own two characters escaped. */
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
            put_char(out, '\\'); /* the escape belongs to the text, not to its JSON */
        put_text(out, one);
    }
    put_char(out, '"');
}

static void put_number(struct text_out *out, uint64_t value)
{
    char digits[20]; /* of 2^64 - 1 */
    size_t at = sizeof digits;

    do
        digits[--at] = (char)('0' + value % 10);
    while ((value /= 10) > 0);
    put(out, digits + at, sizeof digits - at);
}

/* Writes the comma before this member, and its key. */
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

static void open_level(struct text_out *out, const char *bracket)
{
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

void text_fields(struct text_out *out, const struct text_field *f)
{
    for (; f->kind != TEXT_LAST; f++) {
        if (f->kind != TEXT_CLOSE)
            member(out, f->key);
        if (f->kind == TEXT_OPEN)
            open_level(out, f->text);
        else if (f->kind == TEXT_CLOSE)
            close_level(out, f->text);
        else if (f->kind == TEXT_U64)
            put_number(out, f->number);
        else if (f->kind == TEXT_HEX)
            put_format(out, "\"%016" PRIx64 "\"", f->number);
        else if (f->kind == TEXT_F64 && isfinite(f->real))
            put_format(out, "%.3f", f->real);
        else if (f->kind == TEXT_BOOL)
            put_text(out, f->truth ? "true" : "false");
        else if (f->kind == TEXT_STR && f->text != NULL)
            put_string(out, f->text);
        else
            put_text(out, "null");
    }
}

struct text_field text_u63(const char *key, uint64_t value)
{
    return U64(key, value < INT64_MAX ? value : INT64_MAX);
}

struct text_field text_or_null(bool there, struct text_field field)
{
    return there ? field : STR(field.key, NULL);
}

bool text_whole(const struct text_out *out)
{
    return !out->overflow && out->depth == 0;
}
