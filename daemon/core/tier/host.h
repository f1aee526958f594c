/* The host tier: copies of prefix nodes in host memory, in a pool of its own that no engine maps,
 * so that its pages, slabs and counts are kept by the code of any pool. A writeback copies a node's
 * device pages there, a load-back brings them back; one copy job moves what one node needs. The
 * device is closed towards the root: a node that is loaded before its parent waits for it. On the
 * host an ancestor may be on either tier.
 *
 * Where the host is written behind the device, a node is copied when it is among those that would
 * be evicted next (reserve.c), so both tiers together hold nearly as many nodes as they have room
 * for. Where it is written through, a node is copied once its checksums are known. A copy that
 * fails is made again, up to COPY_TRIES_MAX times in a row; a session whose Retract waited for one
 * that is given up runs on. Loading is by node, not by session: sessions that need the same node
 * wait for the same copy. Sessions that retract, recover or fetch from here are in
 * session/retract.c. */
#ifndef CORE_HOST_H
#define CORE_HOST_H

#include "core/tree/tokens.h"

/* The checksums of the node are known: it is copied to the host if there is room, or was wanted. */
void host_sealed(struct core *c, uint32_t slot);

/* Promises a session the pages for every copy that the host needs to go on from its path without
 * the device: nobody else can take them. POOL_EXHAUSTED, of the host tier, changes nothing. BUSY:
 * making room there would take more than one step may do; what was evicted stays so, and a
 * repetition goes on. */
enum tern_err host_promise(struct core *c, struct session *s, struct shortage *ret);
/* No copy begins any more: load.at is NONE, and nothing is promised. */
void host_promise_end(struct core *c, struct session *s);
/* Begins these copies from load.at upwards, up to `end` visits; behind the last the promise ends.
 * False: a node lacks more than it did, and there is no room. */
bool host_back_begin(struct core *c, struct session *s, uint32_t end);
/* The deepest node of the path that is on the host, at `state_from` or below it; NONE. */
uint32_t host_end(struct core *c, struct path path);
/* Leads to the first node from there upwards that is not on the host, to the root for none, or to
 * where `end` visits are reached. */
void host_reached(struct core *c, uint32_t *slot, uint32_t end);
/* The host has what is needed to go on from the path's nodes below load.at; or some of it is on its
 * way; or STATE that came to the device later is not; or HISTORY is neither there nor
 * on its way. */
enum host_path { HOST_HAS, HOST_COMES, HOST_LACKS, HOST_LOST };
enum host_path host_path(struct core *c, const struct session *s);

/* Deepest node at or below `at` that agrees with the view, with its path on the device or host. */
uint32_t host_down(struct core *c, uint32_t at, struct token_view *w);
/* The path from a node of the device down to one below it, or to itself. */
struct host_reach {
    uint32_t from, to;
};
/* Deepest node of it that the device could be made to resume with the help of the host tier. */
uint32_t host_above(struct core *c, struct host_reach reach);

/* The walk of a load, for a session that is LOADING, from the target up to load.low, goes on from
 * load.at as far as `end` visits and the path go. Has it passed all nodes? */
bool load_passed(const struct core *c, const struct session *s);
/* COUNTING, LOOKING: adds the pages that the path lacks on the device, and no copy brings, to
 * s->promised. BEGINNING: makes the load one of the loaders of each node, so that nothing that they
 * have leaves a tier, and begins the copies, which take what is promised. COMING: stops at a node
 * of which something has not come. POOL_EXHAUSTED: a node lacks more than was promised. CORRUPT,
 * BUSY end the load, and *ret_text says why. */
enum tern_err load_walk(struct core *c, struct session *s, uint32_t end, const char **ret_text);
/* Queues the copies that have begun, from the top, and ends the promise. */
void load_queue(struct core *c, struct session *s);
/* ENDING, LEAVING: the nodes lose the load, up to `end` visits. A copy that nobody waits for any
 * more gives its pages back: at once if it has not begun, else on its acknowledgement. False: there
 * is more to do. */
bool load_let_go(struct core *c, struct session *s, uint32_t end);
/* The deepest node of the path that is on the device. */
uint32_t load_device_end(const struct core *c, uint32_t slot);
/* Takes copies in that were acknowledged, parents first. False: there is more to do. */
bool loads_flush(struct core *c);

/* Acknowledges a job. */
void copy_done(struct core *c, struct copy_id job, enum tern_err err);
bool copy_flush(struct core *c, struct actions *out); /* false: work is left for want of room */

/* Could the node be copied to the host now, if there is room? */
bool writeback_ready(const struct core *c, uint32_t slot);
/* Begins that if room can be made. */
bool writeback_if_room(struct core *c, uint32_t slot);
/* Fills the reserves of all pools (reserve.c). False: there is more to do. */
bool reserve_flush(struct core *c);
/* Copies the next nodes to go, as so many must leave at once. False: no copy is under way. */
bool reserve_ahead(struct core *c, struct pool *p, uint32_t nodes);

/* The job of a node's copy has ended: jobs.c tells the file of its direction. */
void writeback_acked(struct core *c, uint32_t slot, enum tern_err err);
void loadback_acked(struct core *c, uint32_t slot, enum tern_err err);

#endif
