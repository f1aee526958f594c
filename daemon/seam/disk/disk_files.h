/* The file system, as the disk tier uses it: a file is written once, synced and then renamed to its
 * final name. file_ops.c implements it with O_DIRECT and io_uring; the tests' simulated disk is
 * another implementation, which can lose unsynced bytes, tear them, write them elsewhere, run full
 * and fail.
 *
 * Each thread that moves bytes has its own lane; one thread at a time uses a lane. Errors are
 * negative errno values. Only EINTR is retried here. */
#ifndef SEAM_DISK_FILES_H
#define SEAM_DISK_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DISK_NAME_MAX    128     /* of a file below the spill directory, with the NUL */
#define DISK_LANE_PIECES 32      /* at most, in flight in a lane */
#define FILE_OPS_LOCK    ".lock" /* in the directory; locked by one daemon at a time */

struct disk_piece { /* one read or write; memory, bytes and offset are aligned to DISK_BLOCK */
    void *memory;
    uint64_t bytes, offset;
    uint64_t token; /* the caller's */
};

struct disk_files {
    /* Names are relative to the spill directory: "TENANT/NAME". make: creates the file, mode 0600;
     * -EEXIST (CONFLICT) if it exists; creates its folder, 0700, if that is missing. *ret: a handle
     * for the other calls. */
    int (*make)(void *ctx, const char *name, int *ret);
    int (*open)(void *ctx, const char *name, int *ret, uint64_t *ret_bytes); /* to read and punch */
    void (*close)(void *ctx, int file);
    /* Reserves `bytes` for a fresh file, which reads as zeros: later writes into it need no more
     * room and wait for no other write. -ENOSPC. NULL: a file grows as it is written. */
    int (*reserve)(void *ctx, int file, uint64_t bytes);
    /* Submits one piece, which is moved whole or fails. The lane must have room for it. */
    int (*submit)(void *ctx, uint32_t lane, int file, bool write, const struct disk_piece *piece);
    /* Waits for any piece of the lane; *ret_token names it. Returns 0, or the piece's error;
     * -ENODATA: the file is shorter. */
    int (*reap)(void *ctx, uint32_t lane, uint64_t *ret_token);
    int (*sync)(void *ctx, int file);                           /* makes its bytes durable */
    int (*rename)(void *ctx, const char *from, const char *to); /* within one folder */
    int (*sync_folder)(void *ctx, const char *name); /* the file's folder: makes names durable */
    int (*remove)(void *ctx, const char *name);      /* -ENOENT: no such file */
    int (*punch)(void *ctx, int file, uint64_t offset, uint64_t bytes); /* a hole: reads as zeros */
    /* Calls `found` for each file of a tenant's folder, in any order. 0 if there is no folder. */
    int (*list)(void *ctx, const char *tenant, void (*found)(void *to, const char *name), void *to);
    int (*room)(void *ctx, uint64_t *ret_bytes); /* free bytes of the file system */
    /* Returns true if the spill directory was removed; `make` makes it anew. NULL: it never is. */
    bool (*gone)(void *ctx);
    void *ctx;
    bool direct; /* false: the file system has no O_DIRECT, all bytes go through the page cache */
};

#endif
