/* The model of turn records, for records.c and record_checks.c alone. */
#ifndef SIM_RECS_H
#define SIM_RECS_H

#include "records.h"

#define REC_SLOTS 32  /* records of a daemon, more than limits.turn_records */
#define REC_PAGES 64  /* pages of a tenant's record memory, at most */
#define REC_WORDS 512 /* simulated words of a page */
#define REC_JOBS  4   /* more than limits.record_jobs */
#define REC_END   0x80000000u
#define REC_JUNK  0xdeadbeefu

enum rec_state { REC_FREE = 0, REC_PREPARED, REC_CHECKING, REC_LEAVING, REC_KEPT, REC_HELD };
enum bad { BAD_NO = 0, BAD_TOKEN, BAD_LOGPROB, BAD_PREFIX };

struct rec {
    uint8_t state, session, engine, tenant, kind, dropped, written_late, bad;
    uint32_t uid, scale, from, n, bad_at; /* in words */
    uint32_t words[TOKENS + 4];
    struct record_body body;
};

struct rec_session {
    uint32_t kept; /* 0: all */
    uint32_t rolled, scale, n;
    uint32_t exposed;       /* a turn that never ended may know the records before this */
    uint8_t lent, prepared; /* NO: nothing */
    uint8_t list[REC_SLOTS];
};

struct rec_job {
    struct record_job job;
    uint32_t rec, conn, step;
    uint64_t request_id;
};

struct recs {
    uint32_t uid, njobs;
    struct record_id last;
    struct rec rec[REC_SLOTS];
    struct rec_session of[SESSIONS];
    struct rec_job job[REC_JOBS];
    uint8_t owner[TENANTS][REC_PAGES]; /* 1 + the record that has the page; 0: free */
    uint32_t page[TENANTS][REC_PAGES][REC_WORDS];
};

static inline uint32_t number_of(const struct sim *w, uint32_t d, const struct session *s)
{
    return (uint32_t)(s - w->d[d].session);
}

static inline struct rec_session *recs_of(struct sim *w, uint32_t d, const struct session *s)
{
    return &w->recs[d]->of[number_of(w, d, s)];
}

static inline bool is_exposed(const struct rec_session *of, const struct rec *r)
{
    return r->body.from < of->exposed;
}

static inline const struct rec *last_of(const struct recs *m, const struct rec_session *of)
{
    return of->n ? &m->rec[of->list[of->n - 1]] : NULL;
}

static inline uint32_t recorded(const struct recs *m, const struct rec_session *of)
{
    return of->n ? last_of(m, of)->n : 0;
}

static inline bool same_section(const struct record_section *a, const struct record_section *b)
{
    return a->bytes == b->bytes && a->nruns == b->nruns &&
           memcmp(a->run, b->run, a->nruns * sizeof a->run[0]) == 0;
}

static inline uint32_t section_pages(const struct record_section *s)
{
    return (uint32_t)((s->bytes + RECORD_PAGE_BYTES - 1) / RECORD_PAGE_BYTES);
}

/* The word of a token id or log-probability, where it is simulated. */
uint32_t *rec_word(struct sim *w, uint32_t d, const struct rec *r, const struct record_section *s,
                   uint32_t word);
void rec_section_freed(struct sim *w, uint32_t d, const struct rec *r,
                       const struct record_section *s);
void rec_free(struct sim *w, uint32_t d, struct rec *r);
/* A turn that never ended may still touch the record. */
void rec_hold(struct sim *w, struct rec *r);

#endif
