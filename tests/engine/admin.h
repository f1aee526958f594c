/* What the benchmarks ask of a daemon's admin socket: page counts, transfer counters, evictions. */
#ifndef ENGINE_ADMIN_H
#define ENGINE_ADMIN_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "tern.h"

/* Over the groups of one pool, or of all pools. */
struct page_counts {
    uint64_t total, free, session, snapshot, reclaimable, transfer, retiring, quarantine;
    uint64_t history_used; /* of HISTORY groups: session, snapshot and transfer */
    uint64_t peak;         /* the most that sessions, or snapshots, of HISTORY groups ever held */
    uint64_t state_peak; /* the most that snapshots of STATE groups ever held, reclaimable apart */
};

struct transfer_counts {
    uint64_t payload_bytes_in, socket_bytes_in, corrupt_detected, pages_in;
};

/* Sessions that were handed over, of all tenants, and what became of their tickets. */
struct ticket_counts {
    uint64_t standing, made, taken, dropped, expired;
};

struct daemon_status {
    struct page_counts pages; /* of the device */
    struct page_counts host;  /* of the host tier; zeroes where there is none */
    struct transfer_counts transfers;
    uint64_t sessions, transfers_active;
};

/* Why tern_connect gave that error, asked right behind it. */
const char *connect_why(enum tern_err err);

/* One command and its answer, owned by the caller; NULL where there is none. `arg` may be NULL. */
json_t *admin_ask(struct tern *admin, const char *command, const char *arg);

/* pool: the handle that tern_pool_open gave; 0: page counts over all pools. */
bool admin_status(struct tern *admin, uint64_t pool, struct daemon_status *ret);

bool admin_tickets(struct tern *admin, struct ticket_counts *ret);

/* Whether the daemon's own connection to that peer is up: it can fetch from there. */
bool admin_peer_up(struct tern *admin, const char *peer);
bool admin_wait_peer(struct tern *admin, const char *peer, uint32_t wait_ms);
/* Until that peer pushes its pages. False: it does not, and why. */
bool admin_wait_push(struct tern *admin, const char *peer, uint32_t wait_ms, char *ret_why,
                     size_t cap);

/* Evicts all that can go of that pool (0: of every pool), of both tiers, and waits until nothing is
 * left but free pages or the time is over; *ret is the last status. */
bool admin_empty(struct tern *admin, uint64_t pool, uint32_t wait_ms, struct daemon_status *ret);

#endif
