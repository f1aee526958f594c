/* The files of a store, its pins and its end. Internal to stores.c and store_*.c. */
#ifndef CORE_DISK_STORE_FILES_H
#define CORE_DISK_STORE_FILES_H

#include "core/disk/stores.h"

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
