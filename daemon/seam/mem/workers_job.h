/* What a job of the workers is and what is done to the bytes, piece by piece: hashing, copying
 * between the tiers, zeroing, populating. Any number of threads do items of one job at a time; none
 * of this takes a lock. Only workers.c uses this. */
#ifndef SEAM_WORKERS_JOB_H
#define SEAM_WORKERS_JOB_H

#include <stdatomic.h>

#include "base/fifo.h"
#include "seam/mem/workers.h"

enum job_kind { JOB_SEAL = 1, JOB_COPY, JOB_RECORD, JOB_ZERO, JOB_POPULATE };

struct job {
    enum job_kind kind;
    union { /* by kind; POPULATE has none */
        struct seal_id seal;
        struct copy_id copy;
        struct pool_id zero;
        struct record_job record;
    };
    const uint8_t *memory;               /* RECORD: of its tenant */
    struct record_checked checked;       /* RECORD: what was found */
    struct pool_place place;             /* COPY: of what is read */
    struct pool_place target;            /* COPY */
    struct page_at page[SEAL_PAGES_MAX]; /* SEAL, COPY */
    struct page_at to[SEAL_PAGES_MAX];   /* COPY */
    uint32_t npages;
    uint64_t *sums;
    uint32_t sums_per_page;
    bool huge;                /* POPULATE */
    bool spoil;               /* COPY: fault injection, one byte goes wrong */
    bool failed;              /* POPULATE: no memory. COPY: wrong bytes */
    _Atomic uint32_t brought; /* SEAL: checksums that an engine brought */
    /* SEAL, COPY: units, of a device pages; else pieces of the range. */
    uint64_t items, taken, done;
    struct fifo_link link;
};

/* How many items the job has; set once it is otherwise complete. */
uint64_t job_items(const struct job *job);
/* How many of them a thread should take at once, from those that are not taken yet. */
uint64_t job_run_length(const struct job *job);
/* Does items [first, first + n). False: populating found no memory, or bytes copied are wrong. */
bool job_run(struct job *job, uint64_t first, uint64_t n);

#endif
