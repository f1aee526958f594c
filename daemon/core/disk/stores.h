/* Storing prefixes on the disk. A store is DUE until every rank has passed the step that wrote its
 * node; then it pins what it needs, on the device and on the host, and file by file writes the
 * chunks that are not on the disk yet; the last file has the entry. A store whose pages others need
 * at once is DUE again. One that finds no record stays due as its node's, in its tenant's list.
 * Nothing pins a prefix that is due, but memory keeps its last copy (node_due), for
 * DISK_KEEP_MS_MAX at most and not while the disk fails: so a burst is stored as fast as the disk
 * takes it, and a disk that takes nothing stops nobody for longer. One store of a tenant writes at
 * a time, so no two write the same chunk. */
#ifndef CORE_DISK_STORES_H
#define CORE_DISK_STORES_H

#include "core/disk/entries.h"

/* What is to be stored, and for whom. conn NONE: nobody waits. session {0, 0}: of none. */
struct disk_wanted {
    uint32_t node;
    enum disk_reason reason;
    struct session_id session;
    uint32_t before, conn;
    uint64_t request_id, trace_id;
};

/* Does the tenant of this pool have a part of the disk? */
static inline bool disk_on(const struct core *c, const struct pool *p)
{
    return c->limits.disk_chunks > 0 && tenant_at(c, p->tenant)->config.disk_bytes > 0;
}

/* D2: where a cold store of a prompt of so many tokens ends. */
uint32_t disk_cold_depth(const struct core_limits *l, const struct pool *p, uint32_t tokens);
/* D1: the last boundary that a length has reached; 0: none. */
uint32_t disk_boundary(const struct core_limits *l, const struct pool *p, uint32_t length);
/* The deepest node at or above that depth of the path from which one can go on. Where there is none
 * in a pool with STATE, the first one below; the root where there is none so near. NONE: that has
 * too many chunks, or a window of the pool covers too many. */
struct disk_cut {
    uint32_t node, depth;
};
uint32_t disk_node_at(struct core *c, struct disk_cut cut);

/* False: the tenant's share of stores is used up. */
bool disk_store_begin(struct core *c, const struct disk_wanted *w);
/* No record was free for a cold store of the node that nobody waits for: the next begins it. */
void disk_store_owe(struct core *c, uint32_t node);
/* The pool has no more to evict: stores of it that nobody asked for, and that do not write yet, let
 * go for DISK_PUT_OFF_MS where the other tier may take what they read, or the disk does not. True:
 * stores keep something of the pool, which comes free in a moment. */
bool disk_gives_way(struct core *c, const struct pool *p);
void disk_conn_closed(struct core *c, uint32_t conn);
/* Has what is next to be done, done. False: work is left. */
bool disk_flush(struct core *c, struct actions *out);
uint64_t disk_deadline(const struct core *c);

/* Events. */
void disk_written(struct core *c, struct actions *out, struct store_id id, enum tern_err err);
void disk_shutdown(struct core *c, uint64_t deadline_ns);

#endif
