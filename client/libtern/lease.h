/* What a lease keeps (E5): pages that the daemon has leased to the engine and that no session has
 * yet, the sessions that take them, and the Steps that say so and are not answered. stock.c takes
 * the answers, lease.c and lease_submit.c have the calls of tern.h.
 *
 * What must stay true, for each group: `held` is what the daemon counts as leased by this lease's
 * requests: the pages in the stock, those that Steps under way name, and those that are astray. A
 * page is in one of the three. It comes to the stock by the answer to a PageLease alone, so it was
 * free there: nothing that was used is handed out again before the daemon has proven it free. */
#ifndef CLIENT_LEASE_H
#define CLIENT_LEASE_H

#include <assert.h>

#include "internal.h"

#define LEASE_STEPS_MAX  8                 /* Steps that are not answered yet */
#define LEASE_STEP_PAGES 4096              /* pages that the operations of one Step name */
#define LEASE_STEP_RUNS  2048              /* runs of them */
#define LEASE_STEP_WORDS 65536             /* tokens of its operations */
#define LEASE_HELD_TIMES 2                 /* as many times the high mark is leased at most */
#define LEASE_HUGE_BYTES ((size_t)2 << 20) /* its memory is a multiple of them */
#define LEASE_PART_ALIGN 128               /* each of its tables begins at such a place */
#define LEASE_REFILL                                                                               \
    (LEASE_STEPS_MAX + 1) /* pending.lease_part of a PageLease: this + the group                   \
                           */

/* What a step looks at, for each of hundreds of sessions, each time behind a device's step that has
 * emptied the caches: two lines of a cache that lie side by side. */
struct lease_slot {
    _Alignas(128) tern_session session;
    uint32_t tokens;             /* of its list, those that wait to be told included */
    uint32_t written, allocated; /* likewise */
    uint32_t room;               /* so many tokens its pages have room for, in every group */
    uint16_t nwaiting;           /* tokens that wait to be told: the last of the list */
    bool told;                   /* `written` and `allocated` were told */
    enum lease_slot_state state;
    uint32_t waiting[TERN_LEASE_TOKENS_MAX];
};

static_assert(sizeof(struct lease_slot) == 128, "as the comment says");

/* The rest. */
struct lease_cold {
    uint32_t under_way;   /* operations that are gathered or not answered */
    uint32_t rewinds;     /* of these: pages of the table are other ones if it is refused, so
                             nothing is committed before */
    uint32_t astray;      /* pages that an assign of it named, and that was refused */
    uint32_t news;        /* answers that were not handed out yet */
    bool commits;         /* a commit of it is among them, or will be */
    uint64_t commit_step; /* by that step it has to be; 0: before any further one begins */
    uint64_t said_in;     /* the iteration in which `written` was said last */
    uint64_t leave_step;  /* LEAVING: the last that may touch what is astray */
    enum tern_err err;    /* of the first operation that was refused */
    char text[QUICK_TEXT_MAX];
    uint64_t numbers[2]; /* of the daemon's reason in that text */
};

struct lease_op {
    enum client_op_kind kind;
    uint32_t slot, npages;    /* slot UINT32_MAX: none, it gives back what is in the stock */
    uint32_t length, written; /* as it asked, for the words of a refusal */
};

/* The operations of one Step: being gathered, or under way. */
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
    uint32_t page_tokens; /* 0: RECURRENT, its pages are not leased */
    bool history;         /* its table keeps all pages */
    uint32_t low, high;
    uint32_t n;             /* in the stock */
    struct tern_page *page; /* LEASE_HELD_TIMES * high */
    uint32_t held;
    uint32_t asked;    /* by a PageLease that is under way */
    uint32_t most;     /* what the next one asks for at most: less where so much was refused */
    enum tern_err err; /* of the last one */
    uint32_t total; /* the most that the pool has, where the daemon has said so; else UINT32_MAX */
};

/* An answer that waits to be handed out, with its arrays behind it. */
struct lease_news {
    struct lease_news *next;
    struct tern_lease_told told;
    char text[QUICK_TEXT_MAX];
};

/* One piece of memory with its tables: lease_lay. */
struct tern_lease {
    struct tern *t; /* borrowed */
    struct tern_lease *next;
    uint64_t pool;
    uint64_t iteration,
        dispatched; /* Steps that were submitted with a step, and the last of those */
    bool has_state; /* a group is RECURRENT */
    uint32_t ngroups, nslots;
    struct lease_group group[TERN_GROUPS_MAX];
    struct lease_slot *slot;   /* nslots */
    uint32_t *place;           /* nplaces, by the hash of a handle: slot + 1, or 0 */
    uint32_t nplaces;          /* a power of two, at least twice nslots */
    struct lease_cold *cold;   /* nslots */
    struct lease_stray *stray; /* as many as can be held */
    uint32_t nstray, under_way, ncommits;
    struct lease_news *news, **news_end, *handed; /* owned */
    struct lease_step *step;                      /* LEASE_STEPS_MAX + 1 */
    uint32_t gathering;                           /* which of them */
    /* What is gathered, as it is to be sent. */
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

/* Room for one operation with so many pages and tokens. */
bool lease_has_room(struct tern_lease *l, uint32_t pages, uint32_t runs, uint32_t words);
/* The pages and runs of the operation are behind those that are gathered. */
void lease_gather(struct tern_lease *l, struct client_op op, uint32_t slot, uint32_t npages);

/* ---- leased.c ---- */

/* Of a table for so many. */
uint32_t leased_places(uint32_t sessions);
/* The slot has a session. */
void leased_put(struct tern_lease *l, uint32_t at);
/* A slot is FREE that was not. */
void leased_again(struct tern_lease *l);

/* ---- stock.c ---- */

/* A session that was removed, and of which nothing is left, makes room. */
void slot_rests(struct tern_lease *l, uint32_t at);

#endif
