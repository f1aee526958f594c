/* The footer of a file: of each of its extents, in order, what its header block says and, of
 * HISTORY, its tokens and extra keys. It is built in memory of the caller's, of which a writer has
 * one for each file that it may have in work, and lies in the file as it lies there: header, body,
 * and the trailer behind it.
 *
 * Who reads it takes nothing from it that the extent's own header does not confirm. */
#ifndef SEAM_DISK_FOOTER_H
#define SEAM_DISK_FOOTER_H

#include "seam/disk/disk_crypt.h"
#include "seam/disk/disk_format.h"

/* Of any footer with its trailer: DISK_WRITE_EXTENTS extents, OPEN_TOKENS_MAX tokens and
 * EXTRA_KEYS_MAX keys. A multiple of DISK_BLOCK. */
size_t disk_footer_bytes_max(void);

struct disk_footer { /* one that is being built; no clean-up */
    uint8_t *memory;
    size_t bytes, cap;
    uint32_t nextents;
};

/* cap: disk_footer_bytes_max, or as much as is known to be enough. */
void disk_footer_begin(struct disk_footer *f, uint8_t *memory, size_t cap);
/* The extent's header block with sums and tag, before it is sealed, and its list. */
void disk_footer_add(struct disk_footer *f, const uint8_t *block, const struct disk_extent *e,
                     const uint32_t *tokens, const struct extra_key *keys);
/* Behind the last extent, at `at`. Returns how many bytes of the memory are to be written there,
 * header, body and trailer; they end the file. 0: it could not be encrypted. crypt NULL: the file
 * is in the clear. */
size_t disk_footer_end(struct disk_footer *f, struct disk_place at,
                       const struct disk_file_header *file, struct disk_crypt *crypt);

struct disk_footer_entry { /* borrowed from the footer's memory */
    struct disk_head head;
    const uint8_t *head_bytes; /* DISK_HEAD_BYTES: what its block begins with */
    const uint8_t *list;       /* disk_list_bytes */
};

struct disk_footer_reader {
    const uint8_t *at, *end;
    struct disk_trailer trailer; /* which names the footer */
    const char *tenant;
    uint64_t key_id;
    uint64_t next_offset; /* of the extent that the next entry is of */
    uint32_t left;
};

/* `memory` is the footer that the trailer names, header and body, as it was read; it is opened in
 * place. NONE: it agrees with itself, each entry, too, and they lie in the file one behind the
 * other from its header to the footer. crypt NULL: there is no key. */
enum disk_fault disk_footer_open(struct disk_footer_reader *r, uint8_t *memory,
                                 const struct disk_trailer *trailer, const char *tenant,
                                 struct disk_crypt *crypt);
/* False: that was the last. */
bool disk_footer_next(struct disk_footer_reader *r, struct disk_footer_entry *ret);

#endif
