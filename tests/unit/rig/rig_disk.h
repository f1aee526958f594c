/* Extents and files of the disk tier for tests. They are made from a number, the same each time,
 * and written directly, step by step in the order of D3. */
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

/* Makes an extent of that part: its head with checksums, without a seal. `seed` chooses the
 * contents: runs of pages of odd sizes, units, regions, tokens, keys. */
void rig_disk_make(uint64_t seed, enum disk_part part, struct disk_place place,
                   struct disk_head *ret, struct rig_disk_body *ret_body);
void rig_disk_free(struct rig_disk_body *body);

/* Seals the body in place if there is a key, and writes the header to the block, before it is
 * sealed. */
void rig_disk_seal(struct disk_crypt *crypt, struct disk_head *h, const char *tenant,
                   struct rig_disk_body *body, uint8_t *block);
/* Writes a header to `block` as it lies in a file. */
void rig_disk_put(struct disk_crypt *crypt, const struct disk_head *h, const char *tenant,
                  uint8_t *block);

/* ---- whole files ---- */

#define RIG_DISK_EXTENTS 8

struct rig_disk_file {
    uint64_t file, incarnation, served_ns, seed;
    const char *tenant;
    uint32_t nextents;
    struct disk_crypt *crypt;
    /* Set by rig_disk_write. */
    struct disk_head head[RIG_DISK_EXTENTS];
    struct rig_disk_body body[RIG_DISK_EXTENTS]; /* as in the file */
    uint32_t *list[RIG_DISK_EXTENTS];            /* disk_list_bytes, in the clear; owned */
};

/* Faulty writers, which tests must detect. */
enum rig_disk_wrong {
    RIG_DISK_RIGHT,
    RIG_DISK_HEADERS_FIRST, /* headers, footer and trailer with the bodies, without a sync between
                             * them */
    RIG_DISK_ONE_SYNC,      /* name and confirmation without the second sync */
    RIG_DISK_SYNC_AGAIN,    /* a sync that failed is repeated, and trusted */
};

/* Returns 0 if the file has its name, else the first error; then the temporary file is removed. */
int rig_disk_write(const struct disk_files *files, struct rig_disk_file *f,
                   enum rig_disk_wrong wrong);
void rig_disk_file_free(struct rig_disk_file *f);

#endif
