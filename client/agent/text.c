/* See text.h. */
#include "client/agent/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROOM_FIRST  4096
#define FORMAT_MOST 256 /* bytes of one text_format */

void text_begin(struct text *t, size_t most)
{
    *t = (struct text){.most = most};
}

void text_end(struct text *t)
{
    free(t->at);
    *t = (struct text){0};
}

static bool grow(struct text *t, size_t n)
{
    size_t room = t->room ? t->room : ROOM_FIRST;
    char *grown;

    if (n > t->most - t->bytes)
        return false;
    while (room < t->bytes + n)
        room *= 2;
    if (room == t->room)
        return true;
    grown = realloc(t->at, room);
    if (!grown)
        return false;
    t->at = grown;
    t->room = room;
    return true;
}

void text_add(struct text *t, const char *bytes, size_t n)
{
    t->failed = t->failed || !grow(t, n);
    if (t->failed || n == 0)
        return;
    memcpy(t->at + t->bytes, bytes, n);
    t->bytes += n;
}

void text_word(struct text *t, const char *word)
{
    text_add(t, word, strlen(word));
}

void text_format(struct text *t, const char *format, ...)
{
    char buffer[FORMAT_MOST];
    va_list args;
    int n;

    va_start(args, format);
    n = vsnprintf(buffer, sizeof(buffer), format, args);
    va_end(args);
    if (n < 0 || (size_t)n >= sizeof(buffer))
        t->failed = true;
    else
        text_add(t, buffer, (size_t)n);
}
