/* Stages of requests under callgrind. A stage lasts until the next one begins; callgrind then
 * writes what it counted to a file that carries the stage's name, and begins anew. instructions.py
 * adds up the files of one name and leaves out whatever is not Tern's own code, the callers of this
 * header included. Without valgrind nothing is counted and every call still runs. */
#ifndef INSTRUCTIONS_STAGES_H
#define INSTRUCTIONS_STAGES_H

#include <stdbool.h>
#include <stdint.h>

/* A request whose stages count from here on; NULL: none counts. The name is static. */
void stages_begin(const char *request);
/* From here on the code belongs to that stage; NULL: to none. */
void stage(const char *name);

/* Ends the program: Tern did not answer as it must. */
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
