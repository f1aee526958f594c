/* How tenant A of `tern-bench neighbours` uses each table that tenants share. Everything runs in
 * A's own process. */
#ifndef BENCH_NEIGHBOURS_TABLES_H
#define BENCH_NEIGHBOURS_TABLES_H

#include "neighbours.h"

#define A_HOLDS_MAX 512u

struct tenant_a {
    const struct a_table *table;
    const struct hosts *hosts;
    struct engine engine; /* here */
    struct a_tally tally;
    uint64_t serial; /* of things that must be new each time */
    uint64_t held[A_HOLDS_MAX];
    struct tern *conns[A_HOLDS_MAX];
    int fds[A_HOLDS_MAX];   /* 0: none */
    uint32_t nheld, nconns; /* or counts of other things, as the table needs */
};

/* `over` takes a record and keeps it; `within` is a request of the same kind that keeps nothing. */
struct a_table {
    const char *name;   /* in the JSON */
    const char *limits; /* of `here`, as in its configuration */
    const char *says;   /* in the text of a refusal; NULL: none */
    bool mute;          /* with a peer that A plays */
    /* Never refused: `over` costs the daemon time that B must not lose. B is measured by requests
     * that are due each millisecond, and `here` has large limits. */
    bool costs, spills;                             /* spills: to a disk tier */
    uint32_t per_s;                                 /* requests; 0: A_PER_S */
    bool (*prepare)(struct tenant_a *a, bool over); /* before a turn; NULL: nothing to prepare */
    bool (*open)(struct tenant_a *a);
    enum a_answer (*over)(struct tenant_a *a);
    enum a_answer (*within)(struct tenant_a *a);
    bool (*release)(struct tenant_a *a); /* of everything that `over` keeps */
};

extern const struct a_table a_retires, a_engines, a_pools, a_sessions; /* neighbours_core.c */
extern const struct a_table a_namespaces, a_nodes, a_token_blocks,
    a_extra_keys;                                                       /* neighbours_tree.c */
extern const struct a_table a_pulls, a_serves, a_peer_layouts;          /* neighbours_peers.c */
extern const struct a_table a_send_buffers, a_events;                   /* neighbours_conns.c */
extern const struct a_table a_data_door, a_control_door, a_socket_door; /* neighbours_doors.c */
extern const struct a_table a_commits, a_publishing, a_evictions, a_stores, a_tickets, a_collisions,
    a_layouts;                                                        /* neighbours_steps.c */
extern const struct a_table a_steps, a_finds;                         /* neighbours_requests.c */
extern const struct a_table a_bell, a_holes, a_descriptors, a_unread; /* neighbours_shared.c */

static inline uint32_t a_per_s(const struct a_table *table)
{
    return table->per_s ? table->per_s : A_PER_S;
}

/* Joins an engine with a pool of that many pages. */
bool a_join(struct tenant_a *a, uint32_t pages);
/* REFUSED: the error names the setting. Any other error is a fault of this program. */
enum a_answer a_answer_of(const struct tenant_a *a, struct tern *t, enum tern_err err);

#endif
