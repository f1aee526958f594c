/* The terminal of `ternctl top`: a screen of its own, keys without echo, its size. However the
 * program ends, by itself or by a signal that it may hear, the terminal is left as it was. */
#ifndef CTL_SCREEN_H
#define CTL_SCREEN_H

#include <stdbool.h>
#include <stdint.h>

#define SCREEN_ROWS_MIN    8
#define SCREEN_COLUMNS_MIN 40

struct screen_size {
    uint32_t rows, columns; /* never less than the least above: what is beyond is not seen */
};

enum screen_heard {
    SCREEN_TIME,    /* the time is over */
    SCREEN_RESIZED, /* draw again */
    SCREEN_END,     /* q, Ctrl-C, a signal, or the terminal is gone */
};

/* False, and nothing is changed: standard input and output are not both a terminal. */
bool screen_begin(void);
void screen_end(void);
struct screen_size screen_size(void);
/* Puts the lines of the text in place of what is shown. */
void screen_show(const char *text);
enum screen_heard screen_wait(uint32_t ms);

#endif
