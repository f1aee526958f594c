/* Bytes on the disk: the header of a file, the header of an extent, and the trailer that names the
 * footer, which saves a start from reading every body (disk_footer.h). Pure functions over memory.
 * Numbers are little-endian.
 *
 *   file    := file header (one block) extent* footer trailer (one block, names the footer)
 *   extent  := header (one block) body (whole blocks; zeros fill the last)
 *   footer  := header (one block) body (whole blocks)
 *
 * Each of these blocks begins with its magic and the version, and ends with a checksum of all bytes
 * before it: no version of the format changes that, so a newer format is not mistaken for rot. Each
 * names the file and the daemon that wrote it, and all but the trailer name the tenant, so that a
 * block written to a wrong place, or left by an older file in the same blocks, is not accepted.
 *
 * If files are encrypted, AES-256-GCM protects two parts, each under its own key: a body, and an
 * extent's header without its place and its writer. So the header's tokens, namespaces and sizes,
 * the sums of the unencrypted body, and the body's tag are encrypted. The beginning of a header
 * (DISK_ASSOCIATED) is associated data of both, so that neither can be read under another address,
 * generation or name; it contains the one nonce, which is random. Without the key nobody can test a
 * guess of tokens or of a namespace: no field in the clear is derived from them. The header is
 * sealed once, when all its fields are known. The checksum at its end, and the sum in a footer's
 * header, cover the bytes as stored, so that rot is found without a key.
 *
 * Sums are those of checksum.h, over blocks of 4 KiB. */
#ifndef SEAM_DISK_FORMAT_H
#define SEAM_DISK_FORMAT_H

#include "base/tern_err.h"
#include "core/disk.h"
#include "seam/disk/disk_crypt.h"
#include "seam/disk/disk_files.h"

#define DISK_FORMAT_VERSION 1u
#define DISK_TENANT_NAME    64 /* bytes with the NUL */
#define DISK_EXTENT_BYTES_MAX                                                                      \
    (1ull << 35)                          /* of a body: GCM seals twice as much under one nonce    \
                                           */
#define DISK_SUMS_MAX   (1u << 20)        /* checksums of an extent */
#define DISK_HEAD_BYTES 680               /* the fields of an extent's header block; then zeros */
#define DISK_FILE_MAX   (UINT64_MAX >> 1) /* the highest number that a file may have */

/* Why an extent or a file was not taken. */
enum disk_fault {
    DISK_FAULT_NONE,
    DISK_FAULT_MAGIC,    /* not a block of ours: a hole, or never written */
    DISK_FAULT_VERSION,  /* a newer format */
    DISK_FAULT_CHECKSUM, /* torn or rotten */
    DISK_FAULT_ADDRESS,  /* it names another place: written to the wrong one */
    DISK_FAULT_TENANT,   /* another tenant's */
    DISK_FAULT_SHAPE,    /* its numbers contradict each other, or the end of the file */
    DISK_FAULT_KEY,  /* encrypted and we have no key, or another key; or plain and we have one */
    DISK_FAULT_READ, /* the disk could not read it */
    DISK_FAULTS
};

const char *disk_fault_word(enum disk_fault fault); /* "checksum" ... for the log and ternctl */

void disk_file_name(char ret[DISK_NAME_MAX], const char *tenant, uint64_t file, bool unfinished);
/* `name`: without the folder. Returns false if no file of ours has such a name. */
bool disk_parse_name(const char *name, uint64_t *ret_file, bool *ret_unfinished);

struct disk_file_header {
    uint64_t file;        /* its own number */
    uint64_t incarnation; /* of the daemon that wrote it */
    uint64_t served_ns;
    uint64_t key_id; /* of disk_crypt.h; 0: in the clear */
    char tenant[DISK_TENANT_NAME];
};

static inline uint64_t disk_whole_blocks(uint64_t bytes)
{
    return (bytes + DISK_BLOCK - 1) / DISK_BLOCK * DISK_BLOCK;
}

static inline bool disk_place_equal(struct disk_place a, struct disk_place b)
{
    return a.file == b.file && a.offset == b.offset;
}

/* `block` is DISK_BLOCK bytes, everywhere in this header. */
void disk_put_file_header(uint8_t *block, const struct disk_file_header *h);
/* `file`, `tenant`: whose header it must be. */
enum disk_fault disk_get_file_header(const uint8_t *block, uint64_t file, const char *tenant,
                                     struct disk_file_header *ret);

