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

/* The chunks up to one, and with it, whose STATE somebody needs. */
struct disk_window {
    uint32_t chunk, reach;
};

/* Counts an entry of that reach in or out among the claims of the STATE that it needs. */
void disk_claim(struct core *c, struct disk_window of, bool in);
/* The chunk is an entry now, or another one: its extent is durable, and so is all it needs. */
void disk_entry_keep(struct core *c, uint32_t chunk, const struct disk_entry *e);
/* It is none any more: what only it needs goes. */
void disk_entry_end(struct core *c, uint32_t chunk);
/* Something was fetched by way of it. */
void disk_entry_use(struct core *c, uint32_t chunk);
uint64_t disk_entry_bytes(const struct core *c, uint32_t chunk); /* of all that it needs */
uint64_t disk_entry_own(const struct core *c, uint32_t chunk);   /* of these, that no other needs */
uint64_t disk_entry_score(const struct core *c, uint32_t chunk); /* D7, in 1/2^24 tokens a byte */

/* Entries that a new one makes needless, and their end. */
struct disk_new {
    uint32_t chunk; /* the deepest that it has on the disk */
    uint32_t above; /* of chunks that end behind that depth it needs STATE */
    uint32_t reach; /* its own, and that of all entries of its tree */
    enum disk_reason reason;
};
void disk_prune(struct core *c, uint32_t chunk, enum disk_reason reason);

/* Room for so many bytes of the tenant, within its budget and, of what the new entry makes
 * needless, DISK_PRUNE_BYTES beyond it; nothing of that is taken. Who asks holds its chunk by so
 * many pins, and has looked whether there could be so much. */
struct disk_room {
    uint64_t bytes;
    struct disk_new for_it;
    uint32_t pins;
    uint32_t gone; /* entries that made way */
};
/* LATER: when others let go of theirs. FILE: when a file is gone for good. NEXT: next step. */
enum disk_has_room { DISK_ROOM_NEVER, DISK_ROOM, DISK_ROOM_LATER, DISK_ROOM_FILE, DISK_ROOM_NEXT };
enum disk_has_room disk_make_room(struct core *c, uint32_t tenant, struct disk_room r);
/* Room for one more: the entry with the lowest score goes, or somebody holds what could. Behind the
 * end of a piece the first goes nevertheless: whoever needs room gets on in each step. */
enum disk_has_room disk_room_more(struct core *c, uint32_t tenant, struct disk_room *r);
/* Nobody reads or builds on the chunk any more. */
void disk_unpin(struct core *c, uint32_t chunk);
/* The chunk is never found again. */
void disk_chunk_bad(struct core *c, uint32_t chunk);
/* Drops entries that lead through bad chunks or a reset namespace. False: there are more. */
bool disk_bad_flush(struct core *c);
/* N1: what is on the disk under that name is never found again, and goes. */
void disk_reset(struct core *c, uint32_t tenant, struct namespace_id ns);

/* What earlier runs have left on the disk, as a start finds it (D8): chunks and entries again, if
 * everything that they need is there. */
void disk_found(struct core *c, const struct event *ev);
void disk_ready(struct core *c, uint64_t next_file, uint64_t served_ns);
/* After that, what nothing leads to goes, and what is over the budget. False: there is more. */
bool disk_recover_flush(struct core *c);

#endif
