/* tern-agent: serves the answers of a daemon's admin socket over HTTP. This file owns the agent's
 * data about the daemon, requested on demand and at most once in AGENT_FRESH_MS, so that the
 * daemon's work does not depend on the number of HTTP requests. The agent changes nothing.
 *
 *   main.c      the command line, the loop
 *   http.c      HTTP requests: their limits and their answers
 *   agent.c     rounds of questions to the daemon
 *   metrics.c   answers as metrics, by the table of metrics_table.c
 *   spaces.c    counts of namespaces that never decrease
 *   ask.c       one question, by libtern
 * Each file calls only those below it. There is one thread. */
#ifndef AGENT_H
#define AGENT_H

#include <jansson.h>

#include "client/agent/ask.h"
#include "client/agent/spaces.h"

#define AGENT_FRESH_MS       200u
#define AGENT_DEADLINE_MS    1000u /* default deadline of one round of questions */
#define AGENT_NAMESPACES     100u  /* --namespaces, by default */
#define AGENT_VIEW_ROWS_MAX  256u  /* rows of each list on the page */
#define AGENT_VIEW_NODES_MAX 1024u /* of the prefix tree */

/* The views of the daemon that can be requested. */
enum agent_view {
    AGENT_ALIVE,   /* whether it answers */
    AGENT_STATUS,  /* {"status"} */
    AGENT_METRICS, /* {"status", "stats", "peers", "namespaces"} */
    AGENT_PAGE,    /* {"status", "stats", "peers", "sessions", "transfers", "tree"} */
    AGENT_VIEWS,
};

struct agent {
    struct ask ask;
    uint32_t tenants; /* --tenants: number of tenants with series of their own */
    struct spaces spaces;
    uint64_t incarnation;
    double start_time_s, asked_us;
    struct {
        json_t *answers; /* owned; NULL: none */
        uint64_t taken_ns;
    } kept[AGENT_VIEWS];
};

/* Returns an object with the answers, and with "agent": the agent's own data. Without a daemon it
 * has only "agent", and ask.why is the reason. Borrowed until the next call. */
const json_t *agent_answers(struct agent *a, enum agent_view view);
void agent_end(struct agent *a);

#endif
