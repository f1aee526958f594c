/* Escaping of texts from others: names of engines, clients, groups, peers and hosts, and texts from
 * peers. The log, the answers to operators, refusals and the programs all use it, so that no
 * character of a name controls a terminal, ends a line, or reverses its direction. UTF-8 stays
 * unchanged. A control character, a character without a shape (directions of writing, joiners, line
 * separators, the byte order mark) and a byte that is no UTF-8 are written as \x1b or \u202e. An
 * escaped text stays the same when it is escaped again. */
#ifndef PROTO_SHOWN_H
#define PROTO_SHOWN_H

#include <stddef.h>

#define SHOWN_CHAR_BYTES 11 /* the most bytes of one escaped character, with the NUL */

/* Returns the number of leading bytes that need no escape and are not in `but`. */
size_t shown_plain(const char *text, const char *but);

/* Escapes the character at `text`, which is not at its end. Returns the bytes of the text that it
 * takes. Makes no library call, so a signal handler may use it. */
size_t shown_char(const char *text, char ret[SHOWN_CHAR_BYTES]);

/* Writes as much of the escaped text as fits, in whole characters, and a NUL; `cap` is not 0.
 * Returns ret. */
const char *shown(char *ret, size_t cap, const char *text);
/* The same for a text between quotes: a backslash precedes each quote or backslash. */
const char *shown_quoted(char *ret, size_t cap, const char *text);
/* Room for any escaped text of n bytes. */
#define SHOWN_BYTES(n) (4 * (n) + 1)

/* Returns the columns of an escaped text; a wide character counts as one. */
size_t shown_width(const char *text);
/* Returns the bytes of as many of its characters as fit into `columns`. */
size_t shown_bytes(const char *text, size_t columns);

#endif
