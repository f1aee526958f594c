/* A few files of the disk tier on a simulated disk, with the times when parts of them were dropped,
 * and the results that a recovery and a verification must have, whatever happened to the disk. */
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
    int err[WORLD_FILES]; /* result of its writing */
    /* In steps of the disk: when a file was reported as written, and when its end, or that of an
     * extent, began. */
    size_t written[WORLD_FILES], dropped[WORLD_FILES];
    size_t hole[WORLD_FILES][RIG_DISK_EXTENTS];
};

/* Writes files of two tenants; meanwhile drops an extent of the first and removes the second. */
void world_make(struct world *w, uint64_t seed, bool encrypt, enum rig_disk_wrong wrong,
                const struct sim_disk_faults *faults);
void world_free(struct world *w);
/* A copy of the disk with everything as it was written. */
struct sim_disk *world_copy(const struct world *w);

/* Results of a recovery and a verification. */
struct world_found {
    enum tern_err err;
    const char *why;
    struct disk_recovery recovery;
    uint32_t n, ready;
    struct disk_extent extent[WORLD_EXTENTS];
    bool list_right[WORLD_EXTENTS];          /* tokens and keys are right */
    enum disk_fault verified[WORLD_EXTENTS]; /* MAGIC: not reported */
    uint64_t next_file, served_ns;
    uint32_t notes;
    const struct world *world;
};

/* Runs both over any disk. */
void world_recover(const struct world *w, struct sim_disk *disk, struct world_found *ret);

struct world_tally {
    uint64_t crashes, found, lost, wrong_lists, wrong_bytes, unnamed, half_dropped, not_good;
};

/* Checks that every extent that was written before `steps` and not dropped exists as a whole, that
 * everything reported as good is as it was written, and that no extent is reported twice or out of
 * order. `durable`: what was written must exist. */
void world_judge(const struct world *w, struct sim_disk *disk, size_t steps,
                 const struct world_found *found, bool durable, struct world_tally *tally);

#endif
