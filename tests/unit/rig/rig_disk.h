/* Extents and files of the disk tier for tests: made from a number, the same each time, and
 * written straight, one step behind the other, as D3 has it. */
#ifndef TEST_RIG_DISK_H
#define TEST_RIG_DISK_H

#include "seam/disk/disk_crypt.h"
#include "seam/disk/disk_footer.h"
#include "seam/disk/disk_format.h"

#define RIG_DISK_TENANT "chat"
#define RIG_DISK_ALIGN  16u

struct rig_disk_body { /* of one extent; owned, by malloc */
    uint8_t *bytes;    /* whole blocks, in the clear */
    size_t n;
    const uint32_t *tokens; /* in it */
    const struct extra_key *keys;
};

/* An extent of that part, its head with its sums and without a seal. `seed` chooses what it holds:
 * runs of pages of odd sizes, units, regions, tokens, keys. */
void rig_disk_make(uint64_t seed, enum disk_part part, struct disk_place place,
                   struct disk_head *ret, struct rig_disk_body *ret_body);
void rig_disk_free(struct rig_disk_body *body);

/* Seals the body in place where there is a key, and puts the header into the block, before it is
 * sealed. */
void rig_disk_seal(struct disk_crypt *crypt, struct disk_head *h, const char *tenant,
                   struct rig_disk_body *body, uint8_t *block);
/* Puts a header as it lies in a file. */
void rig_disk_put(struct disk_crypt *crypt, const struct disk_head *h, const char *tenant,
                  uint8_t *block);

/* ---- whole files ---- */

#define RIG_DISK_EXTENTS 8

struct rig_disk_file {
    uint64_t file, incarnation, served_ns, seed;
    const char *tenant;
    uint32_t nextents;
    struct disk_crypt *crypt;
    /* What came of it. */
    struct disk_head head[RIG_DISK_EXTENTS];
    struct rig_disk_body body[RIG_DISK_EXTENTS]; /* as it lies there */
    uint32_t *list[RIG_DISK_EXTENTS];            /* disk_list_bytes, in the clear; owned */
};

/* A writer that is wrong, to see it found. */
enum rig_disk_wrong {
    RIG_DISK_RIGHT,
    RIG_DISK_HEADERS_FIRST, /* headers, footer and trailer with the bodies; nothing synced between
                             */
    RIG_DISK_ONE_SYNC,      /* the name and the word that it is written without the second sync */
    RIG_DISK_SYNC_AGAIN,    /* a sync that failed is tried again, and believed */
};

/* 0 when the file has its name, else the first error; the temporary file is removed then. */
int rig_disk_write(const struct disk_files *files, struct rig_disk_file *f,
                   enum rig_disk_wrong wrong);
void rig_disk_file_free(struct rig_disk_file *f);

#endif
