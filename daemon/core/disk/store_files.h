/* The files of a store. Used by stores.c alone. */
#ifndef CORE_DISK_STORE_FILES_H
#define CORE_DISK_STORE_FILES_H

#include "core/disk/stores.h"

/* Is there room in this step for one more file? */
bool store_may_write(const struct actions *out);
/* Has what it waits for come, as far as that is known without a look at its path? */
bool store_may_try(const struct core *c, const struct disk_store *s);
/* Writes the store's next file, or ends it where there is nothing to write or no room to be had. It
 * may wait for checksums, or for what others hold; or go on making room in the next step. Needs
 * room for two actions. */
enum store_step { STORE_WAITS, STORE_GOES_ON, STORE_WRITES, STORE_ENDED };
enum store_step store_write(struct core *c, struct actions *out, struct disk_store *s);
/* Pins what the store reads, by its `device` and `host`. */
void store_hold(struct core *c, struct disk_store *s);
/* QUEUED: others need its pages at once. It is DUE again, and pins nothing for a while. */
void store_put_off(struct core *c, struct disk_store *s);
/* Has the last copy been kept long enough for what is due since then? */
bool store_late(const struct core *c, uint64_t since_ns);
/* DUE: the last copy of its node is kept, or no longer. */
void store_keep(struct core *c, struct disk_store *s, bool keep);
/* It is over. Needs room for one action. why: of QUOTA; else NULL. */
void store_end(struct core *c, struct actions *out, struct disk_store *s, enum tern_err err,
               const struct reason *why);
/* D3: is there a budget for something of so many bytes? */
bool store_fits(uint64_t budget, uint64_t bytes);

#endif
