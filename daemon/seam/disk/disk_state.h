/* Shared by the files of the disk tier's runtime: its jobs, and the threads that run them. Each
 * kind of job has a fixed number of slots. The core counts its jobs against the same limits, so to
 * exceed them is a bug of the core.
 *
 * One mutex guards the lists, the pulls and the figures; it is held for a few instructions and
 * never while bytes are moved. A job that a thread has taken belongs to that thread until it is
 * finished; the owner touches only its `stop`. */
#ifndef SEAM_DISK_STATE_H
#define SEAM_DISK_STATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/fifo.h"
#include "seam/disk/disk.h"
#include "seam/disk/disk_crypt.h"
#include "seam/disk/disk_footer.h"
#include "seam/disk/file_ops.h"
#include "seam/disk/pieces.h"
#include "seam/mem/mem_verify.h"

/* Waiting jobs run in this order of kinds: an engine waits for a read, and a drop makes room for a
 * write. */
enum job_kind { JOB_READ, JOB_DROP, JOB_WRITE, JOB_KINDS };

struct disk_job { /* each kind begins with it */
    struct fifo_link link;
    enum job_kind kind;
    enum tern_err err;
    uint64_t asked; /* ascending number, in the order of the core's requests */
};

struct write_job {
    struct disk_job job;
    int fault;               /* an errno to fail with, for tests; 0 */
    struct disk_write write; /* points to the arrays below */
    struct disk_extent extent[DISK_WRITE_EXTENTS];
    struct page_at page[DISK_WRITE_PAGES];
    struct extra_key key[EXTRA_KEYS_MAX];
    uint32_t token[OPEN_TOKENS_MAX];
};

struct read_job {
    struct disk_job job;
    struct pull_id pull;
    uint32_t batch, pool, n;
    _Atomic bool stop;  /* its pages are no longer wanted */
    uint64_t lost_file; /* a file that no longer exists; 0: none */
    uint64_t ok[PULL_BATCH_PAGES / 64];
    struct page_at page[PULL_BATCH_PAGES];
    struct disk_page from[PULL_BATCH_PAGES];
};

struct drop_job {
    struct disk_job job;
    struct disk_drop drop;
};

/* A transfer whose source is the disk, as long as a job of it may run. */
struct pull_state {
    struct pull_id id;
    uint32_t jobs; /* waiting or running */
    bool broken, stopping;
    bool quiet; /* stopping, and none runs: EV_PULL_QUIET is due */
};

struct reader; /* one per thread: disk_read.c */

struct disk_thread {
    struct disk *disk;
    pthread_t thread;
    bool started;
    struct pieces pieces;
    struct disk_crypt *crypt; /* owned; NULL: the files are in the clear */
    uint8_t *blocks;          /* owned, as are the next two: of `pieces` */
    uint8_t *meta;            /* disk->meta_bytes */
    uint8_t *footer;          /* disk_footer_bytes_max */
    uint8_t block[DISK_BLOCK];
    struct disk_seal seal[DISK_WRITE_EXTENTS]; /* of the file being written */
    struct reader *reader;
    struct read_job *reading; /* under the lock: the current read */
};

struct disk {
    struct disk_config config;
    char *dir;
    char tenant[MEM_TENANTS_MAX][DISK_TENANT_NAME];
    const struct disk_files *files;
    struct disk_files *own_files; /* owned; NULL: the caller's files */
    uint8_t *staging;            /* owned: for all threads; huge pages, contiguous for the device */
    uint64_t meta_bytes;         /* at most, of an extent */
    struct disk_thread *threads; /* owned, config.threads */
    struct write_job *writes;    /* owned, as are the other jobs */
    struct read_job *reads;
    struct drop_job *drops;
    struct pull_state *pulls; /* owned, config.pulls */
    uint64_t written, asked;  /* files requested so far; jobs of all kinds so far */
    bool recovered;           /* disk_recover was called: the config no longer has a key */
    int event_fd;

    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool stop;
    struct fifo unused[JOB_KINDS], waiting[JOB_KINDS], finished;
    uint32_t writing;                 /* threads that write a file */
    uint32_t changes;                 /* writes and drops whose end was not yet reported */
    uint32_t quiet;                   /* pulls whose EV_PULL_QUIET is due */
    struct disk_stats stats;          /* without `failing`, which is either of these: */
    bool write_failing, read_failing; /* how the last job of each kind ended */
    bool lost_all;                    /* the folder was removed; EV_DISK_DROPPED is due */
    _Atomic bool remake;   /* the folder was removed, and the next write makes it again */
    uint64_t lacked_bytes; /* free bytes that a write needed and did not find; 0: none */
};

#define DISK_COUNT(disk, field, n)                                                                 \
    do {                                                                                           \
        pthread_mutex_lock(&(disk)->lock);                                                         \
        (disk)->stats.field += (n);                                                                \
        pthread_mutex_unlock(&(disk)->lock);                                                       \
    } while (0)

/* Fsync of a file and of a folder, counted in the stats. */
int disk_sync_file(struct disk *disk, int file);
int disk_sync_folder(struct disk *disk, const char *name);

/* Returns true if the folder was removed: all its files are lost, and the core is notified. */
bool disk_is_gone(struct disk *disk);

/* Run on a thread of the disk. Each sets the job's err. */
void disk_write_run(struct disk_thread *t, struct write_job *w);
void disk_read_run(struct disk_thread *t, struct read_job *r);
void disk_drop_run(struct disk_thread *t, struct drop_job *const *drop, uint32_t n);

uint64_t reader_bytes(void); /* of a struct reader, which starts as zeros */

#endif
