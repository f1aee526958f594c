/* A disk in memory behind struct disk_files. It logs every step, so that it can crash at any point:
 * then it has everything that was synced, and by chance some of the rest: nothing, all, some
 * sectors, a later write without an earlier one, a file without its name.
 *
 * Faults: a write that is torn, misdirected or dropped and reported as good; writes, reads and
 * syncs that fail; a disk that is full. A sync that failed may have lost the data of its writes,
 * and no later one restores them. Any thread may call. check() detects a caller that breaks the
 * rules of struct disk_files, or changes bytes that are being written. */
#ifndef TEST_SIM_DISK_H
#define TEST_SIM_DISK_H

#include "seam/disk/disk_files.h"

#define SIM_DISK_LANES 8

struct sim_disk;

struct sim_disk_faults { /* one in so many, at random; 0: never */
    uint64_t seed;
    uint32_t torn, misdirected, dropped; /* writes that are reported as good */
    uint32_t write_eio, read_eio, sync_eio;
    uint64_t room; /* bytes of the whole disk; 0: enough */
};

struct sim_disk_hits { /* how often each occurred */
    uint32_t torn, misdirected, dropped, write_eio, read_eio, sync_eio, full;
};

struct sim_disk *sim_disk_make(const struct sim_disk_faults *faults); /* NULL: none */
void sim_disk_free(struct sim_disk *d);                               /* all files must be closed */
const struct disk_files *sim_disk_files(struct sim_disk *d);
void sim_disk_set_faults(struct sim_disk *d, const struct sim_disk_faults *faults);
struct sim_disk_hits sim_disk_hits(const struct sim_disk *d);

/* The number of steps so far. A crash can come before the first one and after each. */
size_t sim_disk_steps(const struct sim_disk *d);
/* A disk as it may be if the machine stops after `steps` steps; `seed` chooses. */
struct sim_disk *sim_disk_crash(const struct sim_disk *d, size_t steps, uint64_t seed);

/* ---- without a step, for tests that change or check the disk's contents ---- */

/* Writes a whole durable file, in place of one of that name. */
void sim_disk_put(struct sim_disk *d, const char *name, const void *bytes, size_t n);
/* The bytes of the file, which a test may corrupt; NULL if there is none. */
uint8_t *sim_disk_bytes(struct sim_disk *d, const char *name, size_t *ret_n);
/* The i-th name; NULL after the last. */
const char *sim_disk_name(const struct sim_disk *d, uint32_t i);

#endif
