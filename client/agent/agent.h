/* tern-agent: what a daemon tells operators on its admin socket, for programs that speak HTTP.
 * Here: what it knows of the daemon, asked for when somebody wants it and at most once in
 * AGENT_FRESH_MS, so that the daemon's work does not depend on how many ask. It changes nothing.
 *
 *   main.c      the command line, the loop
 *   http.c      requests: their limits and their answers
 *   agent.c     rounds of questions to the daemon
 *   metrics.c   answers as metrics, by the table of metrics_table.c
 *   spaces.c    counts of namespaces that never go down
 *   ask.c       one question, by libtern
 * Each calls only those below it. One thread does it all. */
#ifndef AGENT_H
#define AGENT_H

#include <jansson.h>

#include "client/agent/ask.h"
#include "client/agent/spaces.h"

#define AGENT_FRESH_MS       200u
#define AGENT_DEADLINE_MS    1000u /* of one round of questions, by default */
#define AGENT_NAMESPACES     100u  /* --namespaces, by default */
#define AGENT_VIEW_ROWS_MAX  256u  /* of each list that the page shows */
#define AGENT_VIEW_NODES_MAX 1024u /* of the prefix tree */

/* What somebody wants to know of the daemon. */
enum agent_view {
    AGENT_ALIVE,   /* that it answers */
    AGENT_STATUS,  /* {"status"} */
    AGENT_METRICS, /* {"status", "stats", "peers", "namespaces"} */
    AGENT_PAGE,    /* {"status", "stats", "peers", "sessions", "transfers", "tree"} */
    AGENT_VIEWS,
};

struct agent {
    struct ask ask;
    uint32_t tenants; /* --tenants: so many have series of their own */
    struct spaces spaces;
    uint64_t incarnation;
    double start_time_s, asked_us;
    struct {
        json_t *answers; /* owned; NULL: there are none */
        uint64_t taken_ns;
    } kept[AGENT_VIEWS];
};

/* An object with the answers, and with "agent": what the agent itself knows. Without a daemon that
 * alone is there, and ask.why says the reason. Borrowed until the next call. */
const json_t *agent_answers(struct agent *a, enum agent_view view);
void agent_end(struct agent *a);

#endif
