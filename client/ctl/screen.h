/* The terminal of `ternctl top`: a screen of its own, keys without echo, its size. Invariant: when
 * the program ends, by itself or by a signal that it can catch, the terminal is restored. */
#ifndef CTL_SCREEN_H
#define CTL_SCREEN_H

#include <stdbool.h>
#include <stdint.h>

#define SCREEN_ROWS_MIN    8
#define SCREEN_COLUMNS_MIN 40

struct screen_size {
    uint32_t rows, columns; /* never below the minimum above, even if the terminal is smaller */
};

enum screen_heard {
    SCREEN_TIME,    /* the time has passed */
    SCREEN_RESIZED, /* draw again */
    SCREEN_END,     /* q, Ctrl-C, a signal, or the terminal is gone */
};

/* Returns false, with nothing changed, if standard input and output are not both a terminal. */
bool screen_begin(void);
void screen_end(void);
struct screen_size screen_size(void);
/* Replaces the screen with the lines of the text. */
void screen_show(const char *text);
enum screen_heard screen_wait(uint32_t ms);

#endif
