/* Stages of requests under callgrind. A stage lasts until the next one begins; callgrind then
 * writes its counts to a file that carries the stage's name, and starts from zero. instructions.py
 * adds up the files of one name and leaves out all code that is not Tern's own, as well as the
 * callers of this header. Without valgrind nothing is counted and every call still runs. */
#ifndef INSTRUCTIONS_STAGES_H
#define INSTRUCTIONS_STAGES_H

#include <stdbool.h>
#include <stdint.h>

/* The following stages count for this request; NULL: they count for none. The name is static. */
void stages_begin(const char *request);
/* The code from here on belongs to that stage; NULL: to none. */
void stage(const char *name);

/* Ends the program: Tern gave a wrong answer. */
_Noreturn void wrong(const char *what);
#define must(x)                                                                                    \
    do {                                                                                           \
        if (!(x))                                                                                  \
            wrong(#x);                                                                             \
    } while (0)

void count_requests(void); /* requests.c: of an engine, from libtern to libtern */
void count_pins(void);     /* pins.c */
void count_fetches(void);  /* fetches.c: the transfer of pages between two cores */

#endif
