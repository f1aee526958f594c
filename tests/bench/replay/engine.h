/* What the prefill and the decode engine have in common: the connection, the pool, its ranks, and
 * the requests in flight, which are called turns here. */
#ifndef REPLAY_ENGINE_H
#define REPLAY_ENGINE_H

#include "board.h"
#include "engine/op.h"
#include "engine/table.h"
#include "options.h"
#include "ranks.h"
#include "trouble.h"

static inline uint32_t div_up(uint32_t n, uint32_t d)
{
    return n / d + (n % d != 0);
}

#define CALL_MS  30000 /* a daemon that does not answer for that long is lost */
#define FETCH_MS 60000

enum turn_state {
    TURN_IDLE = 0,
    TURN_WAITING,   /* its request is to be begun again */
    TURN_MATCHED,   /* the session is open and what was found is pinned */
    TURN_EXTENDED,  /* the pages are there, the bytes not (decode: not compared) */
    TURN_WRITTEN,   /* prefill: the bytes are there and the step is done */
    TURN_COPYING,   /* prefill: committed; the state that the tree took is to be copied back */
    TURN_HANDING,   /* prefill: all is computed and committed; it is to be handed over */
    TURN_HANDED,    /* prefill: the decode side is at it; by ticket, it has no session any more */
    TURN_LOADING,   /* more of what it matched comes from the host tier; then it is MATCHED */
    TURN_FETCHING,  /* decode */
    TURN_ARRIVED,   /* decode: every whole page is in the table, none compared */
    TURN_CLOSING,   /* its session is to be closed; then it is over */
    TURN_ABORTING,  /* the same; then it is WAITING */
    TURN_RETURNING, /* decode: the same; then the prefill engine hands it over anew */
    TURN_RETRACTED, /* its session has given way; it goes on as `back` */
    TURN_RECOVERING,
};

/* Prefill: what the decode side knows of a request. It may have to be computed again after that. */
enum turn_handed { HANDED_NO = 0, HANDED_SENT, HANDED_ANSWERED };

/* Decode: what it has seen of the ticket. */
enum ticket_fate {
    FATE_STANDS = 0, /* not fetched, as far as it knows; or there is none */
    FATE_FETCHED,
    FATE_GONE, /* the source said so */
};

/* Prefill: why a ticket may be gone that nobody fetched. */
enum ticket_excuse { EXCUSE_NONE = 0, EXCUSE_DROPPED, EXCUSE_BRIEF };

/* A request in flight. */
struct turn {
    enum turn_state state;
    struct prompt prompt;
    uint32_t *tokens; /* owned: PROMPT_TOKENS_MAX */
    struct block_table table;
    uint32_t whole_pages; /* of the prompt in HISTORY groups, up to `target` */
    uint32_t target;      /* tokens in whole chunks of L: what is committed and fetched */
    uint32_t matched;     /* tokens; those from the host tier too */
    uint32_t host_depth;  /* what the host tier could bring it to; 0: no more than what is here */
    uint32_t committed, written, room; /* T, C and A of its session */
    uint32_t ready;                    /* tokens whose pages hold their bytes */
    uint32_t history;       /* decode: tokens of which it has HISTORY before it fetches */
    uint32_t best;          /* prefill: tokens that an oracle would have matched */
    uint32_t hits, arrived; /* decode: HISTORY pages that Match and Fetch named */
    tern_session session;
    uint64_t step; /* the last step that touched its pages; 0: none did */
    uint32_t tries;
    uint64_t order;                        /* of its arrival: larger is younger */
    uint64_t seen_finished, not_before_ns; /* WAITING, RETRACTED, and while it is short of pages */
    uint32_t waits;                        /* in a row, since it is short of pages; 0: it is not */
    uint64_t away;                         /* RETRACTED: in this order they come back */
    enum turn_state back;
    enum turn_handed handed;
    enum tern_err outcome;
    /* By ticket (see handing.h and fetches.h): */
    uint32_t handoff;     /* which hand-over of this request it is, from 0 */
    enum trouble trouble; /* that it is to meet yet */
    enum ticket_fate fate;
    enum ticket_excuse excuse;
    uint64_t due_ns; /* when its ticket is renewed or dropped, or its fetch cut short; 0: never */
    char ticket[TERN_TICKET_BYTES];
};

/* Where an engine counts what both have. */
struct engine_counts {
    _Atomic uint64_t *retries, *failed, *retracts, *recovers, *recovered_pages, *host_hit_tokens,
        *wrong;
};

