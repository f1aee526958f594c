/* What the files of the disk tier's runtime share: its jobs, and the threads that do them. A job
 * lies in one of a fixed number of slots of its kind, so that too many are a bug of whoever counts
 * them (the core, against its own limits) and not a case to handle.
 *
 * One mutex guards the lists, the pulls and the figures; it is held for a few instructions and
 * never while bytes are moved. A job that a thread has taken is that thread's until it is finished;
 * the owner touches nothing of it but `stop`. */
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

/* Of those that wait, the first kind goes first: an engine waits for what is read, and what is
 * given back makes room for what is written. */
enum job_kind { JOB_READ, JOB_DROP, JOB_WRITE, JOB_KINDS };

struct disk_job { /* what each kind begins with */
    struct fifo_link link;
    enum job_kind kind;
    enum tern_err err;
    uint64_t asked; /* ascends, in the order in which the core asked */
};

struct write_job {
    struct disk_job job;
    int fault;               /* an errno to fail with, for tests; 0 */
    struct disk_write write; /* of the arrays below */
    struct disk_extent extent[DISK_WRITE_EXTENTS];
    struct page_at page[DISK_WRITE_PAGES];
    struct extra_key key[EXTRA_KEYS_MAX];
    uint32_t token[OPEN_TOKENS_MAX];
};

struct read_job {
    struct disk_job job;
    struct pull_id pull;
    uint32_t batch, pool, n;
    _Atomic bool stop;  /* nobody wants its pages any more */
    uint64_t lost_file; /* that is not there any more; 0: none */
    uint64_t ok[PULL_BATCH_PAGES / 64];
    struct page_at page[PULL_BATCH_PAGES];
    struct disk_page from[PULL_BATCH_PAGES];
};

struct drop_job {
    struct disk_job job;
    struct disk_drop drop;
};

/* A transfer whose source is the disk, as long as something of it may run. */
struct pull_state {
    struct pull_id id;
    uint32_t jobs; /* that wait or run */
    bool broken, stopping;
    bool quiet; /* stopping, and nothing runs: to be told */
};

struct reader; /* of one thread: disk_read.c */

struct disk_thread {
    struct disk *disk;
    pthread_t thread;
    bool started;
    struct pieces pieces;
    struct disk_crypt *crypt; /* owned; NULL: the files are in the clear */
    uint8_t *block;           /* DISK_BLOCK */
    uint8_t *blocks;          /* of `pieces` */
    uint8_t *meta;            /* disk->meta_bytes */
    uint8_t *footer;          /* disk_footer_bytes_max */
    struct disk_seal *seal;   /* DISK_WRITE_EXTENTS: of the file in work */
    struct reader *reader;
    struct read_job *reading; /* with the lock held: what it reads */
};

struct disk {
    struct disk_config config;
    char *dir;
    char tenant[MEM_TENANTS_MAX][DISK_TENANT_NAME];
    const struct disk_files *files;
    struct file_ops *ops;        /* owned; NULL: the files are the caller's */
    uint8_t *staging;            /* owned: of all threads */
    uint64_t meta_bytes;         /* of an extent at most */
    struct disk_thread *threads; /* owned, config.threads */
    struct write_job *writes;    /* owned, as are the other jobs */
    struct read_job *reads;
    struct drop_job *drops;
    struct pull_state *pulls; /* owned, config.pulls */
    uint64_t written, asked;  /* files that were asked for; jobs of all kinds */
    bool recovered;           /* disk_recover was called: the config has no key any more */
    int event_fd;

    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool stop;
    struct fifo unused[JOB_KINDS], waiting[JOB_KINDS], finished;
    uint32_t writing; /* threads that write a file */
    uint32_t changes; /* files to be written and bytes to be given back, until they are told */
    uint32_t quiet;   /* pulls of which that is to be told */
    struct disk_stats stats;          /* but `failing`, which is made of these two: */
    bool write_failing, read_failing; /* as each of its kind ended last */
    bool lost_all;                    /* the folder was removed, and that is to be told */
    _Atomic bool remake;              /* likewise, and the next write makes it anew */
    uint64_t lacked_bytes; /* that must be free for the write that found too little; 0: none did */
};

#define DISK_COUNT(disk, field, n)                                                                 \
    do {                                                                                           \
        pthread_mutex_lock(&(disk)->lock);                                                         \
        (disk)->stats.field += (n);                                                                \
        pthread_mutex_unlock(&(disk)->lock);                                                       \
    } while (0)

/* Fsync and its kin, counted. */
int disk_sync_file(struct disk *disk, int file);
int disk_sync_folder(struct disk *disk, const char *name);

/* Was the folder removed? Then all its files are lost, and the core is told so. */
bool disk_is_gone(struct disk *disk);

/* On a thread of the disk's. They fill in the job's err. */
void disk_write_run(struct disk_thread *t, struct write_job *w);
void disk_read_run(struct disk_thread *t, struct read_job *r);
void disk_drop_run(struct disk_thread *t, struct drop_job *const *drop, uint32_t n);

uint64_t reader_bytes(void); /* of a struct reader, which begins with zeros */

#endif
