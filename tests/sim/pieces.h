/* Serves histories of every kind: reads their files, and leaves out what a failure does not need.
 */
#ifndef SIM_PIECES_H
#define SIM_PIECES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Leaves out pieces of list, in place, ever smaller ones, as long as still(ctx) holds of what is
 * left. */
void pieces_drop(void *list, uint32_t *n, size_t size, bool (*still)(void *ctx), void *ctx);

/* Hands each line of the file to `take`, but for its first, which has to be `magic`, for comments
 * and for empty ones. False: the file is not there, is of another kind, or a line was not taken. */
bool history_lines(const char *path, const char *magic, bool (*take)(void *h, const char *line),
                   void *h);

/* A history at play, and the promise that it broke. */
struct playing {
    uint32_t at_choice;
    bool verbose;
    char what[48], text[400];
    jmp_buf failed;
};

/* Ends the history: whoever plays it goes on at `failed`. */
_Noreturn void history_broke(struct playing *p, const char *what, const char *format, va_list ap);

/* A history that broke a promise, and how it is played again. */
struct played {
    void *h, *choice;
    uint32_t *n; /* of its choices, of `size` bytes each */
    size_t size;
    bool (*plays)(void *h); /* false: it broke one, and `run` says which */
    bool (*writes)(const void *h, const char *path, const char *why);
    struct playing *run;
};

/* Leaves out what its failure does not need, and keeps it in the folder as name-what.tape. why:
 * what its file says of it; NULL: the text. */
void history_keep(const struct played *p, const char *dir, const char *name, const char *why);

#endif
