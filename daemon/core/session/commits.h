/* A session's next chunk becomes a prefix node, or the session adopts the existing one. */
#ifndef CORE_COMMITS_H
#define CORE_COMMITS_H

#include "core/arena/arena.h"

/* Attaches or adopts the next chunk after the committed length (T6-T8, T18), with the first pages
 * of `pages`. Returns GONE if another engine is about to publish it. */
struct chunk_source {
    struct list *pages;      /* one list for each group */
    uint32_t *base;          /* first logical page of each list */
    struct list *duplicates; /* out: pages to free */
    uint32_t *pending;       /* nodes to publish, chained */
    uint64_t *step;          /* in: the commit's step; out: at least the path's */
    uint64_t named;          /* the commit's step */
    uint32_t state_at;       /* the depth whose state a RECURRENT page holds */
    uint32_t whole_from;     /* as in struct session: the first page may have arrived in part */
    uint32_t arrived;        /* NONE at first: see state_arrived */
    uint32_t handed;         /* out: RECURRENT groups whose page was handed over, as bits */
    uint32_t unread; /* out: groups, as bits, whose STATE of the last chunk waits for a step */
    bool arriving;   /* from a transfer: the pages are sealed, and the session gets no fresh
                        RECURRENT page */
};
enum tern_err chunk_attach(struct core *c, struct session *s, struct chunk_source *src,
                           bool *ret_adopted);
enum tern_err session_commit(struct core *c, struct actions *out, struct engine *e,
                             struct session *s, const struct step_op *op, struct op_result *ret);

/* The session was matched: its stores on the disk are due from here on (D1, D2). */
void session_stores_from(struct core *c, struct session *s);
/* A turn ended or a session closes: stores its prompt, unless an anchor was named (D2). */
void session_store_prompt(struct core *c, struct session *s);

#endif
