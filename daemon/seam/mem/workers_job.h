/* The jobs of the workers and their work on bytes, piece by piece: hashing, copying between the
 * tiers, zeroing, populating. Any number of threads work on items of one job at a time; nothing
 * here takes a lock. Only workers.c uses this. */
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
    const uint8_t *memory;               /* RECORD: its tenant's */
    struct record_checked checked;       /* RECORD: the result */
    struct pool_place place;             /* COPY: the source */
    struct pool_place target;            /* COPY */
    struct page_at page[SEAL_PAGES_MAX]; /* SEAL, COPY */
    struct page_at to[SEAL_PAGES_MAX];   /* COPY */
    uint32_t npages;
    uint64_t *sums;
    uint32_t sums_per_page;
    bool huge;                /* POPULATE */
    bool spoil;               /* COPY: fault injection, one byte is wrong */
    bool failed;              /* POPULATE: no memory. COPY: wrong bytes */
    _Atomic uint32_t brought; /* SEAL: checksums that an engine brought */
    /* Items are units for SEAL and COPY (pages, if the memory is far); otherwise pieces of the
     * range. */
    uint64_t items, taken, done;
    struct fifo_link link;
};

/* The number of the job's items; set it after all other fields of the job. */
uint64_t job_items(const struct job *job);
/* How many of the items not yet taken a thread should take at once. */
uint64_t job_run_length(const struct job *job);
/* Does items [first, first + n). Returns false if there was no memory, or a copy is wrong. */
bool job_run(struct job *job, uint64_t first, uint64_t n);

#endif
