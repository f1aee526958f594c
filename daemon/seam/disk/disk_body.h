/* Reads the body of an extent to inspect it: its list alone, or all of it, which is compared with
 * its sums, its tag and the checksum of each page. Needs no pool. Blocks, and uses lane 0: for a
 * start and for a verification, not for serving. */
#ifndef SEAM_DISK_BODY_H
#define SEAM_DISK_BODY_H

#include "seam/disk/disk_crypt.h"
#include "seam/disk/disk_files.h"
#include "seam/disk/disk_format.h"
#include "seam/mem/checksum.h"

#define DISK_BODY_DEPTH 4 /* pieces in flight */

struct disk_memory { /* grows to what was needed so far; starts as zeros */
    uint8_t *v;      /* owned, whole blocks and aligned so */
    size_t bytes;
};

/* Returns false if there is no memory. The old content is lost when it grows. */
bool disk_memory_get(struct disk_memory *m, uint64_t bytes);
void disk_memory_free(struct disk_memory *m);

struct disk_body {                   /* zeros, except the caller's fields */
    const struct disk_files *files;  /* borrowed */
    struct disk_crypt *crypt;        /* borrowed; NULL: no key */
    struct disk_memory pieces, meta; /* owned */
    int file;                        /* open; owned by the caller */
    /* Progress through the current extent. */
    const struct disk_head *head;
    uint64_t at;         /* bytes of the body */
    const uint64_t *sum; /* of the current unit */
    uint32_t run, page, region, unit;
    uint64_t left; /* bytes of the current unit */
    bool wrong;
    struct checksum hash;
};

void disk_body_free(struct disk_body *b);

/* Reads whole blocks of the open file. Returns false if the disk failed. */
bool disk_body_read(const struct disk_body *b, uint8_t *to, uint64_t bytes, uint64_t offset);
/* `block`: the header that `head` was taken from. NONE: b->meta has its tokens and keys,
 * disk_list_bytes of them. READ: the disk failed, or there is no memory. An encrypted extent is
 * read whole, since no part of it can be trusted before the tag is checked. */
enum disk_fault disk_body_list(struct disk_body *b, const struct disk_head *head,
                               const uint8_t *block);
/* NONE: every byte of the body is as it was written. */
enum disk_fault disk_body_check(struct disk_body *b, const struct disk_head *head,
                                const uint8_t *block);

#endif
