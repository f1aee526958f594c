/* Bytes on the disk: the header of a file, the header of an extent, and the footer that saves a
 * start the reading of every body. Pure functions over memory. Numbers are little-endian.
 *
 *   file    := file header (one block) extent* footer-extent trailer (one block, names the footer)
 *   extent  := header (one block) body (whole blocks)
 *
 * An extent's header has a checksum of its own, over all of the block. Where files are encrypted,
 * the body is AES-256-GCM with the rest of the header as associated data, so that a body cannot be
 * read under another address, generation or name; its nonce is random, and stands in the header
 * beside the tag. What lies in the body that is not a page has a checksum in the header, too. */
#ifndef SEAM_DISK_FORMAT_H
#define SEAM_DISK_FORMAT_H

#include "base/tern_err.h"
#include "core/disk.h"

#define DISK_FORMAT_VERSION 1u
#define DISK_TENANT_NAME    64 /* bytes with the NUL */
#define DISK_NONCE_BYTES    12
#define DISK_TAG_BYTES      16

/* Why an extent or a file was not taken. */
enum disk_fault {
    DISK_FAULT_NONE,
    DISK_FAULT_MAGIC,    /* nothing of ours stands there: a hole, or it was never written */
    DISK_FAULT_VERSION,  /* a newer format */
    DISK_FAULT_CHECKSUM, /* torn or rotten */
    DISK_FAULT_ADDRESS,  /* it says that it is another one: written to the wrong place */
    DISK_FAULT_TENANT,   /* another tenant's */
    DISK_FAULT_SHAPE,    /* its numbers contradict each other, or the end of the file */
    DISK_FAULT_KEY,  /* encrypted and we have no key, or another key; or plain and we have one */
    DISK_FAULT_READ, /* the disk could not read it */
    DISK_FAULTS
};

const char *disk_fault_word(enum disk_fault fault); /* "checksum" ... for the log and ternctl */

struct disk_file_header {
    uint64_t file;        /* its own number */
    uint64_t incarnation; /* of the daemon that wrote it */
    uint64_t served_ns;
    char tenant[DISK_TENANT_NAME];
};

struct disk_seal { /* what makes a body one: see above */
    bool encrypted;
    uint8_t nonce[DISK_NONCE_BYTES], tag[DISK_TAG_BYTES];
    uint64_t meta_sum; /* XXH3-64 of the body's first disk_meta_bytes, in the clear */
};

/* `block` is DISK_BLOCK bytes. */
void disk_put_file_header(uint8_t *block, const struct disk_file_header *h);
enum disk_fault disk_get_file_header(const uint8_t *block, struct disk_file_header *ret);

/* `tenant` is the name that goes into the header; e->tenant does not. */
void disk_put_extent(uint8_t *block, const struct disk_extent *e, const char *tenant,
                     const struct disk_seal *seal);
/* `at`: where it was read, which it must agree with; ret->tenant is not set. */
enum disk_fault disk_get_extent(const uint8_t *block, struct disk_place at, const char *tenant,
                                struct disk_extent *ret, struct disk_seal *ret_seal);
/* The part of the header that is associated data of its body: [0, returned). */
size_t disk_associated(const uint8_t *block);
/* Do the two say the same of themselves, all but what a later run may have counted? */
bool disk_extent_agrees(const struct disk_extent *a, const struct disk_extent *b);

#endif
