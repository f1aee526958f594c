/* A session's next chunk becomes a node of the prefix tree, or the session adopts the one there. */
#ifndef CORE_COMMITS_H
#define CORE_COMMITS_H

#include "core/arena/arena.h"

/* Attaches or adopts the chunk that follows what is committed (T6-T8, T18), with the first pages of
 * `pages`. GONE stands for "another engine is about to publish it". */
struct chunk_source {
    struct list *pages;      /* one list a group */
    uint32_t *base;          /* first logical page of each list */
    struct list *duplicates; /* collects what is to be given back */
    uint32_t *pending;       /* nodes to be published, chained */
    uint64_t *step;          /* in: the commit's; out: not below that of the path */
    uint64_t named;          /* the commit's */
    uint32_t state_at;       /* the depth whose state a RECURRENT page holds */
    uint32_t whole_from;     /* as in struct session: the first page may be one that came in part */
    uint32_t arrived;        /* NONE at first: see state_arrived */
    uint32_t handed;         /* out: RECURRENT groups whose page was handed over, as bits */
    uint32_t unread; /* out: groups, as bits, whose STATE in the last chunk waits for a step */
    bool arriving;   /* a transfer's: checksums are known, and the session gets no fresh RECURRENT
                        page */
};
enum tern_err chunk_attach(struct core *c, struct session *s, struct chunk_source *src,
                           bool *ret_adopted);
enum tern_err session_commit(struct core *c, struct actions *out, struct engine *e,
                             struct session *s, const struct step_op *op, struct op_result *ret);

/* The session was matched: from here on its stores on the disk are due (D1, D2). */
void session_stores_from(struct core *c, struct session *s);
/* Its turn is over or it is closing: stores its prompt, unless its engine named an anchor (D2). */
void session_store_prompt(struct core *c, struct session *s);

#endif
