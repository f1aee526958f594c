/* A disk in memory behind struct disk_files. It keeps a log of all that was done to it, so that a
 * crash can be had at any point of it: what the disk holds then is what was synced, and of the rest
 * as much as chance will have it: nothing, all, some sectors of it, a later write without an
 * earlier one, a file without its name.
 *
 * Faults: a write that is torn, goes elsewhere or nowhere and is said to be good; writes, reads and
 * syncs that fail; a disk that is full. A sync that failed may have lost what it was to keep, and
 * no later one brings that back. Any thread may call; check() finds a caller who breaks the rules
 * of struct disk_files, or changes what it is writing. */
#ifndef TEST_SIM_DISK_H
#define TEST_SIM_DISK_H

#include "seam/disk/disk_files.h"

#define SIM_DISK_LANES 8

struct sim_disk;

struct sim_disk_faults { /* one in so many, by chance; 0: never */
    uint64_t seed;
    uint32_t torn, misdirected, dropped; /* writes that are said to be good */
    uint32_t write_eio, read_eio, sync_eio;
    uint64_t room; /* bytes of the whole disk; 0: enough */
};

struct sim_disk_hits { /* how often each came */
    uint32_t torn, misdirected, dropped, write_eio, read_eio, sync_eio, full;
};

struct sim_disk *sim_disk_make(const struct sim_disk_faults *faults); /* NULL: none */
void sim_disk_free(struct sim_disk *d);                               /* all files are closed */
const struct disk_files *sim_disk_files(struct sim_disk *d);
void sim_disk_set_faults(struct sim_disk *d, const struct sim_disk_faults *faults);
struct sim_disk_hits sim_disk_hits(const struct sim_disk *d);

/* How many steps it has seen: a crash can be before the first and behind each. */
size_t sim_disk_steps(const struct sim_disk *d);
/* The disk as it may be when the machine stops behind so many steps; the seed chooses. */
struct sim_disk *sim_disk_crash(const struct sim_disk *d, size_t steps, uint64_t seed);

/* ---- without a step, for tests that make or look at what lies there ---- */

/* A whole durable file; one of that name is replaced. */
void sim_disk_put(struct sim_disk *d, const char *name, const void *bytes, size_t n);
/* NULL: there is none. To be read, and to be changed where that is rot. */
uint8_t *sim_disk_bytes(struct sim_disk *d, const char *name, size_t *ret_n);
/* The i-th name, NULL behind the last. */
const char *sim_disk_name(const struct sim_disk *d, uint32_t i);

#endif