struct engine {
    const struct options *options;
    struct board *board;
    char *why; /* BOARD_WHY_BYTES: the first failure's */
    struct geometry geometry;
    uint32_t page_tokens;  /* L: of the HISTORY groups */
    uint32_t nhistory;     /* HISTORY groups */
    int recurrent;         /* the RECURRENT group; -1: there is none */
    struct tern *tern;     /* owned */
    struct tern_pool *map; /* owned by tern */
    uint64_t pool, step, root[PROFILE_GROUPS_MAX], finished;
    uint64_t published; /* the last step that every rank has said to be done */
    struct engine_counts counts;
    /* See pressure.h: the oldest request that found the pool full in this iteration. */
    struct turn *pressed;
    struct tern_shortage shortage;
    uint64_t orders, aways, calm_until_ns;
    struct tern_namespace ns;
    struct team team;
    struct turn *turns; /* owned: options->concurrency */
    uint32_t nturns;
    struct page_job *jobs; /* owned; of the present step */
    uint32_t njobs, jobs_cap;
    struct tern_batch *batch; /* owned */
    struct engine_op *ops;    /* owned: up to three a turn */
    struct tern_result *results;
    uint32_t *op_turn, nops;
};

/* Connects, joins, opens and maps the pool. False with e->why set; engine_finish is still due. */
bool engine_start(struct engine *e, const struct options *o, struct board *board, char *why,
                  const char *socket, const char *name, const uint32_t *group_pages);
void engine_finish(struct engine *e);

/* Tokens, prefix hashes and page counts of turn->prompt. */
void turn_load(struct engine *e, struct turn *turn);

/* Opens a session and matches the prompt; *ret_match_ns is what the Match took. The pages found are
 * in the table. */
enum tern_err turn_begin(struct engine *e, struct turn *turn, uint64_t *ret_match_ns);

/* Puts what an Extend from `from` to `to` tokens named into the table; false unless it is exactly
 * what is missing there. */
bool turn_extended(struct engine *e, struct turn *turn, const struct tern_result *result,
                   uint32_t from, uint32_t to);

/* Asks the host tier for what it has beyond the match. False: it has nothing, or is not asked. */
bool turn_load_host(struct engine *e, struct turn *turn);
/* Its answer but BUSY: the turn is MATCHED, whatever came. False if pages are missing in it. */
bool turn_loaded(struct engine *e, struct turn *turn, const struct tern_answer *a);

/* What may be begun: always if nothing else is under way, else only after something has ended since
 * it gave up. */
bool turn_may_begin(const struct engine *e, const struct turn *turn, uint64_t now_ns);

/* Gives the request up for now, or for good after TRIES_MAX, and counts it. The session, if any, is
 * closed by the next Step. */
void turn_give_up(struct engine *e, struct turn *turn, enum tern_err err);

/* Jobs on the pages [first, end) of a HISTORY or WINDOW group. */
void engine_add_jobs(struct engine *e, const struct turn *turn, enum rank_work work, uint32_t group,
                     uint32_t first, uint32_t end);
/* The RECURRENT page, if there is such a group, as the state at depth `at`. */
void engine_add_state(struct engine *e, const struct turn *turn, enum rank_work work, uint32_t at);
/* The tokens from `from` to `to` are computed: the state to start from is copied and compared, and
 * every page of theirs is written, the RECURRENT one as it is at depth `at`. */
void engine_add_tail(struct engine *e, struct turn *turn, uint32_t from, uint32_t to, uint32_t at);
/* Copies the RECURRENT page if that is due, and adds a comparison of every page in the table that
 * holds something of [from, at). */
void engine_add_table(struct engine *e, struct turn *turn, uint32_t from, uint32_t at);
/* The RECURRENT page of the table takes the tree's state at `at`, and is compared. */
void engine_copy_state(struct engine *e, struct turn *turn, uint32_t at);
/* Does the jobs, counts what was wrong in `what`, and publishes that step; 0: none is done. */
bool engine_run_jobs(struct engine *e, uint64_t step, const char *what);
void engine_add_op(struct engine *e, const struct turn *turn, struct engine_op op);

/* Sends the operations gathered; false if the daemon is lost. */
bool engine_step(struct engine *e);

/* The error of an operation: where the pool is short the turn waits, else it is given up. True:
 * there is none. */
bool turn_went_well(struct engine *e, struct turn *turn, const struct tern_result *result);

/* How long to wait for a message: until then, or until a turn may come back or has pages; 0: not at
 * all; -1: for as long as it takes. */
int engine_wait_ms(const struct engine *e, uint64_t now_ns, uint64_t until_ns);

/* No request is in flight. */
bool engine_idle(const struct engine *e);

/* Keeps the text of the first failure. */
__attribute__((format(printf, 2, 3))) void engine_says(struct engine *e, const char *format, ...);

#endif
