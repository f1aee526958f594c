/* The entries of the disk: prefixes that were stored and that a session can go on from. Which of
 * them goes when there is no room (D7), and which a longer one has made needless (D5, D6). */
#ifndef CORE_DISK_ENTRIES_H
#define CORE_DISK_ENTRIES_H

#include "core/disk/index.h"

/* Serving time: what this daemon and those before it were up for, as far as the disk tells. */
uint64_t disk_served(const struct core *c);

struct disk_entry {
    uint32_t reason, hits, reach;
    uint64_t used_ns;
    struct disk_kept at;
};

/* The chunk is an entry now, or another one: its extent is durable, and so is all it needs. */
void disk_entry_keep(struct core *c, uint32_t chunk, const struct disk_entry *e);
/* It is none any more: what only it needs goes. */
void disk_entry_end(struct core *c, uint32_t chunk);
/* Something was fetched by way of it. */
void disk_entry_use(struct core *c, uint32_t chunk);
uint64_t disk_entry_bytes(const struct core *c, uint32_t chunk); /* of all that it needs */
uint64_t disk_entry_own(const struct core *c, uint32_t chunk);   /* of these, that no other needs */
uint64_t disk_entry_score(const struct core *c, uint32_t chunk); /* D7, in 1/2^24 tokens a byte */

/* Entries that a new one with this reason at `chunk` makes needless: how many bytes that will
 * bring, and their end. */
uint64_t disk_prunable(const struct core *c, uint32_t chunk, enum disk_reason reason);
void disk_prune(struct core *c, uint32_t chunk, enum disk_reason reason);

/* Room for so many bytes of the tenant, within its budget and DISK_PRUNE_BYTES beyond it where
 * `credit` will go; of what a new entry below `keeps` makes needless nothing is taken. QUOTA: there
 * is not that much to take. BUSY: it takes more than this step may do; what has gone stays so. */
struct disk_room {
    uint64_t bytes, credit;
    uint32_t keeps;
    enum disk_reason reason;
};
enum tern_err disk_make_room(struct core *c, uint32_t tenant, struct disk_room r);
/* The entry with the lowest score that may go, goes. QUOTA: there is none. BUSY as above. */
enum tern_err disk_evict_one(struct core *c, uint32_t tenant, const struct disk_room *r);
/* Entries that lead through what is bad, or through a namespace that was reset, go. False: there
 * are more. */
bool disk_bad_flush(struct core *c);
/* N1: what is on the disk under that name is never found again, and goes. */
void disk_reset(struct core *c, uint32_t tenant, struct namespace_id ns);

#endif
