/* Leaving out what a failure does not need: of a core's history and of one over RDMA. */
#ifndef SIM_PIECES_H
#define SIM_PIECES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Leaves out pieces of list, in place, ever smaller ones, as long as still(ctx) holds of what is
 * left. */
void pieces_drop(void *list, uint32_t *n, size_t size, bool (*still)(void *ctx), void *ctx);

#endif
