/* The pass over the files of a spill directory that a start and a verification share: which files
 * there are, and what lies in one. An extent's own header is read in any case; a footer only tells
 * where extents lie and what their lists are, and of that only what the headers confirm is taken.
 * Where a footer is not good, extents are found one behind the other, up to the first whose
 * header is not.
 *
 * Blocks, allocates, and reads in lane 0: before anything else uses it. */
#ifndef SEAM_DISK_SCAN_H
#define SEAM_DISK_SCAN_H

#include "seam/disk/disk.h"
#include "seam/disk/disk_body.h"

struct scan_file {
    uint64_t file;
    uint32_t tenant; /* of the config */
    bool unfinished;
};

/* What stands at a place of a file: an extent, a hole where one was, or what is not taken. */
struct scan_found {
    const char *tenant, *name; /* name: of the file, with its folder */
    uint32_t slot;             /* of the tenant in the config */
    enum disk_fault fault;
    bool hole;
    struct disk_head head;        /* of anything but a good extent only its place is sure */
    const uint32_t *tokens;       /* of a good one, */
    const struct extra_key *keys; /* until found returns */
};

struct disk_scan {
    const struct disk_config *config; /* borrowed */
    const struct disk_files *files;   /* borrowed */
    bool bodies;                      /* each body is checked, too */
    void (*found)(void *ctx, const struct scan_found *f);
    void *ctx;
    /* The scan's own. */
    struct scan_file *file; /* owned: in order of their numbers */
    uint32_t nfiles, cap;
    bool full;                /* there was no memory for another one */
    uint32_t listed;          /* the tenant whose files are being listed */
    struct disk_crypt *crypt; /* owned; NULL: there is no key */
    struct disk_body body;
    struct disk_memory blocks, footer; /* owned */
    char name[DISK_NAME_MAX];
    uint64_t bytes;       /* of the open file, whole blocks */
    uint64_t incarnation; /* that wrote it, if known */
    bool known;
    struct scan_found now;
};

/* The first five fields are set. OK: the files are known. On failure nothing is left. */
enum tern_err disk_scan_begin(struct disk_scan *s, const char **ret_why);
void disk_scan_end(struct disk_scan *s);
/* Calls found for all that is in the file, in order. What is wrong with the file itself is found at
 * its beginning, and at that of its footer. *ret is its header, zeros if that is not good. False:
 * it could not be opened, since it is not there or (fault READ was found) the disk failed. */
bool disk_scan_file(struct disk_scan *s, const struct scan_file *f, struct disk_file_header *ret);
/* Of the file's header alone; found is not called. */
enum disk_fault disk_scan_header(struct disk_scan *s, const struct scan_file *f);

#endif
