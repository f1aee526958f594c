/* How a text that others wrote is shown: names of engines, clients, groups, peers and hosts, and
 * what a peer says. The log, the answers to operators, refusals and the programs all use this, so
 * that no character of a name commands a terminal, ends a line, or turns its reading around. UTF-8
 * stays as it is. A control character, one that has no shape (directions of writing, joiners, line
 * separators, the byte order mark) and a byte that is no UTF-8 are written as \x1b or \u202e. What
 * was shown once is shown the same again. */
#ifndef PROTO_SHOWN_H
#define PROTO_SHOWN_H

#include <stddef.h>

#define SHOWN_CHAR_BYTES 11 /* of one character, as it is shown, with the NUL */

/* How many bytes from here on are shown as they are and are none of `but`. */
size_t shown_plain(const char *text, const char *but);

/* The character at `text`, which is not its end, as it is shown. How many bytes of the text it
 * takes. Makes no call: a handler of signals may use it. */
size_t shown_char(const char *text, char ret[SHOWN_CHAR_BYTES]);

/* As much of the text as fits, in whole characters, and a NUL; `cap` is not 0. Returns ret. */
const char *shown(char *ret, size_t cap, const char *text);
/* The same for between quotes: a quote or a backslash of the text has a backslash before it. */
const char *shown_quoted(char *ret, size_t cap, const char *text);
/* Enough for all of a text of so many bytes. */
#define SHOWN_BYTES(n) (4 * (n) + 1)

/* Columns that a text takes which was shown; a wide character counts as one. */
size_t shown_width(const char *text);
/* The bytes of as many characters of it as `columns` has room for. */
size_t shown_bytes(const char *text, size_t columns);

#endif
