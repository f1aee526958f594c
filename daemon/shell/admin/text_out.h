/* JSON and plain text written into a buffer of the caller: bounded, no allocation. What does not
 * fit sets `overflow`, and from then on nothing is written; the buffer always holds a
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

/* Plain text, for what is no JSON. */
void text_printf(struct text_out *out, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Each takes the key inside an object and NULL inside an array or at the top. Commas and escapes
 * are theirs. */
void text_object(struct text_out *out, const char *key);
void text_object_end(struct text_out *out);
void text_array(struct text_out *out, const char *key);
void text_array_end(struct text_out *out);
void text_str(struct text_out *out, const char *key,
              const char *value); /* NULL: null. Bytes that are no UTF-8 become U+FFFD */
void text_u64(struct text_out *out, const char *key, uint64_t value);
/* At most INT64_MAX: many readers of JSON take no larger integer. For numbers that clients choose.
 */
void text_u63(struct text_out *out, const char *key, uint64_t value);
void text_u64_str(struct text_out *out, const char *key,
                  uint64_t value); /* "123": for readers whose numbers are doubles */
void text_hex(struct text_out *out, const char *key, uint64_t value); /* "00000000000000ff" */
void text_f64(struct text_out *out, const char *key,
              double value); /* three decimals; not finite: null */
void text_bool(struct text_out *out, const char *key, bool value);

/* True if the text is whole: every object closed and nothing cut off. */
bool text_whole(const struct text_out *out);

#endif
