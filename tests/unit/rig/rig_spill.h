/* The disk of rigs: keeps what a core has written, byte for byte, and reports it to the next rig
 * that starts over it, as a daemon does. */
#ifndef TEST_RIG_SPILL_H
#define TEST_RIG_SPILL_H

#include "unit/rig/rig.h"

#define SPILL_FILES_MAX 512

struct spill_page {
    uint32_t group;
    uint64_t bytes, sum;
    uint8_t *data; /* owned */
};

struct spill_extent {
    struct disk_extent e;
    uint32_t *tokens;        /* owned */
    struct extra_key *keys;  /* owned */
    struct spill_page *page; /* owned, e.npages */
    bool hole, rotten;       /* rotten: each read fails its checksum */
};

struct spill_file {
    uint64_t number; /* 0: there is none */
    uint32_t n;
    struct spill_extent *v; /* owned */
};

struct spill {
    struct spill_file file[SPILL_FILES_MAX];
    uint32_t nfiles;
    enum tern_err err; /* result of the next `writes_to_fail` writes */
    uint32_t writes_to_fail, reads_to_spoil;
    uint64_t written_bytes, written_files;
};

struct spill *spill_make(void);
void spill_free(struct spill *s);
/* Starts the rig's daemon over the disk. */
void rig_spill(struct rig *rig, struct spill *s);
/* Bytes of the extents on the disk. */
uint64_t spill_bytes(const struct spill *s);

/* For rig.c: carry out an action. */
enum tern_err spill_write(struct rig *rig, const struct disk_write *w);
void spill_read(struct rig *rig, const struct rig_job *job, struct event *event);
bool spill_drop(struct spill *s, const struct disk_drop *d); /* true: a whole file */

/* Limits of a rig with a disk of `bytes` bytes for tenant 0, with trim and least as in D2; interval
 * and align are `interval`, 0: as in D1 and D2. */
void spill_limits(struct rig_options *o, uint64_t bytes, uint32_t interval);

#endif
