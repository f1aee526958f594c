/* Messages from the prefill engine to the decode engine and back: a router's part, over a socket
 * pair. */
#ifndef REPLAY_HANDOVER_H
#define REPLAY_HANDOVER_H

#include "engine.h"

#define TICKET_BRIEF_MS 10 /* time of a ticket that must be gone when decode fetches */

struct handover { /* then nblocks ids of 8 bytes */
    uint64_t index, timestamp_ms;
    uint32_t turn; /* the prefill engine's; the decode engine uses its turn of that number */
    uint32_t input_length, output_length, block_size, nblocks;
    uint32_t handoff, trouble;      /* enum trouble */
    char ticket[TERN_TICKET_BYTES]; /* the ticket to fetch by, or "" */
};

struct handover_done {
    uint32_t turn, err; /* enum tern_err */
    uint32_t fate;      /* enum ticket_fate */
    uint32_t again;     /* 1: it must be handed over once more */
};

/* The two engines, each the main function of a process. `peer` leads to the other engine, `parent`
 * to the parent: the engine writes a byte there once everything is done, and ends when a byte comes
 * back. Return the exit status. */
int prefill_main(const struct options *o, struct board *board, const uint32_t *group_pages,
                 int peer, int parent);
int decode_main(const struct options *o, struct board *board, const uint32_t *group_pages, int peer,
                int parent);

/* Reports that everything is done and waits until the parent lets the engine end. */
void engine_rest(int parent);

#endif
