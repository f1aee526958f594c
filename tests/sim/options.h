/* The options of tern-sim, checked. */
#ifndef SIM_OPTIONS_H
#define SIM_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

struct options {
    uint64_t seeds, first, audit_every, runs;
    const char *tape, *shrink_to, *bug;
    bool json, twice, verbose, keep_going, rdma, large, fleet;
};

/* Ends the program with a message where the options make no sense. */
void options_read(int argc, char **argv, struct options *ret);

#endif