struct disk_trailer {
    uint64_t file, incarnation;
    uint64_t footer_at; /* the footer ends where the trailer begins */
    uint64_t file_bytes;
};

void disk_put_trailer(uint8_t *block, const struct disk_trailer *t);
enum disk_fault disk_get_trailer(const uint8_t *block, uint64_t file, uint64_t file_bytes,
                                 struct disk_trailer *ret);

/* Pages of an extent that are alike and follow each other: those of a group. */
struct disk_run {
    uint32_t pages, units, regions; /* regions: those that transfers carry */
    uint32_t zero;
    uint64_t page_bytes; /* in one region */
};

struct disk_seal {   /* seals a body: see above */
    uint64_t key_id; /* of disk_crypt.h; 0: the body is in the clear, and nonce and tag are 0 */
    uint8_t nonce[DISK_NONCE_BYTES], tag[DISK_TAG_BYTES];
    uint64_t meta_sum; /* of the body's first disk_meta_bytes */
    uint64_t list_sum; /* of its first disk_list_bytes */
};

struct disk_head { /* the fields of a header block */
    struct disk_extent extent;
    uint64_t incarnation; /* of the file */
    uint32_t nruns, zero;
    struct disk_run run[GROUPS_MAX]; /* the extent's pages in order */
    struct disk_seal seal;
};

/* Length of the body's beginning: tokens and extra keys. */
static inline uint64_t disk_list_bytes(const struct disk_extent *e)
{
    return ((uint64_t)e->tokens * 4 + 7) / 8 * 8 + (uint64_t)e->nkeys * sizeof(struct extra_key);
}

/* SHAPE, unless the numbers agree and the extent ends before file_bytes; disk_put_extent checks. */
enum disk_fault disk_check_head(const struct disk_head *h, uint64_t file_bytes);
/* `tenant` is the name that the header gets; extent.tenant is not stored. */
void disk_put_extent(uint8_t *block, const struct disk_head *h, const char *tenant);
/* A body is encrypted before the header's tag and sums are known, with the beginning of the header
 * block as associated data. Putting the header again does not change that beginning. */
#define DISK_ASSOCIATED 128u /* at the block's beginning: its associated data */
/* Seals what disk_put_extent put, in place, for writing. Seal only the last block that was put with
 * a nonce. Returns false if sealing failed: the block must not be written. */
bool disk_seal_extent(struct disk_crypt *crypt, uint8_t *block);
/* Undoes disk_seal_extent, in place. NONE: the block is as disk_put_extent put it. crypt NULL: no
 * key. */
enum disk_fault disk_open_extent(struct disk_crypt *crypt, uint8_t *block);
/* `block`: opened. `at`: where it was read; the block must name it. file_bytes: UINT64_MAX if the
 * file's length is unknown. extent.tenant is not set. */
enum disk_fault disk_get_extent(const uint8_t *block, struct disk_place at, uint64_t file_bytes,
                                const char *tenant, struct disk_head *ret);
/* The same for the first DISK_HEAD_BYTES alone: the copy of a header in a footer. */
enum disk_fault disk_get_head(const uint8_t *bytes, struct disk_place at, uint64_t file_bytes,
                              const char *tenant, struct disk_head *ret);
/* Returns true if both describe the same extent. Does not compare the counts that a later run may
 * have changed, nor the place of the extent before it, which may exist twice. */
bool disk_extent_agrees(const struct disk_extent *a, const struct disk_extent *b);
bool disk_is_hole(const uint8_t *block); /* zeros: the extent here was dropped */

/* Returns true if an earlier run's extra keys are in order and within the extent's tokens. */
bool disk_keys_fit(const struct disk_extent *e, const struct extra_key *keys);

struct disk_footer_header {
    struct disk_place place;
    uint64_t incarnation, body_bytes;
    uint32_t nextents, zero;
    uint64_t key_id;
    uint8_t nonce[DISK_NONCE_BYTES], tag[DISK_TAG_BYTES];
    uint64_t body_sum; /* of the body as stored */
};

void disk_put_footer_header(uint8_t *block, const struct disk_footer_header *h, const char *tenant);
enum disk_fault disk_get_footer_header(const uint8_t *block, struct disk_place at,
                                       const char *tenant, struct disk_footer_header *ret);
#define DISK_FOOTER_ASSOCIATED 120u        /* as DISK_ASSOCIATED, of a footer */
bool disk_is_footer(const uint8_t *block); /* by its magic alone */

#endif
