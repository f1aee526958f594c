/* A ticket as text: one engine receives it, a router passes it on and another engine presents it.
 * It names no host: the incarnation identifies the daemon that issued it. */
#ifndef WIRE_TICKET_H
#define WIRE_TICKET_H

#include <stdbool.h>
#include <stdint.h>

#define WIRE_TICKET_MAX 96 /* bytes with the NUL */

struct wire_ticket {
    uint64_t incarnation, id, key[2];
    uint32_t length; /* tokens */
};

void wire_ticket_text(const struct wire_ticket *t, char ret[WIRE_TICKET_MAX]);
/* Returns false if the text is no ticket. Every ticket has exactly one text. */
bool wire_ticket_parse(const char *text, struct wire_ticket *ret);

#endif
