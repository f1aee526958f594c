/* The disk tier: its files, and the threads that write and read them. The core decides what is
 * stored, what is read and what goes (core/disk.h); here it is done. All functions are for the
 * owner thread but where they say otherwise; none blocks after disk_recover, and none allocates
 * after disk_create. The owner touches no page bytes: a task's thread gathers, hashes, encrypts,
 * writes and reads them.
 *
 * What must stay true: a file's name appears only when every byte of it is durable (D3), so that
 * whatever has a name is whole, and what has none is removed at the next start (D8). A page that
 * was read is handed on only if its extent says that it is what was looked for and every checksum
 * agrees; its checksums are in mem_sums then, as if a peer had sent it. */
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
    const char *dir; /* the spill directory; it is there, and ours alone (a lock file) */
    const struct disk_files *files; /* NULL: the file system */
    struct mem *mem;
    uint32_t sums_per_page; /* where mem is not there yet, for disk_bytes: that of its config */
    uint32_t tenants;
    const char *tenant[MEM_TENANTS_MAX]; /* names; each a folder; "": it has none yet */
    uint32_t threads;                    /* that move bytes */
    uint32_t depth;                      /* pieces of DISK_PIECE_BYTES in flight in each */
    uint32_t writes;                     /* core_limits.disk_stores: files written at a time */
    uint32_t reads;                      /* batches read at a time */
    uint32_t pulls;                      /* core_limits.pulls */
    uint32_t drops; /* core_limits.disk_files + disk_chunks: what may wait to be given back */
    uint64_t incarnation;
    bool encrypt;
    uint8_t key[DISK_KEY_BYTES];
    uint64_t headroom_bytes;    /* that stay free on the disk, or a write is POOL_EXHAUSTED */
    uint32_t fault_write_every; /* fault injection: every n-th write fails with EIO; 0: none */
    uint32_t fault_full_after;  /* likewise: writes fail with ENOSPC from this many files on; 0 */
};

#define DISK_PIECE_BYTES (1u << 20)

/* What disk_create will take: staging memory, and tables. */
uint64_t disk_bytes(const struct disk_config *config);
/* *ret_why says what failed and what to do: no such directory, not writable, in use by another
 * daemon (CONFLICT). The config's arrays are copied; mem and files are borrowed. */
enum tern_err disk_create(const struct disk_config *config, struct disk **ret,
                          const char **ret_why);
void disk_destroy(struct disk *disk); /* finishes what runs, joins the threads */

/* What one start found and dropped, by enum disk_fault. */
struct disk_recovery {
    uint64_t files, extents, bytes; /* that were taken */
    uint64_t holes;                 /* extents that were given back */
    uint64_t removed_files;         /* of which nothing was good */
    uint64_t unfinished;            /* files without a name, removed */
    uint64_t faults[DISK_FAULTS];
    uint64_t ns;
};
/* The tenant had no name, and so stored nothing. There is no folder of this name. */
void disk_name_tenant(struct disk *disk, uint32_t tenant, const char *name);
/* Once, and blocks: reads what earlier runs left, and emits EV_DISK_FOUND for each good extent in
 * ascending order, then EV_DISK_READY. The event's arrays live until emit returns. UNSUPPORTED: a
 * file of a newer format (*ret_why names it and says what to do); nothing is removed or emitted
 * then. A file of which nothing is good is removed, but for one that the disk could not read.
 * `note` hears of each thing that is not taken, for the log; NULL: nobody does. */
enum tern_err disk_recover(struct disk *disk, void (*emit)(void *ctx, struct event *event),
                           void (*note)(void *ctx, const char *file, uint64_t offset,
                                        enum disk_fault fault),
                           void *ctx, struct disk_recovery *ret, const char **ret_why);
/* The same without the rest of struct disk, in lane 0 of config->files. */
enum tern_err disk_recover_files(const struct disk_config *config,
                                 void (*emit)(void *ctx, struct event *event),
                                 void (*note)(void *ctx, const char *file, uint64_t offset,
                                              enum disk_fault fault),
                                 void *ctx, struct disk_recovery *ret, const char **ret_why);

int disk_event_fd(const struct disk *disk); /* readable when disk_poll has something */
/* EV_DISK_WRITTEN, EV_DISK_DROPPED (also of a file that a read did not find), EV_PULLED,
 * EV_PULL_BROKEN (CORRUPT, DISK), EV_PULL_QUIET. */
void disk_poll(struct disk *disk, void (*emit)(void *ctx, struct event *event), void *ctx);

void disk_write(struct disk *disk, const struct disk_write *write);
/* ACT_PULL of link_disk, and its ACT_PULL_STOP. Pages of a batch that are not right are not set in
 * EV_PULLED; a read that fails is EV_PULL_BROKEN. */
void disk_read(struct disk *disk, const struct action *act);
void disk_read_stop(struct disk *disk, struct pull_id pull);
/* A file that cannot be removed is not told of as dropped: the next start finds it. */
void disk_drop(struct disk *disk, const struct disk_drop *drop);
/* Nothing is written or given back any more. */
bool disk_idle(const struct disk *disk);

struct disk_stats {
    uint64_t files_written, bytes_written, extents_read, bytes_read, write_errors, read_errors,
        corrupt, dropped_files, punched_bytes, syncs;
    uint64_t free_bytes; /* of the file system, as of the last write; kept current while `full` */
    bool full;           /* the last write ended for want of room, and there is none yet */
    bool failing;        /* the last write, or the last read, ended with an error of the disk */
    bool gone;           /* failing: the folder was removed, and is not there yet anew */
    int error;           /* errno of the last that did; 0: none */
    bool direct;         /* at the start; false: no O_DIRECT, all goes through the page cache */
    struct disk_bad {    /* what reads met that is damaged, or in a file that is not there */
        uint64_t n;
        struct disk_place at; /* of the last one; offset 0: of the whole file */
        uint32_t tenant;
        bool missing;
    } bad;
};
void disk_stats(const struct disk *disk, struct disk_stats *ret);

/* `ternctl verify`, without a daemon or beside one: every extent of every file is read and checked,
 * every page against its checksum. `found` hears of each, in order; fault NONE: it is good. An
 * entry for a file as a whole, where something is wrong with that, has no part but its place.
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
