/* Serves histories of every kind: reads their files, and leaves out what a failure does not need.
 */
#ifndef SIM_PIECES_H
#define SIM_PIECES_H

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

#endif
