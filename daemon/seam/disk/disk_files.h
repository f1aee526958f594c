/* The file system, as the disk tier uses it: files that are written once, synced and then given
 * their name. The one implementation is file_ops.c, with O_DIRECT and io_uring; the simulated disk
 * of the tests is another set behind this header, which can lose what was not synced, tear it,
 * put it elsewhere, run full and fail.
 *
 * Each thread that moves bytes has a lane of its own; a lane is used by one thread at a time.
 * Errors are negative errno values. Nothing is retried in here but EINTR. */
#ifndef SEAM_DISK_FILES_H
#define SEAM_DISK_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DISK_NAME_MAX    128     /* of a file below the spill directory, with the NUL */
#define DISK_LANE_PIECES 32      /* in flight in a lane at most */
#define FILE_OPS_LOCK    ".lock" /* in the directory; holds it for one daemon at a time */

struct disk_piece { /* one read or write; memory, bytes and offset are aligned to DISK_BLOCK */
    void *memory;
    uint64_t bytes, offset;
    uint64_t token; /* the caller's */
};

struct disk_files {
    /* Names are relative to the spill directory: "TENANT/NAME". make: fresh, mode 0600, CONFLICT
     * (-EEXIST) where there is one; its folder is made, 0700, where it is not there. *ret: a handle
     * for the other calls. */
    int (*make)(void *ctx, const char *name, int *ret);
    int (*open)(void *ctx, const char *name, int *ret, uint64_t *ret_bytes); /* to read and punch */
    void (*close)(void *ctx, int file);
    /* Room for so many bytes of a fresh file, which reads as zeros: what is written into it later
     * needs none and waits for no other write. -ENOSPC. NULL: a file grows as it is written. */
    int (*reserve)(void *ctx, int file, uint64_t bytes);
    /* Hands one over; it is moved whole or fails. There is room in the lane. */
    int (*submit)(void *ctx, uint32_t lane, int file, bool write, const struct disk_piece *piece);
    /* Waits for a piece of the lane, *ret_token. 0, or its error; -ENODATA: the file is shorter. */
    int (*reap)(void *ctx, uint32_t lane, uint64_t *ret_token);
    int (*sync)(void *ctx, int file);                           /* its bytes are durable */
    int (*rename)(void *ctx, const char *from, const char *to); /* within one folder */
    int (*sync_folder)(void *ctx, const char *name); /* of that file: names are durable */
    int (*remove)(void *ctx, const char *name);      /* -ENOENT: it is not there */
    int (*punch)(void *ctx, int file, uint64_t offset, uint64_t bytes); /* a hole: reads as zeros */
    /* Calls found for each file of a tenant's folder, in any order; no folder: none. */
    int (*list)(void *ctx, const char *tenant, void (*found)(void *to, const char *name), void *to);
    int (*room)(void *ctx, uint64_t *ret_bytes); /* free bytes of the file system */
    /* Was the spill directory itself removed? `make` makes it anew. NULL: it never is. */
    bool (*gone)(void *ctx);
    void *ctx;
};

#endif
