/* The options of tern-replay, checked. */
#ifndef REPLAY_OPTIONS_H
#define REPLAY_OPTIONS_H

#include "engine/profile.h"
#include "source.h"

#define CONCURRENCY_MAX 256
#define PREFILL_TOKENS  245760 /* default of the tokens that one step computes of a request */
#define TRIES_MAX       200    /* a request that was begun so often has failed */

struct options {
    struct source_options source;
    const struct profile *profile;
    uint64_t page_bytes; /* 0: the profile's */
    double speed;        /* trace time per real time; 0: full speed */
    uint32_t concurrency, ranks;
    uint32_t pool_pages;     /* of each group; 0: enough for everything */
    uint32_t host_pages;     /* likewise of the host tier; 0: no host tier */
    uint32_t prefill_tokens; /* that one step computes of a request */
    enum tern_supersede supersede;
    uint32_t corrupt;
    bool checksums; /* engines bring the checksums of what they commit */
    bool tickets;   /* sessions are handed over by ticket */
    double aborts;  /* probability that a hand-over meets trouble: see trouble.h */
    bool spawn, json;
    bool push; /* the prefill daemon pushes the pages; else TCP, or whatever the daemons have */
    const char *tls;                              /* absolute; NULL: in the clear */
    char prefill_socket[108], prefill_admin[108]; /* empty with spawn, until the daemons run */
    char decode_socket[108], decode_admin[108];
    const char *peer; /* the prefill daemon's name at the decode daemon */
};

/* Ends the program with a message if the options make no sense. */
void options_read(int argc, char **argv, struct options *ret);

#endif
