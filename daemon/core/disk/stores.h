/* Stores of prefixes on the disk. A store is DUE until every rank has passed the step that wrote
 * its node. Then it pins what it needs, on the device and on the host, and writes file by file the
 * chunks that are not on the disk yet; the last file has the entry. A store whose pages others need
 * at once becomes DUE again. If no record is free for a store, its node stays due, in the tenant's
 * list. A due store pins nothing, but memory keeps the last copy of its prefix (node_due), for at
 * most DISK_KEEP_MS_MAX and not while the disk fails: bursts are stored as fast as the disk writes,
 * and a stuck disk delays nobody longer. Invariant: one store of a tenant writes at a time, so no
 * two write the same chunk. */
#ifndef CORE_DISK_STORES_H
#define CORE_DISK_STORES_H

#include "core/disk/entries.h"

/* A prefix to store, and the requester. reply.gen 0: no request waits. session {0, 0}: none. */
struct disk_wanted {
    uint32_t node;
    enum disk_reason reason;
    struct session_id session;
    uint32_t before;
    struct reply_to reply;
};

/* Returns true if the pool's tenant has a share of the disk. */
static inline bool disk_on(const struct core *c, const struct pool *p)
{
    return c->limits.disk_chunks > 0 && tenant_at(c, p->tenant)->config.disk_bytes > 0;
}

/* D2: returns the depth of a cold store of a prompt of that many tokens. */
uint32_t disk_cold_depth(const struct core_limits *l, const struct pool *p, uint32_t tokens);
/* D1: returns the last boundary that a length has reached; 0: none. */
uint32_t disk_boundary(const struct core_limits *l, const struct pool *p, uint32_t length);
/* Finds the deepest node of the path, at or above that depth, at which a session can resume. If
 * there is none in a pool with STATE: the first one below, or the root if none is near. NONE: the
 * prefix has too many chunks, or a window of the pool covers too many. */
struct disk_cut {
    uint32_t node, depth;
};
uint32_t disk_node_at(struct core *c, struct disk_cut cut);

/* Returns false if the tenant's share of stores is used up. */
bool disk_store_begin(struct core *c, const struct disk_wanted *w);
/* No record was free for a cold store that no request waits for: the next free record begins it. */
void disk_store_owe(struct core *c, uint32_t node);
/* The pool has nothing left to evict. Its stores that no request waits for, and that do not write
 * yet, unpin for DISK_PUT_OFF_MS if the other tier may take the pages that they read, or if the
 * store is late (store_late). Returns true if stores keep pages of the pool, which become free
 * soon. */
bool disk_gives_way(struct core *c, const struct pool *p);
/* Does the next work on stores. Returns false if work is left. */
bool disk_flush(struct core *c, struct actions *out);
uint64_t disk_deadline(const struct core *c);

/* Events. */
void disk_written(struct core *c, struct actions *out, struct store_id id, enum tern_err err);
void disk_shutdown(struct core *c, uint64_t deadline_ns);

/* Between stores.c and store_*.c: the files of a store, its pins and its end. */

/* Returns true if this step has room for another file. */
bool store_may_write(const struct actions *out);
/* Returns true if the store's wait is over, as far as is known without a walk of its path. */
bool store_may_try(const struct core *c, const struct disk_store *s);
/* Writes the store's next file, or ends the store if nothing is left to write or no room is
 * possible. WAITS: for checksums, or for room that others keep. GOES_ON: the next step continues to
 * make room. Needs room for two actions. */
enum store_step { STORE_WAITS, STORE_GOES_ON, STORE_WRITES, STORE_ENDED };
enum store_step store_write(struct core *c, struct actions *out, struct disk_store *s);
/* Pins what the store reads: the paths to its `device` and `host`, and the STATE of a resume. */
void store_hold(struct core *c, struct disk_store *s);
/* For a QUEUED store whose pages others need at once: it becomes DUE again and unpins all, for
 * DISK_PUT_OFF_MS. */
void store_put_off(struct core *c, struct disk_store *s);
/* Returns true if the last copy is no longer kept for a store that is due since `since_ns`: it was
 * kept for DISK_KEEP_MS_MAX, or the last store failed a short time ago. */
bool store_late(const struct core *c, uint64_t since_ns);
/* For a DUE store: begins to keep the last copy of its node, or ends that. */
void store_keep(struct core *c, struct disk_store *s, bool keep);
/* Ends the store. Needs room for one action. why: for QUOTA; else NULL. */
void store_end(struct core *c, struct actions *out, struct disk_store *s, enum tern_err err,
               const struct reason *why);
/* D3: returns true if 1.01 times so many bytes are within the budget. */
bool store_fits(uint64_t budget, uint64_t bytes);

#endif
