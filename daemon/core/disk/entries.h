/* The disk's entries: stored prefixes at which a session can resume. Decides which entry is evicted
 * when there is no room (D7), and which ones a longer entry makes needless (D5, D6). */
#ifndef CORE_DISK_ENTRIES_H
#define CORE_DISK_ENTRIES_H

#include "core/disk/index.h"

/* Returns the serving time: the uptime of this daemon and its predecessors, as far as recorded. */
uint64_t disk_served(const struct core *c);

struct disk_entry {
    uint32_t reason, hits, reach;
    uint64_t used_ns;
    struct disk_kept at;
};

/* `reach` chunks, up to and including `chunk`, whose STATE is needed. */
struct disk_window {
    uint32_t chunk, reach;
};

/* Adds or removes an entry's claims on the STATE that it needs. */
void disk_claim(struct core *c, struct disk_window of, bool in);
/* Makes the chunk an entry, or another one: its extent is durable, and so is all that it needs. */
void disk_entry_keep(struct core *c, uint32_t chunk, const struct disk_entry *e);
/* Ends the chunk's entry, and removes extents that only this entry needed. */
void disk_entry_end(struct core *c, uint32_t chunk);
/* Counts a fetch that used the entry at the chunk or, if the chunk is none, the first entry
 * below. */
void disk_entry_use(struct core *c, uint32_t chunk);
uint64_t disk_entry_bytes(const struct core *c, uint32_t chunk); /* of the extents it needs */
uint64_t disk_entry_own(const struct core *c, uint32_t chunk);   /* that no other entry needs */
uint64_t disk_entry_score(const struct core *c, uint32_t chunk); /* D7, in 1/2^24 tokens a byte */

/* A new entry, as far as needed to find and end the entries that it makes needless. */
struct disk_new {
    uint32_t chunk; /* its deepest chunk on the disk */
    uint32_t above; /* it needs STATE of chunks that end behind this depth */
    uint32_t reach; /* its own, equal for all entries of its tree */
    enum disk_reason reason;
};
void disk_prune(struct core *c, uint32_t chunk, enum disk_reason reason);

/* A request for `bytes` within the tenant's budget, plus at most DISK_PRUNE_BYTES for entries that
 * the new one makes needless; none of these is evicted. The caller pins its chunk `pins` times, and
 * has checked that so much room is possible. */
struct disk_room {
    uint64_t bytes;
    struct disk_new for_it;
    uint32_t pins;
    uint32_t gone; /* entries evicted so far */
};
/* LATER: room comes when others unpin their entries. FILE: when a file is gone for good. NEXT: in
 * the next step. */
enum disk_has_room { DISK_ROOM_NEVER, DISK_ROOM, DISK_ROOM_LATER, DISK_ROOM_FILE, DISK_ROOM_NEXT };
enum disk_has_room disk_make_room(struct core *c, uint32_t tenant, struct disk_room r);
/* Evicts the entry with the lowest score, unless all candidates are pinned. Each step may evict one
 * even behind the end of a piece, so whoever needs room makes progress. */
enum disk_has_room disk_room_more(struct core *c, uint32_t tenant, struct disk_room *r);
/* Ends a pin of a reader or of a store that continues from the chunk. */
void disk_unpin(struct core *c, uint32_t chunk);
/* Marks the chunk as bad: lookups never find it again. */
void disk_chunk_bad(struct core *c, uint32_t chunk);
/* Ends entries whose path has a bad chunk or a reset namespace. Returns false if work is left. */
bool disk_bad_flush(struct core *c);
/* N1: lookups never find the namespace's chunks on the disk again, and they are removed. */
void disk_reset(struct core *c, uint32_t tenant, struct namespace_id ns);

/* Recovery at start (D8): rebuilds the chunks and entries of earlier runs that have all that they
 * need. */
void disk_found(struct core *c, const struct event *ev);
void disk_ready(struct core *c, uint64_t next_file, uint64_t served_ns);
/* Then removes what nothing leads to, or what exceeds the budget. Returns false if work is left. */
bool disk_recover_flush(struct core *c);

#endif
