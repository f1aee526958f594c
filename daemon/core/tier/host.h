/* The host tier: copies of prefix nodes in host memory, in a pool of its own that no engine maps,
 * so the code of any pool manages its pages, slabs and counts. A writeback copies a node's device
 * pages to the host; a load-back copies them back. One copy job moves what one node needs. With a
 * node on the device, all its ancestors are there: a node that is loaded before its parent waits
 * for it. On the host an ancestor may be on either tier.
 *
 * With write-behind, a node is copied when it is among the next ones to be evicted (reserve.c), so
 * both tiers together have nearly as many nodes as they have room for. With write-through, a node
 * is copied once its checksums are known. A failed copy is repeated, up to COPY_TRIES_MAX times in
 * a row; a session whose Retract waited for an abandoned copy runs on. Nodes are loaded, not
 * sessions: sessions that need the same node wait for the same copy. session/retract.c handles
 * sessions that retract, recover or fetch from here. */
#ifndef CORE_HOST_H
#define CORE_HOST_H

#include "core/tree/tokens.h"

/* The node's checksums are known: copies it to the host if there is room or if a copy waits. */
void host_sealed(struct core *c, uint32_t slot);

/* Promises a session the pages of every copy that the host needs so that the session can resume
 * from its path without the device: nobody else can take them. POOL_EXHAUSTED, of the host tier,
 * changes nothing. BUSY: making room there would take more than one step may do; evicted pages stay
 * evicted, and a repetition continues. */
enum tern_err host_promise(struct core *c, struct session *s, struct shortage *ret);
/* Ends the promise: no copy begins any more, load.at is NONE, and nothing is promised. */
void host_promise_end(struct core *c, struct session *s);
/* Begins these copies from load.at upwards, up to `end` visits; the promise ends after the last.
 * Returns false if a node lacks more than before, and there is no room. */
bool host_back_begin(struct core *c, struct session *s, uint32_t end);
/* Returns the path's deepest node on the host, at `state_from` or below it; NONE. */
uint32_t host_end(struct core *c, struct path path);
/* Moves *slot upwards to the first node that is not on the host (the root if all are), or until
 * `end` visits are reached. */
void host_reached(struct core *c, uint32_t *slot, uint32_t end);
/* For the path's nodes below load.at. HAS: the host has all that a resume needs. COMES: some of it
 * is being copied. LACKS: STATE that came to the device later is missing. LOST: HISTORY is neither
 * there nor being copied. */
enum host_path { HOST_HAS, HOST_COMES, HOST_LACKS, HOST_LOST };
enum host_path host_path(struct core *c, const struct session *s);

/* Returns the deepest node at or below `at` that matches the view, its path on device or host. */
uint32_t host_down(struct core *c, uint32_t at, struct token_view *w);
/* The path from a device node down to one below it, or to itself. */
struct host_reach {
    uint32_t from, to;
};
/* Returns its deepest node that the device could be made to resume with the host's help. */
uint32_t host_above(struct core *c, struct host_reach reach);

/* A LOADING session's walk goes from the target up to load.low. It continues at load.at as far as
 * `end` visits and the path allow. load_passed returns true if it has passed all nodes. */
bool load_passed(const struct core *c, const struct session *s);
/* COUNTING, LOOKING: adds to s->promised the pages that the path lacks on the device and no copy
 * brings. BEGINNING: adds the load to each node's loaders, so nothing that the node has leaves a
 * tier, and begins the copies, which use what is promised. COMING: stops at a node that is still
 * incomplete. POOL_EXHAUSTED: a node lacks more than was promised. CORRUPT and BUSY end the load;
 * *why has the reason. */
enum tern_err load_walk(struct core *c, struct session *s, uint32_t end, struct reply *why);
/* Queues the begun copies, from the top down, and ends the promise. */
void load_queue(struct core *c, struct session *s);
/* ENDING, LEAVING: removes the load from the nodes' loaders, up to `end` visits. A copy that nobody
 * waits for any more frees its pages: at once if it has not begun, else when it is acknowledged.
 * Returns false if there is more to do. */
bool load_let_go(struct core *c, struct session *s, uint32_t end);
/* Attaches acknowledged copies, parents first. Returns false if there is more to do. */
bool loads_flush(struct core *c);

/* Acknowledges a job. */
void copy_done(struct core *c, struct copy_id job, enum tern_err err);
bool copy_flush(struct core *c, struct actions *out); /* false: no room, work is left */

/* Returns true if the node could be copied to the host now, given room. */
bool writeback_ready(const struct core *c, uint32_t slot);
/* Begins that copy if room can be made, and returns true then. */
bool writeback_if_room(struct core *c, uint32_t slot);
/* Fills the reserves of all pools (reserve.c). Returns false if there is more to do. */
bool reserve_flush(struct core *c);
/* Copies the next `nodes` to leave, since so many must leave at once. Returns false if no copy is
 * under way. */
bool reserve_ahead(struct core *c, struct pool *p, uint32_t nodes);

/* The job of a node's copy has ended: jobs.c calls the file of the copy's direction. */
void writeback_acked(struct core *c, uint32_t slot, enum tern_err err);
void loadback_acked(struct core *c, uint32_t slot, enum tern_err err);

#endif
