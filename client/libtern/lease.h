/* A lease (E5): its stock of pages, which the daemon has leased to the engine and no session has
 * yet, the sessions that take them, and the Steps that report these changes and have no answer yet.
 * stock.c takes the answers; lease.c and lease_submit.c have the calls of tern.h.
 *
 * Invariant, for each group: `held` is the number of pages that the daemon counts as leased by this
 * lease's requests: pages in the stock, pages that Steps under way name, and stray pages. Each page
 * is in one of the three. A page enters the stock only by the answer to a PageLease, so the daemon
 * has proven it free: a used page is never reused before that. */
#ifndef CLIENT_LEASE_H
#define CLIENT_LEASE_H

#include <assert.h>

#include "internal.h"

#define LEASE_STEPS_MAX  8     /* Steps that are not answered yet */
#define LEASE_STEP_PAGES 4096  /* pages named by the operations of one Step */
#define LEASE_STEP_RUNS  2048  /* runs of them */
#define LEASE_STEP_WORDS 65536 /* tokens of its operations */
#define LEASE_HELD_TIMES 2     /* most pages leased: as many times the high mark */
#define LEASE_PART_ALIGN 128   /* alignment of each of its tables, in bytes */
#define LEASE_REFILL                                                                               \
    (LEASE_STEPS_MAX + 1) /* pending.lease_part of a PageLease: this + the group                   \
                           */

/* The part of a session that each step reads, for hundreds of sessions, after a step of the device
 * has emptied the caches: two adjacent cache lines. */
struct lease_slot {
    _Alignas(128) tern_session session;
    uint32_t tokens;             /* in its list, including those not reported yet */
    uint32_t written, allocated; /* including lengths not reported yet */
    uint32_t room;               /* tokens that its pages have room for, in every group */
    uint16_t nwaiting;           /* tokens not reported to the daemon yet: the last of the list */
    bool told;                   /* `written` and `allocated` were reported */
    enum lease_slot_state state;
    uint32_t waiting[TERN_LEASE_TOKENS_MAX];
};

static_assert(sizeof(struct lease_slot) == 128, "as the comment says");

/* The part of a session that few steps read. */
struct lease_cold {
    uint32_t under_way;   /* operations gathered or not answered yet */
    uint32_t rewinds;     /* rewinds among these: a refused rewind changes pages of the table, so
                             commits wait for its answer */
    uint32_t astray;      /* stray pages: named by an assign that was refused */
    uint32_t news;        /* answers that tern_lease_told has not returned yet */
    bool commits;         /* a commit is among the answers, or will be */
    uint64_t commit_step; /* the commit's answer is due by that step; 0: before any further step */
    uint64_t said_in;     /* the iteration in which `written` was reported last */
    uint64_t leave_step;  /* LEAVING: the last step that may touch its stray pages */
    enum tern_err err;    /* of the first refused operation */
    char text[QUICK_TEXT_MAX];
    uint64_t numbers[2]; /* of the daemon's reason in that text */
};

struct lease_op {
    enum client_op_kind kind;
    uint32_t slot, npages;    /* slot UINT32_MAX: none, it returns the pages of the stock */
    uint32_t length, written; /* as requested, for the text of a refusal */
};

/* The operations of one Step, gathered or under way. */
struct lease_step {
    bool used;
    uint32_t nops, npages;
    struct lease_op op[TERN_BATCH_OPS_MAX];
    struct tern_page page[LEASE_STEP_PAGES];
    uint8_t group[LEASE_STEP_PAGES]; /* of that page */
};

struct lease_stray {
    struct tern_page page;
    uint32_t slot, group;
};

struct lease_group {
    uint32_t page_tokens; /* 0: RECURRENT, whose pages are not leased */
    bool history;         /* tables keep all its pages */
    uint32_t low, high;
    uint32_t n;             /* in the stock */
    struct tern_page *page; /* LEASE_HELD_TIMES * high */
    uint32_t held;
    uint32_t asked;    /* pages requested by a PageLease under way */
    uint32_t most;     /* the most pages of the next PageLease: reduced after a refusal */
    enum tern_err err; /* of the last one */
    uint32_t total;    /* the most pages of the pool, if the daemon named it; else UINT32_MAX */
};

/* An answer that waits for tern_lease_told, with its arrays behind it. */
struct lease_news {
    struct lease_news *next;
    struct tern_lease_told told;
    char text[QUICK_TEXT_MAX];
};

/* One allocation with its tables: see lease_lay. */
struct tern_lease {
    struct tern *t; /* borrowed */
    struct tern_lease *next;
    uint64_t pool;
    uint64_t iteration,
        dispatched; /* count of Steps submitted with a step, and the last such step */
    bool has_state; /* a group is RECURRENT */
    uint32_t ngroups, nslots;
    struct lease_group group[TERN_GROUPS_MAX];
    struct lease_slot *slot;   /* nslots */
    uint32_t *place;           /* nplaces, by the hash of a handle: slot + 1, or 0 */
    uint32_t nplaces;          /* a power of two, at least twice nslots */
    struct lease_cold *cold;   /* nslots */
    struct lease_stray *stray; /* as many as `held` can be */
    uint32_t nstray, under_way, ncommits;
    struct lease_news *news, **news_end, *handed; /* owned */
    struct lease_step *step;                      /* LEASE_STEPS_MAX + 1 */
    uint32_t gathering;                           /* index of the Step being gathered */
    /* The gathered operations as they will be sent. */
    size_t bytes;
    uint32_t nruns, nwords;
    struct client_op op[TERN_BATCH_OPS_MAX];
    struct tern_run run[LEASE_STEP_RUNS];
    uint32_t words[LEASE_STEP_WORDS];
};

static inline struct lease_step *lease_gathering(struct tern_lease *l)
{
    return &l->step[l->gathering];
}

/* ---- lease.c ---- */

/* Returns true if there is room for one operation with that many pages, runs and tokens. */
bool lease_has_room(struct tern_lease *l, uint32_t pages, uint32_t runs, uint32_t words);
/* Gathers the operation, whose pages and runs already lie behind those gathered before. */
void lease_gather(struct tern_lease *l, struct client_op op, uint32_t slot, uint32_t npages);

/* ---- leased.c ---- */

/* Returns the number of places of a table for that many sessions. */
uint32_t leased_places(uint32_t sessions);
/* Adds the slot, which has a session, to the table. */
void leased_put(struct tern_lease *l, uint32_t at);
/* Rebuilds the table after a slot became FREE. */
void leased_again(struct tern_lease *l);

/* ---- stock.c ---- */

/* Frees the slot of a session that was removed, once nothing of it is left. */
void slot_rests(struct tern_lease *l, uint32_t at);

#endif
