/* For histories of every kind: reads their files, and leaves out the parts that a failure does not
 * need. */
#ifndef SIM_PIECES_H
#define SIM_PIECES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Leaves out pieces of the list, in place, ever smaller ones, as long as still(ctx) returns true
 * for the rest. */
void pieces_drop(void *list, uint32_t *n, size_t size, bool (*still)(void *ctx), void *ctx);

/* Passes each line of the file to `take`, except the first, which has to be `magic`, comments and
 * empty lines. Returns false if the file is missing, of another kind, or `take` refused a line. */
bool history_lines(const char *path, const char *magic, bool (*take)(void *h, const char *line),
                   void *h);

/* A history that is being played, and the promise that it broke. */
struct playing {
    uint32_t at_choice;
    bool verbose;
    char what[48], text[400];
    jmp_buf failed;
};

/* Ends the history: the player continues at `failed`. */
_Noreturn void history_broke(struct playing *p, const char *what, const char *format, va_list ap);

/* A history that broke a promise, and the function that plays it again. */
struct played {
    void *h, *choice;
    uint32_t *n; /* of its choices, of `size` bytes each */
    size_t size;
    bool (*plays)(void *h); /* returns false if it broke a promise, which `run` names */
    bool (*writes)(const void *h, const char *path, const char *why);
    struct playing *run;
};

/* Leaves out the parts that the failure does not need, and stores the history in the folder as
 * name-what.tape. why: the comment in its file; NULL: the text of the failure. */
void history_keep(const struct played *p, const char *dir, const char *name, const char *why);

#endif
