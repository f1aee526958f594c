/* One run, seen from the parent: daemons, engines, the bar, the count at the end. */
#ifndef REPLAY_RUN_H
#define REPLAY_RUN_H

#include "board.h"
#include "engine/admin.h"
#include "engine/daemon.h"
#include "options.h"
#include "progress.h"
#include "survey.h"

struct run {
    struct options *options;
    struct survey survey;
    struct board *board;                      /* shared with the engines */
    uint32_t group_pages[PROFILE_GROUPS_MAX]; /* the caps */
    uint64_t pool_pages;                      /* total of all groups */
    char dir[64];                             /* of the daemons started here; "": none */
    struct daemon prefill, decode;
    struct tern *admin[2]; /* prefill, decode; owned */
    pid_t engine[2];
    int control[2]; /* to the engines */
    bool done[2];   /* the engine has finished its part and waits */
    struct daemon_status before, after[2];
    struct ticket_counts tickets_before, tickets_after; /* of the prefill daemon */
    /* The most in use on one daemon, as sampled: HISTORY pages; snapshot pages of STATE groups,
     * without reclaimable ones; and reclaimable ones. */
    uint64_t peak_pages, peak_state, peak_reclaimable;
    uint64_t start_ns, elapsed_ns; /* from the start of the engines */
    struct progress progress;
    bool daemons_ended; /* both ended by themselves with status 0, if they were started here */
    char why[SPAWN_WHY_BYTES];
};

/* Returns false with r->why if the run could not be started. run_finish is due in any case. */
bool run_start(struct run *r);
/* Plays the workload and counts what is left. Returns false with r->why. */
bool run_play(struct run *r);
void run_finish(struct run *r);

/* Prints the report on standard output. Returns true if every check held. */
bool report(struct run *r);

#endif
