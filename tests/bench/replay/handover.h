/* What the prefill engine tells the decode engine, and what comes back: a router's part, over a
 * socket pair. */
#ifndef REPLAY_HANDOVER_H
#define REPLAY_HANDOVER_H

#include "engine.h"

#define TICKET_BRIEF_MS 10 /* for so long stands a ticket that is to be gone when decode comes */

struct handover { /* then nblocks ids of 8 bytes */
    uint64_t index, timestamp_ms;
    uint32_t turn; /* the prefill engine's; the decode engine uses the one of that number */
    uint32_t input_length, output_length, block_size, nblocks;
    uint32_t handoff, trouble;      /* enum trouble */
    char ticket[TERN_TICKET_BYTES]; /* ""; or what it is fetched by */
};

struct handover_done {
    uint32_t turn, err; /* enum tern_err */
    uint32_t fate;      /* enum ticket_fate */
    uint32_t again;     /* 1: it is to be handed over once more */
};

/* The two engines, each the main function of a process. `peer` leads to the other engine, `parent`
 * to the parent: a byte is written there once everything is done, and what comes after that ends
 * the process. Return the exit status. */
int prefill_main(const struct options *o, struct board *board, const uint32_t *group_pages,
                 int peer, int parent);
int decode_main(const struct options *o, struct board *board, const uint32_t *group_pages, int peer,
                int parent);

/* Says that all is done and waits for the parent's word. */
void engine_rest(int parent);

#endif
