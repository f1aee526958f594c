/* A text that grows up to a limit. After a write did not fit, or there was no memory, nothing more
 * is written and `failed` stays set: check it before reading the text. */
#ifndef AGENT_TEXT_H
#define AGENT_TEXT_H

#include <stdbool.h>
#include <stddef.h>

struct text {
    char *at; /* owned; not NUL-terminated */
    size_t bytes, room, most;
    bool failed;
};

void text_begin(struct text *t, size_t most);
void text_end(struct text *t); /* frees it */

void text_add(struct text *t, const char *bytes, size_t n);
void text_word(struct text *t, const char *word);
void text_format(struct text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
