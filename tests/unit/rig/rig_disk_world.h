/* A few files of the disk tier on a simulated disk, what of them was dropped and when, and what a
 * recovery and a verification must then say of the disk, whatever has happened to it. */
#ifndef TEST_RIG_DISK_WORLD_H
#define TEST_RIG_DISK_WORLD_H

#include "seam/disk/disk.h"
#include "unit/rig/rig_disk.h"
#include "unit/rig/sim_disk.h"

#define WORLD_FILES   5
#define WORLD_EXTENTS (WORLD_FILES * RIG_DISK_EXTENTS)
#define WORLD_NEVER   SIZE_MAX

struct world {
    struct sim_disk *disk;
    struct disk_config config;
    struct disk_crypt *crypt; /* owned; NULL: in the clear */
    struct rig_disk_file file[WORLD_FILES];
    int err[WORLD_FILES]; /* of its writing */
    /* In steps of the disk: when it was told that the file is written; when its end began, and that
     * of an extent. */
    size_t written[WORLD_FILES], dropped[WORLD_FILES];
    size_t hole[WORLD_FILES][RIG_DISK_EXTENTS];
};

/* Files of two tenants, with a hole in the first and the second one removed on the way. */
void world_make(struct world *w, uint64_t seed, bool encrypt, enum rig_disk_wrong wrong,
                const struct sim_disk_faults *faults);
void world_free(struct world *w);
/* A disk of which all is as it was written. */
struct sim_disk *world_copy(const struct world *w);

/* What a recovery and a verification said. */
struct world_found {
    enum tern_err err;
    const char *why;
    struct disk_recovery recovery;
    uint32_t n, ready;
    struct disk_extent extent[WORLD_EXTENTS];
    bool list_right[WORLD_EXTENTS];          /* its tokens and keys are those that were written */
    enum disk_fault verified[WORLD_EXTENTS]; /* MAGIC: no word of it */
    uint64_t next_file, served_ns;
    uint32_t notes;
    const struct world *world;
};

/* Runs both over the disk, which may be any. */
void world_recover(const struct world *w, struct sim_disk *disk, struct world_found *ret);

struct world_tally {
    uint64_t crashes, found, lost, wrong_lists, wrong_bytes, unnamed, half_dropped, not_good;
};

/* Compares: every extent of a file that was written before `steps`, and not dropped, is there
 * whole; whatever is there and is called good is as it was written; and nothing is there twice or
 * out of order. `durable`: what was written must be there. */
void world_judge(const struct world *w, struct sim_disk *disk, size_t steps,
                 const struct world_found *found, bool durable, struct world_tally *tally);

#endif
