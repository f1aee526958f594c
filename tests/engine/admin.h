/* Queries of benchmarks over a daemon's admin socket: page counts, transfers, evictions. */
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
    uint64_t peak;         /* the most that sessions, or snapshots, of HISTORY groups ever used */
    uint64_t state_peak;   /* most ever used by snapshots of STATE groups, none reclaimable */
};

struct transfer_counts {
    uint64_t payload_bytes_in, socket_bytes_in, corrupt_detected, pages_in;
};

/* Sessions that were handed over, of all tenants, and the fates of their tickets. */
struct ticket_counts {
    uint64_t standing, made, taken, dropped, expired;
};

struct daemon_status {
    struct page_counts pages; /* of the device */
    struct page_counts host;  /* of the host tier; zeroes if there is none */
    struct transfer_counts transfers;
    uint64_t sessions, transfers_active;
};

/* Returns why tern_connect returned that error. Call it right after the error. */
const char *connect_why(enum tern_err err);

/* Runs one command. Returns its answer, owned; NULL: none. `arg` may be NULL. */
json_t *admin_ask(struct tern *admin, const char *command, const char *arg);

/* pool: the handle from tern_pool_open; 0: page counts over all pools. */
bool admin_status(struct tern *admin, uint64_t pool, struct daemon_status *ret);

bool admin_tickets(struct tern *admin, struct ticket_counts *ret);

/* Returns true if the daemon's own connection to that peer is up: it can fetch from there. */
bool admin_peer_up(struct tern *admin, const char *peer);
bool admin_wait_peer(struct tern *admin, const char *peer, uint32_t wait_ms);
/* Waits until that peer pushes its pages. Returns false with the reason if it does not. */
bool admin_wait_push(struct tern *admin, const char *peer, uint32_t wait_ms, char *ret_why,
                     size_t cap);

/* Evicts everything evictable of that pool (0: of every pool) from both tiers. Waits until only
 * free pages are left or the time is over; *ret is the last status. */
bool admin_empty(struct tern *admin, uint64_t pool, uint32_t wait_ms, struct daemon_status *ret);

#endif
