/* The footer of a file: for each of its extents, in order, the fields of its header block and, for
 * HISTORY, its tokens and extra keys. A writer builds the footer of its current file in memory of
 * its own, in the layout of the file: header, body, and the trailer after them.
 *
 * Invariant: a reader uses an entry of a footer only as far as the extent's own header confirms
 * it. */
#ifndef SEAM_DISK_FOOTER_H
#define SEAM_DISK_FOOTER_H

#include "seam/disk/disk_crypt.h"
#include "seam/disk/disk_format.h"

/* The size of the largest footer with its trailer: DISK_WRITE_EXTENTS extents, OPEN_TOKENS_MAX
 * tokens and EXTRA_KEYS_MAX keys. A multiple of DISK_BLOCK. */
size_t disk_footer_bytes_max(void);

struct disk_footer { /* being built; no clean-up */
    uint8_t *memory;
    size_t bytes, cap;
    uint32_t nextents;
};

/* cap: disk_footer_bytes_max, or a smaller size known to be enough. */
void disk_footer_begin(struct disk_footer *f, uint8_t *memory, size_t cap);
/* Adds an extent: its header block with sums and tag, before it is sealed, and its list. */
void disk_footer_add(struct disk_footer *f, const uint8_t *block, const struct disk_extent *e,
                     const uint32_t *tokens, const struct extra_key *keys);
/* Ends the footer at `at`, after the last extent. Returns how many bytes of the memory must be
 * written there: header, body and trailer, which end the file. 0: it could not be encrypted. crypt
 * NULL: the file is in the clear. */
size_t disk_footer_end(struct disk_footer *f, struct disk_place at,
                       const struct disk_file_header *file, struct disk_crypt *crypt);

struct disk_footer_entry { /* borrowed from the footer's memory */
    struct disk_head head;
    const uint8_t *head_bytes; /* DISK_HEAD_BYTES: the beginning of its block */
    const uint8_t *list;       /* disk_list_bytes */
};

struct disk_footer_reader {
    const uint8_t *at, *end;
    struct disk_trailer trailer; /* names the footer */
    const char *tenant;
    uint64_t key_id;
    uint64_t next_offset; /* of the next entry's extent */
    uint32_t left;
};

/* `memory` is the footer that the trailer names, header and body, as it was read; it is opened in
 * place. NONE: the footer and each entry are consistent, and the entries' extents follow each other
 * in the file from its header to the footer. crypt NULL: no key. */
enum disk_fault disk_footer_open(struct disk_footer_reader *r, uint8_t *memory,
                                 const struct disk_trailer *trailer, const char *tenant,
                                 struct disk_crypt *crypt);
/* Returns false if there are no more entries. */
bool disk_footer_next(struct disk_footer_reader *r, struct disk_footer_entry *ret);

#endif
