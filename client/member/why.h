/* What others wrote goes into a line of the log: nothing in it may end the line or a quoted text.
 */
#ifndef MEMBER_WHY_H
#define MEMBER_WHY_H

#include <stdio.h>

/* Each byte that could stands as `instead`. */
static inline void why_line(char *ret, size_t cap, const char *text, char instead)
{
    snprintf(ret, cap, "%s", text);
    for (char *c = ret; *c; c++)
        if ((unsigned char)*c < ' ' || (unsigned char)*c > '~' || *c == '"' || *c == '\\')
            *c = instead;
}

#endif
