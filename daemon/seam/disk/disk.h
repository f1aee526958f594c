/* The disk tier: its files, and the threads that write and read them. The core decides what is
 * stored, read and dropped (core/disk.h); this module carries out its decisions. All functions are
 * for the owner thread unless they say otherwise; none blocks after disk_recover, and none
 * allocates after disk_create. The owner touches no page bytes: a thread of the disk gathers,
 * hashes, encrypts, writes and reads them.
 *
 * Invariant: a file gets its name only when every byte of it is durable (D3), so every named file
 * is whole, and the next start removes files without a name (D8). A page that was read is passed on
 * only if its extent names the wanted page and every checksum agrees; mem_sums then has its
 * checksums, as if a peer had sent the page. */
#ifndef SEAM_DISK_H
#define SEAM_DISK_H

#include "core/core.h"
#include "seam/disk/disk_crypt.h"
#include "seam/disk/disk_files.h"
#include "seam/disk/disk_format.h"
#include "seam/mem/mem.h"

struct disk;

#define DISK_THREADS_MAX 32

struct disk_config {
    const char *dir; /* the spill directory; exists and is ours alone (a lock file) */
    const struct disk_files *files; /* NULL: the file system */
    struct mem *mem;
    uint32_t sums_per_page; /* for disk_bytes, which runs before mem exists: as in its config */
    uint32_t tenants;
    const char *tenant[MEM_TENANTS_MAX]; /* names; each a folder; "": no name yet */
    uint32_t threads;                    /* that move bytes */
    uint32_t depth;                      /* pieces of DISK_PIECE_BYTES in flight in each */
    uint32_t writes;                     /* core_limits.disk_stores: files written at a time */
    uint32_t reads;                      /* batches read at a time */
    uint32_t pulls;                      /* core_limits.pulls */
    uint32_t drops; /* core_limits.disk_files + disk_chunks: drops that may wait */
    uint64_t incarnation;
    bool encrypt;
    uint8_t key[DISK_KEY_BYTES];
    uint64_t headroom_bytes;    /* to leave free on the disk, or a write is POOL_EXHAUSTED */
    uint32_t fault_write_every; /* fault injection: every n-th write fails with EIO; 0: none */
    uint32_t fault_full_after; /* fault injection: writes fail with ENOSPC after n files; 0: none */
};

#define DISK_PIECE_BYTES (1u << 20)

/* Bytes that disk_create will allocate: staging memory, and tables. */
uint64_t disk_bytes(const struct disk_config *config);
/* *ret_why has the failure and what to do: no such directory, not writable, in use by another
 * daemon (CONFLICT). The config's arrays are copied; mem and files are borrowed. */
enum tern_err disk_create(const struct disk_config *config, struct disk **ret,
                          const char **ret_why);
void disk_destroy(struct disk *disk); /* finishes running jobs, joins the threads */

/* The files and extents that one start found, and those that it dropped, by enum disk_fault. */
struct disk_recovery {
    uint64_t files, extents, bytes; /* taken */
    uint64_t holes;                 /* extents that were dropped */
    uint64_t removed_files;         /* without a good extent */
    uint64_t unfinished;            /* files without a name, removed */
    uint64_t faults[DISK_FAULTS];
    uint64_t ns;
};
/* Names a tenant that had no name, and so stored nothing. No folder of this name exists. */
void disk_name_tenant(struct disk *disk, uint32_t tenant, const char *name);
/* Called once; blocks. Reads the files of earlier runs, and emits EV_DISK_FOUND for each good
 * extent in ascending order, then EV_DISK_READY. The event's arrays live until emit returns.
 * UNSUPPORTED: a file has a newer format (*ret_why names it and says what to do); then nothing is
 * removed or emitted. A file without a good extent is removed, unless the disk could not read it.
 * `note` is called for each file or extent that is not taken, for the log; may be NULL. */
enum tern_err disk_recover(struct disk *disk, void (*emit)(void *ctx, struct event *event),
                           void (*note)(void *ctx, const char *file, uint64_t offset,
                                        enum disk_fault fault),
                           void *ctx, struct disk_recovery *ret, const char **ret_why);
/* The same without a struct disk, in lane 0 of config->files. */
enum tern_err disk_recover_files(const struct disk_config *config,
                                 void (*emit)(void *ctx, struct event *event),
                                 void (*note)(void *ctx, const char *file, uint64_t offset,
                                              enum disk_fault fault),
                                 void *ctx, struct disk_recovery *ret, const char **ret_why);

int disk_event_fd(const struct disk *disk); /* readable when disk_poll has something */
/* Emits EV_DISK_WRITTEN, EV_DISK_DROPPED (also for a file that a read did not find), EV_PULLED,
 * EV_PULL_BROKEN (CORRUPT, DISK), EV_PULL_QUIET. */
void disk_poll(struct disk *disk, void (*emit)(void *ctx, struct event *event), void *ctx);

void disk_write(struct disk *disk, const struct disk_write *write);
/* ACT_PULL of link_disk, and its ACT_PULL_STOP. EV_PULLED leaves out pages of a batch that are not
 * right; a read that fails is EV_PULL_BROKEN. */
void disk_read(struct disk *disk, const struct action *act);
void disk_read_stop(struct disk *disk, struct pull_id pull);
/* A file that cannot be removed is not reported as dropped: the next start finds it. */
void disk_drop(struct disk *disk, const struct disk_drop *drop);
/* Returns true if no write and no drop is under way. */
bool disk_idle(const struct disk *disk);

struct disk_stats {
    uint64_t files_written, bytes_written, extents_read, bytes_read, write_errors, read_errors,
        corrupt, dropped_files, punched_bytes, syncs;
    uint64_t free_bytes; /* of the file system, as of the last write; kept current while `full` */
    bool full;           /* the last write found too little room, and there is still too little */
    bool failing;        /* the last write, or the last read, ended with an error of the disk */
    bool gone;           /* failing, because the folder was removed and is not made again yet */
    int error;           /* errno of the last such error; 0: none */
    bool direct;         /* at the start; false: no O_DIRECT, all bytes go through the page cache */
    struct disk_bad {    /* damage and missing files that reads found */
        uint64_t n;
        struct disk_place at; /* of the last one; offset 0: the whole file */
        uint32_t tenant;
        bool missing;
    } bad;
};
void disk_stats(const struct disk *disk, struct disk_stats *ret);

/* For `ternctl verify`, without a daemon or beside one: reads and checks every extent of every
 * file, and every page against its checksum. Calls `found` for each, in order; fault NONE: it is
 * good. A fault of a whole file is reported as an entry whose extent has only its place set.
 * Blocks. */
struct disk_verified {
    const char *tenant, *file;
    struct disk_extent extent;
    enum disk_fault fault;
};
enum tern_err disk_verify(const struct disk_config *config,
                          void (*found)(void *ctx, const struct disk_verified *v), void *ctx,
                          const char **ret_why);

#endif
