#include "proto/ticket.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define FORM "tern1-%016" PRIx64 "-%016" PRIx64 "-%016" PRIx64 "%016" PRIx64 "-%08" PRIx32

void wire_ticket_text(const struct wire_ticket *t, char ret[WIRE_TICKET_MAX])
{
    snprintf(ret, WIRE_TICKET_MAX, FORM, t->incarnation, t->id, t->key[0], t->key[1], t->length);
}

/* Reads `digits` digits of lower-case hexadecimal at *at, and advances *at behind them. */
static bool digits(const char **at, uint32_t digits, uint64_t *ret)
{
    for (*ret = 0; digits > 0; digits--, (*at)++) {
        static const char all[] = "0123456789abcdef";
        const char *found = **at ? strchr(all, **at) : NULL;

        if (!found)
            return false;
        *ret = *ret << 4 | (uint64_t)(found - all);
    }
    return true;
}

static bool follows(const char **at, const char *text)
{
    size_t n = strlen(text);

    if (strncmp(*at, text, n) != 0)
        return false;
    *at += n;
    return true;
}

bool wire_ticket_parse(const char *text, struct wire_ticket *ret)
{
    uint64_t length;

    if (!follows(&text, "tern1-") || !digits(&text, 16, &ret->incarnation) ||
        !follows(&text, "-") || !digits(&text, 16, &ret->id) || !follows(&text, "-") ||
        !digits(&text, 16, &ret->key[0]) || !digits(&text, 16, &ret->key[1]) ||
        !follows(&text, "-") || !digits(&text, 8, &length))
        return false;
    ret->length = (uint32_t)length;
    return *text == '\0';
}
