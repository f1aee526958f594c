/* An event of a tape as words and numbers, for tern-sim --tape and ternctl tape read. It has no
 * text of users: no token ids and no names. */
#ifndef CLIENT_TAPE_TEXT_H
#define CLIENT_TAPE_TEXT_H

#include <stdint.h>
#include <stdio.h>

struct event;

#define TAPE_FIELDS_MAX 8

struct tape_field {
    const char *key;  /* static */
    const char *word; /* static; NULL: a number */
    uint64_t number;
    uint32_t hex_digits; /* of a hexadecimal number; 0: decimal */
};

struct tape_line {
    const char *event; /* static; "unknown" if this build has no word */
    uint64_t now_ns;   /* monotonic, of the host that wrote the tape */
    uint32_t n;
    struct tape_field field[TAPE_FIELDS_MAX];
};

void tape_line(const struct event *event, struct tape_line *ret);
/* Prints " KEY=VALUE" for each field. */
void tape_fields_print(const struct tape_line *line, FILE *out);

#endif
