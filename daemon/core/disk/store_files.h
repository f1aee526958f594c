/* The files of a store. Only stores.c uses this. */
#ifndef CORE_DISK_STORE_FILES_H
#define CORE_DISK_STORE_FILES_H

#include "core/disk/stores.h"

/* Returns true if this step has room for another file. */
bool store_may_write(const struct actions *out);
/* Returns true if its wait is over, as far as known without a walk of its path. */
bool store_may_try(const struct core *c, const struct disk_store *s);
/* Writes the store's next file, or ends the store if nothing is left to write or no room is
 * possible. WAITS: for checksums, or for what others pin. GOES_ON: continues to make room in the
 * next step. Needs room for two actions. */
enum store_step { STORE_WAITS, STORE_GOES_ON, STORE_WRITES, STORE_ENDED };
enum store_step store_write(struct core *c, struct actions *out, struct disk_store *s);
/* Pins what the store reads, through its `device` and `host`. */
void store_hold(struct core *c, struct disk_store *s);
/* QUEUED: others need its pages at once: it becomes DUE again and pins nothing for a while. */
void store_put_off(struct core *c, struct disk_store *s);
/* Returns true if the last copy was kept long enough for a store that is due since `since_ns`. */
bool store_late(const struct core *c, uint64_t since_ns);
/* DUE: begins or ends keeping the last copy of its node. */
void store_keep(struct core *c, struct disk_store *s, bool keep);
/* Ends the store. Needs room for one action. why: for QUOTA; else NULL. */
void store_end(struct core *c, struct actions *out, struct disk_store *s, enum tern_err err,
               const struct reason *why);
/* D3: returns true if the budget allows so many bytes. */
bool store_fits(uint64_t budget, uint64_t bytes);

#endif
