/* Writes JSON and plain text into the caller's buffer, bounded and without allocation. Text that
 * does not fit sets `overflow`; after that nothing is written. Invariant: the buffer is always a
 * NUL-terminated string. Used by admin answers, statistics and `--json` outputs. */
#ifndef SHELL_TEXT_OUT_H
#define SHELL_TEXT_OUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TEXT_DEPTH_MAX 31 /* nested objects and arrays */

struct text_out {
    char *buf;       /* borrowed */
    size_t cap, len; /* len without the NUL */
    bool overflow;
    uint32_t depth;
    uint32_t filled; /* bit d: the object or array at depth d has a member already */
};

/* cap is 1 or more. */
void text_init(struct text_out *out, char *buf, size_t cap);

/* A member of an object, or an element of an array. */
struct text_field {
    enum {
        TEXT_LAST,
        TEXT_STR,
        TEXT_U64,
        TEXT_HEX,
        TEXT_F64,
        TEXT_BOOL,
        TEXT_OPEN,
        TEXT_CLOSE
    } kind;
    const char *key; /* NULL: inside an array or at the top */
    union {
        const char *text; /* NULL: null */
        uint64_t number;
        double real;
        bool truth;
    };
};

/* TEXT(out, STR("a", text), OBJECT("b", U64("c", n))) writes members in order, with commas and
 * escapes. Contents made by loops or conditions go between OPEN_ and CLOSE_ fields. */
#define TEXT(out, ...)                                                                             \
    text_fields(out, (const struct text_field[]){__VA_ARGS__, {.kind = TEXT_LAST}})
void text_fields(struct text_out *out, const struct text_field *fields); /* up to TEXT_LAST */

#define FIELD(kind_, key_, ...) ((struct text_field){.kind = kind_, .key = key_, __VA_ARGS__})
#define STR(key, value)         FIELD(TEXT_STR, key, .text = value) /* invalid UTF-8: U+FFFD */
#define U64(key, value)         FIELD(TEXT_U64, key, .number = value)
#define HEX(key, value)         FIELD(TEXT_HEX, key, .number = value) /* "00000000000000ff" */
#define F64(key, value)         FIELD(TEXT_F64, key, .real = value)   /* not finite: null */
#define BOOL(key, value)        FIELD(TEXT_BOOL, key, .truth = value)
/* Members of a struct under their own names. */
#define NUM(of, member)  U64(#member, (of).member)
#define FLAG(of, member) BOOL(#member, (of).member)
#define WORD(of, member) STR(#member, (of).member)
#define OPEN_OBJECT(key) FIELD(TEXT_OPEN, key, .text = "{")
#define CLOSE_OBJECT     FIELD(TEXT_CLOSE, NULL, .text = "}")
#define OPEN_ARRAY(key)  FIELD(TEXT_OPEN, key, .text = "[")
#define CLOSE_ARRAY      FIELD(TEXT_CLOSE, NULL, .text = "]")
#define OBJECT(key, ...) OPEN_OBJECT(key), __VA_ARGS__, CLOSE_OBJECT

/* A number that a client chose, cut to INT64_MAX: many JSON readers accept no larger integer. */
struct text_field text_u63(const char *key, uint64_t value);
/* Writes `field`, or null if not `there`. */
struct text_field text_or_null(bool there, struct text_field field);

/* Returns true if the text is whole: every object is closed and nothing was cut off. */
bool text_whole(const struct text_out *out);

#endif
