/* The pass over the files of a spill directory that a start and a verification share. It finds the
 * files and the contents of each. An extent's own header is always read; a footer only gives the
 * places and lists of extents, and is used only as far as the headers confirm it. If a footer is
 * not good, extents are found one after the other, up to the first whose header is not good.
 *
 * Blocks, allocates, and reads in lane 0: use it before anything else uses that lane. */
#ifndef SEAM_DISK_SCAN_H
#define SEAM_DISK_SCAN_H

#include "seam/disk/disk.h"
#include "seam/disk/disk_body.h"

struct scan_file {
    uint64_t file;
    uint32_t tenant; /* of the config */
    bool unfinished;
};

/* The contents of a place of a file: an extent, a hole where one was dropped, or refused bytes. */
struct scan_found {
    const char *tenant, *name; /* name: of the file, with its folder */
    uint32_t slot;             /* of the tenant in the config */
    enum disk_fault fault;
    bool hole;
    struct disk_head head;        /* unless the extent is good, only its place is valid */
    const uint32_t *tokens;       /* of a good extent; borrowed */
    const struct extra_key *keys; /* until found returns */
};

struct disk_scan {
    const struct disk_config *config; /* borrowed */
    const struct disk_files *files;   /* borrowed */
    bool bodies;                      /* also check each body */
    void (*found)(void *ctx, const struct scan_found *f);
    void *ctx;
    /* Private to the scan. */
    struct scan_file *file; /* owned; in order of their numbers */
    uint32_t nfiles, cap;
    bool full;                /* there was no memory for another file */
    uint32_t listed;          /* the tenant whose files are being listed */
    struct disk_crypt *crypt; /* owned; NULL: no key */
    struct disk_body body;
    struct disk_memory blocks, footer; /* owned */
    char name[DISK_NAME_MAX];
    uint64_t bytes;       /* of the open file, whole blocks */
    uint64_t incarnation; /* of the file's writer, if known */
    bool known;
    struct scan_found now;
};

/* The first five fields are set. OK: the files are known. On failure nothing is left allocated. */
enum tern_err disk_scan_begin(struct disk_scan *s, const char **ret_why);
void disk_scan_end(struct disk_scan *s);
/* Calls `found` for all entries of the file, in order. A fault of the file itself is reported at
 * its beginning, and a fault of its footer at the footer's beginning. *ret is the file's header, or
 * zeros if that is not good. Returns false if the file could not be opened: it does not exist, or
 * the disk failed (`found` was called with fault READ). */
bool disk_scan_file(struct disk_scan *s, const struct scan_file *f, struct disk_file_header *ret);
/* Checks the file's header alone, without calling `found`. */
enum disk_fault disk_scan_header(struct disk_scan *s, const struct scan_file *f);

#endif
