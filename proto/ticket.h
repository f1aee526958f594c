/* A ticket as text: what an engine is told, a router passes on and another engine shows. It names
 * no host: the daemon that gave it is known by its incarnation. */
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
/* False: this is no ticket. Every ticket has one text alone. */
bool wire_ticket_parse(const char *text, struct wire_ticket *ret);

#endif
